"""The standings of the contest: what each participant did so far, and what it cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eventlog.demo.contest.participant import ParticipantReport
from eventlog.monitoring.prices import S3_STANDARD
from eventlog.store.testing.tally import Counts

COMPACTION = 0  # its number among the participants with one library


def dollars(counts: Counts) -> float:
    """Return the list price of requests in US dollars."""
    return S3_STANDARD.requests(counts.put + counts.post + counts.list, counts.get + counts.head)


def summed(many: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    total = Counts()
    for counts in many:
        for name in Counts.__slots__:
            setattr(total, name, getattr(total, name) + getattr(counts, name))
    return total


@dataclass(slots=True)
class Lane:
    """What one participant did.

    Attributes:
        name: of the writer, or `compaction`.
        batches: number of batches that it is to append; 0 of a compaction.
        appends: number of appends that were acknowledged.
        rows: number of rows in them.
        raised: number of appends, or of passes of a compaction, that raised.
        rewrites: number of rewrites that a compaction committed.
        refused: number of rewrites that it did not commit, beside those that raised.
        longest_s: the longest time from one acknowledgement to the next one.
        since_s: when it last reported something, in seconds since the beginning.
        acknowledged_s: when its last append was acknowledged.
        ended: whether it has nothing left to do.
        stopped: whether it was ended in the middle of something.
        why: the first error.
        requests: that it has sent.
    """

    name: str
    batches: int = 0
    appends: int = 0
    rows: int = 0
    raised: int = 0
    rewrites: int = 0
    refused: int = 0
    longest_s: float = 0.0
    since_s: float = 0.0
    acknowledged_s: float = 0.0
    ended: bool = False
    stopped: bool = False
    why: str = ""
    requests: Counts = field(default_factory=Counts)

    def record(self, report: ParticipantReport, at_s: float) -> None:
        """Take in a report.

        Args:
            report: of this participant.
            at_s: when it came, in seconds since the beginning.
        """
        did = report["did"]
        if did == "append":
            self.appends += 1
            self.rows += report["rows"]
            self.longest_s = max(self.longest_s, at_s - self.acknowledged_s)
            self.acknowledged_s = at_s
        elif did == "raise":
            self.raised += 1
        elif did == "pass":
            self.rewrites += report["committed"]
            self.refused += report["failed"]
        elif did in ("end", "gone"):
            self.ended = True
            self.stopped = did == "gone"
        self.why = self.why or report.get("why", "")
        self.since_s = at_s

    @property
    def done(self) -> bool:
        """Whether every batch of the writer is acknowledged."""
        return self.appends == self.batches


@dataclass(slots=True)
class Team:
    """What the participants with one format did.

    Attributes:
        format: the name of the library, as it is imported.
        title: with its version.
        lanes: of the writers.
        compaction: the lane of the compaction.
        files: number of data files at the end.
        lost: number of acknowledged rows that were not read back.
        doubled: number of rows that were read back more than once.
        unacknowledged: number of rows that were read back without an acknowledgement.
    """

    format: str
    title: str
    lanes: list[Lane]
    compaction: Lane
    files: int = 0
    lost: int = 0
    doubled: int = 0
    unacknowledged: int = 0

    @property
    def numbered(self) -> list[tuple[int, Lane]]:
        """The lane of each participant by its number: `COMPACTION`, and writers from 1."""
        return [(COMPACTION, self.compaction), *enumerate(self.lanes, 1)]

    @property
    def appends(self) -> int:
        """Number of acknowledged appends."""
        return sum(lane.appends for lane in self.lanes)

    @property
    def batches(self) -> int:
        """Number of appends that are to be made."""
        return sum(lane.batches for lane in self.lanes)

    @property
    def rows(self) -> int:
        """Number of acknowledged rows."""
        return sum(lane.rows for lane in self.lanes)

    @property
    def raised(self) -> int:
        """Number of appends that raised."""
        return sum(lane.raised for lane in self.lanes)

    @property
    def longest_s(self) -> float:
        """The longest wait for an acknowledgement, those included that never came."""
        return max(
            lane.longest_s if lane.done else max(lane.longest_s, lane.since_s - lane.acknowledged_s)
            for lane in self.lanes
        )

    @property
    def seconds(self) -> float:
        """When the last append was acknowledged, in seconds since the beginning."""
        return max(lane.acknowledged_s for lane in self.lanes)

    @property
    def written(self) -> bool:
        """Whether every batch is acknowledged."""
        return all(lane.done for lane in self.lanes)

    @property
    def ended(self) -> bool:
        """Whether no writer has anything left to do."""
        return all(lane.ended for lane in self.lanes)

    @property
    def over(self) -> bool:
        """Whether the compaction has nothing left to do either."""
        return self.ended and self.compaction.ended

    @property
    def requests(self) -> Counts:
        """The requests of all participants."""
        return summed(lane.requests for _, lane in self.numbered)

    @property
    def why(self) -> str:
        """The first error of a writer, or else of the compaction."""
        return next((lane.why for lane in [*self.lanes, self.compaction] if lane.why), "")

    @property
    def faultless(self) -> bool:
        """Whether every row is there exactly once and nothing raised, or was refused."""
        right = self.written and not (self.lost or self.doubled or self.unacknowledged)
        failed = self.raised + self.compaction.raised + self.compaction.refused
        return right and not failed
