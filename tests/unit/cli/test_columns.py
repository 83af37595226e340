"""The verb `columns`, and what `log` and `diff` show of changes of columns."""

import json

import pytest
from click.testing import CliRunner
from support.builders import SCHEMA, create, events

from eventlog import Table
from eventlog.cli.program import build
from eventlog.publishing import publish, unpublish
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.writers import append


def run(*arguments):
    return CliRunner().invoke(build(), [str(a) for a in arguments])


@pytest.fixture
def table(tmp_path):
    made = create(LocalStore(tmp_path / "t"))
    append(made, events(2))
    return made


def test_a_rename_says_what_it_means_for_a_publication_as_delta(table):
    told = "is refused until no older segment is live"
    publish(table, "delta")
    assert told not in run("columns", table.uri, "add", "more:int8").stderr
    assert told not in run("columns", table.uri, "rename", "value", "value").stderr
    for words in (["rename", "name", "title"], ["add", "n:int8", "--default", "n=1", "--json"]):
        assert told in run("columns", table.uri, *words).stderr, words
    unpublish(table, "delta", dry_run=False)
    assert told not in run("columns", table.uri, "rename", "title", "name").stderr


def test_columns_are_listed_and_changed(table):
    uri = table.uri
    added = run("columns", uri, "add", "n:int8", "s:struct<a:int8, b:string>", "--default", "n=5")
    assert added.exit_code == 0, added.output
    assert "column 'n' of type int8 with 5 in rows that exist is added" in added.output
    for words in (
        ("rename", "name", "title"),
        ("rename", '["s","a"]', "c"),
        ("widen", "n:int64"),
        ("widen", '["s","c"]:int16'),
        ("add", "d:date", "--within", "s"),
        ("reorder", "d", "--within", "s"),
        ("reorder", "n", "title"),
        ("drop", "value", '["s","b"]'),
        ("relax", "at"),
    ):
        assert run("columns", uri, *words).exit_code == 0, words
    found = Table.open(uri)
    assert found.session.head().schema.names == ["n", "title", "at", "s"]
    assert [f.name for f in found.session.head().schema.field("s").type] == ["d", "c"]
    assert scan(found, ["n"]).to_table().column("n").to_pylist() == [5, 5]
    listed = run("columns", uri)
    assert "struct<d:date, c:int16>" in listed.output
    shown = json.loads(run("columns", uri, "--json").stdout)["columns"]
    assert [one["name"] for one in shown] == ["n", "title", "at", "s"]
    answer = json.loads(run("columns", uri, "rename", "title", "name", "--json").stdout)
    assert answer == {
        "table": found.uri,
        "version": found.refresh().version,
        "committed": True,
        "schema_changes": ["column 'title' is renamed to 'name'"],
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("drop", "at"), "cannot be dropped: it is the time column"),
        (("drop", "nope"), "no column 'nope'"),
        (("rename", "name"), "rename takes a name and the new one"),
        (("widen", "name"), "widen takes NAME:TYPE"),
        (("widen", "value:int8"), "cannot change type"),
        (("add", "n:int8", "--default", "n=x"), "no default of column 'n'"),
        (("add", "n:int8", "--default", "m=1"), "is not NAME=VALUE"),
        (("drop", "name", "--within", "s"), "--within is for add and reorder"),
        (("--within", "s"), "give an ACT"),
    ],
)
def test_what_is_wrong_is_told(table, words, why):
    refused = run("columns", table.uri, *words)
    assert refused.exit_code == 2
    assert why in refused.output
    assert table.refresh().schema == SCHEMA


def test_a_field_is_not_added_as_a_column_with_a_dot(table):
    assert run("columns", table.uri, "add", "s:struct<a:int8>").exit_code == 0
    refused = run("columns", table.uri, "add", "s.x:int8")
    assert refused.exit_code == 2
    assert "is added by its own name 'x' and --within 's'" in refused.stderr
    assert run("columns", table.uri, "add", "x:int8", "--within", "s").exit_code == 0
    assert run("columns", table.uri, "add", "name.x:int8").exit_code == 0


def test_the_help_of_columns_has_the_acts_in_lines(table):
    assert "\n  check NAME EXPRESSION    uncheck NAME\n" in run("columns", "--help").output


def test_log_and_diff_show_changes_of_columns_in_words(table):
    table.rename_column("name", "title")
    append(table, events(1).rename_columns(["at", "title", "value"]))
    words = "column 'name' is renamed to 'title'"
    assert f"version 2: {words}" in run("log", table.uri).output
    lines = json.loads(run("log", table.uri, "--json").stdout)
    assert [line.get("schema_changes") for line in lines] == [None, [words], None, None]
    assert words in run("diff", table.uri, "1", "3").output
    assert json.loads(run("diff", table.uri, "1", "3", "--json").stdout)["schema_changes"] == [
        words
    ]


def test_checks_are_added_listed_and_dropped(table):
    uri = table.uri
    refused = run("columns", uri, "check", "small", "value < 0.5")
    assert refused.exit_code == 2
    assert "is false for 1 row, for example (value = 0.5)" in refused.stderr
    added = run("columns", uri, "check", "small", "value < 5")
    assert (added.exit_code, added.output) == (
        0,
        "check 'small' is added: value < 5\nversion 2\n",
    )
    assert run("columns", uri, "rename", "value", "the value").exit_code == 0
    for verb in ("columns", "show"):
        assert '"the value" < 5' in run(verb, uri).output
    listed = json.loads(run("columns", uri, "--json").stdout)
    assert listed["checks"] == {"small": '"the value" < 5'}
    shown = json.loads(run("show", uri, "--json").stdout)
    assert shown["checks"] == {"small": '"the value" < 5'}
    assert "check 'small' is added" in run("diff", uri, 1, 3).output
    assert "check 'small' is added" in run("log", uri).output
    assert run("columns", uri, "uncheck", "small").output.startswith("check 'small' is dropped")
    for words in (
        ["check", "small"],
        ["uncheck"],
        ["uncheck", "small"],
        ["check", "", "value < 5"],
    ):
        assert run("columns", uri, *words).exit_code == 2


def test_a_table_is_created_with_checks(tmp_path):
    words = ["--schema", "at:timestamp not null, n:int64", "--time-column", "at"]
    made = run("create", tmp_path / "u", *words, "--check", "small=n <= 5")
    assert made.exit_code == 0, made.output
    assert Table.open(tmp_path / "u").session.head().checks == {"small": "n <= 5"}
    (tmp_path / "rows.csv").write_text("at,n\n2013-01-07,6\n")
    refused = run("append", tmp_path / "u", tmp_path / "rows.csv")
    assert (refused.exit_code, "check 'small' (n <= 5)" in refused.stderr) == (2, True)
