"""The verb bisect: the first version at which a query turns true.

Needs the extras `cli` and `duckdb`.
"""

from __future__ import annotations

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, common
from eventlog.cli.verbs.engines.sql import is_true
from eventlog.cli.verbs.reading import MEGABYTE, memory_option
from eventlog.readers.bisection import bisect
from eventlog.session.tags import VersionOrName


@click.command("bisect")
@common
@click.option(
    "--sql",
    "query",
    required=True,
    help="A query of one value: true or false, or a number (0 is false).",
)
@click.option("--from", "start", type=VersionType(), help="By default the oldest that is kept.")
@click.option("--to", "end", type=VersionType(), help="By default the newest.")
@memory_option
def bisect_(
    place: Place,
    *,
    query: str,
    start: VersionOrName | None,
    end: VersionOrName | None,
    memory_mb: int,
) -> None:
    """Find the first version at which a query turns true.

    "SELECT count(*) > 0 FROM t WHERE celsius > 60". Asks at both ends, and at few versions between,
    and assumes that the query turns true once and stays so.
    """
    table = place.open()
    turn = bisect(
        table,
        lambda version: is_true(table, query, version, memory_mb * MEGABYTE),
        start,
        end,
    )
    if place.as_json:
        asked = [{"version": version, "true": answer} for version, answer in turn.answers.items()]
        terminal.json_document(
            {"table": table.uri, "first": turn.version, "already": turn.already, "asked": asked}
        )
        return
    last = max(turn.answers)
    if turn.version is None:
        terminal.say(
            f"not true at either end: versions {min(turn.answers)} and {last}; "
            "nothing between was asked"
        )
    elif turn.already:
        terminal.say(f"true already at version {turn.version}, the first one asked")
    else:
        (entry,) = table.history(turn.version, 1)
        time = terminal.time_text(entry.time)
        terminal.say(
            f"true from version {turn.version} on: {entry.operation} by {entry.writer}, {time}"
        )
        terminal.note("assuming that it turned true once")


VERBS = (bisect_,)
