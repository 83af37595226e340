"""Shrinks a failing seed to the smallest run that fails in the same way, and reports it."""

import re
from dataclasses import replace

from simulation import plans
from simulation.ledger import Violation
from simulation.simulate import run, simulate

VERSIONED = re.compile(r"(_log/|_intents/)(\d{12})")
LONG = re.compile(r"([0-9a-f]{6})[0-9a-f]{26,}")
SALTS = 3  # schedules tried of each smaller plan


def failure(plan, play=run):
    """Return the error of a plan, or None."""
    try:
        play(plan)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return error
    return None


def kind(error):
    return error.rule if isinstance(error, Violation) else type(error).__name__


def shrink(plan, error, play=run, tries=400):
    """Return a smaller plan that fails in the same way, and its error."""
    left = tries
    moved = True
    while moved and left > 0:
        moved = False
        for candidate in plans.smaller(plan):
            for salt in range(SALTS):
                left -= 1
                tried = replace(candidate, salt=plan.salt + salt)
                found = failure(tried, play)
                if found is not None and kind(found) == kind(error):
                    plan, error, moved = tried, found, True
                    break
            if moved or left <= 0:
                break
    return plan, error


def told(seed, plan=None, play=run, tries=400, *, again="1"):
    """Return the report of a failing seed: the command, the shrunk plan, its trace."""
    plan = plan or plans.draw(seed)
    error = failure(plan, play)
    if error is None:
        return f"seed {seed} does not fail (any more)"
    small, least = shrink(plan, error, play, tries)
    lines = [
        f"seed {seed}: {error!r}",
        f"again: python tests/simulation/run.py {again} --first {seed}",
        f"shrunk: {least!r}",
        str(small),
        *trace_of(small),
    ]
    return "\n".join(lines)


def line(what, plan):
    """Return one step as text: actor, call, and the key by its version or its prefix."""
    who, *call = what
    if not isinstance(who, int):  # a fault of the call before
        return f"    {' '.join(what)}"
    text = " ".join(map(str, call))
    text = VERSIONED.sub(lambda m: f"{m[1]}{version_of(m[2])}", text)
    return f"{who} {plan.roles[who][0]}: {LONG.sub(lambda m: m[1] + '…', text)}"


def version_of(inverted):
    return 999_999_999_999 - int(inverted)


def trace_of(plan, last=120):
    """Return the trace of a plan, only its last lines if it is long."""
    kept = []
    failure(plan, lambda p: simulate(p, kept.append))
    lines = [line(what, plan) for what in kept[0].scheduler.trace]
    cut = len(lines) - last
    return [*([f"... {cut} steps"] if cut > 0 else []), *lines[max(0, cut) :]]
