"""Which Parquet types are read as which column types: FORMAT.md R7.9, as pure functions.

The pairs are decided by the Parquet schema in the footer alone. Arrow's own schema, which Arrow
writes into the metadata of a file, and what an engine could cast do not count: a cast such as that
of a time to a date drops what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from eventlog.errors import DataLoss
from eventlog.model.schema import stored_type

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
        return physical == "INT64" and known and adjusted is _TIMES[wanted]
    precision, scale = map(int, wanted.removeprefix("decimal(").removesuffix(")").split(","))
    if physical not in _DECIMALS or name != "Decimal":
        return False
    integer_digits = kind["precision"] - kind["scale"]
    return bool(kind["scale"] <= scale and integer_digits <= precision - scale)


def check_parquet_columns(parquet: Any, stored: pa.Schema, wanted: pa.Schema) -> None:
    """Check that a segment's columns are read without loss.

    Columns that a table lacks are not looked at.

    Args:
        parquet: the Parquet schema in the footer.
        stored: the same as an Arrow schema.
        wanted: the table's columns, and those of its log segments.

    Raises:
        DataLoss: a column is there twice, or has a type that is not permitted.
    """
    kinds = {field.name: field.type for field in wanted}
    seen = set()
    at = 0
    for field in stored:
        count = leaf_count(field.type)
        if field.name in kinds:
            if field.name in seen:
                raise DataLoss(f"the object has two columns {field.name!r}")
            seen.add(field.name)
            leaves = (parquet.column(place) for place in range(at, at + count))
            if not _fits(field.type, kinds[field.name], leaves):
                raise DataLoss(
                    f"column {field.name!r} of the object is {_named(parquet, at, count)}, which "
                    f"does not become {_text(kinds[field.name])} without loss"
                )
        at += count


def leaf_count(kind: pa.DataType) -> int:
    """Return the number of Parquet columns of an Arrow type."""
    if not kind.num_fields:
        return 1
    return sum(leaf_count(kind.field(place).type) for place in range(kind.num_fields))


def _is_integer(physical: str, kind: dict[str, Any], wanted: int) -> bool:
    bits, signed = _PHYSICAL_BITS.get(physical, 99), True
    if kind["Type"] == "Int":
        bits, signed = kind["bitWidth"], kind["isSigned"]
    elif kind["Type"] != "None":
        return False
    return bool(bits <= wanted if signed else bits < wanted)


def _fits(stored: pa.DataType, wanted: pa.DataType, leaves: Iterator[Any]) -> bool:
    """Return whether a stored column has the form of a wanted one, and permitted leaves."""
    if not wanted.num_fields:
        if stored.num_fields:
            return False
        leaf = next(leaves)
        return _readable(leaf.physical_type, leaf.logical_type.to_json(), str(wanted))
    if pa.types.is_struct(wanted):
        names = [field.name for field in wanted]
        same = pa.types.is_struct(stored) and [field.name for field in stored] == names
    elif pa.types.is_map(wanted):
        same = pa.types.is_map(stored)
    else:
        lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        same = any(is_list(stored) for is_list in lists)
    if not same:
        return False
    return all(_fits(a, b, leaves) for a, b in zip(_parts(stored), _parts(wanted), strict=True))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(place).type for place in range(kind.num_fields)]


@lru_cache(maxsize=4096)
def _readable(physical: str, logical: str, wanted: str) -> bool:
    return can_read(physical, logical, _FORMAT_NAMES.get(wanted) or _decimal(wanted))


def _decimal(arrow: str) -> str:
    return arrow.replace("decimal128", "decimal").replace(" ", "")


_FORMAT_NAMES = {
    "bool": "bool",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
    **{name: name for name in ("string", "binary", *_INTEGER_BITS)},
}


def _text(kind: pa.DataType) -> str:
    return str(stored_type(kind, ""))[:200]


def _named(parquet: Any, at: int, count: int) -> str:
    """Return the Parquet types of a column, for a message."""
    leaves = [parquet.column(place) for place in range(at, at + count)][:4]
    return ", ".join(f"{leaf.physical_type} ({leaf.logical_type})" for leaf in leaves)
