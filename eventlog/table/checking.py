"""Adds a check to a table: all rows are tested first, and those that land meanwhile.

The commit names the segments whose rows were tested (FORMAT.md R7.13), so none is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from eventlog.errors import CommitConflict, InvalidInput
from eventlog.log.diff import diff
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, SameSegments, SetSchema
from eventlog.model.columns.evolution import check_successor, successor
from eventlog.model.columns.named_checks import checks_of, with_checks
from eventlog.model.entries import Check, Schema
from eventlog.query.row_checks import RowChecks, check_text, new_check
from eventlog.segments.checked_rows import stored_rows_tested
from eventlog.session.session import Session
from eventlog.table.creation import checked_by

_TRIES = 100  # each follows another writer's commit
_ADVICE = "nothing was committed: correct or delete these rows first, or change the check"


class RowsOf(Protocol):
    """Reads the rows of a version as a reader sees them."""

    def __call__(
        self, columns: Sequence[str], where: str | None, version: int
    ) -> Iterable[pa.RecordBatch]:
        """Yield the rows that pass a filter; those of a segment are left out if none does."""
        ...


def add_check(session: Session, name: str, text: str, rows_of: RowsOf) -> int:
    """See `Table.add_check`.

    Args:
        session: of the table.
        name: the name of the check.
        text: its expression.
        rows_of: reads the rows.
    """
    head = session.refresh()
    known = {check.name: check for check in checks_of(head.stored_schema)}.get(name)
    if known is not None:
        if check_text(known, head.stored_schema) == text:
            return head.version
        raise InvalidInput(
            f"there is a check {name!r} already: {check_text(known, head.stored_schema)}. Drop it "
            "first, or take another name",
            table=session.uri,
        )
    check = checked_by(
        new_check(name, text, head.stored_schema), head.stored_schema, head.merge_rule
    )
    new = _with_check(session, head, check)
    _seen(head, check, rows_of).refuse(_ADVICE)
    for _ in range(_TRIES):
        actions: list[Action] = [SameSegments(head.hash_sum()), SetSchema(new)]
        try:
            return session.commit(session.transaction("schema", actions, read_version=head.version))
        except CommitConflict:
            newest = session.refresh()
            if newest.version == head.version:
                raise
        check = msgspec.structs.replace(check, schema=newest.stored_schema.id + 1)
        new = _with_check(session, newest, check)
        # against check-of-rows-that-came-meanwhile
        tested = _arrived(session, head, newest, check)
        if tested.broken and newest.merge_rule is not None:  # perhaps by rows that others hide
            tested = _seen(newest, check, rows_of)
        tested.refuse(_ADVICE)
        head = newest
    raise CommitConflict(
        f"others wrote rows or changed columns at each of {_TRIES} tries to add check {name!r}; "
        "nothing was committed: add it when fewer write to the table",
        table=session.uri,
        version=head.version,
    )


def _with_check(session: Session, head: Snapshot, check: Check) -> Schema:
    """Return the schema that follows a version's, with one more check.

    Raises:
        CommitConflict: others have dropped a column that the check reads, or added a check of its
            name.
        InvalidInput: the schema cannot have it.
    """
    old = head.stored_schema
    if any(one.name == check.name for one in checks_of(old)):
        raise CommitConflict(
            f"another writer added check {check.name!r} meanwhile; nothing was committed: read the "
            "table again and decide again",
            table=session.uri,
            version=head.version,
        )
    new = with_checks(successor(old, old.columns), [*checks_of(old), check])
    if problem := check_successor(old, new):
        raise InvalidInput(f"the table would have {problem}", table=session.uri)
    return new


def _seen(head: Snapshot, check: Check, rows_of: RowsOf) -> RowChecks:
    """Return the check after it was tested with the rows of a version, as a reader sees them.

    Statistics show of many segments that no row breaks it. Only rows that do are read in full, and
    all rows if it fails for one of them.
    """
    schema = head.stored_schema
    text = check_text(check, schema)
    for where in (f"NOT ({text}\n)", None):
        tested = RowChecks(schema, [check])
        try:
            for batch in rows_of(sorted(tested.columns()), where, head.version):
                tested.look_at(pa.Table.from_batches([batch]))
        except InvalidInput:
            if where is None:
                raise
        else:
            break
    return tested


def _arrived(session: Session, before: Snapshot, head: Snapshot, check: Check) -> RowChecks:
    """Return the check after it was tested with the rows that came between two versions.

    A segment whose entry has only another vector of later deletes has no new rows.
    """
    change = diff(before, head)
    known = {(segment.id, segment.version) for segment in change.dropped}
    new = [s for s in change.added if (s.id, s.version) not in known]
    return stored_rows_tested(
        session.store,
        new,
        head.stored_schema,
        [check],
        version=head.version,
        keyed=head.merge_rule is not None,
    )
