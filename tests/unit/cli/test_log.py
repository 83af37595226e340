"""eventlog log --follow: versions as they come, until Ctrl-C."""

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support import builders

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import SystemClock
from eventlog.errors import Unavailable
from eventlog.store.local import LocalStore
from eventlog.writers import append


def run(*words):
    return CliRunner().invoke(build(), ["log", *map(str, words)])


@pytest.fixture
def table(tmp_path):
    made = builders.create(LocalStore(str(tmp_path / "t")))
    append(made, builders.events(2))
    return made


@pytest.fixture
def between(monkeypatch):
    """Lets a program that waits go on with each of some steps, and then interrupts it."""
    waits = []

    def set_steps(*steps):
        left = list(steps)

        def sleep(_clock, seconds):
            waits.append(seconds)
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        monkeypatch.setattr(SystemClock, "sleep", sleep)
        return waits

    return set_steps


def test_follow_lists_versions_in_order_as_they_come_and_ends_with_ctrl_c(table, between):
    waits = between(
        lambda: [append(table, builders.events(1, first=n)) for n in (5, 6)],
        lambda: None,
        lambda: table.add_columns([pa.field("more", pa.int64())]),
    )
    answer = run(table.uri, "--follow", "--every", 7)
    assert (answer.exit_code, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["0", "1", "2", "3", "4", "4:"]
    assert "append: +1 segment, +1 rows  by " in lines[3]
    assert "more" in lines[5]
    assert waits == [7] * 4


def test_follow_prints_one_json_value_a_line(table, between):
    between(lambda: append(table, builders.events(1, first=5)))
    answer = run(table.uri, "--follow", "--json", "-n", 1)
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [entry["version"] for entry in found] == [1, 2]
    (newest,) = json.loads(run(table.uri, "--json", "-n", 1).stdout)
    assert found[1] == newest


def test_follow_lists_what_is_chosen_alone(table, between):
    between(lambda: table.pin("audit"), lambda: append(table, builders.events(1, first=5)))
    answer = run(table.uri, "--follow", "--json", "--operation", "append")
    assert [json.loads(line)["version"] for line in answer.stdout.splitlines()] == [1, 3]


def test_follow_goes_on_when_the_store_does_not_answer(table, between, monkeypatch):
    refresh, failures = Table.refresh, [Unavailable("no answer")]

    def failing(self):
        if failures:
            raise failures.pop()
        return refresh(self)

    def fail_once():
        append(table, builders.events(1, first=5))
        monkeypatch.setattr(Table, "refresh", failing)

    between(fail_once, lambda: None)
    answer = run(table.uri, "--follow", "--json", "-n", 0)
    assert answer.exit_code == 0
    assert "no answer" in answer.stderr
    assert [json.loads(line)["version"] for line in answer.stdout.splitlines()] == [2]


def test_follow_begins_at_the_newest_version(table):
    for option in ("--start", "--until"):
        answer = run(table.uri, "--follow", option, 1 if option == "--start" else "2013-01-07")
        assert answer.exit_code == 2
        assert "--follow begins at the newest version" in answer.stderr


def test_a_list_of_nothing_says_for_what(table):
    append(table, builders.events(1, first=5), app_id="nightly", app_seq=1)
    for words in ([], ["--json"]):
        answer = run(table.uri, "--app", "nigthly", "--since", "2013-01-07", *words)
        assert answer.exit_code == 0
        assert "no version is listed for --app nigthly --since 2013-01-07" in answer.stderr
        assert "of these: nightly" in answer.stderr
    assert "of these" not in run(table.uri, "--operation", "merge").stderr
    assert run(table.uri, "--app", "nightly").stderr == ""
    assert run(table.uri, "-n", 0, "--app", "nightly").stderr == ""
