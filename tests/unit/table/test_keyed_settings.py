"""A keyed table keeps its key and its merge rule, whatever is set later."""

import datetime as dt

import pyarrow as pa
import pytest
from support.builders import commit, create, replaced

from eventlog import Table
from eventlog.errors import CommitConflict, Corrupt, InvalidInput
from eventlog.keyed.rule import stored_rule
from eventlog.model.actions import PropertyChange, SetProperties, SetSchema
from eventlog.model.entries import MergeFunction
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import delete, upsert

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("seen", pa.int64()),
        pa.field("note", pa.string()),
    ]
)


def keyed(**options):
    options = {"key": "id", "order_by": "at", "granularity": "all"} | options
    return create(schema=SCHEMA, **options)


def test_a_column_of_merges_cannot_be_added():
    table = keyed()
    with pytest.raises(InvalidInput, match="'_op': rename"):
        table.add_columns(table.session.head().schema.append(pa.field("_op", pa.string())))
    assert (
        create().add_columns(create().session.head().schema.append(pa.field("_op", pa.string())))
        == 1
    )


def test_the_granularity_of_a_keyed_table_is_refused_with_a_way_on():
    table = keyed()
    with pytest.raises(InvalidInput, match=r"fixed at its creation, here 'all'.*Table\.create"):
        table.set_granularity("day")
    assert table.set_granularity("all") == table.refresh().version == 0


@pytest.mark.parametrize("name", ["id", "at"])
def test_the_key_and_its_order_stay_required(name):
    table = keyed()
    with pytest.raises(InvalidInput, match=r"must stay required|'at' .* is the time column"):
        table.relax_columns([name])
    stored = table.session.head().stored_schema
    relaxed = [replaced(c, nullable=True) if c.name == name else c for c in stored.columns]
    successor = replaced(stored, id=stored.id + 1, columns=tuple(relaxed))
    with pytest.raises(CommitConflict, match="must stay required"):
        commit(table, SetSchema(successor))


def test_the_merge_rule_never_changes():
    table = keyed(properties={"merge": "first"})
    with pytest.raises(InvalidInput, match="part of the merge rule"):
        table.set_properties({"merge": "last"})
    commit(table, SetProperties((PropertyChange("merge", None, "last"),)))  # which means nothing
    assert table.session.head().merge_rule.kind == "first"
    assert table.session.head().properties["merge"] == "first"
    assert table.set_properties({"bucket_bytes": "2048"}) == 2


def test_without_a_key_properties_named_merge_mean_nothing():
    table = create()
    commit(table, SetProperties((PropertyChange("merge.at", None, "x"),)))
    assert scan(table).count() == 0
    with pytest.raises(InvalidInput, match="is for keyed tables"):
        create(properties={"merge": "last"})


@pytest.mark.parametrize("function", ["sum", "count"])
def test_what_orders_rows_is_not_summed(function):
    with pytest.raises(InvalidInput, match="orders the rows of a key"):
        keyed(order_by="seen", properties={"merge": "aggregate", "merge.seen": function})
    assert keyed(order_by="seen", properties={"merge": "aggregate", "merge.seen": "max"})


@pytest.mark.parametrize(
    "keyed_part",
    [{"key": (99,)}, {"key": ()}, {"key": (1, 1)}, {"buckets": 0}, {"key": (4,)}],
)
def test_a_key_that_does_not_fit_the_table_makes_its_rows_unreadable(keyed_part):
    head = keyed().session.head()
    stored = head.state.stored_layout
    layout = replaced(stored, keyed=replaced(stored.keyed, **keyed_part))
    with pytest.raises(Corrupt, match="do not fit"):
        stored_rule(layout, head.stored_schema)
    assert stored_rule(stored, head.stored_schema).key == ("id",)


def test_a_merge_rule_that_names_a_column_twice_makes_its_rows_unreadable():
    head = keyed(properties={"merge": "aggregate", "merge.note": "max"}).session.head()
    stored = head.state.stored_layout
    function = stored.keyed.merge.functions[0]
    assert function == MergeFunction(4, "max")
    merge = replaced(stored.keyed.merge, functions=(function, MergeFunction(4, "min")))
    with pytest.raises(Corrupt, match="names a column twice"):
        stored_rule(replaced(stored, keyed=replaced(stored.keyed, merge=merge)), head.stored_schema)


@pytest.mark.filterwarnings("ignore:a key is unique in its day")
@pytest.mark.parametrize("merge", ["last", "first"])
def test_keys_are_deleted_where_the_event_time_orders_them_and_says_their_chunk(merge):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
    t = Table.create(
        "", schema, time_column="at", granularity="day", key="id", order_by="at",
        properties={"merge": merge}, store=MemoryStore(),
    )  # fmt: skip
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = pa.Table.from_pylist([{"id": i, "at": at, "v": "a"} for i in (1, 2)], schema=schema)
    upsert(t, rows)
    delete(t, keys=rows.slice(0, 1).select(["id", "at"]))
    assert scan(t, ["id"]).to_table().column("id").to_pylist() == [2]
    delete(t, where="id = 2")
    assert scan(t).count() == 0
