"""Small appends whose rows stand in the commit: one request, and the same rows as any others."""

import random
from base64 import b64encode
from datetime import timedelta

import msgspec
import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import START_MS, commit, create, events, fold_all, reopen
from support.inline_tables import SMALL, forget, in_order, small, stored

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.errors import CommitConflict, Corrupt, DataLoss
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.inline import inline_objects, pack_bytes
from eventlog.model.actions import Add
from eventlog.model.entries import Tail
from eventlog.readers import changes, scan
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.state.delta import drop_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

ACTS = (*["append"] * 6, "delete", "overwrite", "compact", "restore", "frame")


def staged(table, rows):
    """The add of rows, which has their bytes."""
    with Stager(table.store, table.clock, Recipe.of(table.session.head())) as stager:
        for batch in rows.to_batches():
            stager.write(batch)
        (add,) = stager.finish()
    return add


def test_a_small_append_is_one_request():
    store = CountingStore(MemoryStore())
    table = small(store)
    table.append(events(1))
    with store.measure() as counts:
        table.append(events(100, first=1))
    assert (counts.total, counts.put) == (1, 1)
    assert stored(table, "data/") == []
    assert scan(reopen(store.inner)).count() == 101
    totals = table.snapshot().totals
    assert (totals.segments, totals.inline) == (2, 2)
    assert table.snapshot().header.features == ("inline",)


def test_an_append_over_several_chunks_is_one_request():
    store = CountingStore(MemoryStore())
    table = small(store, granularity="day")
    with store.measure() as counts:
        table.append(events(10, days=5))
    assert counts.put == 1
    assert scan(reopen(store.inner)).to_table().num_rows == 10


def test_larger_appends_have_objects_of_their_own():
    rng = random.Random(5)
    names = [rng.randbytes(20).hex() for _ in range(2000)]
    rows = events(2000).set_column(1, "name", pa.array(names))
    table = small()
    table.append(rows)
    assert len(stored(table, "data/")) == 1
    assert table.snapshot().totals.inline is UNSET
    assert table.snapshot().header.features == ()


def test_a_table_may_keep_them_out_of_the_log():
    table = create(properties={"inline_bytes": "0"})
    table.append(events(1))
    assert len(stored(table, "data/")) == 1


def test_their_bytes_bring_no_key_frame():
    """A key frame is due by what each later commit repeats."""
    rng = random.Random(6)
    table = small(properties={"keyframe_commits": "64", "keyframe_bytes": "12000"})
    for number in range(6):
        names = [rng.randbytes(20).hex() for _ in range(500)]
        table.append(events(500, first=500 * number).set_column(1, "name", pa.array(names)))
    assert table.snapshot().totals.inline == 6
    assert [key for key in stored(table, "_log/") if "keyframe" in key] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"parquet": b"PAR1"},
        {"bytes": 5},
        {"checksum": "ab" * 32},
        {"tail": Tail(1, "ab" * 32)},
        {"inline": 0},
        {"parquet": UNSET, "inline": 0},
        {"parquet": UNSET, "inline": 99},
    ],
    ids="-".join,
)
def test_bytes_that_are_not_those_of_the_entry_are_void(fields):
    table = small()
    add = msgspec.structs.replace(staged(table, events(3)), **fields)
    with pytest.raises(CommitConflict, match="segment"):
        commit(table, add)
    assert table.snapshot().totals.segments == 0


@pytest.mark.parametrize("appends", [1, 7, 8, 9, 40, 100])
def test_scans_read_packs_and_the_last_commits(appends):
    store = MemoryStore()
    table = small(store)
    for number in range(appends):
        table.append(events(2, first=2 * number))
    forget()
    counting = CountingStore(store)
    reader = Table.open(store.uri, store=counting)
    with counting.measure() as counts:
        rows = scan(reader).to_table()
    assert in_order(rows) == in_order(events(2 * appends))
    # One request for each commit since the key frame, and a few for packs and leaves.
    assert counts.get <= 8 + 8
    assert scan(reader, where="value > 0.5").count() == max(0, 2 * appends - 2)


def test_packs_are_few_and_each_byte_is_written_a_few_times():
    counting = CountingStore(MemoryStore())
    table = small(counting)
    for number in range(200):
        table.append(events(2, first=2 * number))
    packs = table.snapshot().base.packs
    sizes = {row.key: row.size for row in counting.inner.list("_packs/")}
    assert len(packs) <= 6
    assert sum(pack.segments for pack in packs) == table.snapshot().base.version
    assert sum(sizes.values()) < 8 * sum(pack.size for pack in packs)


def test_lost_and_damaged_packs_are_no_loss():
    table = small()
    for number in range(20):
        table.append(events(2, first=2 * number))
    first, *_ = stored(table, "_packs/")
    body = table.store.get(first)
    for put in (None, body[:-9], bytes([body[9] ^ 1]) + body[1:], b""):
        forget()
        for key in stored(table, "_packs/"):
            table.store.delete([key])
            if put is not None:
                table.store.put_if_absent(key, put)
        assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(40))


def test_a_pack_of_other_rows_is_not_read():
    table = small()
    for number in range(20):
        table.append(events(2, first=2 * number))
    for pack in table.snapshot().base.packs:
        key = keys.pack_key(pack.last, pack.sha256)
        opened = pack_bytes.open_pack(table.store.get(key))
        rows = pack_bytes.pack_columns(opened)
        place = rows.schema.get_field_index("value")
        other = pa.array([99.0] * rows.num_rows)
        changed = rows.set_column(place, rows.schema.field(place), other)
        table.store.delete([key])
        table.store.put_if_absent(key, pack_bytes.encode_pack(opened.segments, [changed]))
    forget()
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(40))


def test_rows_that_a_commit_brings_again_are_in_the_pack_of_that_commit():
    table = small()
    again = staged(table, events(3))
    table.append(events(5, first=10))
    commit(table, again)
    table.session.write_keyframe()
    old = next(entry for entry in table.snapshot().segments() if entry.id == again.id)
    commit(table, drop_of(old))
    commit(table, again)
    table.session.write_keyframe()
    assert fsck(reopen(table.store), checksums=True).errors == 0
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(
        pa.concat_tables([events(3), events(5, first=10)])
    )


def test_no_entry_is_older_than_its_bytes():
    table = small()
    table.append(events(1))
    (entry,) = table.snapshot().segments()
    keys.check_entry(entry)
    with pytest.raises(Corrupt, match="older than the commit"):
        keys.check_entry(msgspec.structs.replace(entry, inline=2))


def test_bytes_that_no_commit_has_are_a_loss_unless_the_object_is_at_its_key():
    table = small()
    for number in range(20):
        table.append(events(3, first=3 * number))
    (last,) = [s for s in table.snapshot().segments() if s.inline == 19]
    body = inline_objects.get_object(table.store, last)
    (add,) = table.session.log.read(19)[0].transactions[0].actions
    key = keys.commit_key(19)
    stored_bytes = table.store.get(key)
    table.store.delete([key])
    other = b"A" * 4 * (-(-len(add.parquet) // 3))
    table.store.put_if_absent(key, stored_bytes.replace(b64encode(add.parquet), other))
    forget()
    with pytest.raises(DataLoss, match="lost"):
        scan(reopen(table.store)).to_table()
    table.store.put_if_absent(keys.key_of(last), body)
    forget()
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(60))


def test_compaction_takes_them_as_inputs_and_stores_what_it_writes():
    table = small()
    for number in range(30):
        table.append(events(5, first=5 * number))
    report = run(table, policy=Policy(min_gain=0))
    assert report.outcomes
    assert table.snapshot().totals.inline is UNSET
    assert len(stored(table, "data/")) == table.snapshot().totals.segments
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(150))
    table.write_keyframe()
    assert table.snapshot().base.packs is UNSET


def test_rows_are_deleted_and_restored_in_place():
    table = small()
    for number in range(10):
        table.append(events(4, first=4 * number))
    before = table.snapshot().version
    table.delete(where="value < 3")
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(34, first=6))
    table.write_keyframe()
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(34, first=6))
    table.restore(before)
    assert in_order(scan(reopen(table.store)).to_table()) == in_order(events(40))
    assert {s.inline for s in table.snapshot().segments()} == set(range(1, 11))


def test_keyed_tables_write_their_logs_into_commits():
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    store = CountingStore(MemoryStore())
    table = Table.create(
        store.uri, schema, store=store, key="k", buckets=4, properties=SMALL,
        clock=ManualClock(START_MS, 3),
    )  # fmt: skip
    table.upsert(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}))
    with store.measure() as counts:
        table.upsert(pa.table({"k": [2, 4], "v": ["x", "y"]}))
    assert counts.total == 1
    table.delete(keys=pa.table({"k": [1]}))
    rows = sorted(scan(reopen(store.inner)).to_table().to_pylist(), key=lambda r: r["k"])
    assert rows == [{"k": 2, "v": "x"}, {"k": 3, "v": "c"}, {"k": 4, "v": "y"}]
    run(table, policy=Policy(min_gain=0))
    assert scan(reopen(store.inner)).count() == 3


def test_an_append_after_a_fence_is_committed_with_the_same_bytes():
    table = small()
    late = reopen(table.store, seed=77)
    late.session.head()
    add = staged(late, events(3, first=50))
    for number in range(3):
        table.append(events(1, first=number))
    vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    from eventlog.table.stage_again import commit_staged  # noqa: PLC0415

    commit_staged(late.session, late.session.transaction("append", [add]))
    assert scan(reopen(table.store)).count() == 6


def test_every_history_has_the_rows_of_one_with_objects():
    """The same operations on a table with and one without segments in commits."""
    for seed in range(3):
        rng = random.Random(seed)
        tables = [small(), create(properties={"inline_bytes": "0", "keyframe_commits": "8"})]
        for step in range(40):
            act = rng.choice(ACTS)
            number, back = rng.randrange(4), rng.random()
            for table in tables:
                _act(table, act, step, number, back)
        first, second = tables
        forget()
        newest = first.snapshot().version
        assert newest == second.snapshot().version
        reader = reopen(first.store)
        for version in range(newest + 1):
            rows = in_order(scan(reader, version=version).to_table())
            assert rows == in_order(scan(second, version=version).to_table())
            if version % 7 == 0:
                assert (
                    scan(reader, version=version, where="value > 10").count()
                    == scan(second, version=version, where="value > 10").count()
                )
        fold_all(first.store)


def _act(table, act, step, number, back):
    if act == "append":
        table.append(events(3 + number, first=10 * step, day=number))
    elif act == "delete":
        table.delete(where=f"name LIKE '%{number}'")
    elif act == "overwrite":
        day = f"at >= '1970-01-0{number + 1}' AND at < '1970-01-0{number + 2}'"
        table.overwrite(events(2, first=10 * step, day=number), where=day)
    elif act == "compact":
        run(table, policy=Policy(min_gain=0))
    elif act == "restore":
        table.restore(int(back * table.snapshot().version))
    else:
        table.write_keyframe()


def test_changes_have_the_rows_of_commits():
    table = small()
    for number in range(12):
        table.append(events(2, first=2 * number))
    found = changes(reopen(table.store), 1, 12).to_table()
    assert sorted(found["name"].to_pylist()) == sorted(events(22, first=2)["name"].to_pylist())


def test_commits_stay_within_their_size_and_headers_at_their_place():
    table = small()
    table.append(events(100))
    body = table.store.get(keys.commit_key(1))
    header = table.store.get(keys.commit_key(1), length=2048)
    assert table.session.log.header(1).totals.inline == 1
    (add,) = table.session.log.read(1)[0].transactions[0].actions
    assert isinstance(add, Add)
    assert add.parquet[:4] == b"PAR1"
    assert len(body) < 2 * add.bytes + 2048
    assert header == body[:2048]
