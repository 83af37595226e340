"""Deletes, updates, overwrites and merges of rows in tables without a key: what they do alone."""

import datetime as dt
import decimal
import random
import re
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.builders import DAY_US, SCHEMA, check_sound, create, events, live, reopen
from support.in_process_spark import update_by_tasks

from eventlog import errors, limits
from eventlog.compaction import Policy, perform, plan
from eventlog.format import deletion_vectors, keys
from eventlog.readers import count, scan
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, merge, overwrite, update

EMPTY = SCHEMA.empty_table()
VERBS = {
    "delete": lambda t, where="value >= 1", **more: delete(t, where=where, **more),
    "update": lambda t, where="value >= 1", **more: update(t, {"value": "-1"}, where, **more),
    "merge": lambda t, where=None, **more: merge(t, source((2, -1.0)), "name", **more),
}
WHERE = {name: verb for name, verb in VERBS.items() if name != "merge"}
WHERE["overwrite"] = lambda t, where="value >= 1", **more: overwrite(t, EMPTY, where=where, **more)
REFUSED = errors.InvalidInput


@pytest.fixture
def table():
    """Rows 0 to 5, of value 0 to 2.5, on two days; each day has one segment."""
    t = create()
    append(t, events(6, days=2))
    return t


def source(*pairs, columns=("at", "name", "value")):
    rows = [
        {"at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "name": f"row {n}", "value": value}
        for n, value in pairs
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA).select(list(columns))


def held(table, version=None):
    """The values by the number of the row, which is there once."""
    rows = scan(table, ["name", "value"], version=version).to_table().to_pylist()
    values = {int(row["name"].removeprefix("row ")): row["value"] for row in rows}
    assert len(values) == len(rows) == count(table, version=version)
    return values


def numbered(*numbers):
    return {n: n / 2 for n in numbers}


@contextmanager
def refused(table, match):
    """What is refused commits nothing, and the handle works afterwards."""
    version, rows = table.refresh().version, held(table)
    with pytest.raises(REFUSED, match=match):
        yield
    assert table.refresh().version == version
    assert held(check_sound(table.store)) == rows


# What the verbs do.


def test_a_delete_by_a_predicate_leaves_the_other_rows(table):
    done = delete(table, where="name in ('row 0', 'row 3')")
    assert held(check_sound(table.store)) == numbered(1, 2, 4, 5)
    assert (done, done.deleted, done.added, done.dropped, done.changed) == (2, 2, 0, 0, 2)
    assert held(table, version=1) == numbered(*range(6))


def test_an_update_computes_from_the_rows_as_they_were(table):
    done = update(table, {"value": "value * 10", "name": "concat(name, '0')"}, "value > 1")
    assert held(check_sound(table.store)) == numbered(0, 1, 2) | {30: 15.0, 40: 20.0, 50: 25.0}
    assert (done.deleted, done.added, done.dropped, done.changed) == (3, 3, 0, 2)


def test_an_update_without_a_predicate_is_of_all_rows(table):
    done = update(table, {"value": 7.0})
    assert set(held(check_sound(table.store)).values()) == {7.0}
    assert (done.deleted, done.dropped, done.changed) == (6, 2, 0)


def test_new_values_may_be_null(table):
    update(table, {"value": None}, "name = 'row 2'")
    assert held(check_sound(table.store)) == numbered(*range(6)) | {2: None}
    assert delete(table, where="value is null").deleted == 1
    assert held(table) == numbered(0, 1, 3, 4, 5)


def test_an_overwrite_by_a_predicate_replaces_the_rows_that_it_selects(table):
    done = overwrite(table, source((7, 1.5), (8, 9.0)), where="value >= 1.5")
    assert held(check_sound(table.store)) == numbered(0, 1, 2) | {7: 1.5, 8: 9.0}
    assert (done.deleted, done.added) == (3, 2)


def test_an_overwrite_of_no_row_adds_its_rows(table):
    overwrite(table, source((7, 90.0)), where="value > 50")
    assert held(check_sound(table.store)) == numbered(*range(6)) | {7: 90.0}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, numbered(*range(6)) | {2: 20.0, 9: 90.0}),
        ({"when_not_matched": "ignore"}, numbered(*range(6)) | {2: 20.0}),
        ({"when_matched": "ignore"}, numbered(*range(6)) | {9: 90.0}),
        ({"when_matched": "ignore", "when_not_matched": "ignore"}, numbered(*range(6))),
        ({"when_matched": "delete"}, numbered(0, 1, 3, 4, 5) | {9: 90.0}),
        (
            {"when_matched": {"value": "value + source.value"}},
            numbered(*range(6)) | {2: 21.0, 9: 90.0},
        ),
        ({"when_matched": {"value": 5.5}}, numbered(*range(6)) | {2: 5.5, 9: 90.0}),
        ({"when_not_matched_by_source": "delete"}, {2: 20.0, 9: 90.0}),
        ({"when_matched": "ignore", "when_not_matched_by_source": "delete"}, {2: 1.0, 9: 90.0}),
        ({"when_matched": "delete", "when_not_matched_by_source": "delete"}, {9: 90.0}),
    ],
)  # fmt: skip
def test_a_merge_does_what_is_asked_with_rows_that_match_and_others(table, options, expected):
    before = held(table)
    rows = source((2, 20.0), (9, 90.0))
    tried = merge(table, rows, "name", dry_run=True, **options)
    assert held(table) == before
    done = merge(table, rows, "name", **options)
    assert held(check_sound(table.store)) == expected
    told = ("deleted", "added", "dropped", "changed")
    assert [getattr(tried, n) for n in told] == [getattr(done, n) for n in told]


def test_a_merge_by_several_columns_needs_all_of_them_equal(table):
    rows = pa.concat_tables([events(1, first=2), source((3, 33.0))])
    merge(table, rows, ["name", "at"], when_matched="delete")
    names = scan(table, ["name"]).to_table().column("name").to_pylist()
    assert sorted(names) == [f"row {n}" for n in (0, 1, 3, 3, 4, 5)]


def test_a_merge_keeps_the_columns_that_the_source_lacks(table):
    at = scan(table, where="name = 'row 2'").to_table().column("at").to_pylist()
    rows = source((2, 20.0), columns=("name", "value"))
    merge(table, rows, "name", when_not_matched="ignore")
    assert scan(table, where="value = 20").to_table().column("at").to_pylist() == at


def test_rows_that_a_merge_adds_have_the_defaults_of_columns_that_the_source_lacks(table):
    table.add_columns([pa.field("unit", pa.string()), pa.field("z", pa.int8())], {"unit": "mm"})
    merge(table, source((9, 4.5)), "name")
    rows = scan(table, ["unit", "z"], where="name = 'row 9'").to_table().to_pylist()
    assert rows == [{"unit": "mm", "z": None}]


def test_a_merge_that_gives_no_new_value_changes_no_row(table):
    rows = source((2, 20.0), columns=["name"])
    assert merge(table, rows, "name", when_not_matched="ignore") == 1
    assert table.refresh().version == 1


def test_rows_whose_match_is_null_match_none(table):
    update(table, {"name": None}, "value = 1")
    rows = pa.table({"at": [0, 1], "name": [None, "row 3"], "value": [9.0, 9.0]}, schema=SCHEMA)
    done = merge(table, rows, "name", when_matched="delete")
    assert (done.deleted, done.added) == (1, 1)
    values = scan(table, ["value"], "name is null").to_table().column("value").to_pylist()
    assert sorted(values) == [1.0, 9.0]
    done = merge(
        table, rows, "name", when_matched="ignore", when_not_matched="ignore",
        when_not_matched_by_source="delete",
    )  # fmt: skip
    assert done.deleted == 6


@pytest.mark.parametrize("first", [0, 7])
def test_a_source_without_rows(table, first):
    if first:
        delete(table, where="value >= 0")
    version = table.session.head().version
    assert merge(table, EMPTY, "name") == version
    assert table.refresh().version == version
    merge(table, EMPTY, "name", when_not_matched_by_source="delete")
    assert held(check_sound(table.store)) == {}


def test_a_source_of_more_rows_than_are_looked_up_one_by_one(table):
    rows = source(*((n, float(n)) for n in range(4, 2000)))
    done = merge(table, rows, "name")
    assert (done.deleted, done.added) == (2, 1996)
    assert held(table) == numbered(*range(4)) | {n: float(n) for n in range(4, 2000)}


ON = {
    "bool": [True, False],
    "int8": [-128, 127],
    "int64": [-(2**63), 2**63 - 1],
    "string": ["", "größe\n'"],
    "binary": [b"", b"\x00\xff"],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1970, 1, 2, tzinfo=dt.UTC), dt.datetime(2020, 5, 5, tzinfo=dt.UTC)],
    "decimal": [decimal.Decimal("-0.01"), decimal.Decimal("99999999.99")],
}
TYPES = {
    "bool": pa.bool_(), "int8": pa.int8(), "int64": pa.int64(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "decimal": pa.decimal128(10, 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", ON)
@pytest.mark.parametrize("few", [True, False])
def test_values_of_each_type_match(kind, few, monkeypatch):
    if not few:
        monkeypatch.setattr("eventlog.writers.changing.joining._FEW", 0)
    schema = pa.schema([("at", SCHEMA.field("at").type), ("k", TYPES[kind]), ("v", pa.int64())])
    t = create(schema=schema)
    append(t, pa.table([[0, DAY_US, 2], [*ON[kind], None], [0, 1, 2]], schema=schema))
    rows = pa.table([[5, 5], [ON[kind][1], None], [9, 9]], schema=schema)
    done = merge(t, rows, "k", when_not_matched="ignore")
    assert (done.deleted, done.added) == (1, 1)
    assert sorted(scan(t, ["v"]).to_table().column("v").to_pylist()) == [0, 2, 9]


# What statistics decide is not read.


@contextmanager
def requests(table):
    """Yield a cold handle's counts, and the keys of the objects that it gets."""
    counting, got = CountingStore(table.store), []
    other = reopen(counting, seed=77)
    other.refresh()
    get = counting.get
    counting.get = lambda key, **part: (got.append(key), get(key, **part))[1]
    with counting.measure() as counts:
        yield other, counts, got


def data(got):
    return [key for key in got if key.startswith("data/")]


def test_a_delete_that_statistics_decide_reads_no_segment(table):
    append(table, events(4, first=6, days=2))
    with requests(table) as (t, counts, got):
        done = delete(t, where="at >= timestamp '1970-01-02'")
    assert (done.deleted, done.dropped, done.changed) == (5, 2, 0)
    assert data(got) == []
    assert counts.put == 1
    assert counts.total <= 3  # the head, perhaps its key frame, and the commit
    assert held(check_sound(table.store)) == numbered(0, 2, 4, 6, 8)


def test_a_delete_reads_only_segments_that_statistics_leave_open(table):
    append(table, events(2, first=6, days=2))
    with requests(table) as (t, counts, got):
        done = delete(t, where="value > 2.4 and value < 2.6")
    assert (done.deleted, done.dropped, done.changed) == (1, 0, 1)
    (day_1,) = [s for s in live(table.session.head()) if s.chunk == "1970-01-02" and s.rows == 3]
    assert set(data(got)) == {keys.key_of(day_1)}
    assert (counts.put, done.bytes) == (1, 0)  # the vector stands in the commit


@pytest.mark.parametrize(("most", "objects"), [(256, 0), (0, 1)])
def test_a_second_delete_reads_the_vectors_once_for_all_segments(table, monkeypatch, most, objects):
    monkeypatch.setattr(deletion_vectors, "_MOST_BYTES", most)
    delete(table, where="name in ('row 0', 'row 3')")
    with requests(table) as (t, _, got):
        done = delete(t, where="name in ('row 2', 'row 5')")
    assert done.changed == 2
    assert len([key for key in data(got) if "/vectors/" in key]) == objects
    assert (done.bytes > 0) == bool(objects)
    assert held(check_sound(table.store)) == numbered(1, 4)


def test_a_merge_of_many_rows_reads_no_segment_outside_of_their_bounds():
    t = create()
    for day in range(1, 4):
        append(t, events(100, day=day, first=100 * day))
    with requests(t) as (other, _, got):
        done = merge(other, source(*((n, -1.0) for n in range(210, 280))), "name")
    assert done.updated == 70
    (day_2,) = [s for s in live(t.session.head()) if s.chunk == "1970-01-03"]
    assert data(got) == [keys.key_of(day_2)]


@pytest.mark.parametrize("verb", ["update", "merge"])
def test_rows_that_get_new_values_are_read_once(table, verb):
    with requests(table) as (t, _, got):
        VERBS[verb](t)
    assert sorted(data(got)) == sorted(map(keys.key_of, live(table.session.head())))


@pytest.mark.parametrize("verb", ["update", "merge"])
def test_rows_that_do_not_fit_into_memory_are_read_again(verb, monkeypatch):
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 1)
    t, names = create(), [f"row {n}" + 30_000 * "x" for n in range(16)]
    columns = [[n // 4 * DAY_US for n in range(16)], names, [n % 4 / 2 for n in range(16)]]
    append(t, pa.table(columns, schema=SCHEMA))
    first, *others = sorted(map(keys.key_of, live(t.session.head())))
    chosen = pa.table({"name": [name for n, name in enumerate(names) if n % 4]})
    with requests(t) as (other, _, got):
        new = {"value": "value + 10"}
        if verb == "update":
            done = update(other, new, "value > 0", memory_bytes=2**20)
        else:
            done = merge(
                other, chosen, "name", when_matched=new, when_not_matched="ignore",
                memory_bytes=2**20,
            )  # fmt: skip
    assert done.updated == 12
    found = scan(check_sound(t.store), ["name", "value"]).to_table().to_pylist()
    assert {row["name"]: row["value"] for row in found} == {
        name: n % 4 / 2 + (10 if n % 4 else 0) for n, name in enumerate(names)
    }
    assert len(found) == 16
    assert got.count(first) == 1
    assert all(got.count(key) > 1 for key in others)


def test_an_update_by_tasks_reads_and_stores_what_one_from_python_does():
    made = []
    for act in (update, update_by_tasks):
        t = create()
        append(t, events(6, days=2))
        with requests(t) as (other, counts, got):
            act(other, {"value": "value + 10"}, "name in ('row 1', 'row 2')")
        assert sorted(data(got)) == sorted(map(keys.key_of, live(t.session.head())))
        made.append((counts.put, held(check_sound(t.store))))
    assert made[0] == made[1]


def test_rows_that_do_not_fit_into_the_driver_are_read_again_by_tasks():
    t = create()
    for day in range(2):
        names = [f"row {n}" + 30_000 * "x" for n in range(4 * day, 4 * day + 4)]
        append(t, pa.table([[day * DAY_US] * 4, names, [0.0, 1.0, 1.0, 1.0]], schema=SCHEMA))
    with requests(t) as (other, _, got):
        done = update_by_tasks(other, {"value": "2.0"}, "value = 1", memory_bytes=2**20)
    assert done.updated == 6
    assert all(data(got).count(keys.key_of(segment)) > 1 for segment in live(t.session.head()))
    found = scan(check_sound(t.store), ["value"]).to_table()
    assert sorted(found["value"].to_pylist()) == [0.0] * 2 + [2.0] * 6


def test_other_columns_are_read_only_where_the_predicate_selects_rows(monkeypatch):
    monkeypatch.setattr(limits, "WHOLE_BYTES", 2000)
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 100)
    t, chance, sizes = create(), random.Random(7), []
    names = [chance.randbytes(100).hex() for _ in range(1000)]
    append(t, pa.table([[0] * 1000, names, [n / 2 for n in range(1000)]], schema=SCHEMA))
    (segment,) = live(t.session.head())
    with requests(t) as (other, _, got):
        get = other.store.get
        other.store.get = lambda key, **part: (body := get(key, **part), sizes.append(len(body)))[0]
        done = update(other, {"value": "-value"}, "value in (70, 70.5)")
    assert set(data(got)) == {keys.key_of(segment)}
    assert (done.updated, count(t, "value < 0")) == (2, 2)
    assert sum(sizes) < segment.bytes / 3


@pytest.mark.parametrize("verb", WHERE)
def test_nothing_is_committed_where_no_row_is_found(table, verb):
    with requests(table) as (t, counts, got):
        done = WHERE[verb](t, "value = 77")
    assert (done, done.deleted, done.changed) == (1, 0, 0)
    assert (counts.put, data(got)) == (0, [])
    assert table.refresh().version == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_table_without_rows(verb):
    t = create()
    done = VERBS[verb](t)
    assert done.deleted == 0
    assert held(check_sound(t.store)) == ({2: -1.0} if verb == "merge" else {})


def test_vectors_that_cover_all_rows_drop_the_segment(table):
    delete(table, where="name in ('row 0', 'row 2')")
    done = delete(table, where="name = 'row 4'")
    assert (done.deleted, done.dropped, done.changed) == (1, 1, 0)
    assert [s.chunk for s in live(check_sound(table.store).session.head())] == ["1970-01-02"]
    done = delete(table, where="true")
    assert (done.deleted, done.dropped) == (3, 1)
    assert check_sound(table.store).session.head().totals.segments == 0


def test_a_predicate_on_data_of_all_rows_of_a_segment_drops_it(table):
    done = delete(table, where="name in ('row 0', 'row 2', 'row 4', 'row 1')")
    assert (done.dropped, done.changed) == (1, 1)
    assert held(check_sound(table.store)) == numbered(3, 5)


def test_rows_whose_time_changes_move_to_other_chunks(table):
    update(table, {"at": "timestamp '1970-02-01'"}, "name in ('row 1', 'row 2')")
    assert held(check_sound(table.store)) == numbered(*range(6))
    assert {s.chunk: s.live_rows for s in live(table.session.head())} == {
        "1970-01-01": 2, "1970-01-02": 2, "1970-02-01": 2,
    }  # fmt: skip
    assert count(table, "at >= timestamp '1970-02-01'") == 2


@pytest.mark.parametrize("granularity", ["hour", "day", "all"])
def test_tables_with_an_order(granularity):
    t = create(order_by=["value"], granularity=granularity)
    append(t, events(40, days=2))
    update(t, {"value": "-value"}, "value < 5")
    delete(t, where="name in ('row 3', 'row 33')")
    merge(t, source((4, 100.0), (77, -3.0)), "name")
    expected = numbered(*range(40)) | {n: -n / 2 for n in range(10)} | {4: 100.0, 77: -3.0}
    expected = {n: value for n, value in expected.items() if n not in (3, 33)}
    assert held(check_sound(t.store)) == expected
    for task in plan(t, Policy(backoff_s=1)).tasks:
        outcome = perform(t, task, Policy(backoff_s=1))
        assert outcome.ok, outcome.error
    assert held(check_sound(t.store)) == expected
    assert "deleted" not in str(t.refresh().totals) or count(t) == len(expected)


def test_a_large_filter(table):
    names = ", ".join(f"'row {n}'" for n in range(3, 900))
    assert delete(table, where=f"name in ({names})").deleted == 3
    assert (
        delete(table, where=pc.field("name").isin([f"row {n}" for n in range(1, 3000)])).deleted
        == 2
    )
    assert held(check_sound(table.store)) == numbered(0)


def test_filters_of_pyarrow_are_taken(table):
    delete(table, where=pc.field("value") < 1)
    update(table, {"value": "9"}, pc.field("value") == 2)
    assert held(check_sound(table.store)) == numbered(2, 3, 5) | {4: 9.0}


def test_a_restore_brings_deleted_rows_back(table):
    update(table, {"value": "9"}, "value < 2")
    delete(table, where="value > 2")
    table.restore(1)
    assert held(check_sound(table.store)) == numbered(*range(6))
    assert delete(table, where="name = 'row 2'").deleted == 1
    assert held(check_sound(table.store)) == numbered(0, 1, 3, 4, 5)


# Input that is refused.


@pytest.mark.parametrize("verb", WHERE)
@pytest.mark.parametrize(
    ("where", "match"),
    [
        ("nothing = 1", "unknown column"),
        ("value >", "not one SQL expression"),
        ("name = 1", "cannot be compared"),
        ("value", "not a boolean"),
        ("", "exactly one SQL expression"),
        ("value > 1; drop", "not one SQL expression"),
        (7, "not a int"),
        (pc.field("nothing") == 1, "nothing"),
    ],
)
def test_wrong_predicates_are_refused(table, verb, where, match):
    with refused(table, match):
        WHERE[verb](table, where)


@pytest.mark.parametrize("verb", WHERE)
def test_a_predicate_that_fails_on_a_row_deletes_nothing(table, verb):
    with refused(table, "row|divi|zero"):
        WHERE[verb](table, pc.field("name").cast("int64") > 0)


def test_a_value_that_fails_on_some_rows_updates_none(table):
    append(table, events(2, first=6, day=9))
    with refused(table, r"fails for 2 of 3 rows.*value = 1\.0"):
        update(
            table, {"value": "1 / cast(value - 1 as bigint)"}, "name in ('row 2', 'row 3', 'row 0')"
        )


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "give the columns to set"),
        ({"value": "1", "VALUE": "2"}, "column 'value' is set twice"),
        ({"nothing": "1"}, "unknown column 'nothing'"),
        ({"value": "nothing + 1"}, "nothing"),
        ({"value": "name"}, "value|name"),
        ({"value": "now()"}, "NOW"),
        ({"value": b"x"}, "value"),
        ({"name": 7}, "name"),
        ({"at": None}, "at"),
        ([("value", 1)], "set must map names"),
        ("value", "set must map names"),
    ],
)
def test_wrong_values_are_refused(table, given, match):
    with refused(table, match):
        update(table, given)


@pytest.mark.parametrize("where", ["value > 1", None])
def test_a_required_column_is_not_set_to_null(where):
    schema = pa.schema(
        [SCHEMA.field("at"), pa.field("name", pa.string(), nullable=False), SCHEMA.field("value")]
    )
    t = create(schema=schema)
    append(t, events(6).cast(schema))
    with refused(t, "required"):
        update(t, {"name": None}, where)
    with refused(t, "must not be null, is null for 1 of"):
        update(t, {"name": "case when value = 1.5 then null else name end"}, where)
    rows = pa.table({"name": ["row 1"], "other": pa.nulls(1, pa.string())})
    with refused(t, "must not be null"):
        merge(t, rows, "name", when_matched={"name": "source.other"}, when_not_matched="ignore")


@pytest.mark.parametrize(
    ("rows", "options", "match"),
    [
        (source((2, 1.0), (3, 1.0), (2, 5.0)), {}, "several rows of the source match one.*row 2"),
        (source((2, 1.0), (2, 1.0)), {"when_matched": "delete"}, "several rows.*row 2"),
        (source((2, 1.0)), {"on": "nothing"}, "nothing"),
        (source((2, 1.0)), {"on": ["name", "nothing"]}, "nothing"),
        (source((2, 1.0)), {"on": []}, "give on"),
        (source((2, 1.0)), {"on": ["name", "name"]}, "given twice"),
        (source((2, 1.0)), {"on": "value"}, "of type double"),
        (source((2, 1.0), columns=("at", "value")), {}, "which the source lacks"),
        (source((2, 1.0), columns=("name", "value")), {}, "lacks column 'at'"),
        (source((2, 1.0)).append_column("more", [[1]]), {}, "no column 'more'"),
        (source((2, 1.0)), {"when_matched": "insert"}, "when_matched"),
        (source((2, 1.0)), {"when_not_matched": "update"}, "when_not_matched"),
        (source((2, 1.0)), {"when_not_matched_by_source": "update"}, "when_not_matched_by_source"),
        (source((2, 1.0)), {"when_matched": {}}, "give the columns"),
        (source((2, 1.0)), {"when_matched": {"value": "source.nothing"}}, "nothing"),
        (source((2, 1.0)), {"when_matched": {"value": "other.value"}}, "other"),
        (source((2, 1.0)).set_column(1, "name", [[5]]), {}, "name"),
        (source((2, 1.0)).set_column(2, "value", [["x"]]), {}, "value"),
        (source((2, 1.0)).set_column(0, "at", [pa.nulls(1, SCHEMA.field("at").type)]), {}, "at"),
        ("rows", {}, "is a path and no rows"),
    ],
)  # fmt: skip
def test_wrong_sources_are_refused(table, rows, options, match):
    with refused(table, match):
        merge(table, rows, **{"on": "name", **options})


@pytest.mark.hazard("W2")
def test_a_source_that_was_read_before_or_breaks_is_refused(table):
    reader = source((2, 1.0)).to_reader()
    merge(table, reader, "name")
    with refused(table, "read before"):
        merge(table, reader, "name")

    def broken():
        yield from source((3, 1.0)).to_batches()
        raise pa.ArrowInvalid("the network")

    with refused(table, "the network"):
        merge(table, pa.RecordBatchReader.from_batches(SCHEMA, broken()), "name")


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.float32()]
)
def test_a_merge_by_values_that_do_not_compare_is_refused(kind):
    schema = pa.schema([SCHEMA.field("at"), ("k", kind)])
    t = create(schema=schema)
    with refused_empty(t, "whose values are not compared"):
        merge(t, schema.empty_table(), "k")


@contextmanager
def refused_empty(table, match):
    with pytest.raises(REFUSED, match=match):
        yield
    assert table.refresh().version == 0


@pytest.mark.parametrize("given", [(9, 0.5), (9, None)])
def test_rows_of_an_overwrite_that_do_not_pass_the_predicate_are_refused(table, given):
    with refused(table, re.escape("1 of the new rows do not pass the predicate")):
        overwrite(table, source((8, 2.0), given), where="value >= 1")


def test_an_overwrite_by_a_predicate_checks_columns_as_others_do(table):
    with refused(table, "'at'|'name'"):
        overwrite(table, source((8, 2.0), columns=("at", "value")), where="value >= 1")
    with refused(table, "either a range of time or where"):
        overwrite(table, EMPTY, where="value > 1", start="1970-01-01")
    with refused(table, "more"):
        overwrite(table, source((8, 2.0)).append_column("more", [[1]]), where="value >= 1")


@pytest.mark.parametrize("verb", [*VERBS, "overwrite"])
def test_verbs_on_positions_are_not_for_keyed_tables(verb):
    t = create(key="name", granularity="all", buckets=2)
    if verb == "delete":
        with refused_empty(t, "tables without a key"):
            delete(t, where="value > 1", dry_run=True)
        return
    with refused_empty(t, "keyed table"):
        {**VERBS, **WHERE}[verb](t)


@pytest.mark.parametrize("verb", WHERE)
def test_an_unknown_isolation_is_refused(table, verb):
    with refused(table, "isolation"):
        WHERE[verb](table, isolation="dirty")


# Units of work, and trials.


@pytest.mark.hazard("I2")
@pytest.mark.parametrize("verb", [*VERBS, "overwrite"])
def test_a_unit_of_work_is_done_once(table, verb):
    act = {**VERBS, **WHERE}[verb]
    done = act(table, app_id="job", app_seq=3)
    rows = held(table)
    assert (done, done.deleted > 0) == (2, True)
    append(table, source((70, 70.0)))
    for seq in (3, 2):
        again = act(reopen(table.store), app_id="job", app_seq=seq)
        assert (again, again.deleted, again.added) == (2, 0, 0)
    assert held(check_sound(table.store)) == rows | {70: 70.0}
    with refused(table, "app_id and app_seq"):
        act(table, app_id="job")


@pytest.mark.parametrize("verb", WHERE)
def test_a_unit_of_work_that_finds_no_row_is_done(table, verb):
    act = WHERE[verb]
    assert act(table, "value = 77", app_id="job", app_seq=1) == 2
    append(table, source((70, 77.0)))
    assert act(table, "value = 77", app_id="job", app_seq=1) == 2
    assert held(check_sound(table.store))[70] == 77.0


@pytest.mark.parametrize("verb", VERBS)
def test_a_trial_tells_what_would_be_done_and_does_nothing(table, verb):
    append(table, source((70, 70.0)))
    with requests(table) as (t, counts, _):
        tried = VERBS[verb](t, dry_run=True)
    assert counts.put == 0
    assert table.refresh().version == tried == 2
    done = VERBS[verb](table)
    told = ("deleted", "added", "dropped", "changed")
    assert [getattr(tried, n) for n in told] == [getattr(done, n) for n in told]
    assert done.deleted
