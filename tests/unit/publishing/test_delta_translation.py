"""The pure parts of publishing as Delta: bounds, base 85, times, net changes."""

import json
from types import SimpleNamespace

import pytest
from msgspec import UNSET, structs
from support.builders import HASH, create

from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.model.actions import Add, Drop, Replace
from eventlog.model.entries import Column, ColumnStats, Correction, Segment, Vector
from eventlog.model.records import Transaction
from eventlog.publishing.delta.translation.checkpoints import is_due
from eventlog.publishing.delta.translation.delta_commits import (
    delta_commit,
    in_commit_time,
    publisher_of,
    vector_name,
)
from eventlog.publishing.delta.translation.delta_vectors import DeltaVector, z85
from eventlog.publishing.delta.translation.statistics import StatisticsWriter, bound_text
from eventlog.publishing.versions import Exchange, VersionStep, exchanges
from eventlog.state.fold import Effect, segment_of

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("stored", "bound", "low", "high"),
    [
        ("date", -DAY_US, '"1969-12-31"', '"1969-12-31"'),
        ("date", 4_000_000 * DAY_US, None, None),
        ("timestamp", 1, '"1970-01-01T00:00:00.000Z"', '"1970-01-01T00:00:00.001Z"'),
        ("timestamp", -1, '"1969-12-31T23:59:59.999Z"', '"1970-01-01T00:00:00.000Z"'),
        ("timestamp_ntz", 1000, '"1970-01-01T00:00:00.001"', '"1970-01-01T00:00:00.001"'),
        ("timestamp", 253_402_300_800_000_000, None, None),
    ],
)
def test_bounds_enclose_and_what_has_no_form_is_left_out(stored, bound, low, high):
    column = Column(1, "c", stored)
    assert bound_text(column, bound, up=False) == low
    assert bound_text(column, bound, up=True) == high


EDGES = [0, 1, -1, 999, -999, 1000, -1000, DAY_US, -DAY_US, -62_135_596_800_000_000]
EDGES += [-62_135_596_800_000_001, 253_402_300_799_999_000, 253_402_300_799_999_001]


@pytest.mark.parametrize("stored", ["date", "timestamp", "timestamp_ntz"])
def test_statistics_in_columns_are_those_of_each_segment(stored):
    column = Column(2, 'the "time"', stored)
    snapshot = SimpleNamespace(
        layout=SimpleNamespace(time_column=column.name),
        stored_schema=SimpleNamespace(columns=(column,)),
    )
    writer = StatisticsWriter(snapshot)
    bounds = [(low, high) for low in EDGES for high in EDGES]
    if stored == "date":
        bounds = [(low // DAY_US * DAY_US, high // DAY_US * DAY_US) for low, high in bounds]
    segments = [
        Segment(
            f"{number:032x}", "2013-01-07", number, number, 0, number, 9, HASH, 0,
            (ColumnStats(2, *pair, number % 3),) if number % 7 else (),
        )
        for number, pair in enumerate(bounds)
    ]  # fmt: skip
    for some in (segments, segments[:1]):  # also without statistics
        entries = entry_columns.from_segments(some)
        assert writer.texts(entries).to_pylist() == [writer.text(segment) for segment in some]
        assert entry_columns.object_keys(entries) == [keys.key_of(segment) for segment in some]


def test_base_85_is_that_of_its_specification():
    assert z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert z85(b"\x86") == z85(b"\x86\0\0\0")


def test_a_vector_above_a_thousand_bytes_has_an_object_named_by_its_bytes():
    small, large = DeltaVector.of(b"x" * 1020, 3), DeltaVector.of(b"x" * 1021, 3)
    assert (small.descriptor()["storageType"], large.descriptor()["storageType"]) == ("i", "u")
    assert large.key == DeltaVector.of(b"x" * 1021, 3).key != DeltaVector.of(b"y" * 1021, 3).key
    assert large.body()[5:-4] == large.content
    assert large.descriptor()["sizeInBytes"] == 1025


def version_at(version, time_ms, *clock):
    return SimpleNamespace(
        version=version, header=SimpleNamespace(time=time_ms), meta=SimpleNamespace(clock=clock)
    )


def test_times_rise_where_the_clock_was_set_back():
    first, second = Correction(3, 1000, 10), Correction(5, 11, -50)
    history = [
        version_at(2, 900),
        version_at(3, 1000),
        version_at(4, 10, first),
        version_at(5, 11, first),
        version_at(6, -50, first, second),
        version_at(7, 5000, first, second),
    ]
    assert [in_commit_time(one) for one in history] == [900, 1000, 1001, 1002, 1003, 5000]


def added(name: str, version: int = 4) -> Segment:
    return segment_of(Add(name * 32, "2013-01-07", 3, 1, 100, HASH, 1), version, 0)


def did(*actions, operation="append"):
    return Transaction(
        id="f" * 32, operation=operation, writer="w", read_version=3, actions=actions
    )


def as_add(segment: Segment) -> Add:
    return Add(segment.id, segment.chunk, segment.epoch, 1, 100, HASH, 1)


def as_drop(segment: Segment) -> Drop:
    return Drop(segment.id, segment.chunk, HASH)


def test_what_a_commit_adds_and_drops_again_is_no_change():
    a, b = added("a"), added("b")
    effect = Effect(None, adds=(a, b), drops=(a,), taken=(did(as_add(a)), did(as_add(b))))
    assert [(e.before, e.after) for e in exchanges(effect)] == [(None, b)]


def test_an_entry_that_is_added_again_is_exchanged():
    old, new = added("a", 2), added("a", 4)
    effect = Effect(None, adds=(new,), drops=(old,), taken=(did(as_drop(old), as_add(new)),))
    assert [(e.before, e.after) for e in exchanges(effect)] == [(old, new)]


@pytest.mark.parametrize(
    ("before", "after", "actions"),
    [
        (None, b"y", []),
        (b"x", b"y", ["remove", "add"]),
        (b"x", b"x", []),
        (b"x", None, ["remove"]),
    ],
)
def test_a_path_is_removed_and_added_only_with_another_vector(before, after, actions):
    def entry(bitmap, version):
        vector = UNSET if bitmap is None else Vector(3, bitmap)
        return structs.replace(added("a", version), rows=9, vector=vector)

    old = entry(before, 2)
    new = None if after is None else entry(after if before else None, 4)
    key = keys.key_of(old)
    known = {
        vector_name(one, key): DeltaVector.of(one.vector.bitmap, 3)
        for one in (old, new)
        if one and one.vector
    }
    exchange = Exchange(key, old, new, rows_changed=True)
    at = create().session.head()
    body = delta_commit(VersionStep(at, at, (exchange,)), known)
    assert [name for line in body.splitlines()[1:] for name in json.loads(line)] == actions


def test_the_name_of_an_operation_does_not_say_whether_rows_change():
    a, b, c, d = (added(name) for name in "abcd")
    compacted = did(Replace(3, 0), as_drop(a), as_add(b), operation="append")
    overwritten = did(as_drop(c), as_add(d), operation="compact")
    effect = Effect(None, adds=(b, d), drops=(a, c), taken=(compacted, overwritten))
    assert [e.rows_changed for e in exchanges(effect)] == [False, False, True, True]


def test_checkpoints_follow_from_the_version_alone():
    due = [version for version in range(405) if is_due(version, 7)]
    assert due == [7, 100, 200, 300, 400]
    assert not is_due(0, 0)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'{"add":{}}', b'{"commitInfo":7}', b"\xff", b"[" * 100_000]
)
def test_commits_of_other_programs_name_no_table(body):
    assert publisher_of(body) == (None, None)
