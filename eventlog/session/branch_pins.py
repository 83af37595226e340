"""The pin with which the parent of a branch keeps its versions for the branch (FORMAT.md R16.6)."""

from __future__ import annotations

from eventlog.display import command
from eventlog.errors import CommitConflict
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.model.records import Fork, Meta, Pin
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import check_there
from eventlog.store.port import ObjectStore

# The owner of every branch's pin: everyone who may delete the branch may remove it.
OWNER = "eventlog branch"
PREFIX = "branch:"  # of the names of these pins


def pin_name(store: ObjectStore, name: str) -> str:
    """Return the name of the pin that holds a branch in its parent (R16.6).

    It has the names of all branches on the way, so that a pin that a branch has from its parent's
    state is not taken for one of its own branches.

    Args:
        store: of the parent.
        name: of the branch.
    """
    above = [fork.name for fork in reversed(store.forks)]
    return PREFIX + "/".join([*above, name])


def is_pinned(fork: Fork, pin: Pin | None) -> bool:
    """Return whether the pin protects the versions that a branch has from its parent."""
    return pin is not None and pin.version <= fork.held


def is_passed(fork: Fork, meta: Meta) -> bool:
    """Return whether the horizon of the parent has passed versions that a branch reads.

    It passes no pin. So the parent had followed a copy that lacked the branch: every vacuum that
    finds the branch there keeps the segments that it reads (R16.8).
    """
    return fork.held < meta.horizon


def check_branch_pinned(store: ObjectStore, head: int) -> None:
    """Check, before the first commit of a branch, that its parent's pin holds what it reads.

    A program that was held up while it made the branch, and died then, may have made it after
    another one had removed the pin. One LIST and two GETs, for a branch without commits of its own.

    Args:
        store: of the branch, or of a table.
        head: its newest known version.

    Raises:
        CommitConflict: it does not; nothing was committed.
        Corrupt: the parent lacks the version from which the branch forked.
        TableNotFound: the branch was deleted.
    """
    if not isinstance(store, BranchStore) or head != store.forks[0].version:
        return
    fork, pin = store.forks[0], pin_name(store.parent, store.name)
    meta = Log(store.parent).head().meta
    if not is_pinned(fork, meta.pins.get(pin)):  # against commit-to-a-branch-without-its-pin
        check_there(store)
        Log(store).check_fork()  # a parent that lost its newest commits has lost the pin, too
        advice = (
            "a vacuum may have deleted it. A copy of the branch has every row or is refused: "
            f"{command('replicate', store.uri, 'TARGET')}; or delete the branch"
            if is_passed(fork, meta)
            else f"delete the branch and create it again, or pin version {fork.held} under the "
            f"name {pin!r} ({command('pin', store.parent.uri, pin, str(fork.held))}; the next "
            "vacuum that runs does that too)"
        )
        raise CommitConflict(
            f"no pin of {store.parent.uri} protects what branch {fork.name!r} reads: {advice}; "
            "nothing was committed",
            table=store.uri,
        )


def branch_of(store: ObjectStore, pin: str) -> str | None:
    """Return the name of the branch that the pin of this name holds in its parent.

    None: it is of no branch, or of one of another table or branch.

    Args:
        store: of the parent.
        pin: the name of the pin.
    """
    start = pin_name(store, "")
    rest = pin.removeprefix(start)
    return rest if pin.startswith(start) and keys.is_branch(rest) else None
