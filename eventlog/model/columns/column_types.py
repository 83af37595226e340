"""Column types: as they are stored, and Arrow's form of them.

The format has the types that Parquet, Spark, DuckDB and Polars share. Arrow's other forms of them
are normalised; any other type is refused, with advice what to cast it to (FORMAT.md R7.1).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from eventlog import limits
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.entries import ColumnType

_PRIMITIVES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {arrow: name for name, arrow in _PRIMITIVES.items()}
_NORMALISED: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_DECIMAL = re.compile(r"decimal\(([1-9]\d?),(0|[1-9]\d?)\)", re.ASCII)
TIME_TYPES = ("timestamp", "timestamp_ntz", "date")
ELEMENT, KEY, VALUE = "element", "key", "value"
FIELD_ID = b"PARQUET:field_id"  # the name of a field's id in the metadata of an Arrow field
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_MAX_DEPTH = limits.TYPE_DEPTH
_TOO_DEEP = f"it is nested too deeply: at most {_MAX_DEPTH} levels of lists, maps and structs"


class InnerField(NamedTuple):
    """A field inside a nested type: of a struct, or the elements, keys or values of others."""

    id: int
    name: str
    type: ColumnType


def inner_fields(stored: ColumnType) -> tuple[InnerField, ...]:
    """Return the fields of a valid stored type, in their order; none of a type without any."""
    if isinstance(stored, str):
        return ()
    (kind, inner), *_ = stored.items()
    if kind == "list":
        return (InnerField(inner["id"], ELEMENT, inner["type"]),)
    if kind == "map":
        names = zip((KEY, VALUE), inner, strict=True)
        return tuple(InnerField(part["id"], name, part["type"]) for name, part in names)
    return tuple(InnerField(part["id"], part["name"], part["type"]) for part in inner)


def with_fields(stored: ColumnType, fields: Sequence[InnerField]) -> ColumnType:
    """Return a nested type of the same kind with these fields."""
    assert isinstance(stored, dict)  # noqa: S101 - others have no fields
    (kind, _), *_ = stored.items()
    if kind == "struct":
        return {kind: [{"id": f.id, "name": f.name, "type": f.type} for f in fields]}
    parts = [{"id": f.id, "type": f.type} for f in fields]
    return {kind: parts[0] if kind == "list" else parts}


def all_fields(stored: ColumnType) -> Iterator[InnerField]:
    """Yield the fields of a valid stored type and those inside of them, each before its own."""
    for field in inner_fields(stored):
        yield field
        yield from all_fields(field.type)


def arrow_type(stored: ColumnType, depth: int = 0, *, ids: bool = False) -> pa.DataType:
    """Return the Arrow type of a stored column type.

    Args:
        stored: the stored type.
        depth: how many nested types it lies in.
        ids: whether the fields of nested types have their ids in their metadata (`FIELD_ID`).

    Raises:
        Corrupt: it is not one of FORMAT.md R7.1.
    """
    if isinstance(stored, str):
        if stored in _PRIMITIVES:
            return _PRIMITIVES[stored]
        match = _DECIMAL.fullmatch(stored)
        if match and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
            return pa.decimal128(int(match[1]), int(match[2]))
    elif isinstance(stored, dict) and len(stored) == 1:
        if depth == _MAX_DEPTH:
            raise Corrupt(_TOO_DEEP)
        (kind, inner), *_ = stored.items()
        if kind == "list":
            element = _field(inner, depth + 1, ELEMENT, ids=ids)
            return pa.list_(element if ids else element.type)
        if kind == "map" and isinstance(inner, list) and len(inner) == 2:
            key, value = (_field(part, depth + 1, KEY, ids=ids) for part in inner)
            return pa.map_(key.with_nullable(False), value.with_name(VALUE))
        if kind == "struct" and isinstance(inner, list) and inner:
            return pa.struct([_field(part, depth + 1, ids=ids) for part in inner])
    raise Corrupt(f"{str(stored)[:80]!r} is not a column type of the format")


def stored_type(arrow: pa.DataType, name: str, depth: int = 0) -> ColumnType:
    """Return the stored form of an Arrow type, normalised; its fields have no ids yet, but 0.

    Raises:
        InvalidInput: the format has no such type; the message names column `name` and a type to
            cast it to.
    """
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"column {name!r}: {_TOO_DEEP}")
    arrow = _NORMALISED.get(arrow, arrow)
    if arrow in _NAMES:
        return _NAMES[arrow]
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_dictionary(arrow):
        return stored_type(arrow.value_type, name, depth)
    deeper = depth + 1
    if (
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    ):
        return {"list": {"id": 0, "type": stored_type(arrow.value_type, name, deeper)}}
    if pa.types.is_map(arrow):
        pair = (arrow.key_type, arrow.item_type)
        return {"map": [{"id": 0, "type": stored_type(part, name, deeper)} for part in pair]}
    if pa.types.is_struct(arrow) and arrow.num_fields:
        fields = (
            {"id": 0, "name": f.name, "type": stored_type(f.type, name, deeper)} for f in arrow
        )
        return {"struct": [*fields]}
    raise InvalidInput(
        f"column {name!r} has type {arrow}, which tables do not support: {_advice(arrow)}"
    )


def type_problem(stored: ColumnType) -> str | None:
    """Return why a stored type cannot be in a table, or None."""
    try:
        arrow_type(stored)
    except Corrupt as error:
        return error.message
    return None


def _field(part: Any, depth: int, name: str | None = None, *, ids: bool) -> pa.Field:
    """Return the Arrow field of an inner field; the field of a struct has its own name."""
    names = ["id", "type"] if name else ["id", "name", "type"]
    if not isinstance(part, dict) or list(part) != names or not _is_id(part["id"]):
        raise Corrupt(f"a field of a nested type needs exactly {' and '.join(names)}")
    if name is None:
        name = part["name"]
        if not isinstance(name, str):
            raise Corrupt("the name of a struct's field must be text")
    metadata = {FIELD_ID: str(part["id"])} if ids else None
    return pa.field(name, arrow_type(part["type"], depth, ids=ids), metadata=metadata)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _advice(arrow: pa.DataType) -> str:
    if pa.types.is_uint64(arrow):
        return "cast it to int64 or decimal(20,0)"
    if pa.types.is_time(arrow) or pa.types.is_duration(arrow) or pa.types.is_interval(arrow):
        return "cast it to int64 (with the unit in its name) or to a timestamp"
    if pa.types.is_fixed_size_binary(arrow):
        return "cast it to binary"
    if pa.types.is_null(arrow):
        return "give it a type, such as string"
    return "cast it to a type that Parquet and Spark share"


def ascii_lower(name: str) -> str:
    """Return a name with `a` to `z` for `A` to `Z`: the same in every language and release (R7.2).

    Writers refuse more: names that are equal in the lower case of their release of Unicode.
    """
    return name.translate(_ASCII_LOWER)
