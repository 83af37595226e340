"""eventlog log --graph: the history of a table with its branches and merges."""

import json
import re

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from support import builders

from eventlog.cli import terminal
from eventlog.cli.program import build
from eventlog.cli.screen.lanes import lane_lines
from eventlog.store.local import LocalStore
from eventlog.writers import append


def drawn(nodes, first=None):
    """The lines of a graph given as text: `c:ba` is a node c with the parents b and a."""
    pairs = [node.partition(":") for node in nodes.split()]
    lines = lane_lines([(name, list(parents)) for name, _, parents in pairs], first)
    return [f"{line.text}{line.node or ''}".rstrip() for line in lines]


def test_a_history_without_branches_is_one_lane():
    assert drawn("c:b b:a a") == ["* c", "* b", "* a"]


def test_lanes_of_several_children_meet_at_their_parent():
    assert drawn("d:a c:a b:a a") == ["* d", "│ * c", "│ │ * b", "├─┴─╯", "* a"]


def test_a_merge_has_a_lane_for_what_it_merged():
    assert drawn("d:cb c:a b:a a") == ["* d", "├─╮", "* │ c", "│ * b", "├─╯", "* a"]


def test_a_merge_of_an_older_version_joins_the_lane_of_its_log():
    assert drawn("e:c d:bc b:a c:a a") == [
        "* e", "│ * d", "├─┤", "│ * b", "* │ c", "├─╯", "* a",
    ]  # fmt: skip


def test_a_line_crosses_the_lanes_between():
    assert drawn("e:b d:a c:b b:a a") == ["* e", "│ * d", "│ │ * c", "├─┼─╯", "* │ b", "├─╯", "* a"]


def test_a_lane_that_is_free_is_taken_again():
    assert drawn("e:d d:a c b:a a") == ["* e", "* d", "│ * c", "│ * b", "├─╯", "* a"]


def test_the_leftmost_lane_waits_for_its_first_node():
    assert drawn("c:a b:a a", first="b") == ["  * c", "* │ b", "├─╯", "* a"]


def test_what_is_not_shown_goes_on_below():
    assert drawn("d:cb c:a") == ["* d", "├─╮", "* │ c"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A branch `fix` of version 1, merged in version 4, which goes on, and a branch of that."""
    made = builders.create(LocalStore(str(tmp_path_factory.mktemp("graph") / "t")))

    def add(target):
        made.clock.sleep(3600)
        append(target, builders.events(1, first=made.clock.now_ms() % 997))

    add(made)
    fix = made.branch("fix", 1)
    add(fix)
    add(made)
    made.merge("fix")
    made.tag("report", 4)
    add(fix)
    deep = fix.branch("deep", 2)
    add(deep)
    return made


def run(*words, **options):
    answer = CliRunner(**options).invoke(build(), ["log", *map(str, words)], color=True)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def shape(text):
    """The drawing, the labels and the version of each line."""
    return [
        re.sub(r"version (\d+)  .*", r"\1", line.partition("Z")[0]).rstrip()
        for line in plain(text).splitlines()
    ]


def test_branches_and_merges_are_drawn_beside_the_table(table):
    assert shape(run(table.uri, "--graph")) == [
        "  * (fix/deep) 3",
        "  │ * (fix) 4",
        "  │ * 3",
        "* │ │ (main) 5",
        "* │ │ (tag report) 4",
        "├─┤ │",
        "* │ │ 3",
        "│ ├─╯",
        "│ * 2",
        "* │ 2",
        "├─╯",
        "* 1",
        "* 0",
    ]


def test_json_has_the_parents_of_each_version(table):
    listed = json.loads(run(table.uri, "--graph", "--json", "--all"))
    by_name = {(one["table"], one["version"]): one["parents"] for one in listed}
    fix, deep = f"{table.uri}/_branches/fix", f"{table.uri}/_branches/fix/_branches/deep"
    named = lambda uri, version: {"table": uri, "version": version}
    assert by_name[table.uri, 0] == []
    assert by_name[table.uri, 4] == [named(table.uri, 3), named(fix, 2)]
    assert by_name[fix, 2] == [named(table.uri, 1)]
    assert by_name[deep, 3] == [named(fix, 2)]
    places = {name: place for place, name in enumerate(by_name)}
    for name, parents in by_name.items():
        for parent in parents:
            assert places[name] < places[parent["table"], parent["version"]]
    assert len(json.loads(run(table.uri, "--graph", "--json", "-n", 3))) == 3


def test_lines_fit_a_terminal_and_are_plain_where_the_output_has_no_utf_8(table, monkeypatch):
    coloured = run(table.uri, "--graph")
    assert len(set(re.findall(r"\x1b\[3\dm", coloured))) > 2
    monkeypatch.setattr(terminal, "terminal_width", lambda: 60)
    lines = plain(run(table.uri, "--graph")).splitlines()
    assert max(map(cell_len, lines)) == 60
    assert lines[0].endswith("…")
    assert max(map(cell_len, plain(run(table.uri, "--graph", "--wide")).splitlines())) > 60
    ascii_only = plain(run(table.uri, "--graph", charset="ascii"))
    assert ascii_only.isascii()
    assert "|-| |\n" in ascii_only
    assert max(map(cell_len, ascii_only.splitlines())) == 60


def test_a_branch_is_drawn_as_its_own_history(table):
    labels = shape(run(f"{table.uri}/_branches/fix", "--graph"))
    assert labels == ["  * (fix/deep) 3", "* │ (fix) 4", "* │ 3", "├─╯", "* 2", "* 1", "* 0"]
    deep = run(f"{table.uri}/_branches/fix/_branches/deep", "--graph")
    assert shape(deep) == ["* (fix/deep) 3", "* 2", "* 1", "* 0"]


@pytest.mark.parametrize("words", [("--follow",), ("--start", "1"), ("--operation", "append")])
def test_a_drawing_has_all_versions(table, words):
    answer = CliRunner().invoke(build(), ["log", table.uri, "--graph", *words])
    assert answer.exit_code == 2
    assert "--graph draws all versions" in answer.stderr
