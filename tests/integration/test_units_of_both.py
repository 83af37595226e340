"""Merges of logs that each did one unit of work, and changed rows of it since.

Each log has segments of its own of these rows. So positions in the segments of one log say nothing
of the rows of the other log: where both changed rows of the unit, somebody has to choose.
"""

import pytest
from support.builders import create, events, live, reopen
from support.forked_histories import copied
from support.replacements import replace

from eventlog import errors
from eventlog.readers import scan
from eventlog.replication import merge
from eventlog.writers import append, delete, update
from eventlog.writers import merge as merge_rows

DOING = {"app_id": "job", "app_seq": 1}
SHARED = {"app_id": "clean", "app_seq": 1}
OWN = {"app_id": "tidy", "app_seq": 1}


def unit(table):
    """The unit of work: rows 20 to 22 of the second day."""
    append(table, events(3, first=20, day=1), **DOING)


def named(*numbers):
    return "name in ({})".format(", ".join(f"'row {n}'" for n in numbers))


def gone(*numbers, **unit_of):
    """Delete rows."""
    return lambda table: delete(table, where=named(*numbers), **unit_of)


def matched(number, **unit_of):
    """Delete a row by a merge of rows."""
    rows = events(1, first=number, day=1)
    return lambda table: merge_rows(table, rows, "name", when_matched="delete", **unit_of)


def changed(number, **unit_of):
    """Update a row."""
    return lambda table: update(table, {"value": 7.5}, named(number), **unit_of)


def compacted(table):
    """Make one segment of all of the second day."""
    replace(table, [s for s in live(table.refresh()) if s.chunk == "1970-01-02"])


@pytest.fixture(params=["copy", "branch"])
def logs(request):
    """A table and a copy or a branch of it, which both did the unit."""
    table = create()
    append(table, events(2))
    append(table, events(1, first=10, day=1))
    if request.param == "branch":
        both = table, table.branch("two")
    else:
        both = table, reopen(copied(table.store), seed=5000)
    for log in both:
        unit(log)
    return both


def rows(table):
    """The numbers and values of all rows."""
    table.refresh()
    found = scan(table, ["name", "value"]).to_table().to_pylist()
    return sorted((int(row["name"].split()[1]), row["value"]) for row in found)


def settled(one, two):
    """Check that merges both ways lead to the same rows, and then commit nothing."""
    merge(one, two)
    merge(two, one)
    assert rows(one) == rows(two)
    assert not merge(one, two).commits
    assert not merge(two, one).commits


# What the table and the other log do after the unit.
CLASHES = {
    "one row": ([gone(22, **OWN)], [gone(22)]),
    "other rows": ([gone(22, **OWN)], [gone(21)]),
    "one unit": ([gone(22, **SHARED)], [gone(22, **SHARED)]),
    "two units": ([gone(22, **OWN)], [gone(22, **SHARED)]),
    "an update": ([gone(22, **OWN)], [changed(21)]),
    "an update as a unit": ([changed(22, **OWN)], [gone(21)]),
    "a merge of rows": ([matched(22, **OWN)], [gone(21)]),
    "all rows of one": ([gone(22, **OWN)], [gone(20, 21, 22)]),
    "all rows of the other": ([gone(20, 21, 22, **OWN)], [gone(22)]),
    "both kinds": ([gone(22, **OWN), gone(20)], [gone(21)]),
    "a compaction": ([compacted, gone(22, **OWN)], [gone(21)]),
    "two compactions": ([compacted, gone(22, **OWN)], [compacted, gone(21)]),
}


@pytest.mark.sample(6, verify=12)
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("clash", CLASHES)
def test_changed_rows_of_a_unit_that_both_did_lead_to_a_choice(logs, clash, back, take):
    for log, acts in zip(logs, CLASHES[clash], strict=True):
        for act in acts:
            act(log)
    shown = [rows(log) for log in logs]
    for one, two in (logs, logs[::-1]):
        with pytest.raises(errors.CommitConflict, match="--take source"):
            merge(one, two)
    assert [rows(log) for log in logs] == shown
    one, two = logs[::-1] if back else logs
    wanted = rows(one if take == "source" else two)
    merge(one, two, take=take)
    assert rows(two) == wanted
    settled(two, one)
    assert rows(one) == wanted


QUIET = {
    "one log": ([gone(22, **OWN)], [], [10, 20, 21]),
    "a row of before": ([gone(10, **OWN)], [gone(22)], [20, 21]),
    "an append": (
        [gone(22, **OWN)],
        [lambda table: append(table, events(1, first=30, day=1))],
        [10, 20, 21, 30],
    ),
    "a compaction": ([gone(22, **OWN)], [compacted], [10, 20, 21]),
}


@pytest.mark.sample(6, verify=10)
@pytest.mark.hazard("G3")
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("case", QUIET)
def test_rows_of_a_unit_that_both_did_and_one_changed_need_no_choice(logs, case, back):
    *both, left = QUIET[case]
    for log, acts in zip(logs, both, strict=True):
        for act in acts:
            act(log)
    settled(*(logs[::-1] if back else logs))
    assert [number for number, _ in rows(logs[0])] == [0, 1, *left]


@pytest.mark.hazard("G3")
def test_a_third_copy_gets_a_choice_for_the_doing_of_another_one():
    table = create()
    append(table, events(1, first=10, day=1))
    one, two, three = (reopen(copied(table.store), seed=n * 5000) for n in (1, 2, 3))
    for log in (two, three):
        unit(log)
    merge(two, one)
    gone(22, **OWN)(one)
    gone(22)(three)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        merge(three, one)
    merge(three, one, take="target")
    settled(one, three)
    assert [number for number, _ in rows(one)] == [10, 20, 21]


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("take", ["source", "target"])
def test_a_unit_that_was_published_at_once_with_a_delete_leads_to_a_choice(take):
    table = create()
    append(table, events(1, first=10, day=1))
    one, two = table.branch("one"), table.branch("two")
    for log in (one, two):
        unit(log)
    gone(20)(one)
    table.merge("one")
    gone(21)(table)
    gone(22)(two)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        merge(table, two)
    merge(table, two, take=take)
    settled(two, table)
    left = [10, 22] if take == "source" else [10, 20, 21]
    assert [number for number, _ in rows(two)] == left


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_what_a_unit_of_both_deleted_after_a_compaction_does_not_come_back(back):
    table = create()
    append(table, events(2, first=10, day=1))
    other = reopen(copied(table.store), seed=5000)
    append(table, events(3, first=30, day=1))
    append(other, events(3, first=40, day=1))
    gone(30, 40, **SHARED)(table)
    compacted(table)
    compacted(other)
    gone(30, 40, **SHARED)(other)
    settled(*((table, other) if back else (other, table)))
    assert [number for number, _ in rows(table)] == [10, 11, 31, 32, 41, 42]


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("take", ["source", "target"])
def test_an_update_of_a_unit_that_comes_by_a_log_with_its_own_doing_is_not_torn(take):
    table = create()
    append(table, events(1, first=10, day=1))
    one, two, three = (reopen(copied(table.store), seed=n * 5000) for n in (1, 2, 3))
    unit(one)
    unit(three)
    merge(three, two)
    changed(22)(three)
    merge(three, one)
    gone(10)(two)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        merge(one, two)
    merge(one, two, take=take)
    settled(two, one)
    left = [(10, 5.0)] if take == "source" else []
    last = (22, 7.5) if take == "source" else (22, 11.0)
    assert rows(two) == [*left, (20, 10.0), (21, 10.5), last]


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_a_row_that_came_deleted_and_was_updated_elsewhere_leads_to_a_choice(back):
    table = create()
    one, two = table.branch("one"), table.branch("two")
    append(one, events(3, first=10, day=1))
    merge(one, two)
    gone(11)(one)
    table.merge("one")
    changed(11)(two)
    source, target = (two, table) if back else (table, two)
    with pytest.raises(errors.CommitConflict, match="--take source"):
        merge(source, target)
    merge(source, target, take="source")
    settled(target, source)
