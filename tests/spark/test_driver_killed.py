"""A driver that is killed around its commit, and the same job run again: no row lost or doubled."""

import shutil
import signal
from pathlib import Path

import pytest
from spark.programs import result
from support.crashes import ENDS, MortalStore
from support.in_process_spark import with_store_of

from eventlog import Table
from eventlog.store.location import open_store
from eventlog.writers.spark import append, delete, merge, overwrite, update

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
    save(events(2, first=1000, partitions=1), root_uri, **{"property.inline_bytes": "0"})
    code, errors = result(JOB, root_uri, when, way, timeout=TIMEOUT_S, preloaded=False)
    assert code == -signal.SIGKILL, errors
    landed = when == "after"
    table = Table.open(root_uri)
    assert ids(root_uri) == ([*range(40), 1000, 1001] if landed else [1000, 1001])
    staged = sum(1 for _ in table.store.list("data/"))
    assert staged > 4  # before as after: the tasks were done

    save(events(40), root_uri, appId="job", appSeq="1")
    assert ids(root_uri) == [*range(40), 1000, 1001]
    assert Table.open(root_uri).session.head().version == 2
    more = sum(1 for _ in table.store.list("data/")) - staged
    assert (more == 0) == landed  # what has landed is not even staged again


@pytest.mark.sample(0, verify=1)
@pytest.mark.data_source
@pytest.mark.hazard("I2", "I3")
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_same_job_again_where_the_committer_died(  # noqa: PLR0917 - fixtures
    events, save, ids, bucket, dying, when
):
    root_uri = f"s3://{bucket}/table"
    in_files = {"property.inline_bytes": "0"}
    save(events(2, first=1000, partitions=1), root_uri, **in_files)
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
    assert Table.open(root_uri).session.head().version == 2
    more = sum(1 for _ in table.store.list("data/")) - staged
    assert (more == 0) == landed  # what has landed is not even staged again


class DriverStore(MortalStore):
    """A store whose calls by the driver may crash; tasks get the one below it."""

    def __reduce__(self):
        return _same, (self.inner,)


def _same(store):
    return store


UNIT = {"app_id": "job", "app_seq": 1}
CHANGES = {
    "delete": lambda spark, rows, uri: delete(uri, spark, where="id in (3, 12)", **UNIT),
    "update": lambda spark, rows, uri: update(
        uri, spark, {"name": "concat(name, '!')"}, "id in (3, 12)", **UNIT
    ),
    "overwrite": lambda spark, rows, uri: overwrite(uri, rows, where="id in (3, 12)", **UNIT),
    "merge": lambda spark, rows, uri: merge(
        uri, rows, "id", when_matched={"name": "concat(name, '!')"}, **UNIT
    ),
}
CHANGED = {3: "name-3!", 12: "name-12!"}
LEFT = {n: f"name-{n}" for n in range(20)}
AFTER = {
    "delete": {n: name for n, name in LEFT.items() if n not in CHANGED},
    "update": LEFT | CHANGED,
    "overwrite": {n: name for n, name in LEFT.items() if n != 3},
    "merge": LEFT | {12: "name-12!", 30: "name-30"},
}


@pytest.mark.hazard("I2", "I6")
@pytest.mark.long  # two changes for each call; those without a join run without a JVM, too
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_rows_whose_driver_dies_at_any_call_is_made_once(  # noqa: PLR0917 - fixtures
    events, spark, rows_of, local_uri, tmp_path, name
):
    def held(uri):
        rows = rows_of(uri)
        return list(zip(*(rows.column(c).to_pylist() for c in ("id", "name")), strict=True))

    act, most = CHANGES[name], 40
    append(local_uri, events(20), time_column="ts")
    rows = events(40).where(f"id = 12 or (id = 30 and {name == 'merge'})")
    for at in range(1, most):
        copied = tmp_path / str(at)
        shutil.copytree(tmp_path / "table", copied)
        uri = copied.as_uri()
        mortal = DriverStore(open_store(uri), at)
        try:
            with_store_of(Table(mortal), lambda uri: act(spark, rows, uri))
        except ENDS:
            assert mortal.calls >= at
        assert held(uri) in ([*LEFT.items()], [*AFTER[name].items()])
        act(spark, rows, uri)
        assert held(uri) == [*AFTER[name].items()]
        assert Table.open(uri).session.head().version == 2
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert at > 3
