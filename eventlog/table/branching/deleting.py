"""Deleting a branch: first `_fork.json`, so that it is gone, then the rest, then the pin.

Each step may be repeated, so another program can continue one that was interrupted anywhere.
Objects below the id of a branch that exists are never deleted on the way, also if it was made again
under the name meanwhile (FORMAT.md R16.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from eventlog.commit.proposal import check_writable
from eventlog.display import command
from eventlog.errors import CommitConflict, Corrupt, InvalidInput, TableNotFound
from eventlog.format import keys
from eventlog.model.actions import Unpin
from eventlog.model.records import Fork
from eventlog.session.branch_pins import is_pinned, pin_name
from eventlog.session.session import Session
from eventlog.store.branching.branch import BranchStore
from eventlog.table.branching.names import fork_of, forks_below, stored_names

_BATCH = 1000  # keys of one delete request


def delete_branch(session: Session, name: str) -> None:
    """Delete a branch; see `Table.delete_branch`."""
    root = f"{keys.branch_root(name)}/"
    pin_called = pin_name(session.store, name)
    head = session.refresh()
    check_writable(head.header)  # against branch-of-a-newer-table-deleted
    pin = head.meta.pins.get(pin_called)
    if pin is None and next(session.store.list(root, limit=1), None) is None:
        raise TableNotFound(
            f"there is no branch {name!r}: {command('branches', session.uri)} lists them",
            table=session.uri,
        )
    fork = _readable_fork(session, name)
    _check_without_branches(session, name, fork)
    _delete_fork(session, root)
    _delete_objects(session, name)
    if pin is None:
        return
    unpin = Unpin(pin_called, pin.owner, pin.token)
    try:
        session.commit(session.transaction("unbranch", [unpin], info={"branch": name}))
    except CommitConflict:
        return  # gone already, or taken over by a program that makes the branch again
    # A program that was about to make the branch may have done so with the pin that is gone now.
    # One that has set a pin of its own since has made another branch.
    newer = fork_of(session.store, name)
    if newer is not None and not is_pinned(newer, session.refresh().meta.pins.get(pin_called)):
        _delete_fork(session, root)
        _delete_objects(session, name)


def of_others(names: Iterable[str], root: str, living: str | None) -> list[str]:
    """Return the keys under the root of a branch that are not those of the branch that is there.

    Args:
        names: keys that were listed before `living` was read. Objects of a branch come after its
            `_fork.json`, so those of a branch that comes later are not among them.
        root: `_branches/<name>/`.
        living: the id in `_fork.json`; None if there is none.
    """
    if living is None:
        return [key for key in names if key != root + keys.FORK_KEY]
    kept = (root + keys.FORK_KEY, f"{root}{living}/")
    return [key for key in names if not key.startswith(kept)]  # against next-branch-deleted-too


def _check_without_branches(session: Session, name: str, fork: Fork | None) -> None:
    """Check that a branch has no branches, whose rows would be deleted with its own (R16.7).

    Args:
        session: of the parent.
        name: of the branch.
        fork: of the branch; None if it has no `_fork.json` that can be read.

    Raises:
        InvalidInput: it has some.
    """
    below = [] if fork is None else _children(session, fork)
    if fork is not None and below:  # against branch-deleted-under-its-branches
        uri = BranchStore(session.store, name, fork).uri
        raise InvalidInput(
            f"branch {name!r} has branches, which read its rows: delete "
            f"{', '.join(below[:10])} first ({command('branch', uri, below[0], '--delete')})",
            table=session.uri,
        )
    # Below every id: a branch that was lost may have been made again under its name.
    lost = next(forks_below(session.store, keys.branch_root(name)), None)
    if lost is None:  # against branches-of-a-damaged-branch-deleted
        return
    names, key = lost
    raise InvalidInput(
        f"branch {'/'.join(names)!r} would be deleted with branch {name!r}, but it cannot be "
        f"opened, because `_fork.json` of branch {'/'.join(names[:-1])!r} is missing or damaged. "
        "Put that object back from a copy, and delete the inner branch first; or, to give up both, "
        f"remove the object {key} by hand, and delete branch {name!r} again",
        table=session.uri,
    )


def _children(session: Session, fork: Fork) -> list[str]:
    """Return the names of the branches that a branch has."""
    place = keys.branch_place(fork.name, fork.id)
    return [
        child
        for child in stored_names(BranchStore(session.store, fork.name, fork))
        if _is_there(session, f"{place}/{_fork_key(child)}")
    ]


def _delete_fork(session: Session, root: str) -> None:
    """Delete `_fork.json` of a branch, if there is one."""
    if not _is_there(session, root + keys.FORK_KEY):
        return
    session.verify()  # another table may lie here by now
    session.store.delete([root + keys.FORK_KEY])


def _delete_objects(session: Session, name: str) -> None:
    """Delete the objects under the root of a branch, unless a new branch of that name is there."""
    root = f"{keys.branch_root(name)}/"
    rows = (row.key for row in session.store.list(root))
    while batch := list(islice(rows, _BATCH)):
        session.verify()
        try:
            fork = fork_of(session.store, name)
        except Corrupt:
            return  # of a branch that came since; `delete` again
        if gone := of_others(batch, root, None if fork is None else fork.id):
            session.store.delete(gone)


def _readable_fork(session: Session, name: str) -> Fork | None:
    try:
        return fork_of(session.store, name)
    except Corrupt:
        return None  # nobody can open it, and it can be deleted


def _fork_key(name: str) -> str:
    return f"{keys.branch_root(name)}/{keys.FORK_KEY}"


def _is_there(session: Session, key: str) -> bool:
    return any(row.key == key for row in session.store.list(key, limit=1))
