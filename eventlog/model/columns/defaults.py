"""Defaults of columns: values that rows have which lack the column, exactly, in canonical JSON.

| type | encoded as |
|---|---|
| bool | true, false |
| integers; date, timestamps | the number; microseconds |
| floats | ordered bits, as in statistics, but -0.0 is -1; no NaN |
| decimals | the digits of the unscaled number, as text |
| string; binary | the text; hexadecimal digits |

Nested columns have no default but null (FORMAT.md R7.12).
"""

from __future__ import annotations

import operator
import re
import struct
from typing import Any

import pyarrow as pa

from eventlog.arguments import shown
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.chunks import DAY_US
from eventlog.model.columns.column_types import TIME_TYPES, arrow_type
from eventlog.model.decimals import from_units, to_units
from eventlog.model.entries import Column, ColumnType, Default

MOST_CHARACTERS = 1024
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_FLOATS = ("float32", "float64")
_HEX = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)
_UNITS = re.compile(r"0|-?[1-9][0-9]{0,37}", re.ASCII)
_SIGN = 0x7FFF_FFFF_FFFF_FFFF


def encode_default(column: Column, value: Any) -> Default:
    """Return the encoded form of a value for a column.

    Args:
        column: the column.
        value: a Python value that is not None.

    Raises:
        InvalidInput: the value is none of the column's type, or cannot be a default.
    """
    if not isinstance(column.type, str):
        raise InvalidInput(
            f"column {column.name!r} is a list, map or struct: its default can only be null"
        )
    try:
        if column.type.startswith("int"):
            value = operator.index(value)  # Arrow would cut a float off
        scalar = pa.scalar(value, arrow_type(column.type))
        encoded = _encoded(scalar, column.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        encoded = None
    if encoded is None or default_problem(column.type, encoded):
        raise InvalidInput(
            f"{shown(value)} cannot be a default of column {column.name!r} of type {column.type}"
        )
    return encoded


def decode_default(column: Column, encoded: Default) -> pa.Scalar:
    """Return the value of an encoded default.

    Raises:
        Corrupt: it is none of the column's type.
    """
    if problem := default_problem(column.type, encoded):
        raise Corrupt(f"the default of column {column.name!r} {problem}")
    kind, stored = arrow_type(column.type), str(column.type)
    if stored in _FLOATS:
        bits = int(encoded)
        packed = struct.pack(">q", bits if bits >= 0 else bits ^ _SIGN)
        return pa.scalar(struct.unpack(">d", packed)[0], kind)
    if stored.startswith("decimal"):
        return pa.scalar(from_units(int(encoded), kind.scale), kind)
    if stored == "binary":
        return pa.scalar(bytes.fromhex(str(encoded)), kind)
    if stored == "date":
        return pa.scalar(int(encoded) // DAY_US, kind)
    if stored in TIME_TYPES:
        return pa.array([encoded], pa.int64()).view(kind)[0]
    return pa.scalar(encoded, kind)


def default_problem(stored: ColumnType, encoded: Default) -> str | None:
    """Return why an encoded default is none of a column type, or None."""
    none = f"is none of type {stored}"
    if not isinstance(stored, str):
        return "can only be null: it is a list, map or struct"
    if stored == "bool":
        return None if isinstance(encoded, bool) else none
    if stored in ("string", "binary") or stored.startswith("decimal"):
        if not isinstance(encoded, str) or len(encoded) > MOST_CHARACTERS:
            return f"{none}, or longer than {MOST_CHARACTERS} characters"
        if stored == "binary":
            return None if _HEX.fullmatch(encoded) else none
        if stored == "string":
            return None
        precision = arrow_type(stored).precision
        fits = _UNITS.fullmatch(encoded) and len(encoded.lstrip("-")) <= precision
        return None if fits else none
    if isinstance(encoded, bool) or not isinstance(encoded, int):
        return none
    if stored in _FLOATS:
        return None if _is_float(encoded, stored) else none
    if stored == "date" and int(encoded) % DAY_US:
        return none
    half = 2 ** (_BITS.get(stored, 64) - 1)
    return None if -half <= encoded < half else none


def _encoded(scalar: pa.Scalar, stored: str) -> Default | None:
    value = scalar.as_py()
    if stored in {"bool", "string"}:
        return value  # type: ignore[no-any-return]
    if stored == "binary":
        return value.hex()  # type: ignore[no-any-return]
    if stored in _FLOATS:
        (bits,) = struct.unpack(">q", struct.pack(">d", value))
        return int(bits if bits >= 0 else bits ^ _SIGN)
    if stored.startswith("decimal"):
        return str(to_units(value, scalar.type.scale))
    if stored == "date":
        return int(scalar.value) * DAY_US
    return int(scalar.value if stored in TIME_TYPES else value)


def _is_float(encoded: int, stored: str) -> bool:
    """Return whether ordered bits are those of a number, which is no NaN, of a float type."""
    if not -(2**63) < encoded < 2**63:
        return False
    packed = struct.pack(">q", encoded if encoded >= 0 else encoded ^ _SIGN)
    (value,) = struct.unpack(">d", packed)
    if value != value:  # noqa: PLR0124 - NaN
        return False
    return stored == "float64" or pa.scalar(value, pa.float32()).as_py() == value
