"""Spark Connect: a client in another process writes and reads, also one without py4j.

The server runs in the JVM of the tests' session, as its plugin starts it in another one.
"""

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
TIMEOUT_S = 240


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


def client(server, places, *options):
    """What a client found."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "SPARK_", "PYSPARK_"))
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, JOB, server, json.dumps(places), *options],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.partition("JVM stacktrace")[0][-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["full", "light"])
def test_a_client_writes_and_reads_any_version(server, kind, tmp_path, s3, bucket):
    light = kind == "light"
    places = {(tmp_path / "table").as_uri(): {}}
    if not light:
        places[f"s3://{bucket}/table"] = s3.storage_options()
    found = client(server, places, *(["light"] if light else []))
    assert bool(found["loaded"]) != light
    for uri, storage in places.items():
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
        assert table.head().version == 2
