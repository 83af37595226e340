"""The result of a run of the demo."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from eventlog.demo.spark.compaction_part import Ongoing
from eventlog.demo.spark.status import Status


@dataclass(slots=True)
class DemoResult:
    """The result of a run.

    Attributes:
        uri: of the table.
        rows: number of rows read back.
        expected: number of rows that were given to the jobs.
        exact: whether both are the same rows, each exactly once.
        equal: whether the engines gave the same answer.
        head: the newest version.
        appends: number of appends in the log; concurrent ones may share a commit.
        segments: number of live segments after the first jobs.
        segments_read: number of those that were read for one day.
        compaction: the result of compaction while late flights arrived.
        status: the result of the upserts into the table of the flights' status.
        seconds: by step.
        requests: to the S3 server, by step and kind; empty without one.
    """

    uri: str
    rows: int = 0
    expected: int = 0
    exact: bool = False
    equal: bool = False
    head: int = 0
    appends: int = 0
    segments: int = 0
    segments_read: int = 0
    compaction: Ongoing = field(default_factory=Ongoing)
    status: Status = field(default_factory=Status)
    seconds: dict[str, float] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every row was read exactly once, the engines agree, and all else succeeded.

        See `Ongoing.ok` and `Status.ok` for the latter.
        """
        return self.exact and self.equal and self.compaction.ok and self.status.ok

    def facts(self) -> dict[str, Any]:
        """Return the result as a dict, for JSON."""
        return {"ok": self.ok, **asdict(self)}
