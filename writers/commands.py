"""The verb that writes rows: append.

Needs the extra `cli`.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from eventlog import Table
from eventlog.cli import terminal
from eventlog.cli.program import Place, committed, common
from eventlog.quantities import count_text
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.writers.batch import already, append, make_app
from eventlog.writers.files import FORMATS, counted, exactly, open_rows

_MEGABYTE = 2**20


@click.command("append")
@common
@click.argument("files", nargs=-1, required=True)
@click.option("--format", "file_format", type=click.Choice(FORMATS), help="Default: by file name.")
@click.option(
    "--null",
    "nulls",
    multiple=True,
    metavar="TEXT",
    help="CSV: unquoted text that means null, such as NA.",
)
@click.option(
    "--rows",
    "expected",
    type=click.IntRange(min=0),
    help="Commit only if the input has this many rows.",
)
@click.option("--app-id", help="With --app-seq: an (id, sequence) takes effect once.")
@click.option("--app-seq", type=click.IntRange(min=0), help="Must grow with every unit of work.")
@click.option(
    "--memory-mb",
    type=click.IntRange(min=1),
    default=DEFAULT_MEMORY_BYTES // _MEGABYTE,
    show_default=True,
    help="Memory limit for rows, in MiB.",
)
def append_(
    place: Place,
    *,
    files: Sequence[str],
    file_format: str | None,
    nulls: Sequence[str],
    expected: int | None,
    app_id: str | None,
    app_seq: int | None,
    memory_mb: int,
) -> None:
    """Append the rows of FILES as one commit.

    FILES are Parquet, CSV, JSON lines or Arrow files, or folders of them, also with columns in
    their paths (station=Oslo/). '-' reads standard input: an Arrow IPC stream, or the format given
    by --format. If any file cannot be read completely, nothing is committed. A CSV or JSON file
    that was cut between two lines cannot be detected: give --rows if the producer may fail.

    CSV: an unquoted empty field is null, a quoted one is the empty string. NA and NULL are strings
        unless given with --null; nan is a float. JSON lines: a missing field is null.
    """
    table = place.open()
    head = table.head()
    done = already(head, make_app(app_id, app_seq))
    read, opened = 0, done is None
    if done is None:
        rows = open_rows(files, head.schema, head.layout.time_column, file_format, nulls=nulls)
        reader = rows.reader if expected is None else exactly(rows.reader, expected)
        with terminal.progress() as advance:

            def count(number: int) -> None:
                nonlocal read
                read = number
                advance("rows", number, rows.total)

            done = append(
                table,
                counted(reader, count),
                app_id=app_id,
                app_seq=app_seq,
                memory_bytes=memory_mb * _MEGABYTE,
            )
    with committed(done):
        if opened and not read and done == head.version and not place.as_json:
            terminal.say("nothing was committed: the input has no rows")
        else:
            _answer(place, table, done, read, committed=done > head.version, app_id=app_id)


COMMANDS = [append_]


def _answer(
    place: Place, table: Table, version: int, rows: int, *, committed: bool, app_id: str | None
) -> None:
    if place.as_json:
        terminal.json_document(
            {"table": table.uri, "version": version, "rows": rows, "committed": committed}
        )
    elif committed:
        terminal.say(f"version {version}: appended {count_text(rows, 'row')}")
    else:
        mark = table.head().meta.apps.get(app_id or "")
        reached = "" if mark is None else f" at sequence {mark.seq}"
        terminal.say(
            f"nothing was added: app {app_id!r} has been{reached} since version {version}, so this "
            "unit of work is already done; other rows need a greater sequence"
        )
