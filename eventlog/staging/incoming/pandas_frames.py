"""Refuses pandas frames whose Python objects would be changed by the conversion to Arrow.

A column of dtype `object` may mix types. Arrow takes the type of the first value and converts the
others to it, sometimes with silent loss: the time of day of a `datetime` among dates, the zone of
one among others without, the nanoseconds of a `Timestamp`, a number or bool that becomes another
type, a field whose name is bytes. So each value is compared with the type that Arrow chose: kinds
that Arrow converts exactly are listed here, and any other is refused with an example.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa

from eventlog.errors import InvalidInput

# Returns what a value would lose, or None if it is converted exactly.
_Check = Callable[[Any], str | None]

# Classes that cannot contain NumPy values.
_PLAIN_CLASSES = {type(None), bool, int, float, str, bytes, Decimal, dt.date, dt.datetime, dt.time}
_TEXTS = (str, bytes, bytearray, memoryview, range)  # iterable, but not lists
_EXACT = 2**53  # all integers up to here are floats without loss


def is_of(rows: Any, module: str, name: str) -> bool:
    """Return whether an object is of a class of a library, which need not be loaded.

    Args:
        rows: the object.
        module: of the class. Another thread may just be loading it, for other rows.
        name: of the class.
    """
    cls = getattr(sys.modules.get(module), name, None)  # against half-loaded-library
    return cls is not None and isinstance(rows, cls)


def check_objects(rows: Any, schema: pa.Schema) -> None:
    """Check that Arrow converts a frame's Python objects exactly.

    Args:
        rows: any object; only pandas frames are checked.
        schema: of the frame after the conversion to Arrow.

    Raises:
        InvalidInput: a value would be changed; the message names the column and the value.
    """
    for field, values in zip(schema, _object_columns(rows), strict=False):
        if values is not None:
            check_column_objects(field.name, values, field.type)


def check_column_objects(name: str, values: Collection[Any], kind: pa.DataType) -> None:
    """Check that Arrow converts the Python objects of one column exactly.

    Args:
        name: the column.
        values: the objects.
        kind: the type that Arrow chose for them.

    Raises:
        InvalidInput: a value would be changed; the message names the column and the value.
    """
    check = _check_of(kind)
    if check is None or set(map(type, values)) <= _plain(kind):
        return
    for value in values:
        if (why := check(value)) is not None:
            shown = " ".join(repr(value).split())[:80]
            raise InvalidInput(
                f"column {name!r} contains Python objects, which are converted to {kind}; {why}, "
                f"for example of {shown}. Convert them to one type first; pandas has to_datetime "
                "and to_numeric"
            )


def check_mixtures(rows: Any) -> None:
    """Check that no column of a frame mixes NumPy times with other NumPy values.

    Arrow would crash the process on such a column.

    Args:
        rows: any object; only pandas frames are checked.

    Raises:
        InvalidInput: a column mixes them, or is nested without end.
    """
    for values in _object_columns(rows):
        if values is None:
            continue
        name = "the index" if values.name is None else f"column {values.name!r}"
        try:
            mixed = _mixes_times(list(values), set())
        except RecursionError:
            raise InvalidInput(f"{name} contains Python objects nested too deeply") from None
        if mixed:
            raise InvalidInput(
                f"{name} contains Python objects, some of them NumPy times and some other NumPy "
                "values: convert them to one type first, with pandas.to_datetime"
            )


def check_index(rows: Any) -> None:
    """Check that the index of a frame is not a range that has the name of a column.

    pandas would leave such an index out.

    Args:
        rows: any object; only pandas frames are checked.

    Raises:
        InvalidInput: it is.
    """
    if not is_of(rows, "pandas", "DataFrame"):
        return
    pandas, index = sys.modules["pandas"], rows.index
    if isinstance(index, pandas.RangeIndex) and index.name in rows.columns:
        raise InvalidInput(
            f"{index.name!r} is a column of the pandas frame and also its index, a range: drop "
            "the index with frame.reset_index(drop=True)"
        )


def _mixes_times(values: list[Any], kinds: set[str]) -> bool:
    """Say whether values that get one Arrow type mix NumPy times with other NumPy kinds.

    Args:
        values: of a column, of all lists in it, or of one field of all dictionaries in it.
        kinds: the NumPy kinds that are already known to be among them.
    """
    lists: list[Any] = []
    vectors: set[str] = set()
    dicts: list[Any] = []
    for cls in set(map(type, values)):
        if cls in _PLAIN_CLASSES:
            continue
        group = [value for value in values if type(value) is cls]
        if issubclass(cls, Mapping):
            dicts += group
        elif not hasattr(group[0], "__iter__"):
            kinds |= {_numpy_kind(value) for value in group if not _is_null(value)}
        elif hasattr(cls, "dtype"):
            vectors |= {kind for value in group if (kind := _numpy_kind(value)) != "O"}
            lists += [v for v in group if _numpy_kind(v) in {"O", ""} and getattr(v, "ndim", True)]
        elif not issubclass(cls, _TEXTS):
            lists += group
    if "M" in kinds and len(kinds - {""}) > 1:
        return True
    if (lists or vectors) and _mixes_times(list(chain.from_iterable(lists)), vectors - {""}):
        return True
    fields: dict[Any, list[Any]] = {}
    for name, value in chain.from_iterable(mapping.items() for mapping in dicts):
        fields.setdefault(name, []).append(value)
    return any(_mixes_times(of_field, set()) for of_field in fields.values())


def _object_columns(rows: Any) -> Iterator[Any]:
    """Yield a frame's columns in the order of its Arrow schema; None for dtypes but `object`."""
    if not is_of(rows, "pandas", "DataFrame"):
        return
    pandas = sys.modules["pandas"]
    for values in _columns(rows, pandas):
        dtype = values.dtype
        if isinstance(dtype, pandas.CategoricalDtype):
            dtype = dtype.categories.dtype
        yield values if dtype == "object" else None


def _columns(frame: Any, pandas: Any) -> Iterator[Any]:
    """Yield the columns, then the index levels, in the order of `pyarrow.Table.from_pandas`."""
    for at in range(frame.shape[1]):
        yield frame.iloc[:, at]
    index = frame.index
    levels = [index.get_level_values(at) for at in range(index.nlevels)]
    yield from (level for level in levels if not isinstance(level, pandas.RangeIndex))


def _check_of(kind: pa.DataType) -> _Check | None:
    """Return the check of values that Arrow converts to a type; None if none is needed."""
    if pa.types.is_dictionary(kind):
        return _check_of(kind.value_type)
    if pa.types.is_struct(kind):
        return _check_of_dicts(kind)
    if pa.types.is_list(kind):
        return _check_of_lists(kind.value_type)
    for is_kind, make, _ in _SCALARS:
        if is_kind(kind):
            return make(kind)
    return None


def _check_of_dicts(kind: pa.DataType) -> _Check:
    checks = {field.name: _check_of(field.type) for field in kind}
    fields = [(name, inner) for name, inner in checks.items() if inner is not None]

    def check(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return None if _is_null(value) else _among(value, "dictionaries")
        for key in value:
            if isinstance(key, bytes):
                return "fields whose names are bytes would be lost"
        for name, inner in fields:
            if (why := inner(value.get(name))) is not None:
                return why
        return None

    return check


def _check_of_lists(kind: pa.DataType) -> _Check:
    inner = _check_of(kind)

    def check(value: Any) -> str | None:
        if not isinstance(value, list | tuple):
            if not hasattr(value, "__iter__"):
                return None if _is_null(value) else _among(value, "lists")
            if bool(getattr(getattr(value, "mask", None), "any", bool)()):
                return "the masked values of a NumPy array would appear"
            if _is_vector(value, kind):
                return None  # checked as a whole, since vectors are long
        if inner is not None:
            for item in value:
                if (why := inner(item)) is not None:
                    return why
        return None

    return check


def _is_vector(value: Any, kind: pa.DataType) -> bool:
    """Say whether Arrow converts all values of a NumPy array exactly."""
    numpy_kind = _numpy_kind(value)
    if numpy_kind in {"M", "m"}:
        return pa.types.is_temporal(kind) and _numpy_unit(value) == _unit(kind)
    if pa.types.is_floating(kind):
        if numpy_kind in {"i", "u"} and value.size:
            return bool(value.min() >= -_EXACT and value.max() <= _EXACT)
        return numpy_kind == "f" and value.dtype.itemsize <= kind.bit_width // 8
    if pa.types.is_integer(kind):
        return numpy_kind in {"i", "u"}
    if pa.types.is_boolean(kind):
        return numpy_kind == "b"
    return (numpy_kind == "U" and pa.types.is_string(kind)) or (
        numpy_kind == "S" and pa.types.is_binary(kind)
    )


def _strings(_kind: pa.DataType) -> _Check:
    return lambda value: (
        None if isinstance(value, str) or _is_null(value) else _among(value, "texts")
    )


def _binaries(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        plain = isinstance(value, bytes | bytearray | memoryview)
        return None if plain or _is_null(value) else _among(value, "bytes")

    return check


def _booleans(_kind: pa.DataType) -> _Check:
    return lambda value: (
        None if _is_truth(value) or _is_null(value) else _among(value, "truth values")
    )


def _integers(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        if value.__class__ is int or _is_null(value):
            return None
        if not _is_number(value):
            return _among(value, "integers")
        return None if int(value) == value else "the fraction of a number would be lost"

    return check


def _floats(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        if value.__class__ is float or _is_null(value):
            return None
        if not _is_number(value):
            return _among(value, "numbers")
        if _numpy_kind(value) == "u" and int(value) > _EXACT:  # Arrow reads them as signed
            return "digits of a number would be lost"
        if isinstance(value, int):
            return None  # Arrow itself refuses integers that are not exact as floats
        return None if float(value) == value else "digits of a number would be lost"

    return check


def _decimals(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return (
            None
            if is_int or isinstance(value, Decimal) or _is_null(value)
            else _among(value, "decimals")
        )

    return check


def _dates(kind: pa.DataType) -> _Check:
    unit = _unit(kind)

    def check(value: Any) -> str | None:
        if value.__class__ is dt.date or _is_null(value) or _numpy_unit(value) == unit:
            return None
        if not isinstance(value, dt.date):
            return _among(value, "dates")
        if not isinstance(value, dt.datetime):
            return None
        if value.tzinfo is not None:
            return "a zone among dates would be lost"
        midnight = value.time() == dt.time() and not getattr(value, "nanosecond", 0)
        return None if midnight else "a time of day among dates would be lost"

    return check


def _times(kind: pa.DataType) -> _Check:
    unit = _unit(kind)

    def check(value: Any) -> str | None:
        if _is_null(value) or _numpy_unit(value) == unit:
            return None
        if not isinstance(value, dt.date):
            return _among(value, "times")
        zone = getattr(value, "tzinfo", None)
        if kind.tz is None and zone is not None:
            return "a zone among times without one would be lost"
        if kind.tz is not None and zone is None:
            return "a time without a zone would be read as UTC"
        if kind.unit != "ns" and getattr(value, "nanosecond", 0):
            return "nanoseconds would be lost"
        offset = value.utcoffset() if isinstance(value, dt.datetime) else None
        if offset is not None and offset.microseconds:
            return "the fraction of a second in an offset would be lost"
        return None

    return check


def _times_of_day(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, dt.time):
            return None if _is_null(value) else _among(value, "times of day")
        return None if value.tzinfo is None else "the zone of a time of day would be lost"

    return check


def _durations(kind: pa.DataType) -> _Check:
    unit = _unit(kind)

    def check(value: Any) -> str | None:
        if _is_null(value) or _numpy_unit(value) == unit:
            return None
        if not isinstance(value, dt.timedelta):
            return _among(value, "durations")
        cut = kind.unit != "ns" and getattr(value, "nanoseconds", 0)
        return "nanoseconds would be lost" if cut else None

    return check


# A kind of types, the check of its values, and the class whose values are all converted exactly.
_SCALARS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], _Check], type | None], ...
] = (
    (pa.types.is_string, _strings, str),
    (pa.types.is_binary, _binaries, bytes),
    (pa.types.is_boolean, _booleans, bool),
    (pa.types.is_integer, _integers, int),
    (pa.types.is_floating, _floats, float),
    (pa.types.is_decimal, _decimals, Decimal),
    (pa.types.is_date, _dates, dt.date),
    (pa.types.is_timestamp, _times, None),
    (pa.types.is_time, _times_of_day, None),
    (pa.types.is_duration, _durations, dt.timedelta),
)


def _plain(kind: pa.DataType) -> set[type]:
    """Return the classes whose values need no check, since Arrow converts all of them exactly."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    exact = [cls for is_kind, _, cls in _SCALARS if cls is not None and is_kind(kind)]
    numpy = sys.modules["numpy"]  # imported by pandas
    same = {float: numpy.float64, int: numpy.int64, bool: numpy.bool_, str: numpy.str_}
    return {type(None), *exact, *(same[cls] for cls in exact if cls in same)}


def _among(value: Any, others: str) -> str:
    """Return the message for a value of another kind than the type's."""
    return f"{_name_of(value)} among {others} would be converted to one"


def _name_of(value: Any) -> str:
    for is_kind, name in (
        (_is_truth, "a truth value"),
        (lambda v: isinstance(v, str) or _numpy_kind(v) == "U", "a text"),
        (lambda v: isinstance(v, bytes | bytearray) or _numpy_kind(v) == "S", "bytes"),
        (lambda v: _is_number(v) or isinstance(v, Decimal), "a number"),
    ):
        if is_kind(value):
            return name
    return f"a {type(value).__name__}"


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or _numpy_kind(value) == "b"


def _is_number(value: Any) -> bool:
    numpy_kind = _numpy_kind(value)
    if numpy_kind:
        return numpy_kind in {"i", "u", "f"} and not hasattr(value, "mask")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numpy_kind(value: Any) -> str:
    """Return NumPy's letter for the kind of a value's dtype; empty if it has none."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def _numpy_unit(value: Any) -> str:
    """Return the dtype of a NumPy time with its unit, such as `datetime64[ns]`; else empty."""
    return str(value.dtype) if _numpy_kind(value) in {"M", "m"} else ""


def _unit(kind: pa.DataType) -> str:
    """Return the `_numpy_unit` of values that Arrow converts exactly; `none` if there are none."""
    if pa.types.is_date32(kind):
        return "datetime64[D]"
    if pa.types.is_timestamp(kind):
        return f"datetime64[{kind.unit}]"
    return f"timedelta64[{kind.unit}]" if pa.types.is_duration(kind) else "none"


def _is_null(value: Any) -> bool:
    # Arrow scalars have types of their own. NA cannot be compared; NaN and NaT differ from
    # themselves.
    if value is None or isinstance(value, pa.Scalar) or type(value).__name__ == "NAType":
        return True
    if hasattr(value, "__iter__"):
        return False  # a Series, for example, would compare each of its values
    try:
        return bool(value != value)  # noqa: PLR0124
    except (ArithmeticError, TypeError, ValueError):  # such as a signaling Decimal
        return False
