"""Rows that are deleted by position are in no answer; without a vector there is no answer.

The model is a dict of the deleted positions of each segment.
"""

import io
import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.builders import (
    DAY_US,
    SCHEMA,
    Spy,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
    replace_object,
    replaced,
)
from support.deleting import delete_rows, deleted_positions

from eventlog import limits
from eventlog.errors import DataLoss, VersionVacuumed
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes
from eventlog.model.actions import Fence, Horizon
from eventlog.readers import count, scan
from eventlog.segments.vectors import without_positions
from eventlog.state import keyframe
from eventlog.state.delta import add_of
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

GROUP_ROWS = 50  # of each row group


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", GROUP_ROWS)


def numbered(count_, day=0, first=0):
    """Rows of a day whose value is their number."""
    numbers = range(first, first + count_)
    at = [day * DAY_US + n for n in range(count_)]
    return pa.table([at, [f"row {n}" for n in numbers], [float(n) for n in numbers]], SCHEMA)


def values(rows):
    return sorted(rows.column("value").to_pylist())


def answers(t, **how):
    """What questions of several kinds are answered."""
    rows = lambda *columns, **more: scan(t, *columns, **more, **how)
    small = pa.Table.from_batches(rows(batch_rows=7).to_batches(), SCHEMA)
    names = rows(["name"], where="value < 90").to_table()
    return {
        "all": values(rows().to_table()),
        "in small batches": values(small),
        "filtered": values(rows(where="value >= 120 AND value < 260").to_table()),
        "by time": values(rows(where="at > '1970-01-01T00:00:00.000070Z'").to_table()),
        "columns": sorted(names.column("name").to_pylist()),
        "no columns": rows([]).to_table().num_rows,
        "count": count(t, **how),
        "filtered count": count(t, where="value >= 120 AND name <> 'row 130'", **how),
    }


@pytest.mark.sample(2, verify=2)
@pytest.mark.parametrize("seed", range(4))
def test_every_answer_leaves_out_the_deleted_rows(small_groups, seed, monkeypatch):
    """Against the same questions to a table that never had the rows."""
    monkeypatch.setattr(keyframe, "INLINE_SEGMENTS", seed % 2 * 100)
    chance = random.Random(seed)
    t = create(properties={"keyframe_commits": str(chance.choice((2, 1000)))})
    append(t, pa.concat_tables([numbered(170, 0), numbered(170, 1, 170), numbered(9, 2, 340)]))
    model = {segment.id: set() for segment in live(t.refresh())}
    bodies = [t.store.get(keys.key_of(segment)) for segment in live(t.session.head())]
    assert max(pq.ParquetFile(io.BytesIO(body)).num_row_groups for body in bodies) == 4
    first = {s.id: int(s.chunk[-2:]) * 170 - 170 for s in live(t.session.head())}
    kept = []
    for _ in range(4):
        picked = {}
        for segment in live(t.refresh()):
            left = sorted({*range(segment.rows)} - model[segment.id])
            most = len(left) - 1
            if most and chance.random() < 0.8:
                start = chance.randrange(most)
                run = left[start : start + chance.choice((1, 5, 60))]
                some = {*run, *chance.sample(left, min(most, chance.choice((0, 1, 9))))}
                picked[segment.id] = sorted(some)[:most]
        if picked:
            version = delete_rows(t, picked, in_log=chance.random() < 0.5)
            for name, positions in picked.items():
                model[name] |= {*positions}
            kept.append((version, {name: {*gone} for name, gone in model.items()}))
    check_sound(t.store)
    for version, gone in kept:
        plain = create(seed=9)
        numbers = [
            n
            for name, start in first.items()
            for n in range(start, start + (9 if start == 340 else 170))
            if n - start not in gone[name]
        ]
        rows = pa.concat_tables([numbered(170, 0), numbered(170, 1, 170), numbered(9, 2, 340)])
        append(plain, rows.filter(pc.is_in(rows["value"], pa.array(numbers, pa.float64()))))
        assert answers(reopen(t.store), version=version) == answers(plain), version


def test_the_totals_and_the_days_count_what_is_left():
    t = create()
    append(t, events(12, days=3))
    first, second, _ = live(t.refresh())
    delete_rows(t, {first.id: [0, 1], second.id: [3]})
    assert t.refresh().totals.rows == count(t) == scan(t).to_table().num_rows == 9
    assert sorted(day.rows for day in t.session.head().chunks()) == sorted([2, 3, 4])
    assert count(t, version=1) == 12


def test_one_object_is_fetched_once_for_all_of_its_segments():
    store = MemoryStore()
    t = create(store)
    append(t, events(60, days=20))
    delete_rows(t, {segment.id: [0] for segment in live(t.refresh())}, in_log=False)
    asked = Counter()

    class Counting(Spy):
        def get(self, key, *, start=0, length=None):
            asked[key.rpartition(".")[2]] += 1
            return super().get(key, start=start, length=length)

    assert scan(reopen(Counting(store))).to_table().num_rows == 40
    assert asked["roaring"] == 1
    asked.clear()
    assert scan(reopen(Counting(store)), where="at < '1970-01-03'").to_table().num_rows == 4
    assert asked == Counter({"roaring": 1, "parquet": 2, "json": asked["json"]})
    asked.clear()
    assert count(reopen(Counting(store))) == 40
    assert not asked["roaring"]


def vectors_of(store):
    return [found.key for found in store.list("data/") if found.key.endswith(".roaring")]


@pytest.fixture
def shrunk():
    """A table of two segments of one day, of each of which rows are deleted."""
    t = create()
    append(t, events(5))
    append(t, events(5, first=5))
    delete_rows(t, {segment.id: [1, 2] for segment in live(t.refresh())})
    return t


SCANS = {
    "all": lambda t: scan(t).to_table(),
    "filtered": lambda t: scan(t, where="value > 1 AND name <> 'x'").to_table(),
    "no columns": lambda t: scan(t, []).to_table(),
    "count": lambda t: count(t, where="value > 1 AND name <> 'x'"),
}


@pytest.mark.parametrize("asked", SCANS)
def test_a_vector_that_is_lost_or_damaged_is_data_loss(shrunk, asked):
    (key,) = vectors_of(shrunk.store)
    body = shrunk.store.get(key)
    first, second = live(shrunk.session.head())
    for damaged in (
        None,
        b"",
        body[: first.vector.stored.size - 1],
        body[:20] + bytes([body[20] ^ 1]) + body[21:],
        body[4:],
    ):
        shrunk.store.delete([key])
        if damaged is not None:
            assert shrunk.store.put_if_absent(key, damaged)
        with pytest.raises(DataLoss, match="deletion vector") as caught:
            SCANS[asked](reopen(shrunk.store))
        assert caught.value.key == key
    replace_object(shrunk.store, key, body)
    SCANS[asked](reopen(shrunk.store))
    assert [*deleted_positions(shrunk, second)] == [1, 2]


def test_the_vector_of_a_larger_segment_is_data_loss(shrunk):
    append(shrunk, events(50, day=1))
    large = next(s for s in live(shrunk.refresh()) if s.rows == 50)
    delete_rows(shrunk, {large.id: [40, 41]})
    first, *_, other = sorted(live(shrunk.refresh()), key=lambda s: s.rows)
    assert other.rows == 50
    commit(
        shrunk,
        drop_of(first),
        drop_of(other),
        replaced_add(first, other.vector),
        operation="forged",
    )
    with pytest.raises(DataLoss, match="2 positions, not 2 of 5 rows"):
        scan(reopen(shrunk.store)).to_table()


def replaced_add(segment, vector):
    """An add of the same rows under another id, with the vector of another segment."""
    return replaced(add_of(segment), id=segment.id[::-1], vector=vector)


def test_a_vector_below_the_horizon_is_vacuumed(shrunk):
    (key,) = vectors_of(shrunk.store)
    held = reopen(shrunk.store).snapshot(3)
    commit(shrunk, *(drop_of(s) for s in live(shrunk.refresh())))
    commit(shrunk, Fence(4), Horizon(4), operation="vacuum")
    shrunk.store.delete([key])
    t = reopen(shrunk.store)
    with pytest.raises(VersionVacuumed):
        scan(t, version=held.version).to_table()


def test_a_leaf_whose_entry_has_another_vector_is_stepped_over(monkeypatch):
    """Its own hash, and the sums that the root states, are right: the entry's hash is not."""
    monkeypatch.setattr(keyframe, "INLINE_SEGMENTS", 0)
    t = create(properties={"keyframe_commits": "1000"})
    append(t, events(10, days=2))
    first, second = sorted(live(t.refresh()), key=lambda s: s.chunk)
    delete_rows(t, {first.id: [0], second.id: [4]})
    t.write_keyframe()
    append(t, events(1, day=9))
    root = t.session.log.key_frames.root(2)
    (leaf,) = root.leaves
    entries = frame_bytes.from_parquet(t.store.get(keys.frame_key(leaf.sha256)), 2)
    for name in ("vector_offset", "vector_size", "vector_hash"):
        at = entries.schema.get_field_index(name)
        swapped = entries.column(name).take(pa.array([1, 0]))
        entries = entries.set_column(at, entries.schema.field(name), swapped)
    body = frame_bytes.to_parquet(entries)
    digest = codec.sha256(body)
    t.store.put_if_absent(keys.frame_key(digest), body)
    forged = replaced(root, leaves=(replaced(leaf, sha256=digest, size=len(body)),))
    replace_object(t.store, keys.keyframe_key(2), codec.encode_keyframe(forged))
    names = sorted(scan(reopen(t.store)).to_table()["name"].to_pylist())
    assert names == sorted([f"row {n}" for n in range(10) if n not in (0, 9)] + ["row 0"])


@pytest.mark.parametrize("number", [1, 7, 8, 9, 64, 100, 10_000])
def test_rows_at_positions_are_left_out(number):
    rows = pa.table({"n": range(number)})
    for deleted in (
        [0],
        [number - 1],
        [0, number - 1][:number],
        range(0, number, 3),
        range(number),
    ):
        left = [n for n in range(number) if n not in deleted]
        assert without_positions(rows, deleted)["n"].to_pylist() == left
        assert without_positions(rows.select([]), deleted).num_rows == len(left)
