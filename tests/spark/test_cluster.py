"""A cluster of a master and two workers: nothing leans on one process, folder or environment.

Every process has a home of its own, with its own `python3`, and no AWS environment: where the store
is, and who may use it, travels in storage options only.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from support.distribution import SHORT_JVM

from eventlog import Table, readers
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.writers import append, overwrite, upsert

pytestmark = pytest.mark.long  # six JVMs; test_write and test_read show the same on local[2]

SPARK = Path(pyspark.__file__).parent
JOB = Path(__file__).with_name("cluster_job.py")
START_S, JOB_S = 60, 480
KINDS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def make_home(folder):
    """Make a folder with a `python3` that has eventlog, and return the environment to start in."""
    (folder / "bin").mkdir(parents=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    program = folder / "bin" / "python3"
    setting = f"HOME_OF={folder.name} PYTHONPATH='{paths}'"
    program.write_text(f'#!/bin/sh\nexport {setting}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    java = os.environ.get("JAVA_HOME")
    others = [str(Path(java) / "bin")] if java else [str(Path(shutil.which("java")).parent)]
    return {
        "PATH": os.pathsep.join([str(folder / "bin"), *others, "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_JVM,
        "PYSPARK_PYTHON": "python3",
        "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{SHORT_JVM}" pyspark-shell',
        **({"JAVA_HOME": java} if java else {}),
    }


def start(stack, folder, role, *arguments):
    """Start a daemon of Spark, which ends with the stack; return its log."""
    environment = make_home(folder)
    log = folder / "log"
    command = [
        SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{role}",
        "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments,
    ]  # fmt: skip
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    stack.callback(end, process)
    return log


def end(process):
    """End a daemon, and what it started."""
    process.terminate()  # a worker ends its executors
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def said(log, pattern):
    """What a daemon's log says, once it does."""
    waited = threading.Event()
    for _ in range(START_S * 10):
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        waited.wait(0.1)
    raise AssertionError(f"{pattern} never came:\n{log.read_text(errors='replace')[-3000:]}")


@pytest.fixture
def master(tmp_path):
    """The URL of a master with two workers of one core each."""
    with ExitStack() as stack:
        log = start(stack, tmp_path / "master", "master.Master")
        url = said(log, r"Starting Spark master at (spark://\S+)")
        own = ("--cores", "1", "--memory", "600m")
        workers = [
            start(stack, folder, "worker.Worker", *own, "--work-dir", str(folder / "work"), url)
            for folder in (tmp_path / "worker-1", tmp_path / "worker-2")
        ]
        for worker in workers:
            said(worker, r"(Successfully registered with master)")
        yield url


@pytest.fixture
def drive(master, tmp_path):
    """A function: run a job as a driver with a home of its own; return what it printed."""

    def run(job, given):
        home = tmp_path / "driver"
        environment = make_home(home)
        done = subprocess.run(
            [home / "bin" / "python3", job, master, json.dumps(given)],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=JOB_S,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def plain(bucket):
    """A table of twelve days, the segment of one of which is damaged."""
    table = Table.create(f"s3://{bucket}/plain", KINDS, time_column="ts")
    append(table, days(12))
    key = keys.key_of(table.refresh().segments()[5])
    body = table.store.get(key)
    table.store.delete([key])
    table.store.put_if_absent(key, body[:-1] + b"x")
    return table, key


@pytest.fixture
def keyed(bucket):
    """A keyed table with rows to merge in four days, and a key frame at a late version."""
    table = Table.create(
        f"s3://{bucket}/keyed",
        KINDS,
        time_column="ts",
        key="id",
        buckets=2,
        properties={"keyframe_commits": "3"},
    )
    upsert(table, days(4))
    overwrite(table, days(4))  # so that a backfill has segments to copy
    for count in (3, 3, 2):
        upsert(table, days(count))
    return table


def days(count):
    """A row a day."""
    made = [{"id": n, "ts": 1357516800000000 + n * 86_400_000_000} for n in range(count)]
    return pa.Table.from_pylist(made, schema=KINDS)


def under(store, *prefixes):
    """The objects below some prefixes, by key."""
    return {row.key: store.get(row.key) for prefix in prefixes for row in store.list(prefix)}


def test_long_work_has_the_same_results_where_executors_were_killed(
    drive, tmp_path, s3, plain, keyed
):
    table, damaged = plain
    folder, storage = tmp_path / "marks", s3.storage_options()
    folder.mkdir()
    given = {"storage": storage, "folder": str(folder), "copy": f"{keyed.uri}-copy"}
    said_of = drive(
        JOB.with_name("executors_job.py"), given | {"plain": table.uri, "keyed": keyed.uri}
    )
    assert said_of["equal"]
    assert [finding["key"] for finding in said_of["report"]["findings"]] == [damaged]
    last = keyed.refresh().version
    assert said_of["copied"] + said_of["filled"] == last  # version 0 came with the first
    assert said_of["filled"] > 0
    copied = Table.open(given["copy"], storage_options=storage)
    rows = under(keyed.store, keys.SEGMENTS_PREFIX, keys.LOG_PREFIX)
    assert under(copied.store, keys.SEGMENTS_PREFIX, keys.LOG_PREFIX) == rows
    assert fsck(copied, checksums=True).ok
    for name, prefixes in {
        "delta": ("_delta_log/", "_delta_vectors/"),
        "iceberg": ("metadata/",),
    }.items():
        assert said_of[name] == last
        there = under(keyed.store, *prefixes)
        unpublish(keyed, name, dry_run=False)
        publish(keyed, name)
        assert there
        assert under(keyed.store, *prefixes) == there
    assert fsck(keyed).ok
    for marker in ("audit", "copy", "backfill", "delta", "iceberg"):
        # An executor was killed, and its task began again.
        assert (folder / f"{marker}.killed").exists(), marker


def test_two_workers_write_and_read_what_the_driver_says(drive, tmp_path, s3, bucket):
    shared, remote = (tmp_path / "shared" / "table").as_uri(), f"s3://{bucket}/table"
    places = {shared: {}, remote: s3.storage_options()}
    found = drive(JOB, places)
    assert {task["home"] for task in found["tasks"]} == {"worker-1", "worker-2"}
    for task in found["tasks"]:
        assert Path(task["folder"]).is_relative_to(tmp_path / task["home"])
        assert not task["aws"]
    for uri, storage in places.items():
        said_of = found["places"][uri]
        assert said_of.pop("version") == 1
        assert {"arrow"} < said_of.keys()
        for way, ids in said_of.items():
            wanted = range(15) if way.endswith("version 1") else range(80)
            assert ids == list(wanted), (uri, way)
        table = Table.open(uri, storage_options=storage)
        assert readers.count(table) == 80
        assert sorted(readers.scan(table).to_table()["id"].to_pylist()) == list(range(80))
