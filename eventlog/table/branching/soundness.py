"""The check that a table holds the versions of its branches; remains of interrupted programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from eventlog.display import command
from eventlog.errors import Corrupt, UnsupportedFormat
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.model.records import Fork, Meta
from eventlog.session.branch_pins import is_passed, is_pinned, pin_name
from eventlog.store.port import ObjectStore
from eventlog.table.branching.names import (
    earlier_ids,
    fork_of,
    forks_below,
    has_commits,
    lost_fork,
    problem_of,
    stored_names,
)

Severity = Literal["error", "warning"]


def check_branches(log: Log, meta: Meta) -> Iterator[tuple[str, Severity, str]]:
    """Yield key, severity and message of what is wrong with the branches. Six requests for each.

    Args:
        log: of the parent.
        meta: the small state at its head.
    """
    store = log.store
    # A pin alone is no fault: a copy of a table has its pins, and none of its branches.
    for name in stored_names(store):
        key = f"{keys.branch_root(name)}/{keys.FORK_KEY}"
        try:
            fork = fork_of(store, name)
            problem = None if fork is None else problem_of(log, fork, chained=True)
        except UnsupportedFormat as error:
            yield key, "warning", f"branch {name!r} cannot be looked at: {error.message}"
            continue
        except Corrupt as error:
            fork, problem = None, error.message
        if problem is not None:
            message = (
                f"branch {name!r} is damaged: {problem}. Put `_fork.json`, or the parent's "
                "`_log/`, back from a copy; or give the branch up, with what was committed there: "
                f"{command('branch', store.uri, name, '--delete')} removes it"
            )
            yield key, "error", message
            continue
        yield from () if fork is None else _lost_below(store, fork)
        pin = pin_name(store, name)
        below = None if fork else next(forks_below(store, keys.branch_root(name)), None)
        if below is not None:
            message = (
                f"branch {name!r} is damaged: `_fork.json` is missing, and branch "
                f"{'/'.join(below[0])!r} is there. Put `_fork.json` back from a copy"
            )
            yield key, "error", message
        elif fork is None and has_commits(store, name):
            yield key, "warning", lost_fork(store, name)
        elif fork is None:
            message = (
                f"branch {name!r} is unfinished, or was not deleted completely: "
                f"{command('branch', store.uri, name)} goes on, with --delete it removes the rest"
            )
            yield key, "warning", message
        elif not is_pinned(fork, meta.pins.get(pin)) and not is_passed(fork, meta):
            message = (
                f"no pin protects what branch {name!r} reads. The next vacuum that runs here pins "
                "it again: leave it so where this table follows another one. Else pin version "
                f"{fork.held} under the name {pin!r} "
                f"({command('pin', store.uri, pin, str(fork.held))}), or delete the branch"
            )
            yield key, "error", message


def _lost_below(store: ObjectStore, fork: Fork) -> Iterator[tuple[str, Severity, str]]:
    """Yield the branches of a branch that was lost and made again: they cannot be opened (R16.7).

    Lists the objects below its earlier ids.
    """
    for earlier in earlier_ids(store, fork):
        for names, key in forks_below(store, f"{keys.branch_root(fork.name)}/{earlier}"):
            message = (
                f"branch {fork.name!r} was lost and made again, and branch {'/'.join(names)!r} of "
                "the one before cannot be opened. To have it, copy what the branch has now "
                f"elsewhere, and put the earlier `_fork.json` (id {earlier}) back in place of its "
                f"own; to give it up, remove the object {key} by hand"
            )
            yield key, "error", message
