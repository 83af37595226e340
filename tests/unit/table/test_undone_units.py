"""Units of work that a restore undoes: they are named, and can be loaded again if asked for."""

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.builders import check_sound, create, events, reopen
from support.forked_histories import copied

from eventlog import Table, errors, replication
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.table.restoration import restoration
from eventlog.writers import append, delete, overwrite, upsert


def names(table):
    return sorted(scan(table).to_table().column("name").to_pylist())


def load(table, seq, app="load"):
    return append(table, events(1, first=seq), app_id=app, app_seq=seq)


@pytest.fixture
def table(tmp_path):
    """Units 1 to 3 of one app, and one of another, in the versions 1 to 4."""
    made = create(LocalStore(tmp_path / "t"))
    for seq in (1, 2, 3):
        load(made, seq)
    load(made, 7, "other")
    return made


def test_a_restore_names_the_units_that_it_undoes(table, caplog):
    found = [(u.app_id, u.kept, u.last) for u in table.undone_units(1)]
    assert found == [("load", 1, 3), ("other", None, 7)]
    table.restore(1)
    assert "'load' up to 3, after 1; 'other' up to 7" in caplog.text
    assert "forget_units=True" in caplog.text
    assert [(u.app_id, u.kept, u.last) for u in table.undone_units(1)] == found
    check_sound(table.store)


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_a_unit_that_a_restore_undid_is_skipped_with_a_warning(table, caplog, verb):
    table.restore(1)
    caplog.clear()
    if verb == "append":
        load(table, 3)
    else:
        overwrite(table, events(1, first=3), app_id="load", app_seq=3)
    assert "app 'load': sequence 3 was skipped. Version 5 restored version 1" in caplog.text
    assert names(table) == ["row 1"]


@pytest.mark.parametrize("again", [False, True])
def test_units_that_are_forgotten_are_loaded_again_once(table, caplog, again):
    if again:  # first restored, and then found out
        table.restore(1)
    caplog.clear()
    table.restore(1, forget_units=True)
    assert names(table) == ["row 1"]
    for _ in range(2):
        for seq in (1, 2, 3):
            load(table, seq)
        load(table, 7, "other")
    assert names(table) == ["row 1", "row 2", "row 3", "row 7"]
    assert caplog.text == ""
    assert fsck(table).errors == 0
    check_sound(table.store)


def test_a_restore_of_the_rows_restores_their_units(table):
    table.restore(1, forget_units=True)
    table.restore(4)
    for seq in (1, 2, 3):
        load(table, seq)
    load(table, 7, "other")
    assert names(table) == ["row 1", "row 2", "row 3", "row 7"]
    check_sound(table.store)


def test_units_that_are_done_meanwhile_are_not_forgotten(table):
    other = reopen(table.store)
    head = table.refresh()
    actions = restoration(head, table.snapshot(1), forget_units=True)
    append(other, events(1).slice(0, 0), app_id="load", app_seq=4)  # without rows
    with pytest.raises(errors.CommitConflict, match="done other units of work meanwhile"):
        table.commit(table.transaction("restore", actions, read_version=head.version))


def test_the_program_names_and_forgets_units(table):
    def run(*arguments):
        return CliRunner().invoke(build(), ["restore", table.uri, "1", *arguments])

    shown = run("--dry-run")
    assert "undoes units of work of apps: 'load' up to 3, after 1" in shown.output
    assert "--forget-units" in shown.output
    told = json.loads(run("--json").stdout)
    assert told["undone_units"] == [
        {"app_id": "load", "kept": 1, "last": 3},
        {"app_id": "other", "kept": None, "last": 7},
    ]
    assert told["units_forgotten"] is False
    assert json.loads(run("--json", "--forget-units").stdout)["units_forgotten"] is True
    load(table, 3)
    assert names(table) == ["row 1", "row 3"]


def test_a_keyed_table_is_loaded_again_as_the_guide_says():
    """docs/guides/data-loss.md: restore the newest complete version, and upsert again."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    t = Table.create("memory://t", schema, time_column="at", key="id", clock=ManualClock(1, 1))
    rows = lambda *ids: pa.table({"id": [*ids], "at": pa.array([0] * len(ids), schema[1].type)})
    upsert(t, rows(1, 2), app_id="feed", app_seq=1)
    whole = t.session.head().version
    upsert(t, rows(3), app_id="feed", app_seq=2)
    delete(t, keys=pa.table({"id": [1]}), app_id="gone", app_seq=1)
    t.restore(whole, forget_units=True)
    upsert(t, rows(3), app_id="feed", app_seq=2)
    delete(t, keys=pa.table({"id": [1]}), app_id="gone", app_seq=1)
    assert sorted(scan(t).to_table().column("id").to_pylist()) == [2, 3]


@pytest.mark.hazard("G3")
def test_a_merge_skips_no_unit_that_was_loaded_again(table):
    copy = Table.open("", store=copied(table.store), clock=ManualClock(10**12, 5))
    load(table, 4)
    table.restore(4, forget_units=True)
    append(table, events(1, first=44), app_id="load", app_seq=4)
    append(copy, events(1, first=9))
    replication.merge(table, copy)
    replication.merge(copy, table)
    assert names(table) == names(copy)
    assert "row 44" in names(table)
    assert "row 4" not in names(table)


def test_a_copy_that_follows_has_the_units_of_its_source(table):
    copy = Table.open("", store=copied(table.store), clock=ManualClock(10**12, 5))
    table.restore(1, forget_units=True)
    load(table, 2)
    replication.follow(table, copy)
    load(copy, 2)
    load(copy, 3)
    assert names(copy) == ["row 1", "row 2", "row 3"]


def test_a_restore_of_the_same_rows_restores_the_units_that_are_done(table):
    done = table.session.head().version
    overwrite(table, events(0))
    empty = table.session.head().version
    table.restore(0, forget_units=True)
    assert names(table) == []
    assert table.restore(empty) == empty + 2
    load(table, 2)
    assert names(table) == []
    assert table.restore(empty) == empty + 2  # there is nothing to do
    table.restore(done)
    assert names(table) == ["row 1", "row 2", "row 3", "row 7"]
