"""Negative controls: the simulation detects each removed guard of the protocol."""

import re
from dataclasses import replace
from importlib import import_module
from itertools import count, islice
from unittest import mock

import pytest
from msgspec import structs
from simulation import compactors, keepers, plans
from simulation.harsh import HarshStore
from simulation.ledger import Violation
from simulation.shrink import failure, kind, shrink, told
from simulation.simulate import PERFORM, run
from simulation.world import WatchedStore

from eventlog import errors
from eventlog.commit.protocol import attempt, commands, put
from eventlog.commit.protocol import commit as committing
from eventlog.compaction.planner import assessing
from eventlog.format import keys
from eventlog.model.actions import Fence, Horizon
from eventlog.recovery import garbage
from eventlog.state import fold
from eventlog.state.small import assessment, claims, holds, rules

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = 300


def careless_vacuum(*, fenced=True, horizon=True, live_first=False):
    """A simple vacuum, with a guard left out."""

    def vacuum(t, **_options):
        head = t.refresh()
        live = {s.id for s in head.segments()} if live_first else None
        actions = [Fence(head.version)] if fenced and head.version > head.meta.fence else []
        if horizon and head.version - 1 > head.meta.horizon:
            actions.append(Horizon(head.version - 1))
        if actions:
            t.commit(t.transaction("vacuum", actions))
        head = t.refresh()
        if live is None:
            live = {s.id for s in head.segments()}
        listed = [keys.parse_segment_key(o.key) for o in t.store.list(keys.SEGMENTS_PREFIX)]
        below = head.meta.fence if fenced else head.version
        dead = [p for p in listed if p and p[0] < below and p[2] not in live]
        t.store.delete([keys.segment_key(*p) for p in dead])

    return vacuum


def overwriting(self, key, body):
    if key.startswith(keys.LOG_PREFIX):
        self.inner.delete([key])
    return WATCHED_PUT(self, key, body)


WATCHED_PUT = WatchedStore.put_if_absent


def taken_for_success(_self, proposal):
    yield commands.PutSlot(proposal.snapshot.version, proposal.body)


def never_unclear(self, proposal, transaction_id):
    """Treat an unclear answer as a refusal, though the commit may have landed."""
    try:
        return (yield from SETTLE(self, proposal, transaction_id))
    except errors.CommitUnknown as error:
        raise errors.Unavailable(error.message) from None


def never_in_doubt(_self, _transaction_id, error):
    """Ignore that the transaction was sent before."""
    return errors.Unavailable(error.message)


SETTLE = put.put_commit


def nothing(*_args, **_options):
    """Replace any rule with one that never objects."""


def whichever(meta, _token):
    return next(iter(meta.claims.values()), "there is none")


def one_row_for_another(task, rows):
    """A rewrite that duplicates one row and loses another, so the number of rows is unchanged."""
    return CUT(task, [rows[0], *rows[:1], *rows[2:]])


def whatever_was_analysed(action, meta, version):
    return ASSESS(structs.replace(action, old=meta.analysed), meta, version)


def without_revoking(action, meta, version):
    """Grant a claim without revoking conflicting ones."""
    made = TAKE(action, structs.replace(meta, claims={}), version)
    if isinstance(made, str):
        return made
    return structs.replace(meta, claims=dict(sorted({**meta.claims, **made.claims}.items())))


def newest(_log, _transaction_id, _start, head):
    return head


CUT, ASSESS, TAKE = compactors.cut, assessment.assess, claims.take


def without_horizon(dropped, live, fence, _horizon):
    return VERDICT(dropped, live, fence, keys.MAX_VERSION)


def judged_too_early(t, ages, *, dry_run):
    """Commit the marks, but judge by the version before them."""
    head = t.refresh()
    return head, MARK(t, ages, dry_run=dry_run)[1]


VACUUM = import_module("eventlog.compaction.vacuum")  # its package has a function of that name
VERDICT, MARK = garbage.verdict, VACUUM._mark

# Name -> (module or class, attribute, replacement).
MUTANTS = {
    "a vacuum without a fence": (keepers, "sweep", careless_vacuum(fenced=False)),
    "a vacuum that reads what is live first": (keepers, "sweep", careless_vacuum(live_first=True)),
    "a vacuum without a horizon": (keepers, "sweep", careless_vacuum(horizon=False)),
    "the vacuum, taking what was dropped since": (garbage, "verdict", without_horizon),
    "the vacuum, judging by an earlier version": (VACUUM, "_mark", judged_too_early),
    "the vacuum, taking nothing for live": (VACUUM._Sweep, "_live", lambda *_: []),
    "a store that overwrites": (WatchedStore, "put_if_absent", overwriting),
    "a refusal taken for success": (put, "_try_once", taken_for_success),
    "an unclear answer taken for a refusal": (attempt, "put_commit", never_unclear),
    "a doubt that is forgotten": (committing, "_unresolved_error", never_in_doubt),
    "claims that never end": (claims, "held", whichever),
    "a horizon that passes pins": (holds, "holds", lambda _meta: []),
    "pins below the horizon": (holds, "_hold_problem", nothing),
    "adds below the fence": (rules, "add_problem", nothing),
    "preconditions that always hold": (fold, "_arrived", nothing),
    "a rewrite that mistakes a row for another": (compactors, "cut", one_row_for_another),
    "rewrites whose rows nobody counts": (rules, "replace_problem", nothing),
    "claims that revoke nobody": (claims, "take", without_revoking),
    "analyses that know nothing of each other": (assessment, "assess", whatever_was_analysed),
    "compaction that never comes to an end": (assessing, "_is_fixed", lambda *_: False),
    "a task that takes any commit for its own": (PERFORM, "find_transaction", newest),
    "sequences that count for nothing": (rules, "mark_app", lambda meta, *_: meta),
}


# The roles for which a guard matters: seeds without them are skipped.
NEEDED = {
    "a horizon that passes pins": {"pinner", "marker"},
    "pins below the horizon": {"pinner", "marker"},
    "preconditions that always hold": {"overwriter"},
    "compaction that never comes to an end": {"runner"},
    "a task that takes any commit for its own": {"worker"},
    "analyses that know nothing of each other": {"planner"},
    "a rewrite that mistakes a row for another": {"compactor"},
    "rewrites whose rows nobody counts": {"compactor"},
}


def plans_for(name):
    """Yield plans of the first seeds that have the roles that the mutant needs."""
    drawn = (plans.draw(seed) for seed in count())
    fit = (p for p in drawn if {role for role, _ in p.roles} >= NEEDED.get(name, set()))
    return islice(fit, SEEDS)


def violates(plan):
    """Return whether the checker finds a violation; errors of the mutated code do not count."""
    return isinstance(failure(plan), Violation)


# Those take many seeds to be found. `make mutants` has them all, with the tests of every folder.
LONG = {
    "a vacuum that reads what is live first",
    "the vacuum, judging by an earlier version",
    "the vacuum, taking what was dropped since",
    "claims that never end",
    "pins below the horizon",
    "an unclear answer taken for a refusal",
    "analyses that know nothing of each other",
    "rewrites whose rows nobody counts",
    "a doubt that is forgotten",
    "adds below the fence",
    "preconditions that always hold",
    "sequences that count for nothing",
}


@pytest.mark.sample(0, verify=6)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n in LONG)) for n in MUTANTS]
)
def test_a_missing_guard_is_found(name):
    with mock.patch.object(*MUTANTS[name]):
        failing = next(filter(violates, plans_for(name)), None)
    assert failing is not None, f"{name}: not found in {SEEDS} seeds"
    assert failure(failing) is None, "found without the mutant too"


@pytest.mark.verify
def test_a_failure_is_told_shrunk_and_can_be_read():
    with mock.patch.object(*MUTANTS["a vacuum without a fence"]):
        seed = next(s for s in range(SEEDS) if violates(plans.draw(s)))
        plan = plans.draw(seed)
        error = failure(plan)
        small, least = shrink(plan, error, tries=120)
        text = told(seed, tries=120)
    assert kind(least) == kind(error)
    assert sum(n for _, n in small.roles) < sum(n for _, n in plan.roles)
    assert f"run.py 1 --first {seed}" in text
    assert re.search(r"shrunk: .*\n", text)
    assert re.search(r"delete \d+ keys", text)


def test_a_run_that_never_ends_is_stopped():
    plan = replace(plans.draw(1), roles=(("appender", 2), ("reader", 2)))
    assert failure(plan) is None

    def forever(self, key, **options):
        while True:
            self._scheduler.park(("get", key))

    with mock.patch.object(HarshStore, "get", forever):
        assert kind(failure(plan, run)) == "NoProgress"
