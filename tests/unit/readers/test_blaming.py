"""blame: which commits wrote segments, chunks, keys and rows, through which rewrites."""

import pyarrow as pa
import pytest
from support import builders
from support.replacements import rewrite

from eventlog import Table
from eventlog.compaction import run
from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.format import keys
from eventlog.readers import blame, scan
from eventlog.readers.blaming import blame_columns
from eventlog.replication import follow
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, update, upsert

DAY = "1970-01-01"


def steps(found):
    return [(r["depth"], r["kind"], r["version"], r["operation"]) for r in found.to_pylist()]


def by_name(found, *columns):
    rows = found.to_pylist()
    return {row["name"]: tuple(row[column] for column in columns) for row in rows}


@pytest.fixture
def table():
    """Three appends of two jobs in versions 1 to 3, compacted in version 4."""
    made = builders.create(MemoryStore())
    for n in range(3):
        append(made, builders.events(2, first=2 * n), app_id=f"job {n % 2}", app_seq=n)
    run(made)
    return made


def compact(table, segments=None, **options):
    """Replace segments, by default all live ones, by one for each chunk; return the version."""
    inputs = table.refresh().segments() if segments is None else segments
    return table.commit(rewrite(table, inputs, **options))


def lose(table, version):
    """Delete the segments that a version added, as a vacuum may."""
    added = table.diff(version - 1, version).added
    table.store.delete([keys.key_of(segment) for segment in added])


def test_a_compacted_segment_comes_from_the_commits_of_its_inputs(table):
    (segment,) = table.snapshot().segments()
    found = table.blame(segment)
    assert found.schema == blame_columns.SEGMENT_COLUMNS
    written = [(1, "written", version, "append") for version in (3, 2, 1)]
    assert steps(found) == [(0, "rewritten", 4, "compact"), *written]
    top, *inputs = found.to_pylist()
    assert (top["segment"], top["rows"], top["chunk"]) == (segment.id, 6, DAY)
    assert sorted(top["inputs"]) == sorted(row["segment"] for row in inputs)
    assert [(r["app_id"], r["app_seq"]) for r in inputs] == [
        ("job 0", 2),
        ("job 1", 1),
        ("job 0", 0),
    ]
    times = {entry.version: entry.time for entry in table.history()}
    assert all(row["time"] == times[row["version"]] for row in found.to_pylist())
    for name in (segment.id, keys.key_of(segment), f"{table.uri}/{keys.key_of(segment)}"):
        assert table.blame(name) == found
    assert table.blame(chunk="1970-01") == found


def test_a_chunk_has_the_lineage_of_each_of_its_segments_once(table):
    append(table, builders.events(1, first=9))
    append(table, builders.events(1, day=5))
    assert steps(table.blame(chunk=DAY))[:2] == [
        (0, "written", 6, "append"),
        (0, "rewritten", 4, "compact"),
    ]
    assert steps(table.blame(chunk="1970-01-06")) == [(0, "written", 7, "append")]
    assert [step[2] for step in steps(table.blame(chunk=DAY, version=2))] == [2, 1]
    assert table.blame(chunk="1971").num_rows == 0


def test_a_restored_segment_comes_from_the_version_that_was_restored(table):
    table.restore(2)
    (newest, other, *before) = steps(table.blame(chunk=DAY))
    assert {newest, other} == {(0, "restored", 6, "restore")}
    assert before == [(1, "written", 2, "append"), (1, "written", 1, "append")]


def test_a_change_of_granularity_is_a_rewrite_of_the_chunks_below(table):
    append(table, builders.events(2, day=1, days=2, first=20))
    append(table, builders.events(2, day=40, first=30))
    table.set_granularity("month")
    first_days = [one for one in table.snapshot().segments() if one.chunk < "1970-02"]
    compact(table, first_days, granularity="month")
    found = table.blame(chunk="1970-01").to_pylist()
    assert [(row["depth"], row["chunk"]) for row in found][:2] == [
        (0, "1970-01"),
        (1, "1970-01-02"),
    ]
    assert {row["depth"] for row in found} == {0, 1, 2}
    assert "1970-02-10" not in {row["chunk"] for row in found}


def test_a_merged_segment_names_the_log_that_wrote_it(tmp_path):
    table = builders.create(LocalStore(str(tmp_path)))
    append(table, builders.events(2))
    branch = table.branch("fix")
    append(branch, builders.events(2, first=2))
    append(table, builders.events(2, first=4))
    version = table.merge("fix").head
    newest = table.blame(chunk=DAY).to_pylist()[0]
    assert (newest["kind"], newest["version"], newest["operation"]) == ("merged", version, "merge")
    assert newest["origin"] == branch.uri
    assert newest["origin_version"] == branch.refresh().version
    assert steps(branch.blame(chunk=DAY))[-1] == (0, "written", 1, "append")
    assert by_name(table.blame(where="true"), "_version")["row 2"] == (version,)


def test_rows_have_the_commit_that_wrote_them_also_after_a_compaction(table):
    found = table.blame(where="value >= 0.5 AND value < 2.5")
    assert found.column_names == [*builders.SCHEMA.names, *blame_columns.ROW_COLUMNS.names]
    assert by_name(found, "_version", "_versions", "_app_id", "_app_seq", "_operation") == {
        "row 1": (1, [1], "job 0", 0, "append"),
        "row 2": (2, [2], "job 1", 1, "append"),
        "row 3": (2, [2], "job 1", 1, "append"),
        "row 4": (3, [3], "job 0", 2, "append"),
    }
    rows = scan(table, where="value >= 0.5 AND value < 2.5").to_table()
    assert found.select(rows.column_names) == rows
    assert blame(table, where="true", limit=3).num_rows == 3
    empty = table.blame(where="value > 100")
    assert (empty.num_rows, empty.schema) == (0, found.schema)


def test_where_inputs_are_gone_all_commits_that_remain_possible_are_named(table):
    lose(table, 1)
    found = by_name(table.blame(where="true"), "_version", "_versions", "_app_id", "_operation")
    assert found["row 2"] == (None, [1, 2], None, "append")
    assert found["row 0"] == (1, [1], "job 0", "append")
    lose(table, 3)
    found = by_name(table.blame(where="true"), "_version", "_versions", "_app_id", "_app_seq")
    assert found["row 0"] == (None, [1, 3], "job 0", None)
    assert found["row 2"] == (None, [1, 2, 3], None, None)


def test_a_segment_between_that_is_still_stored_narrows_what_is_possible(table):
    append(table, builders.events(2, first=6))
    compact(table)
    lose(table, 1)
    lose(table, 2)
    found = by_name(table.blame(where="true"), "_version", "_versions")
    assert found["row 0"] == (None, [1, 2])
    assert found["row 7"] == (6, [6])  # the first compaction is stored, and lacks it
    lose(table, 4)
    assert by_name(table.blame(where="true"), "_versions")["row 7"] == ([1, 2, 6],)


def test_statistics_show_which_inputs_lack_a_row_even_if_they_are_gone(table):
    lose(table, 1)
    lose(table, 3)
    found = table.blame(where="value >= 2")
    assert by_name(found, "_version", "_versions") == {"row 4": (3, [3]), "row 5": (3, [3])}


def test_equal_rows_of_two_commits_are_not_told_apart():
    table = builders.create(MemoryStore())
    for _ in range(2):
        append(table, builders.events(1))
    assert table.blame(where="true").column("_version").to_pylist() == [1, 2]
    compact(table)
    found = table.blame(where="true")
    assert found.column("_version").to_pylist() == [None, None]
    assert found.column("_versions").to_pylist() == [[1, 2], [1, 2]]


def test_updates_wrote_the_rows_that_they_changed_and_deletes_none(table):
    update(table, {"value": "value + 100"}, where="name = 'row 3'")
    delete(table, where="name = 'row 2'")
    overwrite(table, builders.events(1, first=5), where="name = 'row 5'")
    compact(table)
    found = by_name(table.blame(where="true"), "_version", "_operation")
    assert found == {
        "row 0": (1, "append"),
        "row 1": (1, "append"),
        "row 3": (6, "update"),
        "row 4": (3, "append"),
        "row 5": (8, "overwrite"),
    }


def test_columns_that_changed_since_do_not_hide_who_wrote_a_row(table):
    table.add_columns([pa.field("more", pa.int64())], {"more": 7})
    table.rename_column("value", "amount")
    append(
        table,
        pa.table(
            [*builders.events(1, first=9).columns, [8]], ["at", "name", "amount", "more"]
        ).cast(table.refresh().schema),
    )
    run(table)
    found = by_name(table.blame(where="amount < 5 AND more > 6"), "_version", "more")
    assert found["row 5"] == (3, 7)
    assert found["row 9"] == (8, 8)


@pytest.fixture
def keyed():
    """A key that versions 1 to 3 wrote, one that version 4 deleted, and version 5 merges all."""
    made = builders.create(MemoryStore(), key=["name"], buckets=2, granularity="all")
    for n in range(3):
        upsert(made, builders.events(2, first=n), app_id="job", app_seq=n)
    delete(made, where="name = 'row 0'")
    return made


def stored(found):
    return [(r["_op"], r["_version"], r["_kind"], r["_live"]) for r in found.to_pylist()]


def test_a_key_has_each_of_its_stored_rows_newest_first(keyed):
    found = keyed.blame(key="row 1")
    more = (*blame_columns.ROW_COLUMNS.names, *blame_columns.KEY_COLUMNS.names)
    assert found.column_names == [*builders.SCHEMA.names, *more]
    assert stored(found) == [("upsert", 2, "log", True), ("upsert", 1, "log", True)]
    assert [(r["_app_id"], r["_app_seq"]) for r in found.to_pylist()] == [("job", 1), ("job", 0)]
    assert stored(keyed.blame(key={"name": "row 0"})) == [
        ("delete", 4, "log", True),
        ("upsert", 1, "log", True),
    ]
    assert stored(keyed.blame(key="row 0", version=1)) == [("upsert", 1, "log", True)]
    assert keyed.blame(key="nobody").num_rows == 0


def test_a_key_that_merges_took_in_has_what_vacuum_has_kept(keyed):
    run(keyed)
    assert stored(keyed.blame(key="row 1")) == [
        ("upsert", 2, "base", True),
        ("upsert", 2, "log", False),
        ("upsert", 1, "log", False),
    ]
    assert stored(keyed.blame(key="row 0")) == [
        ("delete", 4, "log", False),
        ("upsert", 1, "log", False),
    ]
    lose(keyed, 2)
    found = keyed.blame(key="row 1").to_pylist()
    assert [(row["_version"], row["_versions"]) for row in found] == [(None, [1, 2]), (1, [1])]


def test_rows_of_a_keyed_table_have_the_newest_commit_that_wrote_them(keyed):
    expected = {"row 1": (2,), "row 2": (3,), "row 3": (3,)}
    assert by_name(keyed.blame(where="true"), "_version") == expected
    upsert(keyed, builders.events(1, first=2))
    run(keyed)
    found = by_name(keyed.blame(where="true"), "_version", "_versions", "_segment")
    assert {name: row[0] for name, row in found.items()} == {"row 1": 2, "row 2": 5, "row 3": 3}
    assert found["row 2"][1] == [2, 3, 5]
    live = {segment.id for segment in keyed.snapshot().segments()}
    assert {row[2] for row in found.values()} <= live


def test_a_merged_sum_comes_from_all_commits_of_its_key():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.int64())])
    properties = {"merge": "aggregate", "merge.value": "sum"}
    table = builders.create(schema=schema, time_column=None, key=["id"], properties=properties)
    for value in (5, 7):
        upsert(table, [{"id": 1, "value": value}])
    run(table)
    (row,) = table.blame(where="true").to_pylist()
    assert (row["value"], row["_version"], row["_versions"]) == (12, 2, [1, 2])
    assert table.blame(key="1") == table.blame(key=1)
    lose(table, 1)
    (row,) = table.blame(where="true").to_pylist()
    assert (row["value"], row["_version"], row["_versions"]) == (12, None, [1, 2])


def test_a_copy_that_begins_later_shows_what_it_has():
    table = builders.create(MemoryStore())
    for n in range(2):
        append(table, builders.events(2, first=2 * n))
    compact(table)
    copies = []
    for _ in range(2):
        table.write_keyframe()
        copy = MemoryStore()
        follow(table, Table(copy), start="keyframe")
        copies.append(Table.open(copy.uri, store=copy))
        append(table, builders.events(2, first=9))
    (row,) = copies[0].blame(chunk=DAY).to_pylist()
    assert (row["kind"], row["version"], len(row["inputs"])) == ("rewritten", 3, 2)
    found = copies[0].blame(where="name = 'row 1'").to_pylist()[0]
    assert (found["_versions"], found["_operation"]) == ([3], "replace")
    newest, older = copies[1].blame(chunk=DAY).to_pylist()
    assert (newest["kind"], newest["version"]) == ("written", 4)
    assert (older["kind"], older["version"], older["operation"]) == (None, 3, None)


class GetsNoted(MemoryStore):
    """A store that notes the keys that are read."""

    def __init__(self):
        super().__init__()
        self.read = []

    def get(self, key, **span):
        self.read.append(key)
        return super().get(key, **span)


def test_each_commit_is_read_once_and_no_other_ones():
    store = GetsNoted()
    made = builders.create(store, granularity="day")
    for n in range(6):
        append(made, builders.events(2, first=2 * n))
        append(made, builders.events(1, day=9))
    compact(made, [one for one in made.snapshot().segments() if one.chunk == DAY])
    table = builders.reopen(store)
    store.read.clear()
    table.blame(chunk=DAY)
    # First the look for a newer version. The inputs are found at the version before the rewrite.
    commits = [13, 12, *range(11, 0, -2)]
    assert sorted(store.read[2:]) == sorted(map(keys.commit_key, commits))
    store.read.clear()
    table.blame(where="name = 'row 5'")
    data = [key for key in store.read if not key.startswith("_log/")]
    assert len(set(data)) == 2  # the live segment, and the only input that may have the row


def test_wrong_questions_are_refused(table):
    for wrong, message in (
        ({}, "give one of"),
        ({"chunk": DAY, "where": "true"}, "chunk and where"),
        ({"segment": "f" * 32}, "is not live at version"),
        ({"segment": 7}, "by its id, its key or its URI"),
        ({"chunk": "yesterday"}, "not a time chunk"),
        ({"key": 7}, "has no key"),
        ({"where": "nothing = 1"}, "nothing"),
    ):
        with pytest.raises(InvalidInput, match=message):
            table.blame(**wrong)
    with pytest.raises(VersionNotFound):
        table.blame(chunk=DAY, version=99)
    keyed = builders.create(MemoryStore(), key=["name", "at"], granularity="all")
    for key in ("row 0", {"name": "row 0"}, {"name": None, "at": 1}, {"name": "a", "at": "x"}):
        with pytest.raises(InvalidInput, match="key"):
            keyed.blame(key=key)
