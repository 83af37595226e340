"""A driver that is killed around its commit, and the same job run again: no row lost or doubled."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.distribution import SHORT_JVM

from eventlog import Table
from eventlog.format.keys import parse_log_key
from eventlog.store.local import LocalStore
from eventlog.store.s3.adapter import S3Store

JOB = Path(__file__).with_name("killed_job.py")
TIMEOUT_S = 240
DYING = "eventlog-dying-committer"


def run_job(uri, when, way):
    """Run the job in a process of its own until it is killed."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{SHORT_JVM}" pyspark-shell',
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, str(JOB), uri, when, way]
    # A session of its own, so that nothing of it can outlive the test.
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as job:
        try:
            _, errors = job.communicate(timeout=TIMEOUT_S)
        finally:
            _end(job.pid)
    return job.returncode, errors.decode(errors="replace")


def _end(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.hazard("I2")
@pytest.mark.long  # a JVM a case; a job whose committer died leaves the same: the next test
@pytest.mark.parametrize(
    ("root_uri", "when", "way"),
    [
        ("s3", "before", "source"),
        ("s3", "after", "source"),
        ("s3", "before", "functions"),
        ("local", "after", "functions"),
    ],
    indirect=["root_uri", "way"],
)
def test_the_same_job_again_neither_loses_nor_doubles(  # noqa: PLR0917 - fixtures
    events, save, ids, root_uri, when, way
):
    # The table is there already, so that the killed commit is the job's own.
    save(events(2, first=1000, partitions=1), root_uri)
    code, errors = run_job(root_uri, when, way)
    assert code == -signal.SIGKILL, errors[-3000:]
    landed = when == "after"
    table = Table.open(root_uri)
    assert ids(root_uri) == ([*range(40), 1000, 1001] if landed else [1000, 1001])
    staged = sum(1 for _ in table.store.list("data/"))
    assert staged > 4  # before as after: the tasks were done

    save(events(40), root_uri, appId="job", appSeq="1")
    assert ids(root_uri) == [*range(40), 1000, 1001]
    assert Table.open(root_uri).head().version == 2
    more = sum(1 for _ in table.store.list("data/")) - staged
    assert (more == 0) == landed  # what has landed is not even staged again


def die_at_the_slot(store, when):
    put_if_absent = store.put_if_absent

    def put(self, key, body):
        slot = parse_log_key(key) is not None
        if slot and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        created = put_if_absent(self, key, body)
        if slot:
            os.kill(os.getpid(), signal.SIGKILL)
        return created

    store.put_if_absent = put


@pytest.fixture
def dying(spark):
    """The data source, but the process that commits is killed at the PUT of its slot.

    The option `dies` says whether that is right before it or right after.
    """
    from pyspark_eventlog import DefaultSource  # noqa: PLC0415 - Spark 3.5 has none

    class Dying(DefaultSource):
        @classmethod
        def name(cls):
            return DYING

        def writer(self, schema, overwrite):
            when = self.options.pop("dies")
            writer = super().writer(schema, overwrite)
            commit = writer.commit

            def dying_commit(messages):
                for store in (S3Store, LocalStore):
                    die_at_the_slot(store, when)
                commit(messages)

            writer.commit = dying_commit
            return writer

    spark.dataSource.register(Dying)


@pytest.mark.data_source
@pytest.mark.hazard("I2", "I3")
@pytest.mark.usefixtures("dying")
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_same_job_again_where_the_committer_died(events, save, ids, bucket, when):
    root_uri = f"s3://{bucket}/table"
    save(events(2, first=1000, partitions=1), root_uri)
    once = {"timeColumn": "ts", "appId": "job", "appSeq": "1"}
    rows = events(40)
    job = rows.write.format(DYING).mode("append").options(**once, dies=when)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        job.save(root_uri)
    landed = when == "after"
    table = Table.open(root_uri)
    assert ids(root_uri) == ([*range(40), 1000, 1001] if landed else [1000, 1001])
    staged = sum(1 for _ in table.store.list("data/"))
    assert staged > 4  # the tasks were done

    save(rows, root_uri, **once)
    assert ids(root_uri) == [*range(40), 1000, 1001]
    assert Table.open(root_uri).head().version == 2
    more = sum(1 for _ in table.store.list("data/")) - staged
    assert (more == 0) == landed  # what has landed is not even staged again
