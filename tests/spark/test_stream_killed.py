"""A streaming query that is killed at many points, and started again: no row lost or doubled."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support.distribution import SHORT_JVM

from eventlog import Table, readers
from eventlog.compaction import Policy, run
from eventlog.writers import append

JOB = Path(__file__).with_name("killed_stream.py")
TIMEOUT_S = 600
KILLS = 20
POINTS = ("latestOffset", "partitions", "commit", "save", "before", "after", "saved")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
DAY_US = 86_400_000_000
SMALL = Policy(target_bytes=65_536, max_task_bytes=262_144, small_task_bytes=0)


def rows(*ids):
    return pa.table([ids, [n % 2 * DAY_US for n in ids]], schema=SCHEMA)


def ids_of(uri):
    return sorted(readers.scan(uri, ["id"]).to_table()["id"].to_pylist())


def run_job(*arguments):
    """Run the query until it ends or is killed; return its exit code and its errors."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{SHORT_JVM}" pyspark-shell',
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    # A session of its own, so that nothing of it can outlive the test.
    with subprocess.Popen(
        [sys.executable, str(JOB), *map(str, arguments)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as job:
        try:
            _, errors = job.communicate(timeout=TIMEOUT_S)
        finally:
            _end(job.pid)
    return job.returncode, errors.decode(errors="replace")[-3000:]


def _end(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.hazard("I2")
@pytest.mark.long  # a JVM a kill; test_stream_source.py lets a reader die around its batches
@pytest.mark.timeout(0)
def test_a_query_that_is_killed_again_and_again_copies_each_row_once(root_uri, tmp_path):
    source = Table.create(root_uri, SCHEMA, time_column="ts")
    target = f"{root_uri}-copy"
    Table.create(target, SCHEMA, time_column="ts")
    chance, kills, written = random.Random(7), 0, 0
    checkpoint = tmp_path / "checkpoint"
    for number in range(2 * KILLS):
        for _ in range(3):
            append(source, rows(*range(written, written + 10)))
            written += 10
        if number % 4 == 0:
            run(source, policy=SMALL)
        point, count = POINTS[number % len(POINTS)], chance.randint(1, 3)
        code, errors = run_job(root_uri, target, checkpoint, point, count)
        assert code in (0, -signal.SIGKILL), errors
        kills += code != 0
        copied = ids_of(target)
        assert copied == [*range(len(copied))]  # batches come in order
        if kills == KILLS:
            break
    assert kills == KILLS
    code, errors = run_job(root_uri, target, checkpoint, "none", 0)
    assert code == 0, errors
    assert ids_of(target) == ids_of(root_uri) == [*range(written)]
