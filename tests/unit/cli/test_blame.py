"""eventlog blame: who wrote a segment, a chunk, a key or rows, for people."""

import json

import pytest
from click.testing import CliRunner
from support import builders

from eventlog.cli.program import build
from eventlog.compaction import run
from eventlog.format import keys
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete, upsert


def shown(*words):
    answer = CliRunner().invoke(build(), ["blame", *map(str, words)])
    assert answer.exit_code == 0, answer.output
    return answer.stdout.splitlines()


def listed(*words):
    return json.loads("\n".join(shown(*words, "--json")))


@pytest.fixture
def table(tmp_path):
    """Two appends of a job, which a compaction united."""
    made = builders.create(LocalStore(str(tmp_path / "t")))
    for n in range(2):
        append(made, builders.events(2, first=2 * n), app_id="load", app_seq=n)
    run(made)
    return made


def test_a_segment_is_named_by_its_id_or_its_file_and_a_chunk_by_its_name(table):
    (segment,) = table.snapshot().segments()
    header, *lines = shown(table.uri, "1970-01-01")
    assert header.split()[:6] == ["version", "time", "operation", "writer", "job", "rows"]
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert "  compact " in lines[0]
    assert all("    append " in line and "  load " in line for line in lines[1:])
    for what in (segment.id, keys.key_of(segment), f"{table.uri}/{keys.key_of(segment)}"):
        assert shown(table.uri, what) == [header, *lines]
    assert [row["depth"] for row in listed(table.uri, "1970")] == [0, 1, 1]


def test_rows_stand_behind_who_wrote_them(table):
    header, *lines = shown(table.uri, "--where", "value >= 1")
    assert header.split() == [
        "version", "operation", "job", "at", "name", "value", "_time", "_writer", "_segment",
    ]  # fmt: skip
    assert [line.split()[:4] for line in lines] == [["2", "append", "load", "1"]] * 2
    added = table.diff(0, 1).added
    table.store.delete([keys.key_of(segment) for segment in added])
    lines = shown(table.uri, "--where", "true")[1:]
    assert all(line.startswith("one of 1, 2  append     load ") for line in lines[2:])
    assert len(shown(table.uri, "--where", "true", "--limit", 1)) == 2


def test_a_key_is_a_text_or_names_its_columns(tmp_path):
    made = builders.create(LocalStore(str(tmp_path / "k")), key=["name"], granularity="all")
    upsert(made, builders.events(2))
    delete(made, where="name = 'row 1'")
    lines = shown(made.uri, "row 1")
    assert [line.split()[:2] for line in lines[1:]] == [["2", "delete"], ["1", "upsert"]]
    for words in (("--key", "row 1"), ("--key", "name=row 1")):
        assert shown(made.uri, *words) == lines
    assert [line.split()[0] for line in shown(made.uri, "all")[1:]] == ["2", "1"]


@pytest.mark.parametrize("words", [(), ("1970", "--where", "true"), ("1970", "--key", "1")])
def test_one_thing_is_asked_about(table, words):
    answer = CliRunner().invoke(build(), ["blame", table.uri, *words])
    assert answer.exit_code == 2
    assert "give one of SEGMENT, CHUNK, KEY, --key and --where" in answer.stderr
