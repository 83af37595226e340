"""The verbs of upkeep: vacuum here; compact and chunks in `eventlog.compaction.compact_commands`.

Imports eventlog only; needs the extra `cli`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.program import Place, common
from eventlog.compaction import compact_commands
from eventlog.compaction.reclaim import Sums, VacuumReport, vacuum
from eventlog.errors import InvalidInput
from eventlog.quantities import size_text
from eventlog.state.small.holds import Hold, holds


@click.command("vacuum")
@common
@click.option(
    "--run/--dry-run",
    "run",
    default=False,
    help="Delete; without it nothing is changed, only shown.",
)
@click.option(
    "--retention-hours",
    type=click.FloatRange(min=0),
    help="Versions stay readable for so long; the property retention_hours (168) if not given.",
)
@click.option(
    "--staging-hours",
    type=click.FloatRange(min=0),
    help="An upload may take so long; the property staging_hours (24) if not given.",
)
@click.option("--full", is_flag=True, help="List the whole table, not only what came since.")
def vacuum_(
    place: Place,
    *,
    run: bool,
    retention_hours: float | None,
    staging_hours: float | None,
    full: bool,
) -> None:
    """Show what no kept version needs any more, and delete it with --run.

    Versions below the horizon can then no longer be read; the log itself always stays. Pins and
    replicas hold the horizon back (eventlog pin, unpin, pins).
    """
    table = place.open()
    with terminal.progress() as advance:
        report = vacuum(
            table,
            dry_run=not run,
            retention=_hours(retention_hours),
            staging=_hours(staging_hours),
            full=full,
            progress=advance,
        )
    head = table.refresh()
    held = [hold for hold in holds(head.meta) if hold.version < head.version]
    if place.as_json:
        terminal.json_document(_json(report) | {"holds": [_hold_json(hold) for hold in held]})
        return
    _show(report)
    for hold in held:
        terminal.note(
            f"{hold.kind} {hold.name!r} of {hold.owner} holds version {hold.version} and all that "
            "came after it"
        )
    terminal.note(
        "nothing was changed: --run deletes what goes"
        if report.dry_run
        else "uploads above the fence were not looked at: a dry run counts them"
    )


COMMANDS = [vacuum_, *compact_commands.COMMANDS]

_MOST_HOURS = 876_000  # a hundred years


def _hours(number: float | None) -> timedelta | None:
    if number is None:
        return None
    if not number <= _MOST_HOURS:  # so written, it refuses NaN too
        raise InvalidInput(f"hours are a number from 0 to {_MOST_HOURS:,}")
    return timedelta(hours=number)


def _hold_json(hold: Hold) -> dict[str, Any]:
    return {"kind": hold.kind, "name": hold.name, "owner": hold.owner, "version": hold.version}


def _json(report: VacuumReport) -> dict[str, Any]:
    return {
        **{name: getattr(report, name) for name in _FACTS},
        "gone": msgspec.to_builtins(report.gone),
        "kept": msgspec.to_builtins(report.kept),
    }


_FACTS = ("table", "dry_run", "version", "fence", "horizon")
_WHAT = {"dropped": "dropped at or below the horizon", "unnamed": "named by no kept version"}


def _show(report: VacuumReport) -> None:
    can = "could" if report.dry_run else "can"
    terminal.facts(
        [
            ("table", report.table),
            ("horizon", f"version {report.horizon}: older ones {can} no longer be read"),
            ("fence", f"epoch {report.fence}: older uploads {can} no longer be committed"),
        ]
    )
    terminal.say()
    goes = "would go" if report.dry_run else "gone"
    rows = [(goes, _WHAT[kind], sums) for kind, sums in report.gone.items()]
    rows += [("stays", why, sums) for why, sums in report.kept.items()]
    terminal.table(
        ("", "why", "objects", "bytes"),
        ((sign, why, *_sums(sums)) for sign, why, sums in rows),
        right=("objects", "bytes"),
    )


def _sums(sums: Sums) -> tuple[str, str]:
    return terminal.count(sums.objects), size_text(sums.bytes)
