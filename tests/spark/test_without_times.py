"""Tables without a time column, written and read by Spark."""

import pytest

from eventlog import Table
from eventlog.errors import InvalidInput, TableNotFound
from eventlog.readers.spark import read
from eventlog.writers.spark import append, delete, overwrite, update, upsert


@pytest.fixture
def stations(spark):
    def frame(**heights):
        return spark.createDataFrame([*heights.items()], "code string, height double")

    return frame


def found(frame):
    return {row.code: row.height for row in frame.collect()}


def test_a_table_is_made_without_a_time_column(spark, stations, local_uri):
    with pytest.raises(TableNotFound, match="without a time column give granularity all, or a key"):
        append(local_uri, stations(ams=1.0))
    append(local_uri, stations(ams=1.0, ber=2.0).coalesce(1), granularity="all")
    layout = Table.open(local_uri).snapshot().layout
    assert (layout.time_column, layout.granularity) == (None, "all")
    assert found(read(spark, local_uri, where="height > 1.5")) == {"ber": 2.0}
    with pytest.raises(InvalidInput, match="no range of time selects"):
        overwrite(local_uri, stations(cph=4.0), start="2013-01-01")


@pytest.mark.long
def test_rows_are_changed_without_a_time_column(spark, stations, local_uri):
    append(local_uri, stations(ams=1.0, ber=2.0), granularity="all")
    stations(cph=3.0).write.format("eventlog").mode("append").save(local_uri)
    for engine in ("arrow", "jvm"):
        rows = read(spark, local_uri, engine=engine, where="height > 1.5")
        assert found(rows) == {"ber": 2.0, "cph": 3.0}
    update(local_uri, spark, {"height": "height + 1"}, where="code = 'ber'")
    delete(local_uri, spark, where="code = 'ams'")
    overwrite(local_uri, stations(cph=4.0), where="code = 'cph'")
    loaded = spark.read.format("eventlog").load(local_uri)
    assert found(loaded.where("code <> 'x'")) == {"ber": 3.0, "cph": 4.0}
    overwrite(local_uri, stations(osl=5.0))
    assert found(spark.read.format("eventlog").load(local_uri)) == {"osl": 5.0}


@pytest.mark.long
def test_a_key_is_enough_to_make_a_table(spark, stations, local_uri):
    upsert(local_uri, stations(ams=1.0, ber=2.0), key="code")
    upsert(local_uri, stations(ber=3.0), key="code", granularity="all")
    delete(local_uri, spark.createDataFrame([("ams",)], "code string"))
    assert found(read(spark, local_uri)) == {"ber": 3.0}
    with pytest.raises(InvalidInput, match="must be a range of the time column, and the table has"):
        overwrite(local_uri, stations(ber=1.0), where="code = 'ber'")
    with pytest.raises(InvalidInput, match=r"option timeColumn is 'height', but .* has none"):
        upsert(local_uri, stations(ber=3.0), time_column="height")
    with pytest.raises(InvalidInput, match="cannot have chunks by day"):
        upsert(local_uri + "-2", stations(ber=3.0), key="code", granularity="day")


@pytest.mark.long
def test_its_appends_are_streamed(spark, stations, local_uri, tmp_path):
    append(local_uri, stations(ams=1.0), granularity="all")
    append(local_uri, stations(ber=2.0))
    query = (
        spark.readStream.format("eventlog")
        .load(local_uri)
        .writeStream.format("eventlog")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("granularity", "all")
        .trigger(availableNow=True)
        .start((tmp_path / "copy").as_uri())
    )
    query.awaitTermination()
    assert found(read(spark, (tmp_path / "copy").as_uri())) == {"ams": 1.0, "ber": 2.0}
