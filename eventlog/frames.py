"""What the Python objects of a pandas frame would lose on their way to Arrow.

Pure layer. A column of dtype `object` may mix types. Arrow takes the type of the first value and
fits the others to it, at times silently: the time of day of a `datetime` among dates, the zone of
one among others without, the nanoseconds of a `Timestamp`, a number among times, the fraction of a
NumPy float among integers. Design rule: what fits without loss is taken, everything else is refused
by name.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eventlog.errors import InvalidInput

_OBJECT = "object"  # the dtype of NumPy's arrays of Python objects


def check_objects(rows: Any, schema: pa.Schema) -> None:
    """Check that a frame's Python objects are whole in the types that Arrow gave them.

    Args:
        rows: anything; all but a pandas frame passes.
        schema: that of the frame's rows in Arrow.

    Raises:
        InvalidInput: a value would be changed; the message names column and value.
    """
    pandas = sys.modules.get("pandas")  # whoever hands in a frame has imported it
    if pandas is None or not isinstance(rows, pandas.DataFrame):
        return
    for field, values in zip(schema, _columns(rows, pandas), strict=False):
        if not _may_cut(field.type):
            continue
        if isinstance(values.dtype, pandas.CategoricalDtype):
            values = values.dtype.categories  # noqa: PLW2901 - each value that occurs, and others
        if values.dtype != object:
            continue
        for value in values:
            if (why := _loss(value, field.type)) is not None:
                raise InvalidInput(
                    f"column {field.name!r} holds Python objects, which pandas hands over as "
                    f"{field.type}; {why}, for example of {value!r}. Make them one type first, as "
                    "pandas.to_datetime and pandas.to_numeric do"
                )


def _columns(frame: Any, pandas: Any) -> Iterator[Any]:
    """Return columns, then the levels of the index, as `pyarrow.Table.from_pandas` orders them."""
    for at in range(frame.shape[1]):
        yield frame.iloc[:, at]
    index = frame.index
    levels = [index.get_level_values(at) for at in range(index.nlevels)]
    yield from (level for level in levels if not isinstance(level, pandas.RangeIndex))


def _may_cut(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _may_cut(kind.value_type)
    if kind.num_fields:
        return any(_may_cut(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind) or pa.types.is_integer(kind))


def _loss(value: Any, kind: pa.DataType) -> str | None:
    """Say what the value would lose in a type, or None where it is whole."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_struct(kind):
        return _first(_members(value, kind)) if hasattr(value, "get") else None
    if pa.types.is_nested(kind):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            return None
        if getattr(value, "dtype", _OBJECT) != _OBJECT:
            return None  # NumPy's own types have units, and Arrow keeps them
        return _first((item, kind.value_type) for item in value)
    return _scalar_loss(value, kind)


def _first(parts: Iterator[tuple[Any, pa.DataType]]) -> str | None:
    return next((why for part, kind in parts if (why := _loss(part, kind)) is not None), None)


def _members(value: Any, kind: pa.DataType) -> Iterator[tuple[Any, pa.DataType]]:
    for field in kind:
        yield value.get(field.name, value.get(field.name.encode())), field.type


def _scalar_loss(value: Any, kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind):
        return None if isinstance(value, int) or _is_null(value) else _number_loss(value)
    if _is_null(value):
        return None
    if not isinstance(value, dt.date):
        of_numpy = type(value).__name__ == "datetime64"  # whose units Arrow does not mix
        return None if of_numpy else "a number among times would become one"
    if pa.types.is_date(kind):
        midnight = not isinstance(value, dt.datetime) or value.timetz() == dt.time()
        return None if midnight else "a time of day among dates would be lost"
    if pa.types.is_timestamp(kind) and kind.tz is None and getattr(value, "tzinfo", None):
        return "a zone among times without one would be lost"
    if pa.types.is_timestamp(kind) and kind.unit != "ns" and getattr(value, "nanosecond", 0):
        return "nanoseconds would be lost"
    return None


def _is_null(value: Any) -> bool:
    # NA, which is not even itself; NaN and NaT, which do not equal themselves.
    return value is None or type(value).__name__ == "NAType" or bool(value != value)  # noqa: PLR0124


def _number_loss(value: Any) -> str | None:
    if getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return "a truth value among integers would become one"
    return None if int(value) == value else "a fraction among integers would be lost"
