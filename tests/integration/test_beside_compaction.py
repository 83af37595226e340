"""What compaction must not change, when a chunk is at rest, and what threads may do at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from support import builders

from eventlog import Table, limits
from eventlog.compaction import Policy, perform, plan, run
from eventlog.compaction.planner.assessing import Result, record
from eventlog.readers import scan
from eventlog.staging import encoding
from eventlog.store.local import LocalStore
from eventlog.writers import append

DAY = datetime(2013, 1, 7, tzinfo=UTC)
FLOATS = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("f", pa.float64()),
        ("place", pa.struct([("x", pa.float32())])),
        ("n", pa.int64()),
    ]
)
SMALL = {"target_bytes": 8192, "max_task_bytes": 40_960, "small_task_bytes": 0}


@pytest.mark.parametrize("old", [False, True], ids=["new files", "files with statistics"])
def test_no_rewrite_hides_a_nan(tmp_path, monkeypatch, old):
    """NaN is greater than every number, and Arrow leaves it out of a file's statistics."""
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 2)
    if old:
        options = encoding.parquet_options
        monkeypatch.setattr(
            encoding, "parquet_options", lambda *how: {**options(*how), "write_statistics": True}
        )
    t = Table.create(tmp_path / "t", FLOATS, time_column="at")
    for n, f in enumerate(([1.0], [float("nan")], [None, 4.0])):
        rows = [{"at": DAY, "f": each, "place": {"x": each}, "n": n} for each in f]
        append(t, pa.Table.from_pylist(rows, schema=FLOATS))
    questions = ["f >= 3", "f > 3", "NOT f < 3", "f > 3 AND n > 0", "n > 0"]
    for _ in range(2):
        found = [scan(t, ["n"], where=w).to_table().num_rows for w in questions]
        assert found == [2, 2, 2, 2, 3]
        assert [scan(t, where=w).count() for w in questions] == found
        assert [scan(t, [], where=w).to_table().num_rows for w in questions] == found
        run(t)
    assert t.snapshot().totals.segments == 1


OPEN_AT_ONCE = """
import sys, threading
from eventlog import Table
sys.setswitchinterval(1e-5)
start = threading.Barrier(8)
def work():
    start.wait()
    Table.open(sys.argv[1]).session.head()
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


@pytest.mark.verify
def test_threads_of_a_new_process_may_open_a_table_at_once(tmp_path):
    t = builders.create(LocalStore(tmp_path))
    append(t, builders.events(1))
    t.write_keyframe()
    for _ in range(3):
        subprocess.run([sys.executable, "-c", OPEN_AT_ONCE, str(tmp_path)], check=True, timeout=240)


def of_two_parts(tmp_path):
    """One day of so many small segments that it takes two tasks."""
    t = builders.create(LocalStore(tmp_path))
    for number in range(24):
        append(t, builders.events(150, first=150 * number))
    tasks = plan(t, Policy(**SMALL)).tasks
    assert len(tasks) == 2
    return t, tasks


def names(t):
    return sorted(scan(t, ["name"]).to_table()["name"].to_pylist())


@pytest.mark.parametrize("why", ["queue", "caller", "claim"])
def test_a_chunk_of_which_a_part_was_rewritten_is_not_at_rest(tmp_path, why):
    t, tasks = of_two_parts(tmp_path)
    before = names(t)
    if why == "queue":
        run(t, policy=Policy(max_queue=1, **SMALL))
    elif why == "caller":
        run(t, tasks[:1], policy=Policy(**SMALL))
    else:
        with t.claim(segments=tasks[-1].inputs):
            run(t, policy=Policy(claim_bytes=0, **SMALL))
    assert plan(t, Policy(**SMALL)).tasks
    for _ in range(5):
        run(t, policy=Policy(**SMALL))
    assert plan(t, Policy(**SMALL)).tasks == ()
    assert t.snapshot().totals.segments < 12
    assert names(t) == before


def test_a_failure_noted_by_a_clock_years_ahead_delays_no_later_plan(tmp_path):
    t, tasks = of_two_parts(tmp_path)
    policy = Policy(**SMALL)
    decade_ms = 9 * 365 * 86_400_000
    record(
        t, policy, [Result(task, "failed") for task in tasks], now_ms=t.clock.now_ms() + decade_ms
    )
    assert t.refresh().meta.chunks
    assert plan(t, policy, now_ms=t.clock.now_ms()).tasks


def test_a_replacement_that_rode_along_and_was_undone_is_done_anew(tmp_path):
    """A restore brings the same inputs back: the old work must not be taken for the new one."""
    t, tasks = of_two_parts(tmp_path)
    policy, version = Policy(**SMALL), t.session.head().version
    assert {o.status for o in run(t, tasks, policy=policy).outcomes} == {"done"}
    t.restore(version)
    again = plan(t, policy).tasks
    assert not {task.id for task in again} & {task.id for task in tasks}
    report = run(t, again, policy=policy)
    assert {outcome.status for outcome in report.outcomes} == {"done"}
    assert all(outcome.version > t.session.head().version - 5 for outcome in report.outcomes)
    assert t.snapshot().totals.segments < 12


def test_one_task_in_several_threads_of_one_handle_has_one_effect(tmp_path):
    t, tasks = of_two_parts(tmp_path)
    policy = Policy(**SMALL)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(perform, t, tasks[n % 2], policy) for n in range(8)]
        found += [pool.submit(append, t, builders.events(1, first=9000 + n)) for n in range(4)]
        outcomes = [future.result() for future in found[:8]]
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len({outcome.version for outcome in outcomes}) == 2
    assert t.snapshot().totals.rows == 24 * 150 + 4
    builders.check_sound(t.store)
