"""When a merge has to read what both logs did since they parted, act by act."""

import pytest
from support.acts import META, Log, name_of, pair_of

from eventlog.keyed.repetition import again
from eventlog.merging.planning.past_needed import needs_past
from eventlog.model.actions import Restore
from eventlog.model.records import AppMark, Meta


def asked(source, target, *, apps=None, ties=None, alone=True):
    meta = Meta(
        layout=META.layout,
        schema=META.schema,
        properties=target.meta.properties,
        apps={name: AppMark(seq, 1, 0) for name, seq in (apps or {}).items()},
    )
    pair = pair_of(source, target, alone=alone)
    return needs_past(pair, meta, source.steps, live=target.live, ties=ties)


@pytest.fixture
def logs():
    """A source and a target that wrote a row each."""
    source, target = Log("a"), Log("b")
    source.act(adds=["x"])
    target.act(adds=["mine"])
    return source, target


@pytest.mark.parametrize("ties", [None, "none"])
def test_new_rows_need_no_past(logs, ties):
    assert not asked(*logs, ties=ties)


def test_new_rows_need_it_where_the_targets_own_come_later():
    lower, upper = Log("a"), Log("b")
    lower.act(adds=["x"])
    upper.act(adds=["y"])
    assert asked(lower, upper, ties="repeat")
    assert not asked(upper, lower, ties="repeat")


def test_where_another_log_was_merged_the_past_is_needed(logs):
    assert asked(*logs, alone=False)


@pytest.mark.parametrize(("seq", "needed"), [(2, True), (3, True), (4, False)])
def test_a_unit_of_work_needs_it_unless_it_is_above_the_mark(logs, seq, needed):
    source, target = logs
    source.act(adds=["y"], app=("load", seq))
    assert asked(source, target, apps={"load": 3}) is needed


def test_a_unit_below_another_one_of_the_source_needs_it(logs):
    source, target = logs
    source.act(adds=["y"], app=("load", 5))
    source.act(adds=["z"], app=("load", 4))
    assert asked(source, target, apps={"load": 3})


def test_a_drop_needs_it_where_the_target_does_not_have_the_segment_live(logs):
    source, target = logs
    source.act(adds=["new"], drops=["old"])
    source.act(drops=["new"])
    assert asked(source, target)
    target.live |= {name_of("old")}
    assert not asked(source, target)


def test_a_rewrite_of_what_is_not_live_needs_none_and_a_drop_of_its_output_does(logs):
    source, target = logs
    source.rewrite(["p", "q"], ["r"])
    assert not asked(source, target)
    source.act(drops=["r"])
    assert asked(source, target)


def test_a_restore_needs_it_if_the_target_has_commits_of_its_own():
    source, target = Log("a"), Log("b")
    source.act(Restore(0), adds=["old"])
    assert not asked(source, target)
    target.act(adds=["mine"])
    assert asked(source, target)


def test_a_setting_needs_it_where_its_values_differ(logs):
    source, target = logs
    target.set("user.size", "1")
    source.set("user.size", "1")
    assert not asked(source, target)
    target.set("user.size", "2")
    assert asked(source, target)


def test_rows_that_came_from_the_target_need_it_where_its_own_may_come_later():
    source, target = Log("a"), Log("b")
    source.act()
    target.act(adds=["mine"])
    assert not asked(source, target)
    assert not asked(source, target, ties="refuse")
    assert asked(source, target, ties="repeat")


def test_in_a_keyed_table_an_overwrite_needs_it(logs):
    source, target = logs
    source.act(adds=["new"], drops=["old"])
    assert asked(source, target, ties="none")


def test_rows_whose_order_counts_need_it_where_the_target_wrote_some(logs):
    assert asked(*logs, ties="refuse")
    source, _ = logs
    assert not asked(source, Log("b"), ties="refuse")


def test_rows_that_repeat_others_need_it(logs):
    source, target = logs
    source.act(adds=["y"])
    assert not asked(source, target, ties="none")
    source.act(adds=[bytes.fromhex(again("f" * 32, name_of("y")))])
    assert asked(source, target, ties="none")
