"""`Table.set_buckets` and what the program, a plan and Spark's shares make of split tables."""

import json
import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.compaction import Policy, perform, plan, run
from eventlog.compaction import tasks as of_tasks
from eventlog.compaction.planner.slice_planning import enough_buckets, verdicts
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.fsck.check import fsck
from eventlog.keyed.slices import runs
from eventlog.model.actions import SetBuckets
from eventlog.readers import count, scan
from eventlog.readers.spark import slice_shares as shares
from eventlog.store.memory import MemoryStore
from eventlog.writers import upsert
from eventlog.writers.spark.save_target import Creation, check_agrees

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])


def rows(ids, value="a"):
    at = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.Table.from_pylist([{"id": i, "at": at, "v": value} for i in ids], schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """A base of 3 buckets, a segment each."""
    t = Table.create(
        tmp_path / "t", SCHEMA, time_column="at", key="id", buckets=3,
        properties={"bucket_bytes": "1024"},
    )  # fmt: skip
    upsert(t, rows(range(300)))
    run(t)
    return t


def found(t, key):
    return scan(t, where=f"id = {key}").to_table().column("v").to_pylist()


def test_buckets_are_doubled_as_often_as_it_takes(table):
    before = table.session.head()
    assert table.set_buckets(3) == before.version
    assert table.set_buckets(12) == before.version + 1
    head = Table.open(table.uri).session.head()
    assert (head.layout.keyed.buckets, head.layout.keyed.splits) == (12, 2)
    assert head.totals == before.totals
    assert before.segments() == head.segments()
    commit, _ = table.session.log.read(head.version)
    assert commit.transactions[0].actions == (SetBuckets(3, 6), SetBuckets(6, 12))


def test_another_number_is_refused(table):
    for buckets in (0, 1, 2, 4, 9, 8192, 2.5, "6", None):
        with pytest.raises(InvalidInput, match="buckets"):
            table.set_buckets(buckets)
    assert table.refresh().layout.keyed.buckets == 3


def test_a_table_without_a_key_has_no_buckets():
    plain = Table.create("", SCHEMA, time_column="at", store=MemoryStore())
    with pytest.raises(InvalidInput, match="no key"):
        plain.set_buckets(2)
    with pytest.raises(CommitConflict, match="no key"):
        plain.commit(plain.transaction("split", [SetBuckets(1, 2)]))


def test_two_who_split_at_once_split_once(table):
    other = Table.open(table.uri)
    change = other.transaction("split", [SetBuckets(3, 6)])
    table.set_buckets(6)
    with pytest.raises(CommitConflict, match="split meanwhile"):
        other.commit(change)
    assert other.refresh().layout.keyed.buckets == 6


def test_a_base_is_read_whole_until_one_half_of_a_bucket_changes(table):
    table.set_buckets(6)
    assert count(table) == 300  # from the log
    assert {r.first for r in runs(table.session.head().segments(), 1)} == {0, 2, 4}
    upsert(table, rows([5], "b"))
    split = [r for r in runs(table.refresh().segments(), 1) if r.logs]
    assert [r.last - r.first for r in split] == [0]
    assert (found(table, 5), found(table, 6), count(table)) == (["b"], ["a"], 300)


def test_compaction_divides_what_it_merges(table):
    planned = plan(table, Policy()).tasks
    assert planned == ()
    upsert(table, rows(range(0, 300, 2), "b"))
    (task,) = plan(table, Policy()).tasks
    table.set_buckets(6)
    assert of_tasks.decode_tasks(of_tasks.encode_tasks([task])) == [task]
    assert b"splits" not in of_tasks.encode_tasks([task])  # as programs of before write it
    (again,) = plan(table, Policy()).tasks
    assert (again.buckets.last, again.buckets.splits) == (5, 1)
    assert again.id != task.id
    assert perform(Table.open(table.uri), task, Policy()).status == "done"
    places = sorted(s.slice.first for s in table.refresh().segments())
    assert places == [0, 1, 2, 3, 4, 5]
    assert {s.slice.splits for s in table.session.head().segments()} == {1}
    assert (found(table, 4), found(table, 5)) == (["b"], ["a"])
    assert fsck(table, keys=True).findings == ()
    assert perform(Table.open(table.uri), again, Policy()).status == "superseded"


def test_shares_of_tasks_keep_the_numbers(table):
    upsert(table, rows([1, 2], "b"))
    table.set_buckets(6)
    upsert(table, rows([3], "c"))
    made = runs(table.refresh().segments(), 1)
    assert shares.decode_runs(shares.encode_runs(made)) == made
    parts = [part for share in shares.merging_shares(made, 1, 1) for part in share]
    assert {part.splits for part in parts} == {1}
    assert [b for p in parts for b in range(p.first, p.last + 1)] == sorted(
        b for r in made if r.logs for b in range(r.first, r.last + 1)
    )
    plain = shares.plain_of(runs(table.snapshot(2).segments(), 1))
    assert sorted((run.first, run.last, run.splits) for run in plain.values()) == [
        (0, 1, 1), (2, 3, 1), (4, 5, 1),
    ]  # fmt: skip


def test_a_job_may_name_the_number_that_it_created_the_table_with(table):
    table.set_buckets(12)
    for buckets in (3, 6, 12, None):
        check_agrees(table, Creation(key="id", buckets=buckets))
    for buckets in (1, 4, 24):
        with pytest.raises(InvalidInput, match="the existing table has 12"):
            check_agrees(table, Creation(key="id", buckets=buckets))


def test_large_buckets_are_better_split(table):
    found = verdicts(runs(table.session.head().segments()), Policy())
    size = sum(v.base_bytes for v in found)
    assert enough_buckets(found, 3, size) is None
    assert enough_buckets((), 3, 1) is None
    assert enough_buckets(found, 3, 1) == next(
        n for n in (6, 12, 24, 48, 96, 192) if n * 64 >= size
    )
    assert enough_buckets(found, 4096, 0) is None


# ---------------------------------------------------------------------------------- the program


def shown(*arguments):
    answer = CliRunner().invoke(build(), [str(a) for a in arguments])
    assert answer.exit_code == 0, answer.output
    return answer


def test_the_program_splits_and_shows(table):
    uri = table.uri
    assert json.loads(shown("split", uri, 6, "--json").stdout) == {
        "table": uri, "version": 3, "committed": True, "buckets": 6, "before": 3,
    }  # fmt: skip
    assert shown("split", uri, 6).stdout == "nothing to do: there are 6 buckets\n"
    assert json.loads(shown("split", uri, 6, "--json").stdout)["committed"] is False
    assert shown("split", uri, 12).stdout == "version 4: 12 buckets\n"
    upsert(table, rows([1], "b"))
    assert "id, in 12 buckets, split 2 times" in shown("show", uri).stdout
    listed = shown("ls", uri).stdout
    for buckets in ("0 to 3", "4 to 7", "8 to 11"):
        assert buckets in listed
    assert "8 to 11" in shown("diff", uri, 1, 5).stdout
    first = {run["first"] for run in json.loads(shown("chunks", uri, "--json").stdout)}
    assert first >= {0, 4, 8}
    upsert(table, rows(range(300), "c"))
    run(table)
    assert "(as numbered after 2 splits) of chunk all" in shown("show", uri).stdout


def test_the_program_says_what_cannot_be_split(table, tmp_path):
    answer = CliRunner().invoke(build(), ["split", table.uri, "5"])
    assert answer.exit_code == 2
    assert "can only be doubled" in answer.stderr
    plain = Table.create(tmp_path / "plain", SCHEMA, time_column="at")
    assert "no key" in CliRunner().invoke(build(), ["split", plain.uri, "2"]).stderr


def test_the_program_says_when_buckets_are_large(tmp_path):
    t = Table.create(
        tmp_path / "t", SCHEMA, time_column="at", key="id", buckets=1,
        properties={"bucket_bytes": "1024"},
    )  # fmt: skip
    upsert(t, rows(range(10)))
    assert "split" not in shown("chunks", t.uri).stderr
    chance = random.Random(1)
    large = rows(range(9000)).set_column(
        2, "v", [[chance.randbytes(20).hex() for _ in range(9000)]]
    )
    upsert(t, large)
    size = sum(s.bytes for s in t.refresh().segments())
    assert 2**17 < size < 2**19
    assert f"`eventlog split TABLE {4 if size < 2**18 else 8}`" in shown("chunks", t.uri).stderr
    run(t)
    assert "`eventlog split TABLE" in shown("chunks", t.uri).stderr
    t.set_buckets(8)
    assert "split" not in shown("chunks", t.uri).stderr
