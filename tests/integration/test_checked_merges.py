"""Merges of copies and branches of which one has a check that the other one's rows did not meet."""

import datetime as dt
import shlex

import pyarrow as pa
import pytest
from support.builders import START_MS, ApartStore, check_sound, create

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.replication import follow, merge
from eventlog.writers import append, delete, overwrite, upsert

AT = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), nullable=False), ("n", pa.int64())])
CHECK = {"positive": "n > 0"}


def rows(*numbers, day=0):
    at = [AT + dt.timedelta(day)] * len(numbers)
    return pa.table({"at": at, "n": [*numbers]}, schema=SCHEMA)


def numbers(t):
    return sorted(scan(t).to_table()["n"].to_pylist())


def pair(kind, number, **options):
    """A table of one row, and its copy or branch."""
    one = create(ApartStore(f"memory://checked-{number}"), schema=SCHEMA, **options)
    append(one, rows(1))
    if kind == "branch":
        return one, one.branch("b")
    two = Table(ApartStore(f"memory://checked-copy-{number}"), ManualClock(START_MS, 5))
    follow(one, two)
    return one, two


@pytest.fixture(params=["copy", "branch"])
def both(request):
    return pair(request.param, request.node.name)


def sound(*tables):
    for t in tables:
        if not t.store.forks:
            check_sound(t.store)
        assert fsck(t, checksums=True).findings == ()


def test_a_check_that_the_source_added_is_one_of_the_target(both):
    one, two = both
    two.add_check("positive", "n > 0")
    append(two, rows(2, 3))
    append(one, rows(4, day=1))
    merge(two, one)
    assert (one.refresh().checks, numbers(one)) == (CHECK, [1, 2, 3, 4])
    with pytest.raises(InvalidInput, match="check 'positive'"):
        append(one, rows(-1))
    assert merge(one, two).transactions > 0
    assert (two.refresh().checks, numbers(two)) == (CHECK, [1, 2, 3, 4])
    assert merge(two, one).commits == 0
    sound(one)


def test_rows_of_the_target_that_break_a_check_of_the_source_stop_the_merge(both):
    one, two = both
    two.add_check("positive", "n > 0")
    append(one, rows(-4, 5, day=1))
    with pytest.raises(InvalidInput, match=r"'positive' \(n > 0\) is false for 1 row.*n = -4") as e:
        merge(two, one)
    assert f"rows of {one.uri}" in e.value.message
    assert f"`eventlog columns {shlex.quote(two.uri)} uncheck positive`" in e.value.message
    assert (one.refresh().checks, numbers(one)) == ({}, [-4, 1, 5])
    delete(one, where="n < 0")
    merge(two, one)
    assert (one.refresh().checks, numbers(one)) == (CHECK, [1, 5])
    sound(one)


@pytest.mark.parametrize("source_has_it", [False, True], ids=["target", "source"])
def test_a_check_that_stops_a_merge_can_be_dropped(both, source_has_it):
    one, two = both
    (two if source_has_it else one).add_check("positive", "n > 0")
    append(one if source_has_it else two, rows(-4, day=1))
    with pytest.raises(InvalidInput, match="or drop the check, `eventlog columns ") as error:
        merge(two, one)
    where = two if source_has_it else one
    assert shlex.quote(where.uri) in error.value.message
    where.drop_check("positive")
    merge(two, one)
    assert (one.refresh().checks, numbers(one)) == ({}, [-4, 1])
    sound(one)


def test_rows_of_the_source_that_break_a_check_of_the_target_stop_the_merge(both):
    one, two = both
    one.add_check("positive", "n > 0")
    append(two, rows(-4, 5, day=1))
    with pytest.raises(InvalidInput, match=r"is false for 1 row, for example \(n = -4\)"):
        merge(two, one)
    assert numbers(one) == [1]
    delete(two, where="n < 0")
    merge(two, one)
    assert (one.refresh().checks, numbers(one)) == (CHECK, [1, 5])
    assert {s.schema for s in one.head().segments(where="n = 5")} == {2}
    sound(one)


def test_one_check_of_both_is_one(both):
    for t in both:
        t.add_check("positive", "n > 0")
        append(t, rows(7))
    one, two = both
    merge(two, one)
    assert (one.refresh().checks, numbers(one)) == (CHECK, [1, 7, 7])
    sound(one)


def test_rows_that_were_corrected_before_a_check_do_not_stop_a_merge(both):
    one, two = both
    append(two, rows(-4, day=1))
    overwrite(two, rows(4, day=1))
    for t in both:
        t.add_check("positive", "n > 0")
    append(one, rows(9, day=2))
    merge(two, one)
    assert numbers(one) == [4, 9]
    sound(one)


def test_different_checks_of_one_name_are_a_conflict(both):
    one, two = both
    one.add_check("positive", "n > 0")
    two.add_check("positive", "n >= 0")
    with pytest.raises(CommitConflict, match=r"check 'positive' is added: n >= 0.*n > 0"):
        merge(two, one)


def test_a_check_that_one_drops_is_dropped_in_the_other(request):
    one, two = pair("copy", request.node.name, checks={"positive": "n > 0"})
    two.drop_check("positive")
    append(two, rows(-3))
    append(one, rows(5))
    merge(two, one)
    assert (one.refresh().checks, numbers(one)) == ({}, [-3, 1, 5])


def test_a_check_follows_a_column_that_the_other_renames(both):
    one, two = both
    one.rename_column("n", "total")
    two.add_check("positive", "n > 0")
    merge(two, one)
    assert one.refresh().checks == {"positive": "total > 0"}
    one.rename_column("total", "n")
    with pytest.raises(InvalidInput, match=r"\(n > 0\)"):
        append(one, rows(-1))


def test_rows_that_the_source_tested_are_not_read_again(both):
    one, two = both
    append(one, rows(3, day=1))
    two.add_check("positive", "n > 0")
    append(two, rows(2, day=2))
    key = keys.key_of(next(iter(one.snapshot(1).segments())))
    one.store.delete([key])  # a segment of both, which the source has tested
    merge(two, one)
    assert one.refresh().checks == CHECK


@pytest.mark.parametrize("kind", ["copy", "branch"])
def test_what_a_branch_hides_in_a_keyed_table_stays_hidden(kind, request):
    one, two = pair(kind, request.node.name, key="n", checks=None)
    two.add_check("late", "at >= '2013-01-07'")
    upsert(two, rows(2))
    upsert(one, rows(3))
    merge(two, one)
    assert (numbers(one), [*one.refresh().checks]) == ([1, 2, 3], ["late"])
    with pytest.raises(InvalidInput, match="check 'late'"):
        upsert(one, rows(4, day=-1))


def test_a_copy_that_follows_has_the_checks(request):
    one, two = pair("copy", request.node.name)
    one.add_check("positive", "n > 0")
    append(one, rows(2))
    follow(one, two)
    assert (two.refresh().checks, numbers(two)) == (CHECK, [1, 2])
    assert two.head().header == one.head().header
