"""The verbs publish and unpublish."""

import json

from click.testing import CliRunner
from support.builders import events

from eventlog import Table
from eventlog.cli.program import build
from eventlog.writers import append


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
    }  # fmt: skip
    assert "1 to 3: nothing new" in run("publish", "delta", t.uri)[1]
    code, told, note = run("unpublish", "delta", t.uri)
    assert (code, told) == (0, "5 objects would be deleted\n")
    assert "--run" in note
    keys = json.loads(run("unpublish", "delta", t.uri, "--run", "--json")[1])["keys"]
    assert len(keys) == 5
    assert not [*t.store.list("_delta_log/")]
    assert run("unpublish", "delta", t.uri)[1:] == ("0 objects would be deleted\n", "")


def test_a_wrong_start_is_an_error_of_usage(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    code, _, note = run("publish", "delta", t.uri, "--from", "1")
    assert code == 2
    assert "version 0 cannot be the last one" in note
    assert run("publish", "hudi", t.uri)[0] == 2
