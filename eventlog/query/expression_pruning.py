"""Pruning for pyarrow expressions, by Arrow's own simplification under guarantees.

Python code cannot inspect an expression. But Arrow prunes dataset fragments whose
`partition_expression` contradicts a filter, so each segment becomes a fragment of a file that is
never opened, with the segment's bounds as its guarantee.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem

from eventlog.errors import InvalidInput
from eventlog.model.chunks import DAY_US, MAX_MS, MIN_MS
from eventlog.model.columns.column_types import arrow_type
from eventlog.model.decimals import from_units
from eventlog.model.entries import Column, Schema
from eventlog.model.schema import list_names, to_arrow
from eventlog.query.pruning import Bounds, Span, to_span_units

_LITERAL = "literal"


def check_filter(expression: pc.Expression, schema: Schema) -> None:
    """Check that an expression is a filter over the rows of a table.

    Raises:
        InvalidInput: a column is unknown, types do not fit, or it is not boolean.
    """
    from pyarrow import acero  # noqa: PLC0415 - few programs need it

    kinds = to_arrow(schema)
    # One row of nulls: some functions check their options only if there are rows.
    row = [pa.nulls(1, field.type) for field in kinds]
    rows = pa.table(row, names=kinds.names)
    # Not a dataset's scanner, which adds columns of its own, such as `__filename`.
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
        acero.Declaration("filter", acero.FilterNodeOptions(expression)),
    ]
    try:
        # In this thread: to hand one row to another one takes ten times as long.
        acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InvalidInput(
            f"the predicate does not fit the table: {reason[:300]}; columns: {list_names(schema)}"
        ) from None


def expression_bytes(expression: pc.Expression) -> int:
    """Return the size of an expression in Arrow's serialized form; 0 if it has none.

    Arrow cannot serialize an expression that refers to a column by position.
    """
    try:
        _, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return 0
    return int(buffer.size)


def mentioned(expression: pc.Expression, schema: Schema) -> tuple[Column, ...]:
    """Return the columns that an expression may read: a superset."""
    try:
        text = str(expression)
    except UnicodeDecodeError:  # Arrow shortens long literals inside a character
        return schema.columns
    if "FieldPath" in text:  # by position
        return schema.columns
    return tuple(c for c in schema.columns if re.search(_word(c.name), text))


def trusted(expression: pc.Expression, kinds: Iterable[pa.DataType]) -> list[bool]:
    """Return, for columns of these types, whether their bounds may be used to prune.

    Arrow's simplification is wrong in three cases. It drops casts to floats as if they did not
    round, but 0.3 is less than the float32 nearest to it. It casts the values of `is_in` to the
    column's type for rows, but not for bounds. And it treats a comparison with NaN as an order.

    Args:
        expression: a filter that `check_filter` accepted.
        kinds: the Arrow types of the columns.
    """
    batch = _arrow_form(expression)
    if batch is None or _rounds(batch):
        return [False for _ in kinds]
    parts = (part for field in batch.schema for part in _parts(field.type))
    sets = [kind for name, kind in parts if name == "value_set"]
    return [all(_looked_up_as_it_is(kind, values) for values in sets) for kind in kinds]


def _rounds(batch: pa.RecordBatch) -> bool:
    """Return whether an expression casts to floats, looks up floats, or contains NaN."""
    return any(
        pa.types.is_floating(kind)
        and (name != _LITERAL or any(map(_is_nan, batch.column(place).to_pylist())))
        for place, field in enumerate(batch.schema)
        for name, kind in _parts(field.type)
    )


def _looked_up_as_it_is(kind: pa.DataType, values: pa.DataType) -> bool:
    """Return whether values can be looked up in a column of type `kind` without rounding."""
    if kind == values or (pa.types.is_integer(kind) and pa.types.is_integer(values)):
        return True
    return not any(of(kind) and of(values) for of in (_is_number, pa.types.is_temporal))


def _is_number(kind: pa.DataType) -> bool:
    return any(of(kind) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _arrow_form(expression: pc.Expression) -> pa.RecordBatch | None:
    """Return Arrow's serialized form of an expression; None if it has none.

    Its columns are the literals and the options of functions, its metadata the calls.
    """
    try:
        _, (buffer,) = expression.__reduce__()
        return pa.ipc.open_file(buffer).get_batch(0)
    except (pa.ArrowException, ValueError):
        return None


def _parts(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the type of a literal, or the target type of a cast and the value type of a set."""
    if not pa.types.is_struct(kind):
        return [(_LITERAL, kind)]
    options = {field.name: field.type for field in kind}
    values = options.get("value_set", pa.null())
    inner = values.value_type if pa.types.is_list(values) else values
    return [("to_type", options.get("to_type", pa.null())), ("value_set", inner)]


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def may_match(
    expression: pc.Expression, schema: Schema, columns: tuple[Column, ...], bounds: Bounds
) -> pa.Array:
    """Return for each entry whether it may contain a row that passes. Reads nothing.

    Args:
        expression: a filter that `check_filter` accepted.
        schema: the table's schema.
        columns: the columns whose bounds to use; those that are `trusted`.
        bounds: the bounds of the entries.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 - it loads pandas, half of the start-up time

    count = bounds.entries.num_rows
    each = [_guarantees(column, bounds) for column in columns if isinstance(column.type, str)]
    file_format, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
    fragments = []
    for row, parts in enumerate(zip(*each, strict=True) if each else [()] * count):
        known = [part for part in parts if part is not None]
        guarantee = pc.scalar(True)
        for index, part in enumerate(known):
            guarantee = part if index == 0 else guarantee & part
        fragments.append(
            file_format.make_fragment(str(row), nowhere, partition_expression=guarantee)
        )
    segments = ds.FileSystemDataset(fragments, to_arrow(schema), file_format, nowhere)
    try:
        kept = {int(fragment.path) for fragment in segments.get_fragments(filter=expression)}
    except (pa.ArrowException, ValueError):
        # It failed on a bound, for instance by a cast out of range; the rows may still pass.
        return pa.array([True] * count, pa.bool_())
    return pa.array([row in kept for row in range(count)], pa.bool_())


def _word(name: str) -> str:
    """Return a pattern that matches a column name in Arrow's text form of an expression."""
    plain = re.escape(name)
    return rf"(?<!\w){plain}(?!\w)" if re.fullmatch(r"\w+", name) else plain


def expression_span(expression: pc.Expression, schema: Schema, column: Column) -> Span:
    """Return an interval of the time column that contains every row that passes, in its units.

    It is found by bisection. Arrow refutes everything that is cut off on either side, so the result
    is sound for any expression and tight for ranges.

    Args:
        expression: a filter that `check_filter` accepted.
        schema: the table's schema.
        column: the time column, which must be `trusted`.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 - see `may_match`

    least, greatest = (to_span_units(bound, column) for bound in (MIN_MS, MAX_MS))
    greatest -= 1
    kinds, kind = to_arrow(schema), arrow_type(column.type)
    field, file_format, nowhere = pc.field(column.name), ds.ParquetFileFormat(), LocalFileSystem()

    def possible(low: int, high: int) -> bool:
        limits = (field >= pa.scalar(low, kind), field <= pa.scalar(high, kind))
        known = (limits[0] | field.is_null()) & (limits[1] | field.is_null())
        rows = file_format.make_fragment("rows", nowhere, partition_expression=known)
        parts = ds.FileSystemDataset([rows], kinds, file_format, nowhere)
        try:
            return any(True for _ in parts.get_fragments(filter=expression))
        except (pa.ArrowException, ValueError):
            return True  # it failed on a bound; the rows may still pass

    if not possible(least, greatest):
        return 1, 0
    start, below = greatest, least  # rows in [least, below) are refuted
    while below < start:
        middle = (below + start) // 2
        if possible(least, middle):
            start = middle
        else:
            below = middle + 1
    end, above = below, greatest  # rows in (above, greatest] are refuted
    while end < above:
        middle = (end + above + 1) // 2
        if possible(middle, greatest):
            end = middle
        else:
            above = middle - 1
    return below, above


def _guarantees(column: Column, bounds: Bounds) -> Iterator[pc.Expression | None]:
    """Yield for each entry what is known about the column, in the form that Arrow recognises."""
    count = bounds.entries.num_rows
    field, decode = pc.field(column.name), _decoder(column.type)
    low, high = ([None] * count if b is None else b.to_pylist() for b in _limits(column, bounds))
    null, valid = (_flags(m, count) for m in (bounds.some_null(column), bounds.some_valid(column)))
    for least, greatest, may_be_null, may_be_valid in zip(low, high, null, valid, strict=True):
        if not may_be_valid:
            yield field.is_null()
            continue
        limits = [field >= decode(least)] if least is not None else []
        limits += [field <= decode(greatest)] if greatest is not None else []
        if may_be_null:
            # Otherwise Arrow assumes no nulls. It recognises this form only for single limits.
            limits = [limit | field.is_null() for limit in limits]
        yield limits[0] & limits[1] if len(limits) == 2 else limits[0] if limits else None


def _limits(column: Column, bounds: Bounds) -> tuple[pa.ChunkedArray | None, ...]:
    return bounds.low(column), bounds.high(column)


def _flags(mask: Any, count: int) -> list[bool]:
    return [mask] * count if isinstance(mask, bool) else mask.to_pylist()


def _decoder(column_type: Any) -> Callable[[Any], pa.Scalar]:
    """Return the inverse of `eventlog.model.stats.encode`."""
    kind = arrow_type(column_type)
    if pa.types.is_floating(kind):
        return lambda encoded: pa.scalar(_from_sortable(encoded), kind)
    if pa.types.is_decimal(kind):
        return lambda encoded: pa.scalar(from_units(encoded, kind.scale), kind)
    if pa.types.is_boolean(kind):
        return lambda encoded: pa.scalar(bool(encoded))
    if pa.types.is_date(kind):
        return lambda encoded: pa.scalar(encoded // DAY_US, kind)
    return lambda encoded: pa.scalar(encoded, kind)


def _from_sortable(encoded: int) -> float:
    bits = encoded if encoded >= 0 else encoded ^ 0x7FFF_FFFF_FFFF_FFFF
    (number,) = struct.unpack(">d", struct.pack(">q", bits))
    return float(number)
