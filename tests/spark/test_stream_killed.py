"""A streaming query that is killed at many points, and started again: no row lost or doubled."""

import random
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from spark.programs import result

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


@pytest.mark.data_source
@pytest.mark.hazard("I2")
@pytest.mark.soak  # twenty minutes; test_stream_source.py lets a reader die around its batches
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
        code, errors = result(JOB, root_uri, target, checkpoint, point, count, timeout=TIMEOUT_S)
        assert code in (0, -signal.SIGKILL), errors
        kills += code != 0
        copied = ids_of(target)
        assert copied == [*range(len(copied))]  # batches come in order
        if kills == KILLS:
            break
    assert kills == KILLS
    code, errors = result(JOB, root_uri, target, checkpoint, "none", 0, timeout=TIMEOUT_S)
    assert code == 0, errors
    assert ids_of(target) == ids_of(root_uri) == [*range(written)]
