"""Streams of changes over deaths and restarts: each change once, under every merge rule."""

import random
from datetime import UTC

import pyarrow as pa
import pytest
from support.keyed_tables import KINDS, SCHEMA, WITH_OP, properties_of, row_of
from support.stream_queries import Died, Query

from eventlog import Table
from eventlog.compaction import Policy, run
from eventlog.readers import changes
from eventlog.readers.spark.source import load_schema, make_reader
from eventlog.writers import delete, overwrite, upsert

pytestmark = pytest.mark.data_source
KEY = ["k", "s"]
POLICY = Policy(target_bytes=4096, max_task_bytes=16384, small_task_bytes=0)


def keyed(uri, kind="last"):
    order = "o" if kind in ("last", "partial") else None
    return Table.create(
        uri, SCHEMA, time_column="at", key=KEY, buckets=4, order_by=order,
        properties=properties_of(kind, KEY),
    )  # fmt: skip


def change(table, chance, kind):
    table.refresh()
    what = chance.choice(["upsert", "upsert", "upsert", "compact", "delete", "overwrite"])
    if what == "compact":
        run(table, policy=POLICY)
    elif what == "delete" and kind != "aggregate":
        delete(table, keys=pa.table({"k": [chance.randrange(6)], "s": ["x"]}))
    else:
        some = [row_of(chance) for _ in range(chance.randint(1, 6))]
        fresh = pa.Table.from_pylist(some, schema=SCHEMA)
        (overwrite if what == "overwrite" and chance.random() < 0.3 else upsert)(table, fresh)


def told(found):
    return sorted(found, key=repr)


def expected(uri, start, end=None, **options):
    return told(changes(Table.open(uri), start, end, **options).to_table().to_pylist())


def loaded(uri, **options):
    """What the tasks of a load yield, one after the other."""
    options = {"path": uri, "readChanges": "true"} | options
    pinned, schema = load_schema(options)
    reader = make_reader(options, schema, pinned)
    found = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    return told(found)


# Spark 4.0 and 4.1 do not tell a source where the last batch ended.
@pytest.mark.parametrize(
    ("kind", "seed", "told_starts"),
    [
        ("groups", 1, False),
        *(
            pytest.param(kind, seed, bool(seed % 2), marks=pytest.mark.long)
            for kind in KINDS
            for seed in range(2, 8)
        ),
    ],
)
def test_a_stream_of_changes_is_that_of_python_over_deaths(local_uri, kind, seed, told_starts):
    table, chance = keyed(local_uri, kind), random.Random(seed)
    limits = [{}, {"maxVersionsPerTrigger": "2"}, {"maxBytesPerTrigger": "4000"}][seed % 3]
    given = {"readChanges": "true", "startingVersion": "0", "targetBytes": "3000", **limits}
    query = Query(local_uri, told=told_starts, **given)
    query.start()
    for _ in range(12):
        change(table, chance, kind)
        if chance.random() < 0.6:
            dies = chance.choice([None, None, "before", "after"])
            try:
                query.trigger(dies)
            except Died:
                query.start()
    query.start().drain()
    assert told(row for batch in query.rows.values() for row in batch) == expected(local_uri, 0)
    assert loaded(local_uri, startingVersion="0", targetBytes="3000") == expected(local_uri, 0)
    # Each batch has whole versions, and later batches later ones.
    versions = [{row["_version"] for row in query.rows[n]} for n in sorted(query.rows)]
    seen = [number for batch in versions for number in sorted(batch)]
    assert seen == sorted(set(seen))


@pytest.mark.scenario("S4.6")
@pytest.mark.parametrize(
    "root_uri",
    [pytest.param(place, marks=pytest.mark.long) for place in ("local", "s3")],
    indirect=True,
)
def test_spark_reads_changes_and_a_restart_goes_on(spark, root_uri, tmp_path):
    table, chance = keyed(root_uri), random.Random(9)

    def more():
        given = [row_of(chance) | {"_op": chance.choice("uud")} for _ in range(6)]
        upsert(table, pa.Table.from_pylist(given, schema=WITH_OP))

    def copy():
        stream = spark.readStream.format("eventlog").option("readChanges", "true")
        query = (
            stream.option("startingVersion", 1)
            .load(root_uri)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "copy"))
        )
        query.awaitTermination()

    def of(frame):
        return told(
            {name: value.replace(tzinfo=UTC) if hasattr(value, "tzinfo") else value
             for name, value in row.asDict().items()}
            for row in frame.collect()
        )  # fmt: skip

    more()
    more()
    copy()
    run(table, policy=POLICY)
    more()
    copy()
    wanted = expected(root_uri, 0)
    assert of(spark.read.parquet(str(tmp_path / "copy"))) == wanted
    load = spark.read.format("eventlog").option("readChanges", "true")
    assert of(load.option("startingVersion", 1).load(root_uri)) == wanted
    few = load.option("startingVersion", 2).option("endingVersion", 2).load(root_uri)
    assert of(few) == expected(root_uri, 1, 2)
    assert few.where("_change = 'delete'").count() == sum(
        row["_change"] == "delete" for row in expected(root_uri, 1, 2)
    )
