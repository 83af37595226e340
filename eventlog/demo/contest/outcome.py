"""The settings of the contest, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from eventlog.demo.contest.standings import Team, dollars

Answers = dict[str, tuple[int, float]]  # number of flights and mean delay in minutes, by origin


@dataclass(frozen=True, slots=True)
class ContestPlan:
    """The settings of a run.

    Attributes:
        folder: where the table is left, which must not exist; if None, a new folder here.
        writers: number of programs that append with each library, 1 to 10.
        every: append only the flights of every n-th day.
        beside: the other libraries, of those that `participant` knows; one that is not installed is
            left out.
        limit_s: seconds after which the other libraries are stopped, once eventlog has ended.
        patience_s: seconds that they then have for what is under way.
        own_limit_s: seconds after which the run fails, if eventlog has not ended.
    """

    folder: str | None = None
    writers: int = 6
    every: int = 1
    beside: tuple[str, ...] = ("deltalake",)
    limit_s: float = 5.0
    patience_s: float = 1.5
    own_limit_s: float = 600.0


@dataclass(slots=True)
class ContestResult:
    """The result of a run.

    Attributes:
        folder: where the table is left.
        teams: what was done with each library, eventlog first.
        absent: libraries that were left out, and why.
        given: number of rows that were given to each library.
        exact: whether the rows of eventlog's table are those given, each exactly once.
        copied: whether the table that is left has the same versions and rows.
        commits: number of commits of eventlog's appends, which may share one.
        head: the newest version.
        answers: to the same question, by version.
        considered: number of segments of the newest version.
        read: number of those that a question about January reads.
        seconds: by step.
    """

    folder: str
    teams: list[Team] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    given: int = 0
    exact: bool = False
    copied: bool = False
    commits: int = 0
    head: int = 0
    answers: dict[int, Answers] = field(default_factory=dict)
    considered: int = 0
    read: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether eventlog's rows are right, and nothing of it failed."""
        return self.exact and self.copied and self.teams[0].faultless

    def facts(self) -> dict[str, Any]:
        """Return the result as a dict, for JSON."""
        return {"ok": self.ok, **asdict(self), "teams": [_facts_of(team) for team in self.teams]}


def _facts_of(team: Team) -> dict[str, Any]:
    return asdict(team) | {
        "faultless": team.faultless,
        "appends": team.appends,
        "rows": team.rows,
        "raised": team.raised,
        "seconds": team.seconds,
        "longest_s": team.longest_s,
        "requests": asdict(team.requests),
        "dollars": dollars(team.requests),
    }
