"""Values of SQL expressions: what `update`, `merge` and checks compute for every row.

The language is that of predicates: `eventlog.query.sql`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import arrow_type
from eventlog.model.entries import ColumnType, Schema
from eventlog.query.sql import casts
from eventlog.query.sql.parsing import parse_operand, qualified

_BATCH_ROWS = 64 * 1024
EXAMPLES = 3
FAILURES = "by an overflow, a division by zero or a cast"
GUARD = "Leave them out, as in CASE WHEN b <> 0 THEN a / b END"
_SHOWN = 80  # characters of a value
_VALUE, _FAILS = "value", "fails"
_POINT = qualified("", "")

__all__ = ["ValueExpression", "parse_value", "qualified"]


@dataclass(frozen=True, slots=True)
class ValueExpression:
    """The value of an expression for every row of a table.

    Attributes:
        text: the expression, as it was written.
        type: the stored type of the values.
    """

    text: str
    type: ColumnType
    _value: pc.Expression
    _fails: pc.Expression | None
    _reads: Mapping[str, ColumnType]

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that it reads; see `parse_value` for other tables'."""
        return frozenset(self._reads)

    def evaluate(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the value for each row, in order, in the Arrow type of `type`.

        Args:
            table: has at least the columns that the expression reads, in their types.

        Raises:
            InvalidInput: it fails for some rows; the message has their number, and the values of up
                to three of them.
        """
        chunks: list[pa.Array] = []
        failing, examples = 0, list[str]()
        for batch, values, fails in self.outcomes(table):
            chunks += values.chunks
            count = pc.sum(fails, min_count=0).as_py()
            if count and len(examples) < EXAMPLES:
                examples += self.shown_rows(batch, fails, EXAMPLES - len(examples))
            failing += count
        if failing:  # against failing-rows
            raise InvalidInput(
                f"{self.text[:200]!r} fails for {failing} of {table.num_rows} rows, {FAILURES}: "
                f"{', '.join(examples)}. {GUARD}"
            )
        return pa.chunked_array(chunks, arrow_type(self.type))

    def outcomes(
        self, table: pa.Table
    ) -> Iterator[tuple[pa.Table, pa.ChunkedArray, pa.ChunkedArray]]:
        """Yield some rows, the value for each, and whether it fails for each; then the next ones.

        Args:
            table: as for `evaluate`.
        """
        for start in range(0, table.num_rows, _BATCH_ROWS):
            batch = self._batch(table, start)
            rows = _projected(batch, self._value, self._fails)
            yield batch, rows.column(_VALUE), rows.column(_FAILS)

    def shown_rows(self, rows: pa.Table, mask: pa.ChunkedArray, most: int) -> list[str]:
        """Return the first rows of a mask as texts, by the values that the expression reads."""
        some, shown = rows.filter(mask).slice(0, most), []
        for row in range(some.num_rows):
            values = [
                f"{name.replace(_POINT, '.')} = {_shown(some.column(name)[row])}"
                for name in sorted(self._reads)
            ]
            shown.append(f"({', '.join(values)})")
        return shown

    def _batch(self, table: pa.Table, start: int) -> pa.Table:
        """Return the columns that the expression reads, and one more, of a few rows."""
        rows = table.slice(start, _BATCH_ROWS)
        read = {n: rows.column(n).cast(arrow_type(kind)) for n, kind in self._reads.items()}
        return pa.table({**read, "": pa.nulls(rows.num_rows)})


def parse_value(
    text: str, schema: Schema, wanted: ColumnType, others: Mapping[str, Schema] | None = None
) -> ValueExpression:
    """Return the expression of the values of a column, or of a check (`bool`).

    Args:
        text: a SQL expression of at most 64 KiB.
        schema: of the rows that it reads.
        wanted: the stored type of the values.
        others: schemas of rows that stand beside those, such as a merge's `source`, by the name
            that the expression writes before a point: `source.price`. In the rows to evaluate, and
            in `ValueExpression.columns`, their columns have the names of `qualified`.

    Raises:
        InvalidInput: the text is not one expression of the supported grammar, names an unknown
            column, or has values that the type does not represent; the message says what to write.
    """
    value = casts.assign(parse_operand(text, schema, others, wanted), wanted, text)
    kinds: dict[str, ColumnType] = {column.name: column.type for column in schema.columns}
    for table, other in (others or {}).items():
        kinds |= {qualified(table, column.name): column.type for column in other.columns}
    reads = {name: kinds[name] for name in sorted(value.names)}
    found = ValueExpression(text, wanted, value.expression, value.fails, reads)
    try:
        # One row of nulls: some functions check their options only if there are rows.
        row = {name: pa.nulls(1, arrow_type(kind)) for name, kind in reads.items()}
        tried = _projected(pa.table({**row, "": pa.nulls(1)}), value.expression, value.fails)
    except (pa.ArrowException, ValueError, TypeError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InvalidInput(f"{text[:200]!r} cannot be computed: {reason[:300]}") from None
    if not reads and tried.column(_FAILS)[0].as_py():
        raise InvalidInput(f"{text[:200]!r} fails, {FAILURES}, for every row")
    return found


def _projected(rows: pa.Table, value: pc.Expression, fails: pc.Expression | None) -> pa.Table:
    """Return the values of rows, and which of them fail, in their order."""
    from pyarrow import acero  # noqa: PLC0415 - few programs need it

    wanted = [value, pc.scalar(False) if fails is None else fails]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.ProjectNodeOptions(wanted, [_VALUE, _FAILS])
    steps = [source, acero.Declaration("project", project)]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _shown(value: pa.Scalar) -> str:
    try:
        known = value.as_py()
        text = repr(known) if isinstance(known, str) else str(known)
    except (ValueError, OverflowError):  # a time that Python does not have
        text = f"{value.value} {'days' if pa.types.is_date(value.type) else 'µs'} since 1970"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
