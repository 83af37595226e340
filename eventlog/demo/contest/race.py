"""The race: all participants begin at once, their reports are counted, and the last are stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eventlog.clock import Clock
from eventlog.demo.contest.crew import Crew, Post
from eventlog.demo.contest.outcome import ContestPlan
from eventlog.demo.contest.standings import COMPACTION, Team
from eventlog.errors import EventLogError
from eventlog.store.testing.tally import Counts

_POLL_S = 0.1


@dataclass(slots=True)
class Calls:
    """Whom the race has called off, and whom it calls off next.

    Attributes:
        stopped: when each participant was told to end after what is under way.
        stop: those to tell it now.
        end: those to end at once.
    """

    stopped: dict[Post, float] = field(default_factory=dict)
    stop: list[Post] = field(default_factory=list)
    end: list[Post] = field(default_factory=list)

    def decide(self, teams: Sequence[Team], at_s: float, wanted: ContestPlan) -> None:
        """Decide about all participants. Pure, except for what this object remembers.

        A compaction is stopped when no writer of its team is left, and makes a last pass then. The
        teams after the first one are stopped at the limit, if the first one has ended.
        """
        own_ended = teams[0].over
        self.stop, self.end = [], []
        for place, team in enumerate(teams):
            late = place > 0 and own_ended and at_s >= wanted.limit_s
            for number, lane in team.numbered:
                post = Post(team.format, number)
                called = late or (number == COMPACTION and team.ended)
                if not lane.ended and called and post not in self.stopped:
                    self.stop.append(post)
                    self.stopped[post] = at_s
                elif late and not lane.ended and at_s - self.stopped[post] > wanted.patience_s:
                    self.end.append(post)


def run_race(
    crew: Crew,
    teams: Sequence[Team],
    wanted: ContestPlan,
    *,
    clock: Clock,
    requests: Callable[[Post], Counts],
    show: Callable[[float], None],
) -> float:
    """Let the participants begin, and count their reports into the teams until all have ended.

    Args:
        crew: of participants that are ready.
        teams: eventlog's first.
        wanted: the settings.
        clock: for the times of reports.
        requests: returns what a participant has sent so far.
        show: called with the seconds since the beginning, about ten times a second.

    Returns:
        The seconds that it took.

    Raises:
        EventLogError: eventlog did not end in time, or a participant of it broke off.
    """
    lanes = {Post(s.format, n): lane for s in teams for n, lane in s.numbered}
    calls = Calls()
    start = clock.elapsed_s()
    crew.go()
    at_s = shown_s = 0.0
    while not all(team.over for team in teams):
        found = crew.next_report(_POLL_S)
        at_s = clock.elapsed_s() - start
        if found is not None:
            post, report = found
            lanes[post].record(report, at_s)
            if report["did"] == "gone" and post.format == teams[0].format:
                raise EventLogError(
                    f"participant {post.number} of {post.format} broke off: "
                    f"{crew.last_words(post.format) or 'no output'}"
                )
        calls.decide(teams, at_s, wanted)
        crew.stop(calls.stop)
        for post in calls.end:
            crew.end(post)
        if at_s - shown_s >= _POLL_S or found is None:
            for post, lane in lanes.items():
                lane.requests = requests(post)
            show(at_s)
            shown_s = at_s
        if at_s > wanted.own_limit_s:
            raise EventLogError(
                f"the demo did not end within {wanted.own_limit_s:.0f} s: run it again on an idle "
                "machine"
            )
    for post, lane in lanes.items():
        lane.requests = requests(post)
    show(at_s)
    return at_s
