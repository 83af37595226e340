"""`fsck --keys`: each defect that a wrong writer could leave is named, a sound table has none."""

import json
import random
from datetime import timedelta

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from support.builders import create, replace_object
from support.keyed_tables import (
    DAY,
    SCHEMA,
    WITH_OP,
    merged,
    properties_of,
    row_of,
    stored,
)

from eventlog import Table, compaction, limits
from eventlog.cli.program import build
from eventlog.compaction import Policy
from eventlog.errors import InvalidInput
from eventlog.format import keys as places
from eventlog.format.buckets import buckets_of
from eventlog.fsck.check import fsck
from eventlog.fsck.contents.key_check import check_keys
from eventlog.fsck.contents.key_rows import KeyColumns
from eventlog.fsck.findings import Findings
from eventlog.model.entries import Slice
from eventlog.staging.encoding import Recipe
from eventlog.writers import delete, upsert

KEY = ("k", "s")
BUCKETS = 4


def keyed(**options):
    options = {"granularity": "all", "order_by": "o", "properties": {}} | options
    nullable = [f.with_nullable(f.name not in (*KEY, "o")) for f in SCHEMA]
    return create(schema=pa.schema(nullable), time_column="at", key=KEY, buckets=BUCKETS, **options)


def rows(*numbers, day=0, o=1):
    made = [
        {"k": k, "s": "x", "at": DAY + timedelta(days=day), "o": o, "g": 1, "a": k, "b": "", "c": 1}
        for k in numbers
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def spoilt(table, spoil):
    """Merge everything, with bases that `spoil` changed."""
    head = table.refresh()
    made = merged(
        table, head, "all", 0, BUCKETS - 1, 1, head.version,
        spoil=lambda part, kind: spoil(part) if kind == "base" else part,
    )  # fmt: skip
    table.commit(made)


def in_bucket(part):
    """The rows in the order of bucket and key, with what the table has of columns."""
    part = part.select(SCHEMA.names).cast(SCHEMA)
    order = pa.table([buckets_of(part, KEY, BUCKETS), part["k"], part["s"]], ["_", "k", "s"])
    return part.take(pc.sort_indices(order, [(name, "ascending") for name in order.column_names]))


def append_log(table, part, first=0, last=BUCKETS - 1, change=None):
    """Commit a log segment with these rows as they are."""
    head = table.refresh()
    place = Slice("log", first, last, None, None, 0, None)
    add = stored(table, Recipe.of(head), head, "all", part, place)
    if change is not None:
        add = change(add)
    return table.commit(table.transaction("append", [add]))


def found(table, **options):
    report = fsck(table, keys=True, **options)
    return [(f.severity, f.key, f.message) for f in report.findings]


# ------------------------------------------------------------------------------------ sound tables


@pytest.mark.parametrize(
    ("kind", "granularity"),
    [
        ("last", "all"),
        pytest.param("last", "day", marks=pytest.mark.long),
        pytest.param("first", "all", marks=pytest.mark.long),
        ("partial", "day"),
        pytest.param("groups", "all", marks=pytest.mark.long),
        ("aggregate", "day"),
    ],
)
def test_a_sound_table_has_no_findings(kind, granularity):
    chance = random.Random(f"{kind} {granularity}")
    small = {"bucket_bytes": "1024"} if granularity == "all" else {}
    table = keyed(granularity=granularity, properties=properties_of(kind, KEY) | small)
    for step in range(7):
        some = [row_of(chance, keys_of=20, days=3, free_time=False) for _ in range(60)]
        upsert(table, pa.Table.from_pylist(some, schema=SCHEMA))
        if step % 3 == 2 and kind != "aggregate":
            gone = [{n: row[n] for n in (*KEY, "at")} | {"_op": "d"} for row in some[:5]]
            upsert(table, pa.Table.from_pylist(gone, schema=WITH_OP))
        if step in (2, 5):
            compaction.run(table, policy=Policy(target_bytes=2048))
    report = fsck(table, keys=True, checksums=True)
    assert report.findings == ()
    assert report.keys_checked == sum(s.rows for s in table.refresh().segments())


def test_a_key_that_was_deleted_from_one_chunk_may_stand_in_another():
    table = keyed(granularity="day")
    upsert(table, rows(1, 2))
    compaction.run(table)
    delete(table, keys=rows(1).select(["k", "s", "at"]))
    upsert(table, rows(1, day=1))
    assert found(table) == []


def test_a_table_without_a_key_has_no_keys_to_check():
    table = create()
    with pytest.raises(InvalidInput, match="no key"):
        fsck(table, keys=True)
    assert fsck(table).keys_checked is None


# ---------------------------------------------------------------------- what one segment has


def test_a_key_that_a_base_has_twice():
    table = keyed()
    upsert(table, rows(*range(30)))
    upsert(table, rows(7, o=2))
    upsert(table, rows(9, o=2))
    spoilt(
        table, lambda part: in_bucket(pa.concat_tables([part, rows(7, 9, o=2).cast(part.schema)]))
    )
    (finding,) = found(table)
    assert finding[0] == "error"
    assert "2 keys of chunk all stand more than once" in finding[2]
    assert "k=7, s=x" in finding[2]
    assert "k=9, s=x" in finding[2]
    assert "upsert these keys again" in finding[2]
    # What it says to do mends it.
    upsert(table, rows(7, 9, o=3))
    compaction.run(table)
    assert found(table) == []


def test_a_key_that_two_bases_of_a_slice_have():
    table = keyed()
    upsert(table, rows(*range(30)))
    head = table.refresh()
    made = merged(table, head, "all", 0, BUCKETS - 1, 1, 1)
    base = next(a for a in made.actions if getattr(a, "slice", None))
    more = stored(table, Recipe.of(head), head, "all", in_bucket(rows(3)), base.slice)
    actions = [
        msgspec.structs.replace(a, superseded=0) if type(a).__name__ == "Merge" else a
        for a in made.actions
    ]
    less = stored(table, Recipe.of(head), head, "all", in_bucket(rows(*range(29))), base.slice)
    actions[actions.index(base)] = less
    table.commit(table.transaction("compact", [*actions, more], read_version=head.version))
    (finding,) = found(table)
    assert "1 key of chunk all stands more than once" in finding[2]
    assert "k=3, s=x" in finding[2]


def test_a_row_in_a_bucket_that_its_hash_does_not_give():
    table = keyed()
    many = rows(*range(30))
    buckets = buckets_of(many, KEY, BUCKETS)
    upsert(table, many.slice(0, 3))
    append_log(table, many.filter(pc.equal(buckets, 2)), 1, 1)
    (finding,) = found(table)
    count = pc.sum(pc.equal(buckets, 2)).as_py()
    assert finding[0] == "error"
    assert (
        f"the log of bucket 1 of chunk all has {count} rows with keys of other buckets"
        in finding[2]
    )


def test_rows_out_of_order():
    table = keyed()
    part = in_bucket(rows(*range(30)))
    append_log(table, pa.concat_tables([part.slice(0, 10), part.slice(20), part.slice(10, 10)]))
    (finding,) = found(table)
    assert "the log of buckets 0 to 3 of chunk all has 1 row out of the order" in finding[2]
    compaction.run(table)
    assert found(table) == []


@pytest.mark.parametrize(
    ("column", "end"), [("k", "min"), ("k", "max"), ("s", "min"), ("s", "max"), ("at", "max"),
                        ("o", "nulls")],
)  # fmt: skip
def test_a_row_outside_of_the_statistics(column, end):
    table = keyed()
    number = SCHEMA.get_field_index(column) + 1
    inward = {"s": {"min": "z", "max": "a"}}.get(column, {"min": 2**62, "max": -(2**62)})

    def change(add):
        stats = [
            msgspec.structs.replace(s, **{end: inward.get(end, 1)}) if s.column == number else s
            for s in add.stats
        ]
        return msgspec.structs.replace(add, stats=tuple(stats))

    append_log(table, in_bucket(rows(*range(30))), change=change)
    (finding,) = found(table)
    assert finding[0] == "error"
    assert f"the statistics of column '{column}' of the log of buckets 0 to 3" in finding[2]
    compaction.run(table)
    assert found(table) == []


def test_a_row_outside_of_its_chunk():
    table = keyed(granularity="day")
    upsert(table, rows(1))
    head = table.refresh()
    place = Slice("log", 0, BUCKETS - 1, None, None, 0, None)
    day = next(iter(head.segments())).chunk
    part = in_bucket(rows(2, 3, day=1))
    table.commit(
        table.transaction("append", [stored(table, Recipe.of(head), head, day, part, place)])
    )
    (finding,) = found(table)
    assert "of chunk 2024-01-01 has 2 rows with an event time outside of the chunk" in finding[2]


# ----------------------------------------------------------------------------------- several chunks


@pytest.mark.parametrize("compacted", [False, True])
def test_a_key_in_two_chunks(compacted):
    table = keyed(granularity="day")
    upsert(table, rows(*range(20)))
    upsert(table, rows(3, 4, day=1))
    upsert(table, rows(4, 5, day=2))
    if compacted:
        compaction.run(table)
    report = fsck(table, keys=True)
    assert report.ok
    texts = [f.message for f in report.findings]
    assert {f.severity for f in report.findings} == {"warning"}
    assert [t.partition(", for")[0] for t in texts] == [
        "1 key stands in chunk 2024-01-01 and in chunk 2024-01-02",
        "2 keys stand in chunk 2024-01-01 and in chunk 2024-01-03",
    ]
    assert "k=3, s=x" in texts[0]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32()])
def test_keys_of_years_that_python_does_not_have(kind, monkeypatch):
    schema = pa.schema([pa.field("k", kind, nullable=False), SCHEMA.field("at")])
    table = create(schema=schema, time_column="at", granularity="day", key="k", buckets=BUCKETS)
    numbers = pa.int32() if pa.types.is_date(kind) else pa.int64()
    far = 2 ** (numbers.bit_width - 2)

    def some(day, *steps):
        times = [DAY + timedelta(days=day)] * len(steps)
        return pa.table([pa.array([far + n for n in steps], numbers).cast(kind), times], schema)

    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 3)
    upsert(table, some(0, *range(10)))
    upsert(table, some(1, 3))
    ((severity, _, text),) = found(table)
    assert severity == "warning"
    assert f"for example k={far + 3}: the event time of a key must not change" in text


def test_keys_are_compared_in_little_memory():
    """However small the memory, the same is found: shares of a bucket are read one by one."""
    table = keyed(granularity="day")
    upsert(table, rows(*range(400)))
    upsert(table, rows(*range(100, 120), day=1))
    compaction.run(table)
    live = {s.id: s for s in table.refresh().segments()}
    columns = KeyColumns.of(table.store, table.session.head().meta)
    told = []
    for memory in (2**20, 4000, 500):
        findings = Findings()
        rows_read, damaged = check_keys(columns, live, findings, memory_bytes=memory)
        assert (rows_read, damaged) == (420, [])
        counts = [int(f.message.split()[0]) for f in findings.listed]
        told.append(sum(counts))
    assert told == [20, 20, 20]


# -------------------------------------------------------------------------------- damaged segments


def test_a_damaged_segment_is_named_and_the_others_are_checked():
    table = keyed()
    part = in_bucket(rows(*range(30)))
    append_log(table, pa.concat_tables([part.slice(10), part.slice(0, 10)]))
    upsert(table, rows(1, o=5))
    newest = max(table.refresh().segments(), key=lambda s: s.version)
    body = bytearray(table.store.get(places.key_of(newest)))
    body[40] ^= 1
    replace_object(table.store, places.key_of(newest), bytes(body))
    told = found(table)
    assert len(told) == 2
    assert any("out of the order" in text for _, _, text in told)
    assert any(key == places.key_of(newest) and "not those" in text for _, key, text in told)
    table.store.delete([places.key_of(newest)])
    assert any("is missing" in text for _, _, text in found(table))
    assert len(found(table, checksums=True)) == 2


@pytest.mark.parametrize("tail", [True, False])
def test_large_segments_are_read_in_parts(monkeypatch, tail):
    monkeypatch.setattr("eventlog.limits.WHOLE_BYTES", 500 if tail else 2**20)
    table = keyed()
    part = in_bucket(rows(*range(500)))
    append_log(table, pa.concat_tables([part.slice(100), part.slice(0, 100)]))
    monkeypatch.setattr("eventlog.limits.WHOLE_BYTES", 500)
    segment = next(iter(table.refresh().segments()))
    assert (segment.tail is not None) == tail
    (finding,) = found(table)
    assert "out of the order" in finding[2]


# ------------------------------------------------------------------------------------- the program


def test_the_program_reports_keys(tmp_path):
    uri = str(tmp_path / "t")
    options = {"time_column": "at", "key": KEY, "order_by": "o", "granularity": "day"}
    table = Table.create(uri, SCHEMA, **options)
    upsert(table, rows(1, 2, 3))
    upsert(table, rows(3, day=1))

    def run(*more):
        return CliRunner().invoke(build(), ["fsck", uri, *more])

    answer = run("--keys")
    assert answer.exit_code == 0, answer.output
    assert "of 4 rows" in answer.output
    assert "1 key stands in chunk 2024-01-01 and in chunk 2024-01-02" in answer.output
    document = json.loads(run("--keys", "--json").output)
    assert (document["ok"], document["warnings"], document["keys_checked"]) == (True, 1, 4)
    assert json.loads(run("--json").output)["keys_checked"] is None
    Table.create(tmp_path / "plain", SCHEMA, time_column="at")
    refused = CliRunner().invoke(build(), ["fsck", str(tmp_path / "plain"), "--keys"])
    assert refused.exit_code == 2
    assert "no key" in refused.output
