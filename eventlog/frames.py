"""What the Python objects of a pandas frame would lose on their way to Arrow.

Pure layer. A column of dtype `object` may mix types. Arrow takes the type of the first value and
fits the others to it, at times silently: the time of day of a `datetime` among dates, the zone of
one among others without, the nanoseconds of a `Timestamp`, a number or a truth value that becomes
something else, a field whose name is bytes. Design rule: what fits without loss is taken, and all
else is refused by name.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from eventlog.errors import InvalidInput

# Says what a value would lose, or returns None where it is whole.
_Check = Callable[[Any], str | None]

_TRUTH = "a truth value among numbers would become one"


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
        check = _check_of(field.type)
        held = values.dtype
        if isinstance(held, pandas.CategoricalDtype):
            held = held.categories.dtype
        if check is None or held != "object":
            continue
        for value in values:
            if (why := check(value)) is not None:
                shown = " ".join(repr(value).split())[:80]
                raise InvalidInput(
                    f"column {field.name!r} holds Python objects, which pandas hands over as "
                    f"{field.type}; {why}, for example of {shown}. Make them one type first, as "
                    "pandas.to_datetime and pandas.to_numeric do"
                )


def _columns(frame: Any, pandas: Any) -> Iterator[Any]:
    """Return columns, then the levels of the index, as `pyarrow.Table.from_pandas` orders them."""
    for at in range(frame.shape[1]):
        yield frame.iloc[:, at]
    index = frame.index
    levels = [index.get_level_values(at) for at in range(index.nlevels)]
    yield from (level for level in levels if not isinstance(level, pandas.RangeIndex))


def _check_of(kind: pa.DataType) -> _Check | None:
    """Return the check of values that Arrow takes for a type; None where Arrow itself is strict."""
    if pa.types.is_dictionary(kind):
        return _check_of(kind.value_type)
    if pa.types.is_struct(kind):
        return _check_of_dicts(kind)
    if pa.types.is_list(kind):
        return _check_of_lists(kind.value_type)
    if pa.types.is_integer(kind):
        return _integer_loss
    if pa.types.is_floating(kind):
        return _float_loss
    if pa.types.is_date(kind):
        return _date_loss
    if pa.types.is_timestamp(kind):
        return lambda value: _time_loss(value, kind)
    return _bytes_loss if pa.types.is_binary(kind) else None


def _check_of_dicts(kind: pa.DataType) -> _Check:
    checks = {field.name: _check_of(field.type) for field in kind}
    fields = [(name, inner) for name, inner in checks.items() if inner is not None]

    def check(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return None
        for key in value:
            if isinstance(key, bytes):
                return "fields with names of bytes would be lost among others"
        for name, inner in fields:
            if (why := inner(value.get(name))) is not None:
                return why
        return None

    return check


def _check_of_lists(kind: pa.DataType) -> _Check:
    inner = _check_of(kind)
    taken = ("i", "u", "f") if pa.types.is_floating(kind) else ("i", "u", "M", "U", "S")

    def check(value: Any) -> str | None:
        if not isinstance(value, list | tuple):
            if not hasattr(value, "__iter__"):
                return None
            if hasattr(value, "mask"):
                return "what a NumPy array masks would appear"
            if _numpy_kind(value) == "S" and pa.types.is_string(kind):
                return "bytes among texts would become one"
            if _numpy_kind(value) in taken:
                return None  # each at once, since vectors are long
        if inner is not None:
            for item in value:
                if (why := inner(item)) is not None:
                    return why
        return None

    return check


def _integer_loss(value: Any) -> str | None:
    if value.__class__ is int or _is_null(value):
        return None
    if _is_truth(value):
        return _TRUTH
    return None if int(value) == value else "a part of a number among integers would be lost"


def _float_loss(value: Any) -> str | None:
    if value.__class__ is float or isinstance(value, int) or _is_null(value):
        return _TRUTH if value.__class__ is bool else None  # Arrow takes integers if they are whole
    if _is_truth(value):
        return _TRUTH
    return None if float(value) == value else "digits of a number would be lost"


def _date_loss(value: Any) -> str | None:
    if value.__class__ is dt.date or _is_null(value) or _numpy_kind(value) == "M":
        return None
    if not isinstance(value, dt.date):
        return "a number among dates would become one"
    if not isinstance(value, dt.datetime):
        return None
    midnight = value.timetz() == dt.time() and not getattr(value, "nanosecond", 0)
    return None if midnight else "a time of day among dates would be lost"


def _time_loss(value: Any, kind: pa.DataType) -> str | None:
    if _is_null(value) or _numpy_kind(value) == "M":  # of which Arrow does not mix units
        return None
    if not isinstance(value, dt.date):
        return "a number among times would become one"
    if kind.tz is None and getattr(value, "tzinfo", None):
        return "a zone among times without one would be lost"
    if kind.unit != "ns" and getattr(value, "nanosecond", 0):
        return "nanoseconds would be lost"
    offset = value.utcoffset() if isinstance(value, dt.datetime) else None
    if offset is not None and offset.microseconds:
        return "a part of an offset would be lost"
    return None


def _bytes_loss(value: Any) -> str | None:
    return "a text among bytes would become some" if isinstance(value, str) else None


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or _numpy_kind(value) == "b"


def _numpy_kind(value: Any) -> str:
    """Return the letter by which NumPy calls a kind of types; empty where it is none of its."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def _is_null(value: Any) -> bool:
    # Arrow's own scalars have their types; NA is not even itself; NaN and NaT are not theirs.
    if value is None or isinstance(value, pa.Scalar) or type(value).__name__ == "NAType":
        return True
    try:
        return bool(value != value)  # noqa: PLR0124
    except ArithmeticError:  # a Decimal that signals
        return False
