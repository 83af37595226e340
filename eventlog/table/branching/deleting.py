"""Deleting a branch: first `_fork.json`, so that nobody opens it, then the rest, then the pin.

Each step may be repeated, so a program that dies anywhere is followed by another (FORMAT.md R16.7).
"""

from __future__ import annotations

from itertools import islice

from eventlog.errors import CommitConflict, InvalidInput, TableNotFound
from eventlog.format import keys
from eventlog.model.records import Unpin
from eventlog.table.branching.names import pin_name, stored_names
from eventlog.table.ports import OpenTable

_BATCH = 1000  # keys of one delete request


def delete(table: OpenTable, name: str) -> None:
    """Delete a branch; see `Table.delete_branch`."""
    root = f"{keys.branch_root(name)}/"
    pin_called = pin_name(table.store, name)
    pin = table.refresh().meta.pins.get(pin_called)
    if pin is None and next(table.store.list(root, limit=1), None) is None:
        raise TableNotFound(
            f"there is no branch {name!r}: `eventlog branches {table.uri}` lists them",
            table=table.uri,
        )
    _check_without_branches(table, name, root)
    _delete_objects(table, root)
    if pin is None:
        return
    unpin = Unpin(pin_called, pin.owner, pin.token)
    try:
        table.commit(table.transaction("unbranch", [unpin], info={"branch": name}))
    except CommitConflict:
        return  # gone already, or taken over by a program that makes the branch again
    # A program that was about to make the branch may have done so with the pin that is gone now.
    _delete_objects(table, root)


def _check_without_branches(table: OpenTable, name: str, root: str) -> None:
    """Check that a branch has no branches.

    Raises:
        InvalidInput: it has; they read its segments.
    """
    below = [
        child
        for child in stored_names(table.store, root)
        if _is_there(table, f"{root}{keys.BRANCHES_PREFIX}{child}/{keys.FORK_KEY}")
    ]
    if below:  # against branch-deleted-under-its-branches
        raise InvalidInput(
            f"branch {name!r} has branches, which read its rows: delete {', '.join(below[:10])} "
            f"first (`eventlog branch {table.uri}/{root.rstrip('/')} {below[0]} --delete`)",
            table=table.uri,
        )


def _delete_objects(table: OpenTable, root: str) -> None:
    """Delete everything under the root of a branch, its `_fork.json` first."""
    if next(table.store.list(root, limit=1), None) is None:
        return
    table.verify()  # another table may lie here by now
    table.store.delete([root + keys.FORK_KEY])
    while batch := [row.key for row in islice(table.store.list(root), _BATCH)]:
        table.store.delete(batch)


def _is_there(table: OpenTable, key: str) -> bool:
    return any(row.key == key for row in table.store.list(key, limit=1))
