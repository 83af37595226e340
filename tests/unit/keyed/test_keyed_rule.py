"""The rules of keyed tables: what is accepted, and every refusal with its reason."""

import pyarrow as pa
import pytest
from support.builders import create

from eventlog import errors
from eventlog.keyed.rule import keyed_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("n", pa.int32()),
        ("total", pa.int64()),
        ("text", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
        ("half", pa.float64()),
        ("raw", pa.binary()),
        ("many", pa.list_(pa.int64())),
        ("day", pa.date32()),
    ]
)


def keyed(schema=SCHEMA, properties=None, **options):
    options = {"key": "id", "granularity": "all", **options}
    return create(schema=schema, properties=properties, **options)


def rule(table):
    return table.session.head().merge_rule


def refused(match, *args, **options):
    with pytest.raises(errors.InvalidInput, match=match):
        keyed(*args, **options)


def test_a_key_is_all_that_is_needed():
    table = keyed()
    found = rule(table)
    assert (found.key, found.buckets, found.order, found.kind) == (("id",), 16, None, "last")
    assert "keyed" in table.session.head().header.features
    assert not table.session.head().schema.field("id").nullable
    assert rule(create()) is None
    assert keyed_of(create().session.head().layout) is None


def test_the_granularity_of_a_keyed_table_is_all_unless_another_is_given():
    table = create(schema=SCHEMA, key=["id"], order_by="n")
    assert table.session.head().layout.granularity == "all"
    assert not table.session.head().schema.field("n").nullable


@pytest.mark.parametrize("name", ["id", "at", "n", "text", "price", "raw", "day"])
def test_columns_that_can_be_a_key(name):
    assert rule(keyed(key=name)).key == (name,)


@pytest.mark.parametrize("name", ["flag", "half", "many"])
def test_columns_that_cannot_be_a_key(name):
    refused(f"column '{name}' has type", key=name)


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("no column 'none'", {"key": "none"}),
        ("different columns", {"key": ["id", "id"]}),
        ("1 to 16", {"key": [f"c{n}" for n in range(17)]}),
        ("buckets must be", {"buckets": 0}),
        ("from 1 to 4096", {"buckets": 4097}),
        ("buckets", {"buckets": 1.5}),
        ("`key` too", {"key": (), "buckets": 4}),
        ("one column", {"order_by": ["n", "at"]}),
        ("is in the key", {"order_by": "id"}),
        ("cannot order rows", {"order_by": "half"}),
        ("cannot order rows", {"order_by": "flag"}),
        ("cannot order rows", {"order_by": "raw"}),
        ("must be one of last", {"properties": {"merge": "newest"}}),
        ("needs merge=aggregate", {"properties": {"merge.total": "sum"}}),
        ("beside the key", {"properties": {"merge": "aggregate", "merge.id": "max"}}),
        ("beside the key", {"properties": {"merge": "aggregate", "merge.none": "max"}}),
        ("must be one of sum", {"properties": {"merge": "aggregate", "merge.total": "median"}}),
        ("sums are of", {"properties": {"merge": "aggregate", "merge.half": "sum"}}),
        ("sums are of", {"properties": {"merge": "aggregate", "merge.text": "sum"}}),
        ("needs type int64", {"properties": {"merge": "aggregate", "merge.n": "count"}}),
        ("has no max", {"properties": {"merge": "aggregate", "merge.flag": "max"}}),
        ("has no min", {"properties": {"merge": "aggregate", "merge.many": "min"}}),
        ("needs merge=partial", {"properties": {"merge.group.n": "text"}}),
        ("no column 'none'", {"properties": {"merge": "partial", "merge.group.none": "text"}}),
        ("no column 'none'", {"properties": {"merge": "partial", "merge.group.n": "none"}}),
        ("no column 'id'", {"properties": {"merge": "partial", "merge.group.n": "id"}}),
        ("cannot order rows", {"properties": {"merge": "partial", "merge.group.half": "text"}}),
        ("is in the key", {"properties": {"merge": "partial", "merge.group.id": "text"}}),
        (
            "in two groups",
            {
                "properties": {
                    "merge": "partial",
                    "merge.group.n": "text",
                    "merge.group.total": "text",
                }
            },
        ),
        (
            "already orders whole rows",
            {"order_by": "n", "properties": {"merge": "partial", "merge.group.n": "text"}},
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(match, options):
    refused(match, **options)


def test_names_that_log_segments_use_are_refused():
    refused("rename it", SCHEMA.append(pa.field("_op", pa.string())))
    create(schema=SCHEMA.append(pa.field("_op", pa.string())))
    refused("Rename it", SCHEMA.append(pa.field("_version", pa.string())))


@pytest.mark.parametrize("kind", ["partial", "aggregate"])
def test_a_rule_that_fills_columns_needs_them_nullable(kind):
    required = pa.field("must", pa.int64(), nullable=False)
    refused("must be nullable", SCHEMA.append(required), {"merge": kind})
    keyed(SCHEMA.append(required))
    keyed(SCHEMA.append(required), {"merge": kind}, key=["id", "must"])
    keyed(SCHEMA.append(required), {"merge": kind}, order_by="must")


def test_a_table_without_a_key_has_no_merge_rule():
    for properties in ({"merge": "last"}, {"merge.total": "sum"}, {"merge.group.n": "text"}):
        with pytest.raises(errors.InvalidInput, match="for keyed tables"):
            create(schema=SCHEMA, properties=properties)


def test_the_rule_never_changes():
    table = keyed(properties={"merge": "partial", "merge.group.n": "text"})
    for changed in (
        {"merge": "last"},
        {"merge": None},
        {"merge.group.n": None},
        {"merge.n": "sum"},
    ):
        with pytest.raises(errors.InvalidInput):
            table.set_properties(changed)
    with pytest.raises(errors.InvalidInput):
        create(schema=SCHEMA).set_properties({"merge": "last"})
    table.set_properties({"bucket_bytes": "4096", "user.note": "merge"})
    assert rule(table).orders == {"n": "n", "text": "n"}


def test_an_aggregate_has_a_function_for_every_column():
    found = rule(keyed(properties={"merge": "aggregate", "merge.total": "count"}, order_by="n"))
    assert found.functions["total"] == "count"
    assert {found.functions[name] for name in SCHEMA.names if name not in ("id", "total")} == {
        "last"
    }


def test_deletes_have_an_order_under_last_and_partial_only():
    assert rule(keyed(order_by="n")).ordered_deletes
    assert rule(keyed(order_by="n", properties={"merge": "partial"})).ordered_deletes
    assert not rule(keyed()).ordered_deletes
    assert not rule(keyed(order_by="n", properties={"merge": "first"})).ordered_deletes
    grouped = {"merge": "partial", "merge.group.total": "text"}
    assert not rule(keyed(order_by="n", properties=grouped)).ordered_deletes


def test_columns_that_a_merge_needs():
    grouped = rule(
        keyed(order_by="at", properties={"merge": "partial", "merge.group.n": "text, price"})
    )
    assert set(grouped.needed(["text"])) == {"id", "at", "text", "n"}
    assert set(grouped.needed([])) == {"id", "at"}
    assert grouped.order_of("price") == "n"
    assert grouped.order_of("total") == "at"
