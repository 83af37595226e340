"""Which schema may follow another one; changes by name; two changes as one; defaults; words."""

import datetime as dt
import math
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from support.builders import create

from eventlog import errors
from eventlog.keyed.rule import successor_problem
from eventlog.model.columns import defaults, edits, evolution
from eventlog.model.columns.ids import added_id, all_ids
from eventlog.model.columns.uniting import united_schema
from eventlog.model.columns.words import schema_changes
from eventlog.model.entries import Column, Layout, Schema
from eventlog.model.schema import from_arrow

INNER = pa.struct([("x", pa.int8()), ("y", pa.float32())])
BASE = from_arrow(
    pa.schema(
        [
            pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
            ("n", pa.int16()),
            ("price", pa.decimal128(9, 2)),
            ("word", pa.string()),
            ("place", pa.struct([("a", pa.int8()), ("in", INNER)])),
            ("many", pa.list_(INNER)),
            ("named", pa.map_(pa.string(), INNER)),
        ]
    )
)
LAYOUT = Layout(time_column=1, granularity="day", order_by=(2,))
change = msgspec.structs.replace


def of(which, **fields):
    """The successor in which one column has other fields."""
    new = [change(c, **fields) if c.name == which else c for c in BASE.columns]
    return evolution.successor(BASE, new)


def typed(which, old, new):
    """The successor in which the type of a column has another text."""
    (column,) = (c for c in BASE.columns if c.name == which)
    text = msgspec.json.encode(column.type).decode()
    assert old in text
    return of(which, type=msgspec.json.decode(text.replace(old, new, 1)))


def without(which, **fields):
    made = evolution.successor(BASE, [c for c in BASE.columns if c.name != which])
    return change(made, **fields)


def with_new(**fields):
    new = change(Column(added_id(0, "new", ()), "new", "int8", True), **fields)
    return change(BASE, id=2, columns=(*BASE.columns, new), by_id=True)


BAD = {
    "a retired id is lacking": without("word", retired=msgspec.UNSET),
    "a retired id of a field is lacking": without("place", retired=(5,)),
    "retired ids are out of order": without("place", retired=(8, 5, 9, 10, 11)),
    "names are trusted after a rename": change(of("n", name="m"), by_id=msgspec.UNSET),
    "names are trusted after a drop": without("word", by_id=msgspec.UNSET),
    "types are trusted after a widening": change(of("n", type="int32"), by_id=msgspec.UNSET),
    "absence is trusted beside a default": change(with_new(initial=1), by_id=msgspec.UNSET),
    "a narrower integer": of("n", type="int8"),
    "an integer becomes a float": of("n", type="float64"),
    "a narrower decimal": of("price", type="decimal(8,2)"),
    "a decimal of another scale": of("price", type="decimal(20,3)"),
    "text becomes bytes": of("word", type="binary"),
    "text becomes a list": of("word", type={"list": {"id": 99, "type": "string"}}),
    "a struct becomes text": of("place", type="string"),
    "a field gets narrower": typed("place", '"float32"', '"int8"'),
    "another key of a map": typed("named", '"string"', '"binary"'),
    "elements are exchanged": typed("many", '"id":12', '"id":99'),
    "required": of("n", nullable=False),
    "another value of rows that exist": of("n", initial=5),
    "a required column": with_new(nullable=False),
    "a default out of range": with_new(initial=128),
    "a default of another type": with_new(write="x"),
    "a default of a list": with_new(
        type={"list": {"id": added_id(added_id(0, "new", ()), "element", ()), "type": "int8"}},
        initial=1,
    ),
    "no time column": without("at"),
    "no order column": without("n"),
    "a field with the id of a column": typed("place", '"id":8', '"id":2'),
}  # fmt: skip
x_to_column = Column(8, "moved", "int8", True)
BAD["a field becomes a column"] = change(
    typed("place", '{"id":8,"name":"a","type":"int8"},', ""),
    columns=(*typed("place", '{"id":8,"name":"a","type":"int8"},', "").columns, x_to_column),
    retired=msgspec.UNSET,
)


@pytest.mark.parametrize("what", BAD)
def test_the_fold_refuses_changes_that_segments_do_not_survive(what):
    assert evolution.check_successor(BASE, BAD[what]) or successor_problem(LAYOUT, BAD[what])


def test_the_keys_of_a_map_are_not_even_widened():
    kind = lambda key: {"map": [{"id": 3, "type": key}, {"id": 4, "type": "int8"}]}
    old = Schema(1, (Column(1, "at", "timestamp"), Column(2, "m", kind("int8"))))
    new = evolution.successor(old, (old.columns[0], Column(2, "m", kind("int16"))))
    assert "keys of a map stay" in evolution.check_successor(old, new)


def names(schema):
    return [column.name for column in schema.columns]


GOOD = {
    "renamed": lambda s: edits.rename_field(s, "n", "number"),
    "field renamed": lambda s: edits.rename_field(s, ["named", "value", "x"], "z"),
    "widened": lambda s: edits.widen_field(s, "n", pa.int64()),
    "decimal widened": lambda s: edits.widen_field(s, "price", pa.decimal128(38, 2)),
    "field widened": lambda s: edits.widen_field(s, ["many", "element", "y"], pa.float64()),
    "dropped": lambda s: edits.drop_fields(s, ["word", ["place", "in", "x"], "price"]),
    "added": lambda s: edits.add_fields(s, [pa.field("new", INNER)]),
    "field added": lambda s: edits.add_fields(s, [pa.field("new", INNER)], within=["place", "in"]),
    "reordered": lambda s: edits.reorder_fields(s, ["word", "n"]),
    "fields reordered": lambda s: edits.reorder_fields(s, ["in"], within="place"),
    "relaxed": lambda s: edits.relax_fields(s, ["at"]),
    "with defaults": lambda s: edits.add_fields(s, [pa.field("new", pa.int8())], {"new": 5}),
}


@pytest.mark.parametrize("name", GOOD)
def test_each_change_is_a_successor_and_has_words(name):
    new = GOOD[name](BASE)
    assert evolution.check_successor(BASE, new) is None
    assert successor_problem(LAYOUT, new) is None
    assert schema_changes(BASE, new)
    plain = {"added", "reordered", "relaxed"}
    assert (new.by_id is True) == (name not in plain)


@pytest.mark.parametrize("one", GOOD)
@pytest.mark.parametrize("other", GOOD)
def test_two_changes_at_once_both_count_in_either_order(one, other):
    if one == other:
        assert united_schema(BASE, GOOD[one](BASE), GOOD[one](BASE)) == GOOD[one](BASE)
        return
    ours, theirs = GOOD[one](BASE), GOOD[other](BASE)
    both = united_schema(BASE, ours, theirs)
    clash = {"dropped", "decimal widened"}, {"added", "with defaults"}
    if {one, other} in clash:  # one drops what the other changes, or both add one name
        assert "; but meanwhile " in both
        return
    assert evolution.check_successor(theirs, both) is None
    turned = united_schema(BASE, theirs, ours)
    assert {*all_ids(both)} == {*all_ids(turned)}
    assert {c.id: (c.name, c.type) for c in both.columns}.keys() == {c.id for c in turned.columns}


def test_columns_of_two_types_are_no_union():
    ours, theirs = (edits.add_fields(BASE, [pa.field("z", k)]) for k in (pa.int8(), pa.string()))
    assert "type int8 is added; but meanwhile column 'z' of type string" in united_schema(
        BASE, ours, theirs
    )
    for one, two in ((pa.int8(), pa.int16()), (pa.int16(), pa.int8())):
        ours, theirs = (edits.add_fields(BASE, [pa.field("z", k)]) for k in (one, two))
        assert isinstance(united_schema(BASE, ours, theirs), str)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda s: edits.rename_field(s, "n", "a"), lambda s: edits.rename_field(s, "n", "b")),
        (lambda s: edits.rename_field(s, "n", "a"), lambda s: edits.rename_field(s, "word", "a")),
        (lambda s: edits.drop_fields(s, ["word"]), lambda s: edits.rename_field(s, "word", "a")),
        (lambda s: edits.rename_field(s, "word", "a"), lambda s: edits.drop_fields(s, ["word"])),
        (
            lambda s: edits.drop_fields(s, [["place", "a"]]),
            lambda s: edits.widen_field(s, ["place", "a"], pa.int64()),
        ),
        (
            lambda s: edits.reorder_fields(s, ["word", "n"]),
            lambda s: edits.reorder_fields(s, ["n", "word", "at"]),
        ),
    ],
)
def test_changes_that_exclude_each_other_are_none_and_both_are_named(one, other):
    found = united_schema(BASE, one(BASE), other(BASE))
    assert isinstance(found, str)
    for text in (*schema_changes(BASE, one(BASE)), *schema_changes(BASE, other(BASE))):
        assert text in found


def test_two_widenings_of_one_column_become_the_wider_one():
    ours, theirs = (edits.widen_field(BASE, "n", kind) for kind in (pa.int32(), pa.int64()))
    assert united_schema(BASE, ours, theirs) == theirs
    assert united_schema(BASE, theirs, ours).columns[1].type == "int64"


def test_a_name_that_was_dropped_comes_back_as_another_column():
    gone = edits.drop_fields(BASE, ["word"])
    again = edits.add_fields(gone, [pa.field("word", pa.string())])
    assert again.columns[-1].id == added_id(0, "word", ())
    once_more = edits.add_fields(edits.drop_fields(again, ["word"]), [pa.field("word", pa.int8())])
    assert once_more.columns[-1].id == added_id(0, "word", [again.columns[-1].id])
    assert again.columns[-1].id in once_more.retired


REFUSED = {
    "unknown": (lambda s: edits.drop_fields(s, ["nope"]), "no column 'nope'"),
    "unknown field": (lambda s: edits.drop_fields(s, [["place", "z"]]), "no field 'z' of column"),
    "an element": (lambda s: edits.drop_fields(s, [["many", "element"]]), "and no struct"),
    "nothing": (lambda s: edits.drop_fields(s, []), "no columns to drop"),
    "the last field": (
        lambda s: edits.drop_fields(s, [["place", "in", "x"], ["place", "in", "y"]]),
        "the last one of its struct: drop field 'in' of column 'place'",
    ),
    "all": (lambda s: edits.drop_fields(s, names(s)), "at least one column"),
    "a taken name": (lambda s: edits.rename_field(s, "n", "WORD"), "occurs twice"),
    "a taken field": (lambda s: edits.rename_field(s, ["place", "a"], "In"), "occurs twice"),
    "a reserved name": (lambda s: edits.rename_field(s, "n", "_version"), "cannot be the name"),
    "no name": (lambda s: edits.rename_field(s, "n", ""), "not a valid name"),
    "no struct": (lambda s: edits.add_fields(s, [pa.field("z", pa.int8())], within="n"), "no str"),
    "narrower": (lambda s: edits.widen_field(s, "n", pa.int8()), "cannot change type from int16"),
    "another scale": (lambda s: edits.widen_field(s, "price", pa.decimal128(20, 3)), "same scale"),
    "twice": (lambda s: edits.reorder_fields(s, ["n", "n"]), "names a column twice"),
    "a default of a list": (
        lambda s: edits.add_fields(s, [pa.field("z", pa.list_(pa.int8()))], {"z": [1]}),
        "its default can only be null",
    ),
    "a default of none": (
        lambda s: edits.add_fields(s, [pa.field("z", pa.int8())], {"y": 1}),
        "defaults name columns that are not added: y",
    ),
    "a default too large": (
        lambda s: edits.add_fields(s, [pa.field("z", pa.int8())], {"z": 128}),
        "128 cannot be a default of column 'z' of type int8",
    ),
    "a default of a field": (
        lambda s: edits.add_fields(s, [pa.field("z", pa.int8())], {"z": 1}, "place"),
        "no default but null",
    ),
    "a path of numbers": (lambda s: edits.drop_fields(s, [5]), "a column is a name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_possible_is_refused_with_words(name):
    act, words = REFUSED[name]
    with pytest.raises(errors.InvalidInput, match=words):
        act(BASE)


VALUES = [
    ("bool", True), ("int8", -128), ("int64", 2**63 - 1), ("float32", 0.5), ("float64", -0.0),
    ("float64", math.inf), ("float64", 5e-324), ("string", "größe \x7f"), ("binary", b"\x00\xff"),
    ("date", dt.date(1969, 12, 31)), ("timestamp_ntz", dt.datetime(2013, 1, 7, 5)),
    ("timestamp", dt.datetime(2013, 1, 7, 5, tzinfo=dt.UTC)), ("decimal(38,3)", Decimal("-0.125")),
    ("decimal(38,0)", Decimal(10**38 - 1)), ("decimal(5,2)", Decimal(0)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
def test_defaults_come_back_exactly(kind, value):
    column = Column(1, "x", kind)
    encoded = defaults.encode_default(column, value)
    assert msgspec.json.decode(msgspec.json.encode(encoded)) == encoded
    found = defaults.decode_default(column, encoded).as_py()
    assert repr(found).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(
        value
    ) or (found == value and isinstance(value, Decimal))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("float64", math.nan), ("int8", 1.5), ("string", 5), ("bool", 1),
        ("decimal(3,0)", Decimal(1000)), ("date", "x"), ("string", "x" * 1025), ("int8", "5"),
    ],
)  # fmt: skip
def test_values_that_are_none_of_the_type_are_no_defaults(kind, value):
    with pytest.raises(errors.InvalidInput, match="cannot be a default"):
        defaults.encode_default(Column(1, "x", kind), value)


@pytest.mark.parametrize("rule", ["partial", "aggregate"])
def test_a_default_under_a_rule_that_fills_rows_is_refused(rule):
    schema = pa.schema([("at", pa.timestamp("us")), ("id", pa.int64()), ("v", pa.int64())])
    table = create(schema=schema, key="id", granularity="all", properties={"merge": rule})
    with pytest.raises(errors.InvalidInput, match=f"cannot have a default under merge={rule}"):
        table.add_columns([pa.field("w", pa.int64())], {"w": 5})
    assert table.add_columns([pa.field("w", pa.int64())]) == 1
