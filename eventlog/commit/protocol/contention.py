"""What a handle makes of the other writers it meets: when to race, publish, look, and how long.

Pure: no clock, no store. Each number is a decision between latency and requests, tried in
`tests/simulation/contention.py` with 1 to 32 writers.

A writer alone races: one request a commit. Among others one writer leads: it commits its own
transactions and takes along what the rest have published (FORMAT.md "Combining"). Nobody appoints
it. Whose transaction took effect by its own commit leads with the next one; whose transaction
another one took along publishes the next one too and looks for it. Where no commit comes, the
first in the order of the published ones commits them all, and leads from there on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CROWD = 8  # commits of its own for which a writer expects others after it met some
MAX_LED = 3  # races that a writer runs for itself and others before it looks around again
MAX_AWAITED = 3  # looks for the commit after a lost race, right after which the next one is run
MAX_DEFERRALS = 2  # looks for the commit of the first in order before a writer does its work

# A leader commits every two to four requests. A transaction that it lists right after it was
# published is committed one request and a half later.
FIRST_LOOK_MANY = 2.4
FIRST_LOOK = 1.0  # requests from the answer to a publication to the first look
NEXT_LOOK = 0.15  # requests between the answer to a look that showed nothing and the next one
MAX_LOOKS = 5  # looks in a row that showed nothing, before a writer lists what is published
MAX_PASSED = 3  # commits that left the transaction out, before a writer lists what is published

# A leader of many waits for them: those that rode along look, upload and publish again, which takes
# two requests and a half. So all of them ride with every commit, and need fewer looks.
MANY = 6
GATHER = 2.6  # requests from the answer to a commit until the next round is read

SHORTEST_REQUEST_S = 0.002
LONGEST_REQUEST_S = 2.0

# Direct commits after which a writer that expects no others looks for them: seldom, or often while
# it has met some. Without it they would starve behind a writer that never pauses.
_SELDOM, _OFTEN = 32, 4
_REMEMBERED = 64  # direct commits for which others are remembered


class Role(Enum):
    """How a writer's last transaction took effect, among others."""

    UNKNOWN = "unknown"
    LEADS = "leads"  # by its own commit
    RIDES = "rides"  # by a commit of another writer


@dataclass(slots=True)
class Contention:
    """What one handle remembers of other writers.

    Attributes:
        expected: commits of its own for which others are still expected.
        role: how the last transaction took effect, where others were expected.
        riders: how many others' transactions the last commit took along.
        committed_s: when that was, in seconds since some moment of the process.
        request_s: how long a request takes, as measured last.
    """

    expected: int = 0
    role: Role = Role.UNKNOWN
    riders: int = 0
    committed_s: float = 0.0
    request_s: float = 0.02
    _since: int = 0  # direct commits since the last look
    _remembered: int = 0  # direct commits for which others are still remembered

    @property
    def publishes(self) -> bool:
        """Whether the next transaction is published before any race."""
        return self.expected > 0 and self.role is not Role.LEADS

    @property
    def leads(self) -> bool:
        """Whether others' transactions are looked for before and beside every commit."""
        return self.expected > 0 and self.role is Role.LEADS

    @property
    def gathers(self) -> bool:
        """Whether the next commit waits until those that rode along have published again."""
        return self.leads and self.riders >= MANY

    def lost(self, *, publish: bool) -> None:
        """Note a lost race.

        Args:
            publish: others are expected from now on.
        """
        self._remembered = _REMEMBERED
        self.role = Role.UNKNOWN  # another one leads by now, or none does
        if publish:
            self.expected = CROWD

    def led(self, riders: int, elapsed_s: float) -> None:
        """Note that the own commit landed, and how many others' transactions it took along."""
        self.expected = CROWD if riders else max(0, self.expected - 1)
        self.role = Role.LEADS
        self.riders, self.committed_s = riders, elapsed_s

    @property
    def first_look(self) -> float:
        """Requests from the answer to a publication to the first look for its commit."""
        return FIRST_LOOK_MANY if self.riders >= MANY else FIRST_LOOK

    def gather_s(self, elapsed_s: float) -> float:
        """Return how long to wait for those that rode along with the last commit."""
        return max(0.0, self.committed_s + GATHER * self.request_s - elapsed_s)

    def rode(self, riders: int) -> None:
        """Note that another writer's commit of so many transactions took the own one along."""
        self.expected = CROWD
        self.role = Role.RIDES
        self.riders = riders - 1

    def met(self) -> None:
        """Note that others have published something."""
        self.expected = CROWD

    def took(self, seconds: float) -> None:
        """Note how long a request took, whatever a clock says that was set in between."""
        self.request_s = min(max(SHORTEST_REQUEST_S, seconds), LONGEST_REQUEST_S)

    def look_is_due(self) -> bool:
        """Count a commit that expects no others, and say whether to look for them before it."""
        self._since += 1
        self._remembered = max(0, self._remembered - 1)
        if self._since < (_OFTEN if self._remembered else _SELDOM):
            return False
        self._since = 0
        return True


@dataclass(slots=True)
class Watch:
    """What a writer has seen since it published: when does it go on without a leader.

    Attributes:
        looks: in a row, that showed no new commit.
        passed: commits that left its transaction out.
    """

    looks: int = 0
    passed: int = 0

    def nothing(self) -> None:
        """Note a look that showed no new commit."""
        self.looks += 1

    def left_out(self) -> None:
        """Note a commit that left the transaction out."""
        self.looks, self.passed = 0, self.passed + 1

    @property
    def is_over(self) -> bool:
        """Whether nobody seems to take along what is published."""
        return self.looks >= MAX_LOOKS or self.passed >= MAX_PASSED
