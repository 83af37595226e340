"""Upserts and deletes on their way in: what is refused, and how they become log segments."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.builders import DAY_US, SCHEMA, create, events, live

from eventlog import errors
from eventlog.format import keys
from eventlog.format.buckets import buckets_of
from eventlog.keyed import log_rows
from eventlog.keyed.rule import MergeRule
from eventlog.readers import count, scan
from eventlog.writers import append, delete, overwrite, upsert

OP = pa.field("_op", pa.string())
WITH_OP = pa.schema([*SCHEMA, OP])


def keyed(**options):
    options = {"key": "name", "granularity": "all", "buckets": 4} | options
    return create(**options)


def rows(*given, schema=WITH_OP):
    """Rows from (name, value, op); an op of None is an upsert."""
    made = [{"at": 0, "name": n, "value": v, "_op": op} for n, v, op in given]
    loose = pa.schema([f.with_nullable(True) for f in schema])
    return pa.Table.from_pylist(made, schema=loose)


def held(table, version=None):
    found = scan(table, ["name", "value"], version=version).to_table().to_pylist()
    return {row["name"]: row["value"] for row in found}


def stored(table):
    return {
        s.id: pq.read_table(BytesIO(table.store.get(keys.key_of(s))))
        for s in live(table.session.head())
    }


def refused(table, match, data, verb=upsert):
    with pytest.raises(errors.InvalidInput, match=match):
        verb(table, data)
    assert table.refresh().version == 0
    return True


def test_an_op_of_null_is_an_upsert():
    table = keyed()
    upsert(table, rows(("a", 1.0, None), ("b", 2.0, "u"), ("c", 3.0, "d"), ("a", 4.0, None)))
    assert held(table) == {"a": 4.0, "b": 2.0}
    assert count(table) == 2


def test_rows_of_one_call_count_in_their_order():
    table = keyed()
    upsert(table, rows(("a", 1.0, "u"), ("a", None, "d"), ("b", None, "d"), ("b", 2.0, "u")))
    assert held(table) == {"b": 2.0}


def test_other_operations_are_refused_by_name():
    assert refused(keyed(), "neither 'u' nor 'd'.*'insert'", rows(("a", 1.0, "insert")))
    assert refused(keyed(), "1 values are neither", rows(("a", 1.0, "u"), ("b", 1.0, "")))
    assert refused(create(), "unknown columns: '_op'", rows(("a", 1.0, "u")), append)


def test_a_key_is_never_null():
    assert refused(keyed(), "column 'name': 1 values are null", rows((None, 1.0, "d")))
    assert refused(keyed(), "column 'name'", rows(("a", 1.0, "u"), (None, 1.0, "u")))


def test_a_delete_needs_no_other_values_and_an_upsert_does():
    schema = pa.schema([*SCHEMA, pa.field("must", pa.int64(), nullable=False)])
    table = keyed(schema=schema)
    given = pa.table({"name": ["a", "b"], "at": [0, 0], "must": [None, 1], "_op": ["d", "u"]})
    given = given.set_column(1, "at", given.column("at").cast(SCHEMA.field("at").type))
    must = given.column("must").cast(pa.int64())
    upsert(table, given.set_column(2, "must", must), missing="null")
    assert scan(table, ["name"]).to_table().column("name").to_pylist() == ["b"]
    wrong = given.set_column(3, "_op", pa.array(["u", "u"]))
    with pytest.raises(errors.InvalidInput, match="column 'must': 1 values are null"):
        upsert(table, wrong.set_column(2, "must", must), missing="null")


def test_an_aggregate_has_no_deletes():
    table = keyed(properties={"merge": "aggregate"})
    assert refused(table, "merge=aggregate does not have", rows(("a", 1.0, "d")))
    with pytest.raises(errors.InvalidInput):
        delete(table, keys=pa.table({"name": ["a"]}))


@pytest.mark.parametrize(
    "properties", [{"merge": "first"}, {"merge": "partial", "merge.group.value": "n"}]
)
def test_where_deletes_have_no_order_they_cannot_say_one(properties):
    schema = pa.schema(
        [*SCHEMA.remove(2), ("value", pa.int64()), ("n", pa.int64()), ("o", pa.int32())]
    )
    table = keyed(schema=schema, order_by="o", properties=properties)
    given = pa.table({"at": pa.array([0], SCHEMA.field("at").type), "name": ["a"], "_op": ["d"],
                      "o": pa.array([3], pa.int32())})  # fmt: skip
    assert refused(table, "orders nothing", given)
    upsert(table, given.drop_columns(["o"]).append_column("o", pa.nulls(1, pa.int32())))


def test_a_segment_has_an_op_only_where_there_are_deletes():
    table = keyed()
    upsert(table, events(3))
    upsert(table, rows(("a", 1.0, "u"), ("b", 1.0, None)))
    assert {tuple(t.column_names) for t in stored(table).values()} == {tuple(SCHEMA.names)}
    delete(table, keys=pa.table({"name": ["a"]}))
    assert [t.column_names for t in stored(table).values()].count(WITH_OP.names) == 1


def test_a_small_upsert_is_one_segment_sorted_by_bucket_and_key():
    table = keyed(buckets=16)
    upsert(table, events(50))
    (found,) = live(table.session.head())
    (held_rows,) = stored(table).values()
    names = held_rows.column("name").to_pylist()
    buckets = buckets_of(held_rows, ["name"], 16).to_pylist()
    assert list(zip(buckets, names, strict=True)) == sorted(zip(buckets, names, strict=True))
    assert (found.slice.first, found.slice.last) == (min(buckets), max(buckets))
    assert found.rows == 50


def test_a_large_upsert_has_a_segment_for_each_bucket():
    table = keyed(buckets=16, properties={"bucket_bytes": "1024"})
    upsert(table, events(200))
    found = live(table.session.head())
    assert sorted(s.slice.first for s in found) == list(range(16))
    assert all(s.slice.first == s.slice.last for s in found)
    for segment in found:
        here = stored(table)[segment.id]
        assert set(buckets_of(here, ["name"], 16).to_pylist()) == {segment.slice.first}
    assert sum(s.rows for s in found) == 200
    assert len(held(table)) == 200


def test_what_later_rows_of_the_call_replace_is_not_written():
    table = keyed()
    upsert(table, rows(*(("a", float(n), "u") for n in range(9))))
    assert [s.rows for s in live(table.session.head())] == [1]
    assert held(table) == {"a": 8.0}


def test_rows_of_one_chunk_are_merged_apart_from_those_of_others():
    table = keyed(granularity="day")
    twice = pa.concat_tables([events(2), events(2, day=1)])
    upsert(table, twice)
    assert count(table) == 4
    delete(
        table, keys=pa.table({"name": ["row 0"], "at": pa.array([DAY_US], SCHEMA.field("at").type)})
    )
    assert sorted(scan(table, ["name"]).to_table().column("name").to_pylist()) == [
        "row 0", "row 1", "row 1",
    ]  # fmt: skip
    with pytest.raises(errors.InvalidInput, match="keys to delete have the columns name, at"):
        delete(table, keys=pa.table({"name": ["row 0"]}))


def test_an_append_and_an_overwrite_of_a_keyed_table_know_deletes():
    table = keyed()
    append(table, rows(("a", 1.0, "u"), ("b", 1.0, "u")))
    append(table, rows(("a", 1.0, "d")))
    assert held(table) == {"b": 1.0}
    overwrite(table, rows(("c", 1.0, "u"), ("c", 2.0, "u"), ("d", 1.0, "d")))
    assert held(table) == {"c": 2.0}
    assert held(table, 2) == {"b": 1.0}


def test_keys_to_delete_have_no_other_columns():
    table = keyed()
    upsert(table, events(2))
    with pytest.raises(errors.InvalidInput, match="keys to delete have"):
        delete(table, keys=events(1))
    with pytest.raises(errors.InvalidInput, match="either keys or where"):
        delete(table)
    with pytest.raises(errors.InvalidInput, match="either keys or where"):
        delete(table, keys=pa.table({"name": ["a"]}), where="name = 'a'")
    for verb in (upsert, lambda t, data: delete(t, keys=data)):
        with pytest.raises(errors.InvalidInput, match="has no key"):
            verb(create(), pa.table({"name": ["a"]}))
    assert delete(table, where="name = 'none'") == table.session.head().version


def test_a_count_is_one_for_a_row_and_what_it_says_for_several():
    schema = pa.schema([*SCHEMA, ("n", pa.int64())])
    table = keyed(schema=schema, properties={"merge": "aggregate", "merge.n": "count"})
    for given in (events(2), events(1), events(1).append_column("n", pa.array([5]))):
        upsert(table, given)
    found = scan(table, ["name", "n"]).to_table().to_pylist()
    assert {row["name"]: row["n"] for row in found} == {"row 0": 7, "row 1": 1}


def test_a_sum_that_does_not_fit_is_refused_at_the_write():
    schema = pa.schema([*SCHEMA, ("n", pa.int8())])
    table = keyed(schema=schema, properties={"merge": "aggregate", "merge.n": "sum"})
    twice = pa.concat_tables([events(1), events(1)]).append_column(
        "n", pa.array([100, 100], pa.int8())
    )
    assert refused(table, "does not fit int8", twice)


def test_many_key_columns_keep_the_order_of_rows():
    # More columns than Arrow sorts in its quick way.
    names = [f"c{n}" for n in range(16)]
    schema = pa.schema([*((n, pa.int64()) for n in names), ("v", pa.int64())])
    rule = MergeRule(tuple(names), 4, None, "last", {}, {})
    table = pa.table([*([[n % 3 for n in range(300)]] * 16), list(range(300))], schema=schema)
    found, buckets = log_rows.in_key_order(table, rule)
    by_key = {}
    for row in found.to_pylist():
        by_key.setdefault(row["c0"], []).append(row["v"])
    assert by_key == {k: list(range(k, 300, 3)) for k in range(3)}
    assert buckets.to_pylist() == sorted(buckets.to_pylist())
