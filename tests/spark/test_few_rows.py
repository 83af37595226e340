"""What Spark's tasks return: adds, or few rows that the driver stages."""

import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import create, events

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.staging.encoding import Recipe
from eventlog.writers.spark.jobs import NO_ADDS, adds_of, stage_task


@pytest.fixture
def table():
    return create(key="name", buckets=4, granularity="all")


MEMORY = 2**26


def staged(table, *rows):
    recipe = Recipe.of(table.session.head())
    return recipe, [stage_task(table, recipe, part.to_batches(), MEMORY) for part in rows]


def test_neighbours_with_few_rows_are_one_segment_in_their_place(table):
    many = events(20_000)
    recipe, found = staged(table, events(3), events(0), events(2), many, events(1))
    assert found[1] == NO_ADDS
    before = len(list(table.store.list("data/")))
    adds = adds_of(table, recipe, found, MEMORY)
    assert [add.rows for add in adds] == [5 - 2, 20_000, 1]  # of two rows of a key the last one
    assert len(list(table.store.list("data/"))) == before + 2


def test_few_rows_of_a_table_without_a_key_are_staged_by_their_task():
    plain = create()
    recipe, found = staged(plain, events(2))
    assert found[0].startswith(b"[{")
    assert [add.rows for add in adds_of(plain, recipe, found, MEMORY)] == [2]


def test_few_rows_of_all_tasks_stand_in_the_commit_together():
    small = create(properties={"inline_bytes": "16384"})
    recipe, found = staged(small, events(3), events(0), events(2, first=3), events(4, first=5))
    assert [message[:1] == b"[" for message in found] == [False, True, False, False]
    (add,) = adds_of(small, recipe, found, MEMORY)
    assert (add.rows, len(add.parquet)) == (9, add.bytes)
    assert list(small.store.list("data/")) == []


def test_beside_the_rows_of_a_large_task_they_have_an_object():
    small = create(properties={"inline_bytes": "16384"})
    alike = pa.concat_tables([events(1)] * 5000)  # large in Arrow, and small in Parquet
    recipe, found = staged(small, events(3), alike, events(2, first=3))
    adds = adds_of(small, recipe, found, MEMORY)
    assert sorted(add.rows for add in adds) == [5, 5000]
    assert all(add.parquet is UNSET for add in adds)


def test_bad_rows_fail_their_task_however_few(table):
    bad = events(2).append_column("_op", pa.array(["u", "x"]))
    with pytest.raises(InvalidInput, match="'x'"):
        staged(table, bad)


def test_a_small_save_of_many_tasks_stands_in_its_commit(spark, root_uri):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    t = Table.create(root_uri, schema, properties={"inline_bytes": "16384"})
    frame = spark.range(100, numPartitions=4).selectExpr("id", "concat('n', id) AS name")
    frame.write.format("eventlog").mode("append").save(root_uri)
    totals = t.refresh().totals
    assert (totals.rows, totals.segments, totals.inline) == (100, 1, 1)
    assert list(t.store.list("data/")) == []
    large = spark.range(40_000, numPartitions=4).selectExpr("id", "sha2(string(id), 256) AS name")
    large.write.format("eventlog").mode("append").save(root_uri)
    assert t.refresh().totals.inline == 1
    assert t.refresh().totals.rows == 40_100
    read = spark.read.format("eventlog").load(root_uri)
    assert read.count() == 40_100
    assert read.where("name = 'n7'").collect()[0].id == 7
