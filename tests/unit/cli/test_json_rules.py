"""What --json prints, over all verbs: one document, or values a line; one name for one thing."""

import json
import re
import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.writers import append, upsert

pytestmark = pytest.mark.verify

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("s", pa.string())])
DAY = datetime(2013, 1, 7, tzinfo=UTC)
ROW = {"at": DAY, "id": 1, "s": "a"}
# The verbs whose answers are rows, one a line, and the number of words of such a call.
LINES = {"scan": 1, "changes": 2, "sql": 2, "blame": 3}
COMMITS = {
    "append", "branch", "claims", "clock", "columns", "create", "delete", "drop", "granularity",
    "merge", "merge-rows", "overwrite", "pin", "properties", "replicas", "restore", "split",
    "tag", "unpin", "untag", "update", "upsert",
}  # fmt: skip
# Calls of these that only list something, by the number of words.
LISTS = {("claims", 1), ("columns", 1), ("properties", 1), ("replicas", 1)}
# Objects whose fields are a table's own names.
MAPS = {"actions", "apps", "checks", "info", "origins", "properties"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A table with something for each verb, an empty one, a keyed one, a copy, and a file."""
    root = tmp_path_factory.mktemp("json")
    rows = pa.Table.from_pylist([ROW], SCHEMA)
    pq.write_table(rows, root / "rows.parquet")
    t = Table.create(root / "t", SCHEMA, time_column="at", checks={"positive": "id > 0"})
    append(t, rows, app_id="job", app_seq=1)
    append(t, rows)
    t.pin("audit", 1)
    t.claim("2013-01-01", "2013-01-02")
    t.branch("x")
    keyed = Table.create(root / "keyed", SCHEMA, time_column="at", key="id", buckets=2)
    for _ in range(2):
        upsert(keyed, rows)
    Table.create(root / "empty", SCHEMA, time_column="at")
    return root


def calls(root):
    """The arguments of each verb, in an order in which each has something to do."""
    t, keyed, empty, file = root / "t", root / "keyed", root / "empty", root / "rows.parquet"
    copy = root / "copy"
    segment = next(iter(Table.open(t).snapshot().segments())).id
    claim = next(iter(Table.open(t).claims()))
    lists = ("branches", "pins", "tags", "claims", "replicas", "chunks", "ls")
    return [
        ("create", root / "new", "--schema", "at:timestamp", "--time-column", "at"),
        ("log", t),
        ("show", t),
        ("show", keyed),
        ("ls", t),
        ("ls", keyed),
        ("ls", t, "--chunks"),
        ("diff", t, 0, 1),
        ("diff", keyed, 0, 1),
        ("scan", t),
        ("scan", empty),
        ("scan", t, "--count"),
        ("scan", t, "--plan"),
        ("scan", t, "--output", root / "out.csv"),
        ("changes", t, 0),
        ("sql", t, "SELECT * FROM t"),
        ("drop", t, segment),
        ("drop", t, segment, "--reason", "lost", "--run"),
        ("append", t, file),
        ("append", t, file, "--app-id", "job", "--app-seq", 1),
        ("upsert", keyed, file),
        ("delete", t, "--where", "id = 1", "--dry-run"),
        ("delete", keyed, "--where", "id = 1"),
        ("update", t, "--set", "s = 'b'"),
        ("overwrite", t, file),
        ("merge-rows", t, file, "--on", "id"),
        ("columns", t),
        ("columns", t, "add", "n:int64"),
        ("properties", t),
        ("properties", t, "user.a=b"),
        ("granularity", t, "month"),
        ("split", keyed, 4),
        ("compact", t),
        ("compact", keyed),
        ("compact", t, "--run"),
        ("compact", keyed, "--run"),
        ("compact", t, "--explain", "2013-01"),
        ("compact", keyed, "--explain", "all"),
        ("chunks", t),
        ("chunks", keyed),
        ("stats", t, "--vacuum"),
        ("stats", keyed),
        ("pin", t, "other"),
        ("pins", t),
        ("unpin", t, "other"),
        ("bisect", t, "--sql", "SELECT count(*) > 0 FROM t"),
        ("blame", t, "2013"),
        ("blame", t, "--where", "id = 1"),
        ("blame", keyed, "--key", "id=1"),
        ("tag", t, "report"),
        ("tags", t),
        ("untag", t, "report"),
        ("claims", t),
        ("claims", t, "--break", claim, "--silent", 0),
        ("clock", t),
        ("restore", t, 1, "--dry-run"),
        ("restore", t, 1),
        ("branch", t, "y"),
        ("branches", t),
        ("branch", t, "y", "--delete"),
        ("replicate", t, copy, "--name", "copy"),
        ("replicate", t, copy),
        ("replicas", t),
        ("stats", t),
        ("replicas", t, "--detach", "copy"),
        ("merge", t, copy),
        ("merge", t, copy, "--dry-run"),
        ("publish", "delta", t),
        ("unpublish", "delta", t),
        ("unpublish", "delta", t, "--run"),
        ("erase", t, "--where", "id = -5"),
        ("vacuum", t),
        ("vacuum", t, "--run", "--retention-hours", 0, "--staging-hours", 0),
        ("view", t, "-o", root / "history.html"),
        ("fsck", t),
        *((verb, empty) for verb in lists),
        ("ls", empty, "--chunks"),
    ]


def fields(value, of=""):
    """Yield every field below a value, with the field that its object is of, and its value."""
    if isinstance(value, list):
        for each in value:
            yield from fields(each, of)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield of, name, inner
            yield from fields(inner, name)


def is_empty(words):
    return str(words[0]).endswith("empty")


def kind_of(value):
    return "number" if type(value) in (int, float) else type(value).__name__


@pytest.fixture(scope="module")
def answers(tables):
    """The verb and its answer, for each of the calls."""
    made = []
    for verb, *words in calls(tables):
        answer = CliRunner().invoke(build(), [verb, *map(str, words), "--json"])
        assert answer.exit_code == 0, (verb, words, answer.output)
        lines = verb in LINES and len(words) == LINES[verb]
        text = answer.stdout
        found = [json.loads(x) for x in text.splitlines()] if lines else json.loads(text)
        made.append((verb, words, found))
    shutil.rmtree(tables)
    return made


def test_every_verb_is_asked(answers):
    assert {verb for verb, *_ in answers} == set(build().commands) - {"demo"}


def test_rows_are_values_a_line_and_all_else_is_one_document(answers):
    rows = [found for verb, words, found in answers if len(words) == LINES.get(verb)]
    assert [len(found) for found in rows] == [2, 0, 2, 2, 1, 4]
    empty = [found for verb, words, found in answers if verb != "scan" and is_empty(words)]
    assert empty == [[]] * 8


@pytest.mark.parametrize("name", ["table", "source", "target", "branch"])
def test_a_table_is_a_uri(answers, name):
    found = [v for _, _, a in answers for of, n, v in fields(a) if n == name and of not in MAPS]
    assert found
    assert all(uri.startswith("file:///") for uri in found)


def test_a_verb_that_commits_answers_alike(answers):
    for verb, words, found in answers:
        if verb in COMMITS and (verb, len(words)) not in LISTS:
            kinds = [type(found.get(name)) for name in ("table", "version", "committed")]
            assert kinds == [str, int, bool], (verb, words)


def test_times_are_texts_in_utc(answers):
    texts = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
    seen = 0
    for verb, _, answer in answers:
        for of, name, value in fields(answer):
            if type(value) is int and of != "policy":
                assert not 10**12 < value < 4 * 10**12, (verb, name, value)
            if name == "time" or name.endswith("_time"):
                assert value is None or texts.fullmatch(value), (verb, name, value)
                seen += value is not None
    assert seen > 10


def test_a_name_has_one_kind_of_value(answers):
    kinds = {}
    for verb, _, answer in answers:
        for of, name, value in fields(answer) if verb not in LINES else ():
            if value is not None and of not in MAPS:
                kinds.setdefault(name, {}).setdefault(kind_of(value), []).append(verb)
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
