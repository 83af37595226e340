"""What the program shows of keyed tables: slices, what counts in them, and why they are merged."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from eventlog import Table
from eventlog.cli.program import build
from eventlog.compaction import Policy, explain_slices, perform, plan, run
from eventlog.compaction.planner.slice_planning import verdicts
from eventlog.errors import InvalidInput
from eventlog.keyed.slices import runs
from eventlog.model.entries import Segment, Slice
from eventlog.rewriting.slice_merge import Buckets
from eventlog.writers import delete, upsert

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])


def rows(ids, hour=0):
    at = datetime(2024, 1, 1, hour, tzinfo=UTC)
    return pa.Table.from_pylist([{"id": i, "at": at, "v": "a" * 50} for i in ids], schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """A base of versions 1 and 2, and above it an upsert of all buckets and a delete of one."""
    t = Table.create(
        tmp_path / "t", SCHEMA, time_column="at", key="id", order_by="at", buckets=4,
        properties={"merge": "last"},
    )  # fmt: skip
    upsert(t, rows(range(400)))
    upsert(t, rows(range(0, 400, 5), hour=1))
    run(t)
    upsert(t, rows(range(100), hour=2))
    delete(t, keys=pa.table({"id": [7]}))
    return t


def shown(table, verb, *arguments):
    answer = CliRunner().invoke(build(), [verb, table.uri, *map(str, arguments)])
    assert answer.exit_code == 0, answer.output
    return answer


def documents(table, verb, *arguments):
    return json.loads(shown(table, verb, *arguments, "--json").stdout)


def document(table, verb, *arguments):
    return json.loads(shown(table, verb, *arguments, "--json").stdout)


def segment(number, kind, version, size, level=0):
    place = Slice(kind, 0, 3, version, version, level, 0)
    return Segment(
        f"{number:032x}", "all", 0, version, 0, 10, size, "0" * 64, 1, slice=place
    )  # fmt: skip


def merged_in_part(table):
    """Merge two of four buckets: the shared segments count in the others only."""
    (task,) = plan(table).tasks
    at = task.buckets
    half = Buckets(2, 3, at.low, at.high)
    inputs = {
        s.id: s for r in runs(table.session.head().segments()) if r.last >= 2 for s in r.segments
    }
    chosen = tuple(s for s in task.inputs if s.id in inputs)
    done = perform(table, replace(task, id="0" * 32, buckets=half, inputs=chosen), Policy())
    assert done.status == "done", done
    return table.refresh()


def test_ls_tells_the_place_of_a_segment_and_where_it_counts(table):
    found = documents(table, "ls")
    assert [(s["slice"]["kind"], s["slice"]["low"], s["slice"]["high"]) for s in found] == [
        ("base", 1, 2), ("log", 4, 4), ("log", 5, 5),
    ]  # fmt: skip
    assert found[0]["counts"] == found[1]["counts"] == [[0, 3]]
    merged_in_part(table)
    found = documents(table, "ls")
    told = {(s["slice"]["low"], s["slice"]["high"], s["slice"]["level"]): s for s in found}
    assert told[1, 2, 1]["counts"] == [[0, 1]]
    assert told[1, 5, 2]["counts"]
    text = shown(table, "ls").stdout
    header, *lines = text.splitlines()
    assert header.split()[:6] == ["chunk", "rows", "bytes", "version", "kind", "level"]
    assert "counts in" in header
    assert any("base" in line and "1 to 2" in line and " 0 to 1 " in line for line in lines)
    assert "before they are merged" in shown(table, "ls").stderr


def test_ls_counts_by_all_segments_of_a_chunk_whatever_it_lists(table):
    merged_in_part(table)
    some = documents(table, "ls", "--where", "id = 399")
    every = {s["id"]: s["counts"] for s in documents(table, "ls")}
    assert some
    assert all(every[s["id"]] == s["counts"] for s in some)


def test_diff_and_show_tell_what_was_merged(table):
    change = document(table, "diff", 2, 3)
    assert [s["slice"]["kind"] for s in change["added"]] == ["base"]
    assert [s["slice"]["kind"] for s in change["dropped"]] == ["log", "log"]
    text = shown(table, "diff", 2, 3).stdout
    assert "of versions" in text
    assert "1 to 2" in text
    text = shown(table, "show", 3).stdout
    assert "buckets 0 to 3 of chunk all, versions 1 to 2: 480 rows of 2 segments, 80 super" in text
    assert "id, in 4 buckets" in text
    assert document(table, "show", 3)["transaction_list"][0]["merges"][0]["superseded"] == 80
    assert document(table, "show", 2)["transaction_list"][0]["merges"] == []


def test_chunks_and_explain_say_by_which_rule(table):
    found = documents(table, "chunks")
    assert {(v["act"], v["rule"]) for v in found} <= {("merge", "share"), ("merge", "small chunk")}
    assert sum(v["logs"] for v in found) >= 2
    assert documents(table, "compact", "--explain", "all") == found
    assert documents(table, "compact", "--explain", "all", "--at", 3)[0]["rule"] == "no logs"
    assert documents(table, "compact", "--explain", "all", "--at", 1)[0]["rule"] == "no base"
    text = shown(table, "compact", "--explain", "all").stdout
    assert "last change  version 5" in text
    assert "merged" in text
    assert shown(table, "compact", "--explain", "all", "--at", 0).stdout == (
        "the chunk has no segments: `eventlog chunks` lists those that have\n"
    )


def test_a_plan_names_buckets(table):
    assert document(table, "compact")["tasks"][0]["slice"] == {
        "first": 0,
        "last": 3,
        "low": 1,
        "high": 5,
    }
    answer = shown(table, "compact")
    assert "all, buckets 0 to 3" in answer.stdout
    assert "of slices in 1 chunk examined" in answer.stderr


def test_explain_slices_is_for_keyed_tables(tmp_path, table):
    plain = Table.create(tmp_path / "plain", SCHEMA, time_column="at")
    with pytest.raises(InvalidInput, match="no key"):
        explain_slices(plain, "2024-01-01")
    with pytest.raises(InvalidInput, match="not a time chunk"):
        explain_slices(table, "yesterday")


def test_rules_of_slices_that_stay():
    """Few small logs above a large base stay; many become one log."""
    base = segment(1, "base", 0, 100_000_000, level=1)
    logs = [segment(2 + n, "log", 1 + n, 1000) for n in range(8)]
    (few,) = verdicts(runs([base, *logs[:3]]), Policy())
    assert (few.act, few.rule, few.inputs, few.priority) == ("none", "few", 0, 0.0)
    assert (
        few.sentence == "3 logs with 3 kB above a base of 100 MB: too few and too small for a merge"
    )
    (tier,) = verdicts(runs([base, *logs]), Policy())
    assert (tier.act, tier.rule, tier.inputs) == ("merge", "tier", 8)
    assert 0 < tier.priority < 1
    assert "the newest 8 become one log" in tier.sentence
