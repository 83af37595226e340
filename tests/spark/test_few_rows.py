"""What Spark's tasks return: adds, or few rows that the driver stages."""

import pyarrow as pa
import pytest
from support.builders import create, events

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


def test_bad_rows_fail_their_task_however_few(table):
    bad = events(2).append_column("_op", pa.array(["u", "x"]))
    with pytest.raises(InvalidInput, match="'x'"):
        staged(table, bad)
