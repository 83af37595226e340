"""Spark jobs in a process of their own, and ways to let one die around a commit."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from support.distribution import SHORT_JVM

from eventlog.format.keys import parse_log_key
from eventlog.store.local import LocalStore
from eventlog.store.s3.adapter import S3Store

PRELOADED = str(Path(__file__).with_name("preloaded"))
SHORT_SUBMIT = {
    "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{SHORT_JVM}" pyspark-shell',
    "SPARK_LOCAL_IP": "127.0.0.1",
}


def environment(*, preloaded=True):
    """Return the environment of a job: this Python and its path, and a JVM that starts quickly."""
    path = [PRELOADED, *sys.path] if preloaded else sys.path
    path = os.pathsep.join(filter(None, path))
    return {**os.environ, **SHORT_SUBMIT, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}


@contextmanager
def started(job, *arguments, preloaded=True):
    """Start a job; it and all that it started are killed at the end of the block."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, str(job), *map(str, arguments)],
            env=environment(preloaded=preloaded),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # so that nothing of it can outlive the test
        ) as process,
    ):
        process.errors = lambda: _end_of(errors)
        try:
            yield process
        finally:
            _kill_group(process)


def result(job, *arguments, timeout, preloaded=True):
    """Run a job until it ends or is killed; return its exit code, and the end of its errors."""
    with started(job, *arguments, preloaded=preloaded) as process:
        return process.wait(timeout=timeout), process.errors()


def _end_of(errors):
    errors.seek(0)
    return errors.read().decode(errors="replace")[-3000:]


def _kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill(*pids):
    """Kill these processes, and this one last."""
    for pid in (*pids, os.getpid()):
        os.kill(pid, signal.SIGKILL)


def around_commits(do):
    """From now on, call `do("before")` and `do("after")` around the PUT of each commit's slot."""
    for store in (S3Store, LocalStore):
        _around_commits(store, do)


def _around_commits(store, do):
    put_if_absent = store.put_if_absent

    def put(self, key, body):
        commit = parse_log_key(key) is not None
        if commit:
            do("before")
        created = put_if_absent(self, key, body)
        if commit:
            do("after")
        return created

    store.put_if_absent = put


def die_at_commit(when, *pids):
    """Let this process, and `pids`, be killed `before` or `after` the PUT of its next commit."""

    def die(here):
        if here == when:
            kill(*pids)

    around_commits(die)


def dying_source():
    """Return the data source whose committing process dies around a commit.

    Options: `dies` is `before` or `after` the PUT, `batch` the number of a stream's batch, and
    `pids` are processes that die with it.
    """
    from pyspark_eventlog import DefaultSource  # noqa: PLC0415 - Spark 3.5 has none

    class Dying(DefaultSource):
        @classmethod
        def name(cls):
            return "eventlog-dying"

        def writer(self, schema, overwrite):
            return self._dying(super().writer, schema, overwrite)

        def streamWriter(self, schema, overwrite):
            return self._dying(super().streamWriter, schema, overwrite)

        def _dying(self, make, schema, overwrite):
            when, of_stream = self.options.pop("dies"), int(self.options.pop("batch", "0"))
            pids = [int(pid) for pid in self.options.pop("pids", "").split(",") if pid]
            writer = make(schema, overwrite)
            commit = writer.commit

            def dying_commit(messages, *batch):
                if not batch or batch[0] == of_stream:
                    die_at_commit(when, *pids)
                commit(messages, *batch)

            writer.commit = dying_commit
            return writer

    return Dying
