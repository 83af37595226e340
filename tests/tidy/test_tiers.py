"""Which run has a test (`support/tiers.py`)."""

from types import SimpleNamespace

import pytest
from support import tiers


class Case:
    """One parameter set of a test, as pytest collects it."""

    def __init__(self, values, marks=(), **params):
        self.originalname = "test_x"
        self.nodeid = f"tests/test_x.py::test_x[{values}]"
        self.callspec = SimpleNamespace(params=params)
        self.marks = list(marks)

    def get_closest_marker(self, name):
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, name):
        self.marks.append(getattr(pytest.mark, name).mark)

    def is_in_make_test(self):
        return not tiers.is_left_out(self)


def cases(values, *marks, of=None):
    return [Case(v, [m.mark for m in marks], **{of: v} if of else {}) for v in values]


def chosen(items):
    tiers.assign(items)
    return [item.nodeid for item in items if item.is_in_make_test()]


def test_of_a_sampled_test_a_fixed_choice_is_in_make_test_and_no_test_is_lost():
    items = cases(range(20), pytest.mark.sample(6))
    first = chosen(items)
    assert len(first) == 6
    assert all(item.get_closest_marker("long") is None for item in items)
    again = cases(reversed(range(20)), pytest.mark.sample(6))
    assert sorted(chosen(again)) == sorted(first)


def test_of_a_sampled_test_make_verify_may_have_a_larger_choice_that_has_the_smaller_one():
    items = cases(range(20), pytest.mark.sample(3, verify=8))
    first = chosen(items)
    assert len(first) == 3
    long = [item.nodeid for item in items if item.get_closest_marker("long")]
    left = [item.nodeid for item in items if item.get_closest_marker("verify")]
    assert (len(long), len(left)) == (12, 5)
    assert sorted([*first, *left, *long]) == sorted(item.nodeid for item in items)


def test_a_sample_is_of_what_no_mark_leaves_out():
    long = cases(range(10), pytest.mark.sample(2), pytest.mark.long)
    others = cases(range(10, 13), pytest.mark.sample(2))
    assert len(chosen([*long, *others])) == 2


def test_a_test_with_fewer_parameters_than_its_sample_is_whole():
    assert len(chosen(cases(range(3), pytest.mark.sample(5)))) == 3


@pytest.mark.parametrize("fixture", ["place", "root_uri"])
def test_one_of_two_places_is_in_a_default_run_and_the_other_is_long(fixture):
    items = cases(["s3", "local"], of=fixture)
    assert len(chosen(items)) == 1
    assert [i.get_closest_marker("long") is not None for i in items].count(True) == 1


def test_tests_of_spark_are_left_to_make_verify_unless_they_are_everyday():
    (other,), (everyday,) = (
        cases(["a"], pytest.mark.spark),
        cases(["b"], pytest.mark.spark, pytest.mark.everyday),
    )
    tiers.assign([other, everyday])
    assert [other.is_in_make_test(), everyday.is_in_make_test()] == [False, True]
    assert other.get_closest_marker("long") is None
