"""Restore: the transaction that makes an earlier version's segments the live ones again.

`restoration` is pure, and `commit_restoration` commits what it returns. Nothing is copied: what was
live then and still may not be vacuumed is added again under its own name (FORMAT.md R12.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.log.diff import diff
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Action, Restore, SameSegments
from eventlog.state.delta import add_of, drop_of
from eventlog.state.small.holds import check_kept
from eventlog.table.ports import OpenTable


def restoration(head: Snapshot, target: Snapshot, table: str = "") -> list[Action]:
    """Return the actions after which exactly the target's segments are live; [] if they are.

    Whatever others add or drop meanwhile makes it a conflict: no row goes or stays unseen.

    Raises:
        VersionVacuumed: the target lies below the horizon.
    """
    check_kept(head.meta, head.version, target.version, table)
    change = diff(head, target)
    # An object that was dropped and came back has two entries, of different versions.
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
    """Commit the restoration of `version` that was formed on `head`; return the committed version.

    Rows that others committed after `head` are a conflict. Without actions nothing is committed.

    Raises: see `Table.restore`.
    """
    if not actions:
        return head.version
    table.log.check_there(actions, version)
    info = {"restored": str(version)}
    return table.commit(table.transaction("restore", actions, read_version=head.version, info=info))
