"""Schemas as people give them: as text, as names with types, or as something that has columns.

Text lists columns as SQL does, `time timestamp, id bigint not null, tags list<string>`, or with
colons, `time:timestamp`. The types are those of FORMAT.md R7.1, written as they are stored, or as
SQL calls them; `list<…>`, `map<…, …>` and `struct<name type, …>` can be nested. A name in double
quotes may have any characters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from eventlog.arguments import shown
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.columns.column_types import arrow_type, inner_fields
from eventlog.model.entries import ColumnType

_NULLS = re.compile(r"\s+(not\s+)?null$", re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"]|"")*)"\s*:?(.*)', re.DOTALL)
_MARKS = re.compile(r'[:,<>()"]')  # a name with one of them is quoted
_MAX_TEXT = 2**20
_MAX_BRACKETS = 500  # bounds the parser's recursion if they are all nested
_OPEN, _CLOSE = "<(", ">)"
_TYPES = (
    "bool, int8, int16, int32, int64, float32, float64, string, binary, date, timestamp (UTC), "
    "timestamp_ntz, decimal(p,s), list<…>, map<…, …>, struct<name type, …>"
)
_OF_SQL = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "real": "float32",
    "float": "float32",
    "double": "float64",
    "doubleprecision": "float64",
    "varchar": "string",
    "text": "string",
    "bytes": "binary",
    "timestamptz": "timestamp",
}
_ALLOWED = f"the types are {_TYPES}; or as SQL calls them: {', '.join(_OF_SQL)}, numeric(p,s)"


def given_schema(given: Any) -> pa.Schema:
    """Return the Arrow schema of what was given for a new table.

    Args:
        given: a pyarrow schema; text, see `parse_schema`; a dict of types by name, each as text or
            one of pyarrow's; or something that has columns, whose rows are not read: a frame of
            pandas or Polars, a pyarrow table, reader or dataset, or anything else with
            `__arrow_c_schema__` or `__arrow_c_stream__`.

    Raises:
        InvalidInput: it is none of these, or a column has a type that tables do not have.
    """
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str):
        return parse_schema(given)
    library, name = type(given).__module__.partition(".")[0], type(given).__name__
    if library == "pyspark":
        raise InvalidInput(
            "a frame of Spark makes its own table: eventlog.writers.spark.append(uri, df, "
            "time_column=…)"
        )
    try:
        if (found := _exported(given, library, name)) is not None:
            return found
    except MemoryError:
        raise
    except Exception as error:  # whatever the library behind it raises
        first = str(error).split("\n", 1)[0][:200]
        raise InvalidInput(
            f"the columns of a {name} cannot be converted to Arrow: {first}"
        ) from error
    if isinstance(given, Mapping):
        return pa.schema([_given_field(name, kind) for name, kind in given.items()])
    raise InvalidInput(
        "schema must be a pyarrow.Schema, text such as 'at timestamp, id bigint not null', a dict "
        f"of types by name, or a frame or a pyarrow table with the columns, not {shown(given)}"
    )


def parse_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of text such as `time timestamp, id int64 not null`.

    Raises:
        InvalidInput: a column has no type, or a type that the format does not have.
    """
    _check_text(text)
    fields = [_field(part) for part in _split(text) if part]
    if not fields:
        raise InvalidInput("the schema is empty: write name type, name type, …")
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
        named = (f"{name_text(field.name)}:{type_text(field.type)}" for field in fields)
        return f"struct<{', '.join(named)}>"
    return f"{kind}<{', '.join(type_text(field.type) for field in fields)}>"


def name_text(name: str) -> str:
    """Return the name of a column as `parse_schema` reads it before a colon."""
    if name == name.strip() and not _MARKS.search(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _exported(given: Any, library: str, name: str) -> pa.Schema | None:
    """Return the columns of an object of another library; None: it has none."""
    if library == "pandas" and name == "DataFrame":
        return pa.Schema.from_pandas(given)
    if library == "polars" and name in ("DataFrame", "LazyFrame", "Schema"):
        known = given if name == "Schema" else given.collect_schema()
        given = sys.modules[library].DataFrame(schema=known)
    elif isinstance(found := getattr(given, "schema", None), pa.Schema):
        return found
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).schema
    return None


def _check_text(text: str) -> None:
    if len(text) > _MAX_TEXT or any("\ud800" <= c <= "\udfff" for c in text):
        raise InvalidInput(f"a schema must be valid Unicode of at most {_MAX_TEXT} characters")
    if text.count("<") > _MAX_BRACKETS:
        raise InvalidInput(f"the schema has too many nested types: at most {_MAX_BRACKETS}")


def _given_field(name: Any, kind: Any) -> pa.Field:
    """Return the field of a name and a type."""
    if not isinstance(name, str):
        raise InvalidInput(f"the name of a column must be text, not {shown(name)}")
    if isinstance(kind, pa.DataType):
        return pa.field(name, kind)
    if not isinstance(kind, str):
        raise InvalidInput(
            f"column {name!r} has type {shown(kind)}, which is neither text nor a pyarrow.DataType;"
            f" {_ALLOWED}"
        )
    _check_text(kind)
    return _typed(name, kind)


def _field(text: str) -> pa.Field:
    quoted = _QUOTED.fullmatch(text)
    before = re.split("[<(]", text, maxsplit=1)[0]
    if quoted is not None:
        name, kind = quoted[1].replace('""', '"'), quoted[2]
    elif ":" in before or len(before.split()) < 2:
        name, _, kind = text.partition(":")
    else:
        name, kind = text.split(maxsplit=1)
    if not name.strip() or not kind.strip():
        raise InvalidInput(
            f"column {text[:80]!r} is not of the form name type, or name:type; {_ALLOWED}"
        )
    return _typed(name if quoted else name.strip(), kind)


def _typed(name: str, kind: str) -> pa.Field:
    """Return the field of a name and a type as text, which may end with `not null`."""
    kind, required = kind.strip(), False
    if found := _NULLS.search(kind):
        kind, required = kind[: found.start()], found[1] is not None
    return pa.field(name, _type(kind, name), not required)


def _type(text: str, column: str) -> pa.DataType:
    kind, bracket, rest = text.partition("<")
    try:
        if not bracket:
            return arrow_type(_stored("".join(text.lower().split())))
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
    raise InvalidInput(f"column {column!r} has type {text[:80]!r}; {_ALLOWED}")


def _stored(kind: str) -> str:
    """Return the stored name of a type that may have a name of SQL."""
    return f"decimal{kind[7:]}" if kind.startswith("numeric(") else _OF_SQL.get(kind, kind)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quoted names, which begin a part."""
    parts, depth, start, quoted, last = list[str](), 0, 0, False, ","
    for at, character in enumerate(text):
        if character == '"' and (quoted or last in ",<"):
            quoted = not quoted
        last = last if character.isspace() else character
        if quoted:
            continue
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]
