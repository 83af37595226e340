"""Restore: the transaction that makes the segments of an earlier version live again. Also drops.

`restoration` does no I/O, and `commit_restoration` commits what it returns. Nothing is copied:
segments above the horizon cannot have been vacuumed, so they are added again under their own ids
(FORMAT.md R12.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.errors import CommitConflict, InvalidInput
from eventlog.log.diff import diff
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Action, Drop, Restore, SameSegments
from eventlog.state.delta import add_of, drop_of
from eventlog.state.keyed.rule import keyed_of
from eventlog.state.small.holds import check_kept
from eventlog.table.ports import OpenTable


def restoration(head: Snapshot, target: Snapshot, table: str = "", held: int = 0) -> list[Action]:
    """Return the actions that make exactly the target's segments live; [] if they already are.

    Any add or drop committed after `head` makes the transaction a conflict, so that no row appears
    or disappears unnoticed.

    Args:
        head: the newest version.
        target: the version to bring back.
        table: the root URI, for the error.
        held: see `check_kept`.

    Raises:
        VersionVacuumed: the target is below the horizon, or below `held`.
    """
    # What a branch brings back must be what its parent keeps for it.
    check_kept(head.meta, head.version, target.version, table, held=held)
    change = diff(head, target)
    # A segment that was dropped and restored has two entries, of different versions.
    back = {s.id for s in change.added} & {s.id for s in change.dropped}
    drops: list[Action] = [drop_of(s) for s in change.dropped if s.id not in back]
    adds: list[Action] = [add_of(s) for s in change.added if s.id not in back]
    if not drops and not adds:
        return []
    guards: list[Action] = [SameSegments(head.hash_sum()), Restore(target.version)]
    return [*guards, *drops, *adds]


def commit_restoration(
    table: OpenTable, actions: Sequence[Action], head: Snapshot, version: int
) -> int:
    """Commit the restoration of `version` that is based on `head`; return the committed version.

    Rows committed after `head` are a conflict. Without actions nothing is committed.

    Raises: see `Table.restore`.
    """
    if not actions:
        return head.version
    table.log.check_there(actions, version)
    info = {"restored": str(version)}
    return table.commit(table.transaction("restore", actions, read_version=head.version, info=info))


def commit_drops(table: OpenTable, drops: Sequence[Drop], reason: str) -> int:
    """Commit the drops of lost segments, and return the committed version.

    Raises: see `Table.drop_segments`.
    """
    try:
        return table.commit(table.transaction("drop", drops, info={"reason": reason}))
    except CommitConflict:
        head = table.head()
        if keyed_of(head.layout) is None or len(head.live(drops)) < len(drops):
            raise
        chunks = ", ".join(sorted({drop.chunk for drop in drops}))
        raise InvalidInput(
            "in a keyed table the segments of a chunk are merged with each other: without one of "
            "them others would show rows that it replaces or deletes. Put its object back; or "
            "restore the newest version that is whole, and upsert again what was committed since; "
            f"or, if the rows are gone for good, drop all segments of chunk {chunks}",
            table=table.uri,
            version=head.version,
        ) from None
