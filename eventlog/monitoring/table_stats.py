"""The figures of one table for its operator, as values and as text for people. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from eventlog.display import Described, Description
from eventlog.model.entries import Holder
from eventlog.monitoring.daily import Daily
from eventlog.quantities import count_text, signed_text, size_text

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


class SliceSegments(Struct, frozen=True, kw_only=True):
    """The segments of a keyed table by their kind.

    Attributes:
        base_segments, base_bytes: bases, in which each key has one row, and late segments.
        log_segments, log_bytes: logs above them, whose keys readers merge.
    """

    base_segments: int
    base_bytes: int
    log_segments: int
    log_bytes: int


class CompactionGain(Struct, frozen=True, kw_only=True):
    """What compaction would do now, by its planner.

    Attributes:
        planned: number of tasks.
        inputs: number of segments that they rewrite.
        input_bytes: the size of these.
        outputs: the least number of segments that they become.
        saved: the largest number of segments by which the table gets smaller.
        freed: about how many bytes of deleted rows it no longer stores.
        skipped: number of chunks that need compaction, and rest after a failure.
    """

    planned: int
    inputs: int
    input_bytes: int
    outputs: int
    saved: int
    freed: int
    skipped: int


class HoldStats(Struct, frozen=True, kw_only=True):
    """A pin, a tag, a branch or a copy, because of which vacuum keeps versions.

    Attributes:
        kind: `pin`, which a tag and a branch are too, or `replica`.
        name: its name.
        version: the oldest version that it needs.
    """

    kind: Holder
    name: str
    version: int


class CopyStats(Struct, frozen=True, kw_only=True):
    """A copy that is attached to the table.

    Attributes:
        name: its name.
        root: its root URI.
        acked: the newest version that it has, as far as the table records it.
        behind: number of versions that it lacks, the last acknowledgements left out.
        behind_s: age of the oldest of them in seconds; 0 if there are none.
    """

    name: str
    root: str
    acked: int
    behind: int
    behind_s: float


class KeptObjects(Struct, frozen=True, kw_only=True):
    """Objects that a vacuum would keep though the newest version does not need them.

    Attributes:
        reason: why, as `eventlog.compaction.VacuumReport.kept` has it.
        objects: their number.
        bytes: their size.
    """

    reason: str
    objects: int
    bytes: int


class VacuumGain(Struct, frozen=True, kw_only=True):
    """What a vacuum would do now.

    Attributes:
        objects, bytes: number and size of the objects that it would delete.
        retained: the objects that it would keep, by reason.
    """

    objects: int
    bytes: int
    retained: tuple[KeptObjects, ...]


class TableStats(Described, Struct, frozen=True, kw_only=True):
    """The figures of a table at its newest version.

    Attributes:
        table: the root URI.
        version: the newest version.
        time: when it was committed.
        read_time: when the figures were read, by the store's clock if it has one.
        time_chunks, segments, rows, bytes: the live segments; in a keyed table rows are
            those before keys are merged.
        deleted_rows: rows that are stored, and deleted by vectors.
        small_segments, small_bytes: segments below `good_bytes`.
        good_bytes: the size from which on compaction leaves a segment alone.
        by_kind: the segments of a keyed table by kind; None for others.
        compaction: what compaction would do.
        vacuum: what a vacuum would do; None if this was not asked.
        horizon: the oldest version that can be read.
        horizon_time: when it was committed.
        retention_hours: the table's property of this name.
        holds: what keeps versions from vacuum, the oldest version first.
        copies: the copies that are attached, by name.
        daily: rates a day, by the newest part of the history.
        storage_dollars: what the live segments cost a day.
        prices: whose prices these are.
    """

    table: str
    version: int
    time: datetime
    read_time: datetime
    time_chunks: int
    segments: int
    rows: int
    bytes: int
    deleted_rows: int
    small_segments: int
    small_bytes: int
    good_bytes: int
    by_kind: SliceSegments | None
    compaction: CompactionGain
    vacuum: VacuumGain | None
    horizon: int
    horizon_time: datetime
    retention_hours: int
    holds: tuple[HoldStats, ...]
    copies: tuple[CopyStats, ...]
    daily: Daily
    storage_dollars: float
    prices: str

    def facts(self) -> list[tuple[str, str]]:
        """Return the figures as names and texts for people."""
        return [*self._size_facts(), *self._upkeep_facts(), *self._daily_facts()]

    def _size_facts(self) -> list[tuple[str, str]]:
        stored = "rows" if self.by_kind is None else "rows before keys are merged"
        where = f"{count_text(self.segments, 'segment')} of {count_text(self.time_chunks, 'chunk')}"
        size = f"{self.rows:,} {stored}, {size_text(self.bytes)} in {where}"
        small = count_text(self.small_segments, "segment")
        facts = [
            ("version", f"{self.version}, committed {_age_text(self.time, self.read_time)} ago"),
            ("size", size),
            ("small", f"{small} below {size_text(self.good_bytes)}: {size_text(self.small_bytes)}"),
        ]
        if self.deleted_rows:
            facts.append(("deleted", f"{count_text(self.deleted_rows, 'row')}, still stored"))
        if self.by_kind is not None:
            logs, bases = (
                f"{count_text(count, kind)} ({size_text(stored_bytes)})"
                for count, kind, stored_bytes in (
                    (self.by_kind.log_segments, "log", self.by_kind.log_bytes),
                    (self.by_kind.base_segments, "base", self.by_kind.base_bytes),
                )
            )
            facts.append(("slices", f"{logs} above {bases}"))
        return facts

    def _upkeep_facts(self) -> list[tuple[str, str]]:
        gain, age = self.compaction, _age_text(self.horizon_time, self.read_time)
        work = "nothing to do"
        if gain.planned:
            inputs = f"{count_text(gain.inputs, 'segment')} ({size_text(gain.input_bytes)})"
            work = f"{count_text(gain.planned, 'task')}: {inputs} into {gain.outputs:,} or more"
        if gain.freed:
            work += f", {size_text(gain.freed)} of deleted rows freed"
        if gain.skipped:
            work += f"; {count_text(gain.skipped, 'chunk')} rest after a failure"
        kept = f"from version {self.horizon} on, of {age} ago; retention {self.retention_hours} h"
        facts = [("compaction", work), ("readable", kept)]
        if self.vacuum is not None:
            gone = f"{count_text(self.vacuum.objects, 'object')}, {size_text(self.vacuum.bytes)}"
            facts.append(("vacuum", f"would delete {gone}"))
        return facts

    def _daily_facts(self) -> list[tuple[str, str]]:
        day = self.daily
        rows = f"{signed_text(round(day.rows)) or '0'} rows, {size_text(round(day.bytes))}"
        commits = f"{day.commits:,.0f} commits of {day.transactions:,.0f} transactions"
        requests = f"{day.puts:,.0f} PUT and {day.gets:,.0f} GET, without those of readers"
        dollars = f"${day.request_dollars:.4f} for these, ${self.storage_dollars:.4f} for storage"
        return [
            ("a day", f"{commits}, {rows} ({_measured_text(day.hours)})"),
            ("requests", f"about {requests}"),
            ("dollars", f"{dollars}, a day, by {self.prices}"),
        ]

    def _described(self) -> Description:
        rows = [(hold.kind, hold.name, str(hold.version)) for hold in self.holds]
        header = ("held by", "name", "version") if rows else ()
        return Description(f"Stats of {self.table}", self.facts(), header, rows)


def _measured_text(hours: float) -> str:
    """Return from which time rates were computed, which is an hour where there was less."""
    if hours < 1:
        return f"by the last {hours * 60:,.0f} minutes, counted as an hour"
    return f"by the last {hours:,.1f} hours"


def _age_text(then: datetime, now: datetime) -> str:
    seconds = max(0, round((now - then).total_seconds()))
    for unit_s, noun in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if seconds >= 2 * unit_s:
            return count_text(seconds // unit_s, noun)
    return count_text(seconds, "second")
