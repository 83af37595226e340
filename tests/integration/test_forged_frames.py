"""Key frames whose bytes, digests and sums fit, and whose entries are not those of the log."""

import pyarrow as pa
import pytest
from support.damage import DAY_US, Damaged, rows

from eventlog import Table, errors
from eventlog.readers import count, scan
from eventlog.state import keyframe
from eventlog.writers import append, overwrite

DAYS = 20


def place(name, row, value):
    """A change of a leaf's table: another value in one place."""

    def change(table):
        at = table.column_names.index(name)
        values = table.column(at).to_pylist()
        values[row] = value(values[row]) if callable(value) else value
        return table.set_column(at, table.field(at), pa.array(values, table.field(at).type))

    return change


def exchange(name, first, second):
    """A change of a leaf's table: two values change places."""

    def change(table):
        at = table.column_names.index(name)
        values = table.column(at).to_pylist()
        values[first], values[second] = values[second], values[first]
        return table.set_column(at, table.field(at), pa.array(values, table.field(at).type))

    return change


@pytest.fixture
def framed(monkeypatch):
    """A table of 20 segments, of a day and two rows each, in a leaf; two commits after it."""
    monkeypatch.setattr(keyframe, "INLINE_SEGMENTS", 8)
    framed = Damaged(commits=0, every=1000)
    for half in (range(DAYS // 2), range(DAYS // 2, DAYS)):
        append(framed.table, pa.concat_tables([rows(day, 2) for day in half]))
    framed.table.write_keyframe()
    overwrite(framed.table, rows(3, 1), start="1970-01-04", end="1970-01-05")
    append(framed.table, rows(DAYS))
    assert framed.table.refresh().base.leaves
    return framed


def opened(framed):
    return Table.open("", store=framed.store)


BOUND = 5  # the row of the leaf that is changed
CHANGES = {
    "lower bound": place("min_2", BOUND, 1000),
    "upper bound": place("max_2", BOUND, -1000),
    "bounds of time": place("max_1", BOUND, lambda old: old - DAY_US),
    "nulls": place("nulls_2", BOUND, 2),
    "rows": lambda table: place("rows", 6, 3)(place("rows", BOUND, 1)(table)),
    "chunk": place("chunk_end", BOUND, lambda old: old - 82_800_000),
    "id": place("id", BOUND, lambda old: bytes([old[0] ^ 1, *old[1:]])),
    "schema": place("schema", BOUND, 2),
    "hashes exchanged": exchange("hash", BOUND, BOUND + 1),
    "hash of a dropped one": exchange("hash", 3, BOUND),
    "no statistics": place("nulls_2", BOUND, None),
}
QUESTIONS = {
    "everything": {},
    "by number": {"where": "id = 1"},
    "by another number": {"where": "id = 0"},
    "nulls": {"where": "id IS NOT NULL"},
    "all that there are": {"where": "id >= 0"},
    "by time": {"where": "time = TIMESTAMP '1970-01-06 00:00:00.000001Z'"},
    "after a time": {"where": "time >= TIMESTAMP '1970-01-06 00:00:00.000001Z'"},
    "in a range": {"where": "time < TIMESTAMP '1970-01-10 00:00:00Z' AND id <> 7"},
}


def answers(table):
    found = {}
    for name, question in QUESTIONS.items():
        read = scan(table, **question).to_table().sort_by([("time", "ascending")])
        assert count(table, **question) == read.num_rows
        found[name] = read.to_pylist()
    return found


@pytest.mark.sample(2, verify=3)
@pytest.mark.parametrize("name", CHANGES)
def test_an_entry_that_is_not_the_log_s_hides_no_row(framed, name):
    wanted = answers(opened(framed))
    framed.forge_leaf(2, CHANGES[name])
    for question, asked in QUESTIONS.items():  # each by a handle that has not noticed before
        try:
            read = scan(opened(framed), **asked).to_table()
            number = count(opened(framed), **asked)
        except errors.DataLoss:
            continue  # no answer, but never another one
        assert read.sort_by([("time", "ascending")]).to_pylist() == wanted[question], question
        assert number == read.num_rows
    assert any("readers" in found.message for found in framed.errors())
