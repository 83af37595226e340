"""Buckets whose logs are too large for memory are merged range by range, with the same rows."""

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.builders import create
from support.keyed_tables import SCHEMA, WITH_OP, merged, ordered, properties_of, row_of

from eventlog.format.buckets import buckets_of
from eventlog.readers import changes, scan
from eventlog.readers.keyed import cuts
from eventlog.writers import delete, upsert

KEYS = {"k": ("k",), "both": ("s", "k")}


def table_of(kind, key, chance, buckets):
    """A base with late rows, and above it logs with deletes."""
    table = create(
        schema=pa.schema([f.with_nullable(f.name not in (*key, "o")) for f in SCHEMA]),
        time_column="at", granularity="all", key=key, order_by="o", buckets=buckets,
        properties=properties_of(kind, key),
    )  # fmt: skip
    for step in range(4):
        rows = [row_of(chance, keys_of=60) for _ in range(40)]
        if kind == "aggregate":
            upsert(table, pa.Table.from_pylist(rows, schema=SCHEMA))
        else:
            for row in rows:
                row["_op"] = chance.choice(["u", "u", "d"])
                if row["_op"] == "d" and kind in ("first", "groups"):
                    row["o"] = None
            upsert(table, pa.Table.from_pylist(rows, schema=WITH_OP))
        if step == 1:
            head = table.refresh()
            table.commit(merged(table, head, "all", 0, buckets - 1, 1, head.version))
    return table


def rows_of(query):
    return ordered(pa.Table.from_batches(query.to_batches(), query.schema).to_pylist())


CASES = [("partial", "both")] + [
    pytest.param(kind, key, marks=pytest.mark.long)
    for kind in ("last", "first", "partial", "groups", "aggregate")
    for key in sorted(KEYS)
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "key"), CASES)
def test_little_memory_gives_the_same_rows(kind, key, monkeypatch):
    chance = random.Random(f"{kind} {key}")
    table = table_of(kind, KEYS[key], chance, buckets=chance.choice([1, 3]))
    found, whole = [], cuts.sorted_portions

    def watched(*args):
        for portion in whole(*args):
            found.append(portion.key_range is not None)
            yield portion

    monkeypatch.setattr(cuts, "sorted_portions", watched)
    for where in (None, "k > 20", "a = 3"):
        query = scan(table, where=where)
        expected = rows_of(query)
        assert not found
        assert rows_of(replace(query, reading=replace(query.reading, ahead_bytes=1000))) == expected
        assert sum(found) > 4, where
        found.clear()
    told = changes(table, 0)
    expected = ordered(told.to_table().to_pylist())
    reading = replace(told.reading, reading=replace(told.reading.reading, ahead_bytes=2000))
    assert ordered(replace(told, reading=reading).to_table().to_pylist()) == expected
    assert sum(found) > 4


def test_a_look_up_in_a_bucket_whose_base_has_others_too():
    """The base of all buckets counts in one that is read by itself."""
    chance = random.Random(1)
    table = table_of("last", ("k", "s"), chance, buckets=3)
    rows = scan(table).to_table()
    last = rows.filter(pc.equal(buckets_of(rows, ("k", "s"), 3), 2)).slice(0, 1)
    upsert(table, last)
    expected = {(row["k"], row["s"]): row for row in scan(table).to_table().to_pylist()}
    for k, s in [
        *chance.sample(sorted(expected), 12),
        (last["k"][0].as_py(), last["s"][0].as_py()),
        (500, "x"),
    ]:
        found = scan(table, where=f"k = {k} AND s = '{s}'").to_table().to_pylist()
        assert found == ([expected[k, s]] if (k, s) in expected else []), (k, s)


@pytest.mark.parametrize(
    ("where", "gone", "expected"),
    [
        (pc.scalar(100) / pc.field("k") > 20, 0, [1, 2]),
        ("k + 9223372036854775806 > 0", 2, [-5, 0, 1]),
    ],
)
def test_a_filter_is_not_applied_to_rows_that_a_merge_removes(where, gone, expected):
    table = create(schema=SCHEMA, time_column="at", granularity="all", key="k", buckets=1)
    row = row_of(random.Random(1))
    upsert(table, pa.Table.from_pylist([row | {"k": k} for k in (0, 1, 2, -5)], schema=SCHEMA))
    delete(table, keys=pa.table({"k": [gone]}))
    assert sorted(scan(table, where=where).to_table().column("k").to_pylist()) == expected
