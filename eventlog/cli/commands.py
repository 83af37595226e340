"""The verbs of the log: create, log, ls, diff, and those of `inspection` and `upkeep`.

Shell layer; needs the extra `cli`. Reading and writing rows are verbs of the packages that do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.arguments import names
from eventlog.cli import inspection, terminal, upkeep
from eventlog.cli.inspection import totals_text
from eventlog.cli.program import Place, at_timestamp, at_version, common, pairs
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.log.history import HistoryEntry
from eventlog.model.records import GRANULARITIES, Segment, Totals
from eventlog.model.schema_text import parse_schema
from eventlog.quantities import size_text
from eventlog.table.table import Table

_ROWS = 20  # of a log, unless more are asked for


@click.command()
@common
@click.option("--schema", "text", help="'time:timestamp, id:int64 not null, tags:list<string>, …'")
@click.option(
    "--like",
    type=click.Path(exists=True, dir_okay=False),
    help="A Parquet file whose columns the table gets.",
)
@click.option("--time-column", required=True, help="The event time: a timestamp or a date.")
@click.option("--granularity", type=click.Choice(GRANULARITIES), default="day", show_default=True)
@click.option("--order-by", multiple=True, help="Sorts the rows inside a segment. Repeatable.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, callback=pairs,
    help="A property of the table. Repeatable.",
)  # fmt: skip
def create(
    place: Place,
    *,
    text: str | None,
    like: str | None,
    time_column: str,
    granularity: str,
    order_by: Sequence[str],
    properties: dict[str, str],
) -> None:
    """Create a table."""
    if (text is None) == (like is None):
        raise InvalidInput("give the columns by --schema or by --like")
    made = Table.create(
        place.uri,
        parse_schema(text) if text is not None else _schema_of(str(like)),
        time_column=time_column,
        granularity=granularity,
        order_by=[name for part in order_by for name in names(part, "--order-by")],
        properties=properties,
        storage_options=place.storage_options,
    )
    if place.as_json:
        terminal.json_document({"table": made.uri, "id": made.id, "version": 0})
    else:
        columns = len(made.head().schema.names)
        terminal.say(f"created {made.uri}: {columns} columns, chunks by {granularity}")


@click.command("log")
@common
@click.option("-n", "--limit", type=click.IntRange(min=0), default=_ROWS, show_default=True)
@click.option("--all", "whole", is_flag=True, help="The whole history.")
@click.option("--start", type=click.IntRange(min=0), help="The version to start at.")
def log_(place: Place, *, limit: int, whole: bool, start: int | None) -> None:
    """List the versions, newest first."""
    entries = place.open().history(start, None if whole else limit)
    if place.as_json:
        for entry in entries:
            terminal.json_line(_entry_json(entry))
        return
    numbers = ("version", "added", "dropped", "rows", "bytes")
    terminal.table(
        ("version", "time", "operation", "added", "dropped", "rows", "bytes", "writer"),
        (
            (
                entry.version,
                terminal.moment(entry.time),
                entry.operation,
                terminal.signed(entry.adds),
                terminal.signed(-entry.drops),
                terminal.signed(entry.rows),
                size_text(entry.bytes) if entry.bytes else "",
                entry.writer,
            )
            for entry in entries
        ),
        right=numbers,
    )


@click.command()
@common
@at_version
@at_timestamp
@click.option("--where", help="SQL over the columns; leaves out segments that cannot match.")
@click.option("--chunk", "only", multiple=True, metavar="NAME", help="Such as 2013-01-07, or 2013.")
@click.option("--chunks", "by_chunk", is_flag=True, help="Sums by time chunk.")
def ls(
    place: Place,
    *,
    version: int | None,
    timestamp: str | None,
    where: str | None,
    only: Sequence[str],
    by_chunk: bool,
) -> None:
    """List the live segments, or the time chunks."""
    found = place.open().snapshot(version, timestamp).segments(where, only or None)
    if by_chunk:
        _list_chunks(place, found)
        return
    if place.as_json:
        for segment in found:
            terminal.json_line(_segment_json(segment))
        return
    _table_of_segments([("", segment) for segment in found], mark=False)
    terminal.note(_sums(found))


@click.command()
@common
@click.argument("a", type=click.IntRange(min=0))
@click.argument("b", type=click.IntRange(min=0))
def diff(place: Place, *, a: int, b: int) -> None:
    """List the segments added and dropped on the way from version A to version B."""
    found = place.open().diff(a, b)
    if place.as_json:
        terminal.json_document(
            {
                "from": a,
                "to": b,
                "added": [_segment_json(segment) for segment in found.added],
                "dropped": [_segment_json(segment) for segment in found.dropped],
            }
        )
        return
    _table_of_segments([("-", s) for s in found.dropped] + [("+", s) for s in found.added])
    terminal.note(f"added {_sums(found.added)}; dropped {_sums(found.dropped)}")


COMMANDS = [create, log_, inspection.show, ls, diff, inspection.fsck, *upkeep.COMMANDS]


def _schema_of(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path).remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from None


def _entry_json(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "time": terminal.iso(entry.time),
        "operation": entry.operation,
        "writer": entry.writer,
        "transactions": entry.transactions,
        "adds": entry.adds,
        "drops": entry.drops,
        "rows": entry.rows,
        "bytes": entry.bytes,
    }


def _segment_json(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "chunk": segment.chunk,
        "rows": segment.rows,
        "bytes": segment.bytes,
        "version": segment.version,
        "epoch": segment.epoch,
        "schema": segment.schema,
        "checksum": segment.checksum,
        "key": keys.key_of(segment),
    }


def _list_chunks(place: Place, found: Iterable[Segment]) -> None:
    sums: dict[str, list[int]] = {}
    for segment in found:
        total = sums.setdefault(segment.chunk, [0, 0, 0])
        for at, number in enumerate((1, segment.rows, segment.bytes)):
            total[at] += number
    if place.as_json:
        for name, (count, rows, size) in sums.items():
            terminal.json_line({"chunk": name, "segments": count, "rows": rows, "bytes": size})
        return
    names = ("segments", "rows", "bytes")
    terminal.table(
        ("chunk", *names),
        (
            (name, terminal.count(count), terminal.count(rows), size_text(size))
            for name, (count, rows, size) in sums.items()
        ),
        right=names,
    )


def _table_of_segments(found: Sequence[tuple[str, Segment]], *, mark: bool = True) -> None:
    columns = ("", "chunk", "rows", "bytes", "version", "key")
    rows = (
        (sign, s.chunk, terminal.count(s.rows), size_text(s.bytes), s.version, keys.key_of(s))
        for sign, s in found
    )
    first = 0 if mark else 1
    terminal.table(
        columns[first:], (row[first:] for row in rows), right=("rows", "bytes", "version")
    )


def _sums(found: Sequence[Segment]) -> str:
    rows, size = sum(s.rows for s in found), sum(s.bytes for s in found)
    return totals_text(Totals(len(found), rows, size))
