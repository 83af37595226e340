"""A driver that is killed around its commit, and the same job run again: no row lost or doubled."""

import signal
from pathlib import Path

import pytest
from spark.programs import result

from eventlog import Table

JOB = Path(__file__).with_name("killed_job.py")
TIMEOUT_S = 240


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
    code, errors = result(JOB, root_uri, when, way, timeout=TIMEOUT_S, preloaded=False)
    assert code == -signal.SIGKILL, errors
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


@pytest.mark.data_source
@pytest.mark.hazard("I2", "I3")
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_same_job_again_where_the_committer_died(  # noqa: PLR0917 - fixtures
    events, save, ids, bucket, dying, when
):
    root_uri = f"s3://{bucket}/table"
    save(events(2, first=1000, partitions=1), root_uri)
    once = {"timeColumn": "ts", "appId": "job", "appSeq": "1"}
    rows = events(40)
    job = rows.write.format(dying).mode("append").options(**once, dies=when)
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
