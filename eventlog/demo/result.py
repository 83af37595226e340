"""What came of a run of the demo."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from eventlog.demo.compaction import Ongoing


@dataclass(slots=True)
class Result:
    """What came of it.

    Attributes:
        uri: the table.
        rows: rows read back.
        expected: rows that were given to the jobs.
        exact: whether those are the same rows, each exactly once.
        equal: whether the engines gave the same answer.
        head: the newest version.
        appends: appends in the log; concurrent ones may share a commit.
        segments: live segments after the first four jobs.
        segments_read: of them, those that one day was read from.
        compaction: what it did while late flights arrived.
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
    seconds: dict[str, float] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every row is there exactly once, the engines agree, and compaction was calm.

        It was if it met late appends, nothing conflicted, and it left nothing to do.
        """
        return self.exact and self.equal and self.compaction.ok

    def facts(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {"ok": self.ok, **asdict(self)}
