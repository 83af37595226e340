"""Which Parquet types are read as which column types: FORMAT.md R7.9, as pure functions.

The pairs are decided by the Parquet schema in the footer alone. Arrow's own schema, which Arrow
writes into the metadata of a file, and what an engine could cast do not count: a cast such as that
of a time to a date drops what does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from eventlog.errors import DataLoss
from eventlog.model.columns.column_types import FIELD_ID, inner_fields
from eventlog.model.entries import Column, ColumnType
from eventlog.model.schema_text import type_text

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_PHYSICAL_BITS = {"INT32": 32, "INT64": 64}
_PLAIN = {
    "bool": ("BOOLEAN",),
    "float32": ("FLOAT",),
    "float64": ("FLOAT", "DOUBLE"),
    "binary": ("BYTE_ARRAY",),
}
_TIMES = {"timestamp": True, "timestamp_ntz": False}  # whether they are adjusted to UTC
_DECIMALS = ("INT32", "INT64", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_logical = msgspec.json.Decoder(dict[str, Any])


def can_read(physical: str, logical: str, wanted: str) -> bool:
    """Return whether every value of a Parquet type is one of a column type (FORMAT.md R7.9).

    Args:
        physical: the physical type, such as `INT64`.
        logical: the logical type in pyarrow's JSON, such as `{"Type": "Date"}`. An old converted
            type counts as the logical type that stands for it.
        wanted: a column type of the format that is not nested, such as `decimal(9,2)`.
    """
    kind = _logical.decode(logical)
    name = kind["Type"]
    if wanted in _PLAIN:
        return physical in _PLAIN[wanted] and name == "None"
    if wanted in _INTEGER_BITS:
        return _is_integer(physical, kind, _INTEGER_BITS[wanted])
    if wanted == "string":
        return physical == "BYTE_ARRAY" and name == "String"
    if wanted == "date":
        return physical == "INT32" and name == "Date"
    if wanted in _TIMES:
        adjusted, unit = kind.get("isAdjustedToUTC"), kind.get("timeUnit")
        known = name == "Timestamp" and unit in ("milliseconds", "microseconds")
        is_day = wanted == "timestamp_ntz" and physical == "INT32" and name == "Date"
        return is_day or (physical == "INT64" and known and adjusted is _TIMES[wanted])
    precision, scale = map(int, wanted.removeprefix("decimal(").removesuffix(")").split(","))
    if physical not in _DECIMALS or name != "Decimal":
        return False
    integer_digits = kind["precision"] - kind["scale"]
    return bool(kind["scale"] <= scale and integer_digits <= precision - scale)


def match_columns(parquet: Any, stored: pa.Schema, columns: Iterable[Column]) -> dict[str, int]:
    """Return where the columns of a table lie in a segment's file, which has them by field id.

    The names in the file do not count, and columns that the table does not have are not looked at.

    Args:
        parquet: the Parquet schema in the footer.
        stored: the same as an Arrow schema.
        columns: the table's columns, and those of logs.

    Returns:
        By the name of the column in the table, its place among the top-level columns of the file.

    Raises:
        DataLoss: a column is there twice, lacks a field id, or has a type that is not permitted.
    """
    wanted = {column.id: column for column in columns}
    found: dict[str, int] = {}
    seen = set[int]()
    at = 0
    for place, field in enumerate(stored):
        count = leaf_count(field.type)
        number = field_id(field)
        if number is None:  # against column-without-an-id
            raise DataLoss(f"column {field.name!r} of the object has no field id")
        if number in seen:
            raise DataLoss(f"the object has two columns of field id {number}, {field.name!r}")
        seen.add(number)
        column = wanted.get(number)
        if column is not None:
            kind, found[column.name] = column.type, place
            if not _fits(field.type, kind, parquet, at):
                raise DataLoss(
                    f"column {column.name!r} of the object is {_named(parquet, at, count)}, which "
                    f"does not become {type_text(kind)[:200]} without loss"
                )
        at += count
    return found


def field_id(field: pa.Field) -> int | None:
    """Return the id of a field in a Parquet file; None if it has none."""
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None or int(text) < 0 else int(text)


def leaf_count(kind: pa.DataType) -> int:
    """Return the number of Parquet columns of an Arrow type."""
    if not kind.num_fields:
        return 1
    return sum(leaf_count(kind.field(place).type) for place in range(kind.num_fields))


def leaf_paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of the Parquet columns of a column, as Arrow names them.

    Args:
        path: the name of the column.
        kind: its type.
    """
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            yield from leaf_paths(f"{path}.{kind.field(place).name}", kind.field(place).type)
    elif pa.types.is_map(kind):
        yield from leaf_paths(f"{path}.key_value.key", kind.key_type)
        yield from leaf_paths(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from leaf_paths(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _is_integer(physical: str, kind: dict[str, Any], wanted: int) -> bool:
    bits, signed = _PHYSICAL_BITS.get(physical, 99), True
    if kind["Type"] == "Int":
        bits, signed = kind["bitWidth"], kind["isSigned"]
    elif kind["Type"] != "None":
        return False
    return bool(bits <= wanted if signed else bits < wanted)


def _fits(stored: pa.DataType, wanted: ColumnType, parquet: Any, at: int) -> bool:
    """Return whether a stored column has the form of a wanted one, and permitted leaves.

    Args:
        stored: the type in the file.
        wanted: the type in the table.
        parquet: the Parquet schema in the footer.
        at: the first leaf of the column in it.
    """
    if isinstance(wanted, str):
        if stored.num_fields:
            return False
        leaf = parquet.column(at)
        return _readable(leaf.physical_type, leaf.logical_type.to_json(), wanted)
    (kind,) = wanted
    if not _KINDS[kind](stored):
        return False
    parts = file_fields(stored)
    numbers = [field_id(part) for part in parts]
    if None in numbers or len({*numbers}) < len(numbers):
        return False
    fields = {field.id: field for field in inner_fields(wanted)}
    if kind != "struct" and [*fields] != numbers:  # against elements-of-another-id
        return False
    for number, part in zip(numbers, parts, strict=True):
        field = fields.get(number or 0)
        if field is not None and not _fits(part.type, field.type, parquet, at):
            return False
        at += leaf_count(part.type)
    return True


def file_fields(stored: pa.DataType) -> list[pa.Field]:
    """Return the fields of a nested Arrow type, of a map its keys and values."""
    if pa.types.is_map(stored):
        return [stored.key_field, stored.item_field]
    return [stored.field(place) for place in range(stored.num_fields)]


def _is_any_list(stored: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_list(stored) for is_list in lists)


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "list": _is_any_list,
    "map": pa.types.is_map,
    "struct": pa.types.is_struct,
}


@lru_cache(maxsize=4096)
def _readable(physical: str, logical: str, wanted: str) -> bool:
    return can_read(physical, logical, wanted)


def _named(parquet: Any, at: int, count: int) -> str:
    """Return the Parquet types of a column, for a message."""
    leaves = [parquet.column(place) for place in range(at, at + count)][:4]
    return ", ".join(f"{leaf.physical_type} ({leaf.logical_type})" for leaf in leaves)
