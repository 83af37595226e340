"""`update`: new values for the rows that a predicate selects, in a table without a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Table
from eventlog.arguments import mapping, opened, shown
from eventlog.errors import Corrupt, InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.model.actions import Update
from eventlog.model.entries import Granularity, Schema
from eventlog.model.records import App
from eventlog.model.schema import list_names
from eventlog.query.predicate import Where
from eventlog.query.python_values import value_literal
from eventlog.query.value_expressions import parse_value
from eventlog.segments.batches import gathered
from eventlog.staging.cutting import chunk_starts
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.telemetry.signals import traced
from eventlog.writers.batch import make_app, skipped, stage
from eventlog.writers.changing.deletes import request_of
from eventlog.writers.changing.finding import Found, Search
from eventlog.writers.changing.landing import (
    Adds,
    Isolation,
    RowChange,
    Staged,
    land,
    would_change,
)


class NewValues(Protocol):
    """The new values of a column: a function of the rows."""

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that it reads."""
        ...

    def evaluate(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the value for each row, in the type of the column."""
        ...


@traced("eventlog.update")
def update(
    t: Table,
    set: Mapping[str, Any],  # noqa: A002 - the word of SQL
    where: Where | None = None,
    *,
    app_id: str | None = None,
    app_seq: int | None = None,
    isolation: Isolation = "snapshot",
    dry_run: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> RowChange:
    """Give columns of the rows that a predicate selects new values; return the committed version.

    The old rows are deleted by their positions, and the new ones are appended, in one commit. Other
    deletes and updates of the same segments neither wait nor fail; an update of the same rows is
    done again on what the other made of them.

    Args:
        t: a table without a key; in a keyed one `upsert` replaces rows, and nothing is read.
        set: for each column to change its new value: text is a SQL expression over the columns of
            the row as it was (`"price * 2"`, `"'closed'"`), anything else is the value itself, and
            None is null.
        where: SQL text or a pyarrow expression, as for `scan`; None: all rows.
        app_id: as for `append`.
        app_seq: as for `append`.
        isolation: see `delete`.
        dry_run: commit nothing, and return the numbers of rows and segments.
        memory_bytes: as for `append`.

    Returns:
        The version, with the numbers of rows and segments that were touched.

    Raises:
        InvalidInput: the table has a key, a column or an expression is wrong, or an expression
            fails on some rows, or gives null for a required column: nothing is committed.
        CommitConflict: see `delete`.
        CommitUnknown: see `append`.
        DataLoss: a segment or a deletion vector is missing or damaged.
        Unavailable: the store does not answer; nothing was committed.
    """
    opened(t)
    search = Search(t, where, memory_bytes, keeps=not dry_run)
    return update_where(
        t,
        set,
        where,
        isolation=isolation,
        app=make_app(app_id, app_seq),
        dry_run=dry_run,
        search=search,
        updates=lambda values: Updates(search, values).stage,
    )


def update_where(
    t: Table,
    given: Mapping[str, Any],
    where: Where | None,
    *,
    isolation: Isolation,
    app: App | None,
    dry_run: bool,
    search: Search,
    updates: Callable[[Mapping[str, NewValues]], Adds],
) -> RowChange:
    """Give columns of the rows that a predicate selects new values.

    Args:
        t: the table.
        given: a SQL expression or a value, by column.
        where: the predicate; None: all rows.
        isolation: see `update`.
        app: the idempotence key, if there is one.
        dry_run: see `update`.
        search: finds the rows of the predicate.
        updates: returns, for new values, the function that stages the new rows.

    Raises: as `update`.
    """
    start = t.refresh()
    if keyed_of(start.layout) is not None:
        raise InvalidInput(
            "a keyed table is updated by `upsert`, which replaces or merges the rows of their "
            "keys without reading them"
        )
    values = new_values(start.stored_schema, mapping(given, "set"))
    done = skipped(t, start, app)
    if done is not None:
        return RowChange(done)
    request = request_of(start, "update", where, isolation, app, search.memory_bytes)
    if dry_run:
        found = search.find(start)
        return would_change(found, updated=found.rows)
    return land(t, request, start, search, updates(values))


def new_values(
    schema: Schema, given: Mapping[str, Any], others: Mapping[str, Schema] | None = None
) -> dict[str, NewValues]:
    """Return the new values of columns, by name.

    Args:
        schema: of the table.
        given: a SQL expression or a value, by column.
        others: see `eventlog.query.value_expressions.parse_value`.

    Raises:
        InvalidInput: there are none, a column is unknown, or an expression or a value does not fit.
    """
    if not given:
        raise InvalidInput("give the columns to set, as in {'price': 'price * 2'}")
    # Capitals do not matter, as in expressions: no two columns differ in them alone.
    columns = {column.name.lower(): column for column in schema.columns}
    values: dict[str, NewValues] = {}
    for name, value in given.items():
        column = columns.get(name.lower()) if isinstance(name, str) else None
        if column is None:
            raise InvalidInput(
                f"unknown column {shown(name)} to set; columns: {list_names(schema)}"
            )
        if column.name in values:
            raise InvalidInput(f"column {column.name!r} is set twice")
        if isinstance(value, str):
            values[column.name] = parse_value(value, schema, column.type, others)
        else:
            values[column.name] = _Constant(value_literal(value, column))
    return values


@dataclass(frozen=True, slots=True)
class _Constant:
    """The same value for each row."""

    value: pa.Scalar

    def columns(self) -> frozenset[str]:
        """See `NewValues.columns`."""
        return frozenset()

    def evaluate(self, table: pa.Table) -> pa.ChunkedArray:
        """See `NewValues.evaluate`."""
        return pa.chunked_array([pa.repeat(self.value, table.num_rows)], self.value.type)


def with_values(rows: pa.Table, values: Mapping[str, NewValues], schema: pa.Schema) -> pa.Table:
    """Return rows with new values, each computed from the rows as they are given.

    Args:
        rows: have the table's columns, and perhaps others that the values read.
        values: by column.
        schema: of the result.

    Raises:
        InvalidInput: a value fails for some rows, or is null in a required column.
    """
    columns = []
    for wanted in schema:
        if wanted.name not in values:
            columns.append(rows.column(wanted.name))
            continue
        column = values[wanted.name].evaluate(rows)
        if column.null_count and not wanted.nullable:
            raise InvalidInput(
                f"the new value of column {wanted.name!r}, which must not be null, is null for "
                f"{column.null_count} of {rows.num_rows} rows; nothing was committed"
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass
class StagedOnce:
    """What was staged for the rows that were found. It serves again where these are the same rows.

    They are at the same places; or a compaction moved them in their order, and they are kept.
    """

    _places: object = None
    _others: object = None
    _rows: pa.Table | None = None
    _staged: Staged = ((), None)

    def get(self, found: Found, others: object, stage: Callable[[Found], Staged]) -> Staged:
        """Return what is staged for the rows that were found.

        Args:
            found: the rows.
            others: is equal as long as the same is staged beside their new forms.
            stage: stages it.
        """
        places = [(s.segment.id, s.segment.version, s.positions, s.rows) for s in found.selected]
        rows = found.kept_rows(found.snapshot.schema.names)
        same = places == self._places or (
            rows is not None and self._rows is not None and rows.equals(self._rows)
        )
        # against staged-again-for-rows-that-only-moved, other-rows-taken-for-the-same
        if others != self._others or not same:
            self._staged = stage(found)
        self._places, self._others, self._rows = places, others, rows
        return self._staged


@dataclass
class Updates:
    """Stages the new forms of the rows that were found, once for the same rows.

    Attributes:
        search: how the rows are read.
        values: the new values, by column.
    """

    search: Search
    values: Mapping[str, NewValues]
    _once: StagedOnce = field(default_factory=StagedOnce, init=False)

    def stage(self, found: Found) -> Staged:
        """Return the staged segments of the new rows, and the action of the update.

        Raises: as `update`.
        """
        return self._once.get(found, None, self._stage)

    def _stage(self, found: Found) -> Staged:
        if not found.selected:
            return (), None
        t, head = self.search.t, found.snapshot
        order = Order(head.layout.time_column, head.layout.granularity)
        rows = pa.RecordBatchReader.from_batches(head.schema, self._rows(found, order))
        adds = stage(t, head, rows, self.search.memory_bytes, as_given=True)
        check_read_again(t, found, order.rows)
        return adds, Update(found.rows, paired=order.kept)

    def _rows(self, found: Found, order: Order) -> Iterator[pa.RecordBatch]:
        schema = found.snapshot.schema
        found_rows = (batch for _, batch in self.search.rows(found, schema))
        for rows in gathered(found_rows, self.search.memory_bytes // 8):
            table = with_values(rows, self.values, schema)
            order.watch(table)
            yield from table.to_batches()


def check_read_again(t: Table, found: Found, rows: int) -> None:
    """Check that as many rows were read as had been found.

    Raises:
        Corrupt: they were not; nothing was committed.
    """
    if rows != found.rows:
        raise Corrupt(
            f"{rows} rows were read again, where {found.rows} had been found; nothing was "
            "committed",
            table=t.uri,
        )


@dataclass
class Order:
    """Watches whether rows come in the order of their chunks, so that a scan keeps their order.

    Attributes:
        time_column: the table's; None: it has none.
        granularity: of the chunks that the rows are staged in.
        kept: whether all rows so far came in order.
        rows: their number.
        first: the start of the first row's chunk, in µs since 1970; None if there was no row, or
            the table has one chunk.
        last: the start of the last row's chunk.
    """

    time_column: str | None
    granularity: Granularity
    kept: bool = True
    rows: int = 0
    first: int | None = None
    last: int | None = None

    def watch(self, table: pa.Table) -> None:
        """Look at the next rows."""
        self.rows += table.num_rows
        if not table.num_rows or self.granularity == "all" or not self.kept:
            return
        starts = chunk_starts(table.column(self.time_column), self.granularity)
        first, last = starts[0].as_py(), starts[-1].as_py()
        steps = pc.pairwise_diff(starts.combine_chunks()) if len(starts) > 1 else None
        falls = steps is not None and pc.any(pc.less(steps, 0), min_count=0).as_py()
        self.kept = not falls and (self.last is None or first >= self.last)
        self.first, self.last = first if self.first is None else self.first, last
