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

# What `job` and `version` of a table for people show.
_SHOWN_TOGETHER = ("_version", "_versions", "_operation", "_app_id", "_app_seq")


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
    shown = rows if place.as_json else _for_people(rows)
    write_stream(place, shown.to_reader(), limit, None, None)


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


def _for_people(rows: pa.Table) -> pa.Table:
    """Return rows with who wrote them in few columns, which stand first."""
    found = rows.select(_SHOWN_TOGETHER).to_pylist()
    writers = rows.column("_writer").to_pylist()
    first = {
        "version": [_version_text(row["_version"], row["_versions"]) for row in found],
        "operation": [row["_operation"] for row in found],
        "job": [
            _job(row["_app_id"], row["_app_seq"]) or w
            for row, w in zip(found, writers, strict=True)
        ],
    }
    table = pa.table({name: pa.array(cells, pa.string()) for name, cells in first.items()})
    for name in sorted(rows.column_names, key=lambda name: name.startswith("_")):
        if name not in _SHOWN_TOGETHER:
            table = table.append_column(rows.schema.field(name), rows.column(name))
    return table


def _version_text(version: int | None, versions: Sequence[int]) -> str:
    return f"one of {', '.join(map(str, versions))}" if version is None else str(version)


def _job(app_id: str | None, app_seq: int | None) -> str:
    """Return a unit of work as text; empty if there is none, and of several the app they share."""
    return " ".join(str(part) for part in (app_id, app_seq) if part is not None)


def _show_segments(place: Place, found: pa.Table) -> None:
    rows = found.to_pylist()
    if place.as_json:
        terminal.json_list(rows)
        return
    terminal.table(
        (
            "version", "time", "operation", "writer", "job", "rows", "segment", "kind", "chunk",
            "origin",
        ),
        [
            (
                row["version"],
                terminal.time_text(row["time"]) if row["time"] else "",
                "  " * row["depth"] + (row["operation"] or "not in this copy"),
                row["writer"],
                _job(row["app_id"], row["app_seq"]),
                terminal.with_thousands(row["rows"]),
                row["segment"],
                row["kind"],
                row["chunk"],
                row["origin"],
            )
            for row in rows
        ],
        right=("version", "rows"),
        whole=("time",),
    )  # fmt: skip
    if any(row["depth"] for row in rows):
        terminal.note("what is indented was rewritten into, or restored as, what stands above it")


VERBS = (blame_,)
