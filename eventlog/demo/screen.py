"""What the demo prints. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from eventlog.cli import terminal
from eventlog.log.history import HistoryEntry
from eventlog.quantities import size_text
from eventlog.state.scan import Pruning
from eventlog.store.testing.local_server import LocalServer

if TYPE_CHECKING:
    from eventlog.demo.compaction import Ongoing
    from eventlog.demo.result import Result

_KINDS = ("get", "put", "list", "head")
_BYTES = ("bytes_read", "bytes_written")


class Screen:
    """Prints the steps of the demo, or nothing.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str = "") -> None:
        """Print a line."""
        if not self._quiet:
            terminal.say(text)

    def opening(self, uri: str, rows: int, server: LocalServer | None) -> None:
        """Say what is about to happen and where."""
        where = f"on the S3 server at {server.endpoint_url}" if server else "in a local folder"
        self._title("A table of flights")
        self.say(f"{rows:,} flights that left New York in 2013, into {uri}")
        self.say(f"{where}, in time chunks of one day. No other service runs.")

    def jobs(self, feeds: Mapping[str, int]) -> None:
        """Say which jobs start."""
        self._title(f"{len(feeds)} Spark jobs append at once, to the same days")
        for number, (name, rows) in enumerate(feeds.items(), 1):
            self.say(f"  job {number}: {rows:>7,} flights of {name}")

    def log(self, entries: Sequence[HistoryEntry]) -> None:
        """Show the history."""
        self._title("The log, newest version first; a commit may hold what several jobs appended")
        numbers = ("version", "jobs", "segments", "rows", "bytes")
        self._table(
            ("version", "time", "operation", "jobs", "segments", "rows", "bytes"),
            [
                (
                    e.version,
                    terminal.moment(e.time),
                    e.operation,
                    e.transactions if e.operation == "append" else "",
                    terminal.signed(e.adds),
                    terminal.signed(e.rows),
                    size_text(e.bytes) if e.bytes else "",
                )
                for e in entries
            ],
            numbers,
        )

    def versions(self, found: Mapping[int, Mapping[str, Any]]) -> None:
        """Show the same query at several versions."""
        self._title(f"A query at {len(found)} versions: July, flights and mean departure delay")
        self._answers({f"version {version}": answer for version, answer in found.items()})

    def one_day(self, where: str, rows: int, pruning: Pruning) -> None:
        """Show what reading one day took."""
        self._title("One day of the year")
        self.say(f"  where {where}")
        left_out = pruning.considered - pruning.read
        self.say(
            f"  {rows:,} rows from {pruning.read:,} segments; {left_out:,} of "
            f"{pruning.considered:,} were left out unread"
        )

    def engines(self, answers: Mapping[str, Mapping[str, Any]], *, equal: bool) -> None:
        """Show one question answered by several engines."""
        self._title("July again, from three engines")
        self._answers(answers)
        self.say("  the answers are equal" if equal else "  THE ANSWERS DIFFER")

    def late(self, sizes: Sequence[int], batches: int) -> None:
        """Say which late flights arrive."""
        self._title(
            f"{len(sizes)} Spark jobs append late flights of February, while compaction runs"
        )
        self.say("  so that the two meet, the last append of each job comes after a first round")
        for number, rows in enumerate(sizes, 1):
            self.say(f"  late job {number}: {rows:>5,} flights in {batches} appends")

    def compaction(self, found: Ongoing) -> None:
        """Show what compaction did beside them, and why."""
        self.say("  the planner, of what it found first:")
        for reason in found.reasons:
            self.say(f"    {reason}")
        self.say(
            f"  segments: {found.before:,} before, {found.after:,} after; "
            f"{found.compactions} replacements in {found.rounds} rounds"
        )
        self.say(
            f"  conflicts: {found.conflicts or 'none'} of compaction, "
            f"{found.failed_appends or 'none'} of {found.appends} late appends"
        )
        self.say(
            "  late appends between a replacement's plan and its commit, beside which they stand: "
            f"{found.arrived}; replacements between late appends: {found.between}"
        )
        if not (found.arrived and found.between):
            self.say("  COMPACTION AND LATE APPENDS DID NOT MEET")
        if not found.stable:
            self.say("  THE PLANNER STILL FINDS WORK")

    def requests(
        self, seconds: Mapping[str, float], requests: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Show what every step cost."""
        self._title("What it cost" + (", in S3 requests" if requests else ""))
        kinds = [k for k in _KINDS if any(counts[k] for counts in requests.values())]
        rows = []
        for name, took in seconds.items():
            counts = requests.get(name)
            cells = [f"{counts[k]:,}" for k in kinds] if counts else []
            sizes = [size_text(counts[k]) for k in _BYTES] if counts else []
            rows.append((name, *cells, *sizes, f"{took:.1f} s"))
        header = [*(k.upper() for k in kinds), *(("read", "written") if requests else ()), "time"]
        self._table(("step", *header), rows, header)

    def closing(self, uri: str, result: Result, *, kept: bool) -> None:
        """Say whether all is there, and how to look further."""
        self._title("Is everything there, exactly once?")
        if result.exact:
            self.say(
                f"  yes: all {result.rows:,} rows read back equal the {result.expected:,} given"
            )
        else:
            self.say(f"  NO: {result.rows:,} rows were read back, {result.expected:,} were given")
        self.say()
        if not kept:
            self.say("The S3 server ends with the demo. To keep the table and look further:")
            self.say("  eventlog demo --local flights")
            uri = "flights"
        else:
            self.say("To look further:")
        for line in (
            f"eventlog log {uri}",
            f"eventlog chunks {uri}",
            f"eventlog compact {uri} --explain 2013-02-08 --at 4",
            f"eventlog show {uri} 1",
            f"eventlog ls {uri} --chunk 2013-02-08",
            f"eventlog scan {uri} --where \"dest = 'HNL'\" --version 2 --limit 5",
            f"eventlog fsck {uri} --checksums",
        ):
            self.say(f"  {line}")

    def _answers(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        origins = sorted({origin for answer in answers.values() for origin in answer})
        rows = []
        for name, answer in answers.items():
            cells = [answer.get(origin) for origin in origins]
            shown = ["" if c is None else f"{c[0]:,} flights {c[1]:+.2f} min" for c in cells]
            rows.append((name, *shown))
        self._table(("", *origins), rows, origins)

    def _title(self, text: str) -> None:
        self.say()
        self.say(click.style(text, bold=True))

    def _table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str]
    ) -> None:
        if not self._quiet:
            terminal.table(columns, rows, right=right)
