"""Every limit of the format: what is written at it can be read, and one beyond is refused."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.builders import DAY_US, SCHEMA, check_sound, commit, create, events, live, reopen

from eventlog import Table, compaction, limits
from eventlog.clock import ManualClock
from eventlog.commit.keyframe_writing import write_keyframe
from eventlog.errors import InvalidInput
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes
from eventlog.readers import count, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append


@pytest.mark.hazard("W4")
def test_a_commit_of_the_greatest_size_is_read(monkeypatch):
    store = MemoryStore()
    table = create(store)
    append(table, events(3))
    head = store.get(keys.commit_key(1))
    # A transaction whose info makes the commit as large as a commit may be, and one byte larger.
    monkeypatch.setattr(codec, "MAX_COMMIT_BYTES", 2 * len(head))
    bare = commit(table, info={"note": ""})
    room = codec.MAX_COMMIT_BYTES - len(store.get(keys.commit_key(bare)))
    for more in (room + 64, room + 1):
        with pytest.raises(InvalidInput, match="the commit has"):
            commit(table, info={"note": "x" * more})
    # One after another, for a version or a time may have a digit more.
    full = [commit(table, info={"note": "x" * (room - less)}) for less in range(4)]
    sizes = [len(store.get(keys.commit_key(version))) for version in full]
    assert codec.MAX_COMMIT_BYTES - 3 <= max(sizes) <= codec.MAX_COMMIT_BYTES
    assert scan(check_sound(store)).to_table().num_rows == 3


def test_a_key_frame_that_nobody_could_read_is_not_written(monkeypatch):
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": "1024"})
    append(table, events(3))
    whole = codec.encode_keyframe
    sizes = []

    def measured(keyframe):
        sizes.append(len(whole(keyframe)))
        return whole(keyframe)

    monkeypatch.setattr(codec, "encode_keyframe", measured)
    head = table.refresh()
    monkeypatch.setattr(codec, "MAX_KEYFRAME_BYTES", 100)
    with pytest.raises(InvalidInput, match="the key frame's root has"):
        write_keyframe(table.session.log, table.clock, head)
    assert scan(reopen(store)).to_table().num_rows == 3
    monkeypatch.setattr(codec, "encode_keyframe", whole)
    monkeypatch.setattr(codec, "MAX_KEYFRAME_BYTES", 10_000)
    write_keyframe(table.session.log, table.clock, head)
    monkeypatch.setattr(codec, "MAX_KEYFRAME_BYTES", len(store.get(keys.keyframe_key(1))))
    assert scan(reopen(store)).to_table().num_rows == 3


@pytest.mark.verify
@pytest.mark.hazard("W4")
def test_entries_that_readers_would_refuse_are_not_committed(monkeypatch):
    store = MemoryStore()
    table = create(store, granularity="day")
    rows = pa.concat_tables([events(1, day=day) for day in range(1100)])
    monkeypatch.setattr(frame_bytes, "_MAX_FRAME_BYTES", 40_000)
    with pytest.raises(InvalidInput, match="segment entries take more than the 40000 bytes"):
        append(table, rows)
    assert reopen(store).session.head().version == 0
    monkeypatch.setattr(frame_bytes, "_MAX_FRAME_BYTES", 2_000_000)
    append(table, rows)
    assert count(reopen(store), where="value >= 0") == 1100


@pytest.mark.parametrize("over", [0, 1])
def test_an_object_has_a_tail_from_the_first_byte_beyond_the_bound(monkeypatch, over):
    first = MemoryStore()
    append(create(first), events(500))
    (plain,) = live(reopen(first).session.head())
    monkeypatch.setattr(limits, "WHOLE_BYTES", plain.bytes - over)
    store = MemoryStore()
    append(create(store), events(500))
    (segment,) = live(reopen(store).session.head())
    assert (segment.tail is not None) == bool(over)
    assert scan(reopen(store)).to_table().sort_by("at") == events(500).sort_by("at")


@pytest.mark.hazard("W4")
@pytest.mark.parametrize("bound", ["ROW_GROUP_ROWS", "ROW_GROUP_BYTES"])
def test_row_groups_are_cut_at_their_bounds(monkeypatch, bound):
    monkeypatch.setattr(limits, "WHOLE_BYTES", 2000)
    monkeypatch.setattr(limits, bound, 100 if bound == "ROW_GROUP_ROWS" else 100 * 24)
    store = MemoryStore()
    table = create(store)
    rows = events(1000).set_column(1, SCHEMA.field(1), pa.array(["abcd"] * 1000))
    for part in range(4):
        append(table, rows.slice(250 * part, 250))
    policy = compaction.Policy(small_task_bytes=0)
    (task,) = compaction.plan(table, policy).tasks
    for turn in range(2):
        for segment in live(table.refresh()):
            footer = pq.read_metadata(BytesIO(store.get(keys.key_of(segment))))
            sizes = [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]
            if turn == 0 or bound == "ROW_GROUP_ROWS":
                assert len(sizes) > 1
                assert max(sizes) <= 110
        assert scan(reopen(store)).to_table().sort_by("at") == rows.sort_by("at")
        if turn == 0:
            assert compaction.perform(table, task, policy).ok


def test_a_thousand_row_groups_are_read(monkeypatch):
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(limits, "WHOLE_BYTES", 2**16)
    store = MemoryStore()
    append(create(store), events(5_000))
    (segment,) = live(reopen(store).session.head())
    assert segment.tail is not None
    assert scan(reopen(store), ["value"], where="value < 100").to_table().num_rows == 200
    assert scan(reopen(store)).to_table().sort_by("at") == events(5_000).sort_by("at")


@pytest.mark.long
@pytest.mark.hazard("W4")
def test_a_thousand_columns_with_statistics_make_the_whole_way(monkeypatch):
    monkeypatch.setattr(limits, "WHOLE_BYTES", 2**17)
    width = 1000
    names = ["at", *(f"column {n}" for n in range(width))]
    schema = pa.schema([(n, pa.timestamp("us", "UTC") if n == "at" else pa.int64()) for n in names])
    store = MemoryStore()
    table = Table.create(
        store.uri, schema, time_column="at", store=store, granularity="all",
        clock=ManualClock(1_600_000_000_000, 1), properties={"stats_columns": str(width)},
    )  # fmt: skip
    for n in range(3):
        at = pa.array([n * DAY_US, n * DAY_US + 1], schema.field(0).type)
        append(table, pa.table([at, *([[n, n + 1]] * width)], schema=schema))
    policy = compaction.Policy(small_task_bytes=0)
    (task,) = compaction.plan(table, policy).tasks
    assert compaction.perform(table, task, policy).ok
    again = reopen(store)
    (segment,) = live(again.session.head())
    assert (segment.tail is not None, len(segment.stats)) == (True, width)
    found = scan(again, ["column 7", "column 999"], where='"column 500" = 2').to_table()
    assert found.column("column 999").to_pylist() == [2, 2]
    assert scan(again).to_table().num_columns == width + 1


@pytest.mark.parametrize("length", [limits.NAME_CHARACTERS, limits.NAME_CHARACTERS + 1])
def test_a_name_of_the_greatest_length_works(length):
    store = MemoryStore()
    name = "ß" * length
    schema = SCHEMA.append(pa.field(name, pa.int64()))
    if length > limits.NAME_CHARACTERS:
        with pytest.raises(InvalidInput, match=r"name|255"):
            create(store, schema=schema)
        return
    table = create(store, schema=schema)
    append(table, events(3).append_column(name, pa.array([1, 2, 3])))
    table.pin(name, 1, owner=name)
    assert scan(reopen(store), [name], where=f'"{name}" > 1').to_table().num_rows == 2
    with pytest.raises(InvalidInput):
        table.pin(name + "x", 1)


def test_the_deepest_type_makes_the_whole_way():
    kind = pa.int64()
    value = 7
    for level in range(limits.TYPE_DEPTH):
        kind, value = (
            (pa.struct([("x", kind)]), {"x": value}) if level % 2 else (pa.list_(kind), [value])
        )
    store = MemoryStore()
    table = create(store, schema=SCHEMA.append(pa.field("deep", kind)))
    for n in range(3):
        append(table, events(1, first=n).append_column("deep", pa.array([value], kind)))
    policy = compaction.Policy(small_task_bytes=0)
    (task,) = compaction.plan(table, policy).tasks
    assert compaction.perform(table, task, policy).ok
    assert scan(reopen(store)).to_table().column("deep").to_pylist() == [value] * 3
    with pytest.raises(InvalidInput):
        create(MemoryStore(), schema=SCHEMA.append(pa.field("deep", pa.list_(kind))))
