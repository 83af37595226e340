"""The model's rules and the package's fold agree, so that neither can drift from the other."""

from functools import cache
from itertools import islice

import msgspec
import pytest
from model import real, rules
from model.alphabet import transactions
from model.checker import explore
from model.scopes import SCOPES

from eventlog.model.records import Meta
from eventlog.state.small import assessment, holds
from eventlog.state.small import rules as package_rules

A_MODEL = 12  # states taken from each model
SEEDS = (
    rules.State(
        version=9,
        live=frozenset(
            {
                *(rules.Entry(1, 0, 4, 5, 0), rules.Entry(2, 1, 6, 8, 1)),
                *(rules.Entry(3, 0, 4, 7, 1, 5), rules.Entry(4, 1, 4, 7, 2, 6, rules.Vector(7, 2))),
            }
        ),
        fence=3,
        horizon=4,
        swept=rules.Sweep(2, 3, 6),
        pins=frozenset({rules.Pin("a", 6, "me", 7), rules.Pin("b", 8, "you", 9)}),
        replicas=frozenset({rules.Replica("r", 5, "me", 6)}),
        claims=frozenset(
            {
                rules.Claim(70, 0, 1, (1, 2), "exclusive", 1, "g", 5, 8),
                rules.Claim(71, 1, 3, (), "shared", 2, "h", 6, 6),
            }
        ),
        apps=frozenset({("job", 5, 6)}),
        published=frozenset({(40, 8, 9), (41, 9, 10), (42, 9, 12)}),
        granularity="hour",
        chunks=frozenset({(0, 5), (3, 2)}),
        analysed=(8, 3),
    ),
    rules.State(
        version=3, horizon=1, claims=frozenset({rules.Claim(70, 0, 1, (), "shared", 1, "g", 2, 3)})
    ),
    rules.State(version=5, fence=2, replicas=frozenset({rules.Replica("r", 2, "me", 3)})),
)


@cache
def states() -> tuple[rules.State, ...]:
    """States that the models reach, and some that have everything at once."""
    states_seen = dict.fromkeys(SEEDS)
    for scope in SCOPES:
        model = scope.make()
        if not hasattr(model, "log"):  # `cuts` has slots, and no fold
            continue
        explore(model, max_states=1_500)
        # The fold of `moving` is its own: it has rows, and the package's fold does not.
        reached = [s for s in dict.fromkeys(model.log.states) if isinstance(s, rules.State)]
        step = max(1, len(reached) // A_MODEL)
        states_seen.update(dict.fromkeys(reached[::step]))
    return tuple(states_seen)


@cache
def cases() -> tuple[tuple, ...]:
    """(state, commit, the package's result) for every commit tried on a state."""
    results = []
    for state in states():
        there = real.to_state(state)
        results.extend(
            (state, txns, real.outcome(there, [*map(real.to_transaction, txns)]))
            for txns in transactions(state)
        )
    return tuple(results)


def differing(ruling, tried):
    """The first case in which the model's rules differ from the package's result."""
    return next((c for c in tried if real.expected(ruling, c[0], c[1]) != c[2]), None)


@pytest.mark.verify
def test_the_model_and_the_package_judge_alike():
    assert len(cases()) > 10_000
    found = differing(rules.Rules(), cases())
    assert found is None, f"{found[0]}\n{found[1]}\npackage: {found[2]}"


def test_every_action_and_every_field_of_the_small_state_is_compared():
    assert real.all_actions() == set(real.ACTIONS) | real.OTHER_ACTIONS
    for action, (_, fields) in real.ACTIONS.items():
        assert action.__struct_fields__ == tuple(fields.split()), action
    assert set(Meta.__struct_fields__) == real.COMPARED | real.NOT_COMPARED
    unjudged = {"operation", "writer", "spill", "info"}  # no rule looks at these
    known = {"id", "read_version", "until", "app", "claim", "actions"}
    fields = {f.name for f in msgspec.structs.fields(real.records.Transaction)}
    assert fields == unjudged | known


@pytest.mark.verify
def test_every_action_is_seen_accepted_and_void():
    seen = {
        (type(txns[0].actions[0]), outcome[0][0])
        for _, txns, outcome in cases()
        if len(txns) == len(txns[0].actions) == 1
    }
    ours = {model for model, _ in real.ACTIONS.values()}
    assert {(a, True) for a in ours} <= seen
    # A layout occurs in version 0 only; a replacement must drop something, and an update, too.
    assert {(a, False) for a in ours - {rules.SetLayout, rules.Replace, rules.Update}} <= seen
    accepted = [
        t for _, txns, outcome in cases() for t, v in zip(txns, outcome[0], strict=True) if not v
    ]
    assert {rules.Replace, rules.Update} <= {type(a) for t in accepted for a in t.actions}


@pytest.mark.parametrize("guard", sorted(set(rules.GUARDS) - {"marks_in_key_frames"}))
def test_a_rule_that_the_model_lacks_is_noticed(guard):
    assert differing(rules.Rules({guard}), cases()) is not None


@pytest.mark.parametrize(
    ("module", "name", "stub"),
    [
        (holds, "check_restore", lambda action, meta, *rest: meta),
        (holds, "_hold_problem", lambda *rest: None),
        (package_rules, "published_problem", lambda *rest: None),
        (package_rules, "replace_problem", lambda *rest: None),
        (package_rules, "update_problem", lambda *rest: None),
        (package_rules, "vector_problem", lambda *rest, **more: None),
        (assessment, "_changes_problem", lambda *rest: None),
        (package_rules, "forget_published", lambda meta, version: meta),
    ],
)
def test_a_rule_that_the_package_lacks_is_noticed(monkeypatch, module, name, stub):
    monkeypatch.setattr(module, name, stub)
    ruling, tried = (
        rules.Rules(),
        islice(((s, t) for s in SEEDS for t in transactions(s)), 900),
    )
    assert any(
        real.expected(ruling, state, txns)
        != real.outcome(real.to_state(state), [*map(real.to_transaction, txns)])
        for state, txns in tried
    )
