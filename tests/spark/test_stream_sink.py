"""The streaming sink through Spark: rows, restarts, kills around a commit, and at any time."""

import os
import random
import signal
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from spark.programs import result, started
from spark.stream_job import read_stream

from eventlog import Table
from eventlog.writers.spark import append

JOB = Path(__file__).with_name("stream_job.py")
TIMEOUT_S = 240
START = 1_357_516_800  # 2013-01-07T00:00Z
KILLS = 20
COLUMNS = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
)


class Files:
    """A folder of files that a query reads one a micro-batch, and a place for its checkpoint."""

    def __init__(self, path):
        self.path, self.checkpoint = path / "files", path / "checkpoint"
        self.path.mkdir()
        self._count = 0

    def add(self, ids):
        """Add a file with rows of these ids."""
        rows = (f'{{"id":{i},"ts":"{stamp(i)}","name":"name-{i}"}}\n' for i in ids)
        hidden = self.path / f".{self._count}"  # Spark does not list it until it is whole
        hidden.write_text("".join(rows))
        # Spark reads the oldest file first.
        os.utime(hidden, (START + self._count, START + self._count))
        hidden.rename(self.path / f"{self._count:05}.json")
        self._count += 1

    def of(self, uri):
        """The first arguments of the job that reads them into a table."""
        return uri, self.path, self.checkpoint


@pytest.fixture
def files(tmp_path):
    """No files yet."""
    return Files(tmp_path)


def stamp(number):
    """The time of the row with this id."""
    minutes = abs(number) % 1000
    return f"2013-01-07T{minutes // 60:02}:{minutes % 60:02}:00Z"


@pytest.fixture
def run(spark, files):
    """A function: run a query over the files until all are read; returns the query."""

    def start(uri, source="eventlog", checkpoint=files.checkpoint, **options):
        stream = read_stream(spark, files.path).writeStream.trigger(availableNow=True)
        stream = stream.format(source).option("checkpointLocation", str(checkpoint))
        query = stream.options(**{"timeColumn": "ts"} | options).start(uri)
        query.awaitTermination()
        return query

    return start


@pytest.mark.everyday
@pytest.mark.data_source
@pytest.mark.parametrize(
    "root_uri", ["s3", pytest.param("local", marks=pytest.mark.long)], indirect=True
)
def test_rows_land_once_over_restarts_and_files_without_any(run, files, rows_of, root_uri):
    files.add(range(10))
    files.add(range(-5, 0))
    files.add(range(10, 20))
    query = run(root_uri)
    head = Table.open(root_uri).session.head()
    assert (head.version, {n: m.seq for n, m in head.meta.apps.items()}) == (2, {query.id: 2})
    run(root_uri)
    assert Table.open(root_uri).session.head().version == 2
    files.add(range(20, 25))
    assert run(root_uri).id == query.id
    rows = rows_of(root_uri)
    assert rows.column("id").to_pylist() == list(range(25))
    assert rows.column("name").to_pylist() == [f"name-{i}" for i in range(25)]
    times = [t.isoformat().replace("+00:00", "Z") for t in rows.column("ts").to_pylist()]
    assert times == [stamp(i) for i in range(25)]
    assert Table.open(root_uri).session.head().meta.apps[query.id].seq == 3


@pytest.mark.data_source
def test_a_new_checkpoint_is_a_new_query(run, files, ids, local_uri):
    files.add(range(5))
    first = run(local_uri)
    files.add(range(5, 8))
    second = run(local_uri, checkpoint=files.path.with_name("another"))
    assert second.id != first.id
    # It has read all files again, and none of its batches was taken for one of the first query.
    assert ids(local_uri) == sorted([*range(5), *range(8)])


@pytest.mark.sample(0, verify=1)
@pytest.mark.data_source
@pytest.mark.hazard("I2", "I3")
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_query_goes_on_where_its_committer_died(  # noqa: PLR0917 - fixtures
    run, files, ids, bucket, dying, when
):
    uri = f"s3://{bucket}/table"
    for first in range(0, 15, 5):
        files.add(range(first, first + 5))
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        run(uri, dying, dies=when, batch=1)
    assert ids(uri) == list(range(10 if when == "after" else 5))
    run(uri)
    assert ids(uri) == list(range(15))
    assert Table.open(uri).session.head().version == 3


@pytest.mark.data_source
def test_what_is_refused_says_why_in_the_error_of_the_query(run, files, local_uri):
    files.add(range(5))
    with pytest.raises(Exception, match="appId, appSeq is for batch writes: a stream counts"):
        run(local_uri, appId="job", appSeq="1")


def test_for_each_batch_appends_once_wherever_spark_has_no_sink(spark, files, ids, local_uri):
    for first in range(0, 15, 5):
        files.add(range(first, first + 5))
    lost, tries = {1}, []

    def save(batch, number):
        tries.append(number)
        append(local_uri, batch, time_column="ts", app_id="checkpoint-1", app_seq=number)
        if number in lost:  # committed, but Spark does not hear of it
            lost.remove(number)
            raise ConnectionError("lost")

    def run_query():
        stream = read_stream(spark, files.path).writeStream.foreachBatch(save)
        stream = stream.option("checkpointLocation", str(files.checkpoint))
        stream.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="lost"):
        run_query()
    run_query()
    assert tries == [0, 1, 1, 2]
    assert ids(local_uri) == list(range(15))
    assert Table.open(local_uri).session.head().version == 3


@pytest.mark.data_source
@pytest.mark.hazard("I2")
@pytest.mark.long  # a JVM a case; a query whose committer died leaves the same: the test above
@pytest.mark.parametrize(
    ("root_uri", "when"),
    [("s3", "before"), ("s3", "after"), ("local", "after")],
    indirect=["root_uri"],
)
def test_the_query_goes_on_where_its_driver_died(run, files, ids, root_uri, when):
    for first in range(0, 15, 5):
        files.add(range(first, first + 5))
    code, errors = result(JOB, *files.of(root_uri), when, timeout=TIMEOUT_S)
    assert code == -signal.SIGKILL, errors
    assert ids(root_uri) == list(range(10 if when == "after" else 5))
    run(root_uri)
    assert ids(root_uri) == list(range(15))
    assert Table.open(root_uri).session.head().version == 3


@pytest.mark.data_source
@pytest.mark.hazard("I2", "I3")
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twenty_kills_of_a_running_query_lose_and_double_nothing(files, ids, root_uri):
    table = Table.create(root_uri, COLUMNS, time_column="ts")
    seeded, pause, count = random.Random(20), Event(), 0
    for _ in range(KILLS):
        for _ in range(6):
            files.add(range(count, count + 5))
            count += 5
        until = table.refresh().version + seeded.randrange(5)
        with started(JOB, *files.of(root_uri), "run") as process:
            while table.refresh().version < until and process.poll() is None:
                pause.wait(0.02)
            pause.wait(seeded.uniform(0, 1))
    code, errors = result(JOB, *files.of(root_uri), "run", timeout=TIMEOUT_S)
    assert code == 0, errors
    assert ids(root_uri) == list(range(count))
    # A kill between Spark's notes of a file and of its batch puts two files into one.
    assert table.refresh().version <= count // 5
