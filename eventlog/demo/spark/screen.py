"""The output of the demo. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eventlog.demo.surroundings import Terminal, activation
from eventlog.log.history import HistoryEntry
from eventlog.quantities import count_text, signed_text, size_text
from eventlog.state.scan import Pruning
from eventlog.store.testing.local_server import LocalServer

if TYPE_CHECKING:
    from eventlog.demo.spark.compaction_part import Ongoing
    from eventlog.demo.spark.result import DemoResult
    from eventlog.demo.spark.status import Status

_KINDS = ("get", "put", "list", "head")
_BYTES = ("bytes_read", "bytes_written")


class Screen:
    """Prints the steps of the demo, or nothing.

    Args:
        terminal: what prints; nothing is printed if None.
    """

    def __init__(self, terminal: Terminal | None) -> None:
        self.terminal = terminal

    def say(self, text: str = "") -> None:
        """Print a line."""
        if self.terminal is not None:
            self.terminal.say(text)

    def opening(self, uri: str, rows: int, server: LocalServer | None) -> None:
        """Announce the demo, and where its table is."""
        where = f"on the S3 server at {server.endpoint_url}" if server else "in a local folder"
        self._title("A table of flights")
        self.say(f"{rows:,} flights that left New York in 2013, into {uri}")
        self.say(f"{where}, in time chunks of one day. No other service runs.")

    def jobs(self, feeds: Mapping[str, int]) -> None:
        """Announce the jobs."""
        self._title(f"{len(feeds)} concurrent Spark jobs append to the same days")
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
                    f"{e.time:%Y-%m-%d %H:%M:%S}Z",
                    e.operation,
                    e.transactions if e.operation == "append" else "",
                    signed_text(e.adds),
                    signed_text(e.rows),
                    size_text(e.bytes) if e.bytes else "",
                )
                for e in entries
            ],
            numbers,
        )

    def versions(self, answers: Mapping[int, Mapping[str, Any]]) -> None:
        """Show the same query at several versions."""
        self._title(f"A query at {len(answers)} versions: July, flights and mean departure delay")
        self._answers({f"version {version}": answer for version, answer in answers.items()})

    def one_day(self, where: str, rows: int, pruning: Pruning) -> None:
        """Show how many segments were read for one day."""
        self._title("One day of the year")
        self.say(f"  where {where}")
        left_out = pruning.considered - pruning.read
        self.say(
            f"  {count_text(rows, 'row')} from {count_text(pruning.read, 'segment')}; "
            f"{left_out:,} of {pruning.considered:,} were pruned without being read"
        )

    def engines(self, answers: Mapping[str, Mapping[str, Any]], *, equal: bool) -> None:
        """Show the answers of several engines to the same query."""
        self._title("July again, from three engines")
        self._answers(answers)
        self.say("  the answers are equal" if equal else "  THE ANSWERS DIFFER")

    def late(self, sizes: Sequence[int], batches: int) -> None:
        """Announce the late flights."""
        self._title(
            f"{len(sizes)} Spark jobs append late flights of February, while compaction runs"
        )
        self.say(
            "  each job's last append waits for the first round of compaction, so that both overlap"
        )
        for number, rows in enumerate(sizes, 1):
            self.say(f"  late job {number}: {rows:>5,} flights in {batches} appends")

    def compaction(self, ongoing: Ongoing) -> None:
        """Show the result of compaction during the late appends."""
        self.say("  the planner's reasons for its first tasks:")
        for reason in ongoing.reasons:
            self.say(f"    {reason}")
        self.say(
            f"  segments: {ongoing.before:,} before, {ongoing.after:,} after; "
            f"{count_text(ongoing.compactions, 'replacement')} in "
            f"{count_text(ongoing.rounds, 'round')}"
        )
        self.say(
            f"  conflicts: {ongoing.conflicts or 'none'} of compaction, "
            f"{ongoing.failed_appends or 'none'} of {ongoing.appends} late appends"
        )
        self.say(
            f"  overlap: {ongoing.arrived} late appends were committed while a compaction was at "
            f"work, and {count_text(ongoing.between, 'compaction')} between two late appends"
        )
        if not (ongoing.arrived and ongoing.between):
            self.say("  COMPACTION AND LATE APPENDS DID NOT OVERLAP")
        if not ongoing.stable:
            self.say("  THE PLANNER STILL FINDS WORK")

    def upserts(self) -> None:
        """Announce the status of flights."""
        self._title("2 Spark jobs upsert the status of flights, one row a flight")
        self.say(
            "  one has the messages of departures, the other one those of arrivals; they come in"
        )
        self.say(
            "  any order, and each job fills its own columns of the rows. Compaction runs beside"
        )

    def status(self, status: Status) -> None:
        """Show what came of the upserts."""
        self.say(
            f"  {status.messages:,} messages of {status.flights:,} flights in {status.upserts} "
            f"upserts; {count_text(status.compactions, 'merge')} by compaction"
        )
        self.say(
            f"  conflicts: {status.conflicts or 'none'} of compaction, "
            f"{status.failed_upserts or 'none'} of the jobs"
        )
        columns = list(next(iter(status.versions.values()), {}))
        rows = [
            (f"version {version}", *(f"{counts[name]:,}" for name in columns))
            for version, counts in status.versions.items()
        ]
        self._table(("", *columns), rows, columns)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(status.kinds.items()))
        self.say(f"  changes since version {next(iter(status.versions), 0)}: {kinds}")
        self.say("  applied to the rows of that version they give " + _are(status.replayed))
        if status.story:
            self.say(f"  what happened to {status.story[0][0]}:")
            heads = ("version", "change", "departure", "minutes", "arrival", "minutes late")
            changes = [["" if cell is None else cell for cell in row[1:]] for row in status.story]
            self._table(heads, changes, ("version", "minutes", "minutes late"))
        exact = "yes" if status.exact else "NO"
        self.say(f"  does every flight have the last message of both jobs? {exact}")

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

    def closing(self, uri: str, result: DemoResult, *, kept: bool) -> None:
        """Show whether all rows were read back, and which commands to try next."""
        self._title("Is every row there, exactly once?")
        if result.exact:
            self.say(
                f"  yes: all {result.rows:,} rows read back equal the {result.expected:,} given"
            )
        else:
            self.say(f"  NO: {result.rows:,} rows were read back, {result.expected:,} were given")
        self.say()
        if (activate := activation()) is not None:
            self.say("Once in this shell, so that it finds the program:")
            self.say(f"  {activate}")
        if not kept:
            self.say("The S3 server stops with the demo. To keep the table and explore it:")
            self.say("  eventlog demo --spark --local flights")
            uri = "flights"
        else:
            self.say("To explore the table:")
        for line in (
            f"eventlog log {uri}",
            f"eventlog chunks {uri}",
            f"eventlog compact {uri} --explain 2013-02-08 --at 4",
            f"eventlog show {uri} 1",
            f"eventlog ls {uri} --chunk 2013-02-08",
            f"eventlog scan {uri} --where \"dest = 'ATL'\" --version 2 --limit 5",
            f"eventlog fsck {uri} --checksums",
            f"eventlog changes {uri}-status 1 --where \"departure = 'cancelled'\" --limit 5",
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
        if self.terminal is not None:
            self.terminal.title(text)

    def _table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str]
    ) -> None:
        if self.terminal is not None:
            self.terminal.table(columns, rows, right=right)


def _are(right: bool) -> str:
    return "those of the newest" if right else "OTHERS THAN THOSE OF THE NEWEST"
