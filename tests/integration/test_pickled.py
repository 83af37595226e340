"""Handles, snapshots and scans are sent to other processes, and go on there."""

import pickle
from datetime import timedelta

import pyarrow.compute as pc
import pytest
from support.builders import create, events

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.readers import changes, count, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

QUESTIONS = {
    "all rows": scan,
    "a text": lambda t: scan(t, where="at < '1971-01-01'"),
    "an expression": lambda t: scan(t, where=pc.field("name") == "row 3"),
    "an older version": lambda t: scan(t, version=2, columns=["name"]),
    "changes": lambda t: changes(t, 0),
    "a branch": lambda t: scan(t.branch("x")),
}


@pytest.fixture
def table():
    made = create(MemoryStore(), properties={"keyframe_commits": "2"})
    for n in range(5):
        append(made, events(1, first=n))
    return made


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_gives_the_same_rows_elsewhere(table, question):
    asked = QUESTIONS[question](table)
    sent = pickle.dumps(asked)
    assert pickle.loads(sent).to_table() == asked.to_table()
    assert len(sent) < 100_000, "what is cached stays behind"


def test_a_snapshot_is_of_the_same_version_elsewhere(table):
    known = table.snapshot(3)
    append(table, events(1, first=90))
    there = pickle.loads(pickle.dumps(known))
    assert (there.version, there.commit_hash) == (3, known.commit_hash)
    assert list(there.segments()) == list(known.segments())


def test_a_scan_of_a_table_that_was_replaced_is_refused_elsewhere(table):
    sent = pickle.dumps(scan(table))
    table.store.delete([row.key for row in list(table.store.list(""))])
    with pytest.raises(errors.EventLogError):
        pickle.loads(sent).to_table()


def test_below_the_horizon_a_version_has_all_its_rows_or_none(table):
    """A handle that knows the horizon refuses; one that has read nothing gives all or refuses."""
    now = {"retention": timedelta(0), "staging": timedelta(0)}
    old = Table(table.store)
    overwrite(table, events(1, first=50), start="1970-01-01", end="1970-01-02")
    whole = scan(old, version=4).to_table()
    assert whole.num_rows == count(Table(table.store), version=4) == 4
    table.clock.advance(3_600_000)
    vacuum(table, dry_run=False, **now)
    for question in (scan, count):
        with pytest.raises(errors.VersionVacuumed):
            question(table, version=4)
    with pytest.raises(errors.VersionVacuumed):
        scan(Table(table.store), version=4).to_table()
    with pytest.raises(errors.VersionVacuumed):  # although the log alone, which stays, has it
        count(Table(table.store), version=4)
    with pytest.raises(errors.VersionVacuumed):
        count(old, version=4)
