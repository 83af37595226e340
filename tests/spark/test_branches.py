"""Branches from Spark: read by both engines and the data source, written in batches and streams."""

import pytest

from eventlog import Table
from eventlog.errors import InvalidInput, TableNotFound
from eventlog.readers.spark import choose_engine, read
from eventlog.writers.spark import append


def ids_of(frame):
    return sorted(row.id for row in frame.collect())


@pytest.fixture
def branched(events, local_uri):
    """A table of five rows, and a branch with three more, which its parent does not have."""
    append(local_uri, events(5), time_column="ts")
    Table.open(local_uri).branch("audit")
    assert append(local_uri, events(3, first=10), branch="audit") == 3
    append(local_uri, events(1, first=90))
    return local_uri


def test_a_branch_is_read_and_written_by_functions(spark, branched, events):
    for engine in ("arrow", "jvm"):
        found = read(spark, branched, engine=engine, branch="audit")
        assert ids_of(found) == [*range(5), 10, 11, 12]
        assert ids_of(read(spark, branched, engine=engine)) == [*range(5), 90]
    assert ids_of(read(spark, branched, version=1, branch="audit")) == list(range(5))
    assert choose_engine(spark, branched, branch="audit").engine in ("arrow", "jvm")
    with pytest.raises(TableNotFound, match="no branch 'none'"):
        append(branched, events(1), branch="none", time_column="ts")
    with pytest.raises(InvalidInput, match="not a branch's name"):
        read(spark, branched, branch="a/b")


@pytest.mark.long
@pytest.mark.data_source
def test_a_branch_is_an_option_of_the_data_source(spark, branched, events, tmp_path):
    source = spark.read.format("eventlog").option("branch", "audit")
    assert ids_of(source.load(branched)) == [*range(5), 10, 11, 12]
    events(2, first=20).write.format("eventlog").mode("append").save(branched, branch="audit")
    assert ids_of(source.load(branched)) == [*range(5), 10, 11, 12, 20, 21]
    stream = spark.readStream.format("eventlog").option("branch", "audit").load(branched)
    sink = stream.writeStream.format("eventlog").option("branch", "copy")
    Table.open(branched).branch("copy", at=0)
    sink = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    sink.start(branched).awaitTermination()
    assert ids_of(read(spark, branched, branch="copy")) == [*range(5), 10, 11, 12, 20, 21]
    assert ids_of(read(spark, branched)) == [*range(5), 90]
    # A checkpoint belongs to one branch: the versions of others are other ones.
    other = spark.readStream.format("eventlog").load(branched).writeStream.format("eventlog")
    other = other.option("branch", "copy").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="the checkpoint belongs to another table"):
        other.trigger(availableNow=True).start(branched).awaitTermination()


@pytest.mark.long
@pytest.mark.data_source
def test_a_job_is_told_that_its_branch_was_deleted(spark, branched, events):
    source = spark.read.format("eventlog").option("branch", "audit")
    frames = [source.load(branched)]
    frames += [read(spark, branched, engine=engine, branch="audit") for engine in ("arrow", "jvm")]
    late = frames[1].union(events(1, first=50))
    Table.open(branched).delete_branch("audit")
    for frame, told in zip(frames, ("no branch", "was deleted", "not exist"), strict=True):
        with pytest.raises(Exception, match=told) as caught:
            frame.collect()
        assert "DataLoss" not in str(caught.value)
    with pytest.raises(Exception, match="branch 'audit'"):
        append(branched, late, branch="audit")
