"""`overwrite` of the rows that a predicate selects, in a table without a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.query.predicate import Predicate, parse_predicate
from eventlog.segments.batches import passing, predicate_error
from eventlog.staging.incoming.casting import conform
from eventlog.staging.incoming.problems import Problem
from eventlog.staging.incoming.streams import batches, spelled, to_reader
from eventlog.staging.upsert_rows import Missing
from eventlog.writers.batch import check_replacing, check_rows, stage, types_of
from eventlog.writers.changing.finding import Search, row_text
from eventlog.writers.changing.landing import Request, RowChange, land, would_change

_EXAMPLES = 3


def overwrite_where(
    t: Table, data: Any, request: Request, start: Snapshot, missing: Missing | None
) -> RowChange:
    """Replace the rows that a predicate selects by others, which must pass it, too.

    Args:
        t: the table.
        data: the new rows.
        request: the request.
        start: the version that the rows were computed from.
        missing: see `eventlog.writers.overwrite`.

    Raises:
        InvalidInput: the table has a key, a row does not pass the predicate, or `data` lacks a
            column or a field. For the others see `eventlog.writers.overwrite`.
    """
    head = t.session.head()
    if keyed_of(head.layout) is not None:
        timed = head.layout.time_column is not None
        raise InvalidInput(
            f"a keyed table is overwritten {'by a range of time' if timed else 'as a whole'}: "
            "`where` would leave the older rows of the keys that it selects. "
            f"{'Use start and end' if timed else 'Leave it out'}, or delete the keys and upsert"
        )
    reader = to_reader(data, types_of(head))
    columns = spelled(reader.schema, head.schema.names)
    check_rows(columns, head, "null")
    check_replacing(head.schema, columns, missing)
    assert request.where is not None  # noqa: S101 - for the type checker
    predicate = parse_predicate(request.where, head.stored_schema)
    given = batches(reader, head.schema, head.layout.time_column)
    checked = passing_rows(given, head.schema, head.layout.time_column, predicate, t.uri)
    rows = pa.RecordBatchReader.from_batches(head.schema, checked)
    adds = stage(t, head, rows, request.memory_bytes, "null", kept=not request.dry_run)
    search = Search(t, request.where, request.memory_bytes)
    if request.dry_run:
        size = sum(add.bytes for add in adds)
        inserted = sum(add.rows for add in adds)
        return would_change(search.find(start), inserted=inserted, inserted_bytes=size)
    return land(t, request, start, search, lambda _: (adds, None))


def passing_rows(
    given: Iterable[pa.RecordBatch],
    wanted: pa.Schema,
    time_column: str | None,
    predicate: Predicate,
    uri: str,
) -> Iterator[pa.RecordBatch]:
    """Yield rows in the table's types, after a check that they pass a predicate.

    Args:
        given: the rows.
        wanted: the table's schema.
        time_column: the table's; None: it has none.
        predicate: the predicate.
        uri: of the table, for messages.

    Raises:
        InvalidInput: a row does not pass the predicate; the message has the number and examples.
    """
    where = predicate.to_arrow()
    columns = sorted(predicate.columns())
    failed, examples = 0, list[str]()
    for batch in given:
        table = conform(batch, wanted, time_column)
        if isinstance(table, Problem):
            raise InvalidInput(
                f"column {table.column!r}: {table.count} {table.why}, for example "
                f"{table.example}; nothing was committed"
            )
        try:
            passed = passing(table, where)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise predicate_error(error, uri) from error
        wrong = table.filter(pa.compute.invert(passed))
        failed += wrong.num_rows
        for row in wrong.slice(0, _EXAMPLES - len(examples)).select(columns).to_pylist():
            examples.append(f"({row_text(row)})")
        yield from table.to_batches()
    if failed:
        raise InvalidInput(
            f"{failed} of the new rows do not pass the predicate, for example "
            f"{', '.join(examples)}: they would stay when the overwrite is repeated; nothing was "
            "committed"
        )
