"""Tables whose columns change: every version reads back, in Python and by field id elsewhere."""

import threading
from operator import itemgetter

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from support.builders import SCHEMA, START_MS, create, events, reopen
from support.evolution_chain import Chain, play_columns

from eventlog import Table, compaction, errors, replication
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model.columns.defaults import decode_default
from eventlog.readers import changes, count, scan
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, upsert


@pytest.mark.parametrize(("seed", "keyed"), [(0, False), (1, True)])
def test_a_chain_of_changes_reads_back_at_every_version(seed, keyed):
    assert play_columns(seed, keyed=keyed, steps=20).counts["versions"]


@pytest.mark.long
@settings(max_examples=20)
@given(st.integers(4, 2**40), st.booleans())
def test_fresh_chains_of_changes_read_back_at_every_version(seed, keyed):
    play_columns(seed, keyed=keyed)


_DUCK = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
         "float32": "FLOAT", "float64": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN",
         "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "date": "DATE",
         "binary": "BLOB"}  # fmt: skip


def literal(column):
    """The default of a column as DuckDB's SQL."""
    if column.initial is UNSET:
        return "NULL"
    value = decode_default(column, column.initial).as_py()
    if isinstance(value, bytes):
        digits = "".join(f"\\x{byte:02x}" for byte in value)
        return f"'{digits}'::BLOB"
    return f"'{value}'"


@pytest.mark.parametrize("seed", [0, 1])
def test_another_engine_reads_the_segments_by_field_id(seed, tmp_path):
    made = Chain(seed, LocalStore(tmp_path))
    for act in (made.append, made.add, made.widen, made.rename, made.append, made.add) * 3:
        act()
        made.note()
    for version in (max(made.at_version) // 2, max(made.at_version)):
        _, expected, row = made.at_version[version]
        snapshot = made.table.snapshot(version)
        segments = snapshot.segments()
        plain = [c for c in snapshot.stored_schema.columns if isinstance(c.type, str)]
        listed = ", ".join(
            f"{c.id}: {{name: '{c.name}', type: '{_DUCK.get(c.type, c.type)}', "
            f"default_value: {literal(c)}}}"
            for c in plain
        )
        paths = [str(tmp_path / keys.key_of(segment)) for segment in segments]
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            names = ", ".join(f'"{c.name}"' for c in plain)
            query = f"SELECT {names} FROM read_parquet({paths}, schema = MAP {{{listed}}})"
            found = connection.sql(query).to_arrow_table()
        key = itemgetter(row)
        shown = [{c.name: row[c.name] for c in plain} for row in expected]
        assert sorted(found.to_pylist(), key=key) == sorted(shown, key=key)


# --- two at once ----------------------------------------------------------------------------------


def pair():
    table = create()
    append(table, events(3))
    return table, reopen(table.store)


def test_changes_at_once_that_commute_both_count():
    table, other = pair()
    other.session.head()
    table.rename_column("name", "title")
    other.add_columns([pa.field("more", pa.int8())], {"more": 5})
    assert other.session.head().schema.names == [
        *[n if n != "name" else "title" for n in SCHEMA.names],
        "more",
    ]
    assert scan(other, ["more"]).to_table().to_pylist() == [{"more": 5}] * 3


def test_changes_that_exclude_each_other_are_a_conflict_that_names_both(monkeypatch):
    table, other = pair()
    head = other.session.head()
    table.rename_column("name", "title")
    # The other writer has not seen it when it decides.
    refresh = other.session.refresh
    monkeypatch.setattr(other.session, "refresh", lambda: (monkeypatch.undo(), head)[1])
    with pytest.raises(errors.CommitConflict) as conflict:
        other.rename_column("name", "label")
    assert "'name' is renamed to 'label'; but meanwhile column 'name' is renamed to 'title'" in str(
        conflict.value
    )
    assert refresh().schema.names == table.session.head().schema.names


def test_many_writers_add_columns_at_once():
    table = create()
    made = []

    def add(number):
        mine = reopen(table.store, seed=number)
        made.extend(mine.add_columns([pa.field(f"c{number}_{n}", pa.int8())]) for n in range(3))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*made}) == 12
    assert len(table.refresh().schema.names) == len(SCHEMA.names) + 12


def test_an_append_of_before_a_change_lands_after_it():
    table, other = pair()
    head = other.session.head()
    table.drop_columns(["name"])
    table.add_columns([pa.field("name", pa.int64())], {"name": 7})
    other.session.adopt(head.state)
    append(other, events(2, first=10))
    assert scan(table, ["name"]).to_table().to_pylist() == [{"name": 7}] * 5


def test_a_restore_of_before_a_drop_brings_rows_back_and_not_the_column():
    table, _ = pair()
    first = table.session.head().version
    overwrite(table, events(0), start="1970-01-01", end="1970-01-02")
    table.drop_columns(["value"])
    table.restore(first)
    assert scan(table).to_table().schema.names == ["at", "name"]
    assert scan(table).count() == 3


# --- writers --------------------------------------------------------------------------------------


def test_a_wider_writer_is_refused_or_evolves_the_table():
    table, _ = pair()
    wide = events(2, first=5).append_column("more", pa.array([1, 2**40]))
    with pytest.raises(errors.InvalidInput, match="unknown columns: 'more'"):
        append(table, wide)
    before = table.session.head().version
    assert append(table, wide, evolve=True) == before + 2
    assert append(table, wide, evolve=True) == before + 3
    assert count(table, "more = 1099511627776") == 2
    assert append(table, events(1), evolve=True) == before + 4


def test_types_are_widened_for_a_writer_that_evolves_the_table():
    schema = pa.schema([*SCHEMA, ("n", pa.int8()), ("s", pa.struct([("a", pa.int8())]))])
    table = create(schema=schema)
    narrow = events(1).append_column("n", pa.array([1], pa.int8()))
    append(table, narrow.append_column("s", pa.array([{"a": 1}], schema.field("s").type)))
    wide = events(1).append_column("n", pa.array([1000], pa.int16()))
    append(table, wide.append_column("s", pa.array([{"a": 1, "b": "x"}])), evolve=True)
    found = scan(table, ["n", "s"]).to_table()
    assert found.schema.field("n").type == pa.int16()
    assert sorted(found.to_pylist(), key=lambda row: row["n"]) == [
        {"n": 1, "s": {"a": 1, "b": None}},
        {"n": 1000, "s": {"a": 1, "b": "x"}},
    ]
    with pytest.raises(errors.InvalidInput, match="cast it first"):
        append(table, wide.set_column(3, "n", pa.array(["x"])), evolve=True)


@pytest.mark.parametrize("merge", ["last", "first"])
def test_keyed_tables_evolve(merge):
    schema = pa.schema(
        [("id", pa.int8()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string()), ("x", pa.int8())]
    )
    table = create(schema=schema, key="id", order_by="at", granularity="all", buckets=2,
                   properties={"merge": merge})  # fmt: skip
    first = pa.table({"id": [1, 2, 3], "at": [1] * 3, "v": ["v1", "v2", "v3"], "x": [1, 2, 3]})
    upsert(table, first.cast(schema))
    table.rename_column("id", "key")
    table.rename_column("at", "when")
    table.widen_column("key", pa.int64())
    table.drop_columns(["x"])
    table.add_columns([pa.field("x", pa.string())], {"x": {"initial": "old", "write": "new"}})
    later = pa.table({"key": [2, 2**40], "when": [5, 5], "v": ["w", "w"]})
    later = later.cast(pa.schema([*list(table.session.head().schema)[:3]]))
    with pytest.raises(errors.InvalidInput, match="column 'x' is missing"):
        upsert(table, later)
    upsert(table, later, missing="null")
    expected = {1: ("v1", "old"), 2: ("w", "new"), 3: ("v3", "old"), 2**40: ("w", "new")}
    if merge == "first":
        expected[2] = ("v2", "old")
    shown = lambda: {r["key"]: (r["v"], r["x"]) for r in scan(table).to_table().to_pylist()}
    assert shown() == expected
    assert scan(table, where="key = 2").count() == 1
    for name, role in (("key", "in the key"), ("when", "the time column")):
        with pytest.raises(errors.InvalidInput, match=f"'{name}' cannot be dropped: it is {role}"):
            table.drop_columns([name])
    assert compaction.run(table, policy=compaction.Policy(target_bytes=2**20)).count("done")
    assert shown() == expected
    assert fsck(table, keys=True, checksums=True).findings == ()
    assert changes(table, 1).to_table().num_rows >= 1


def test_statistics_are_those_of_columns_by_id():
    table = create(properties={"stats_columns": "name"})
    append(table, events(3))
    table.rename_column("name", "title")
    assert table.session.head().properties["stats_columns"] == "title"
    table.add_columns([pa.field("name", pa.string())])
    append(table, events(3, first=5).rename_columns(["at", "title", *SCHEMA.names[2:]]))
    known = {stat.column for s in table.session.head().segments() for stat in s.stats}
    assert known == {1, 2}
    table.drop_columns(["title"])
    assert table.session.head().properties["stats_columns"] == ""


# --- other logs -----------------------------------------------------------------------------------


def copies():
    table = create()
    append(table, events(3))
    copy = Table(MemoryStore(), ManualClock(START_MS, 5))
    replication.follow(table, copy, clock=copy.clock)
    return table, copy


def merged(one, two):
    for source, target in ((one, two), (two, one), (one, two)):
        replication.merge(source, target, clock=target.clock)


def test_merges_bring_the_changes_of_both_logs():
    one, two = copies()
    one.rename_column("name", "title")
    one.add_columns([pa.field("more", pa.int8())], {"more": 5})
    append(one, events(1, first=20).rename_columns(["at", "title", *SCHEMA.names[2:]]))
    two.add_columns([pa.field("more", pa.int8())], {"more": 5})
    two.add_columns([pa.field("other", pa.int8())])
    append(two, events(1, first=30))
    merged(one, two)
    assert {*one.session.head().schema.names} == {*two.session.head().schema.names}
    assert "title" in two.session.head().schema.names
    rows = [
        sorted(scan(t, ["title", "more"]).to_table().to_pylist(), key=lambda r: r["title"])
        for t in (one, two)
    ]
    assert rows[0] == rows[1]
    assert [row["more"] for row in rows[0]].count(5) >= 3
    two.drop_columns(["more"])
    one.widen_column("other", pa.int64())
    merged(one, two)
    for table in (one, two):
        assert "more" not in table.session.head().schema.names
        assert table.session.head().schema.field("other").type == pa.int64()
        assert fsck(table).findings == ()


def test_a_column_stays_that_one_log_added_and_another_had_from_a_third():
    one, two = copies()
    three = Table(MemoryStore(), ManualClock(START_MS, 6))
    replication.follow(one, three, clock=three.clock)
    for table, name in ((one, "x"), (two, "y"), (three, "x")):
        table.add_columns([pa.field(name, pa.int8())])
        append(table, events(1, first=9))
    for source, target in ((two, one), (two, three), (one, three), (three, one)):
        replication.merge(source, target, clock=target.clock)
    for table in (one, three):
        assert table.session.head().schema.names == ["at", "name", "value", "x", "y"]


def test_rows_are_merged_where_their_column_was_dropped():
    one, two = copies()
    two.drop_columns(["value"])
    append(one, events(2, first=10))
    merged(one, two)
    for table in (one, two):
        assert scan(table).to_table().schema.names == ["at", "name"]
        assert scan(table).count() == 5


@pytest.mark.parametrize("drops", ["one", "two"])
def test_rows_are_deleted_in_one_log_and_a_column_is_dropped_in_one(drops):
    one, two = copies()
    {"one": one, "two": two}[drops].drop_columns(["value"])
    delete(one, where="name = 'row 1'")
    append(one, events(1, first=10) if drops == "two" else events(1, first=10).drop("value"))
    merged(one, two)
    for table in (one, two):
        names = scan(table, ["name"]).to_table()["name"].to_pylist()
        assert sorted(names) == ["row 0", "row 10", "row 2"]
        assert table.session.head().schema.names == ["at", "name"]
        assert fsck(table, checksums=True).findings == ()


@pytest.mark.parametrize("first", ["drop", "delete"])
def test_a_restore_brings_deleted_rows_back_after_a_drop(first):
    table = create()
    append(table, events(3))
    version = table.session.head().version
    steps = {
        "drop": lambda: table.drop_columns(["value"]),
        "delete": lambda: delete(table, where="name = 'row 1'"),
    }
    steps[first]()
    steps[{"drop": "delete", "delete": "drop"}[first]]()
    table.restore(version)
    assert scan(table).to_table().schema.names == ["at", "name"]
    assert scan(table).count() == 3


def test_renames_of_one_column_in_two_logs_are_a_conflict_that_names_both():
    one, two = copies()
    one.rename_column("name", "a")
    two.rename_column("name", "b")
    with pytest.raises(errors.CommitConflict, match=r"renamed to 'a'; but meanwhile .* to 'b'"):
        replication.merge(one, two, clock=two.clock)
    two.rename_column("b", "a")
    merged(one, two)
    assert one.session.head().schema == two.session.head().schema


def test_a_branch_that_evolved_is_published():
    table = create()
    append(table, events(3))
    branch = table.branch("audit")
    branch.rename_column("name", "title")
    branch.drop_columns([SCHEMA.names[2]])
    append(table, events(1, first=9))
    table.merge("audit")
    assert table.session.head().schema.names == ["at", "title"]
    assert scan(table).count() == 4


# --- time, words ----------------------------------------------------------------------------------


def test_a_version_is_read_under_its_own_schema_and_a_difference_has_words():
    table, _ = pair()
    first = table.session.head().version
    table.rename_column("name", "title")
    table.drop_columns([SCHEMA.names[2]])
    assert scan(table, version=first).to_table().schema.names == SCHEMA.names
    assert scan(table, version=first, where="name = 'row 1'").count() == 1
    words = table.diff(first, table.session.head().version).columns
    assert words == (
        f"column '{SCHEMA.names[2]}' is dropped",
        "column 'name' is renamed to 'title'",
    )
    table.restore(first)
    assert scan(table).to_table().schema.names == ["at", "title"]


def test_a_state_is_that_of_its_commit_whatever_schema_it_has():
    table, _ = pair()
    table.rename_column("name", "title")
    stored = table.session.head().stored_schema
    assert msgspec.json.decode(msgspec.json.encode(stored), type=type(stored)) == stored
    assert reopen(table.store).session.head().stored_schema == stored
