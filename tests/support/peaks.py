"""Does one thing with a table in a process of its own, and says by how much it grew: Linux only."""

import traceback
from pathlib import Path
from threading import Event, Thread

import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
from support.racers import processes

from eventlog import Table
from eventlog.compaction import Policy, run, vacuum
from eventlog.fsck.check import fsck
from eventlog.readers import changes, count, scan
from eventlog.replication import merge
from eventlog.writers import append, delete
from eventlog.writers.files import open_rows

_SECONDS = 280  # which only a hang takes


def grown(what, root, memory_bytes):
    """Return by how many bytes a process of its own grows while it does something, and its answer.

    Args:
        what: the name of a function below.
        root: the table's root.
        memory_bytes: the bound that it is given.
    """
    ours, theirs = processes.Pipe(duplex=False)
    worker = processes.Process(target=_work, args=(theirs, what, root, memory_bytes), daemon=True)
    worker.start()
    theirs.close()
    try:
        assert ours.poll(_SECONDS), f"{what}: no answer after {_SECONDS} s"
        size, answer, problem = ours.recv()
    finally:
        worker.kill()
        worker.join()
        ours.close()
    assert problem is None, problem
    return size, answer


def scanned(t, memory):
    return sum(batch.num_rows for batch in scan(t, memory_bytes=memory).to_batches())


def counted(t, memory):
    return count(t, "s LIKE '%x'", memory_bytes=memory)


def told(t, memory):
    return sum(batch.num_rows for batch in changes(t, 0, memory_bytes=memory).to_batches())


def last_told(t, memory):
    last = t.session.head().version
    return sum(batch.num_rows for batch in changes(t, last - 1, memory_bytes=memory).to_batches())


def deleted(t, memory):
    return delete(t, where="v >= 0", memory_bytes=memory)


def deleted_by_text(t, memory):
    return delete(t, where="s LIKE '%x'", memory_bytes=memory)


def merged(t, memory):
    """Merge another copy of the table, for which nothing is to be set; `memory` is not used."""
    other = Path(str(t.uri).removeprefix("file://")).with_name("other")
    merge(str(other), t, take="source")
    return scan(t).count()


def compacted(t, memory):
    policy = Policy(min_gain=0, memory_bytes=memory)
    (outcome,) = run(t, policy=policy).outcomes
    assert outcome.status == "done", outcome.error
    return scan(t).count()


def appended(t, memory):
    """Append the file beside the table, as the program does."""
    head, path = (
        t.session.head(),
        Path(str(t.uri).removeprefix("file://")).with_name("file.parquet"),
    )
    rows = open_rows([str(path)], head.schema, head.layout.time_column, memory_bytes=memory)
    append(t, rows.reader, memory_bytes=memory)
    return t.refresh().totals.rows


def checked(t, memory):
    """Check keys and checksums, for which nothing is to be set; `memory` is not used."""
    report = fsck(t, keys=True, checksums=True)
    assert not report.findings, report
    return t.refresh().totals.rows


def vacuumed(t, memory):
    """Say what a vacuum would do, for which nothing is to be set; `memory` is not used."""
    return vacuum(t, dry_run=True).version


def _work(answers, what, root, memory):
    t = Table.open(root)
    before, ended, peak = held(), Event(), [0]

    def watch():
        while not ended.wait(0.002):
            peak[0] = max(peak[0], held())

    watcher = Thread(target=watch, daemon=True)  # it ends with work that fails
    watcher.start()
    try:
        answer = globals()[what](t, memory)
    except Exception:  # noqa: BLE001 - raised again where the answer is taken
        answers.send((0, None, traceback.format_exc()))
        return
    ended.set()
    watcher.join()
    answers.send((peak[0] - before, answer, None))


def held():
    """Return the bytes that this process has in memory, without files that it maps."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (found,) = (line for line in lines if line.startswith("RssAnon"))
    return int(found.split()[1]) * 1024
