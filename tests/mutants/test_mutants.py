"""The mutants fit the code as it is, name tests that are there, and some are killed here at once.

`make mutants` runs them all against all of their tests.
"""

import re
from pathlib import Path

import pytest
from mutants import test_guards as guards
from mutants.mutants import BY_NAME, MUTANTS
from mutants.swap import Edit, Mutant, Stale, applied, function_of

ROOT = Path(__file__).parents[2]
# What has no guard that could be taken away stands in no mutant.
HAZARDS = {
    *(f"C{n}" for n in range(1, 9)),
    *(f"F{n}" for n in range(1, 11)),
    *(f"P{n}" for n in range(1, 5)),
    *(f"V{n}" for n in range(1, 7)),
    *("K1", "K2", "K3", "K6", "K7", "K8"),  # K4 and K5 are of keyed tables
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
    return [function_of(edit).__code__ for edit in mutant.edits]


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
    for mutant in MUTANTS:
        assert mutant.killers, mutant.name
        for killer in mutant.killers:
            path, *names = killer.split("::")
            text = (ROOT / path).read_text()
            for name in names:
                assert re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), killer


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_killed_and_the_code_itself_is_not(name):
    QUICK[name](guards.furnished())
    with (
        applied(BY_NAME[name]),
        pytest.raises((AssertionError, pytest.fail.Exception)),
    ):
        QUICK[name](guards.furnished())
    QUICK[name](guards.furnished())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("no such text", "pass"),
        ("meta", "state"),  # more than once
        ("if pin.owner != action.owner:", "if (pin.owner != action.owner):"),  # the same
    ],
)
def test_a_mutant_that_does_not_fit_is_out_of_date(old, new):
    mutant = Mutant("wrong", "", "", (Edit("eventlog.holds:unpin", old, new),), ())
    with pytest.raises(Stale), applied(mutant):
        pass
