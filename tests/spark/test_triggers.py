"""The triggers of a stream: an interval, and the continuous one, which Spark lacks for Python."""

import json
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.writers import append
from pyspark_eventlog import DefaultSource

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
START_US = 1_357_516_800_000_000  # 2013-01-07T00:00Z
DEADLINE_S = 120


def rows(first):
    """Ten rows."""
    found = list(range(first, first + 10))
    return pa.table([found, [START_US + n for n in found]], schema=SCHEMA)


@pytest.fixture
def table(local_uri):
    table = Table.create(local_uri, SCHEMA, time_column="ts")
    append(table, rows(0))
    return table


@pytest.mark.long  # other triggers, and this one for the source, are in a default run
@pytest.mark.shows("streaming sink")
def test_a_trigger_of_an_interval_appends_batch_after_batch(spark, table, tmp_path, ids):
    copy = (tmp_path / "copy").as_uri()
    stream = spark.readStream.format("eventlog").load(table.uri).writeStream.format("eventlog")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.option("timeColumn", "ts").trigger(processingTime="100 milliseconds").start(copy)
    try:
        for first in (10, 20):
            query.processAllAvailable()
            append(table, rows(first))
        query.processAllAvailable()
    finally:
        query.stop()
    assert ids(copy) == list(range(30))
    assert Table.open(copy).session.head().version == 3


@pytest.mark.shows("streaming source")
def test_a_continuous_source_is_refused(spark, table, tmp_path):
    stream = spark.readStream.format("eventlog").load(table.uri).writeStream.format("noop")
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(continuous="1 second")
    with pytest.raises(Exception, match="Data source eventlog does not support continuous proc"):
        stream.start()


class Telling(DefaultSource):
    """The data source, but a commit that is refused is told to the file of option `tell`."""

    @classmethod
    def name(cls):
        return "eventlog-telling"

    def streamWriter(self, schema, overwrite):
        file = Path(self.options.pop("tell"))
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def telling_commit(messages, batch):
            try:
                commit(messages, batch)
            except InvalidInput as error:
                file.with_suffix(".part").write_text(json.dumps(str(error)))
                file.with_suffix(".part").rename(file)
                raise

        writer.commit = telling_commit
        return writer


@pytest.mark.long  # without Spark: test_rows_that_spark_did_not_hand_over_are_not_taken_for_none
@pytest.mark.shows("streaming sink")
def test_a_continuous_sink_commits_nothing_anywhere(spark, tmp_path, local_uri):
    # Spark drops the rows. It logs the error of the sink, and the query runs on.
    told, checkpoint, pause = tmp_path / "told", tmp_path / "checkpoint", Event()
    spark.dataSource.register(Telling)
    rate = spark.readStream.format("rate").load().selectExpr("value as id", "timestamp as ts")
    stream = rate.writeStream.format(Telling.name()).option("tell", str(told))
    stream = stream.option("checkpointLocation", str(checkpoint)).option("timeColumn", "ts")
    query = stream.trigger(continuous="1 second").start(local_uri)
    try:
        for _ in range(DEADLINE_S * 20):
            if told.exists() or query.exception():
                break
            pause.wait(0.05)
        assert "trigger(processingTime=...)" in json.loads(told.read_text())
        assert query.isActive
    finally:
        query.stop()
    assert Table.open(local_uri).session.head().version == 0
    assert not list((checkpoint / "commits").glob("[0-9]*"))
