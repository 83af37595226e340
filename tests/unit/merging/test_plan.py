"""What a target commits for what a source did, for tables without a key, act by act."""

import pytest
from support.acts import Log, name_of, planner

from eventlog.merging.planning.carried import MergeConflict
from eventlog.model.actions import Restore, SetOrigin


def carried(source, target, **options):
    """What is planned for each step of the source: ids added and dropped; None: nothing."""
    plan, found = planner(source, target, **options), []
    for step in source.steps:
        made = plan.carry(step)
        found.append(made and ([s.id for s in made.adds], [i for i, _ in made.drops]))
    return plan, found


def ids(*names):
    return [name_of(name) for name in names]


def test_what_the_source_added_is_added():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"])
    source.act(adds=["y", "z"])
    target.act(adds=["mine"])
    assert carried(source, target)[1] == [(ids("x"), []), (ids("y", "z"), [])]


def test_an_overwrite_drops_what_it_dropped_and_leaves_the_targets_own():
    source, target = Log("a"), Log("b")
    source.act(adds=["new"], drops=["old"])
    target.act(adds=["mine"])
    target.live |= set(ids("old"))
    assert carried(source, target)[1] == [(ids("new"), ids("old"))]


def test_a_unit_that_both_did_is_skipped():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"], app=("load", 3))
    target.act(adds=["y"], app=("load", 3))
    plan, found = carried(source, target, apps={"load": 3})
    assert found == [None]
    assert plan.skipped == {1: 1}


def test_a_unit_above_those_of_the_target_is_carried():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"], app=("load", 4))
    target.act(adds=["y"], app=("load", 3))
    assert carried(source, target, apps={"load": 3})[1] == [(ids("x"), [])]


def test_a_rewrite_is_carried_where_its_inputs_are_live_and_else_left_out():
    source, target = Log("a"), Log("b")
    source.rewrite(["x", "y"], ["z"])
    target.live |= set(ids("x", "y"))
    assert carried(source, target)[1] == [(ids("z"), ids("x", "y"))]
    target.live -= set(ids("y"))
    plan, found = carried(source, target)
    assert found == [None]
    assert plan.declined == {1: 1}


def test_a_drop_of_what_the_target_replaced_is_a_conflict():
    source, target = Log("a"), Log("b")
    source.act(adds=["new"], drops=["old"])
    target.act(adds=["other"], drops=["old"])
    with pytest.raises(MergeConflict) as caught:
        carried(source, target)
    assert (caught.value.version, caught.value.ours) == (1, 1)


def test_a_restore_beside_writes_of_the_target_is_a_conflict():
    source, target = Log("a"), Log("b")
    source.act(Restore(0), adds=["old"], drops=["x"])
    target.act(adds=["mine"])
    with pytest.raises(MergeConflict, match="restores a version"):
        carried(source, target)


def test_settings_come_along_and_the_first_that_excludes_another_is_named():
    source, target = Log("a"), Log("b")
    source.set("user.colour", "red")
    source.set("user.size", "1")
    target.set("user.size", "2")
    plan = planner(source, target)
    [change] = plan.carry(source.steps[0]).changes[0].changes
    assert (change.name, change.old, change.new) == ("user.colour", None, "red")
    with pytest.raises(MergeConflict, match=r"property 'user.size' to '1'.*has set it to '2'"):
        plan.carry(source.steps[1])


def test_what_the_source_dropped_since_by_what_the_target_has_is_not_added():
    source, target, third = Log("a"), Log("b"), Log("c")
    added, dropped = third.act(adds=["x"]), third.act(drops=["x"])
    source.act(SetOrigin(name_of("o"), None, 1, added.commit), adds=["x"])
    source.act(SetOrigin(name_of("o"), 1, 2, dropped.commit), drops=["x"])
    target.act(SetOrigin(name_of("o"), None, 2, dropped.commit))
    assert carried(source, target)[1] == [None, None]


def test_rows_that_were_gone_before_a_unit_and_were_restored_stay():
    source, target = Log("a"), Log("b")
    source.act(adds=["x"], drops=["old"], app=("load", 1))
    target.act(drops=["old"])
    target.act(adds=["y"], app=("load", 1))
    target.act(Restore(0), adds=["old"])
    assert carried(source, target, apps={"load": 1})[1] == [None]
