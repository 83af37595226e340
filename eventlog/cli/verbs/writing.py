"""The verbs that write rows: append, upsert, delete.

Needs the extra `cli`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import pyarrow as pa

from eventlog import Table
from eventlog.cli import terminal
from eventlog.cli.place import Place, common
from eventlog.cli.terminal import committed
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import OP, MergeRule, keyed_of
from eventlog.quantities import count_text
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.staging.upsert_rows import MISSING, Missing
from eventlog.writers.batch import already, append, make_app
from eventlog.writers.files import FORMATS, open_rows, with_progress, with_row_count
from eventlog.writers.keyed import delete, rule_or_refuse, upsert

_MEGABYTE = 2**20


_FILES: list[Callable[[Any], Any]] = [
    click.option(
        "--format", "file_format", type=click.Choice(FORMATS), help="Default: by file name."
    ),
    click.option(
        "--null",
        "nulls",
        multiple=True,
        metavar="TEXT",
        help="CSV: unquoted text that means null, such as NA.",
    ),
    click.option(
        "--rows",
        "expected",
        type=click.IntRange(min=0),
        help="Commit only if the input has this many rows.",
    ),
    click.option("--app-id", help="With --app-seq: an (id, sequence) takes effect once."),
    click.option(
        "--app-seq", type=click.IntRange(min=0), help="Must grow with every unit of work."
    ),
    click.option(
        "--memory-mb",
        type=click.IntRange(min=1),
        default=DEFAULT_MEMORY_BYTES // _MEGABYTE,
        show_default=True,
        help="Memory limit for rows, in MiB.",
    ),
]


def _of_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of input files."""
    for option in reversed(_FILES):
        command = option(command)
    return command


class Input(NamedTuple):
    """The options of input files, as a verb gets them."""

    files: Sequence[str]
    file_format: str | None
    nulls: Sequence[str]
    expected: int | None
    app_id: str | None
    app_seq: int | None
    memory_mb: int


_missing = click.option(
    "--missing",
    type=click.Choice(MISSING),
    help="Keyed table: the value of columns that the rows lack.",
)


@click.command("append")
@common
@click.argument("files", nargs=-1, required=True)
@_missing
@_of_files
def append_(place: Place, *, missing: Missing | None, **given: Any) -> None:
    """Append the rows of FILES as one commit.

    FILES are Parquet, CSV, JSON lines or Arrow files, or folders of them, also with columns in
    their paths (station=Oslo/). '-' reads standard input: an Arrow IPC stream, or the format given
    by --format. If any file cannot be read completely, nothing is committed. A CSV or JSON file
    that was cut between two lines cannot be detected: give --rows if the producer may fail.

    CSV: an unquoted empty field is null, a quoted one is the empty string. NA and NULL are strings
        unless given with --null; nan is a float. JSON lines: a missing field is null.
    """
    table = place.open()
    _write_rows(place, table, Input(**given), append, "appended", missing)


@click.command("upsert")
@common
@click.argument("files", nargs=-1, required=True)
@_missing
@_of_files
def upsert_(place: Place, *, missing: Missing | None, **given: Any) -> None:
    """Insert the rows of FILES into a keyed table, or merge them with those of their keys.

    FILES are as for append. A column _op may have 'd' in rows whose keys are to be deleted, and 'u'
    or null in others.

    Under the merge rules last and first, a row replaces the whole row of its key. Files that lack a
    column, and JSON objects that lack a field, are then refused, unless you pass --missing null
    because you mean null.
    """
    table = place.open()
    rule_or_refuse(table.head(), table.uri)
    _write_rows(place, table, Input(**given), upsert, "upserted", missing)


@click.command("delete")
@common
@click.argument("files", nargs=-1)
@click.option("--where", help="Delete the rows that this SQL expression selects.")
@_of_files
def delete_(place: Place, *, where: str | None, **given: Any) -> None:
    """Delete rows of a keyed table: those whose keys are in FILES, or those that --where selects.

    FILES are as for append, and have the key columns only.
    """
    table, wanted = place.open(), Input(**given)
    rule = rule_or_refuse(table.head(), table.uri)
    if where is not None:
        if wanted.files:
            raise InvalidInput("give either FILES or --where")
        before = table.refresh().version
        version = delete(table, where=where, app_id=wanted.app_id, app_seq=wanted.app_seq)
        with committed(version):
            if place.as_json:
                facts = {"table": table.uri, "version": version, "committed": version > before}
                terminal.json_document(facts)
            elif version > before:
                terminal.say(f"version {version}: deleted the rows where {where}")
            else:
                terminal.say("nothing was deleted: no row is selected")
        return
    if not wanted.files:
        raise InvalidInput("give FILES with keys, or --where")
    head = table.head()
    timed = () if head.layout.granularity == "all" else (head.layout.time_column,)
    schema = pa.schema([f for f in head.schema if f.name in (*rule.key, *timed)])
    _write(
        place,
        table,
        wanted,
        lambda t, keys, **options: delete(t, keys=keys, **options),
        "deleted the keys of",
        keys=schema,
    )


def _write_rows(  # noqa: PLR0917 - what the two verbs differ in
    place: Place,
    table: Table,
    given: Input,
    write: Callable[..., int],
    verb: str,
    missing: Missing | None,
) -> None:
    head = table.head()
    rule = head.merge_rule
    complete = rule if missing is None else None
    write = functools.partial(write, missing=missing)
    _write(place, table, given, write, verb, complete=complete)


def _write(
    place: Place,
    table: Table,
    given: Input,
    write: Callable[..., int],
    verb: str,
    *,
    keys: pa.Schema | None = None,
    complete: MergeRule | None = None,
) -> None:
    """Read the files, write their rows, and print what was committed."""
    head = table.head()
    done = already(head, make_app(given.app_id, given.app_seq))
    read, opened = 0, done is None
    memory_bytes = given.memory_mb * _MEGABYTE
    if done is None:
        columns, time_column = head.schema, head.layout.time_column
        if keys is not None:
            columns, time_column = keys, time_column if time_column in keys.names else ""
        elif keyed_of(head.layout) is not None:
            columns = columns.append(pa.field(OP, pa.string()))
        rows = open_rows(
            given.files,
            columns,
            time_column,
            given.file_format,
            nulls=given.nulls,
            complete=complete,
            memory_bytes=memory_bytes,
        )
        reader = (
            rows.reader if given.expected is None else with_row_count(rows.reader, given.expected)
        )
        with terminal.progress() as advance:

            def count(number: int) -> None:
                nonlocal read
                read = number
                advance("rows", number, rows.total)

            done = write(
                table,
                with_progress(reader, count),
                app_id=given.app_id,
                app_seq=given.app_seq,
                memory_bytes=memory_bytes,
            )
    with committed(done):
        if opened and not read and done == head.version and not place.as_json:
            terminal.say("nothing was committed: the input has no rows")
        else:
            _answer(place, table, done, read, verb, before=head.version, app_id=given.app_id)


VERBS = (append_, upsert_, delete_)


def _answer(
    place: Place,
    table: Table,
    version: int,
    rows: int,
    verb: str,
    *,
    before: int,
    app_id: str | None,
) -> None:
    committed = version > before
    if place.as_json:
        terminal.json_document(
            {"table": table.uri, "version": version, "rows": rows, "committed": committed}
        )
    elif committed:
        terminal.say(f"version {version}: {verb} {count_text(rows, 'row')}")
    else:
        mark = table.head().meta.apps.get(app_id or "")
        reached = "" if mark is None else f" at sequence {mark.seq}"
        terminal.say(
            f"nothing was added: app {app_id!r} has been{reached} since version {version}, so this "
            "unit of work is already done; other rows need a greater sequence"
        )
