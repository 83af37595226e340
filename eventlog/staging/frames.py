"""What the Python objects of a pandas frame would lose on their way to Arrow.

Pure layer. A column of dtype `object` may mix types. Arrow takes the type of the first value and
fits the others to it, at times silently: the time of day of a `datetime` among dates, the zone of
one among others without, the nanoseconds of a `Timestamp`, a number or a truth value that becomes
something else, a field whose name is bytes. So each value is compared with the type that Arrow
chose: the kinds that it keeps whole are listed, and any other is refused by name.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa

from eventlog.errors import InvalidInput

# Says what a value would lose, or returns None where it is whole.
_Check = Callable[[Any], str | None]

# Classes that hold nothing of NumPy's.
_PLAIN_CLASSES = {type(None), bool, int, float, str, bytes, Decimal, dt.date, dt.datetime, dt.time}
_TEXTS = (str, bytes, bytearray, memoryview, range)  # that have items and are no lists
_WHOLE = 2**53  # integers up to here are floats, too


def check_objects(rows: Any, schema: pa.Schema) -> None:
    """Check that a frame's Python objects are whole in the types that Arrow gave them.

    Args:
        rows: anything; all but a pandas frame passes.
        schema: that of the frame's rows in Arrow.

    Raises:
        InvalidInput: a value would be changed; the message names column and value.
    """
    for field, values in zip(schema, _object_columns(rows), strict=False):
        if values is None:
            continue
        check = _check_of(field.type)
        if check is None or set(map(type, values)) <= _plain(field.type):
            continue
        for value in values:
            if (why := check(value)) is not None:
                shown = " ".join(repr(value).split())[:80]
                raise InvalidInput(
                    f"column {field.name!r} holds Python objects, which pandas hands over as "
                    f"{field.type}; {why}, for example of {shown}. Make them one type first, as "
                    "pandas.to_datetime and pandas.to_numeric do"
                )


def check_mixtures(rows: Any) -> None:
    """Check that Arrow survives what a frame's columns mix: NumPy's times beside its other values.

    Args:
        rows: anything; all but a pandas frame passes.

    Raises:
        InvalidInput: a column mixes them, or nests without end; Arrow would end the process.
    """
    for values in _object_columns(rows):
        if values is None:
            continue
        name = "the index" if values.name is None else f"column {values.name!r}"
        try:
            mixed = _mixes_times(list(values), set())
        except RecursionError:
            raise InvalidInput(f"{name} holds Python objects that nest too deep") from None
        if mixed:
            raise InvalidInput(
                f"{name} holds Python objects, some of them NumPy's times and some of them other "
                "values of NumPy: make them one type first, as pandas.to_datetime does"
            )


def check_index(rows: Any) -> None:
    """Check that pandas leaves no index out: a range that has the name of a column.

    Args:
        rows: anything; all but a pandas frame passes.

    Raises:
        InvalidInput: it would.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(rows, pandas.DataFrame):
        return
    index = rows.index
    if isinstance(index, pandas.RangeIndex) and index.name in rows.columns:
        raise InvalidInput(
            f"{index.name!r} is the index of a pandas frame and a range, and a column, too: drop "
            "the index by frame.reset_index(drop=True)"
        )


def _mixes_times(values: list[Any], kinds: set[str]) -> bool:
    """Say whether values that get one type have NumPy's times among other kinds of NumPy's.

    Args:
        values: of a column, of all lists in it, or of one field of all dictionaries in it.
        kinds: those of NumPy that are known to be among them.
    """
    lists: list[Any] = []
    vectors: set[str] = set()
    dicts: list[Any] = []
    for held in set(map(type, values)):
        if held in _PLAIN_CLASSES:
            continue
        those = [value for value in values if type(value) is held]
        if issubclass(held, Mapping):
            dicts += those
        elif not hasattr(those[0], "__iter__"):
            kinds |= {_numpy_kind(value) for value in those if not _is_null(value)}
        elif hasattr(held, "dtype"):
            vectors |= {kind for value in those if (kind := _numpy_kind(value)) != "O"}
            lists += [v for v in those if _numpy_kind(v) in {"O", ""} and getattr(v, "ndim", True)]
        elif not issubclass(held, _TEXTS):
            lists += those
    if "M" in kinds and len(kinds - {""}) > 1:
        return True
    if (lists or vectors) and _mixes_times(list(chain.from_iterable(lists)), vectors - {""}):
        return True
    fields: dict[Any, list[Any]] = {}
    for name, value in chain.from_iterable(one.items() for one in dicts):
        fields.setdefault(name, []).append(value)
    return any(_mixes_times(held, set()) for held in fields.values())


def _object_columns(rows: Any) -> Iterator[Any]:
    """Return a frame's columns in the order of its Arrow schema, None for all but objects."""
    pandas = sys.modules.get("pandas")  # whoever hands in a frame has imported it
    if pandas is None or not isinstance(rows, pandas.DataFrame):
        return
    for values in _columns(rows, pandas):
        held = values.dtype
        if isinstance(held, pandas.CategoricalDtype):
            held = held.categories.dtype
        yield values if held == "object" else None


def _columns(frame: Any, pandas: Any) -> Iterator[Any]:
    """Return columns, then the levels of the index, as `pyarrow.Table.from_pandas` orders them."""
    for at in range(frame.shape[1]):
        yield frame.iloc[:, at]
    index = frame.index
    levels = [index.get_level_values(at) for at in range(index.nlevels)]
    yield from (level for level in levels if not isinstance(level, pandas.RangeIndex))


def _check_of(kind: pa.DataType) -> _Check | None:
    """Return the check of values that Arrow takes for a type; None where there are no others."""
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
                return "fields with names of bytes would be lost among others"
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
                return "what a NumPy array masks would appear"
            if _is_vector(value, kind):
                return None  # each at once, since vectors are long
        if inner is not None:
            for item in value:
                if (why := inner(item)) is not None:
                    return why
        return None

    return check


def _is_vector(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a NumPy array has nothing but values that Arrow takes as they are."""
    held = _numpy_kind(value)
    if held in {"M", "m"}:
        return pa.types.is_temporal(kind) and _numpy_unit(value) == _unit(kind)
    if pa.types.is_floating(kind):
        if held in {"i", "u"} and value.size:
            return bool(value.min() >= -_WHOLE and value.max() <= _WHOLE)
        return held == "f" and value.dtype.itemsize <= kind.bit_width // 8
    if pa.types.is_integer(kind):
        return held in {"i", "u"}
    if pa.types.is_boolean(kind):
        return held == "b"
    return (held == "U" and pa.types.is_string(kind)) or (held == "S" and pa.types.is_binary(kind))


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
        return None if int(value) == value else "a part of a number among integers would be lost"

    return check


def _floats(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        if value.__class__ is float or _is_null(value):
            return None
        if not _is_number(value):
            return _among(value, "numbers")
        if _numpy_kind(value) == "u" and int(value) > _WHOLE:  # Arrow takes them as signed ones
            return "digits of a number would be lost"
        if isinstance(value, int):
            return None  # Arrow takes integers if they are whole
        return None if float(value) == value else "digits of a number would be lost"

    return check


def _decimals(_kind: pa.DataType) -> _Check:
    def check(value: Any) -> str | None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return (
            None
            if whole or isinstance(value, Decimal) or _is_null(value)
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
            return "a time without a zone among others would be taken for UTC"
        if kind.unit != "ns" and getattr(value, "nanosecond", 0):
            return "nanoseconds would be lost"
        offset = value.utcoffset() if isinstance(value, dt.datetime) else None
        if offset is not None and offset.microseconds:
            return "a part of an offset would be lost"
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


# A kind of types, the check of its values, and the class of which all values are whole.
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
    """Return the classes of values that need no look: those of one class that Arrow keeps."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    whole = [held for is_kind, _, held in _SCALARS if held is not None and is_kind(kind)]
    numpy = sys.modules["numpy"]  # which a frame has loaded
    same = {float: numpy.float64, int: numpy.int64, bool: numpy.bool_, str: numpy.str_}
    return {type(None), *whole, *(same[held] for held in whole if held in same)}


def _among(value: Any, others: str) -> str:
    """Say that a value is of another kind than those that the type is of."""
    return f"{_name_of(value)} among {others} would become one"


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
    held = _numpy_kind(value)
    if held:
        return held in {"i", "u", "f"} and not hasattr(value, "mask")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numpy_kind(value: Any) -> str:
    """Return the letter by which NumPy calls a kind of types; empty where it is none of its."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def _numpy_unit(value: Any) -> str:
    """Return the type of NumPy's times, with its unit: `datetime64[ns]`, `timedelta64[10s]`."""
    return str(value.dtype) if _numpy_kind(value) in {"M", "m"} else ""


def _unit(kind: pa.DataType) -> str:
    """Return what `_numpy_unit` gives for values that Arrow takes as they are; empty if none."""
    if pa.types.is_date32(kind):
        return "datetime64[D]"
    if pa.types.is_timestamp(kind):
        return f"datetime64[{kind.unit}]"
    return f"timedelta64[{kind.unit}]" if pa.types.is_duration(kind) else "none"


def _is_null(value: Any) -> bool:
    # Arrow's own scalars have their types; NA is not even itself; NaN and NaT are not theirs.
    if value is None or isinstance(value, pa.Scalar) or type(value).__name__ == "NAType":
        return True
    if hasattr(value, "__iter__"):
        return False  # a Series, say, compares each of its values
    try:
        return bool(value != value)  # noqa: PLR0124
    except (ArithmeticError, TypeError, ValueError):  # a Decimal that signals
        return False
