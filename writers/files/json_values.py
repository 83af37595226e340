"""Converts decoded JSON values to Arrow arrays of the table's types exactly, or refuses them.

| type | JSON |
|---|---|
| integers | a whole number (`1`, `1.0`) in range |
| floats | a number, rounded unless it is an integer; the strings NaN, Infinity, -Infinity |
| decimals | a number, or one as a string, that fits precision and scale |
| text, booleans | a string, true or false |
| dates, times | a string in ISO 8601 |
| binary | not supported: JSON has no agreed form |
| lists, structs, maps | an array, an object, an object |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.staging.incoming.dict_values import index_around, item_offsets
from eventlog.writers.files.texts import Misfit, parse_texts

_NAMED_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_None = type(None)


class Rounded(Exception):
    """A float was decoded for an integer column; a fraction may have been rounded away."""


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return decoded values as an array of a type; None is null.

    Raises:
        Misfit: a value does not fit the type; it has the value's index.
        Rounded: numbers with a point or an exponent must be decoded as Decimal first.
    """
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    if pa.types.is_map(kind):
        return _maps(values, kind)
    if pa.types.is_list(kind):
        return _lists(values, kind)
    if pa.types.is_integer(kind):
        return _plain(values, kind, {int}, _whole)
    if pa.types.is_floating(kind):
        return _floats(values, kind)
    if pa.types.is_boolean(kind):
        _check(values, kind, bool)
        return pa.array(values, kind)
    if pa.types.is_decimal(kind):
        return _decimals(values, kind)
    if pa.types.is_binary(kind):
        _check(values, kind, why="JSON cannot represent binary values: append Parquet or Arrow")
        return pa.nulls(len(values), kind)
    _check(values, kind, str)
    try:
        return parse_texts(pa.array(values, pa.string()), kind)
    except UnicodeEncodeError:  # half of a surrogate pair
        return _plain(values, kind, set(), _unicode)


def _check(values: Sequence[Any], kind: pa.DataType, *types: type, why: str = "") -> None:
    """Check that every value is null or of exactly one of these types (no subclass)."""
    allowed = {*types, _None}
    if not set(map(type, values)) <= allowed:
        index = next(i for i, value in enumerate(values) if type(value) not in allowed)
        raise Misfit(index, _shown(values[index]), kind, why)


def _plain(
    values: Sequence[Any], kind: pa.DataType, direct: set[type], convert: Callable[[Any], Any]
) -> pa.Array:
    """Return values as an array: directly if Arrow accepts their types, else one by one."""
    if set(map(type, values)) <= {*direct, _None}:
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, OverflowError):
            pass
    converted = []
    for index, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
            pa.scalar(converted[-1], kind)
        except (ValueError, OverflowError, pa.ArrowException):
            raise Misfit(index, _shown(value), kind) from None
    return pa.array(converted, kind)


def _whole(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float:
        raise Rounded
    # A huge exponent would make a huge integer, which fits no column.
    if type(value) is Decimal and -(2**64) < value < 2**64 and value == int(value):
        return int(value)
    raise ValueError


def _floats(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return floats, rounding numbers with a point or an exponent once."""
    single = pa.types.is_float32(kind)
    if Decimal not in set(map(type, values)):
        direct: set[type] = set() if single else {float}
        return _plain(values, kind, direct, _single if single else _double)
    written = [str(value) if type(value) is Decimal else None for value in values]
    others = [None if type(value) is Decimal else value for value in values]
    return pc.coalesce(parse_texts(pa.array(written, pa.string()), kind), _floats(others, kind))


def _double(value: Any) -> float:
    if type(value) is str:
        return _named_float(value)
    if type(value) is int:
        if int(float(value)) != value:
            raise ValueError
        return float(value)
    if type(value) not in (float, Decimal) or math.isinf(float(value)):
        raise ValueError
    return float(value)


def _single(value: Any) -> float:
    double = _double(value)
    (single,) = struct.unpack("<f", struct.pack("<f", double))
    if type(value) is int and single != double:
        raise ValueError
    return float(single)


def _named_float(value: str) -> float:
    if value not in _NAMED_FLOATS:
        raise ValueError
    return _NAMED_FLOATS[value]


def _unicode(value: str) -> str:
    value.encode()
    return value


def _decimals(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    _check(values, kind, int, Decimal, str)
    texts = [None if value is None else str(value) for value in values]
    try:
        return parse_texts(pa.array(texts, pa.string()), kind)
    except UnicodeEncodeError:
        return _plain(values, pa.string(), set(), _unicode)


def _structs(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    _check(values, kind, dict)
    names = {field.name for field in kind}
    for index, value in enumerate(values):
        if value is not None and not value.keys() <= names:
            unknown = next(name for name in value if name not in names)
            raise Misfit(index, f"field {unknown[:80]!r}", kind, "the struct does not have it")
    empty: dict[str, Any] = {}
    fields = [
        to_array(
            [(empty if value is None else value).get(field.name) for value in values], field.type
        )
        for field in kind
    ]
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=nulls)


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    _check(values, kind, list)
    items = _inner([value or [] for value in values], kind.value_type)
    return pa.ListArray.from_arrays(item_offsets(values), items, type=kind)


def _maps(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    _check(values, kind, dict)
    keys = [list(value or ()) for value in values]
    items = _inner([list((value or {}).values()) for value in values], kind.item_type)
    parsed = _inner_texts(keys, kind.key_type)
    _check_keys(keys, parsed, kind)
    return pa.MapArray.from_arrays(item_offsets(values), parsed, items, kind)


def _check_keys(keys: Sequence[Sequence[str]], parsed: pa.Array, kind: pa.DataType) -> None:
    """Refuse a map in which two texts parse to one key, such as 1 and 01."""
    if pa.types.is_string(kind.key_type):
        return
    if pa.types.is_floating(parsed.type):
        parsed = pc.add(parsed, 0)  # -0.0 is the key 0.0
    codes = iter(parsed.dictionary_encode().indices.to_pylist())
    for index, texts in enumerate(keys):
        if len({next(codes) for _ in texts}) != len(texts):
            raise Misfit(index, f"{{{', '.join(texts)}}}", kind, "two keys are the same")


def _inner(parts: Sequence[Sequence[Any]], kind: pa.DataType) -> pa.Array:
    """Return the items of all values as one array; a misfit gets the index of the outer value."""
    try:
        return to_array([item for part in parts for item in part], kind)
    except Misfit as error:
        raise error.at(index_around(parts, error.index)) from None


def _inner_texts(parts: Sequence[Sequence[str]], kind: pa.DataType) -> pa.Array:
    """Return the keys of maps, which JSON always writes as strings."""
    texts = [text for part in parts for text in part]
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return _inner(parts, kind)
    try:
        return parse_texts(pa.array(texts, pa.string()), kind)
    except Misfit as error:
        raise error.at(index_around(parts, error.index)) from None


def _shown(value: Any) -> str:
    return "null" if value is None else repr(value)
