"""Merges of copies and branches that both changed their columns: both end up with the same ones."""

import datetime as dt

import pyarrow as pa
import pytest
from support.builders import START_MS, ApartStore, check_sound, create

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.errors import CommitConflict
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.replication import follow, merge
from eventlog.writers import append

AT = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)
PAIR = pa.struct([("x", pa.int8()), ("y", pa.int8())])
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("a", pa.int8()),
        ("b", pa.int8()),
        ("s", PAIR),
    ]
)


@pytest.fixture(params=["copy", "branch"])
def both(request):
    """A table of one row, and its copy or branch."""
    name = f"memory://columns-{request.node.name}"
    one = create(ApartStore(name), schema=SCHEMA)
    append(one, row(a=1, b=2, s={"x": 3, "y": 4}))
    if request.param == "branch":
        return one, one.branch("b")
    return one, copy(one)


def copy(one, name="copy"):
    two = Table(ApartStore(f"{one.uri}-{name}"), ManualClock(START_MS, 5))
    follow(one, two)
    return two


def row(**values):
    return pa.Table.from_pylist([{"at": AT, **values}]).cast(
        pa.schema([SCHEMA.field("at"), *((n, kind_of(n, v)) for n, v in values.items())])
    )


def kind_of(name, value):
    return SCHEMA.field(name).type if name in SCHEMA.names else pa.scalar(value).type


def columns_after(*tables):
    """The columns that all these logs have once each was merged into each other one, and rows."""
    for _ in tables:
        merge_all(tables)
    assert merge_all(tables) == 0
    found = [t.refresh().stored_schema.columns for t in tables]
    assert all(one == found[0] for one in found)
    rows = [scan(t).to_table() for t in tables]
    assert all(
        sorted(map(str, r.to_pylist())) == sorted(map(str, rows[0].to_pylist())) for r in rows
    )
    for t in tables:
        if not t.store.forks:
            check_sound(t.store)
        assert fsck(t, checksums=True).findings == ()
    return tables[0].session.head().schema


def merge_all(tables):
    pairs = [(source, target) for target in tables for source in tables if source is not target]
    return sum(merge(source, target).commits for source, target in pairs)


def test_a_name_that_one_tried_and_the_other_has_does_not_come_back(both):
    one, two = both
    one.rename_column("a", "c")
    one.rename_column("c", "a")
    two.rename_column("a", "c")
    assert columns_after(two, one).names == ["at", "a", "b", "s"]


def test_two_renames_are_a_conflict_until_one_follows_the_other(both):
    one, two = both
    one.rename_column("a", "c")
    two.rename_column("a", "d")
    for source, target in ((one, two), (two, one)):
        with pytest.raises(CommitConflict, match="column 'a' is renamed to 'c'"):
            merge(source, target)
    two.rename_column("d", "c")
    assert columns_after(one, two).names == ["at", "c", "b", "s"]


def test_fields_are_decided_one_by_one(both):
    one, two = both
    one.rename_column(["s", "x"], "z")
    one.rename_column(["s", "z"], "x")
    one.widen_column(["s", "y"], pa.int32())
    two.rename_column(["s", "x"], "z")
    two.widen_column(["s", "y"], pa.int16())
    two.add_columns([pa.field("w", pa.int8())], within=["s"])
    append(two, row(a=4))
    found = columns_after(one, two).field("s").type
    assert found == pa.struct([("x", pa.int8()), ("y", pa.int32()), ("w", pa.int8())])


def test_a_column_that_both_added_has_the_name_that_one_gave_it_later(both):
    one, two = both
    for t in both:
        t.add_columns([pa.field("c", pa.int64())])
    append(one, row(c=7))
    two.rename_column("c", "d")
    two.add_columns([pa.field("c", pa.string())])
    append(two, row(c="text"))
    found = columns_after(one, two)
    assert (found.names[-2:], found.field("c").type) == (["d", "c"], pa.string())
    assert sum(scan(one, ["d"]).to_table()["d"].is_valid().to_pylist()) == 1


def test_a_column_that_was_renamed_before_it_came_keeps_its_values(both):
    one, two = both
    two.add_columns([pa.field("c", pa.int64())])
    append(two, row(c=7))
    two.rename_column("c", "d")
    append(two, row(d=8))
    append(one, row(a=9))
    columns_after(one, two)
    assert sorted(scan(one, ["d"], "d IS NOT NULL").to_table()["d"].to_pylist()) == [7, 8]


def test_a_dropped_column_stays_gone_beside_one_of_its_name(both):
    one, two = both
    one.drop_columns(["a"])
    two.drop_columns(["a"])
    two.add_columns([pa.field("a", pa.string())])
    append(two, row(b=1))
    assert columns_after(one, two).field("a").type == pa.string()


@pytest.mark.parametrize("turned", [False, True])
def test_a_column_that_both_added_is_not_dropped_by_one(both, turned):
    one, two = both[::-1] if turned else both
    for t in both:
        t.add_columns([pa.field("c", pa.int64())])
    two.drop_columns(["c"])
    for source, target in ((one, two), (two, one)):
        with pytest.raises(CommitConflict, match="the columns differ"):
            merge(source, target)
    one.drop_columns(["c"])
    assert columns_after(one, two).names == SCHEMA.names


def test_what_one_tried_in_a_column_that_the_other_dropped_is_no_change(both):
    one, two = both
    one.drop_columns(["a"])
    two.rename_column("a", "c")
    with pytest.raises(CommitConflict, match="column 'a' is dropped"):
        merge(one, two)
    two.rename_column("c", "a")
    assert columns_after(one, two).names == ["at", "b", "s"]


def test_two_orders_are_a_conflict_unless_one_was_taken_back(both):
    one, two = both
    one.reorder_columns(["b", "a"])
    two.reorder_columns(["s"])
    with pytest.raises(CommitConflict, match="columns are reordered"):
        merge(one, two)
    two.reorder_columns(["at", "a", "b"])
    assert columns_after(one, two).names == ["b", "a", "at", "s"]


def test_logs_that_got_columns_in_other_orders_have_one_order(both):
    one, two = both
    three, four = copy(one, "three"), copy(one, "four")
    one.add_columns([pa.field("c", pa.int8())])
    two.add_columns([pa.field("d", pa.int8())])
    for source, target in ((one, three), (two, three), (two, four), (one, four)):
        merge(source, target)
    found = [t.refresh().schema.names[-2:] for t in (three, four)]
    assert found == [["c", "d"], ["d", "c"]]
    merge(three, four)
    merge(four, three)
    assert three.refresh().schema == four.refresh().schema
    assert {*columns_after(one, two, three, four).names[-2:]} == {"c", "d"}
