"""The batch writer through Spark: what lands, what is refused, and that jobs take effect once."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from eventlog import Table
from eventlog.readers.spark import activate

DAY = 10  # rows of `events` in one day


def refused(run):
    """What kind of error a job ends with, and its message."""
    with pytest.raises(Exception) as caught:
        run()
    return f"{type(caught.value).__name__}: {caught.value}"


def version(uri):
    """The newest version."""
    return Table.open(uri).session.head().version


def staged(uri):
    """The number of segments in the store, live or not."""
    return sum(1 for _ in Table.open(uri).store.list("data/"))


@pytest.mark.everyday
def test_rows_written_are_the_rows_read(events, save, load, ids, root_uri):
    save(events(25), root_uri)
    save(events(5, first=25), root_uri)
    assert ids(root_uri) == list(range(30))
    assert sorted(load(root_uri).collect()) == sorted(events(30).collect())
    table = Table.open(root_uri)
    assert [c.chunk.name for c in table.session.head().chunks()] == [
        "2013-01-07",
        "2013-01-08",
        "2013-01-09",
    ]
    assert [entry.operation for entry in table.history()] == ["append", "append", "create"]


def test_a_table_is_created_as_the_options_say(events, save, local_uri):
    options = {"granularity": "hour", "orderBy": "name,id"}
    properties = {"property.segment_bytes": "4096", "property.user.owner": "me"}
    save(events(3), local_uri, **options, **properties)
    head = Table.open(local_uri).session.head()
    assert (head.layout.granularity, head.layout.order_by) == ("hour", ("name", "id"))
    own = {"segment_bytes": "4096", "user.owner": "me"}
    assert head.properties == {"inline_bytes": "16384", **own}
    assert head.schema == pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
    )


@pytest.mark.data_source
def test_an_absent_table_needs_a_time_column(events, local_uri, tmp_path):
    df = events(3)
    message = refused(lambda: df.write.format("eventlog").mode("append").save(local_uri))
    assert "TableNotFound" in message
    assert "give option timeColumn" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.data_source
@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_other_modes_name_the_two_that_work(events, save, local_uri, mode):
    message = refused(lambda: save(events(3), local_uri, mode=mode))
    assert '"Append" or "Overwrite"' in message


def test_null_event_times_fail_the_job(events, save, local_uri, ids):
    save(events(5), local_uri)
    bad = events(20, first=5, partitions=1).selectExpr(
        "id", "if(id % 10 = 7, null, ts) as ts", "name"
    )
    message = refused(lambda: save(bad, local_uri))
    assert "column 'ts': 2 event times are null, for example row id=7" in message
    assert "nothing was committed" in message
    assert version(local_uri) == 1
    assert ids(local_uri) == list(range(5))


def test_a_schema_that_does_not_fit_fails_before_any_task(events, save, local_uri):
    save(events(5), local_uri)
    before = staged(local_uri)
    assert "unknown columns: 'x'" in refused(
        lambda: save(events(5).selectExpr("*", "1 as x"), local_uri)
    )
    assert "column 'id' has type string, and int64 in the table" in refused(
        lambda: save(events(5).selectExpr("name as id", "ts", "name"), local_uri)
    )
    assert version(local_uri) == 1
    assert staged(local_uri) == before


def test_a_frame_without_rows(spark, events, save, local_uri):
    save(events(5), local_uri)
    save(events(5).where("id > 99"), local_uri)
    save(spark.createDataFrame([], events(1).schema), local_uri)
    assert version(local_uri) == 1
    save(events(5).where("id > 99"), local_uri, mode="overwrite")
    assert version(local_uri) == 2
    assert Table.open(local_uri).session.head().totals.rows == 0


def test_an_overwrite_carries_forward_what_came_after_the_version_it_read(
    events, save, ids, local_uri
):
    save(events(5), local_uri)
    read = version(local_uri)
    save(events(3, first=5), local_uri)
    save(events(2, first=20), local_uri, mode="overwrite", readVersion=read)
    assert ids(local_uri) == [5, 6, 7, 20, 21]
    save(events(1, first=30), local_uri)
    error = refused(
        lambda: save(
            events(1, first=40),
            local_uri,
            mode="overwrite",
            readVersion=read + 2,
            isolation="serializable",
        )
    )
    assert "CommitConflict" in error
    assert ids(local_uri) == [5, 6, 7, 20, 21, 30]


def test_overwrite_replaces_everything_or_a_range(events, save, ids, local_uri):
    save(events(3 * DAY), local_uri)
    day = "ts >= '2013-01-08' AND ts < '2013-01-09'"
    save(events(2, first=DAY), local_uri, mode="overwrite", replaceWhere=day)
    assert ids(local_uri) == [*range(DAY + 2), *range(2 * DAY, 3 * DAY)]
    save(events(5, first=100), local_uri, mode="overwrite")
    assert ids(local_uri) == list(range(100, 105))
    assert ids(local_uri, version=1) == list(range(30))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_first_rows_choose_the_granularity_and_days_can_still_be_replaced(
    events, save, ids, local_uri, mode
):
    # The driver would stage few rows of all tasks together.
    in_files = {"property.inline_bytes": "0"}
    save(events(40 * DAY, partitions=2), local_uri, mode=mode, **in_files)
    table = Table.open(local_uri)
    assert table.refresh().layout.granularity == "day"  # no task has rows of many days
    table.restore(0)
    save(events(80 * DAY, partitions=2), local_uri, mode=mode)
    assert table.refresh().layout.granularity == "month"
    assert {len(s.chunk) for s in table.snapshot().segments()} == {len("2013-01")}
    day = "ts >= '2013-01-08' AND ts < '2013-01-09'"
    save(events(2, first=DAY), local_uri, mode="overwrite", replaceWhere=day)
    save(events(1, first=2 * DAY), local_uri, "overwrite", start="2013-01-09", end="2013-01-10")
    assert ids(local_uri) == [*range(DAY + 2), 2 * DAY, *range(3 * DAY, 80 * DAY)]


def test_rows_outside_the_range_are_refused(events, save, local_uri):
    day = "ts >= '2013-01-08' AND ts < '2013-01-09'"
    message = refused(lambda: save(events(3 * DAY), local_uri, "overwrite", replaceWhere=day))
    assert "new rows of 2013-01-07, outside the range" in message
    assert version(local_uri) == 0


@pytest.mark.shows("idempotent re-run")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_with_an_app_id_takes_effect_once(events, save, local_uri, mode):
    """The second run stages nothing, and does not choke on the rows that nobody reads."""
    found = []
    for _ in range(2):
        df = events(200_000, per_day=86_400)
        save(df, local_uri, mode=mode, appId="nightly", appSeq="7")
        found.append(staged(local_uri))
    assert found[0] == found[1]
    assert version(local_uri) == 1
    save(events(1, first=300_000), local_uri, appId="nightly", appSeq="8")
    assert Table.open(local_uri).session.head().totals.rows == 200_001


def test_concurrent_jobs_all_commit_and_create_one_table(spark, events, save, ids, root_uri):
    def job(n):
        activate(spark)
        save(events(5, first=5 * n, partitions=1), root_uri)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(job, range(4)))
    assert ids(root_uri) == list(range(20))
    # Writers that lost races may share a commit.
    assert sum(entry.transactions for entry in Table.open(root_uri).history()) == 5


def test_a_task_whose_input_failed_is_tried_again(events, save, ids, local_uri, tmp_path):
    flag = tmp_path / "failed-once"

    def fail_once(batches):
        yield from batches
        if not flag.exists():
            flag.touch()
            raise RuntimeError("the first attempt fails")

    df = events(40, partitions=1)
    save(df.mapInArrow(fail_once, df.schema), local_uri)
    assert flag.exists()
    assert ids(local_uri) == list(range(40))


@pytest.fixture
def dying(spark):
    """The data source, but the first attempt of a task fails when all its rows are staged."""
    from pyspark_eventlog import DefaultSource  # noqa: PLC0415 - Spark 3.5 has none

    class Dying(DefaultSource):
        @classmethod
        def name(cls):
            return "eventlog-dying"

        def writer(self, schema, overwrite):
            flag = Path(self.options.pop("flag"))
            writer = super().writer(schema, overwrite)
            write = writer.write

            def once(iterator):
                message = write(iterator)
                if not flag.exists():
                    flag.touch()
                    raise RuntimeError("staged, then dead")
                return message

            writer.write = once
            return writer

    spark.dataSource.register(Dying)


@pytest.mark.data_source
@pytest.mark.hazard("I1")
@pytest.mark.usefixtures("dying")
def test_what_a_failed_attempt_staged_stays_out(events, save, ids, tmp_path):
    local_uri = (tmp_path / "table").as_uri()
    save(events(1, first=1000), local_uri, **{"property.inline_bytes": "0"})
    flag = tmp_path / "staged-once"
    rows = events(40, partitions=1)
    rows.write.format("eventlog-dying").mode("append").option("flag", str(flag)).save(local_uri)
    assert flag.exists()
    assert ids(local_uri) == [*range(40), 1000]
    # Both attempts left the segments of four days; the log has those of one.
    assert staged(local_uri) == Table.open(local_uri).session.head().totals.segments + 4


@pytest.mark.data_source
def test_insert_into_a_view(spark, events, save, ids, local_uri):
    save(events(3), local_uri)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING eventlog OPTIONS (path '{local_uri}', "
        "targetBytes '1000000')"
    )
    events(2, first=10).createOrReplaceTempView("more")
    spark.sql("INSERT INTO v SELECT * FROM more")
    assert ids(local_uri) == [0, 1, 2, 10, 11]


@pytest.mark.data_source
@pytest.mark.hazard("W9")
def test_an_overwrite_of_a_view_keeps_what_came_after_its_version(  # noqa: PLR0917 - fixtures
    spark, events, save, ids, local_uri, tmp_path
):
    save(events(3), local_uri)
    table_id = Table.open(local_uri).id
    view = f"CREATE TEMPORARY VIEW w USING eventlog OPTIONS (path '{local_uri}', "
    spark.sql(f"{view} readVersion '1', tableId '{table_id}')")
    events(2, first=10).createOrReplaceTempView("more")
    spark.sql("INSERT INTO w SELECT * FROM more")
    overwrite = "INSERT OVERWRITE w SELECT id + 100 AS id, ts, name FROM w"
    spark.sql(overwrite)
    assert ids(local_uri) == [10, 11, 100, 101, 102]
    assert "read the table again" in refused(lambda: spark.sql(overwrite))
    assert spark.table("w").count() == 3
    Path(local_uri.removeprefix("file://")).rename(tmp_path / "old")
    save(events(1), local_uri)
    for verb in ("INTO", "OVERWRITE"):
        sql = f"INSERT {verb} w SELECT * FROM more"
        assert "there is now another one here" in refused(lambda sql=sql: spark.sql(sql))
    assert ids(local_uri) == [0]


@pytest.mark.hazard("W1")
def test_the_session_zone_does_not_move_instants(spark, events, save, rows_of, local_uri):
    df = events(3)
    expected = [row.ts.timestamp() for row in df.collect()]
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        save(df, local_uri)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = rows_of(local_uri).column("ts").to_pylist()
    assert [moment.timestamp() for moment in found] == expected


def test_times_without_a_zone_are_utc_whatever_the_session_says(spark, save, rows_of, local_uri):
    day = "2020-02-01 00:00:00"
    first = f"TIMESTAMP'{day}Z' AS at, TIMESTAMP'{day}Z' AS ts"
    save(spark.sql(f"SELECT {first}"), local_uri, timeColumn="at")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for told in (f"TIMESTAMP_NTZ'{day}'", "DATE'2020-02-01'", f"'{day}'"):
            ts = "TIMESTAMP_NTZ'2020-02-01'" if told.startswith("'") else told
            save(spark.sql(f"SELECT {told} AS at, {ts} AS ts"), local_uri, timeColumn="at")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    midnight = dt.datetime(2020, 2, 1, tzinfo=dt.UTC)
    assert rows_of(local_uri).to_pydict() == {"at": [midnight] * 4, "ts": [midnight] * 4}
