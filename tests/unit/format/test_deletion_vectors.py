"""Deletion vectors: their bytes, and entries with them in leaves, spills and commits."""

import msgspec
import pyarrow as pa
import pytest
from fuzz.targets import VECTOR_ROWS, stored_vector
from msgspec import UNSET
from pyroaring import BitMap64
from support.builders import HASH, commit, create, events, live, reopen, replaced
from support.deleting import delete_rows, deleted_positions, vector_at

from eventlog import errors
from eventlog.clock import ManualClock
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import (
    decode_vector,
    encode_bitmap,
    has_bitmaps,
    join_bitmaps,
    positions_in_entry,
    vector_hash,
)
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns
from eventlog.format.wellformed import check_delta
from eventlog.log import spills
from eventlog.model.actions import Add, DeleteRows, Drop
from eventlog.model.entries import ColumnStats, Segment, Spill, Vector
from eventlog.segments.vectors import VectorReader
from eventlog.staging.vector_object import stage_vectors, stored_bytes
from eventlog.state import keyframe
from eventlog.state.delta import add_of, drop_of
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

KEY = "data/000000000000/all/" + "0" * 32 + ".parquet"
SETS = [
    [0],
    [0, 1, 2, 3, 9, 65_535, 65_536],
    range(5_000),
    range(0, 20_000, 2),
    [2**32 - 1, 2**32, 2**33 + 7, 2**40],
    [*range(0, 10_000, 3), *range(70_000, 90_000), 2**32 + 1],
]


@pytest.mark.parametrize("positions", SETS, ids=range(len(SETS)))
def test_positions_survive(positions):
    bitmap = encode_bitmap(BitMap64(positions))
    found = positions_in_entry(Vector(len(positions), bitmap), max(positions) + 1)
    assert list(found) == sorted(positions)


def test_an_object_has_bitmaps_one_after_another():
    bitmaps = [encode_bitmap(BitMap64(positions)) for positions in SETS]
    body, places = join_bitmaps(3, "a" * 32, bitmaps)
    assert body == b"".join(bitmaps)
    assert {(place.epoch, place.object) for place in places} == {(3, "a" * 32)}
    parts = [body[place.offset : place.offset + place.size] for place in places]
    assert parts == bitmaps
    assert [place.hash for place in places] == [*map(codec.sha256, bitmaps)]
    assert has_bitmaps(body, places)
    assert not has_bitmaps(body[:-1], places)
    assert not has_bitmaps(b"?" + body[1:], places[:1])


def test_a_vector_has_one_hash_wherever_its_bitmap_stands():
    bitmap, stored = stored_vector([1, 5])
    assert vector_hash(Vector(2, bitmap)) == vector_hash(stored) == codec.sha256(bitmap)


def test_every_bit_of_a_stored_vector_is_compared():
    blob, vector = stored_vector([0, 3, 70_000, 70_001, 70_002, 70_003])
    for at in range(len(blob)):
        for bit in range(8):
            damaged = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
            with pytest.raises(errors.DataLoss, match="not the one that the entry describes"):
                decode_vector(damaged, vector, VECTOR_ROWS)
    for damaged in (b"", blob[:-1], blob + b"\0"):
        with pytest.raises(errors.DataLoss, match="not the one that the entry describes"):
            decode_vector(damaged, vector, VECTOR_ROWS)


def test_a_writer_s_mistakes_are_data_loss_and_no_rows():
    good = BitMap64([1, 5]).serialize()
    broken = {
        "does not decode": [b"", good[:-1], b"\xff" * 20, b"\0" * 7],
        "behind its bitmap": [good + b"\0", BitMap64().serialize() + b"\0"],
        "positions": [
            BitMap64().serialize(),
            BitMap64([1]).serialize(),
            BitMap64([1, 10]).serialize(),
        ],
    }
    for why, bitmaps in broken.items():
        for bitmap in bitmaps:
            _, (place,) = join_bitmaps(1, "a" * 32, [bitmap])
            with pytest.raises(errors.DataLoss, match=why):
                positions_in_entry(Vector(2, bitmap), 10)
            with pytest.raises(errors.DataLoss, match=why):
                decode_vector(bitmap, Vector(2, stored=place), 10)
    assert list(positions_in_entry(Vector(2, good), 6)) == [1, 5]
    with pytest.raises(errors.DataLoss, match="positions"):
        positions_in_entry(Vector(2, good), 5)


def test_the_key_of_an_object_of_vectors_is_that_of_no_segment():
    _, (place,) = join_bitmaps(3, "a" * 32, [b"bitmap"])
    key = keys.vectors_key(place)
    assert key == f"data/000000000003/vectors/{'a' * 32}.roaring"
    assert keys.parse_vectors_key(key) == (3, "a" * 32)
    assert keys.parse_segment_key(key) is None
    for other in (KEY, key + "x", key.replace("/a", "/A"), key.replace("vectors", "all")):
        assert keys.parse_vectors_key(other) is None
    for broken in ({"epoch": keys.MAX_VERSION + 1}, {"object": "../x"}, {"object": "A" * 32}):
        with pytest.raises(errors.Corrupt):
            keys.vectors_key(replaced(place, **broken))


SMALL, NAMED, LARGE = range(0, 90, 2), range(0, 200, 2), range(0, 4_000, 2)


@pytest.mark.parametrize(
    ("given", "in_log"),
    [
        ([SMALL, LARGE, NAMED, LARGE], [True, False, True, False]),
        ([SMALL, NAMED] * 3, [True] * 6),
        ([NAMED] * 400, [False] * 400),  # together they are too many bytes
        ([range(30), NAMED] * 400, [True, False] * 400),
        ([LARGE], [False]),
        ([], []),
    ],
)
def test_small_vectors_stand_in_the_log_and_the_others_in_one_object(given, in_log):
    store, clock = MemoryStore(), ManualClock()
    positions = [BitMap64(one) for one in given]
    vectors = stage_vectors(store, clock, 7, positions)
    assert [one.stored is UNSET for one in vectors] == in_log
    objects = list(store.list(""))
    assert len(objects) == (False in in_log)
    assert sum(row.size for row in objects) == stored_bytes(positions)
    read = VectorReader(store, 8, [entry(n, v, rows=4_000) for n, v in enumerate(vectors)])
    found = [read.deleted(entry(n, v, rows=4_000)) for n, v in enumerate(vectors)]
    assert found == positions


# --- entries ---


def vector(rows=2, **changes):
    return vector_at(rows, 1, **changes)


def entry(number, given=UNSET, version=5, rows=9):
    stats = (ColumnStats(1, number, number + 1, 0),)
    return Segment(
        f"{number:032x}", "all", 0, version, number, rows, 90, HASH, 1, stats, vector=given
    )


IN_LOG = Vector(3, b"\0bitmap\xff")
ENTRIES = [entry(0), entry(1, vector()), entry(2, vector(5, offset=48)), entry(3, IN_LOG)]
PLACE = entry_columns.STORED


def read_back(table):
    spilled = "drop" in table.column_names
    return frame_bytes.from_parquet(frame_bytes.to_parquet(table), table.num_rows, spilled=spilled)


def with_values(table, name, values):
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values, table.schema.field(name).type))


def test_a_leaf_keeps_every_vector():
    table = read_back(entry_columns.from_segments(ENTRIES))
    assert entry_columns.to_segments(table) == ENTRIES
    assert entry_columns.hashes_hold(table)
    assert entry_columns.deleted_sum(table) == 10
    assert entry_columns.with_live_rows(table).column("rows").to_pylist() == [9, 7, 4, 6]
    plain = read_back(entry_columns.from_segments([ENTRIES[0], entry(3)]))
    assert not {*entry_columns.VECTOR.names} & {*plain.column_names}
    assert entry_columns.deleted_sum(plain) == 0


@pytest.mark.parametrize(
    ("row", "name", "value"),
    [(2, name, None) for name in ("vector_rows", *PLACE)]
    + [(3, name, None) for name in ("vector_rows", "vector_bitmap")]
    + [(2, "vector_bitmap", b"x"), (3, "vector_epoch", 1), (3, "vector_bitmap", b"")]
    + [(0, "vector_bitmap", b"x"), (0, "vector_rows", 1), (0, "vector_epoch", 1)]
    + [(n, "vector_rows", rows) for n in (2, 3) for rows in (0, 9, 10)]
    + [(2, "vector_size", 0), (2, "vector_offset", -1)]
    + [(2, "vector_epoch", -1), (2, "vector_epoch", keys.MAX_VERSION + 1)],
)
def test_a_leaf_with_a_broken_vector_is_refused(row, name, value):
    table = entry_columns.from_segments(ENTRIES)
    values = table.column(name).to_pylist()
    with pytest.raises(errors.Corrupt):
        read_back(with_values(table, name, [*values[:row], value, *values[row + 1 :]]))
    read_back(with_values(table, name, values))


def test_a_leaf_with_two_bitmaps_of_a_vector_is_refused():
    table = entry_columns.from_segments(ENTRIES)
    for name in PLACE:
        values = table.column(name).to_pylist()
        table = with_values(table, name, [*values[:3], values[2]])
    with pytest.raises(errors.Corrupt, match="incomplete deletion vectors"):
        read_back(table)


def test_columns_of_vectors_have_their_place():
    table = entry_columns.from_segments(ENTRIES)
    columns = [table.schema.field(n).name for n in range(table.num_columns)]
    first = columns.index("vector_rows")
    moved = table.select([*columns[:first], *columns[first + 7 :], *columns[first : first + 7]])
    assert entry_columns.to_segments(read_back(moved)) == ENTRIES  # statistics stand anywhere
    swapped = [*columns]
    swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
    for wrong in (table.select(swapped), table.drop_columns(["vector_bitmap"])):
        with pytest.raises(errors.Corrupt):
            read_back(wrong)


def deleted(number, given=None):
    return DeleteRows(f"{number:032x}", "all", HASH, given or vector())


def test_a_spill_keeps_deletes_after_adds_and_drops():
    adds = [add_of(one) for one in ENTRIES]
    drops = [Drop(f"{9:032x}", "all", HASH)]
    deletes = [deleted(7), deleted(4, vector(3, offset=99)), deleted(6, IN_LOG)]
    table = spill_columns.to_spill(adds, drops, deletes=deletes)
    found = spill_columns.from_spill(read_back(table), 8, actions=True)
    assert [add_of(one) for one in found[0]] == adds
    assert found[1:] == (drops, deletes)
    alone = spill_columns.to_spill([], [], deletes=deletes)
    assert spill_columns.from_spill(read_back(alone), 8) == ([], [], deletes)
    order = [*range(4), 5, 4, 6, 7]
    with pytest.raises(errors.Corrupt, match="after a delete"):
        spill_columns.from_spill(read_back(table.take(order)), 8)


def test_a_delta_has_no_deletes_of_rows():
    t = create()
    commit(t, Add("1" * 32, "all", 0, 9, 90, HASH, 1))
    body = frame_bytes.to_parquet(spill_columns.to_spill([], [], deletes=[deleted(1)]))
    stored_commit = t.session.log.read(1)[0]
    spill = Spill(codec.sha256(body), len(body), 0, 0, 1)
    delta = replaced(stored_commit.delta, adds=(), drops=(), spill=spill)
    changed = replaced(stored_commit, delta=delta)
    fetch = lambda _: frame_bytes.from_parquet(body, 1, spilled=True)
    with pytest.raises(errors.Corrupt, match="deletes of rows"):
        spills.delta_of(changed, fetch)
    for counts in ((0, 1, UNSET), (0, 0, 2), (1, 0, UNSET)):
        other = replaced(changed, delta=replaced(delta, spill=Spill(spill.sha256, 1, *counts)))
        with pytest.raises(errors.Corrupt, match="states"):
            spills.delta_of(other, fetch)


def test_an_older_entry_comes_back_with_a_vector_only():
    old, shrunk = entry(1, version=2), entry(1, vector(), version=2)
    check_delta([shrunk], [drop_of(old)], 3, 5)
    for adds, drops in (
        ([shrunk], []),
        ([old], [drop_of(shrunk)]),
        ([shrunk], [replaced(drop_of(old), id="9" * 32)]),
        ([replaced(shrunk, version=6)], [drop_of(old)]),
    ):
        with pytest.raises(errors.Corrupt):
            check_delta(adds, drops, 3, 5)


@pytest.mark.parametrize(
    "broken",
    [
        *(vector(**one) for one in ({"object": "B" * 32}, {"hash": "0"}, {"size": 0})),
        *(vector(rows) for rows in (0, 9)),
        *(Vector(rows, b"bitmap") for rows in (0, 9)),
        *(Vector(2, b""), Vector(2), replaced(vector(), bitmap=b"bitmap")),
    ],
)
def test_an_entry_with_a_broken_vector_is_refused(broken):
    keys.check_entry(ENTRIES[1])
    keys.check_entry(ENTRIES[3])
    with pytest.raises(errors.Corrupt):
        keys.check_entry(replaced(ENTRIES[1], vector=broken))


# --- key frames of tables ---


@pytest.mark.parametrize("in_log", [False, True])
@pytest.mark.parametrize("inline", [0, 100])
def test_key_frames_have_the_deleted_rows(monkeypatch, inline, in_log):
    monkeypatch.setattr(keyframe, "INLINE_SEGMENTS", inline)
    t = create(properties={"keyframe_commits": "1000"})
    append(t, events(12, days=3))
    first, second, _ = live(t.refresh())
    delete_rows(t, {first.id: [0], second.id: [1, 3]}, in_log=in_log)
    t.write_keyframe()
    root = t.session.log.key_frames.root(2)
    assert root.features == ("vectors",)
    assert (root.totals.rows, root.totals.deleted) == (9, 3)
    if root.leaves:
        assert [(leaf.rows, leaf.deleted) for leaf in root.leaves] == [(12, 3)]
    else:
        assert sum(not isinstance(s.vector, msgspec.UnsetType) for s in root.segments) == 2
    again = reopen(t.store).session.head()
    assert live(again) == live(t.refresh())
    assert [*deleted_positions(t, live(again)[1])] in ([0], [1, 3])
    before = codec.encode_keyframe(root)
    for broken in (
        replaced(root, features=()),
        replaced(root, totals=replaced(root.totals, deleted=UNSET)),
        replaced(root, totals=replaced(root.totals, deleted=4)),
        replaced(root, totals=replaced(root.totals, rows=12)),
    ):
        with pytest.raises(errors.Corrupt):
            keyframe.check_key_frame(codec.decode_keyframe(codec.encode_keyframe(broken), 2))
    keyframe.check_key_frame(codec.decode_keyframe(before, 2))
    if root.leaves:
        (leaf,) = root.leaves
        body = t.store.get(keys.frame_key(leaf.sha256))
        keyframe.check_leaf(leaf, body)
        for wrong in (4, UNSET):
            with pytest.raises(errors.Corrupt):
                keyframe.check_leaf(replaced(leaf, deleted=wrong), body)
