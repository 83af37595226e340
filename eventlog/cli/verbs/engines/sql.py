"""The verb sql: DuckDB's SQL over versions of tables.

Needs the extras `cli` and `duckdb`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any

import click
import pyarrow as pa

from eventlog.cli.place import Place, at_timestamp, at_version, common
from eventlog.cli.screen.paging import listing
from eventlog.cli.verbs.reading import (
    MEGABYTE,
    format_option,
    limit_option,
    memory_option,
    output_option,
    write_stream,
)
from eventlog.errors import InvalidInput, TableNotFound, VersionNotFound
from eventlog.readers.engines.pushdown import dataset
from eventlog.readers.row_stream import needed
from eventlog.session.tags import VersionOrName
from eventlog.table.table import Table

_NAME = "t"
_ONE_ANSWER = (
    ": ask for one that is true or false, as SELECT count(*) > 0 FROM t WHERE … does (a number is "
    "true unless it is 0, and null is false)"
)
_NO_TABLE = "Table with name"  # in DuckDB's error
_INTERNAL = re.compile(r'Did you mean "(pg|duckdb)_')  # names tables of DuckDB itself
_KEYWORD_COLUMNS = (
    "SELECT DISTINCT column_name FROM duckdb_columns() JOIN duckdb_keywords() "
    "ON lower(column_name) = keyword_name WHERE NOT internal "
    "AND keyword_category IN ('reserved', 'type_function') ORDER BY 1"
)
OF_A_VERSION = frozenset(("segments", "chunks"))
RECORDED = frozenset(
    ("history", "transactions", "claims", "pins", "tags", "replicas", "branches")
).union(OF_A_VERSION)


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A further table of a query: `name=URI`, or `name=URI@version`.

    Attributes:
        uri: the root of the table, or if there is none, `root@tag`.
    """

    name: str
    uri: str
    version: VersionOrName | None


def parse_named_version(text: str) -> NamedVersion:
    """Return what `--table` names.

    Raises:
        InvalidInput: it does not have the form, or the name is no identifier.
    """
    name, separator, uri = text.partition("=")
    if not separator or not name.isidentifier() or not uri:
        raise InvalidInput(f"--table is NAME=URI or NAME=URI@VERSION, not {text!r}")
    root, at, version = uri.rpartition("@")
    if at and version.isdecimal() and root:
        return NamedVersion(name, root, int(version))
    return NamedVersion(name, uri, None)


@click.command("sql")
@common
@click.argument("query")
@at_version
@at_timestamp
@click.option(
    "--table",
    "tables",
    metavar="NAME=URI[@VERSION]",
    multiple=True,
    help="A further table of the query. Repeatable.",
)
@limit_option
@format_option
@output_option
@memory_option
@listing
def sql_(  # noqa: PLR0913 - one parameter per option
    place: Place,
    query: str,
    *,
    version: VersionOrName | None,
    timestamp: str | None,
    tables: tuple[str, ...],
    limit: int | None,
    row_format: str | None,
    output: str | None,
    memory_mb: int,
) -> None:
    """Answer a SQL query over versions of tables.

    "SELECT … FROM t", where t is the table at URI. What its log records are tables, too: history,
    transactions, segments, chunks, claims, pins, tags, replicas, branches. DuckDB runs it.
    """
    memory = memory_mb * MEGABYTE
    others = [parse_named_version(text) for text in tables]
    sources = {_NAME: dataset(place.unread(), version, timestamp, memory_bytes=memory)}
    for other in others:
        if other.name.lower() in sources:
            raise InvalidInput(f"the query has two tables {other.name!r}: rename one")
        sources[other.name.lower()] = _dataset(other, memory, place.storage_options)
    with TemporaryDirectory() as spills, closing(_connection(memory, spills)) as connection:
        for name, source in sources.items():
            connection.register(name, source)
        inspected = _names_in(connection, query).intersection(RECORDED) - sources.keys()
        for name in sorted(inspected):
            connection.register(name, _recorded(place.open(), name, version, timestamp))
        try:
            write_stream(place, _answer(connection, query), limit, row_format, output)
        except InvalidInput:
            for failure in (error for source in sources.values() for error in source.failures):
                raise failure from None  # not DuckDB's words for it
            raise


def is_true(table: Table, query: str, version: int, memory_bytes: int) -> bool:
    """Return whether a query over one version, which it calls t, is true: not false, 0 or null.

    Raises:
        InvalidInput: it is not one query, DuckDB refuses it, or it has another result than one row
            of one column, a boolean or a number.
    """
    source = dataset(table, version, memory_bytes=memory_bytes)
    with TemporaryDirectory() as spills, closing(_connection(memory_bytes, spills)) as connection:
        connection.register(_NAME, source)
        try:
            answer = _answer(connection, query)
            _check_yes_or_no(answer.schema)
            values = list(islice(_first_values(answer), 2))
        except InvalidInput:
            for failure in source.failures:
                raise failure from None  # not DuckDB's words for it
            raise
    if len(values) != 1:
        raise InvalidInput(
            f"the query returns {'more than one' if values else 'no'} row{_ONE_ANSWER}"
        )
    return bool(values[0])


VERBS = (sql_,)


def _check_yes_or_no(schema: pa.Schema) -> None:
    """Check that a query has one column, of booleans or numbers.

    Raises:
        InvalidInput: it has another result.
    """
    if len(schema) != 1:
        raise InvalidInput(f"the query returns {len(schema)} columns{_ONE_ANSWER}")
    kind = schema.types[0]
    tests = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if not any(is_such(kind) for is_such in (*tests, pa.types.is_null)):
        raise InvalidInput(f"the query returns a value of type {kind}{_ONE_ANSWER}")


def _first_values(answer: pa.RecordBatchReader) -> Iterator[Any]:
    """Yield the values of the first column."""
    for batch in answer:
        yield from batch.column(0).to_pylist()


def _dataset(other: NamedVersion, memory_bytes: int, options: Mapping[str, str] | None) -> Any:
    """Return a further table of a query.

    A table whose own root has an @ in it comes before one with a tag.

    Raises:
        TableNotFound: there is none.
        VersionNotFound: there is no such version or tag; if it may be meant as a branch, with the
            URI of that.
    """
    given: dict[str, Any] = {"memory_bytes": memory_bytes, "storage_options": options}
    try:
        return dataset(other.uri, other.version, **given)
    except TableNotFound:
        root, at, name = other.uri.rpartition("@")
        if not at or not root or not name or "/" in name:
            raise
    try:
        return dataset(root, name, **given)
    except VersionNotFound as error:
        raise VersionNotFound(
            f"{error.message}. After @ comes a version or a tag; the URI of a branch is "
            f"{root.rstrip('/')}/_branches/{name}",
            table=error.table,
        ) from None


def _names_in(connection: Any, query: str) -> set[str]:
    """Return the names of tables that a query mentions, in small letters; none of a wrong query."""
    duckdb = needed("duckdb", "eventlog-tables[duckdb]")
    try:
        return {name.lower() for name in connection.get_table_names(query)}
    except duckdb.Error:
        return set()


def _recorded(
    table: Table, name: str, version: VersionOrName | None, timestamp: str | None
) -> pa.Table:
    """Return what the log records under a name of `RECORDED`."""
    recorded = getattr(table.inspect, name)
    return recorded(version, timestamp) if name in OF_A_VERSION else recorded()


def _connection(memory_bytes: int, spills: str) -> Any:
    """Return a connection to an empty database.

    Args:
        memory_bytes: about how many bytes DuckDB may hold.
        spills: the folder for more.
    """
    duckdb = needed("duckdb", "eventlog-tables[duckdb]")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET memory_limit = '{memory_bytes // MEGABYTE}MiB'")
    connection.execute("SET temp_directory = ?", [spills])
    connection.execute("SET python_enable_replacements = false")  # variables are no tables
    return connection


def _refusal(connection: Any, query: str, error: str) -> str:
    """Return why DuckDB refuses a query, with the names that it can have.

    Args:
        connection: with the tables of the query.
        query: what is refused.
        error: DuckDB's words for it, which end with a line of the query and a mark below it.
    """
    lines = [line for line in error.splitlines() if line.strip() and not _INTERNAL.match(line)]
    lines[0] = f"DuckDB refuses the query: {lines[0]}"
    if _NO_TABLE in error:
        names = [name for (name,) in connection.execute("SHOW TABLES").fetchall()]
        lines.append(f"the query can name {', '.join(names)}: {_NAME} is the table at URI")
    found = connection.execute(_KEYWORD_COLUMNS).fetchall()
    quoted = [f'"{name}"' for (name,) in found if re.search(_unquoted(name), query)]
    if quoted:
        lines.append(f"a word of SQL names a column only in quotes: write {', '.join(quoted)}")
    return "\n".join(lines)


def _unquoted(name: str) -> str:
    return rf"(?i)(?<![\w\"']){re.escape(name)}(?![\w\"'])"


def _answer(connection: Any, query: str) -> pa.RecordBatchReader:
    """Return the rows of a query as a stream.

    Raises:
        InvalidInput: it is not one query, or DuckDB refuses it.
    """
    duckdb = needed("duckdb", "eventlog-tables[duckdb]")
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            raise InvalidInput(f"give one query, not {len(statements)}")
        relation = connection.sql(query)
        if relation is None:
            raise InvalidInput("the statement has no rows to return: give a query such as a SELECT")
        stream = pa.RecordBatchReader.from_stream(relation)
    except duckdb.Error as error:
        raise InvalidInput(_refusal(connection, query, str(error))) from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from stream
        except (pa.ArrowException, OSError, duckdb.Error) as error:
            raise InvalidInput(f"the query failed: {error}") from error

    return pa.RecordBatchReader.from_batches(stream.schema, batches())
