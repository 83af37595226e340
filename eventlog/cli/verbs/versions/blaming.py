"""The verb blame: which commits wrote a segment, a time chunk, a key, or rows.

Needs the extra `cli`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import pyarrow as pa

from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, at_timestamp, common
from eventlog.cli.screen.paging import listing
from eventlog.cli.verbs.reading import limit_option, table_rows, write_stream
from eventlog.errors import InvalidInput
from eventlog.format.keys import is_segment_id
from eventlog.model.chunks import parse_chunk
from eventlog.session.tags import VersionOrName
from eventlog.table.table import Table

_FIRST = ("_version", "_operation", "_writer", "_app_id", "_app_seq", "_op", "_live")


@click.command("blame")
@common
@click.argument("what", metavar="[SEGMENT|CHUNK|KEY]", required=False)
@click.option(
    "--key", "given_key", metavar="[NAME=]VALUE", multiple=True,
    help="A key of a keyed table, whatever it looks like. Repeat it for several key columns.",
)  # fmt: skip
@click.option("--where", help='SQL: "celsius > 60"; shows the rows that pass.')
@click.option(
    "--version", type=VersionType(), help="The version or tag to ask about; default: the newest."
)
@at_timestamp
@limit_option
@listing
def blame_(
    place: Place,
    *,
    what: str | None,
    given_key: Sequence[str],
    where: str | None,
    version: VersionOrName | None,
    timestamp: str | None,
    limit: int | None,
) -> None:
    """Show which commits wrote a segment, a time chunk, a key, or rows.

    SEGMENT is the id or the file of a live segment, CHUNK the name of a time chunk, KEY a key of a
    keyed table: the commits that wrote their rows, and the rewrites through which these came.
    """
    table = place.open()
    asked = _asked(table, what, given_key, where)
    at: dict[str, Any] = {"version": version, "timestamp": timestamp}
    if asked.keys() <= {"segment", "chunk"}:
        _show_segments(place, table.blame(**asked, **at))
        return
    most = limit if place.as_json else table_rows(limit)
    rows = table.blame(**asked, **at, limit=most if where else None)
    if not place.as_json:
        rows = rows.select(sorted(rows.column_names, key=_shown_place))
    write_stream(place, rows.to_reader(), limit, None, None)


def _asked(
    table: Table, what: str | None, given_key: Sequence[str], where: str | None
) -> dict[str, Any]:
    """Return the argument of `Table.blame` that is asked for.

    Raises:
        InvalidInput: there is none, or there are several.
    """
    asked: dict[str, Any] = {} if what is None else _named(table, what)
    asked |= {} if where is None else {"where": where}
    asked |= {"key": _key(table, given_key)} if given_key else {}
    if len(asked) != 1 or (what is not None and given_key):
        raise InvalidInput("give one of SEGMENT, CHUNK, KEY, --key and --where")
    return asked


def _named(table: Table, what: str) -> dict[str, Any]:
    """Return what the argument stands for: a segment, a chunk, or a key."""
    if is_segment_id(what) or what.endswith(".parquet"):
        return {"segment": what}
    try:
        parse_chunk(what)
    except InvalidInput:
        if table.snapshot().merge_rule is None:
            raise
        return {"key": _key(table, [what])}
    return {"chunk": what}


def _key(table: Table, texts: Sequence[str]) -> str | Mapping[str, str]:
    """Return a key from texts: one value, or NAME=VALUE for each column of the key."""
    rule = table.snapshot().merge_rule
    names = () if rule is None else rule.key
    parts = [text.partition("=") for text in texts]
    if len(texts) == 1 and not (parts[0][1] and parts[0][0] in names):
        return texts[0]
    return {name: value for name, _, value in parts}


def _show_segments(place: Place, found: pa.Table) -> None:
    rows = found.to_pylist()
    if place.as_json:
        terminal.json_list(rows)
        return
    terminal.table(
        (
            "version", "time", "operation", "writer", "app", "segment", "kind", "rows", "chunk",
            "origin",
        ),
        [
            (
                row["version"],
                terminal.time_text(row["time"]) if row["time"] else "",
                row["operation"],
                row["writer"],
                "" if row["app_id"] is None else f"{row['app_id']} {row['app_seq']}",
                "  " * row["depth"] + row["segment"],
                row["kind"] or "not in this copy",
                terminal.with_thousands(row["rows"]),
                row["chunk"],
                row["origin"],
            )
            for row in rows
        ],
        right=("version", "rows"),
        whole=("time",),
    )  # fmt: skip
    if any(row["depth"] for row in rows):
        terminal.note("what is indented was rewritten into the segments above it")


def _shown_place(name: str) -> tuple[int, bool]:
    """Return where a column of rows is shown: first who wrote them, then the rows."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), name.startswith("_")


VERBS = (blame_,)
