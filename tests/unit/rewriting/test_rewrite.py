"""Rewriting: the same rows in other segments; sizes, chunks, order, and what is noticed."""

import tempfile
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from support.builders import (
    DAY_US,
    SCHEMA,
    Spy,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
    replace_object,
)
from support.compaction_tasks import SMALL, content, policy, rewrite_task, task_of

from eventlog import Table, errors
from eventlog.compaction.execute import perform
from eventlog.format import keys
from eventlog.model.actions import Replace
from eventlog.model.chunks import parse_chunk
from eventlog.model.schema import from_arrow
from eventlog.readers import scan, segment_reader
from eventlog.rewriting import outputs
from eventlog.rewriting.outputs import Size, share
from eventlog.rewriting.row_digest import NOTHING, check_same, digest
from eventlog.segments.fragments import Reading
from eventlog.staging.external_sort import sort_on_disk
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

WIDER = SCHEMA.append(pa.field("extra", pa.int64()))


def rewritten(table, task, settings=SMALL, **options):
    """Rewrite and commit."""
    made = rewrite_task(table, task, settings, **options)
    assert made.rows == task.rows == sum(add.rows for add in made.adds)
    assert made.bytes == sum(add.bytes for add in made.adds)
    actions = [Replace(task.version, 0), *map(drop_of, task.inputs), *made.adds]
    commit(table, *actions, operation="compact", read_version=task.version)
    return made


def filled(parts=5, rows=4, days=1, **options):
    table = create(**options)
    for n in range(parts):
        append(table, events(rows, first=n * rows, days=days))
    return table


def test_many_become_one_and_rows_keep_their_order():
    table = filled()
    before = scan(table).to_table()
    made = rewritten(table, task_of(table))
    assert len(made.adds) == 1
    assert scan(table).to_table().equals(before)


def test_each_chunk_gets_its_own():
    table = filled(parts=3, rows=6, days=3)
    before = content(table)
    made = rewritten(table, task_of(table))
    assert [add.chunk for add in made.adds] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert content(table).equals(before)
    assert all(s.schema == 1 and s.epoch == 3 for s in live(table.session.head()))


def test_statistics_are_those_of_the_rows():
    table = filled(parts=3)
    (add,) = rewritten(table, task_of(table)).adds
    assert [(s.min, s.max, s.nulls) for s in add.stats][:2] == [(0, 11, 0), ("row 0", "row 9", 0)]
    assert scan(table, where="name = 'row 5'").to_table().num_rows == 1


def random_events(count, seed):
    import random  # noqa: PLC0415

    draw = random.Random(seed)
    at = sorted(draw.randrange(DAY_US) for _ in range(count))
    values = [draw.random() for _ in range(count)]
    return pa.table([at, [f"name {v:.9f}" for v in values], values], schema=SCHEMA)


@pytest.fixture(scope="module")
def crowded():
    """One day in 30 segments, 60,000 rows."""
    table = create()
    for n in range(30):
        append(table, random_events(2000, n))
    return table


@pytest.mark.parametrize("target", [150_000, 400_000, 700_000])
def test_segments_are_about_equal_and_below_the_target(crowded, target):
    made = rewrite_task(crowded, task_of(crowded), policy(target_bytes=target))
    sizes = [add.bytes for add in made.adds]
    fewest = -(-sum(sizes) // target)
    assert max(sizes) <= target
    assert fewest <= len(sizes) <= fewest + 1
    assert max(sizes[1:]) < 1.3 * min(sizes[1:])


def test_a_segment_that_is_too_large_is_divided(crowded):
    table = create()
    append(table, pa.concat_tables([random_events(2000, n) for n in range(30)]))
    (large,) = live(table.session.head())
    made = rewritten(table, task_of(table), policy(target_bytes=large.bytes // 3))
    assert len(made.adds) in (3, 4)
    assert max(add.bytes for add in made.adds) < large.bytes // 2
    assert content(table).equals(content(crowded))


def test_shares():
    assert share(100, Size(10), 400) == 34  # three of at most 40
    assert share(80, Size(10), 400) == 40
    assert share(81, Size(10), 400) == 27
    assert share(None, Size(10), 400) == 40
    assert share(5, Size(1000), 400) == 1
    assert share(7, Size(0), 400) == 7
    assert share(100, Size(10, 300), 400) == 20  # half of the target is for rows in any case


def hours(count, *, first_hour=0, every_us=DAY_US // 24):
    at = [(first_hour * DAY_US // 24) + n * every_us for n in range(count)]
    return pa.table([at, [f"row {n:04}" for n in range(count)], [float(n) for n in range(count)]],
                    schema=SCHEMA)  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("by", [(), ("value",)])
@pytest.mark.parametrize(("old", "new"), [("hour", "day"), ("day", "month"), ("hour", "all")])
def test_finer_chunks_become_coarser_ones(old, new, by):
    table = create(granularity=old)
    append(table, hours(60))
    append(table, hours(30, first_hour=10))
    before = content(table)
    made = rewritten(table, task_of(table, granularity=new), policy(sort_by=by))
    assert {parse_chunk(add.chunk).granularity for add in made.adds} == {new}
    assert len(made.adds) == {"day": 3, "month": 1, "all": 1}[new]
    assert content(table).equals(before)


@pytest.mark.sample(3, verify=6)
@pytest.mark.parametrize("memory", [2**20, 2**26])
@pytest.mark.parametrize("by", [(), ("value",)])
@pytest.mark.parametrize(("old", "new"), [("month", "day"), ("day", "hour"), ("all", "year")])
def test_coarser_chunks_become_finer_ones(old, new, by, memory):
    table = create(granularity=old)
    append(table, hours(100))
    append(table, hours(50, first_hour=30))
    before = content(table)
    made = rewritten(
        table, task_of(table, granularity=new), policy(sort_by=by, memory_bytes=memory)
    )
    assert {parse_chunk(add.chunk).granularity for add in made.adds} == {new}
    assert len({add.chunk for add in made.adds}) == len(made.adds)
    assert content(table).equals(before)
    for segment in live(table.session.head()):
        rows = whole_segment(table, segment)
        chunk = parse_chunk(segment.chunk)
        times = rows.column("at").cast(pa.int64()).to_pylist()
        assert all(chunk.start <= at // 1000 < chunk.end for at in times)
        assert (
            rows.column("value").to_pylist() == sorted(rows.column("value").to_pylist()) or not by
        )


def whole_segment(table, segment):
    reading = Reading(table.store, table.session.head().version, from_arrow(SCHEMA), SCHEMA, SCHEMA)
    return pa.Table.from_batches(reading.batches([segment]), schema=SCHEMA)


def test_chunks_of_different_granularities_in_one_task():
    table = create(granularity="day")
    append(table, hours(48))
    table.set_granularity("hour")
    append(table, hours(48))
    before = content(table)
    made = rewritten(table, task_of(table, granularity="day"))
    assert [add.chunk for add in made.adds] == ["1970-01-01", "1970-01-02"]
    made = rewritten(table, task_of(table, granularity="hour"))
    assert len(made.adds) == 48
    assert content(table).equals(before)


def test_little_memory_makes_more_segments_of_many_chunks():
    table = create(granularity="month")
    append(table, hours(6_000, every_us=60_000_000))
    before = content(table)
    task = task_of(table, granularity="hour")
    made = rewritten(table, task, policy(memory_bytes=2**20, target_bytes=2**24))
    chunks = {add.chunk for add in made.adds}
    assert len(chunks) == 100
    assert len(made.adds) >= len(chunks)
    assert content(table).equals(before)


@pytest.mark.verify
@pytest.mark.parametrize("by", [(), ("value",)])
def test_little_memory_makes_no_smaller_segments_of_a_chunk(crowded, by, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, seen = content(crowded), []
    table = create()
    for n in range(30):
        append(table, random_events(2000, n))
    settings = policy(memory_bytes=2**20, target_bytes=700_000, sort_by=by)
    made = rewritten(
        table, task_of(table), settings, pulse=lambda: seen.extend(tmp_path.glob("*/*.parquet"))
    )
    assert len(made.adds) == 2
    assert seen
    assert list(tmp_path.iterdir()) == []
    assert content(table).equals(before)


def test_columns_that_came_later_are_null():
    table = create()
    append(table, events(3))
    table.add_columns(WIDER)
    rows = events(3, first=3)
    append(table, rows.append_column(WIDER.field("extra"), pa.array([7, None, 9])))
    before = content(table)
    made = rewritten(table, task_of(table))
    assert [add.schema for add in made.adds] == [2]
    assert content(table).equals(before)
    assert before.column("extra").to_pylist() == [None, None, None, 7, None, 9]


TYPED = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(38, 2)),
        ("ratio", pa.float32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.int16()))])),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def typed(count=6, first=0):
    price = Decimal("9" * 36 + ".99")
    rows = [
        {
            "at": first + n,
            "name": f"n{n}",
            "flag": n % 2 == 0,
            "tiny": -n,
            "day": n,
            "local": n,
            "price": price,
            "ratio": float("nan") if n % 2 else -0.0,
            "raw": bytes([n, 255]),
            "tags": ["a", None, "b" * n],
            "place": {"x": n / 3, "names": [n]},
            "counts": [("k", n), ("l", None)],
        }
        for n in range(count)
    ]
    rows.append(dict.fromkeys(TYPED.names) | {"at": first + count})
    return pa.table({f.name: pa.array([r[f.name] for r in rows], f.type) for f in TYPED}, TYPED)


@pytest.mark.parametrize("options", [{}, {"verify": True}])
@pytest.mark.parametrize("by", [(), ("ratio", "price", "raw", "day", "flag", "local", "name")])
def test_every_type_survives(by, options):
    table = create(schema=TYPED)
    append(table, typed())
    append(table, typed(first=100))
    before = scan(table).to_table().sort_by("at")
    rewritten(table, task_of(table), policy(sort_by=by), **options)
    after = scan(table).to_table().sort_by("at")
    assert digest(after, "at") == digest(before, "at")
    assert after.schema == before.schema
    assert str(after.to_pylist()) == str(before.to_pylist())  # NaN is not equal to itself


def test_rows_are_sorted_across_the_segments_of_a_chunk(crowded):
    task = task_of(crowded)
    for memory in (2**20, 2**26):
        made = rewrite_task(
            crowded, task, policy(target_bytes=300_000, memory_bytes=memory, sort_by=("value",))
        )
        assert len(made.adds) > 2
        bounds = [add.stats[2] for add in made.adds]
        assert all(a.max <= b.min for a, b in pairwise(bounds))


def test_the_order_of_the_table_is_the_default():
    table = create(order_by="value")
    append(table, events(4))
    append(table, pa.table([[5, 6, 7], ["a", "b", "c"], [None, -1.0, float("nan")]], SCHEMA))
    rewritten(table, task_of(table))
    values = scan(table).to_table().column("value").to_pylist()
    assert str(values) == "[-1.0, 0.0, 0.5, 1.0, 1.5, nan, None]"
    rewritten(table, task_of(table), policy(sort_by=("at",)))
    assert scan(table).to_table().column("at").cast("int64").to_pylist() == [0, 1, 2, 3, 5, 6, 7]


def test_what_cannot_be_sorted_by_is_said():
    table = create(schema=TYPED)
    append(table, typed())
    for name, why in (("missing", "does not have"), ("tags", "no order")):
        with pytest.raises(errors.InvalidInput, match=why):
            rewrite_task(table, task_of(table), policy(sort_by=(name,)))


def test_progress_and_pulse():
    table = filled(parts=4, rows=6, days=2)
    told, pulses = [], []
    rewrite_task(
        table,
        task_of(table),
        SMALL,
        progress=lambda *what: told.append(what),
        pulse=lambda: pulses.append(1),
    )
    assert told[-1] == ("rows", 24, 24)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert pulses


def test_a_pulse_that_raises_ends_it_and_leaves_no_file(tmp_path, monkeypatch, crowded):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    beats = []

    def pulse():
        beats.append(len(list(tmp_path.iterdir())))
        if len(beats) > 45:  # all was read, and some of it is merged
            raise RuntimeError("stop")

    settings = policy(sort_by=("value",), memory_bytes=2**20)
    with pytest.raises(RuntimeError, match="stop"):
        rewrite_task(crowded, task_of(crowded), settings, pulse=pulse)
    assert max(beats) == 2  # runs, and the segments that memory has no place for
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_deleted_and_nothing_is_committed():
    table = filled()
    spy = Spy(table.store)
    mine = Table.open(spy.uri, store=spy, clock=table.clock)
    rewrite_task(mine, task_of(mine), SMALL)
    assert spy.deletes == []
    assert [key.split("/")[0] for key, _ in spy.puts] == ["data"]
    assert table.refresh().version == 5


@pytest.mark.verify
def test_memory_is_bounded():
    table = create()
    rows = random_events(40_000, 1)
    for _ in range(20):
        append(table, rows)
    before, peak = pa.total_allocated_bytes(), [0]

    def pulse():
        peak[0] = max(peak[0], pa.total_allocated_bytes() - before)

    task = task_of(table)
    rewrite_task(table, task, policy(memory_bytes=2**23, target_bytes=2**24), pulse=pulse)
    assert rows.nbytes * 20 > 3 * 2**23
    assert 2**20 < peak[0] < 2**23


@pytest.mark.parametrize("harm", ["missing", "damaged", "longer", "other rows"])
def test_a_lost_input_is_data_loss(harm):
    table = filled()
    task = task_of(table)
    lost = task.inputs[2]
    key = keys.key_of(lost)
    body = table.store.get(key)
    if harm == "missing":
        table.store.delete([key])
    else:
        other = {"damaged": body[:50] + b"?" + body[51:], "longer": body + b"?"}
        spare = table.store.get(keys.key_of(task.inputs[1]))
        replace_object(table.store, key, other.get(harm, spare))
    with pytest.raises(errors.DataLoss) as caught:
        rewrite_task(reopen(table.store), task, SMALL)
    assert caught.value.key == key


def test_small_and_large_segments_come_in_order(monkeypatch):
    monkeypatch.setattr(segment_reader, "WHOLE_BYTES", 4000)
    table = create()
    for n in range(12):
        append(table, events(1000 if n % 5 == 3 else 2, first=1000 * n))
    task = task_of(table)
    assert {s.bytes > 4000 for s in task.inputs} == {True, False}
    reading = Reading(table.store, 12, from_arrow(SCHEMA), SCHEMA, SCHEMA)
    runs = [("a", task.inputs[:5]), ("b", task.inputs[5:6]), ("c", task.inputs[6:])]
    found = list(segment_reader.read_runs(reading, runs))
    names = list(dict.fromkeys(name for name, _ in found))
    assert names == ["a", "b", "c"]
    assert sum(t.num_rows for name, t in found if name == "a") == 1008
    rows = pa.concat_tables(t for _, t in found)
    assert rows.equals(scan(table).to_table())


def test_segments_that_would_decode_to_too_much_are_read_in_pieces(monkeypatch):
    table = create()
    plain = pa.table([[5] * 20_000, ["same"] * 20_000, [1.5] * 20_000], schema=SCHEMA)
    for rows in (events(2), plain, events(2, first=10)):
        append(table, rows)
    pieces, whole = [], Reading.batches
    watched = lambda self, segments: (
        pieces.extend(s.rows for s in segments) or whole(self, segments)
    )
    monkeypatch.setattr(Reading, "batches", watched)
    task = task_of(table)
    reading = Reading(table.store, 3, from_arrow(SCHEMA), SCHEMA, SCHEMA, ahead_bytes=2**22)
    parts = list(segment_reader.read_runs(reading, [("a", task.inputs)]))
    assert pieces == [20_000]
    assert pa.concat_tables(rows for _, rows in parts).equals(scan(table).to_table())


class Losing(outputs.SegmentWriter):
    """A writer that loses a row."""

    def write(self, table):
        super().write(table.slice(1))


class Mixing(outputs.SegmentWriter):
    """A writer that puts the values of a column into other rows."""

    def write(self, table):
        values = table.column("value").combine_chunks()
        turned = values.take(pa.array([*range(1, len(values)), 0]))
        super().write(table.set_column(2, SCHEMA.field("value"), turned))


class Lying(outputs.SegmentWriter):
    """A writer whose encoder loses a value after it was shown all of them."""

    def flush(self):
        watch, self._watch = self._watch, None
        rows = pa.concat_tables(self._pending) if self._pending else None
        if rows is not None:
            watch(rows)
            values = pa.array([None, *rows.column("value").to_pylist()[1:]])
            self._pending = [rows.set_column(2, SCHEMA.field("value"), values)]
        super().flush()
        self._watch = watch


@pytest.mark.hazard("K6")
@pytest.mark.parametrize(
    ("writer", "verify", "why"),
    [
        (Losing, False, "20 rows were read and 19 written"),
        (Mixing, False, "column 'value'"),
        (Mixing, True, "column 'value'"),
        (Lying, True, "column 'value'"),
    ],
)
def test_k6_a_rewrite_that_changes_rows_is_refused(monkeypatch, writer, verify, why):
    table = filled()
    monkeypatch.setattr(outputs, "SegmentWriter", writer)
    with pytest.raises(errors.Corrupt, match=f"1970-01-01 is wrong: .*{why}"):
        rewrite_task(table, task_of(table), SMALL, verify=verify)
    assert table.refresh().version == 5


@pytest.mark.hazard("K6")
def test_k6_a_rewrite_that_changes_rows_fails_its_task(monkeypatch):
    table = filled()
    monkeypatch.setattr(outputs, "SegmentWriter", Mixing)
    found = perform(table, task_of(table), SMALL)
    assert found.status == "failed"
    assert "column 'value'" in found.error
    assert table.refresh().version == 5


def test_what_does_not_decode_is_refused(monkeypatch):
    table = filled()

    class Breaking(outputs.SegmentWriter):
        def seal(self):
            add, body = super().seal()
            return add, memoryview(bytes(body)[:60] + bytes(8) + bytes(body)[68:])

    monkeypatch.setattr(outputs, "SegmentWriter", Breaking)
    with pytest.raises(errors.Corrupt, match="1970-01-01"):
        rewrite_task(table, task_of(table), SMALL, verify=True)


CHANGES = {
    "flag": False,
    "tiny": 99,
    "day": 12_345,
    "local": 777,
    "price": Decimal("1.00"),
    "ratio": 0.5,
    "raw": b"zz",
    "tags": ["a", "x"],
    "place": {"x": None, "names": [0]},
    "counts": [("k", 77), ("l", None)],
    "name": "n00",
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_digest_notices_another_value(name):
    before = typed()
    values = before.column(name).to_pylist()
    for changed in (CHANGES[name], None):
        other = before.set_column(
            before.schema.get_field_index(name),
            before.schema.field(name),
            pa.array([changed, *values[1:]], before.schema.field(name).type),
        )
        with pytest.raises(errors.Corrupt, match=f"column '{name}'"):
            check_same(digest(before, "at"), digest(other, "at"), "1970-01-01", "memory://x")


def test_the_digest_of_the_whole_is_the_sum_of_its_parts():
    rows = typed(9)
    parts = [rows.slice(7), rows.slice(0, 3), rows.slice(3, 4)]
    total = NOTHING
    for part in parts:
        total += digest(part, "at")
    assert total == digest(rows, "at") == digest(pa.concat_tables(parts), "at")
    assert digest(rows.slice(0, 0), "at") == NOTHING
    with pytest.raises(errors.Corrupt, match="10 rows were read and 9 written"):
        check_same(digest(rows, "at"), digest(rows.slice(1), "at"), "c", "memory://x")


def test_a_sorter_that_is_left_early_leaves_no_file(tmp_path):
    rows = [random_events(500, n) for n in range(8)]
    parts = sort_on_disk(iter(rows), ["value"], memory_bytes=40_000, directory=str(tmp_path))
    first = next(parts)
    assert first.num_rows < 4000
    assert len(list(Path(tmp_path).glob("*/*.arrow"))) > 2
    parts.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_all_equal_are_not_held_at_once(tmp_path):
    rows = [pa.table({"k": [1] * 1000, "n": range(1000 * i, 1000 * i + 1000)}) for i in range(20)]
    parts = list(sort_on_disk(rows, ["k"], memory_bytes=64_000, directory=str(tmp_path)))
    assert max(part.nbytes for part in parts) <= 64_000
    assert pa.concat_tables(parts).column("n").to_pylist() == list(range(20_000))


def test_a_store_in_memory_serves_too():
    table = filled(store=MemoryStore())
    assert rewritten(table, task_of(table)).rows == 20
