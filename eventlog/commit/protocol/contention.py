"""How a writer behaves under contention: when it attempts, publishes and looks, and its waits.

No clock, no store. Each number trades latency against requests, and was measured with
`tests/simulation/contention.py` for 1 to 32 writers.

A single writer makes attempts, with one request per commit. Among several, one writer leads: it
commits its own transactions and includes those that the others have published (FORMAT.md
"Combining"). There is no election. A writer that committed its last transaction itself leads with
the next one; a writer whose last transaction was in another writer's commit publishes the next one
too and looks for it. If no commit follows, the writer of the first published transaction commits
them all and leads from then on. What others committed while a writer rested is no contest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CROWD = 8  # own commits for which a writer expects other writers after it noticed some
# How long a writer is without a commit of its own before it expects no others: this many requests,
# and at most so many seconds.
REST, LONGEST_REST_S = 20, 10.0
MAX_LED = 3  # attempts that a leading writer makes before it lists published transactions again
MAX_AWAITED = 3  # looks for another commit after a lost attempt, before the next one
# Looks for the commit of the first writer in order before another one takes over: one more for each
# place in order.
FEWEST_DEFERRALS, MOST_DEFERRALS = 2, 8

# Times below are in requests: multiples of the duration of one request. A leader commits every two
# to four requests. A transaction that it lists right after it was published is committed one and a
# half requests later.
FIRST_LOOK_MANY = 2.4
FIRST_LOOK = 1.0  # from the answer to a publication to the first look
NEXT_LOOK = 0.15  # from the answer to a look without a new commit to the next look, at first
MAX_LOOKS = 5  # looks in a row without a new commit, before a writer lists published transactions
MAX_PASSED = 3  # commits without the own transaction, before a writer lists published ones

# A leader of many writers waits for them: after a commit they look, upload and publish again, which
# takes two and a half requests. So every commit includes all of them, and they need fewer looks.
MANY = 6
GATHER = 2.6  # from the answer to a commit to the next listing

SHORTEST_REQUEST_S = 0.002
LONGEST_REQUEST_S = 2.0

# The number of direct commits between two listings by a writer that expects no others: large, or
# small after it noticed some. Without them, others would starve behind a writer that never pauses.
_SELDOM, _OFTEN = 32, 4
_REMEMBERED = 64  # direct commits for which other writers are remembered


class Role(Enum):
    """How a writer's last transaction took effect under contention."""

    UNKNOWN = "unknown"
    LEADS = "leads"  # in its own commit
    FOLLOWS = "follows"  # in another writer's commit


@dataclass(slots=True)
class Contention:
    """What one handle remembers about other writers.

    Attributes:
        expected: number of own commits for which other writers are still expected.
        role: how the last transaction took effect, if other writers were expected.
        combined: number of other writers' transactions in the last commit.
        committed_s: when that was, in monotonic seconds of the process.
        request_s: how long a request takes, in seconds, as measured so far.
        measured: whether a request was measured yet.
        ended_s: when the handle's last commit ended, in monotonic seconds of the process; 0: it has
            made none.
        rested: whether this commit is the first one after a rest, so that its head may be old.
        looks_first: whether it looks for a newer head before its first attempt after a rest: there
            was a newer one after the last rest.
    """

    expected: int = 0
    role: Role = Role.UNKNOWN
    combined: int = 0
    committed_s: float = 0.0
    request_s: float = 0.02
    measured: bool = False
    ended_s: float = 0.0
    rested: bool = False
    looks_first: bool = False
    _since: int = 0  # direct commits since the last look
    _remembered: int = 0  # direct commits for which other writers are still remembered

    @property
    def publishes(self) -> bool:
        """Whether the next transaction is published before any attempt."""
        return self.expected > 0 and self.role is not Role.LEADS

    @property
    def leads(self) -> bool:
        """Whether published transactions are listed before and during every commit."""
        return self.expected > 0 and self.role is Role.LEADS

    @property
    def gathers(self) -> bool:
        """Whether the next commit waits until the other writers have published again."""
        return self.leads and self.combined >= MANY

    def lost(self, *, publish: bool) -> None:
        """Note a lost attempt.

        Args:
            publish: whether other writers are expected from now on.
        """
        self._remembered = _REMEMBERED
        self.role = Role.UNKNOWN  # another writer may lead now
        if publish:
            self.expected = CROWD

    def led(self, combined: int, elapsed_s: float) -> None:
        """Note a successful own commit.

        Args:
            combined: number of other writers' transactions in it.
            elapsed_s: when, in monotonic seconds of the process.
        """
        self.expected = CROWD if combined else max(0, self.expected - 1)
        self.role = Role.LEADS
        self.combined, self.committed_s = combined, elapsed_s

    @property
    def first_look(self) -> float:
        """The wait between a publication and the first look for its commit, in requests."""
        return FIRST_LOOK_MANY if self.combined >= MANY else FIRST_LOOK

    def gather_s(self, elapsed_s: float) -> float:
        """Return how many seconds to wait until the other writers have published again.

        Args:
            elapsed_s: the present, in monotonic seconds of the process.
        """
        return max(0.0, self.committed_s + GATHER * self.request_s - elapsed_s)

    def followed(self, combined: int) -> None:
        """Note that the own transaction took effect in another writer's commit.

        Args:
            combined: number of transactions in that commit.
        """
        self.expected = CROWD
        self.role = Role.FOLLOWS
        self.combined = combined - 1

    def met(self) -> None:
        """Note that other writers have published transactions."""
        self.expected = CROWD

    def took(self, seconds: float) -> None:
        """Note how long a request took, within bounds that a changed clock cannot exceed.

        A single slow request changes little: the estimate at most doubles.
        """
        if self.measured:
            seconds = min(seconds, 2 * self.request_s)
        self.request_s = min(max(SHORTEST_REQUEST_S, seconds), LONGEST_REQUEST_S)
        self.measured = True

    def resume(self, elapsed_s: float) -> None:
        """Note that a commit begins: after a rest, other writers are no longer expected."""
        over = elapsed_s - self.ended_s > min(REST * self.request_s, LONGEST_REST_S)
        self.rested = over and self.ended_s > 0
        if over:
            self.expected, self.role = 0, Role.UNKNOWN

    def look_is_due(self) -> bool:
        """Count a commit without expected writers; return whether to look for others first."""
        self._since += 1
        self._remembered = max(0, self._remembered - 1)
        if self._since < (_OFTEN if self._remembered else _SELDOM):
            return False
        self._since = 0
        return True


@dataclass(slots=True)
class LeaderWatch:
    """What a writer has seen since it published, to decide when to stop waiting for a leader.

    Attributes:
        looks: number of looks in a row without a new commit.
        passed: number of commits without its transaction.
    """

    looks: int = 0
    passed: int = 0

    def no_commit(self) -> None:
        """Note a look without a new commit."""
        self.looks += 1

    def left_out(self) -> None:
        """Note a commit without the transaction."""
        self.looks, self.passed = 0, self.passed + 1

    @property
    def next_look(self) -> float:
        """The wait until the next look, in requests.

        It grows, since looks in vain take processor time from a leader on the same machine.
        """
        return NEXT_LOOK * 2.0 ** max(0, self.looks - 1)

    @property
    def is_over(self) -> bool:
        """Whether no writer seems to include published transactions."""
        return self.looks >= MAX_LOOKS or self.passed >= MAX_PASSED
