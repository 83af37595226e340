"""Spark jobs beside a vacuum: what is fenced is staged again, what is given up says so."""

from datetime import timedelta

import pytest

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.readers.spark import read


def raising_the_fence(uri):
    """A stage of a job during which a fence passes the epoch that the job staged at."""

    def run(batches):
        from eventlog.errors import CommitConflict  # noqa: PLC0415 - runs on an executor
        from eventlog.model.actions import Fence  # noqa: PLC0415

        table = Table.open(uri)
        try:
            table.commit(table.transaction("fence", [Fence(table.session.head().version + 1)]))
        except CommitConflict:
            assert table.refresh().meta.fence > 0  # the other task was first
        yield from batches

    return run


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_that_a_fence_passed_lands_once(events, save, ids, local_uri, mode):
    save(events(5), local_uri)
    new = events(6, first=5)
    late = new.mapInArrow(raising_the_fence(local_uri), new.schema)
    save(late, local_uri, mode=mode)
    assert ids(local_uri) == list(range(11) if mode == "append" else range(5, 11))
    head = Table.open(local_uri).session.head()
    assert head.meta.fence > 1
    assert head.version > head.meta.fence


def test_a_version_that_was_given_up_says_so(spark, events, save, load, local_uri):
    save(events(5), local_uri, **{"property.inline_bytes": "0"})
    save(events(3), local_uri, mode="overwrite")
    now = {"retention": timedelta(0), "staging": timedelta(0)}
    vacuum(Table.open(local_uri), dry_run=False, **now)
    for engine in ("arrow", "jvm"):
        with pytest.raises(Exception, match="vacuumed"):
            read(spark, local_uri, version=1, engine=engine).count()
    with pytest.raises(Exception, match="vacuumed"):
        load(local_uri, version=1).count()
    assert load(local_uri).count() == 3
