"""The writer of the streaming sink without Spark: what repeats, what is refused, what it costs."""

import datetime as dt
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from support import micro_batches
from support.micro_batches import commit, plan, run, stage

from eventlog import Table, compaction, readers
from eventlog.errors import CommitConflict, InvalidInput, TableNotFound
from eventlog.format.keys import parse_log_key
from eventlog.model.actions import Fence
from eventlog.writers import append
from eventlog.writers.spark import stream

START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
COLUMNS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def part(*ids):
    """The rows of one task."""
    times = [START + dt.timedelta(seconds=number) for number in ids]
    return [pa.record_batch({"id": ids, "ts": times}, schema=COLUMNS)]


def rows_of(uri):
    return sorted(readers.scan(Table.open(uri)).to_table().column("id").to_pylist())


@pytest.fixture
def sink(local_uri):
    return {"path": local_uri, "timeColumn": "ts"}


def test_a_batch_is_one_version_marked_with_query_and_number(sink):
    run(sink, "query", 0, part(1), part(2))
    run(sink, "query", 1, part(3))
    head = Table.open(sink["path"]).session.head()
    assert head.version == 2
    assert {name: mark.seq for name, mark in head.meta.apps.items()} == {"query": 1}
    assert rows_of(sink["path"]) == [1, 2, 3]


def test_a_repeated_batch_takes_effect_once_whatever_it_staged(sink):
    planned = plan(sink)
    first, again = (stage(planned, "query", part(1, 2)) for _ in range(2))
    commit(sink, [first], 0)
    commit(sink, [again], 0)
    commit(sink, [first], 0)
    assert rows_of(sink["path"]) == [1, 2]
    assert Table.open(sink["path"]).session.head().version == 1


def test_batches_of_another_query_are_others(sink):
    run(sink, "query", 0, part(1))
    run(sink, "query with a new checkpoint", 0, part(2))
    assert rows_of(sink["path"]) == [1, 2]


def test_a_batch_without_rows_commits_nothing(sink):
    run(sink, "query", 0, part(1))
    run(sink, "query", 1, part(), [])
    run(sink, "query", 2)
    head = Table.open(sink["path"]).session.head()
    assert (head.version, head.meta.apps["query"].seq) == (1, 0)
    run(sink, "query", 3, part(2))
    assert rows_of(sink["path"]) == [1, 2]


def test_a_batch_before_the_last_one_is_a_sign_of_a_copied_checkpoint(sink):
    for batch in range(3):
        run(sink, "query", batch, part(batch))
    with pytest.raises(CommitConflict, match="already has batch 2 of query query, in version 3"):
        run(sink, "query", 1, part(10))
    assert rows_of(sink["path"]) == [0, 1, 2]


def test_a_repeated_batch_with_other_rows_is_warned_of(sink, caplog):
    run(sink, "query", 0, part(1))
    run(sink, "query", 0, part(1))
    assert not caplog.records
    run(sink, "query", 0, part(1, 2, 3))
    assert rows_of(sink["path"]) == [1]
    (record,) = caplog.records
    assert "repeated sequence 0 with 3 rows, but version 1 has it with 1" in record.getMessage()


def test_a_query_whose_earlier_batches_are_not_in_the_table_is_warned_of(sink, tmp_path, caplog):
    run(sink, "query", 0, part(1))
    run(sink, "query", 1, part(2))
    assert not caplog.records
    other = {**sink, "path": (tmp_path / "other").as_uri()}
    for batch in (2, 3):
        run(other, "query", batch, part(batch))
    (record,) = caplog.records
    assert "batch 2 is the first of query query that file:" in record.getMessage()
    assert rows_of(other["path"]) == [2, 3]


def test_a_task_that_does_not_know_its_query_writes_nothing(sink):
    with pytest.raises(InvalidInput, match="use foreachBatch"):
        stage(plan(sink), None, part(1))
    assert not list(Table.open(sink["path"]).store.list("data/"))


@pytest.mark.parametrize("others", [[], [part(1)]], ids=["none", "one"])
def test_rows_that_spark_did_not_hand_over_are_not_taken_for_none(sink, others):
    staged = [stage(plan(sink), "query", rows) for rows in others]
    with pytest.raises(InvalidInput, match=r"trigger\(processingTime=...\) and a new checkpoint"):
        commit(sink, [*staged, pickle.dumps(None)], 0)
    assert rows_of(sink["path"]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"appId": "job", "appSeq": "1"}, "appId, appSeq is for batch writes"),
        ({"replaceWhere": "ts > 5"}, "replaceWhere is for overwrites"),
        ({"start": "2013-01-01", "end": "2013-01-02"}, "start, end is for overwrites"),
        ({"isolation": "snapshot", "readVersion": "1"}, "isolation, readVersion is for overwrites"),
        ({"version": "1"}, "version is for reads"),
        ({"startingVersion": "1"}, "startingVersion is for reads"),
        ({"checkpoint": "x"}, "unknown option"),
    ],
)
def test_options_of_other_writes_are_refused(sink, tmp_path, options, message):
    with pytest.raises(InvalidInput, match=message):
        plan(sink | options)
    assert not list(tmp_path.iterdir())


def test_complete_mode_is_refused(sink):
    source = micro_batches.DefaultSource(sink)
    with pytest.raises(InvalidInput, match=r"outputMode\('append'\), or foreachBatch"):
        source.streamWriter(micro_batches.SCHEMA, True)


def test_what_belongs_to_the_query_is_no_option_of_the_sink(sink):
    plan(sink | {"checkpointLocation": "x", "queryName": "y"})


def test_an_absent_table_needs_a_time_column(local_uri):
    with pytest.raises(TableNotFound, match="timeColumn"):
        plan({"path": local_uri})


def test_rows_that_fit_after_a_change_of_the_schema_are_taken_at_once(sink):
    run(sink, "query", 0, part(1))
    wider = COLUMNS.append(pa.field("note", pa.string()))
    schema = StructType([*micro_batches.SCHEMA.fields]).add("note", "string")
    with pytest.raises(InvalidInput, match="unknown columns: 'note'"):
        plan(sink, schema)
    Table.open(sink["path"]).add_columns(wider)
    rows = part(2)[0].append_column("note", pa.array(["new"]))
    run(sink, "query", 1, [rows], schema=schema)
    found = readers.scan(Table.open(sink["path"])).to_table().sort_by("id")
    assert found.column("note").to_pylist() == [None, "new"]


def test_a_long_query_stages_at_a_current_version(sink, monkeypatch):
    run(sink, "query", 0, part(1))
    other = Table.open(sink["path"])
    for number in range(2, 5):
        append(other, pa.table(part(number)[0]))
    monkeypatch.setattr(stream, "REFRESH_S", 0)
    planned = plan(sink)
    commit(sink, [stage(planned, "query", part(5))], 1)
    newest = max(Table.open(sink["path"]).session.head().segments(), key=lambda s: s.version)
    assert (newest.version, newest.epoch) == (5, 4)


def test_a_committer_that_has_not_seen_the_epoch_reads_on(sink, monkeypatch):
    run(sink, "query", 0, part(1))
    behind = stream.Cache(1)
    table = Table.open(sink["path"])
    monkeypatch.setattr(stream, "_open", behind)
    plan(sink)  # what the committing process will know
    append(table, pa.table(part(2)[0]))
    monkeypatch.setattr(stream, "_open", stream.Cache(1))
    staged = stage(plan(sink), "query", part(3))
    monkeypatch.setattr(stream, "_open", behind)
    commit(sink, [staged], 1)
    assert rows_of(sink["path"]) == [1, 2, 3]


def test_a_fence_that_passes_what_was_staged_does_not_lose_it(sink):
    run(sink, "query", 0, part(1))
    staged = stage(plan(sink), "query", part(2))
    table = Table.open(sink["path"])
    table.commit(table.transaction("fence", [Fence(table.session.head().version + 1)]))
    commit(sink, [staged], 1)
    assert rows_of(sink["path"]) == [1, 2]


def test_what_was_staged_for_a_table_is_not_committed_to_another(bucket, monkeypatch):
    monkeypatch.setattr(stream, "WINDOW_S", 0)  # as if triggers came seconds apart
    sink = {"path": f"s3://{bucket}/table", "timeColumn": "ts"}
    run(sink, "query", 0, part(1))
    staged = stage(plan(sink), "query", part(2))
    store = Table.open(sink["path"]).store
    store.delete([listed.key for listed in store.list("")])
    Table.create(sink["path"], COLUMNS, time_column="ts")
    with pytest.raises(TableNotFound, match="replaced by another one while the batch was written"):
        commit(sink, [staged], 1)
    assert rows_of(sink["path"]) == []
    run(sink, "query", 1, part(3))
    assert rows_of(sink["path"]) == [3]


def test_a_micro_batch_costs_one_put_and_two_small_gets(s3, bucket, monkeypatch):
    monkeypatch.setattr(stream, "WINDOW_S", 0)  # as if triggers came seconds apart
    sink = {"path": f"s3://{bucket}/table", "timeColumn": "ts"}
    run(sink, "query", 0, part(0))
    with s3.measure() as counts:
        for batch in range(1, 11):
            run(sink, "query", batch, part(batch))
    # In the fourth and the eighth commit of a run a writer looks for others.
    assert (counts.put, counts.list, counts.head, counts.delete) == (10, 2, 0, 0)
    assert 20 <= counts.get <= 30  # a third one each, if this machine stops for a second


@pytest.mark.soak  # ten minutes; the counts above stand for it
@pytest.mark.timeout(3600)
def test_ten_thousand_batches_leave_a_table_that_opens_as_before(s3, bucket):
    sink = {"path": f"s3://{bucket}/table", "timeColumn": "ts"}
    batches, tenth, costs, openings = 10_000, 1000, [], []
    with micro_batches.TwoProcesses(sink, "query") as query:
        for first in range(0, batches, tenth):
            with s3.measure() as counts:
                for batch in range(first, first + tenth):
                    query.run(batch, part(batch))
            costs.append(counts)
            with s3.measure() as counts:
                table = Table.open(sink["path"])
            openings.append(counts)
            compaction.run(table)
    head = table.refresh()
    assert head.totals.rows == batches
    assert {name: mark.seq for name, mark in head.meta.apps.items()} == {"query": batches - 1}
    for counts in costs:
        # A segment and a commit each, and every 32 commits a key frame with its leaf.
        assert 2 * tenth <= counts.put <= 2.1 * tenth
        assert counts.list <= tenth / 10
        assert counts.get <= 2.5 * tenth
        assert counts.bytes_written <= 1.5 * costs[0].bytes_written
    for counts in openings:
        assert (counts.list, counts.put) == (1, 0)
        assert counts.get <= 2
        assert counts.bytes_read < 2**17
    log = [parse_log_key(listed.key) for listed in table.store.list("_log/")]
    assert sum(framed for _, framed in log) <= head.version / 20
