"""Values of Python as Arrow arrays of a table's types, exactly, or refused. No I/O.

Arrow converts them. It would also make 1 of 1.5, 1.0 of True, text of bytes, a date of a time, a
naive time of one with a zone, and drop keys that a struct lacks: so each type takes only these.

| type | Python |
|---|---|
| integers | int in range; bool is none |
| float64, float32 | float, rounded to the nearest, but finite stays finite; int up to 2^53, 2^24 |
| decimals | Decimal or int that fits precision and scale |
| text, booleans, binary | str; bool; bytes, bytearray |
| dates | date |
| timestamps, naive timestamps | datetime, UTC if it has no zone; datetime without one; date |
| lists, structs, maps | list or tuple; dict; dict, or a list of pairs |

The scalars of NumPy count as those of Python.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.columns.edits import path_text
from eventlog.staging.incoming.casting import FieldPath, absent_in
from eventlog.staging.incoming.pandas_frames import check_column_objects
from eventlog.staging.incoming.problems import first_line

_FAILURES = (pa.ArrowException, OverflowError, ValueError, TypeError)  # of Arrow's conversions
_PLAIN_MODULES = ("builtins", "datetime", "decimal")
_SCALARS = "biuf"  # kinds of NumPy's scalars that Python has, too
_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_decimal, (Decimal, int)),
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_string, (str,)),
    (pa.types.is_binary, (bytes, bytearray)),
    (pa.types.is_date, (dt.date,)),
    (pa.types.is_timestamp, (dt.datetime, dt.date)),
    (pa.types.is_list, (list, tuple)),
    (pa.types.is_struct, (dict,)),
    (pa.types.is_map, (dict, list, tuple)),
)
_OTHER_KINDS = {int: bool, dt.date: dt.datetime}  # subclasses that are values of another kind


class Unfit(ValueError):
    """A value in the rows of a list that does not fit.

    Attributes:
        row: its row, or the item of a list or map that it is in.
        why: as the end of a sentence that begins with the row.
        foreign: whether it is of a class of some library, which Arrow may know how to convert.
    """

    def __init__(self, row: int, why: str, *, foreign: bool = False) -> None:
        super().__init__(f"row {row} of the list {why}")
        self.row, self.why, self.foreign = row, why, foreign

    @classmethod
    def value(
        cls, row: int, value: Any, kind: pa.DataType, path: FieldPath, why: str = ""
    ) -> Unfit:
        """Return the fault of a value that a type does not take."""
        shown = " ".join(repr(value).split())[:80]
        reason = f": {why}" if why else ""
        return cls(row, f"has {shown} in {path_text(path)}, which does not fit {kind}{reason}")

    @classmethod
    def lacking(cls, row: int, path: FieldPath) -> Unfit:
        """Return the fault of a dict that lacks a key which others have."""
        why = (
            f"has no {path_text(path)}, which others have: give all dicts there the same keys, "
            "with None where a value is null"
        )
        return cls(row, why)


def from_python(values: Sequence[Any], kind: pa.DataType, path: FieldPath) -> pa.Array:
    """Return values as an array of a type; None is null.

    A struct has the fields that its dicts have, which are the same in all of them.

    Args:
        values: the values.
        kind: a type of columns.
        path: the names that lead to the values, for messages.

    Raises:
        InvalidInput: as `inferred`, which converts the fields that the type lacks.
        Unfit: a value does not fit; the first one of the column or the field.
    """
    if all(value is None for value in values):
        return pa.nulls(len(values), kind)
    if any(cls.__module__ == "numpy" for cls in set(map(type, values))):
        values = [_native(value) for value in values]
    _check_classes(values, kind, path)
    if pa.types.is_struct(kind):
        return _structs(values, kind, path)
    if pa.types.is_list(kind):
        items = _items([value or () for value in values], kind.value_type, (*path, "element"))
        return pa.ListArray.from_arrays(item_offsets(values), items)
    if pa.types.is_map(kind):
        return _maps(values, kind, path)
    if pa.types.is_timestamp(kind):
        return _converted(_times(values, kind, path), kind, path)
    found = _converted(values, kind, path)
    if pa.types.is_float32(kind):
        _check_finite(values, found, path)
    return found


def inferred(values: Sequence[Any], path: FieldPath) -> pa.Array:
    """Return values as an array of the type that Arrow chooses for them.

    Args:
        values: the values.
        path: the names that lead to the values, for messages.

    Raises:
        InvalidInput: they cannot be converted, or a value would be changed.
        Unfit: dicts have different keys.
    """
    try:
        column = pa.array(values)
    except _FAILURES as error:
        raise InvalidInput(
            f"the values of {path_text(path)} cannot be converted to Arrow: {first_line(error)}"
        ) from None
    check_column_objects(".".join(path), values, column.type)
    for row, value in enumerate(values) if pa.types.is_nested(column.type) else ():
        lacking = absent_in(value, column.type, path)
        if lacking is not None:  # against keys-that-new-dicts-lack-erased
            raise Unfit.lacking(row, lacking)
    return column


def item_offsets(values: Sequence[Any]) -> pa.Array:
    """Return the offset of each value's items, null where the value is null."""
    ends = accumulate((len(value or ()) for value in values), initial=0)
    starts = [None if v is None else end for v, end in zip([*values, 0], ends, strict=True)]
    return pa.array(starts, pa.int32())


def index_around(parts: Sequence[Sequence[Any]], index: int) -> int:
    """Return the number of the value whose items include the item with this overall index."""
    for number, end in enumerate(accumulate(map(len, parts))):
        if index < end:
            return number
    raise IndexError(index)


def _native(value: Any) -> Any:
    """Return a scalar of NumPy as Python has it, and anything else as it is."""
    dtype = getattr(value, "dtype", None)
    is_scalar = dtype is not None and dtype.kind in _SCALARS and getattr(value, "ndim", 1) == 0
    return value.item() if is_scalar else value


def _check_classes(values: Sequence[Any], kind: pa.DataType, path: FieldPath) -> None:
    """Check that every value is null or of a class that the type takes."""
    wanted = next(classes for is_of, classes in _CLASSES if is_of(kind))
    advice = "pass " + " or ".join(_class_name(cls) for cls in wanted)
    given = set(map(type, values)) - {type(None)}
    refused = {cls for cls in given if not _is_one_of(cls, wanted)}
    if refused:  # against value-of-another-kind-stored
        row = next(i for i, value in enumerate(values) if type(value) in refused)
        unfit = Unfit.value(row, values[row], kind, path, advice)
        unfit.foreign = any(cls.__module__ not in _PLAIN_MODULES for cls in refused)
        raise unfit


def _class_name(cls: type) -> str:
    name = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
    return f"an {name}" if cls is int else f"a {name}"


def _is_one_of(cls: type, wanted: Iterable[type]) -> bool:
    if cls.__module__.partition(".")[0] == "pandas":  # its times have nanoseconds
        return False
    return any(
        issubclass(cls, one) and not (one in _OTHER_KINDS and issubclass(cls, _OTHER_KINDS[one]))
        for one in wanted
    )


def _converted(values: Sequence[Any], kind: pa.DataType, path: FieldPath) -> pa.Array:
    """Return values as Arrow converts them."""
    try:
        return pa.array(values, kind)
    except _FAILURES:
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except _FAILURES as error:
                raise Unfit.value(row, value, kind, path, first_line(error)) from None
        raise


def _check_finite(values: Sequence[Any], found: pa.Array, path: FieldPath) -> None:
    for row in pc.indices_nonzero(pc.fill_null(pc.is_inf(found), False)).to_pylist():
        if not math.isinf(values[row]):  # against large-float-made-infinite
            raise Unfit.value(row, values[row], found.type, path, "it is too large")


def _times(values: Sequence[Any], kind: pa.DataType, path: FieldPath) -> list[dt.datetime | None]:
    """Return times, a date as its midnight; none with a zone if the type has none."""
    found = []
    for row, value in enumerate(values):
        if value is None or isinstance(value, dt.datetime):
            if value is not None and value.tzinfo is not None and kind.tz is None:
                # against zone-of-a-naive-time-dropped
                raise Unfit.value(row, value, kind, path, "its zone would be lost")
            found.append(value)
        else:
            found.append(dt.datetime(value.year, value.month, value.day))  # noqa: DTZ001
    return found


def _structs(values: Sequence[Any], kind: pa.DataType, path: FieldPath) -> pa.Array:
    names = list(dict.fromkeys(name for value in values if value is not None for name in value))
    if not all(isinstance(name, str) for name in names):
        row = next(i for i, v in enumerate(values) if any(not isinstance(n, str) for n in v or ()))
        raise Unfit.value(row, values[row], kind, path, "its keys are not all text")
    if not names:
        return pa.array(values, pa.struct([]))
    known = {field.name: field.type for field in kind}
    fields: list[pa.Array] = []
    for name in names:
        inner = (*path, name)
        lacking = [row for row, v in enumerate(values) if v is not None and name not in v]
        if lacking:  # against keys-that-dicts-lack-erased
            raise Unfit.lacking(lacking[0], inner)
        part = [None if value is None else value[name] for value in values]
        fields.append(
            from_python(part, known[name], inner) if name in known else inferred(part, inner)
        )
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(fields, names, mask=nulls)


def _maps(values: Sequence[Any], kind: pa.DataType, path: FieldPath) -> pa.Array:
    parts = [list(value.items()) if isinstance(value, dict) else value or () for value in values]
    for row, pairs in enumerate(parts):
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2 or pair[0] is None:
                raise Unfit.value(row, pair, kind, path, "it is no pair of a key and a value")
    keys = [[pair[0] for pair in pairs] for pairs in parts]
    items = [[pair[1] for pair in pairs] for pairs in parts]
    return pa.MapArray.from_arrays(
        item_offsets(values),
        _items(keys, kind.key_type, (*path, "key")),
        _items(items, kind.item_type, (*path, "value")),
    )


def _items(parts: Sequence[Sequence[Any]], kind: pa.DataType, path: FieldPath) -> pa.Array:
    """Return the items of all values as one array; a fault gets the row of the outer value."""
    try:
        return from_python([item for part in parts for item in part], kind, path)
    except Unfit as error:
        row = index_around(parts, error.row)
        raise Unfit(row, error.why, foreign=error.foreign) from None
