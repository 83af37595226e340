"""Spark Connect: a client in another process writes, reads and streams, also one without py4j.

The server runs in the JVM of the tests' session, as its plugin starts it in another one.
"""

import datetime as dt
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from eventlog import Table, readers
from eventlog.readers.spark.workers import has_data_sources

pytestmark = pytest.mark.long  # a client takes its time to connect
JOB = Path(__file__).with_name("connect_job.py")
STREAM_JOB = JOB.with_name("connect_stream_job.py")
TIMEOUT_S = 240
START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def server(spark):
    """The address of a server."""
    if not has_data_sources():
        pytest.skip("the PySpark of pip has a Spark Connect server from 4.0 on")
    if find_spec("grpc") is None:
        pytest.skip("the client needs the extra connect: run make setup")
    package = spark._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    default = (getattr(service, f"stop$default${number}")() for number in (1, 2))
    service.stop(*default)


@pytest.fixture(params=["full", "light"])
def client(request, server):
    """A function: what a client said that ran a job, one with all of PySpark or a light one."""
    light = request.param == "light"

    def run(job, given):
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SPARK_", "PYSPARK_"))
        }
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, job, server, json.dumps(given), *(["light"] if light else [])]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr.partition("JVM stacktrace")[0][-3000:]
        said = json.loads(done.stdout.splitlines()[-1])
        assert bool(said["loaded"]) != light
        return said

    run.light = light
    return run


@pytest.fixture
def roots(client, tmp_path, s3, bucket):
    """Where tables are to be, and the storage options there."""
    local = {(tmp_path / "tables").as_uri(): {}}
    return local if client.light else local | {f"s3://{bucket}/tables": s3.storage_options()}


def test_a_client_writes_and_reads_any_version_also_of_keys(client, roots):
    found = client(JOB, roots)
    for uri, storage in roots.items():
        said = found["places"][uri]
        assert said["first"] == [1, 1]  # the second is the same unit of work
        assert said["choice"] == "arrow"
        assert {"source", "arrow", "auto"} < said["ids"].keys()
        wanted = {"version 1": range(40), "few": range(15)}
        for way, ids in said["ids"].items():
            _, _, what = way.partition(", ")
            assert ids == list(wanted.get(what, range(60))), (uri, way)
        table = Table.open(uri, storage_options=storage)
        assert readers.scan(table).to_table().num_rows == 60
        assert table.session.head().version == 2
        segments = len(table.session.head().segments())
        wanted = {"history": 3, "segments": segments, "changes": 20, "frame": 20}
        assert found["calls"][uri] == wanted
    # Of a keyed table each key once, as it was written last, but for those that were deleted.
    kept = [[n, "old"] for n in range(10)]
    new = [[n, "new"] for n in range(12, 30)]
    for uri, said in found["keyed"].items():
        assert said["source"] == said["function"] == kept + new[:-2], uri
        assert said["version 2"] == kept + new, uri
        head = Table.open(f"{uri}-keyed", storage_options=roots[uri]).session.head()
        assert head.version == 3


def rows(ids):
    """The rows with these ids, as the files have them."""
    return [{"id": n, "ts": START + dt.timedelta(hours=n), "name": f"name-{n}"} for n in ids]


def add_file(folder, name, ids):
    lines = (json.dumps(row | {"ts": row["ts"].isoformat()}) + "\n" for row in rows(ids))
    (folder / name).write_text("".join(lines))


@pytest.fixture
def stream(client, tmp_path, request):
    """A function: run queries by these names, each until it has read what there is.

    `sink` goes from files to a table, `copy` and `each` from that table to tables of their own.
    Tables lie in a directory, and those of the full client on S3.
    """
    root, storage = (tmp_path / "tables").as_uri(), {}
    if not client.light:
        root = f"s3://{request.getfixturevalue('bucket')}/tables"
        storage = request.getfixturevalue("s3").storage_options()

    def query(name, trigger):
        source = {"table": f"{root}/sink"}
        return {
            "source": {"files": str(tmp_path / "files")} if name == "sink" else source,
            "sink": {"table": f"{root}/{name}"}
            | ({"lost": str(tmp_path / "lost")} if name == "each" else {}),
            "checkpoint": str(tmp_path / "checkpoints" / name),
            "trigger": trigger,
            "storage": storage,
            "options": {"columns": "id,ts,name"},
        }

    def run(*names, **trigger):
        said = client(STREAM_JOB, [query(name, trigger) for name in names])
        assert not said["eventlog"]  # only the server needs it
        return said["queries"]

    run.root = root
    return run


@pytest.mark.timeout(2 * TIMEOUT_S + 60)
def test_streams_of_a_client_go_on_from_their_checkpoints(stream, tmp_path, rows_of):
    files = tmp_path / "files"
    files.mkdir()
    add_file(files, "0.json", range(30))
    add_file(files, "1.json", range(30, 60))
    sink, copy, lost, each = stream("sink", "copy", "each", "each", availableNow=True)
    assert [sink["error"], copy["error"], each["error"]] == [None] * 3
    assert "lost after the commit" in lost["error"]

    add_file(files, "2.json", range(60, 90))
    # Another client starts the same checkpoints, and each query is handed the new rows only.
    again = stream("sink", "copy", "each", "copy", processingTime="0 seconds")
    assert [query["error"] for query in again] == [None] * 4
    assert [query["rows"] for query in again] == [30, 30, 30, 0]
    assert [query["id"] for query in again] == [sink["id"], copy["id"], each["id"], copy["id"]]

    for name in ("sink", "copy", "each"):
        assert rows_of(f"{stream.root}/{name}").to_pylist() == rows(range(90)), name
    head = Table.open(f"{stream.root}/sink").session.head()
    assert {name: mark.seq for name, mark in head.meta.apps.items()} == {sink["id"]: 2}
    assert head.version == 3
