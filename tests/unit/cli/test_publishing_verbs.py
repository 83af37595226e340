"""The verbs publish and unpublish."""

import json

from click.testing import CliRunner
from support.builders import events

from eventlog import Table
from eventlog.cli.program import build
from eventlog.writers import append, upsert


def run(*arguments):
    answer = CliRunner().invoke(build(), list(arguments))
    return answer.exit_code, answer.stdout, answer.stderr


def test_a_table_is_published_and_taken_back(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    for number in range(3):
        append(t, events(2, day=number))
    code, told, _ = run("publish", "delta", t.uri, "--version", "2", "--from", "1")
    assert code == 0
    assert told == f"{t.uri} is published as delta, 1 to 2: published 2 versions\n"
    told = run("publish", "delta", t.uri, "--json")[1]
    assert json.loads(told) == {
        "table": t.uri, "format": "delta", "first": 1, "last": 3, "put": 1,
        "location": t.uri, "behind": 0, "spans": [[1, 3]],
    }  # fmt: skip
    assert "1 to 3: nothing new" in run("publish", "delta", t.uri)[1]
    code, told, note = run("unpublish", "delta", t.uri)
    assert (code, told) == (0, "5 objects would be deleted\n")
    assert "--run" in note
    keys = json.loads(run("unpublish", "delta", t.uri, "--run", "--json")[1])["keys"]
    assert len(keys) == 5
    assert not [*t.store.list("_delta_log/")]
    assert run("unpublish", "delta", t.uri)[1:] == ("0 objects would be deleted\n", "")


def test_a_table_is_published_to_iceberg_in_a_format_and_taken_back(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(2))
    code, told, _ = run("publish", "iceberg", t.uri, "--format-version", "3")
    assert (code, told) == (0, f"{t.uri} is published as iceberg, 0 to 1: published 2 versions\n")
    assert json.loads(t.store.get("metadata/v1.metadata.json"))["format-version"] == 3
    code, _, note = run("publish", "iceberg", t.uri, "--format-version", "2")
    assert code == 2
    assert "eventlog unpublish iceberg" in note
    assert run("unpublish", "iceberg", t.uri)[1] == "7 objects would be deleted\n"
    assert run("unpublish", "iceberg", t.uri, "--run")[1] == "7 objects deleted\n"
    assert not [*t.store.list("metadata/")]


def test_versions_whose_rows_are_made_are_counted(tmp_path):
    merged = {"key": "name", "properties": {"merge": "partial"}}
    t = Table.create(str(tmp_path), events().schema, time_column="at", **merged)
    upsert(t, events(2))
    code, told, note = run("publish", "iceberg", t.uri)
    assert (code, told) == (0, f"{t.uri} is published as iceberg, 0 to 0: published 1 version\n")
    assert note.startswith("1 later version cannot be published: their rows are merged")


def test_gaps_between_published_versions_are_shown(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    for number in range(16):
        append(t, events(1, day=number))
    for first, last, told in (
        (0, 3, "0 to 3"),
        (5, 5, "0 to 3, and 5"),
        (7, 8, "0 to 3, 5, and 7 to 8"),
        (10, 10, "0 to 3, 5, 7 to 8, and 10"),
        (12, 12, "0 to 3, 5, 7 to 8, 10, and 12"),
        (14, 14, "0 to 3, 5, 7 to 8, 10, 12, and 14"),
        (16, 16, "0 to 16 with 6 gaps"),
    ):
        given = ("--from", str(first), "--version", str(last))
        assert f"as iceberg, {told}: " in run("publish", "iceberg", t.uri, *given)[1]


def test_options_of_iceberg_are_refused_of_delta(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    for option in (("--scheme", "s3a"), ("--format-version", "3")):
        code, _, note = run("publish", "delta", t.uri, *option)
        assert code == 2
        assert "Delta has neither" in note


def test_a_wrong_start_is_an_error_of_usage(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    code, _, note = run("publish", "delta", t.uri, "--from", "1")
    assert code == 2
    assert "version 0 cannot be the last one" in note
    assert run("publish", "hudi", t.uri)[0] == 2
