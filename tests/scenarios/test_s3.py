"""S3: compaction planned by rules, carried out to rest, recovered after a crash and an overload.

After the compaction notes for Druid. Lambda (S3.7) has tests of its own: it hears of S3 alone.
"""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner
from support.builders import check_sound, live
from support.scenario_tables import fresh, names, other, rows

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import ManualClock, SystemClock
from eventlog.compaction import Policy, explain, plan, run
from eventlog.store.location import open_store
from eventlog.table.leases import SILENT_S
from eventlog.writers import append, overwrite

ALONE = Policy(small_task_bytes=0)  # a task for each chunk
DAYS = 6


def fed(place, days=DAYS, appends=4, granularity="day"):
    """A table with several small segments in each of its days."""
    table = fresh(place, granularity)
    for number in range(appends):
        append(table, rows(*(24 * day + number for day in range(days)), name=f"append {number}"))
    return table


def chunk(day):
    return f"2013-01-{7 + day:02}"


def eventlog(*arguments):
    """The program's answer to a verb."""
    answer = CliRunner().invoke(build(), [str(a) for a in arguments])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def verdict_of(table, policy):
    (found,) = plan(table, policy).verdicts
    return found


@pytest.mark.scenario("S3.1")
def test_s3_1_every_rule_at_its_boundaries(place):
    table = fresh(place)
    assert plan(table).verdicts == ()
    # Text that does not compress, so that segments are larger than the least target.
    noise = "".join(chr(33 + (i * i * 7919) % 90) for i in range(3000))
    append(table, rows(0, 1, name=noise))
    (one,) = live(table.refresh())

    def rule(target, ratio=1.0):
        policy = Policy(target_bytes=target, small_ratio=ratio, min_gain=0)
        found = verdict_of(table, policy)
        assert found.sentence
        assert found.sentence in "".join(t.reason for t in plan(table, policy).tasks) or (
            found.act != "compact"
        )
        return found.act, found.rule

    assert one.bytes > 1100
    assert rule(one.bytes) == ("stable", "one")
    assert rule(one.bytes - 1) == ("compact", "oversize")
    append(table, rows(2, 3, name=noise))
    a, b = sorted(segment.bytes for segment in live(table.refresh()))
    assert rule(a + b) == ("compact", "small")
    assert rule(a + b - 1) == ("stable", "exact")
    assert rule(b) == ("stable", "exact")
    assert rule(b - 1) == ("compact", "oversize")
    assert rule(a + b, ratio=a / (a + b)) == ("stable", "good")
    overwrite(table, rows(0).slice(0, 0), start="2013-01-07", end="2013-01-08")
    assert plan(table).verdicts == ()
    assert explain(table, chunk(0)).act == "empty"


@pytest.mark.scenario("S3.2")
@pytest.mark.parametrize("granularity", [None, "month"])
def test_s3_2_after_all_tasks_nothing_is_left_to_do(place, granularity):
    policy = Policy(granularity=granularity)
    table = fed(place)
    before = names(table)
    report = run(table, policy=policy)
    assert report.planned == len(report.outcomes) == 1
    assert report.count("done") == 1
    assert plan(table, policy).tasks == ()
    assert plan(other(table), policy).tasks == ()
    assert names(table) == before
    held = {segment.chunk for segment in live(table.refresh())}
    assert held == ({"2013-01"} if granularity else {chunk(day) for day in range(DAYS)})
    version = table.refresh().version
    assert run(table, policy=policy).planned == 0
    assert table.refresh().version == version


KILLED = """
import os, signal, sys
from eventlog.compaction import Policy, run
from eventlog import Table

def progress(_what, done, total):
    if done * 2 >= total:
        os.kill(os.getpid(), signal.SIGKILL)

run(Table.open(sys.argv[1]), policy=Policy(small_task_bytes=0, max_tasks=1), progress=progress)
"""


@pytest.mark.verify
@pytest.mark.scenario("S3.3")
def test_s3_3_after_a_kill_only_what_was_not_done_is_planned(place):
    table = fed(place)
    before, planned = names(table), plan(table, ALONE).tasks
    assert len(planned) == DAYS
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, table.uri], timeout=240, env=dict(os.environ)
    )
    assert ended.returncode == -signal.SIGKILL
    done = {entry.version for entry in table.history() if entry.operation == "compact"}
    assert 0 < len(done) < DAYS
    rest = plan(table, ALONE).tasks
    assert {task.id for task in rest} < {task.id for task in planned}
    assert len(rest) == DAYS - len(done)
    report = run(table, policy=ALONE)
    assert (report.planned, report.count("done")) == (len(rest), len(rest))
    assert plan(table, ALONE).tasks == ()
    assert names(table) == before
    check_sound(open_store(table.uri, {}))


KILLED_AT_WORK = """
import importlib, os, signal, sys
from eventlog.compaction import Policy, run
from eventlog import Table
from msgspec import json

# The package has a function of the name of this module.
performing = importlib.import_module("eventlog.compaction.execute")
committed, calls = performing.commit_staged, []

def commit(*given):
    calls.append(given)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)  # all is staged, and the claim is held
    return committed(*given)

performing.commit_staged = commit
run(Table.open(sys.argv[1]), policy=json.decode(sys.argv[2], type=Policy))
"""


@pytest.mark.verify
@pytest.mark.parametrize(
    ("granularity", "at"), [(None, 3), pytest.param("month", 1, marks=pytest.mark.long)]
)
def test_s3_3_the_claim_of_a_killed_runner_holds_nobody_up_for_ever(place, granularity, at):
    policy = Policy(small_task_bytes=0, max_tasks=1, claim_bytes=0, granularity=granularity)
    table = fed(place)
    text = msgspec.json.encode(policy).decode()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_AT_WORK, table.uri, text, str(at)],
        timeout=240,
        env=dict(os.environ),
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(other(table).claims()) == 1
    # What comes late makes another task of its chunk: the claim's group never asks again.
    append(table, rows(*(24 * day + 20 for day in range(DAYS)), name="late"))
    before = names(table)
    clock = ManualClock(SystemClock().now_ms(), 5)
    mine = Table.open(place, clock=clock)
    report = run(mine, policy=policy)
    assert (report.count("claimed"), report.count("failed")) == (1, 0)
    assert report.count("done") == report.planned - 1
    clock.advance(SILENT_S * 1000)  # as of a runner that looks again and again
    report = run(mine, policy=policy)
    assert (report.planned, report.count("done")) == (1, 1)
    assert not mine.claims()
    assert plan(mine, policy).tasks == ()
    assert names(table) == before
    check_sound(open_store(table.uri, {}))


@pytest.mark.verify
@pytest.mark.scenario("S3.4")
def test_s3_4_what_overload_deferred_is_recovered_when_it_falls(place):
    policy = Policy(small_task_bytes=0, max_queue=2)
    table = fed(place, appends=1)
    for extra in range(DAYS):  # the later the day, the more fragmented it is
        append(table, rows(*(24 * day for day in range(extra, DAYS)), name=f"extra {extra}"))
    before = names(table)

    def deferred():
        states = table.refresh().meta.chunks
        return [name for name, state in states.items() if state.state == "deferred"]

    first = run(table, policy=policy)
    assert first.planned == first.count("done") == 2
    # Of the four that were shed two are next in line now, and the least fragmented are deferred.
    assert deferred() == [chunk(0), chunk(1)]
    # More arrives and fills the queue: for those deferred no place is looked for meanwhile.
    for day in range(10, 13):
        append(table, rows(24 * day, name="a"))
        append(table, rows(24 * day + 1, name="b"))
    busy = plan(table, policy)
    assert [task.chunks for task in busy.tasks] == [(chunk(3),), (chunk(2),)]
    why = {skipped.chunk: skipped.why for skipped in busy.skipped}
    assert why == dict.fromkeys(deferred(), "deferred") | {chunk(d): "shed" for d in (10, 11, 12)}
    rounds = 0
    while run(table, policy=policy).planned:
        rounds += 1
        assert rounds < 10
    assert deferred() == []
    assert plan(table, Policy()).tasks == ()
    assert len(names(table)) == len(before) + 6


@pytest.mark.scenario("S3.5")
def test_s3_5_a_late_segment_makes_exactly_its_chunk_unstable(place):
    table = fed(place)
    run(table)
    assert (
        plan(table).verdicts == ()
    )  # nothing changed since, nothing was noted: nothing to look at
    append(table, rows(24 * 3 + 20, name="late"))
    found = plan(table)
    assert [(verdict.chunk, verdict.act) for verdict in found.verdicts] == [(chunk(3), "compact")]
    (task,) = found.tasks
    assert task.chunks == (chunk(3),)
    whole = {verdict.chunk: verdict.act for verdict in plan(table, Policy(min_gain=0)).verdicts}
    assert whole == {chunk(day): "compact" if day == 3 else "stable" for day in range(DAYS)}
    run(table)
    assert plan(table).tasks == ()


@pytest.mark.verify
@pytest.mark.scenario("S3.6")
def test_s3_6_explain_of_any_chunk_at_any_past_version(place):
    table = fed(place, days=1, appends=3)
    run(table)
    append(table, rows(5, name="late"))
    told = {}
    for version in range(table.refresh().version + 1):
        for day in range(2):
            asked = ("compact", place, "--explain", chunk(day), "--at", version)
            found = json.loads(eventlog(*asked, "--json"))
            told[version, day] = found
            segments = table.snapshot(version).segments(chunks=chunk(day))
            assert (found["segments"], found["bytes"]) == (
                len(segments), sum(segment.bytes for segment in segments),
            )  # fmt: skip
            assert (found["priority"] > 0) == (found["act"] == "compact")
            if found["act"] == "compact":
                shown = eventlog(*asked)
                for text in (found["rule"], found["sentence"], f"{found['priority']:.6f}"):
                    assert text in shown
    first = [told[version, 0]["rule"] for version in range(5)]
    assert first == ["empty", "one", "small", "small", "one"]
    assert {told[version, 1]["rule"] for version in range(5)} == {"empty"}
    # What was said of a version is said of it for ever.
    append(table, rows(6, name="later"))
    again = json.loads(eventlog("compact", place, "--explain", chunk(0), "--at", 3, "--json"))
    assert again == told[3, 0]


def test_the_program_plans_runs_and_lists(place):
    table = fed(place, days=2)
    planned = json.loads(eventlog("compact", place, "--json"))
    assert [task["segments"] for task in planned["tasks"]] == [8]
    assert "small 2" in eventlog("compact", place)
    assert table.refresh().version == planned["version"]  # only shown
    listed = json.loads(eventlog("chunks", place, "--json"))
    assert [(c["chunk"], c["act"], c["segments"]) for c in listed] == [
        (chunk(0), "compact", 4), (chunk(1), "compact", 4),
    ]  # fmt: skip
    assert [sum(size["segments"] for size in c["sizes"]) for c in listed] == [4, 4]
    done = json.loads(eventlog("compact", place, "--run", "--json"))
    assert (done["planned"], done["failed"]) == (1, 0)
    assert [o["status"] for o in done["outcomes"]] == ["done"]
    assert "nothing to compact" in eventlog("compact", place, "--run")
    assert [line.split()[0] for line in eventlog("chunks", place).splitlines()[1:]] == [
        chunk(0), chunk(1),
    ]  # fmt: skip
    assert "stable" in eventlog("chunks", place)
    by_month = json.loads(eventlog("compact", place, "--granularity", "month", "--json"))
    assert [task["chunks"] for task in by_month["tasks"]] == [["2013-01"]]
    assert by_month["policy"]["granularity"] == "month"
    large = json.loads(eventlog("compact", place, "--target-mb", "1024", "--json"))
    assert large["policy"]["max_task_bytes"] == 4 * 2**30
    refused = CliRunner().invoke(build(), ["compact", str(place), "--run", "--at", "1"])
    assert refused.exit_code == 2
