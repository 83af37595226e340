"""Entries of keyed tables: their places survive leaves, spills and commits; damage is Corrupt."""

import msgspec
import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import HASH, commit, create, live, reopen, replaced

from eventlog import errors
from eventlog.format import codec
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns
from eventlog.model.actions import Add, Drop
from eventlog.model.entries import ColumnStats, Segment, Slice, Vector
from eventlog.state.delta import add_of

PLACES = [
    Slice("log", 0, 7, 5, 5, 0, 0),
    Slice("log", 3, 3, 2, 4, 1, 5),
    Slice("base", 0, 0, 1, 4, 2, 2),
    Slice("late", 2, 6, 1, 4, 2, 3),
]
SPLIT = [replaced(place, splits=n) if n else place for n, place in enumerate(PLACES)]


def entry(number, place, version=5):
    stats = (ColumnStats(1, number, number + 1, 0),)
    return Segment(f"{number:032x}", "all", 0, version, number, 3, 9, HASH, 1, stats, slice=place)


ENTRIES = [entry(n, place) for n, place in enumerate(PLACES)]


def damaged(table, name, values):
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values))


def read_back(table):
    spilled = "drop" in table.column_names
    return frame_bytes.from_parquet(frame_bytes.to_parquet(table), table.num_rows, spilled=spilled)


def checked(table):
    """What reading a leaf does: its form, and then the hashes of its entries."""
    found = read_back(table)
    if not entry_columns.hashes_hold(found):
        raise errors.Corrupt("the hashes do not hold")


def test_a_leaf_keeps_every_place():
    table = read_back(entry_columns.from_segments(ENTRIES))
    assert entry_columns.to_segments(table) == ENTRIES
    assert entry_columns.hashes_hold(table)


def test_a_leaf_keeps_the_splits_of_its_places():
    entries = [entry(n, place) for n, place in enumerate(SPLIT)]
    table = read_back(entry_columns.from_segments(entries))
    assert table.column("slice_splits").to_pylist() == [None, 1, 2, 3]
    assert entry_columns.to_segments(table) == entries
    assert entry_columns.hashes_hold(table)
    both = entry_columns.concat([entry_columns.from_segments([entries[0]]), table])
    assert entry_columns.to_segments(both) == [entries[0], *entries]
    assert "slice_splits" not in entry_columns.from_segments(ENTRIES).column_names


def test_a_spill_keeps_the_splits_of_its_places():
    adds = [add_of(entry(n, place)) for n, place in enumerate(SPLIT)]
    found, *_ = spill_columns.from_spill(read_back(spill_columns.to_spill(adds, [])), 9)
    assert [segment.slice for segment in found] == SPLIT


@pytest.mark.parametrize(
    "values",
    [[0, 1, 2, 3], [None, 13, 2, 3], [None, 2, 2, 3], [None, -1, 2, 3], ["1", "2", "3", "x"]],
)
def test_damaged_splits_are_corrupt(values):
    entries = [entry(n, place) for n, place in enumerate(SPLIT)]
    with pytest.raises(errors.Corrupt):
        checked(damaged(entry_columns.from_segments(entries), "slice_splits", values))
    plain = replaced(entry(0, SPLIT[0]), id="f" * 32, slice=UNSET)
    together = entry_columns.from_segments([*entries[1:], plain])
    with pytest.raises(errors.Corrupt):
        checked(damaged(together, "slice_splits", [1, 2, 3, 4]))


def test_an_entry_without_a_place_is_as_it_was():
    plain = [replaced(entry, slice=UNSET) for entry in ENTRIES]
    table = entry_columns.from_segments(plain)
    assert not [name for name in table.column_names if name.startswith("slice")]
    assert entry_columns.to_segments(read_back(table)) == plain
    assert b"slice" not in msgspec.json.encode(plain)


def test_tables_with_places_and_without_go_together():
    plain = replaced(ENTRIES[0], id="f" * 32, slice=UNSET)
    both = entry_columns.concat(
        [entry_columns.from_segments(ENTRIES), entry_columns.from_segments([plain])]
    )
    assert entry_columns.to_segments(both) == [*ENTRIES, plain]


@pytest.mark.parametrize(
    "more",
    [{"slice": SPLIT[1]}, {"vector": Vector(1, bitmap=b"x")}, {"slice": SPLIT[1], "inline": 4}],
    ids=["splits", "vector", "splits and inline"],
)
def test_a_leaf_of_old_and_new_entries_has_its_columns_in_order(more):
    place = PLACES[0] if "slice" in more else UNSET
    first = replaced(ENTRIES[0], slice=place, inline=5)
    second = replaced(ENTRIES[1], **({"slice": UNSET} | more))
    for entries in ([first, second], [second, first]):
        both = entry_columns.concat([entry_columns.from_segments([one]) for one in entries])
        found = read_back(both)
        assert entry_columns.to_segments(found) == entries
        known = [name for name in found.column_names if name[:3] not in ("min", "max", "nul")]
        assert found.column_names[: len(known)] == known


@pytest.mark.parametrize("field", ["kind", "first", "last", "low", "high", "level", "ordinal"])
def test_the_hash_of_an_entry_covers_its_place(field):
    place = Slice("base", 1, 2, 3, 4, 1, 0)
    other = "late" if field == "kind" else getattr(place, field) + 1
    changed = entry(0, replaced(place, **{field: other}))
    assert codec.entry_hash(changed) != codec.entry_hash(entry(0, place))


def test_a_spill_leaves_the_versions_of_upserts_to_their_commit():
    adds = [add_of(entry) for entry in ENTRIES]
    adds[0] = replaced(adds[0], slice=Slice("log", 0, 7, None, None, 0))
    drop = Drop("e" * 32, "all", HASH)
    for version in (5, 9):
        found, drops, _ = spill_columns.from_spill(
            read_back(spill_columns.to_spill(adds, [drop])), version
        )
        expected = [Slice("log", 0, 7, version, version, 0, 0), *PLACES[1:]]
        assert [segment.slice for segment in found] == expected
        assert {segment.version for segment in found} == {version}
        assert drops == [drop]


def test_a_spilled_delta_is_the_same_at_every_version():
    def delta(version):
        own = replaced(ENTRIES[0], version=version, partition=0)
        own = replaced(own, slice=Slice("log", 0, 7, version, version, 0, 0))
        return spill_columns.to_spill([own], [], version)

    assert frame_bytes.to_parquet(delta(5)) == frame_bytes.to_parquet(delta(8))
    adds, *_ = spill_columns.from_spill(read_back(delta(5)), 8)
    assert adds[0].slice == Slice("log", 0, 7, 8, 8, 0, 0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("slice_kind", ["log", "log", "base", "heap"]),
        ("slice_first", [0, None, 0, 2]),
        ("slice_last", [7, 3, 0, -1]),
        ("slice_low", [5, 2, None, 1]),
        ("slice_high", ["5", "4", "x", "4"]),
        ("slice_level", [0.0, 1.0, 2.0, 2.5]),
        ("slice_level", [0, 1, 2, None]),
        ("slice_kind", [1, 2, 3, 4]),
        ("slice_ordinal", [0, 1, 2, 4]),
        ("slice_ordinal", [0, 1, 2, None]),
        ("slice_kind", ["log", "log", None, "late"]),
    ],
)
def test_a_damaged_leaf_is_corrupt(name, values):
    wrong = damaged(entry_columns.from_segments(ENTRIES), name, values)
    with pytest.raises(errors.Corrupt):
        checked(wrong)


@pytest.mark.parametrize("epoch", [10**12, 2**63 - 1])
def test_a_leaf_with_an_epoch_that_no_key_has_is_corrupt(epoch):
    most = [replaced(one, epoch=10**12 - 1) for one in ENTRIES]
    assert entry_columns.to_segments(read_back(entry_columns.from_segments(most))) == most
    above = [*most[:-1], replaced(most[-1], epoch=epoch)]
    with pytest.raises(errors.Corrupt, match="contradict"):
        read_back(entry_columns.from_segments(above))


@pytest.mark.parametrize("name", ["slice_kind", "slice_first", "slice_low", "slice_level"])
def test_a_leaf_that_lacks_a_part_of_its_places_is_corrupt(name):
    wrong = entry_columns.from_segments(ENTRIES).drop_columns([name])
    with pytest.raises(errors.Corrupt):
        checked(wrong)


@pytest.mark.parametrize("name", ["slice_first", "slice_last", "slice_level"])
def test_a_damaged_spill_is_corrupt(name):
    table = spill_columns.to_spill([add_of(entry) for entry in ENTRIES], [])
    with pytest.raises(errors.Corrupt):
        spill_columns.from_spill(read_back(damaged(table, name, [None, 1, 1, 1])), 9)


@pytest.mark.parametrize("keyframe_commits", ["1", "64"])
def test_places_come_back_from_the_log(keyframe_commits, monkeypatch):
    monkeypatch.setattr("eventlog.log.spills.SPILL_BYTES", 300)
    table = create(
        key="name", granularity="all", buckets=8, properties={"keyframe_commits": keyframe_commits}
    )
    for bucket in range(8):
        place = Slice("log", bucket, bucket, None, None, 0)
        adds = [
            Add(table.clock.random_id(), "all", 0, 1, 9, HASH, 1, slice=place)
            for _ in range(bucket + 1)
        ]
        commit(table, *adds, operation="upsert")
    found = live(reopen(table.store).session.head())
    for s in found:
        bucket = s.version - 1
        assert s.slice == Slice("log", bucket, bucket, s.version, s.version, 0, s.partition)
    assert len(found) == 36
