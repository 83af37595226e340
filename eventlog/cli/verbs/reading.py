"""The verbs that read rows: scan and changes.

Needs the extra `cli`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
import pyarrow as pa

from eventlog.arguments import parse_names
from eventlog.cli import terminal
from eventlog.cli.export import FORMATS, cell_text, format_named, limited, write_rows
from eventlog.cli.place import Place, VersionType, at_timestamp, at_version, common
from eventlog.cli.screen.paging import listing
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.keyed.rule import OVERFLOWS
from eventlog.quantities import count_text, size_text
from eventlog.readers.changefeed import changes
from eventlog.readers.row_stream import RowStream
from eventlog.readers.scanner import scan
from eventlog.session.tags import VersionOrName
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.state.scan import ScanPlan
from eventlog.table.table import Table

MEGABYTE = 2**20
_TABLE_ROWS = 100  # shown in a table unless --limit is given
_NUMBERS = ("int", "uint", "float", "double", "decimal")


_columns = click.option("--columns", help="Comma-separated names; default: all.")
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Rows to return; a table shows {_TABLE_ROWS} by default.",
)
format_option = click.option(
    "--format",
    "row_format",
    type=click.Choice(("table", *FORMATS)),
    help="Default: by the name of --output, else a table.",
)
output_option = click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="Write to this file: .csv, .json, .jsonl, .parquet or .arrow.",
)

_overflow = click.option(
    "--overflow",
    type=click.Choice(OVERFLOWS),
    default="error",
    help="If a sum does not fit its column: an error, or a null in its place.",
)


memory_option = click.option(
    "--memory-mb",
    type=click.IntRange(min=1),
    default=DEFAULT_MEMORY_BYTES // MEGABYTE,
    show_default=True,
    help="Memory limit for rows, in MiB.",
)


@click.command("scan")
@common
@_columns
@click.option("--where", help="SQL: \"origin = 'JFK' AND dep_delay > 60\".")
@_overflow
@at_version
@at_timestamp
@limit_option
@format_option
@output_option
@memory_option
@click.option("--count", "only_count", is_flag=True, help="Print only the number of rows.")
@click.option(
    "--fallback",
    is_flag=True,
    help="If a segment is lost, read the segments it was compacted from.",
)
@click.option(
    "--plan",
    "--explain",
    "only_plan",
    is_flag=True,
    help="Show what would be read, without reading it.",
)
@listing
def scan_(  # noqa: PLR0913 - one parameter per option
    place: Place,
    *,
    columns: str | None,
    where: str | None,
    overflow: str,
    version: VersionOrName | None,
    timestamp: str | None,
    limit: int | None,
    row_format: str | None,
    output: str | None,
    memory_mb: int,
    only_count: bool,
    fallback: bool,
    only_plan: bool,
) -> None:
    """Read rows."""
    # A count may need nothing but the log, which still has what is below the horizon.
    table = place.open() if only_count else place.unread()
    wanted = parse_names(columns, "--columns") if columns else None
    rows_scan = scan(
        table,
        wanted,
        where,
        version,
        timestamp,
        overflow=overflow,
        fallback=fallback,
        memory_bytes=memory_mb * MEGABYTE,
    )
    if only_plan:
        _explain(place, table, rows_scan.plan)
        return
    if only_count:
        count = rows_scan.count()
        if place.as_json:
            terminal.json_document(
                {"table": table.uri, "version": rows_scan.version, "rows": count}
            )
        else:
            terminal.say(str(count))
        return
    wanted_rows = limit
    if _kind(place, row_format, output) == "table":
        wanted_rows = table_rows(limit)
    if wanted_rows is not None:
        rows_scan = rows_scan.limited(wanted_rows)  # reads no more segments than these rows need
    _write(place, rows_scan, limit, row_format, output)


@click.command("changes")
@common
@click.argument("start", type=VersionType())
@click.argument("end", type=VersionType(), required=False)
@_columns
@click.option("--where", help='SQL: "id = 7"; selects rows before and after each change.')
@_overflow
@limit_option
@format_option
@output_option
@memory_option
@listing
def changes_(  # noqa: PLR0913 - one parameter per option
    place: Place,
    *,
    start: VersionOrName,
    end: VersionOrName | None,
    columns: str | None,
    where: str | None,
    overflow: str,
    limit: int | None,
    row_format: str | None,
    output: str | None,
    memory_mb: int,
) -> None:
    """Show how rows changed after version START, up to END.

    The default of END is the newest version.
    """
    wanted = parse_names(columns, "--columns") if columns else None
    memory = memory_mb * MEGABYTE
    start_end = place.unread(), start, end
    rows = changes(*start_end, wanted, where, overflow=overflow, memory_bytes=memory)
    _write(place, rows, limit, row_format, output)


VERBS = (scan_, changes_)


def _write(
    place: Place, found: RowStream, limit: int | None, row_format: str | None, output: str | None
) -> None:
    """Write rows to the terminal or a file, in the format asked for."""
    write_stream(place, found.to_reader(), limit, row_format, output)


def table_rows(limit: int | None) -> int:
    """Return how many rows a table needs: one more than it shows by default tells if any are left.

    Args:
        limit: the number that was asked for; None: none was.
    """
    return _TABLE_ROWS + 1 if limit is None else limit


def write_stream(
    place: Place,
    reader: pa.RecordBatchReader,
    limit: int | None,
    row_format: str | None,
    output: str | None,
) -> None:
    """Write the rows of a stream to the terminal or a file, in the format asked for.

    Args:
        place: has the format if there is no other: JSON, or a table.
        reader: the rows.
        limit: the number of the first rows to write; all if None, but few in a table.
        row_format: `table`, or one of `FORMATS`; that of the output's name if None.
        output: the path of a file; standard output if None.

    Raises:
        InvalidInput: a table was asked for in a file, whose name shows no format, or the format
            cannot hold the rows.
    """
    kind = _kind(place, row_format, output)
    if kind == "table":
        if output is not None:
            raise InvalidInput(
                f"--output needs a file format: give --format, one of {', '.join(FORMATS)}"
            )
        _show_table(reader, limit)
        return
    rows = write_rows(reader if limit is None else limited(reader, limit), kind, output)
    if output is not None and place.as_json:
        terminal.json_document({"output": output, "rows": rows})
    elif output is not None:
        terminal.note(f"{count_text(rows, 'row')} in {output}")


def _kind(place: Place, row_format: str | None, output: str | None) -> str:
    """Return the format asked for: `table`, or one of `FORMATS`."""
    if row_format is not None:
        return row_format
    if output is not None:
        return format_named(output)
    return "json" if place.as_json else "table"


def _explain(place: Place, table: Table, plan: ScanPlan) -> None:
    pruning = asdict(plan.pruning)
    rows = sum(plan.entries.column("rows").to_pylist())
    size = sum(plan.entries.column("bytes").to_pylist())
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "version": plan.version,
                "column_names": plan.schema.names,
                "pruning": pruning,
                "rows": rows,
                "bytes": size,
                "filter": None if plan.filter is None else str(plan.filter),
                "keys": [keys.key_of(segment) for segment in plan.in_scan_order()],
            }
        )
        return
    terminal.facts(
        [
            ("version", plan.version),
            ("columns", ", ".join(plan.schema.names)),
            ("live segments", terminal.with_thousands(pruning["considered"])),
            ("left out by time chunk", terminal.with_thousands(pruning["by_chunk"])),
            ("by key frame leaf", terminal.with_thousands(pruning["by_leaf"])),
            ("by statistics", terminal.with_thousands(pruning["by_statistics"])),
            ("to read", _read_text(pruning["read"], rows, size)),
            ("rows are filtered", "no: all of them pass" if plan.filter is None else plan.filter),
        ]
    )


def _read_text(segments: int, rows: int, size: int) -> str:
    return f"{count_text(segments, 'segment')}, {count_text(rows, 'row')}, {size_text(size)}"


def _show_table(reader: pa.RecordBatchReader, limit: int | None) -> None:
    """Show the first rows. Read one row more than shown, to see whether any are left."""
    shown = _TABLE_ROWS if limit is None else limit
    rows = limited(reader, shown + 1).read_all()
    columns = rows.schema.names
    cells = [_cells(rows.column(place).slice(0, shown)) for place in range(len(columns))]
    numbers = [f.name for f in rows.schema if str(f.type).startswith(_NUMBERS)]
    table = [[cell_text(cell) for cell in row] for row in zip(*cells, strict=True)]
    times = [f.name for f in rows.schema if pa.types.is_temporal(f.type)]
    terminal.table(columns, table, right=numbers, whole=times)
    if len(rows) > shown and limit is None:
        terminal.note(
            f"the first {count_text(shown, 'row')}; --limit N shows more, --format csv all of them"
        )


def _cells(values: pa.ChunkedArray) -> list[Any]:
    try:
        return list(values.to_pylist())
    except (OverflowError, ValueError):  # times outside the range of Python's types
        return list(values.cast(pa.string()).to_pylist())
