"""Deletion vectors: their bytes, and entries with them in leaves, spills and commits."""

import json
import struct
import zlib

import msgspec
import pyarrow as pa
import pytest
from fuzz.targets import VECTOR_ROWS, vector_blob
from msgspec import UNSET
from pyroaring import BitMap64
from support.builders import HASH, commit, create, events, live, reopen, replaced
from support.deleting import delete_rows, deleted_positions

from eventlog import errors
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import decode_vector, encode_vectors, united
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns
from eventlog.format.wellformed import check_delta
from eventlog.log import spills
from eventlog.model.actions import Add, DeleteRows, Drop
from eventlog.model.entries import ColumnStats, Segment, Spill, Vector
from eventlog.state import keyframe
from eventlog.state.delta import add_of, drop_of
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


def stored(*given):
    """The bytes of an object of vectors, and the entries' parts."""
    named = [(KEY.replace("0.parquet", f"{n}.parquet"), BitMap64(g)) for n, g in enumerate(given)]
    return encode_vectors(3, "a" * 32, named)


def blob_of(body, vector):
    return body[vector.offset : vector.offset + vector.size]


def framed(inner, magic=b"\xd1\xd3\x39\x64"):
    """A blob around the bytes of a bitmap, with the length and the checksum that they have."""
    whole = magic + inner
    return struct.pack(">I", len(whole)) + whole + struct.pack(">I", zlib.crc32(whole))


def described(blob, rows):
    """The entry's part of a blob."""
    return Vector(3, "a" * 32, 4, len(blob), rows, codec.sha256(blob))


@pytest.mark.parametrize("positions", SETS, ids=range(len(SETS)))
def test_positions_survive(positions):
    body, (vector,) = stored(positions)
    found = decode_vector(blob_of(body, vector), vector, max(positions) + 1)
    assert list(found) == sorted(positions)
    assert (vector.rows, vector.epoch, vector.object) == (len(positions), 3, "a" * 32)


def test_the_object_is_a_puffin_file_of_its_vectors():
    body, vectors = stored(*SETS)
    assert body[:4] == body[-4:] == b"PFA1"
    size, flags = struct.unpack("<I4s", body[-12:-4])
    assert flags == b"\0\0\0\0"
    start = len(body) - 12 - size
    assert body[start - 4 : start] == b"PFA1"
    listed = json.loads(body[start : start + size])["blobs"]
    end = 4
    for n, (blob, vector, positions) in enumerate(zip(listed, vectors, SETS, strict=True)):
        assert blob == {
            "type": "deletion-vector-v1",
            "fields": [2147483645],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": end,
            "length": vector.size,
            "properties": {
                "cardinality": str(len(positions)),
                "referenced-data-file": KEY.replace("0.parquet", f"{n}.parquet"),
            },
        }
        assert vector.offset == end
        end += vector.size
    assert end + 4 == start


def test_vectors_are_united():
    assert list(united([BitMap64([1, 5]), BitMap64([5, 2**33]), BitMap64()])) == [1, 5, 2**33]


def test_every_bit_of_a_vector_is_compared():
    blob, vector = vector_blob([0, 3, 70_000, 70_001, 70_002, 70_003])
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
        "another frame": [
            framed(good, magic=b"\xd1\xd3\x39\x65"),
            b"\0\0\0\x01" + framed(good)[4:],
            framed(good)[:-4] + b"\0\0\0\0",
            b"",
            b"\0" * 7,
        ],
        "does not decode": [framed(b""), framed(good[:-1]), framed(b"\xff" * 20)],
        "positions": [framed(BitMap64([1]).serialize()), framed(BitMap64([1, 10]).serialize())],
    }
    for why, blobs in broken.items():
        for blob in blobs:
            with pytest.raises(errors.DataLoss, match=why):
                decode_vector(blob, described(blob, 2), 10)
    blob = framed(good)
    assert list(decode_vector(blob, described(blob, 2), 6)) == [1, 5]
    with pytest.raises(errors.DataLoss, match="positions"):
        decode_vector(blob, described(blob, 2), 5)


def test_the_key_of_an_object_of_vectors_is_that_of_no_segment():
    _, (vector,) = stored([1])
    key = keys.vectors_key(vector)
    assert key == f"data/000000000003/vectors/{'a' * 32}.puffin"
    assert keys.parse_vectors_key(key) == (3, "a" * 32)
    assert keys.parse_segment_key(key) is None
    for other in (KEY, key + "x", key.replace("a", "A"), key.replace("vectors", "all")):
        assert keys.parse_vectors_key(other) is None
    for broken in ({"epoch": keys.MAX_VERSION + 1}, {"object": "../x"}, {"object": "A" * 32}):
        with pytest.raises(errors.Corrupt):
            keys.vectors_key(replaced(vector, **broken))


# --- entries ---


def vector(rows=2, **changes):
    return replaced(Vector(1, "b" * 32, 4, 44, rows, HASH), **changes)


def entry(number, given=UNSET, version=5):
    stats = (ColumnStats(1, number, number + 1, 0),)
    return Segment(f"{number:032x}", "all", 0, version, number, 9, 90, HASH, 1, stats, vector=given)


ENTRIES = [entry(0), entry(1, vector()), entry(2, vector(8, offset=48)), entry(3)]


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
    assert entry_columns.with_live_rows(table).column("rows").to_pylist() == [9, 7, 1, 9]
    plain = read_back(entry_columns.from_segments([ENTRIES[0], ENTRIES[3]]))
    assert not {*entry_columns.VECTOR.names} & {*plain.column_names}
    assert entry_columns.deleted_sum(plain) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, None) for name in entry_columns.VECTOR.names]
    + [("vector_rows", 9), ("vector_rows", 10), ("vector_rows", 0), ("vector_size", 0)]
    + [("vector_epoch", -1), ("vector_epoch", keys.MAX_VERSION + 1), ("vector_offset", -1)],
)
def test_a_leaf_with_a_broken_vector_is_refused(name, value):
    table = entry_columns.from_segments(ENTRIES)
    values = table.column(name).to_pylist()
    with pytest.raises(errors.Corrupt):
        read_back(with_values(table, name, [*values[:2], value, values[3]]))
    read_back(with_values(table, name, values))


def test_columns_of_vectors_have_their_place():
    table = entry_columns.from_segments(ENTRIES)
    columns = [table.schema.field(n).name for n in range(table.num_columns)]
    first = columns.index("vector_epoch")
    moved = table.select([*columns[:first], *columns[first + 6 :], *columns[first : first + 6]])
    assert entry_columns.to_segments(read_back(moved)) == ENTRIES  # statistics stand anywhere
    swapped = [*columns]
    swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
    for wrong in (table.select(swapped), table.drop_columns(["vector_hash"])):
        with pytest.raises(errors.Corrupt):
            read_back(wrong)


def deleted(number, given=None):
    return DeleteRows(f"{number:032x}", "all", HASH, given or vector())


def test_a_spill_keeps_deletes_after_adds_and_drops():
    adds = [add_of(one) for one in ENTRIES]
    drops = [Drop(f"{9:032x}", "all", HASH)]
    deletes = [deleted(7), deleted(4, vector(3, offset=99))]
    table = spill_columns.to_spill(adds, drops, deletes=deletes)
    found = spill_columns.from_spill(read_back(table), 8, actions=True)
    assert [add_of(one) for one in found[0]] == adds
    assert found[1:] == (drops, deletes)
    alone = spill_columns.to_spill([], [], deletes=deletes)
    assert spill_columns.from_spill(read_back(alone), 8) == ([], [], deletes)
    order = [*range(4), 5, 4, 6]
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
    "broken", [{"object": "B" * 32}, {"hash": "0"}, {"size": 0}, {"rows": 0}, {"rows": 9}]
)
def test_an_entry_with_a_broken_vector_is_refused(broken):
    keys.check_entry(ENTRIES[1])
    with pytest.raises(errors.Corrupt):
        keys.check_entry(replaced(ENTRIES[1], vector=vector(**broken)))


# --- key frames of tables ---


@pytest.mark.parametrize("inline", [0, 100])
def test_key_frames_have_the_deleted_rows(monkeypatch, inline):
    monkeypatch.setattr(keyframe, "INLINE_SEGMENTS", inline)
    t = create(properties={"keyframe_commits": "1000"})
    append(t, events(12, days=3))
    first, second, _ = live(t.refresh())
    delete_rows(t, {first.id: [0], second.id: [1, 3]})
    t.write_keyframe()
    root = t.session.log.key_frames.root(2)
    assert root.features == ("vectors",)
    assert (root.totals.rows, root.totals.deleted) == (9, 3)
    if root.leaves:
        assert [(leaf.rows, leaf.deleted) for leaf in root.leaves] == [(12, 3)]
    else:
        assert sum(not isinstance(s.vector, msgspec.UnsetType) for s in root.segments) == 2
    again = reopen(t.store).head()
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
