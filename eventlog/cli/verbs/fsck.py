"""The verb fsck. Needs the extra `cli`."""

from __future__ import annotations

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, common, driver_option, start_driver
from eventlog.cli.screen.paging import listing
from eventlog.clock import SystemClock
from eventlog.errors import Corrupt
from eventlog.fsck import check as checks
from eventlog.fsck.findings import Report
from eventlog.quantities import count_text, size_text
from eventlog.session.tags import VersionOrName
from eventlog.store.parallel import DriverName


@click.command()
@common
@click.option("--log-only", is_flag=True, help="Check neither segments nor leftovers.")
@click.option(
    "--checksums",
    is_flag=True,
    help="Also read every live or held segment: its sha256, and its rows.",
)
@click.option("--keys", is_flag=True, help="Also check the keys of a keyed table.")
@click.option(
    "--from", "start", type=VersionType(), metavar="VERSION",
    help="Trust the key frame of VERSION and fold from there, not from 0.",
)  # fmt: skip
@click.option(
    "--version", type=VersionType(),
    help="Check the segments of this version instead of the newest.",
)  # fmt: skip
@driver_option("Where --checksums reads: in this process, or on Spark's executors.")
@click.option("--repair", is_flag=True, help="Write missing key frames and packs; nothing else.")
@listing
def fsck(
    place: Place,
    *,
    log_only: bool,
    checksums: bool,
    keys: bool,
    start: VersionOrName | None,
    version: VersionOrName | None,
    driver: DriverName,
    repair: bool,
) -> int:
    """Check that the stored objects agree with the log.

    The exit code is 4 if they do not. Folds all commits from version 0, compares every header,
    delta and key frame with the result, looks for the live segments, and counts the objects that
    nothing refers to.
    """
    start_driver(driver)
    table, clock = place.unread(), SystemClock()
    begun = clock.now_ms()
    with terminal.progress() as advance:
        report = checks.fsck(
            table,
            objects=not log_only,
            checksums=checksums,
            keys=keys,
            start=start,
            version=version,
            repair=repair,
            driver=driver,
            progress=advance,
        )
    if place.as_json:
        values = msgspec.to_builtins(report)
        newest = values.pop("head")
        terminal.json_document({"ok": report.ok, "version": newest, **values})
    else:
        _show_report(report, (clock.now_ms() - begun) / 1000)
    return 0 if report.ok else Corrupt.exit_code


VERBS = (fsck,)


def _show_report(report: Report, seconds: float) -> None:
    frames = f"{report.keyframes} agree, {report.leaves} leaves read"
    odd = (("bad", report.bad_keyframes), ("missing", report.missing_keyframes))
    segments, looked = None, report.keys_checked
    if report.segments is not None:
        segments = (
            f"{terminal.with_thousands(report.segments)} of version {report.segments_version}"
        )
    terminal.facts(
        [
            ("table", report.table),
            ("folded from", f"the key frame of version {report.start}" if report.start else None),
            (
                "versions",
                f"{terminal.with_thousands(report.versions)} agree, the newest is {report.head}",
            ),
            (
                "transactions",
                f"{terminal.with_thousands(report.transactions)}, {len(report.void)} void",
            ),
            ("key frames", ", ".join([frames, *(f"{n} {kind}" for kind, n in odd if n)])),
            ("segments", segments),
            ("keys", None if looked is None else f"of {count_text(looked, 'row')}"),
            ("checksums", size_text(report.checksummed) if report.checksummed else None),
        ]
    )
    for void in report.void:
        terminal.say(
            f"void: transaction {void.transaction} of version {void.version}: {void.reason}"
        )
    _show_leftovers(report)
    _show_findings(report)
    repaired = sum(repair.done for repair in report.repairs)
    verdict = f"corrupt: {count_text(report.errors, 'error')}" if report.errors else "no errors"
    repairs = f"; {repaired} repaired" if report.repairs else ""
    terminal.say()
    terminal.say(f"{verdict}{repairs} ({seconds:.1f} s)")


def _show_leftovers(report: Report) -> None:
    if not report.leftovers:
        return
    terminal.say()
    terminal.say("objects that nothing refers to (not an error):")
    terminal.table(
        ("place", "kind", "objects", "bytes", "example"),
        (
            (x.place, x.kind, terminal.with_thousands(x.objects), size_text(x.bytes), x.example)
            for x in report.leftovers
        ),
        right=("objects", "bytes"),
    )


def _show_findings(report: Report) -> None:
    if report.findings:
        terminal.say()
        terminal.table(
            ("severity", "version", "key", "message"),
            (
                ("repaired" if f.repaired else f.severity, f.version, f.key, f.message)
                for f in report.findings
            ),
            right=("version",),
            prose=("message",),
        )
    for repair in report.repairs:
        terminal.say(f"{repair.key}: {repair.message}")
