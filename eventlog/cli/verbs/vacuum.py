"""The verb vacuum. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import Place, common, only_with_run
from eventlog.cli.screen.paging import listing
from eventlog.compaction.log_vacuum import LogSums
from eventlog.compaction.vacuum import VacuumReport, VacuumSums, vacuum
from eventlog.display import command
from eventlog.errors import InvalidInput
from eventlog.model.properties import setting
from eventlog.quantities import count_text, size_text
from eventlog.state.small.holds import Hold, holds
from eventlog.table.table import Table


@click.command("vacuum")
@common
@only_with_run
@click.option(
    "--retention-hours",
    type=click.FloatRange(min=0),
    help="How long versions stay readable; default: property retention_hours (168).",
)
@click.option(
    "--staging-hours",
    type=click.FloatRange(min=0),
    help="How long an upload may take; default: property staging_hours (24).",
)
@click.option(
    "--full", is_flag=True, help="List the entire table, not only objects since the last vacuum."
)
@click.option(
    "--log",
    is_flag=True,
    help="End old commits, too: their headers stay, and their key frames go. They are kept for the "
    "property log_retention_hours.",
)
@click.option(
    "--log-retention-hours",
    type=click.FloatRange(min=0),
    help="How long commits are kept with --log; default: the property.",
)
@listing
def vacuum_(
    place: Place,
    *,
    run: bool,
    retention_hours: float | None,
    staging_hours: float | None,
    full: bool,
    log: bool,
    log_retention_hours: float | None,
) -> None:
    """Show the objects that no version needs; --run deletes them.

    Versions below the horizon can then no longer be read; the log is kept, unless --log cuts it.
    Pins and replicas hold the horizon back (eventlog pin, unpin, pins).
    """
    if log_retention_hours is not None and not log:
        raise click.UsageError("--log-retention-hours needs --log")
    table = place.open()
    with terminal.progress() as advance:
        report = vacuum(
            table,
            dry_run=not run,
            retention=_hours(retention_hours),
            staging=_hours(staging_hours),
            full=full,
            log=log,
            log_retention=_hours(log_retention_hours),
            progress=advance,
        )
    head = table.refresh()
    given = {"retention": retention_hours, "staging": staging_hours}
    hours = {
        name: setting(head.properties, f"{name}_hours") if told is None else told
        for name, told in given.items()
    }
    until = _kept_until(table, report, hours["retention"])
    held = [hold for hold in holds(head.meta) if hold.version < head.version]
    if place.as_json:
        holds_json = [_hold_json(hold) for hold in held]
        terminal.json_document(_json(report) | {"kept_until": until, "holds": holds_json})
        return
    reasons = {why: text.format(**hours) for why, text in _KEPT.items()}
    if until is not None:
        reasons["retention"] += f"; the last of these objects until {until}"
    _show(report, reasons)
    for hold in held:
        broken = command("replicas", place.uri, "--break", hold.name)
        gone = f"; {broken} if it does not follow here"
        terminal.note(
            f"{hold.kind} {hold.name!r} of {hold.owner} keeps version {hold.version} and all later "
            f"ones{gone if hold.kind == 'replica' else ''}"
        )
    if report.dry_run:
        terminal.note("nothing was changed: --run deletes these objects")


VERBS = (vacuum_,)

_MOST_HOURS = 876_000  # a hundred years


def _hours(number: float | None) -> timedelta | None:
    if number is None:
        return None
    if not number <= _MOST_HOURS:  # in this form it refuses NaN too
        raise InvalidInput(f"hours must be a number from 0 to {_MOST_HOURS:,}")
    return timedelta(hours=number)


def _kept_until(table: Table, report: VacuumReport, hours: float) -> str | None:
    """Return when the retention of the last object that it keeps ends; None if it keeps none."""
    if not report.retained:
        return None
    (dropped,) = table.history(start=report.retained, limit=1)
    return terminal.iso(int((dropped.time + timedelta(hours=hours)).timestamp() * 1000))


def _hold_json(hold: Hold) -> dict[str, Any]:
    return {"kind": hold.kind, "name": hold.name, "owner": hold.owner, "version": hold.version}


def _json(report: VacuumReport) -> dict[str, Any]:
    return {
        **{name: getattr(report, name) for name in _FACTS},
        "gone": _sums_json(report.gone),
        "kept": _sums_json(report.kept),
        "log": None if report.log is None else msgspec.to_builtins(report.log),
    }


def _sums_json(sums: Mapping[str, VacuumSums]) -> list[dict[str, Any]]:
    return [{"why": why, **msgspec.to_builtins(each)} for why, each in sums.items()]


_FACTS = ("table", "dry_run", "version", "fence", "horizon")
_KEPT = {
    "retention": "retention: of versions that stay readable for {retention:g} hours after the next "
    "one was committed (--retention-hours)",
    "staging": "staging: uploads that may still be committed, and dropped segments as young as "
    "these, for {staging:g} hours after the upload began (--staging-hours)",
}
_ENDED = {
    "commits": "commit",
    "frames": "frame object",
    "intents": "intent",
    "key frames": "key frame",
}
_REASONS = {
    "dropped": "dropped at or below the horizon",
    "unnamed": "referenced by no kept version",
    "published": "published for other engines, of versions below the horizon",
}


def _show(report: VacuumReport, reasons: Mapping[str, str]) -> None:
    can = "could" if report.dry_run else "can"
    terminal.facts(
        [
            ("table", report.table),
            ("horizon", f"version {report.horizon}: older ones {can} no longer be read"),
            ("fence", f"epoch {report.fence}: older uploads {can} no longer be committed"),
        ]
    )
    if report.log is not None:
        _show_log(report.log, can)
    terminal.say()
    goes = "would be deleted" if report.dry_run else "deleted"
    rows = [(goes, _REASONS[kind], sums) for kind, sums in report.gone.items()]
    rows += [("kept", reasons.get(why, why), sums) for why, sums in report.kept.items()]
    terminal.table(
        ("", "why", "objects", "bytes"),
        ((sign, why, *_sums(sums)) for sign, why, sums in rows),
        right=("objects", "bytes"),
        prose=("why",),
    )


def _show_log(log: LogSums, can: str) -> None:
    """Show where the log is cut, what that ended, and what keeps the rest."""
    cut = f"cut at version {log.cut}: older ones {can} no longer be opened" if log.cut else "whole"
    ended = (
        f"{count_text(objects, _ENDED[kind])}{f' ({size_text(size)})' if size else ''}"
        for kind, (objects, size) in sorted(log.sums.items())
    )
    terminal.facts(
        [
            ("log", cut),
            ("ended", ", ".join(ended) or "nothing"),
            ("kept by", log.kept),
        ]
    )


def _sums(sums: VacuumSums) -> tuple[str, str]:
    return terminal.with_thousands(sums.objects), size_text(sums.bytes)
