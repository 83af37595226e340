"""Conditions as Spark columns, so that both engines of `readers.spark.read` keep the same rows.

Imports eventlog and pyspark (extra `spark`). The SQL text itself is not passed to Spark: Spark
reads a time without an offset in the session's zone, eventlog reads it as UTC.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from eventlog.errors import InvalidInput
from eventlog.query import conditions as c

# Both calendars agree after 1900-01-01, in every zone. For an earlier value Spark may push another
# value, which is still earlier than `LATE`: rows from `LATE` on compare the same with both.
LATE = datetime(1901, 1, 1, tzinfo=UTC)

_OPERATORS: dict[str, Callable[[Column, Column], Column]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def to_column(condition: c.Condition) -> Column | None:
    """Return the condition as a Spark column, or None if only Arrow can evaluate it."""
    try:
        return _column(condition)
    except _NotInSpark:
        return None


def field(name: str) -> Column:
    """Return the column with exactly this name, whatever characters the name has."""
    return F.col(_quoted(name))


def unpushed(name: str, kind: pa.DataType, *, late: bool = False) -> Column:
    """Return a column of the same values for which Spark pushes only exact filters into Parquet.

    Parquet's reader skips row groups by their dictionaries (and drops rows if the session enables
    that) and compares floats by their bits: a filter for 0.0 would miss -0.0. Spark pushes dates
    and instants in the hybrid calendar, which lacks 1582-10-05 to 1582-10-14: rows of these days
    would be skipped. Spark pushes filters on plain columns only, including fields of structs, never
    on elements of lists or maps.

    Args:
        name: the column's name.
        kind: its Arrow type.
        late: whether all of its dates or instants are at or after `LATE`.
    """
    column = field(name)
    return (column if late else _unpushed(column, kind)).alias(name)


def _unpushed(column: Column, kind: pa.DataType) -> Column:
    if pa.types.is_floating(kind):
        return F.nanvl(column, column)
    if pa.types.is_date(kind):
        return F.date_from_unix_date(F.unix_date(column))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return F.timestamp_micros(F.unix_micros(column))
    if pa.types.is_struct(kind):
        struct = column
        for inner in kind:
            field_of_struct = struct.getField(
                inner.name
            )  # not from `column`, which triples in size with each field
            guarded = _unpushed(field_of_struct, inner.type)
            if guarded is not field_of_struct:
                column = column.withField(_quoted(inner.name), guarded)
    return column


def same_to_spark(kind: pa.DataType) -> tuple[str, str] | None:
    """Return two fields that `unpushed` has to distinguish but Spark treats as one, or None.

    Spark compares names with Java's `equalsIgnoreCase`, by which more letters are equal than in
    eventlog tables, for example `MICRO SIGN` and `GREEK SMALL LETTER MU`.
    """
    if not pa.types.is_struct(kind) or not _is_guarded(kind):
        return None
    seen: dict[str, str] = {}
    for inner in kind:
        other = seen.setdefault("".join(map(_without_case, inner.name)), inner.name)
        if other != inner.name:
            return other, inner.name
    return next((two for f in kind if (two := same_to_spark(f.type)) is not None), None)


def _is_guarded(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_is_guarded(inner.type) for inner in kind)
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return bool(pa.types.is_floating(kind) or pa.types.is_date(kind) or zoned)


def _without_case(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[:1]


class _NotInSpark(Exception):
    """A part of the condition is an Arrow expression, or a value that Spark cannot represent."""


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _column(condition: c.Condition) -> Column:  # noqa: C901 - one case per kind
    match condition:
        case c.Const(value):
            return F.lit(value).cast("boolean")
        case c.Compare(column, op, value):
            return _OPERATORS[op](field(column.name), _literal(value))
        case c.In(column, values):
            literals = [_literal(value) for value in values]
            if (
                column.type in c.FLOATS
            ):  # Spark compares floats of a long IN list by bits: 0.0 is not -0.0
                equal = [field(column.name) == literal for literal in literals]
                return _balanced(equal, both=False)
            return field(column.name).isin(*literals)
        case c.Prefix(column, text):
            return field(column.name).startswith(text)
        case c.IsNull(column):
            return field(column.name).isNull()
        case c.Fixed(column, value):
            return F.when(field(column.name).isNotNull(), F.lit(value))
        case c.Is(part, value):
            inner = _column(part)
            return F.coalesce(inner if value else ~inner, F.lit(False))
        case c.Not(part):
            return ~_column(part)
        case c.And(parts) | c.Or(parts):
            return _balanced([_column(part) for part in parts], both=isinstance(condition, c.And))
        case _:
            raise _NotInSpark


def _literal(value: pa.Scalar) -> Column:
    """Return a constant of exactly the column's type, so that Spark can push it into Parquet."""
    kind = value.type
    if pa.types.is_date(kind):
        return F.date_from_unix_date(F.lit(value.value).cast("int"))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return F.timestamp_micros(F.lit(value.value).cast("bigint"))
    if pa.types.is_timestamp(kind):
        return F.expr(f"TIMESTAMP_NTZ '{_moment(value.value)}'")
    if pa.types.is_decimal(kind):
        return F.lit(value.as_py()).cast(f"decimal({kind.precision},{kind.scale})")
    names: dict[pa.DataType, str] = {
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
    }
    if kind not in names:
        raise _NotInSpark
    return F.lit(value.as_py()).cast(names[kind])


def _moment(micros: int) -> str:
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(sep=" ")  # noqa: DTZ001
    except OverflowError:
        raise _NotInSpark from None


def _balanced(parts: list[Column], *, both: bool) -> Column:
    """Join the parts in a tree of logarithmic depth: Spark walks expressions recursively."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [
            pair[0] if len(pair) == 1 else pair[0] & pair[1] if both else pair[0] | pair[1]
            for pair in pairs
        ]
    if not parts:
        raise InvalidInput("an empty condition")
    return parts[0]
