"""The verb stats. Needs the extra `cli`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import Place, common
from eventlog.cli.screen.paging import listing
from eventlog.cli.verbs.compaction import policy_options
from eventlog.compaction.policy import Policy
from eventlog.errors import InvalidInput
from eventlog.monitoring import TableStats, stats
from eventlog.monitoring.gathering import DAYS, MOST_DAYS, MOST_VERSIONS, VERSIONS
from eventlog.monitoring.prometheus import exposition
from eventlog.quantities import size_text


@click.command("stats")
@common
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True, max=MOST_DAYS), default=DAYS,
    show_default=True, help="Rates a day are those of the last days,",
)  # fmt: skip
@click.option(
    "--versions", type=click.IntRange(1, MOST_VERSIONS), default=VERSIONS, show_default=True,
    help="and of no more than this number of versions.",
)  # fmt: skip
@click.option(
    "--vacuum", is_flag=True, help="Also show what a vacuum would delete, and what it keeps why."
)
@click.option(
    "--prometheus", is_flag=True, help="Print metrics in Prometheus' text format, for a collector."
)
@policy_options
@listing
def stats_(
    place: Place, *, policy: Policy, days: float, versions: int, vacuum: bool, prometheus: bool
) -> None:
    """Show size, upkeep, copies, and estimated requests and dollars a day.

    Nothing is changed. Policy options are those of `eventlog compact`, which would do what is shown
    here. Requests are estimated from the history: those of readers are not in it.
    """
    if prometheus and place.as_json:
        raise InvalidInput("give --prometheus or --json, not both")
    found = stats(place.open(), policy, days=days, versions=versions, vacuum=vacuum)
    if prometheus:
        click.echo(exposition(found), nl=False)
    elif place.as_json:
        terminal.json_document(_stats_json(found))
    else:
        _show_stats(found)


VERBS = (stats_,)


def _stats_json(found: TableStats) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(found, builtin_types=(datetime,))
    return values


def _show_stats(found: TableStats) -> None:
    terminal.facts([("table", found.table), *found.facts()])
    if found.holds:
        terminal.say()
        terminal.table(
            ("held by", "name", "version"),
            ((hold.kind, hold.name, hold.version) for hold in found.holds),
            right=("version",),
        )
    if found.copies:
        terminal.say()
        terminal.table(
            ("copy", "has version", "behind", "seconds", "root"),
            ((c.name, c.acked, c.behind, f"{c.behind_s:,.0f}", c.root) for c in found.copies),
            right=("has version", "behind", "seconds"),
        )
    if found.vacuum is not None and found.vacuum.retained:
        terminal.say()
        terminal.table(
            ("vacuum keeps, because of", "objects", "bytes"),
            ((k.reason, f"{k.objects:,}", size_text(k.bytes)) for k in found.vacuum.retained),
            right=("objects", "bytes"),
        )
