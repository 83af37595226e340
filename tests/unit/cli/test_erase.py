"""The verb erase: what it shows, its JSON and its report, and when it is done."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("person", pa.string())])
ADA = ("--where", "person = 'Ada'")
NOW = ("--run", "--retention-hours", 0)


def run(*arguments):
    return CliRunner().invoke(build(), [str(a) for a in arguments])


@pytest.fixture
def table(tmp_path):
    made = Table.create(
        str(tmp_path / "t"), SCHEMA, time_column="at", granularity="day",
        properties={"inline_bytes": "4096"},
    )  # fmt: skip
    for day in (1, 2):
        at = [datetime(2013, 1, day, 5, tzinfo=UTC)] * 2
        made.append(pa.table([at, ["Ada", "Grace"]], schema=SCHEMA))
    return made


def test_a_search_changes_nothing_and_a_run_ends_with_none_left(table):
    found = run("erase", table.uri, *ADA)
    assert found.exit_code == 0, found.output
    assert "commit" in found.stdout
    assert "live" in found.stdout
    assert "2 objects left" in found.stdout
    assert "nothing was changed" in found.stderr
    assert table.count() == 4
    done = run("erase", table.uri, *ADA, *NOW)
    assert done.exit_code == 0, done.output
    assert "none left: no object under the root" in done.stdout
    assert "held by" not in done.stdout
    assert table.count() == 2
    again = run("erase", table.uri, *ADA)
    assert again.stderr.splitlines() == ["nothing was changed"]  # there is nothing to advise


def test_a_hold_is_named_with_the_command_that_ends_it(table):
    table.tag("audit")
    table.append(pa.table([[datetime(2013, 1, 3, tzinfo=UTC)], ["Edsger"]], schema=SCHEMA))
    done = run("erase", table.uri, *ADA, *NOW)
    assert done.exit_code == 3, done.output
    assert "tag audit" in done.stdout
    assert f"eventlog untag {table.uri} audit" in done.stdout
    assert run("untag", table.uri, "audit").exit_code == 0
    assert run("erase", table.uri, *ADA, *NOW).exit_code == 0


def test_the_retention_is_shown_with_its_end(table):
    done = run("erase", table.uri, *ADA, "--run", "--json")
    assert done.exit_code == 3, done.output
    document = json.loads(done.stdout)
    assert not document["none_left"]
    assert document["deleted"] == 3
    (held,) = document["held_by"]
    assert held["kind"] == "retention"
    assert held["until"].endswith("Z")
    shown = run("erase", table.uri, *ADA, "--run")
    assert shown.exit_code == 3
    assert "retention" in shown.stdout


def test_the_report_lists_every_object_with_its_hash(table, tmp_path):
    path = tmp_path / "report.json"
    assert run("erase", table.uri, *ADA, *NOW, "--report", path).exit_code == 0
    report = json.loads(path.read_text())
    assert report["none_left"]
    assert report["where"] == ADA[1]
    assert {one["key"] for one in report["searched"]} == {r.key for r in table.store.list("")}
    assert all(len(one["sha256"]) == 64 and one["verdict"] == "none" for one in report["searched"])


def test_wrong_arguments_are_refused_before_anything_is_read(table, tmp_path):
    before = [row.key for row in table.store.list("")]
    for arguments, message in (
        ((), "--where"),
        (("--where", "nobody = 1"), "nobody"),
        ((*ADA, "--retention-hours", "nan"), "hours"),
        ((*ADA, "--report", tmp_path / "none" / "r.json"), "cannot be written"),
    ):
        refused = run("erase", table.uri, *arguments)
        assert refused.exit_code == 2
        assert message in refused.stderr
    assert [row.key for row in table.store.list("")] == before
