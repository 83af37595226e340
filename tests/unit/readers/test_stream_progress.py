"""What a batch of a stream reads, decided without a store and without Spark."""

import pytest

from eventlog.errors import InvalidInput, TableNotFound, VersionVacuumed
from eventlog.model.entries import Column, Schema, Segment
from eventlog.readers.spark.streaming.progress import (
    BEGINNING,
    MOST_HELD,
    Limits,
    Offset,
    Rules,
    after_place,
    end_in_snapshot,
    end_of_versions,
    parse_offset,
)
from eventlog.state.appends import Appends

TABLE = "ab" * 16
NARROW = Schema(1, (Column(1, "at", "timestamp", False),))
WIDE = Schema(2, (*NARROW.columns, Column(2, "name", "string", True)))
RULES = Rules("s3://bucket/table", NARROW)


def segment(version, *, partition=0, chunk="2013-01-07", size=100):
    return Segment(
        id="0" * 32,
        chunk=chunk,
        epoch=0,
        version=version,
        partition=partition,
        rows=1,
        bytes=size,
        checksum="0" * 64,
        schema=1,
        stats=(),
        tail=None,
    )


def appended(version, *sizes, **more):
    found = tuple(segment(version, partition=k, size=size) for k, size in enumerate(sizes))
    return Appends(version, found, **more)


def end(versions, limits=None, start=0, horizon=0, rules=RULES):
    begin = Offset(TABLE, start)
    problem = lambda version: rules.problem(version, horizon)
    return end_of_versions(begin, versions, limits or Limits(), problem, rules.has_rows).version


@pytest.mark.parametrize(
    ("limits", "last"),
    [
        (Limits(), 6),
        (Limits(versions=1), 2),  # and the version without rows after it
        (Limits(versions=2), 3),
        (Limits(bytes=1), 2),  # one version at least
        (Limits(bytes=150), 2),
        (Limits(bytes=300), 3),
        (Limits(bytes=301, versions=2), 3),
        (Limits(bytes=301, versions=3), 4),
        (Limits(bytes=10_000, versions=9), 6),
    ],
)
def test_a_batch_ends_where_a_limit_is_reached(limits, last):
    later = [
        appended(1, 50, 50),
        appended(2),
        appended(3, 200),
        appended(4, 1),
        appended(5, 400),
        appended(6),
    ]
    assert end(later, limits) == last


def test_no_more_versions_are_taken_than_a_limit_needs():
    taken = []
    end((taken.append(n) or appended(n, 100) for n in range(1, 50)), Limits(versions=3))
    assert taken == [1, 2, 3, 4]


def test_versions_without_rows_make_no_batch_until_they_are_many():
    assert end(map(appended, range(1, MOST_HELD))) == 0
    assert end(map(appended, range(1, MOST_HELD + 1))) == MOST_HELD
    assert end([*map(appended, range(1, 5)), appended(5, 1)], Limits(versions=1)) == 5


def test_a_batch_ends_before_a_version_that_the_stream_cannot_pass():
    blocked = appended(2, 100, change="overwrite")
    assert end([appended(1, 100), blocked]) == 1
    with pytest.raises(InvalidInput, match=r"version 2 \(overwrite\).*skipChangeCommits"):
        end([blocked], start=1)
    with pytest.raises(InvalidInput, match="version 2"):
        end([appended(1), blocked])
    assert end([blocked], rules=Rules("", NARROW, skip_changes=True)) == 2


def test_only_columns_that_the_stream_lacks_end_it():
    wider = appended(1, 100, schema=WIDE)
    with pytest.raises(InvalidInput, match="version 1 changed the table's columns: load"):
        end([wider])
    assert end([wider], rules=Rules("", WIDE)) == 1
    assert end([appended(1, 100, schema=NARROW)], rules=Rules("", WIDE)) == 1
    looser = Schema(2, (Column(1, "at", "timestamp", True),))
    assert end([appended(1, 100, schema=looser)]) == 1


def test_rows_below_the_horizon_end_it_unless_it_may_lose_them():
    with pytest.raises(VersionVacuumed, match=r"version 1 was vacuumed.*from 3 on.*failOnDataLoss"):
        end([appended(1, 100)], horizon=3)
    assert end([appended(1), appended(2), appended(3, 1)], horizon=3) == 3
    assert end([appended(1, 1)], horizon=3, rules=Rules("", NARROW, fail_on_data_loss=False)) == 1


def test_the_first_snapshot_is_read_in_scan_order_and_each_segment_once():
    in_order = [
        segment(3, chunk="2013-01-07"),
        segment(1, chunk="2013-01-08"),
        segment(3, chunk="2013-01-08", partition=1, size=900),
        segment(3, chunk="2013-01-08", partition=10),
        segment(2, chunk="2013-02"),
    ]
    read, start = [], Offset(TABLE, 3, BEGINNING)
    while start.place is not None:
        left = after_place(in_order, start.place, None)
        stop = end_in_snapshot(start, left, Limits(bytes=250))
        read.append(after_place(in_order, start.place, stop.place))
        assert stop == parse_offset(stop.record(), TABLE, "")
        start = stop
    assert read == [in_order[:2], in_order[2:3], in_order[3:]]
    assert start == Offset(TABLE, 3)
    assert end_in_snapshot(Offset(TABLE, 3, BEGINNING), in_order, Limits()) == start
    assert end_in_snapshot(Offset(TABLE, 3, BEGINNING), [], Limits(bytes=1)) == start


def test_the_offset_of_another_table_is_refused():
    stored = Offset("cd" * 16, 3).record()
    with pytest.raises(TableNotFound, match=f"another table .id {'cd' * 16}.*new checkpoint"):
        parse_offset(stored, TABLE, "")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"table": TABLE},
        {"table": TABLE, "version": "3"},
        {"table": TABLE, "version": True},
        {"table": TABLE, "version": -2},
        {"table": TABLE, "version": 3, "snapshot": 7},
        {"table": TABLE, "version": 3, "snapshot": "2013-01-07"},
        {"table": TABLE, "version": 3, "snapshot": "day/1/0"},
        {"table": TABLE, "version": 3, "snapshot": "2013-01-07/1/x"},
    ],
)
def test_the_offset_of_another_source_is_refused(record):
    with pytest.raises(InvalidInput, match="offset of another source"):
        parse_offset(record, TABLE, "")
