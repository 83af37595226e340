"""The commands show and fsck. Needs the extra `cli`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.program import Place, at_timestamp, common
from eventlog.clock import SystemClock
from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.fsck import check as checks
from eventlog.fsck.findings import Report
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.log import spills
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Merge
from eventlog.model.entries import Layout
from eventlog.model.records import Commit, Totals, Transaction, origins_of
from eventlog.model.schema_text import type_text
from eventlog.quantities import count_text, size_text
from eventlog.table.table import Table


@click.command()
@common
@click.argument("version", type=click.IntRange(min=0), required=False)
@at_timestamp
def show(place: Place, *, version: int | None, timestamp: str | None) -> None:
    """Show one version: commit, transactions, changes and state."""
    opened = place.open()
    snapshot = opened.snapshot(version, timestamp)
    commit, body = opened.log.read(snapshot.version)
    unpacked = spills.unpack(commit, opened.log.spill)
    void = dict(opened.log.effect(commit).void)
    if place.as_json:
        terminal.json_document(_show_json(opened, snapshot, commit, unpacked, void))
        return
    _show_commit(snapshot, commit, len(body))
    for transaction in unpacked.transactions:
        _show_transaction(transaction, void.get(transaction.id))
    _show_state(snapshot)


@click.command()
@common
@click.option("--log-only", is_flag=True, help="Check neither segments nor leftovers.")
@click.option(
    "--checksums",
    is_flag=True,
    help="Also read every live or held segment: its sha256, and its rows.",
)
@click.option("--keys", is_flag=True, help="Also check the keys in them; of a keyed table.")
@click.option(
    "--from", "start", type=click.IntRange(min=0), metavar="VERSION",
    help="Trust the key frame of VERSION and fold from there, not from 0.",
)  # fmt: skip
@click.option(
    "--version", type=click.IntRange(min=0),
    help="Check the segments of this version instead of the newest.",
)  # fmt: skip
@click.option("--repair", is_flag=True, help="Write missing key frames; nothing else.")
def fsck(
    place: Place,
    *,
    log_only: bool,
    checksums: bool,
    keys: bool,
    start: int | None,
    version: int | None,
    repair: bool,
) -> int:
    """Check that the stored objects agree with the log; exit code 4 if they do not.

    Folds all commits from version 0, compares every header, delta and key frame with the result,
    looks for the live segments, and counts the objects that nothing refers to.
    """
    table, clock = place.unopened(), SystemClock()
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
            progress=advance,
        )
    if place.as_json:
        terminal.json_document({"ok": report.ok, **msgspec.to_builtins(report)})
    else:
        _show_report(report, (clock.now_ms() - begun) / 1000)
    return 0 if report.ok else Corrupt.exit_code


def totals_text(totals: Totals) -> str:
    """Return totals as text for display."""
    return (
        f"{count_text(totals.segments, 'segment')}, {count_text(totals.rows, 'row')}, "
        f"{size_text(totals.bytes)}"
    )


def _show_json(
    opened: Table, snapshot: Snapshot, commit: Commit, unpacked: Commit, void: dict[str, str]
) -> dict[str, Any]:
    header = msgspec.to_builtins(commit.header)
    transactions = [
        {
            "id": t.id,
            "operation": t.operation,
            "writer": t.writer,
            "read_version": t.read_version,
            "app": msgspec.to_builtins(t.app),
            "actions": _actions(t),
            "merges": [msgspec.to_builtins(a) for a in t.actions if isinstance(a, Merge)],
            "info": t.info,
            "void": void.get(t.id),
        }
        for t in unpacked.transactions
    ]
    return {
        "uri": opened.uri,
        **header,
        "time": terminal.iso(snapshot.timestamp),
        "time_ms": commit.header.time,
        "commit": snapshot.commit_hash,
        "transactions": transactions,
        "layout": msgspec.to_builtins(snapshot.layout),
        "columns": [
            {"name": c.name, "type": type_text(c.type), "nullable": c.nullable, "id": c.id}
            for c in snapshot.stored_schema.columns
        ],
        "properties": dict(snapshot.properties),
        "apps": msgspec.to_builtins(snapshot.meta.apps),
        "origins": msgspec.to_builtins(origins_of(snapshot.meta)),
    }


def _show_commit(snapshot: Snapshot, commit: Commit, size: int) -> None:
    header, changes = commit.header, commit.header.changes
    start = "none yet" if header.keyframe is None else f"version {header.keyframe}"
    delta = snapshot.delta
    terminal.facts(
        [
            ("version", snapshot.version),
            ("time", terminal.moment(snapshot.timestamp)),
            ("table", header.table),
            ("commit", f"{keys.commit_key(snapshot.version)}  {size_text(size)}"),
            ("sha256", snapshot.commit_hash),
            ("key frame", f"{start}; since then {_changed(len(delta.adds), len(delta.drops))}"),
            ("totals", totals_text(header.totals)),
            ("changes", _changed(changes.adds, changes.drops)),
            ("rows", f"{changes.rows:+,}"),
            ("bytes", f"{changes.bytes:+,}"),
        ]
    )


def _show_transaction(transaction: Transaction, void: str | None) -> None:
    app = transaction.app
    terminal.say()
    terminal.facts(
        [
            ("transaction", transaction.id),
            ("operation", transaction.operation),
            ("writer", transaction.writer),
            ("read version", transaction.read_version),
            ("app", f"{app.id}, sequence {app.seq}" if app else None),
            ("actions", ", ".join(f"{n:,} {kind}" for kind, n in _actions(transaction).items())),
            *(("merge", _merge_text(a)) for a in transaction.actions if isinstance(a, Merge)),
            *((f"info {name}", value) for name, value in transaction.info.items()),
            ("void", void),
        ]
    )


def _show_state(snapshot: Snapshot) -> None:
    layout = snapshot.layout
    terminal.say()
    terminal.facts(
        [
            ("time column", layout.time_column),
            ("chunks by", layout.granularity),
            ("key", _key_text(layout)),
            ("ordered by", ", ".join(layout.order_by) or None),
            *((f"property {name}", value) for name, value in snapshot.properties.items()),
        ]
    )
    origins = origins_of(snapshot.meta)
    if origins:
        terminal.say()
        terminal.table(
            ("merged from", "up to version", "by version"),
            ((name[:16], mark.version, mark.token) for name, mark in origins.items()),
        )
    terminal.say()
    terminal.table(
        ("column", "type", "nullable"),
        (
            (column.name, type_text(column.type), "" if column.nullable else "no")
            for column in snapshot.stored_schema.columns
        ),
    )


def _key_text(layout: Layout) -> str | None:
    keyed = keyed_of(layout)
    if keyed is None:
        return None
    split = f", split {count_text(splits_of(keyed), 'time')}" if splits_of(keyed) else ""
    return f"{', '.join(keyed.key)}, in {keyed.buckets:,} buckets{split}"


def _merge_text(merge: Merge) -> str:
    after = splits_of(merge)
    numbered = f" (as numbered after {count_text(after, 'split')})" if after else ""
    return (
        f"buckets {merge.first} to {merge.last}{numbered} of chunk {merge.chunk}, "
        f"versions {merge.low} to {merge.high}: {count_text(merge.rows, 'row')} of "
        f"{count_text(len(merge.inputs), 'segment')}, {merge.superseded:,} superseded"
    )


def _changed(adds: int, drops: int) -> str:
    return f"{count_text(adds, 'segment')} added, {drops:,} dropped"


def _actions(transaction: Transaction) -> dict[str, int]:
    kinds = (str(type(action).__struct_config__.tag) for action in transaction.actions)
    return dict(Counter(kinds))


def _show_report(report: Report, seconds: float) -> None:
    frames = f"{report.keyframes} agree, {report.leaves} leaves read"
    odd = (("bad", report.bad_keyframes), ("missing", report.missing_keyframes))
    segments, looked = None, report.keys_checked
    if report.segments is not None:
        segments = f"{terminal.count(report.segments)} of version {report.segments_version}"
    terminal.facts(
        [
            ("table", report.table),
            ("folded from", f"the key frame of version {report.start}" if report.start else None),
            ("versions", f"{terminal.count(report.versions)} agree, the newest is {report.head}"),
            ("transactions", f"{terminal.count(report.transactions)}, {len(report.void)} void"),
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
            (x.place, x.kind, terminal.count(x.objects), size_text(x.bytes), x.example)
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
        )
    for repair in report.repairs:
        terminal.say(f"{repair.key}: {repair.message}")
