"""`eventlog compact --run`: what its exit code says, and who was in the way."""

import json

import pytest
from click.testing import CliRunner
from support import builders

from eventlog.cli.program import build
from eventlog.clock import SystemClock
from eventlog.compaction import Policy, plan, run, runner
from eventlog.format import keys
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete, overwrite

# No task takes in all segments of `table` and of `another_month`.
TWO_TASKS = ("--target-mb", "0.0012", "--max-task-mb", "0.005")


@pytest.fixture
def table(tmp_path):
    """Two days, three segments in each."""
    t = builders.create(LocalStore(str(tmp_path / "t")), clock=SystemClock())
    for number in range(3):
        append(t, builders.events(2, days=2, first=2 * number))
    return t


def another_month(t):
    """Six segments in a day of February."""
    for number in range(6):
        append(t, builders.events(1, day=40, first=60 + number))


def compact(t, *arguments):
    return CliRunner().invoke(build(), ["compact", t.uri, "--run", *arguments])


def statuses(answer):
    return [outcome["status"] for outcome in json.loads(answer.stdout)["outcomes"]]


def test_work_that_was_done_and_none_to_do_are_no_failure(table):
    answer = compact(table)
    assert (answer.exit_code, answer.stderr) == (0, "1 of 1 task done\n")
    again = compact(table)
    assert (again.exit_code, again.stdout) == (0, "nothing to compact\n")


def test_a_run_that_only_takes_notes_says_so(tmp_path):
    t = builders.create(LocalStore(str(tmp_path / "t")))
    append(t, builders.events(2))
    assert compact(t).stdout == "nothing to compact; noted in version 2\n"
    assert compact(t).stdout == "nothing to compact\n"


def test_segments_with_deleted_rows_are_shown_and_rewritten_by_their_share(table):
    compact(table)
    cli = CliRunner()
    deleted = lambda: cli.invoke(build(), ["chunks", table.uri]).stdout.split("\n")[0]
    assert "deleted" not in deleted()
    delete(table, where="name = 'row 0'")  # one of three of the day
    assert "deleted" in deleted()
    shown = cli.invoke(build(), ["compact", table.uri, "--explain", "1970-01-01"])
    assert "1 row" in shown.stdout
    assert "with many deleted rows" in shown.stdout
    kept = cli.invoke(build(), ["compact", table.uri, "--deleted-ratio", "0.5", "--json"])
    assert json.loads(kept.stdout)["tasks"] == []
    wrong = cli.invoke(build(), ["compact", table.uri, "--deleted-ratio", "20"])
    assert wrong.exit_code == 2
    assert "0<=x<=1" in wrong.stderr
    verdicts = json.loads(cli.invoke(build(), ["chunks", table.uri, "--json"]).stdout)
    assert [verdict["deleted"] for verdict in verdicts] == [1, 0]
    assert statuses(compact(table, "--json")) == ["done"]
    assert [s.rows for s in table.refresh().segments()] == [2, 3]


def test_one_failed_task_is_a_failure_whatever_else_was_done(table):
    another_month(table)
    table.store.delete([keys.key_of(table.snapshot().segments(chunks="1970-01-01")[0])])
    answer = compact(table, *TWO_TASKS, "--json")
    assert answer.exit_code == 1
    assert set(statuses(answer)) == {"done", "failed"}


def test_a_claim_in_the_way_of_everything_is_a_conflict_that_names_it(table):
    lease = table.claim("1970-01-01", "1970-02-01", owner="carol")
    # To cut anew takes a claim, of whatever size.
    answer = compact(table, "--granularity", "month")
    assert answer.exit_code == 3
    assert any(line.startswith("not done: ") for line in answer.stderr.splitlines())
    assert f"claim {lease.id} of carol" in answer.stderr
    assert "0 of 1 task done, 1 claimed" in answer.stderr
    assert statuses(compact(table, "--granularity", "month", "--json")) == ["claimed"]
    lease.release()
    assert compact(table, "--granularity", "month").exit_code == 0


def test_work_beside_what_is_claimed_is_no_conflict(table):
    another_month(table)
    lease = table.claim("1970-01-01", "1970-02-01", owner="carol")
    answer = compact(table, "--granularity", "month", *TWO_TASKS)
    assert answer.exit_code == 0
    assert f"claim {lease.id} of carol" in answer.stderr
    assert "1 of 2 tasks done, 1 claimed" in answer.stderr


def test_when_others_were_faster_everywhere_it_is_a_conflict(table, monkeypatch):
    planned = plan(table, Policy())
    overwrite(table, builders.events(1), start="1970-01-01", end="1970-01-03")
    monkeypatch.setattr(runner, "plan_to_perform", lambda *_, **__: planned)
    answer = compact(table, "--json")
    assert (answer.exit_code, statuses(answer)) == (3, ["superseded"])


def test_what_another_run_did_of_the_same_plan_is_done(table, monkeypatch):
    planned = plan(table, Policy())
    run(table, planned.tasks)
    monkeypatch.setattr(runner, "plan_to_perform", lambda *_, **__: planned)
    answer = compact(table, "--json")
    assert (answer.exit_code, statuses(answer)) == (0, ["done"])
