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
    # Written without the check, and tested by it.
    assert {s.schema for s in one.session.head().segments(where="n = 5")} == {1}
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


def checks_after(*tables):
    """The checks that all these logs have once each was merged into each other one."""
    for _ in tables:
        for target in tables:
            for source in tables:
                if source is not target:
                    merge(source, target)
    for target in tables:
        for source in tables:
            assert source is target or merge(source, target).commits == 0
    first, *others = ({**t.refresh().checks} for t in tables)
    assert all(other == first for other in others)
    sound(*tables)
    return first


def play(t, *acts):
    """Add a check with each expression, and drop it for each None."""
    for act in acts:
        if act is None:
            t.drop_check("positive")
        else:
            t.add_check("positive", act)


@pytest.mark.sample(8, verify=12)
@pytest.mark.parametrize("turned", [False, True], ids=["one", "other"])
@pytest.mark.parametrize(
    "changes",
    [
        ("n > 0", [None], [None, "n > 0"], "n > 0"),
        ("n > 0", [None], [None, "n > -1"], "n > -1"),
        ("n > 0", [], [None, "n > 0"], "n > 0"),
        ("n > 0", [None, "n > 0"], [None, "n > -1"], "n > -1"),
        ("n > 0", [None, "n > 0"], [None], "n > 0"),
        (None, ["n > 0"], ["n > 0", None], None),
        (None, ["n > 0", None], ["n > 0"], None),
        (None, ["n > 0"], ["n > 0", None, "n > -1"], "n > -1"),
        (None, ["n > 0"], ["n > -1", None], "n > 0"),
        (None, ["n > 0", None, "n > 0"], ["n > 0"], "n > 0"),
    ],
)
def test_after_merges_both_have_the_same_checks(changes, turned, request):
    had, ours, theirs, left = changes
    kind = "branch" if turned else "copy"
    one, two = pair(kind, request.node.name, checks=had and {"positive": had})
    play(one, *ours)
    play(two, *theirs)
    append(one, rows(3))
    found = checks_after(*((two, one) if turned else (one, two)))
    assert found == ({} if left is None else {"positive": left})


def test_a_check_that_is_dropped_after_a_merge_stays_dropped(request):
    one, two = pair("copy", request.node.name, checks=CHECK)
    play(two, None, "n > 0")
    append(one, rows(3))
    merge(two, one)
    one.drop_check("positive")
    assert merge(two, one).commits == 0
    assert checks_after(one, two) == {}


def test_both_drop_a_check_and_one_adds_another(both):
    one, two = both
    for t in both:
        t.add_check("positive", "n > 0")
    assert checks_after(one, two) == CHECK
    for t in both:
        t.drop_check("positive")
    two.add_check("small", "n < 9")
    assert checks_after(one, two) == {"small": "n < 9"}


@pytest.mark.parametrize(("take", "left"), [("source", "n >= 0"), ("target", "n > 0")])
def test_different_checks_of_one_name_are_a_conflict(both, take, left):
    one, two = both
    one.add_check("positive", "n > 0")
    two.add_check("positive", "n >= 0")
    with pytest.raises(CommitConflict, match=r"'positive': n >= 0, and .*: n > 0 ") as e:
        merge(two, one)
    assert f"version {one.session.head().version})" in e.value.message
    (out,) = merge(two, one, take=take).left_out
    assert (out.root, out.what) == (
        (one.uri, "check 'positive': n > 0")
        if take == "source"
        else (two.uri, "check 'positive': n >= 0")
    )
    assert checks_after(one, two) == {"positive": left}


def test_a_check_that_one_drops_and_one_replaces_under_a_name_in_capitals_is_a_conflict(request):
    one, two = pair("copy", request.node.name, checks=CHECK)
    one.drop_check("positive")
    one.add_check("Positive", "n > -2")
    two.drop_check("positive")
    two.add_check("positive", "n > -1")
    with pytest.raises(CommitConflict, match="adds check 'positive': n > -1, and the target adds"):
        merge(two, one)
    merge(two, one, take="target")
    assert checks_after(one, two) == {"Positive": "n > -2"}


def test_choices_that_contradict_each_other_are_a_conflict_again(both):
    one, two = both
    three = Table(ApartStore(f"{one.uri}-three"), ManualClock(START_MS, 7))
    follow(one, three)
    play(one, "n > 0")
    play(two, "n >= 0")
    merge(one, three)
    merge(two, three, take="target")
    merge(one, two, take="target")
    with pytest.raises(CommitConflict, match="adds check 'positive': n >= 0, and the target adds"):
        merge(two, three)
    merge(two, three, take="source")
    assert checks_after(one, two, three) == {"positive": "n >= 0"}


@pytest.mark.parametrize("take", ["source", "target"])
def test_a_check_of_a_column_that_the_other_dropped_goes_after_a_choice(both, take):
    one, two = both
    one.add_columns([pa.field("x", pa.int64())])
    checks_after(one, two)
    one.drop_columns(["x"])
    two.add_check("known", "x > 0")
    with pytest.raises(CommitConflict, match="check 'known' of column 'x', which the target has"):
        merge(two, one)
    (out,) = merge(two, one, take=take).left_out
    assert (out.root, out.what) == (two.uri, "check 'known': x > 0")
    assert checks_after(one, two) == {}


def test_rows_that_a_side_appended_without_a_check_meet_it_when_it_comes(request):
    one, two = pair("copy", request.node.name, checks=CHECK)
    one.drop_check("positive")
    append(one, rows(-5))
    play(two, None, "n > 0")
    for source, target in ((one, two), (two, one)):
        with pytest.raises(InvalidInput, match="check 'positive'"):
            merge(source, target)
    delete(one, where="n < 0")
    assert checks_after(one, two) == CHECK


def test_dates_get_wider_under_a_check_that_is_added_again(both):
    one, two = both
    one.add_columns([pa.field("day", pa.date32())])
    one.add_check("known", "day > DATE '2012-01-01'")
    checks_after(one, two)
    one.drop_check("known")
    one.widen_column("day", pa.timestamp("us"))
    one.add_check("known", "day > DATE '2012-01-01'")
    append(two, rows(3))
    assert checks_after(one, two) == {"known": "day > DATE '2012-01-01'"}
    assert two.session.head().schema.field("day").type == pa.timestamp("us")


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
    assert two.session.head().header == one.session.head().header
