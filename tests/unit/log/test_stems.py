"""Stems of key frames: what is read and written of them, and what is noticed."""

import logging

import msgspec
import pyarrow as pa
import pytest
from support.builders import add, commit, create, drop_of, reopen, replace_object, replaced

from eventlog import errors
from eventlog.format import codec, keys
from eventlog.format.frames import stem_bytes
from eventlog.log.diff import diff
from eventlog.model.actions import Drop
from eventlog.model.entries import ColumnStats
from eventlog.model.records import Leaf
from eventlog.state import keyframe
from eventlog.state.pieces.stems import check_stem, cut_stems, stem_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

DAYS = [f"2013-{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 13)]
SIZES = {
    "INLINE_SEGMENTS": 2,
    "LEAF_TARGET": 1,
    "LEAF_SMALL": 0,
    "ROOT_LEAVES": 6,
    "STEM_TARGET": 4,
    "STEM_SMALL": 2,
}


@pytest.fixture
def table(monkeypatch):
    """A leaf for each of 24 days, in six stems of four; the head is the version of the root."""
    for name, value in SIZES.items():
        monkeypatch.setattr(keyframe, name, value)
    made = create(MemoryStore(), properties={"keyframe_commits": "1000"})
    commit(made, *(add(made, day, stats=(bounds(day),)) for day in DAYS))
    made.write_keyframe()
    assert [stem.leaves for stem in made.session.head().base.stems] == [4] * 6
    return made


def later(table, day):
    """An add that comes after the entries of its day in the order of leaves."""
    return replaced(add(table, day), id=f"{2**128 - 99 + table.session.head().version:032x}")


def bounds(day):
    number = DAYS.index(day) if day in DAYS else 99
    return ColumnStats(3, number * 10, number * 10 + 9, 0)


def measured(table, ask):
    """What a fresh handle answers, and the requests that it sends for that."""
    counting = CountingStore(table.store)
    head = reopen(counting).session.head()
    with counting.measure() as counts:
        found = ask(head)
    return found, counts


def test_a_day_is_one_stem_and_its_leaf(table):
    found, counts = measured(table, lambda head: head.segments(chunks=[DAYS[9]]))
    assert [segment.chunk for segment in found] == [DAYS[9]]
    assert (counts.get, counts.total) == (2, 2)


def test_statistics_leave_out_stems(table):
    found, counts = measured(table, lambda head: head.segments(where="value >= 231.0"))
    assert [segment.chunk for segment in found] == []  # ordered bits of floats are larger
    assert counts.total == 0
    plan = table.session.head().segments(where="value < 0.0 or at < '2013-01-02'")
    assert [segment.chunk for segment in plan] == [DAYS[0]]


def test_all_entries_are_those_of_all_stems(table):
    found, counts = measured(table, lambda head: head.segments())
    assert [segment.chunk for segment in found] == DAYS
    assert counts.total == 6 + 24


def test_a_segment_is_looked_up_in_one_stem_and_one_leaf(table):
    wanted = table.session.head().segments()[13]
    found, counts = measured(table, lambda head: head.live([Drop(wanted.id, wanted.chunk, "")]))
    assert found == {wanted.id: wanted}
    assert counts.total == 2


def test_an_id_that_is_live_below_any_stem_cannot_be_added_again(table):
    known = table.session.head().segments()[20]
    copied = replaced(add(table, DAYS[2]), id=known.id)
    with pytest.raises(errors.CommitConflict):
        commit(reopen(table.store), copied)


def test_a_key_frame_after_a_day_writes_a_leaf_a_stem_and_a_root(table):
    before, stored = table.session.head().base, {row.key for row in table.store.list("")}
    commit(table, later(table, DAYS[9]))
    counting = CountingStore(table.store)
    writer = reopen(counting)
    writer.session.head()
    with counting.measure() as counts:
        writer.write_keyframe()
    root = writer.session.head().base
    (stem,) = (stem for stem in root.stems if stem not in before.stems)
    assert (stem.leaves, stem.segments) == (4, 5)
    (leaf,) = (leaf for leaf in writer.session.head().leaves() if leaf.segments == 2)
    new = {row.key for row in table.store.list("")} - stored - {keys.commit_key(2)}
    assert new == {*map(keys.piece_key, (stem, leaf)), keys.keyframe_key(2)}
    assert (counts.put, counts.get) == (3, 2 + 2)  # stem and leaf; two looks at the log


def test_a_writer_reads_no_stem_again_that_it_wrote(table):
    counting = CountingStore(table.store)
    writer = reopen(counting)
    for _ in range(2):
        commit(writer, later(writer, DAYS[9]))
        writer.write_keyframe()
    commit(writer, later(writer, DAYS[9]))
    with counting.measure() as counts:
        writer.write_keyframe()
    assert (counts.put, counts.get) == (3, 2)


def test_few_leaves_stand_in_the_root_again(table):
    commit(table, add(table, DAYS[0]))
    gone = table.session.head().segments()[3:]
    commit(table, *map(drop_of, gone), operation="drop")
    table.write_keyframe()  # what is left of stems is joined
    assert table.session.head().base.stems is not msgspec.UNSET
    commit(table, add(table, DAYS[0]))
    table.write_keyframe()
    root = table.session.head().base
    assert root.stems is msgspec.UNSET
    assert [leaf.segments for leaf in root.leaves] == [3, 1]
    commit(table, *map(drop_of, table.session.head().segments()), operation="drop")
    table.write_keyframe()
    root = table.session.head().base
    assert (root.segments, root.leaves, root.stems) == ((), (), msgspec.UNSET)


@pytest.mark.parametrize("stems", [0, 1])
def test_few_entries_stand_in_the_root_again(table, monkeypatch, stems):
    monkeypatch.setattr(keyframe, "ROOT_LEAVES", SIZES["ROOT_LEAVES"] if stems else 100)
    commit(table, later(table, DAYS[9]))
    table.write_keyframe()
    assert (table.session.head().base.stems is not msgspec.UNSET) == stems
    segments = table.session.head().segments()
    kept = [segments[0], segments[-1]]  # of a leaf that does not change, each
    commit(table, *map(drop_of, segments[1:-1]), operation="drop")
    table.write_keyframe()
    root = table.session.head().base
    assert (root.segments, root.leaves, root.stems) == (tuple(kept), (), msgspec.UNSET)
    found, counts = measured(table, lambda head: head.segments())
    assert found == kept
    assert counts.get == 0  # beside the commit and the root
    commit(table, add(table, DAYS[5]))
    table.write_keyframe()
    assert [leaf.segments for leaf in table.session.head().base.leaves] == [1, 1, 1]


def test_a_stem_of_which_nothing_is_left_is_not_named(table):
    commit(table, *map(drop_of, table.session.head().segments()[4:8]), operation="drop")
    before = table.session.head().base.stems
    table.write_keyframe()
    assert table.session.head().base.stems == (before[0], *before[2:])


def test_no_key_frame_is_written_whose_stem_readers_would_refuse(table, monkeypatch):
    version, frames = table.session.head().version, [*table.store.list("_frames/")]
    commit(table, later(table, DAYS[9]))
    monkeypatch.setattr(codec, "MAX_KEYFRAME_BYTES", 600)
    with pytest.raises(errors.InvalidInput, match="stem"):
        table.write_keyframe()
    assert [*table.store.list("_frames/")] == frames
    monkeypatch.undo()
    assert len(reopen(table.store).session.head().segments()) == 25
    assert reopen(table.store).session.head().base.version == version


def lost(table, key, damage):
    body = table.store.get(key)
    if damage == "missing":
        table.store.delete([key])
    elif damage == "foreign":  # a stem, but another one
        other = table.session.head().base.stems[0]
        replace_object(table.store, key, table.store.get(keys.stem_key(other.sha256)))
    else:
        replace_object(table.store, key, body[:-3])


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("damage", ["missing", "cut", "foreign"])
def test_p1_an_unusable_stem_is_stepped_over(table, damage, caplog):
    commit(table, later(table, DAYS[9]))
    wanted = table.session.head().segments()
    lost(table, keys.stem_key(table.session.head().base.stems[2].sha256), damage)
    other = reopen(table.store)
    assert [s.chunk for s in other.session.head().segments(chunks=[DAYS[1]])] == [DAYS[1]]
    with caplog.at_level(logging.WARNING):
        assert other.session.head().segments() == wanted
    assert caplog.text.count("is unusable") == 1
    head = other.session.head()
    moved, *_ = other.session.log.load_touched(head)
    assert moved.base != head.base


def test_two_versions_are_compared_below_the_stems_that_differ(table):
    first = table.session.head().version
    commit(
        table, later(table, DAYS[9]), drop_of(table.session.head().segments()[17]), operation="drop"
    )
    table.write_keyframe()
    counting = CountingStore(table.store)
    log = reopen(counting).session.log
    before, after = log.snapshot(first), log.snapshot(table.session.head().version)
    on = after.on_keyframe(log.key_frames.root(after.version))
    before = before.on_keyframe(log.key_frames.root(first))
    with counting.measure() as counts:
        found = diff(before, on)
    assert [s.chunk for s in found.added] == [DAYS[9]]
    assert [s.chunk for s in found.dropped] == [DAYS[17]]
    assert counts.get == 4 + 3  # two stems of each; both forms of one leaf, one form of the other


@pytest.mark.hazard("P1")
def test_p1_a_difference_is_right_where_a_leaf_turns_out_to_be_lost(table):
    """What one of two versions shares with a key frame that it cannot use is compared again."""
    first = table.session.head().version
    gone = table.session.head().segments()[9]
    commit(table, drop_of(gone), operation="drop")
    table.write_keyframe()
    log = reopen(table.store).session.log
    before, after = (
        log.snapshot(v).on_keyframe(log.key_frames.root(v)) for v in (first, first + 1)
    )
    (leaf,) = (leaf for leaf in before.leaves() if leaf.first.startswith(DAYS[9]))
    table.store.delete([keys.frame_key(leaf.sha256)])
    found = diff(before, after)
    assert (found.added, found.dropped) == ([], [gone])


def test_an_empty_list_of_stems_and_stems_beside_leaves_are_refused(table):
    root = table.session.head().base
    leaves = table.session.log.key_frames.all_leaves(root)
    entry = table.session.head().segments()[:1]
    for wrong in (
        {"stems": ()},
        {"leaves": (leaves[0],)},
        {"segments": tuple(entry)},
        {"stems": (root.stems[1], root.stems[0], *root.stems[2:])},
    ):
        body = codec.encode_keyframe(msgspec.structs.replace(root, **wrong))
        with pytest.raises(errors.Corrupt):
            codec.decode_keyframe(body, root.version)
    codec.decode_keyframe(codec.encode_keyframe(root), root.version)


def leaf(number, **changes):
    made = Leaf(
        sha256=f"{number:064x}", size=10, first=f"2013-01-{number + 1:02d}/{number:032x}",
        end=1_357_000_000_000 + (number + 2) * 86_400_000, segments=3, rows=30, bytes=300,
        hash_sum=f"{2**255 + number:064x}", stats=(ColumnStats(1, number, number + 5, 1),),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def test_what_a_root_says_of_a_stem_follows_from_its_leaves():
    stats = (ColumnStats(1, None, None, 30), ColumnStats(2, "a", "b", 0))
    texts = (ColumnStats(1, -4, 2, 0), ColumnStats(2, "0", None, 0), ColumnStats(7, 1, 1, 0))
    leaves = [leaf(0, stats=stats), leaf(1, deleted=4, end=10**14), leaf(2, stats=texts)]
    body = stem_bytes.to_stem(leaves)
    stem = stem_of(leaves, codec.sha256(body), len(body))
    assert (stem.leaves, stem.segments, stem.rows, stem.bytes, stem.deleted) == (3, 9, 90, 900, 4)
    assert (stem.first, stem.end) == (leaves[0].first, 10**14)
    assert int(stem.hash_sum, 16) == (3 * 2**255 + 3) % 2**256
    assert stem.stats == (ColumnStats(1, -4, 6, 31),)
    assert check_stem(stem, body) == tuple(leaves)
    kinds = [leaf(0), leaf(1, stats=(ColumnStats(1, "a", "b", 0),))]
    assert stem_of(kinds, "0" * 64, 1).stats == ()
    nothing = [leaf(n, stats=(ColumnStats(1, None, None, 30),)) for n in range(2)]
    assert stem_of(nothing, "0" * 64, 1).stats == (ColumnStats(1, None, None, 60),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"leaves": 4}, {"first": "2013-01-01/" + "9" * 32}, {"end": 10**14}, {"segments": 10},
        {"rows": 91}, {"bytes": 1}, {"hash_sum": "0" * 64}, {"stats": ()}, {"deleted": 1},
        {"size": 1}, {"sha256": "0" * 64}, {"stats": (ColumnStats(1, 0, 99, 3),)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_a_stem_of_which_the_root_says_something_else_is_refused(wrong):
    leaves = [leaf(n) for n in range(3)]
    body = stem_bytes.to_stem(leaves)
    right = stem_of(leaves, codec.sha256(body), len(body))
    assert check_stem(right, body)
    with pytest.raises(errors.Corrupt):
        check_stem(msgspec.structs.replace(right, **wrong), body)


def compressed(text):
    return pa.compress(text, "zstd", asbytes=True)


def test_what_is_no_stem_is_refused_within_bounded_memory(monkeypatch):
    text = codec.encode_leaves([leaf(0), leaf(1)])
    assert stem_bytes.from_stem(compressed(text)) == (leaf(0), leaf(1))
    malformed = [leaf(0, segments=0), leaf(0, first="2013/x"), leaf(0, hash_sum="x")]
    bodies = [
        *(text, b"", compressed(text)[:-3], compressed(text + b" "), compressed(b"{}")),
        compressed(codec.encode_leaves([leaf(1), leaf(0)])),
        *(compressed(codec.encode_leaves([one])) for one in malformed),
    ]
    for body in bodies:
        with pytest.raises(errors.Corrupt):
            stem_bytes.from_stem(body)
    monkeypatch.setattr(codec, "MAX_KEYFRAME_BYTES", 2**16)
    with pytest.raises(errors.Corrupt, match="65536"):
        stem_bytes.from_stem(compressed(b"[" * 2**28))


@pytest.mark.parametrize("count", [1, 499, 501, 749, 751, 1249, 1250, 1251, 2000])
def test_stems_have_about_the_same_number_of_leaves(count):
    one = leaf(0)
    objects, made = {}, {}
    stems = cut_stems([one] * count, 500, objects, made)
    sizes = [stem.leaves for stem in stems]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 750
    assert len(sizes) == max(1, round(count / 500))
    assert {keys.stem_key(stem.sha256) for stem in stems} == {*objects}
    assert {stem.sha256: stem.leaves for stem in stems} == {n: len(of) for n, of in made.items()}
