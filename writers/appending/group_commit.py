"""One group of appends becomes one transaction: its rows, and how far it takes each app.

Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventlog import Table
from eventlog.model.actions import Advance
from eventlog.model.records import Transaction
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.table.stage_again import commit_staged
from eventlog.writers.appending.backlog import WaitingAppend
from eventlog.writers.appending.taken_rows import joined_rows
from eventlog.writers.batch import stage_appended


def staged_group(
    t: Table, group: Sequence[WaitingAppend], since: Mapping[str, int | None]
) -> Transaction:
    """Stage the rows of a group and return its transaction, which is not committed yet.

    Args:
        t: the table.
        group: appends whose rows have the same types.
        since: the last sequence of each app of the group that is committed.

    Raises:
        InvalidInput: the rows do not fit together.
        TableNotFound, Unavailable: as `append`.
    """
    newest, known = t.session.head(), group[0].head
    same = newest.stored_schema == known.stored_schema and newest.layout == known.layout
    head = newest if same else known
    rows = joined_rows([one.rows for one in group])
    # Each append said for itself what its nulls stand for.
    adds = stage_appended(t, head, rows, DEFAULT_MEMORY_BYTES, "null")
    last = {one.app.id: one.app.seq for one in group if one.app is not None}
    advances = [Advance(app, since[app], last[app]) for app in sorted(last, key=str.encode)]
    return t.session.transaction("append", [*advances, *adds], read_version=head.version)


def commit_group(t: Table, transaction: Transaction) -> int:
    """Commit what `staged_group` returned, also a second time, and return the version.

    Raises: as `append`.
    """
    if not transaction.actions:  # appends without a row
        return t.session.head().version
    return commit_staged(t.session, transaction)
