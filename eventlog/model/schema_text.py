"""Schemas as people write them: `time:timestamp, id:int64 not null, tags:list<string>`.

The types are those of FORMAT.md R7.1, written as they are stored; `list<…>`, `map<…, …>` and
`struct<name:type, …>` can be nested.
"""

from __future__ import annotations

import pyarrow as pa

from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.columns.column_types import arrow_type, inner_fields
from eventlog.model.entries import ColumnType

_REQUIRED = " not null"
_MAX_TEXT = 2**20
_MAX_BRACKETS = 500  # bounds the parser's recursion if they are all nested
_OPEN, _CLOSE = "<(", ">)"
_TYPES = (
    "bool, int8, int16, int32, int64, float32, float64, string, binary, date, timestamp (UTC), "
    "timestamp_ntz, decimal(p,s), list<…>, map<…, …>, struct<name:type, …>"
)


def parse_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a string such as `time:timestamp, id:int64 not null`.

    Raises:
        InvalidInput: a column has no type, or a type that the format does not have.
    """
    if len(text) > _MAX_TEXT or any("\ud800" <= c <= "\udfff" for c in text):
        raise InvalidInput(f"a schema must be valid Unicode of at most {_MAX_TEXT} characters")
    if text.count("<") > _MAX_BRACKETS:
        raise InvalidInput(f"the schema has too many nested types: at most {_MAX_BRACKETS}")
    fields = [_field(part) for part in _split(text) if part]
    if not fields:
        raise InvalidInput("the schema is empty: write name:type, name:type, …")
    return pa.schema(fields)


def type_text(stored: ColumnType) -> str:
    """Return a stored column type in the form that `parse_schema` reads.

    A type that the format does not have, as a first schema may hold, is shown as the message of the
    error.
    """
    if isinstance(stored, str):
        return stored
    try:
        arrow_type(stored)
    except Corrupt as error:
        return f"({error.message})"
    (kind,) = stored
    fields = inner_fields(stored)
    if kind == "struct":
        return f"struct<{', '.join(f'{field.name}:{type_text(field.type)}' for field in fields)}>"
    return f"{kind}<{', '.join(type_text(field.type) for field in fields)}>"


def _field(text: str) -> pa.Field:
    name, separator, kind = (part.strip() for part in text.partition(":"))
    if not separator or not name or not kind:
        raise InvalidInput(f"column {text[:80]!r} is not of the form name:type")
    nullable = not kind.lower().endswith(_REQUIRED)
    if not nullable:
        kind = kind[: -len(_REQUIRED)].strip()
    return pa.field(name, _type(kind, name), nullable)


def _type(text: str, column: str) -> pa.DataType:
    kind, bracket, rest = text.partition("<")
    try:
        if not bracket:
            return arrow_type("".join(text.lower().split()))
        if not rest.endswith(">"):
            raise InvalidInput(f"column {column!r}: {text[:80]!r} has no closing >")
        parts = _split(rest[:-1])
        kind = kind.strip().lower()
        if kind == "list" and len(parts) == 1:
            return pa.list_(_type(parts[0], column))
        if kind == "map" and len(parts) == 2:
            return pa.map_(_type(parts[0], column), _type(parts[1], column))
        if kind == "struct":
            return pa.struct([_field(part) for part in parts])
    except Corrupt:
        pass
    raise InvalidInput(f"column {column!r} has type {text[:80]!r}; the types are {_TYPES}")


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]
