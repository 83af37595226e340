"""The verb log: the versions of a table, newest first, or as they come.

Needs the extra `cli`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, common
from eventlog.cli.screen.lanes import lane_lines
from eventlog.cli.screen.paging import listing, unpaged
from eventlog.cli.verbs.versions.log_graph import GraphNode, graph_nodes
from eventlog.errors import InvalidInput, Unavailable
from eventlog.log.history import HistoryEntry
from eventlog.model.columns.words import schema_changes
from eventlog.quantities import signed_text, size_text
from eventlog.session.tags import VersionOrName
from eventlog.table.table import Table

_ROWS = 20  # by default


@click.command("log")
@common
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=_ROWS,
    show_default=True,
    help="Number of versions to list.",
)
@click.option("--all", "all_versions", is_flag=True, help="List the whole history.")
@click.option("--start", type=VersionType(), help="The version to start at.")
@click.option("--operation", help="Only versions with this operation, such as append.")
@click.option("--writer", help="Only those with a writer whose name contains this text.")
@click.option("--app", help="Only those with a unit of work of this app id.")
@click.option("--chunk", metavar="NAME", help="Only those that changed rows of this time chunk.")
@click.option("--since", metavar="TIME", help="Only those committed at this time or later.")
@click.option(
    "--until",
    metavar="TIME",
    help="Only those committed at this time or before; a date means its end.",
)
@click.option(
    "--follow", is_flag=True, callback=unpaged,
    help="List the newest versions in the order of commits, and further ones as they come.",
)  # fmt: skip
@click.option(
    "--every", "--interval", type=click.FloatRange(min=0.1), default=5.0, show_default=True,
    help="With --follow: seconds between two looks.",
)  # fmt: skip
@click.option("--graph", is_flag=True, help="Draw the branches of the table and their merges, too.")
@listing
def log_(
    place: Place,
    *,
    limit: int,
    all_versions: bool,
    start: VersionOrName | None,
    follow: bool,
    every: float,
    graph: bool,
    **chosen: str | None,
) -> None:
    """List the versions, newest first: the history of the table.

    A version is listed if one of its transactions is of the operation, writer, app and chunk that
    are given. Ctrl-C ends --follow.
    """
    table, most = place.open(), None if all_versions else limit
    if graph:
        if follow or start is not None or any(chosen.values()):
            raise InvalidInput("--graph draws all versions: give it no --follow, start or filter")
        _draw(place, table, most)
        return
    if follow:
        if start is not None or chosen["until"] is not None:
            raise InvalidInput("--follow begins at the newest version: give no --start, no --until")
        _follow(place, table, most, every, chosen)
        return
    found = table.history(start, most, **chosen)
    first = next(found, None)
    entries = chain(() if first is None else (first,), found)
    if place.as_json:
        terminal.json_list(_entry_json(table, entry) for entry in entries)
    else:
        _show_table(table, entries)
    if first is None and most != 0 and any(chosen.values()):
        terminal.note(_nothing_text(table, start, chosen))


def _nothing_text(table: Table, start: VersionOrName | None, chosen: dict[str, str | None]) -> str:
    """Return that no version meets the filters, and which apps there are if one was asked for."""
    filters = (("--start", None if start is None else str(start)), *chosen.items())
    given = (f"--{name.lstrip('-')} {value}" for name, value in filters if value is not None)
    text = f"no version is listed for {' '.join(given)}"
    apps, app = table.session.head().meta.apps, chosen["app"]
    if app is not None and app not in apps:
        known = ", ".join([*apps][:_ROWS]) or "none"
        text += f": the table remembers no unit of work of this app, and of these: {known}"
    return text


def _follow(
    place: Place, table: Table, most: int | None, every: float, chosen: dict[str, Any]
) -> None:
    """Print versions as they come, until Ctrl-C, each on a line of its own."""
    seen = table.session.head().version
    entries = list(table.history(seen, most, **chosen))
    try:
        while True:
            for entry in reversed(entries):
                if place.as_json:
                    terminal.json_line(_entry_json(table, entry))
                else:
                    terminal.line(entry.text)
                    _say_schema_changes(table, entry)
            table.clock.sleep(every)
            entries = []
            try:
                head = table.refresh().version
                if head > seen:
                    entries, seen = list(table.history(head, after=seen, **chosen)), head
            except Unavailable as error:
                terminal.note(f"eventlog: {error}; trying again")
    except KeyboardInterrupt:
        return


def _draw(place: Place, table: Table, most: int | None) -> None:
    """Draw the history with branches and merges; as JSON the versions with their parents."""
    first, nodes = graph_nodes(table, most)
    if place.as_json:
        terminal.json_list(
            {
                "table": node.name[0],
                **_entry_json(node.table, node.entry),
                "parents": [{"table": uri, "version": version} for uri, version in node.parents],
            }
            for node in nodes
        )
        return
    entries = {node.name: node for node in nodes}
    lines = lane_lines(((node.name, node.parents) for node in nodes), first)
    whole = terminal.encodes("│├")
    for drawn in lines:
        shown = drawn if whole else drawn.plain()
        text = "" if drawn.node is None else _node_text(entries[drawn.node])
        terminal.line(text, shown.strokes)


def _node_text(node: GraphNode) -> str:
    labels = f"({', '.join(node.labels)}) " if node.labels else ""
    return f"{labels}{node.entry.text}"


def _show_table(table: Table, entries: Iterable[HistoryEntry]) -> None:
    evolved: list[HistoryEntry] = []

    def noted() -> Iterator[HistoryEntry]:
        for entry in entries:
            if entry.operation == "schema":
                evolved.append(entry)
            yield entry

    numbers = ("version", "added", "dropped", "rows", "bytes")
    terminal.table(
        ("version", "time", "operation", "added", "dropped", "rows", "bytes", "writer"),
        (
            (
                entry.version,
                terminal.time_text(entry.time),
                entry.operation,
                signed_text(entry.adds),
                signed_text(-entry.drops),
                signed_text(entry.rows),
                size_text(entry.bytes) if entry.bytes else "",
                entry.writer,
            )
            for entry in noted()
        ),
        right=numbers,
        whole=("time",),
    )
    for entry in evolved:
        _say_schema_changes(table, entry)


def _say_schema_changes(table: Table, entry: HistoryEntry) -> None:
    for text in _columns_json(table, entry).get("schema_changes", ()):
        terminal.say(f"version {entry.version}: {text}")


def _columns_json(table: Table, entry: HistoryEntry) -> dict[str, Any]:
    """Return what a version changed of the columns, in words, if it was made for that."""
    if entry.operation != "schema":
        return {}
    before, after = (table.snapshot(v).stored_schema for v in (entry.version - 1, entry.version))
    return {"schema_changes": schema_changes(before, after)}


def _entry_json(table: Table, entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "time": terminal.iso(entry.time),
        "operation": entry.operation,
        "writer": entry.writer,
        "transactions": entry.transactions,
        "adds": entry.adds,
        "drops": entry.drops,
        "deletes": entry.deletes,
        "rows": entry.rows,
        "bytes": entry.bytes,
    } | _columns_json(table, entry)
