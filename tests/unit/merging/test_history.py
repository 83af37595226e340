"""What is known of what a log did: units of work, originals, segments that are gone."""

import pytest
from support.acts import Log, name_of

from eventlog.merging.log_acts import KnownCommits, Units, dropped_segments
from eventlog.merging.sequences import common_runs, joined_runs, runs_without
from eventlog.model.actions import AppReset, Restore, SetOrigin


@pytest.mark.parametrize(
    ("some", "others", "expected"),
    [
        ((), (), ()),
        (((1, 2),), ((3, 4),), ((1, 4),)),
        (((1, 1),), ((3, 3),), ((1, 1), (3, 3))),
        (((1, 9),), ((3, 4),), ((1, 9),)),
        (((5, 6), (1, 2)), ((2, 5),), ((1, 6),)),
    ],
)
def test_runs_that_touch_are_one(some, others, expected):
    assert joined_runs(some, others) == joined_runs(others, some) == expected


@pytest.mark.parametrize(
    ("runs", "others", "rest"),
    [
        ((), ((1, 9),), ()),
        (((1, 9),), (), ((1, 9),)),
        (((1, 9),), ((3, 4), (6, 6)), ((1, 2), (5, 5), (7, 9))),
        (((1, 3), (5, 9)), ((2, 6),), ((1, 1), (7, 9))),
        (((4, 5),), ((1, 9),), ()),
    ],
)
def test_runs_without_others_are_the_rest_and_the_common_ones_what_is_missing(runs, others, rest):
    assert runs_without(runs, others) == rest
    assert joined_runs(rest, common_runs(runs, others)) == runs


def test_a_log_has_what_it_committed_and_what_it_carried():
    one, two = Log("a"), Log("b")
    first, second = one.act(adds=["x"]), one.act(adds=["y"])
    origin = SetOrigin(name_of("o"), None, 1, first.commit)
    carried = two.act(origin, adds=["x"])
    known = KnownCommits(two.steps)
    assert known.has(first)
    assert known.has(carried)
    assert not known.has(second)
    assert carried.originals == {first.commit: 1}


def test_a_unit_that_a_restore_forgot_is_not_shared():
    one, two = Log("a"), Log("b")
    mine = one.act(adds=["x"], app=("load", 1))
    theirs = two.act(adds=["y"], app=("load", 1))
    assert Units([theirs]).shared(mine) == [theirs]
    assert Units([theirs]).done == {"load": ((1, 1),)}
    back = two.act(Restore(0, apps={"load": AppReset(1, None)}), drops=["y"])
    assert Units([theirs, back]).shared(mine) == []
    again = two.act(adds=["z"], app=("load", 1))
    assert Units([theirs, back, again]).shared(mine) == [again]


def test_rows_are_gone_by_the_act_that_dropped_them_through_rewrites():
    log = Log("a")
    log.act(adds=["x", "y"])
    log.rewrite(["x", "y"], ["z"])
    assert dropped_segments(act for step in log.steps for act in step.acts) == {}
    overwrite = log.act(adds=["new"], drops=["z"])
    gone = dropped_segments(act for step in log.steps for act in step.acts)
    assert gone == {name_of(name): overwrite for name in "xyz"}
