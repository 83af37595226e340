"""The mutants fit the code and name existing tests; some of them are killed here.

`make mutants` runs them all against all of their tests.
"""

import pytest
from mutants import test_guards as guards
from mutants.killers import node_ids
from mutants.mutants import BY_NAME, MUTANTS
from mutants.swap import (
    Mutant,
    Stale,
    applied,
    becomes,
    function_at,
    keep,
    never,
    place_of,
    places,
    skip,
)

# Hazards without a guard that could be removed have no mutant.
HAZARDS = {
    *(f"C{n}" for n in range(1, 9)),
    *(f"F{n}" for n in range(1, 12)),
    *(f"P{n}" for n in range(1, 5)),
    *(f"V{n}" for n in range(1, 7)),
    *(f"K{n}" for n in range(1, 9)),
    *("R1", "R3", "I1", "I3", "I4", "G5"),
}
QUICK = {
    "same-id-twice-in-a-commit": guards.test_f1_a_transaction_listed_twice_has_one_effect,
    "fence-falls": guards.test_v1_a_fence_never_falls,
    "live-set-read-before-the-marks": (
        lambda table: guards.test_v3_what_is_added_between_the_look_and_the_marks_keeps_its_object()
    ),
    "newer-table-vacuumed": guards.test_v5_not_even_where_the_marks_are_there_already,
}


def codes(mutant):
    return [function_at(place_of(name)).__code__ for name in mutant.changes]


def test_every_mutant_changes_the_code_as_it_is_and_gives_it_back():
    assert len(MUTANTS) >= 25
    for mutant in MUTANTS:
        before = codes(mutant)
        with applied(mutant):
            assert not set(map(id, before)) & set(map(id, codes(mutant))), mutant.name
        assert list(map(id, codes(mutant))) == list(map(id, before)), mutant.name


def test_every_hazard_with_a_guard_has_a_mutant():
    assert {word for mutant in MUTANTS for word in mutant.hazards.split()} >= HAZARDS


def test_the_killers_are_there():
    for one in MUTANTS:
        assert node_ids(one.killers), one.name


def test_every_comment_in_the_code_is_of_a_mutant():
    assert set(places()) == {name for one in MUTANTS for name in one.changes}


def test_a_killer_that_is_not_there_is_found():
    with pytest.raises(LookupError, match="0 tests are called test_nothing"):
        node_ids(("test_nothing",))


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_killed_and_the_code_itself_is_not(name):
    QUICK[name](guards.table_with_history())
    with (
        applied(BY_NAME[name]),
        pytest.raises((AssertionError, pytest.fail.Exception)),
    ):
        QUICK[name](guards.table_with_history())
    QUICK[name](guards.table_with_history())


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("no-such-comment", never, "no comment"),
        ("unpin-by-another", keep(0), "one part"),
        ("unpin-by-another", becomes("pin.owner != action.owner"), "the same as before"),
        ("unpin-by-another", becomes("pins.owner != owner"), "has no owner, pins"),
        ("claim-not-carried", skip, "not a statement"),
    ],
)
def test_a_mutant_that_does_not_fit_is_out_of_date(name, change, said):
    with pytest.raises(Stale, match=said), applied(Mutant("wrong", "", "", {name: change}, ())):
        pass
