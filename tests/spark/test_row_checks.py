"""Checks of a table are tested by every road in from Spark, on the executors."""

import pytest
from pyspark.errors import PythonException, StreamingQueryException

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.readers import count
from eventlog.writers.spark import append, merge, overwrite, update, upsert

FALSE = r"check 'small' \(id < 30\) is false for 1 row.*\(id = 30\)"


@pytest.fixture
def table(events, local_uri):
    """The root of a table of 20 rows with a check that id 30 breaks."""
    append(local_uri, events(20), time_column="ts")
    Table.open(local_uri).add_check("small", "id < 30")
    return local_uri


def refused(act, uri):
    with pytest.raises(
        (InvalidInput, PythonException, StreamingQueryException), match="(?s)" + FALSE
    ):
        act()
    assert count(Table.open(uri)) == 20


@pytest.mark.everyday
def test_every_road_from_spark_tests_its_rows(events, table, spark):
    bad = events(1, first=30)
    refused(lambda: append(table, bad), table)
    refused(lambda: overwrite(table, bad), table)
    refused(lambda: overwrite(table, bad, where="id >= 0"), table)
    refused(lambda: merge(table, bad, "id"), table)
    refused(lambda: update(table, spark, {"id": "id + 11"}, "id = 19"), table)
    append(table, events(1, first=29))
    assert count(Table.open(table)) == 21


@pytest.mark.data_source
def test_saves_and_streams_test_their_rows(events, table, spark, tmp_path):
    bad = events(1, first=30)
    refused(lambda: bad.write.format("eventlog").mode("append").save(table), table)
    bad.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events(1).schema).parquet(str(tmp_path / "in"))
    sink = stream.writeStream.format("eventlog").option("path", table)
    sink = sink.option("checkpointLocation", str(tmp_path / "progress"))

    def run():
        sink.trigger(availableNow=True).start().awaitTermination()

    refused(run, table)


def test_a_keyed_table_tests_upserts(events, local_uri):
    append(local_uri, events(3), time_column="ts", key="id")
    Table.open(local_uri).add_check("small", "id < 30")
    with pytest.raises((InvalidInput, PythonException), match="(?s)" + FALSE):
        upsert(local_uri, events(1, first=30))
    upsert(local_uri, events(2, first=2))
    assert count(Table.open(local_uri)) == 4
