"""Making a branch: a pin in the parent, then `_fork.json`, with which the branch exists.

A program that is interrupted between the two leaves a pin; the next one takes it over and goes on.
A pin that is taken over gets a token of its own, so that another program that is about to remove
the old pin removes nothing (FORMAT.md R16.6).
"""

from __future__ import annotations

from eventlog.arguments import whole
from eventlog.errors import AlreadyExists, CommitConflict, InvalidInput
from eventlog.format import codec, keys
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, SetPin, Unpin
from eventlog.model.records import FORMAT_NAME, FORMAT_VERSION, Fork, Pin
from eventlog.session.branch_pins import OWNER, is_pinned, pin_name
from eventlog.session.session import Session
from eventlog.state.small import holds
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import held_from
from eventlog.store.retry import retrying
from eventlog.table.branching.names import fork_of, has_commits, lost_fork

_MAX_CONFLICTS = 5


def make(session: Session, name: str, at: int | None) -> BranchStore:
    """Make a branch and return its store; see `Table.branch`."""
    keys.check_branch(name)
    wanted = None if at is None else whole(at, "at")
    _check_free(session, name)
    begun = None if wanted is None else _kept(session, wanted)  # no pin for a refused version
    pinned, pin = _pin(session, name, wanted)
    _check_free(session, name)
    head = pinned if begun is None else begun
    fork = Fork(
        FORMAT_NAME,
        FORMAT_VERSION,
        head.header.table,
        session.clock.random_id(),
        name,
        head.version,
        head.commit_hash,
        pin.version,
    )
    key, body = f"{keys.branch_root(name)}/{keys.FORK_KEY}", codec.encode_fork(fork)
    created = retrying(session.clock)(session.store.put_if_absent, key, body)
    # No other branch has its id.
    if not created and session.store.get(key, length=len(body) + 1) != body:
        raise _exists(session, name)
    # A program that deletes an unfinished branch may have removed the pin in the meantime.
    if not is_pinned(fork, session.refresh().meta.pins.get(pin_name(session.store, name))):
        if fork_of(session.store, name) != fork:
            raise CommitConflict(
                f"another program deleted branch {name!r} while it was created", table=session.uri
            )
        _pin(session, name, fork.held)  # against branch-without-its-pin
    return BranchStore(session.store, name, fork)


def pin_actions(name: str, version: int, known: Pin | None, held: int = 0) -> list[Action]:
    """Return the actions that hold a version for a branch under the pin `name`.

    A pin of that name belongs to a making that was interrupted, or that is under way: the new pin
    protects what the old one protects, too. But no making pins a version below `held`: such a pin
    came with the log of the parent, and keeps nothing here.

    Args:
        name: of the pin.
        version: to hold; not below `held`.
        known: the pin of this name that is there.
        held: where the parent is a branch, the oldest version that its own parent keeps for it.
    """
    if known is None:
        return [SetPin(name, version, OWNER)]
    inherited = known.version < held  # against inherited-pin-taken-over
    # against taken-over-pin-rises
    least = version if inherited else min(version, known.version)
    return [Unpin(name, known.owner, known.token), SetPin(name, least, OWNER)]


def _pin(session: Session, name: str, wanted: int | None) -> tuple[Snapshot, Pin]:
    """Commit the pin, and return the snapshot that has it, and the pin."""
    pin = pin_name(session.store, name)
    holds.check_names(pin)
    for tries in range(_MAX_CONFLICTS):
        head = session.refresh()
        version = head.version if wanted is None else wanted
        oldest = _check_kept(session, head, version)
        known = head.meta.pins.get(pin)
        if known is not None:
            _check_not_lost(session, name)
        actions = pin_actions(pin, version, known, held=oldest)
        try:
            committed = session.commit(
                session.transaction("branch", actions, info={"branch": name})
            )
        except CommitConflict:
            if tries == _MAX_CONFLICTS - 1:
                raise
            continue
        newest = session.head()
        snapshot = newest if newest.version == committed else session.log.snapshot(committed)
        return snapshot, snapshot.meta.pins[pin]
    raise AssertionError("unreachable")


def _check_not_lost(session: Session, name: str) -> None:
    """Check that no branch of this name has lost its `_fork.json`: nobody would find it again.

    Raises:
        InvalidInput: there are commits of one.
    """
    store = session.store
    # against branch-made-over-a-lost-one
    if fork_of(store, name) is None and has_commits(store, name):
        raise InvalidInput(lost_fork(store, name), table=store.uri)


def _kept(session: Session, version: int) -> Snapshot:
    """Return a version from which a branch may begin; see `Table.branch` for the errors."""
    head = session.refresh()
    _check_kept(session, head, version)
    old = session.log.snapshot(version)
    session.log.check_linked(head, old)  # against forked-from-another-log
    return old


def _check_kept(session: Session, head: Snapshot, version: int) -> int:
    """Check that a version is kept, and return the oldest one that the table's parent keeps."""
    oldest = held_from(session.store.forks)
    holds.check_kept(head.meta, head.version, version, session.uri, held=oldest)
    return oldest


def _check_free(session: Session, name: str) -> None:
    """Check that there is no branch of this name.

    The remains of a deleted one lie below another id, and are no obstacle.

    Raises:
        AlreadyExists: there is one.
    """
    if fork_of(session.store, name) is not None:
        raise _exists(session, name)


def _exists(session: Session, name: str) -> AlreadyExists:
    return AlreadyExists(
        f"branch {name!r} already exists: open it with Table.open(…, branch={name!r}) or "
        "--branch, or choose another name",
        table=session.uri,
    )
