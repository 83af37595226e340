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
LED, LED_OF = 3, 4  # so many combined commits of the last so many show a leader
RECENT = 5  # the age of a commit, in requests, up to which its writer probably goes on
MAX_LED = 3  # attempts that a leading writer makes before it lists published transactions again
MAX_AWAITED = 3  # looks for another commit after a lost attempt, before the next one
# Looks for the commit of the first writer in order before another one takes over: one more for each
# place in order.
FEWEST_DEFERRALS, MOST_DEFERRALS = 1, 8

# Times below are in requests: multiples of the duration of one request. A leader commits once in
# each. What it lists during one commit it reads during the next, and includes in the one after.
FIRST_LOOK = 1.3  # from the answer to a publication to the first look, where nobody leads yet
# A follower looks first for the version that includes its transaction as a rule, or is the next
# after that: a commit shows what those before it included, and one that is not there shows nothing.
AHEAD, MOST_AHEAD = 5, 8  # versions from the head of a publication to the one to look for
LED_LOOK, MOST_LED_LOOK = 3.0, 5.0  # from a publication to the first look for a leader's commit
SOONER, LATER = 0.02, 0.2  # how that changes after a look in time, and after one in vain
NEXT_LOOK = 0.15  # from the answer to a look without a new commit to the next look, at first
PASSED_LOOK = 0.4  # from a commit without the own transaction to the look for the next one
# The same, where somebody commits who may not look for others before its fourth commit in a row.
AHEAD_OF_ALL, ALONE_LOOK = 5, 1.5
MAX_LOOKS = 3  # looks in a row without a new commit, before a writer lists published transactions
MAX_PASSED = 3  # commits without the own transaction, before a writer lists published ones

SHORTEST_REQUEST_S = 0.002
LONGEST_REQUEST_S = 2.0

# The number of direct commits between two listings by a writer that expects no others: large, or
# small after it noticed some. Without them, others would starve behind a writer that never pauses.
# In a run of commits the first listings follow each other faster: at the beginning of a run many
# writers may have started together.
_SELDOM, _OFTEN, _FIRST = 16, 4, 4
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
        combines: whether the transaction that is being committed may be combined with others.
        request_s: how long a request takes, in seconds, as measured so far.
        measured: whether a request was measured yet.
        ended_s: when the handle's last commit ended, in monotonic seconds of the process; 0: it has
            made none.
        rested: whether it is the first one after a rest, so that its head may be old.
        looks_first: whether it looks for a newer head before its first attempt after a rest: there
            was a newer one after the last rest.
        ahead: number of versions from the head of a publication to the one to look for first.
        led_look: wait from a publication to the look for the leader's commit, in requests.
    """

    expected: int = 0
    role: Role = Role.UNKNOWN
    combines: bool = False
    request_s: float = 0.02
    measured: bool = False
    ended_s: float = 0.0
    rested: bool = False
    looks_first: bool = False
    ahead: int = AHEAD
    led_look: float = LED_LOOK
    _run: int = 0  # commits in a row, without a rest
    _since: int = 0  # direct commits since the last look
    _remembered: int = 0  # direct commits for which other writers are still remembered

    @property
    def publishes(self) -> bool:
        """Whether the next transaction is published before any attempt."""
        return self.expected > 0 and self.role is not Role.LEADS

    @property
    def leads(self) -> bool:
        """Whether published transactions are listed during every commit."""
        return self.expected > 0 and self.role is Role.LEADS

    def lost(self, *, publish: bool) -> None:
        """Note a lost attempt.

        Args:
            publish: whether other writers are expected from now on.
        """
        self._remembered = _REMEMBERED
        self.role = Role.UNKNOWN  # another writer may lead now
        if publish:
            self.expected = CROWD

    def lead(self, others: int) -> None:
        """Note that this writer commits next what others have published, if there is any.

        Args:
            others: the number of their transactions.
        """
        self.expected, self.role = CROWD if others else 0, Role.LEADS

    def expect(self) -> None:
        """Note that others have published transactions."""
        self.expected, self._remembered = CROWD, _REMEMBERED

    def led(self, combined: int) -> None:
        """Note a successful own commit.

        Args:
            combined: number of other writers' transactions in it.
        """
        self.expected = CROWD if combined else max(0, self.expected - 1)
        self.role = Role.LEADS

    def followed(self) -> None:
        """Note that the own transaction took effect in another writer's commit."""
        self.expected = CROWD
        self.role = Role.FOLLOWS

    def looked(self, ahead: int, *, passed: int, looks: int) -> None:
        """Note how a leader's commit was found, for the next look to come when it can succeed.

        Args:
            ahead: number of versions from the head of the publication to the commit; if it was not
                found, to the one after the newest.
            passed: versions from the commit to the one that was read.
            looks: number of looks before, which found no commit.
        """
        if ahead > self.ahead or looks > 1:
            self.ahead = min(ahead, MOST_AHEAD)
        elif passed > 1:
            self.ahead -= 1
        later = LATER * looks if looks else -SOONER
        self.led_look = max(0.0, min(self.led_look + later, MOST_LED_LOOK))

    def met(self) -> None:
        """Note that another writer leads."""
        self.expected, self.role = CROWD, Role.FOLLOWS

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
        over = elapsed_s - self.ended_s > self.rest_s
        self.rested = over and self.ended_s > 0
        self._run = 1 if over else self._run + 1
        if over:
            self.expected, self.role = 0, Role.UNKNOWN

    @property
    def rest_s(self) -> float:
        """After how many seconds without a commit a writer no longer knows who else writes."""
        return min(REST * self.request_s, LONGEST_REST_S)

    @property
    def in_a_run(self) -> bool:
        """Whether this handle has just committed before, so that it probably commits again."""
        return self._run > 1

    def looks_beside(self) -> bool:
        """Count a direct commit; return whether to list published transactions during it."""
        if not self.combines:
            return False
        self._since += 1
        self._remembered = max(0, self._remembered - 1)
        often = _OFTEN if self._remembered else _SELDOM
        first = self._run < _SELDOM and self._run >= _FIRST and not self._run & (self._run - 1)
        if not (self.leads or first or self._since >= often):
            return False
        self._since = 0
        return True


@dataclass(slots=True)
class LeaderWatch:
    """What a writer has seen since it published: which version to look for, and when, and how long.

    Attributes:
        version: the version to look for next.
        vain: number of looks without a new commit.
        looks: number of them in a row.
        passed: number of commits that were read and did not have its transaction.
    """

    version: int
    vain: int = 0
    looks: int = 0
    passed: int = 0

    def no_commit(self, newest: int) -> None:
        """Note a look for `version`, which does not exist yet.

        The first time it may only be a moment too early. Then a lower one is looked for.

        Args:
            newest: the newest version known.
        """
        self.looks, self.vain = self.looks + 1, self.vain + 1
        if self.looks > 1:
            self.version = newest + (self.version - newest + 1) // 2

    def left_out(self) -> None:
        """Note that `version` exists, and does not have the transaction.

        The writer may be several versions behind, so the next looks go further and further.
        """
        self.looks, self.passed = 0, self.passed + 1
        self.version += min(self.passed, 4)

    @property
    def next_look(self) -> float:
        """The wait until the next look, in requests.

        It grows, since looks in vain take processor time from a leader on the same machine.
        """
        return NEXT_LOOK * 2.0 ** (self.looks - 1) if self.looks else PASSED_LOOK

    @property
    def is_over(self) -> bool:
        """Whether no writer seems to include published transactions."""
        return self.vain >= MAX_LOOKS or self.passed >= MAX_PASSED
