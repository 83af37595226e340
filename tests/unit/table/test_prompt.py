"""A table at a prompt: its methods for rows, what it shows of itself, and what `dir` lists."""

import inspect
import re

import pyarrow as pa
import pytest
from support.builders import SCHEMA, add, commit, create, events
from tidy.definitions import TESTS

import eventlog
from eventlog import Table, errors, readers, writers
from eventlog.compaction import plan
from eventlog.quantities import size_text
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

# Method -> the function that it calls.
CALLED = {
    "append": writers.append,
    "upsert": writers.upsert,
    "overwrite": writers.overwrite,
    "delete": writers.delete,
    "update": writers.update,
    "merge_rows": writers.merge,
    "scan": readers.scan,
    "count": readers.count,
    "changes": readers.changes,
}


@pytest.fixture
def table():
    made = create(CountingStore(MemoryStore()))
    for day in range(3):
        made.append(events(2, day=day, first=2 * day))
    return made


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLED)
def test_a_method_takes_what_its_function_takes(name):
    """Storage options are for a URI in place of the table."""
    _, *own = inspect.signature(getattr(Table, name)).parameters.values()
    _, *those = inspect.signature(CALLED[name]).parameters.values()
    assert own == [each for each in those if each.name != "storage_options"]


def test_methods_hand_on_what_they_are_given(table):
    assert table.append(events(1, first=6), app_id="job", app_seq=1) == 4
    assert table.append(events(1, first=7), app_id="job", app_seq=1) == 4
    assert table.count("value >= 1", version=3) == 4
    assert table.scan(["name"], "value = 0").to_table().to_pydict() == {"name": ["row 0"]}
    changed = table.changes(3, columns=["name"]).to_table()
    assert changed["name"].to_pylist() == ["row 6"]
    assert table.update({"value": "value + 10"}, "name = 'row 6'", dry_run=True).updated == 1
    assert table.update({"value": "value + 10"}, "name = 'row 6'") == 5
    assert table.delete(where="value >= 13").deleted == 1
    day = {"start": "1970-01-01", "end": "1970-01-02"}
    table.overwrite(events(1, first=100), **day, app_id="job", app_seq=2)
    assert table.scan(["name"], "at < '1970-01-02'").to_table()["name"].to_pylist() == ["row 100"]
    source = pa.table({"name": ["row 100"], "value": [7.0]})
    table.merge_rows(source, "name", when_not_matched="ignore")
    assert table.count("value = 7") == 1


def test_upsert_is_for_keyed_tables(table):
    keyed = create(key="name")
    keyed.upsert(events(2))
    keyed.upsert(events(2))
    keyed.delete(keys=pa.table({"name": ["row 1"]}))
    assert keyed.count() == 1
    with pytest.raises(errors.InvalidInput, match="key"):
        table.upsert(events(1))


def test_the_schema_is_that_of_the_newest_version_that_was_read(table):
    assert table.schema == SCHEMA
    table.add_columns([pa.field("wind", pa.float64())])
    assert table.schema.names == [*SCHEMA.names, "wind"]


# --- what it shows --------------------------------------------------------------------------------


def shown(value):
    """The lines of a repr; the fragment of HTML has the same values."""
    lines = repr(value).splitlines()
    fragment = value._repr_html_()
    for word in re.findall(r"\w+", " ".join(lines)):
        assert word in fragment
    return lines


def size(table, *days):
    """The size of the segments of these days, as text."""
    segments = table.snapshot().segments()
    return size_text(sum(segments[day].bytes for day in days))


def test_a_table_shows_the_version_that_it_has_read(table):
    assert shown(table) == [
        f"Table {table.uri}",
        "  version  3, committed 2020-09-13T12:26:40Z",
        f"  size     6 rows, {size(table, 0, 1, 2)} in 3 segments",
        "  chunks   day, by at",
        "  column  type",
        "  at      timestamp",
        "  name    string",
        "  value   float64",
    ]
    assert shown(Table(table.store)) == [
        f"Table {table.uri}",
        "  version  not read yet: .refresh() reads the newest",
    ]


def test_a_keyed_table_shows_its_key():
    keyed = create(key="name", buckets=4)
    assert "  key      name; 4 buckets" in shown(keyed)
    assert "0 rows before keys are merged" in repr(keyed)


def test_of_many_columns_the_first_are_shown():
    many = pa.schema([SCHEMA.field("at"), *(pa.field(f"c{n}", pa.int64()) for n in range(30))])
    assert shown(create(schema=many))[-1] == "  … 11 more of 31 columns, in .schema"


def test_a_notebook_draws_the_segments_that_are_in_memory(table):
    fragment = table._repr_html_()
    assert "Segments by time chunk, 1970-01-01 to 1970-01-03" in fragment
    assert re.search(r' d="([^"]*)"', fragment)[1].count("z") == 3
    assert "<svg" not in create()._repr_html_()
    days = [f"2013-{1 + n // 28:02}-{1 + n % 28:02}" for n in range(300)]
    commit(table, *(add(table, day, rows=1 + n) for n, day in enumerate(days)))
    assert len(table._repr_html_()) < 12_000
    table.write_keyframe()  # in leaves, which no repr reads
    assert "<svg" not in Table(table.store).snapshot()._repr_html_()


def test_a_snapshot_shows_its_version(table):
    assert shown(table.snapshot(1))[:3] == [
        "Snapshot of version 1",
        "  version  1, committed 2020-09-13T12:26:40Z",
        f"  size     2 rows, {size(table, 0)} in 1 segment",
    ]


def test_a_scan_shows_its_plan(table):
    assert shown(table.scan(["name"], "at >= '1970-01-02'", limit=1)) == [
        "Scan of version 3 (no row is read before it is consumed)",
        "  columns  name",
        "  where    at >= '1970-01-02'",
        "  limit    1 row",
        f"  reads    2 of 3 segments, {size(table, 1, 2)}",
    ]
    field = pa.compute.field("value") > 2
    assert "  where    (value > 2)" in shown(table.scan(where=field))
    assert "where" not in repr(table.scan())


def test_changes_and_differences_show_what_they_are_of(table):
    assert shown(table.changes(1))[1:] == [
        "  columns   at, name, value, _change, _version, _time",
        "  versions  after 1, up to 3",
        f"  reads     2 segments, at most {size(table, 1, 2)}",
    ]
    assert shown(table.diff(1, 3))[1:] == [
        f"  added    2 segments, 4 rows, {size(table, 1, 2)}",
        "  dropped  0 segments, 0 rows, 0 B",
    ]


def test_a_version_of_a_history_is_one_line(table):
    table.delete(where="value = 0")
    deleted, appended = table.history(limit=2)
    assert repr(appended).startswith(
        "version 3  2020-09-13T12:26:40Z  append: +1 segment, +2 rows  by "
    )
    assert "delete: deletes in 1 segment, -1 rows  by" in repr(deleted)


def test_a_plan_of_compaction_shows_its_tasks(table):
    for n in range(12):
        table.append(events(1, first=n))
    made = plan(table)
    lines = shown(made)
    assert lines[0] == f"Plan of compaction of version {made.version}, to day chunks"
    assert lines[1].startswith("  tasks     1, of 1")
    assert lines[-1].split()[0] == "1970-01-01"
    assert made.tasks[0].reason[:20] in lines[-1]
    assert len(shown(made.tasks[0])) == 1
    assert shown(plan(create()))[1:] == [
        "  tasks     0, of 0 segments and 0 B",
        "  examined  0 chunks",
    ]


def test_showing_sends_no_request_and_reads_no_row(table):
    values = [table, table.snapshot(), table.scan(where="value > 1"), table.changes(0), plan(table)]
    with table.store.measure() as counts:
        for value in values:
            shown(value)
    assert counts.total == 0


# --- what is listed -------------------------------------------------------------------------------


def test_names_that_dir_lists_are_in_the_reference():
    page = (TESTS.parent / "docs/api/table.md").read_text(encoding="utf-8")
    members = page.partition("members:")[2].partition("\n:::")[0]
    listed = {name for name in dir(create()) if not name.startswith("_")}
    assert listed <= {*re.findall(r"- (\w+)", members)}
    assert {"append", "head", "scan", "snapshot"} <= listed
    assert not {"session", "store", "commit", "transaction"} & listed


def test_the_package_lists_its_public_names():
    assert {*eventlog.__all__} <= {*dir(eventlog)}
    assert not {"log", "model", "session", "store"} & {*dir(eventlog)}
    assert re.fullmatch(r"\d+\.\d+\.\d+", eventlog.__version__)
