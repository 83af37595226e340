"""Choices between two logs, one of which moved rows to another time chunk (MERGING.md R19.10)."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from support.forked_histories import copied
from support.replacements import replace

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.readers import scan
from eventlog.replication import merge
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, update
from eventlog.writers import merge as merge_rows

SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("number", pa.int64()), ("value", pa.int64())]
)
DAYS = ("2013-01-07", "2013-01-08")
COVERED = f"The choice covers {', '.join(DAYS)}: "


def noon(day):
    return datetime(2013, 1, 7 + day, 12, tzinfo=UTC)


def arrow(day, *numbers, value=0):
    rows = [{"at": noon(day), "number": number, "value": value} for number in numbers]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def numbers_on_two_days():
    store = MemoryStore()
    clock = ManualClock(1_700_000_000_000, 1)
    table = Table.create(store.uri, SCHEMA, store=store, clock=clock, time_column="at")
    append(table, arrow(0, 1, 2, 3))
    append(table, arrow(1, 11, 12, 13))
    return table


def another(table, number=2):
    """A copy of a table."""
    return Table.open("", store=copied(table.store), clock=ManualClock(1_700_001_000_000, number))


def told(table):
    """The days, numbers and values of the rows."""
    found = scan(table.refresh() and table).to_table().to_pylist()
    return sorted((row["at"].day - 7, row["number"], row["value"]) for row in found)


def compacted(table):
    live = table.refresh().segments()
    chunks = {segment.chunk for segment in live}
    for chunk in sorted(chunks):
        replace(table, [segment for segment in live if segment.chunk == chunk])


def both_changed_the_row(one, two):
    update(one, {"at": noon(1)}, "number = 1")
    update(two, {"value": 7}, "number = 1")


def both_changed_another_row(one, two):
    update(one, {"at": noon(1)}, "number = 1")
    update(one, {"value": 5}, "number = 11")
    update(two, {"value": 7}, "number = 11")


def one_compacted_before(one, two):
    append(one, arrow(0, 4))
    compacted(one)
    update(one, {"at": noon(1)}, "number = 1")
    delete(two, where="number = 3")


def one_compacted_after(one, two):
    update(one, {"at": noon(1)}, "number = 1")
    append(two, arrow(1, 14))
    compacted(one)
    delete(one, where="number = 12")
    update(two, {"value": 7}, "number = 13")


def one_merged_rows(one, two):
    merge_rows(one, arrow(1, 1, 11, value=9), "number")
    merge_rows(two, arrow(1, 11, value=8), "number")


CASES = (
    both_changed_the_row,
    both_changed_another_row,
    one_compacted_before,
    one_compacted_after,
    one_merged_rows,
)


@pytest.mark.hazard("G3")
@pytest.mark.sample(6, verify=10)
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize("into", ["one", "two"])
@pytest.mark.parametrize("kind", ["branch", "copy"])
@pytest.mark.parametrize("case", CASES)
def test_g3_a_row_that_moved_is_there_once_whoever_is_chosen(case, kind, into, take):
    two = numbers_on_two_days()
    one = two.branch("b") if kind == "branch" else another(two)
    case(one, two)
    source, target = (two, one) if into == "one" else (one, two)
    winner, loser = (source, target) if take == "source" else (target, source)
    expected = told(winner)
    append(loser, arrow(5, 50))
    with pytest.raises(errors.CommitConflict) as refused:
        merge(source, target)
    assert COVERED in str(refused.value)
    dry = merge(source, target, take=take, dry_run=True).left_out
    assert merge(source, target, take=take).left_out == dry
    # Of the side that moved no row, nothing is left out of a chunk in which it did nothing.
    days = {part.what.removeprefix("rows of ") for part in dry}
    assert days == set(DAYS) if loser is one else days < set(DAYS)
    merge(target, source)
    assert told(source) == told(target) == [*expected, (5, 50, 0)]
    assert not merge(source, target).commits + merge(target, source).commits


@pytest.mark.hazard("G3")
@pytest.mark.parametrize("take", ["source", "target"])
def test_g3_a_row_that_moved_before_another_choice_is_there_once(take):
    """What the third log chose has undone what the other two have."""
    a = numbers_on_two_days()
    b, c = another(a, 2), another(a, 3)
    update(a, {"at": noon(1)}, "number = 1")
    merge(a, b)
    update(c, {"value": 7}, "number = 1")
    merge(a, c, take="target")
    update(b, {"value": 8}, "number = 2")
    expected = told(c if take == "source" else b)
    with pytest.raises(errors.CommitConflict, match=COVERED):
        merge(c, b)
    merge(c, b, take=take)
    for source, target in ((b, c), (c, a), (a, b)):
        merge(source, target)
    assert told(a) == told(b) == told(c) == expected
    assert not sum(merge(x, y).commits for x in (a, b, c) for y in (a, b, c) if x is not y)


@pytest.mark.hazard("G3")
def test_g3_a_row_that_moved_in_a_third_log_is_there_once():
    a = numbers_on_two_days()
    b, c = another(a, 2), another(a, 3)
    update(a, {"at": noon(1)}, "number = 1")
    append(b, arrow(5, 50))
    merge(a, b)
    update(c, {"value": 7}, "number = 1")
    expected = [*told(c), (5, 50, 0)]
    merge(b, c, take="target")
    for source, target in ((c, b), (b, a)):
        merge(source, target)
    assert told(a) == told(b) == told(c) == expected


@pytest.mark.hazard("G3")
def test_g3_a_row_that_a_restore_moved_back_is_there_once():
    one = numbers_on_two_days()
    before = one.session.head().version
    update(one, {"at": noon(1)}, "number = 1")
    two = another(one)
    one.restore(before)
    update(two, {"value": 7}, "number = 1")
    expected = told(two)
    merge(one, two, take="target")
    merge(two, one)
    assert told(one) == told(two) == expected


@pytest.mark.hazard("G3")
def test_g3_a_chunk_to_which_no_row_moved_is_not_chosen():
    """A branch is published in one transaction, which deletes in one chunk and adds in another."""
    a = numbers_on_two_days()
    branch, c = a.branch("b"), another(a, 3)
    delete(branch, where="number = 1")
    append(branch, arrow(1, 14))
    a.merge("b")
    update(c, {"value": 7}, "number = 1")
    with pytest.raises(errors.CommitConflict) as refused:
        merge(a, c)
    assert "The choice covers" not in str(refused.value)
    merge(a, c, take="target")
    merge(c, a)
    rows = [(0, 1, 7), (0, 2, 0), (0, 3, 0), (1, 11, 0), (1, 12, 0), (1, 13, 0), (1, 14, 0)]
    assert told(a) == told(c) == rows
