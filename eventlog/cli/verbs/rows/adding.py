"""The verbs that add rows: append and upsert. Needs the extra `cli`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
import pyarrow as pa

from eventlog import Table
from eventlog.cli import terminal
from eventlog.cli.place import Place, common
from eventlog.cli.terminal import committed
from eventlog.cli.verbs.rows.file_options import (
    MEGABYTE,
    Input,
    evolve_table,
    evolving,
    of_files,
    rows_of,
)
from eventlog.cli.verbs.rows.interruption import ctrl_c_explained
from eventlog.keyed.rule import OP, MergeRule, keyed_of
from eventlog.quantities import count_text
from eventlog.staging.upsert_rows import MISSING, Missing
from eventlog.writers.batch import already, append, make_app, naming_version
from eventlog.writers.keyed import rule_or_refuse, upsert

_missing = click.option(
    "--missing",
    type=click.Choice(MISSING),
    help="Keyed table: the value of columns and fields that the rows lack.",
)


@click.command("append")
@common
@click.argument("files", nargs=-1, required=True)
@_missing
@evolving
@of_files
def append_(place: Place, *, missing: Missing | None, evolve: bool, **given: Any) -> None:
    """Append the rows of FILES as one commit.

    FILES are Parquet, CSV, JSON lines or Arrow files, or folders of them, also with columns in
    their paths (station=Oslo/). '-' reads standard input: an Arrow IPC stream, or the format given
    by --format. If any file cannot be read completely, nothing is committed. A CSV or JSON file
    that was cut between two lines cannot be detected: give --rows if the producer may fail.

    CSV: an unquoted empty field is null, a quoted one is the empty string. NA and NULL are strings
        unless given with --null; nan is a float. JSON lines: a missing field is null.
    """
    table = place.open()
    _write_rows(place, table, Input(**given), append, "appended", missing, evolve=evolve)


@click.command("upsert")
@common
@click.argument("files", nargs=-1, required=True)
@_missing
@evolving
@of_files
def upsert_(place: Place, *, missing: Missing | None, evolve: bool, **given: Any) -> None:
    """Insert rows into a keyed table, or merge them by their keys.

    FILES are as for append. A column _op may have 'd' in rows whose keys are to be deleted, and 'u'
    or null in others.

    Under the merge rules last and first, a row replaces the whole row of its key. Files that lack a
    column, and JSON objects that lack a field, are then refused, unless you pass --missing null
    because you mean null. So are, under every rule, structs that lack a field.
    """
    table = place.open()
    rule_or_refuse(table.session.head(), table.uri)
    _write_rows(place, table, Input(**given), upsert, "upserted", missing, evolve=evolve)


def _write_rows(  # noqa: PLR0917 - what the two verbs differ in
    place: Place,
    table: Table,
    given: Input,
    write: Callable[..., int],
    verb: str,
    missing: Missing | None,
    *,
    evolve: bool,
) -> None:
    head, version = table.session.head(), None
    if evolve and already(head, make_app(given.app_id, given.app_seq)) is None:
        version = evolve_table(table, given)
    rule = table.session.head().merge_rule
    complete = rule if missing is None else None
    write = functools.partial(write, missing=missing)
    with naming_version(version):
        write_files(place, table, given, write, verb, complete=complete)


def write_files(
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
    head = table.session.head()
    done = already(head, make_app(given.app_id, given.app_seq))
    read, opened = 0, done is None
    if done is None:
        columns, time_column = head.schema, head.layout.time_column
        if keys is not None:
            columns, time_column = keys, time_column if time_column in keys.names else None
        elif keyed_of(head.layout) is not None:
            columns = columns.append(pa.field(OP, pa.string()))
        source = rows_of(given, columns, time_column, complete=complete)
        with ctrl_c_explained(table), source as rows:
            done = write(
                table,
                rows.reader,
                app_id=given.app_id,
                app_seq=given.app_seq,
                memory_bytes=given.memory_mb * MEGABYTE,
            )
        read = rows.read
    with committed(done):
        if opened and not read and done == head.version and not place.as_json:
            terminal.say("nothing was committed: the input has no rows")
        else:
            _answer(place, table, done, read, verb, before=head.version, app_id=given.app_id)


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
    done = f"{verb} {count_text(rows, 'row')}"
    if not committed and not place.as_json:
        done = f"nothing was added: {done_text(table, app_id, version)}"
    place.answer(table, version, done, committed=committed, rows=rows)


def done_text(table: Table, app_id: str | None, version: int) -> str:
    """Return the reason why a unit of work was skipped as done since a version."""
    mark = table.session.head().meta.apps.get(app_id or "")
    reached = "" if mark is None else f" at sequence {mark.seq}"
    return (
        f"app {app_id!r} has been{reached} since version {version}, so this unit of work is "
        "already done; other rows need a greater sequence"
    )


VERBS = (append_, upsert_)
