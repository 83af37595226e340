"""The verb sql: queries over versions of tables, for people and for programs."""

import json
import re

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.builders import events

from eventlog import Table
from eventlog.cli.program import build
from eventlog.format import keys
from eventlog.readers import scan
from eventlog.writers import append

pytest.importorskip("duckdb")


@pytest.fixture
def root(tmp_path):
    properties = {"inline_bytes": "0"}
    table = Table.create(tmp_path / "t", events(1).schema, time_column="at", properties=properties)
    append(table, events(3))
    append(table, events(2, first=3, day=1))
    return str(tmp_path / "t")


def asked(*arguments, code=0):
    result = CliRunner().invoke(build(), ["sql", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_a_query_is_answered_as_a_table_json_csv_or_parquet(root, tmp_path):
    query = "SELECT name, value FROM t WHERE value >= 1 ORDER BY name"
    assert asked(root, query).split() == ["name", "value"] + [
        word for n in (2, 3, 4) for word in ("row", str(n), str(n / 2))
    ]
    rows = [json.loads(line) for line in asked(root, query, "--json").splitlines()]
    assert rows == [{"name": f"row {n}", "value": n / 2} for n in (2, 3, 4)]
    assert asked(root, query, "--format", "csv", "--limit", 1).splitlines() == [
        '"name","value"',
        '"row 2",1',
    ]
    target = tmp_path / "answer.parquet"
    asked(root, query, "--output", target)
    assert pq.read_table(target).to_pylist() == rows


def test_a_query_asks_the_versions_that_are_named(root):
    count = "SELECT count(*) AS n FROM t"
    assert json.loads(asked(root, count, "--json")) == {"n": 5}
    assert json.loads(asked(root, count, "--json", "--version", 1)) == {"n": 3}
    joined = "SELECT count(*) AS n, count(old.name) AS was FROM t LEFT JOIN old USING (name)"
    answer = asked(root, joined, "--json", "--table", f"old={root}@1")
    assert json.loads(answer) == {"n": 5, "was": 3}
    newest = asked(root, "SELECT count(*) AS n FROM Now", "--json", "--table", f"Now={root}")
    assert json.loads(newest) == {"n": 5}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["SELECT nix FROM t"], "DuckDB refuses the query"),
        (["SELECT 1; SELECT 2"], "give one query, not 2"),
        (["SELECT * FROM query"], "DuckDB refuses the query"),
        (["SELECT error('odd') FROM t"], "odd"),
        (["FROM t", "--table", "nix"], "NAME=URI"),
        (["FROM t", "--table", "a b=x"], "NAME=URI"),
        (["FROM t", "--table", "T=memory://x"], "two tables 'T'"),
        (["FROM t", "--format", "parquet"], "give --output FILE"),
        (["FROM t", "--output", "x"], "the name x does not show a format"),
    ],
)
def test_queries_that_cannot_be_answered_are_refused(root, arguments, why):
    assert why in asked(root, *arguments, code=2)


def test_an_error_of_duckdb_has_the_names_of_tables_the_place_and_the_quotes(root):
    message = asked(root, "SELECT * FROM weather", "--table", f"old={root}@1", code=2)
    first, names = message.splitlines()
    assert first.endswith("Table with name weather does not exist!")
    assert names == "  the query can name old, t: t is the table at URI"
    lines = asked(root, "SELECT at\nFROM t", code=2).splitlines()
    assert lines[1].index("FROM") == lines[2].index("^")
    assert lines[3:] == ['  a word of SQL names a column only in quotes: write "at"']
    assert "quotes" not in asked(root, 'SELECT "at", nix FROM t', code=2)


def test_a_branch_that_is_named_like_a_version_is_found_by_its_uri(root):
    Table.open(root).branch("audit")
    query = "SELECT count(*) AS n FROM own"
    message = asked(root, query, "--table", f"own={root}@audit", code=1)
    uri = re.search(r"the URI of a branch is (\S+)", message)[1]
    assert json.loads(asked(root, query, "--json", "--table", f"own={uri}")) == {"n": 5}
    assert "URI of a branch" not in asked(root, query, "--table", f"own={root}/nix", code=1)


def test_a_lost_segment_is_damage_and_no_error_of_the_query(root):
    table = Table.open(root)
    table.store.delete([keys.key_of(scan(table).plan.segments()[0])])
    assert "missing" in asked(root, "SELECT sum(value) FROM t", code=4)


def test_a_table_of_a_query_may_be_at_a_tag(root, tmp_path):
    Table.open(root).tag("first", 1)
    count = "SELECT count(*) AS n FROM old"
    assert json.loads(asked(root, count, "--json", "--table", f"old={root}@first")) == {"n": 3}
    answer = asked(root, "SELECT count(*) AS n FROM t", "--json", "--version", "first")
    assert json.loads(answer) == {"n": 3}
    named = Table.create(tmp_path / "t@first", events(1).schema, time_column="at")
    assert json.loads(asked(root, count, "--json", "--table", f"old={named.uri}")) == {"n": 0}


def test_what_the_log_records_is_tables_where_a_query_mentions_them(root):
    def one(query, *more):
        return json.loads(asked(root, query, "--json", *more))

    assert one("SELECT count(*) AS n, max(rows) AS rows FROM history") == {"n": 3, "rows": 3}
    assert one("SELECT count(*) AS n FROM segments", "--version", 1) == {"n": 1}
    assert one("SELECT max(rows) AS n FROM Chunks c JOIN t ON c.version = 2") == {"n": 2}
    named = "SELECT (SELECT count(*) FROM transactions) + (SELECT count(*) FROM pins) AS n"
    assert one(named) == {"n": 3}
    own = one("SELECT count(*) AS n FROM history", "--table", f"history={root}")
    assert own == {"n": 5}
    with_cte = "WITH history AS (SELECT 1 AS n) SELECT n FROM history"
    assert one(with_cte) == {"n": 1}


def test_bisect_finds_the_first_version_at_which_a_query_is_true(root):
    def bisected(query, *options):
        found = CliRunner().invoke(build(), ["bisect", root, "--sql", query, *options])
        return found.exit_code, found.output

    assert "true from version 2 on: append" in bisected("SELECT count(*) > 3 FROM t")[1]
    assert "not true at either end: versions 0 and" in bisected("SELECT count(*) > 9 FROM t")[1]
    assert "already at version 1" in bisected("SELECT count(*) FROM t", "--from", "1")[1]
    shown = json.loads(bisected("SELECT count(*) >= 3 FROM t", "--json")[1])
    assert (shown["first"], [one["version"] for one in shown["asked"]]) == (1, [0, 2, 1])
    assert "true from version 1 on" in bisected("SELECT max(value) >= 0 FROM t")[1]  # null before
    assert "true from version 1 on" in bisected("SELECT sum(value) FROM t")[1]


def test_bisect_asks_for_one_value_that_is_true_or_false(root):
    refused = {
        "SELECT value > 1 FROM t": "more than one row:",
        "SELECT true FROM t WHERE value > 9": "no row:",
        "SELECT count(*) > 3, true FROM t": "2 columns:",
        "SELECT 'no'": "type string:",
        'SELECT max("at") FROM t': "type timestamp",
    }
    for query, why in refused.items():
        found = CliRunner().invoke(build(), ["bisect", root, "--from", "1", "--sql", query])
        assert found.exit_code == 2
        assert why in found.stderr
        assert "SELECT count(*) > 0 FROM t WHERE …" in found.stderr
