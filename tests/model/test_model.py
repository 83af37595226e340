"""The protocol, explored state by state; and each removed guard is detected."""

import pytest
from model import rules
from model.checker import explore
from model.combining import Combining
from model.commits import Commits
from model.copying import Copies
from model.cuts import Cuts
from model.leases import Leases
from model.moving import Moves
from model.scopes import CALM, CONTROLS, SCOPES
from model.vacuums import Vacuums

SMALL = [scope for scope in SCOPES if scope.small]


@pytest.mark.verify
@pytest.mark.parametrize("scope", SMALL, ids=lambda scope: scope.make().name)
def test_nothing_goes_wrong(scope):
    result = explore(scope.make(), max_states=scope.small)
    assert result.problem is None, result.story()
    assert result.whole or result.states >= scope.small


@pytest.mark.verify
@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: "+".join(control.off))
def test_a_guard_taken_away_is_missed(control):
    result = explore(control.make())
    assert result.problem is not None
    assert control.says in result.problem
    assert len(result.trace) == result.depth
    assert all(label in result.story() for label in result.trace)


def test_every_guard_of_an_actor_is_taken_away_in_some_control():
    taken = {guard for control in CONTROLS for guard in control.off}
    models = (Commits, Vacuums, Leases, Combining, Copies, Moves, Cuts)
    assert {guard for model in models for guard in model.GUARDS} <= taken
    assert len(taken & set(rules.GUARDS)) >= 12


def test_a_leader_that_lists_what_is_void_harms_nobody():
    result = explore(
        Combining(("publish", "publish", "pass"), off={"void_left_out"}, tries=1, faults=CALM)
    )
    assert result.whole, result.story()


class Counter:
    """A model of two counters, one of which must not reach its limit."""

    name = "counter"

    def initial(self):
        return (0, 0)

    def steps(self, state):
        a, b = state
        yield from [("left", (a + 1, b))] if a < 3 else []
        yield from [("right", (a, b + 1))] if b < 4 else []

    def problem(self, state):
        return "too far" if state == (2, 4) else None

    def canonical(self, state):
        return state


def test_the_checker_visits_every_state_once_and_finds_the_shortest_way():
    bad = explore(Counter())
    assert (bad.problem, bad.depth) == ("too far", 6)
    assert sorted(bad.trace) == ["left"] * 2 + ["right"] * 4
    Counter.problem = lambda self, state: None
    assert (explore(Counter()).states, explore(Counter()).transitions) == (20, 31)
    assert not explore(Counter(), max_states=5).whole
