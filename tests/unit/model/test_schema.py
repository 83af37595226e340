"""Schemas: what becomes of Arrow types, and which changes a table allows."""

import hashlib

import msgspec
import pyarrow as pa
import pytest
from support.builders import SCHEMA, check_sound, create, events, reopen

from eventlog import Table, errors, limits
from eventlog.fsck.check import fsck
from eventlog.model import schema, schema_text
from eventlog.model.columns import column_types, edits, evolution, ids
from eventlog.model.entries import Column
from eventlog.readers import changes, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

BASE = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), nullable=False), ("n", pa.int64())])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.decimal128(38, 38), pa.decimal128(38, 38)),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.list_(pa.float64(), 3), pa.list_(pa.float64())),
        (pa.map_(pa.string(), pa.uint8()), pa.map_(pa.string(), pa.int16())),
    ],
    ids=str,
)
def test_other_spellings_of_a_type_are_normalised(given, kept):
    stored = schema.from_arrow(pa.schema([("x", given)]))
    assert schema.to_arrow(stored).field("x").type == kept


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(), pa.null(), pa.time32("s"), pa.time64("us"), pa.duration("s"), pa.binary(4),
        pa.month_day_nano_interval(), pa.decimal256(50, 2), pa.decimal128(5, -2), pa.struct([]),
        pa.list_(pa.uint64()), pa.dense_union([pa.field("a", pa.int8())]),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_the_format_lacks_are_refused_with_advice(kind):
    with pytest.raises(errors.InvalidInput, match=r"cast it|give it"):
        schema.from_arrow(pa.schema([("x", kind)]))


def struct(kind):
    return pa.struct([("a", kind), ("b", pa.string())])


WRAPS = {
    "list": (pa.list_,),
    "struct": (struct,),
    "map": (lambda kind: pa.map_(pa.string(), kind),),
    "key": (lambda kind: pa.map_(struct(kind), pa.int64()), pa.list_),
    "mixed": (pa.list_, struct, lambda kind: pa.map_(pa.string(), kind)),
}


def nested(levels, wraps):
    """A type of so many levels, and a value of it."""
    kind, value = pa.int64(), 7
    for level in range(levels):
        kind = wraps[level % len(wraps)](kind)
        if pa.types.is_list(kind):
            value = [value, None]
        elif pa.types.is_struct(kind):
            value = {"a": value, "b": "x"}
        else:
            whole = pa.types.is_string(kind.key_type)
            value = [("k", value)] if whole else [({"a": value, "b": None}, 1)]
    return kind, value


@pytest.mark.hazard("W4")
@pytest.mark.parametrize("wraps", WRAPS.values(), ids=WRAPS)
def test_types_nest_so_deep_that_every_reader_takes_them(wraps):
    """At the bound everything works: commits, key frames, fsck, rows; beyond it nothing is made."""
    most = limits.TYPE_DEPTH
    if wraps is WRAPS["key"]:
        most = 6  # a key is one more level inside its map
    kind, value = nested(most, wraps)
    table = create()
    table.add_columns(SCHEMA.append(pa.field("deep", kind)))
    rows = events(2).append_column("deep", pa.array([value, None], kind))
    append(table, rows)
    table.write_keyframe()
    append(table, rows)
    check_sound(table.store)
    assert fsck(Table(table.store)).findings == ()
    found = scan(reopen(table.store), ["deep"]).to_table().column("deep")
    assert found.type == kind
    assert found.to_pylist() == [*pa.array([value, None], kind).to_pylist()] * 2
    text = schema_text.type_text(table.session.head().stored_schema.columns[-1].type)
    assert schema_text.parse_schema(f"deep:{text}").field(0).type == kind


@pytest.mark.parametrize("wraps", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("levels", [limits.TYPE_DEPTH + 1, limits.TYPE_DEPTH + 30, 500])
def test_a_type_that_nests_deeper_is_refused_before_anything_is_made(wraps, levels):
    store = MemoryStore()
    wanted = SCHEMA.append(pa.field("deep", nested(levels, wraps)[0]))
    with pytest.raises(errors.InvalidInput, match=r"is nested too deeply"):
        create(store, schema=wanted)
    assert not list(store.list(""))
    with pytest.raises(errors.InvalidInput, match=r"is nested too deeply"):
        create().add_columns(wanted)


def test_a_type_has_one_spelling():
    for text in ("decimal(05,2)", "decimal(5,02)", "decimal(0,0)", "decimal(39,0)", "decimal(2,3)"):
        with pytest.raises(errors.Corrupt):
            column_types.arrow_type(text)


def test_adding_keeps_ids_and_gives_new_ones():
    first = schema.from_arrow(BASE)
    second = edits.add_fields(first, [pa.field("new", pa.string()), BASE.field("n")])
    new = 2**30 + (int(hashlib.sha256(b"0/new/0").hexdigest()[:8], 16) >> 3)
    assert [(c.id, c.name) for c in second.columns] == [(1, "at"), (2, "n"), (new, "new")]
    assert second.id == 2
    assert evolution.check_successor(first, second) is None


@pytest.mark.parametrize(
    ("added", "why"),
    [
        (pa.field("n", pa.int32()), "exists, with type int64"),
        (pa.field("new", pa.int8(), nullable=False), "nullable"),
        (pa.field("N", pa.int8()), "occurs twice"),
        (pa.field("", pa.int8()), "not a valid name"),
    ],
)
def test_columns_that_cannot_be_added_are_refused(added, why):
    with pytest.raises(errors.InvalidInput, match=why):
        edits.add_fields(schema.from_arrow(BASE), [added])


def test_columns_that_a_table_has_already_are_added_by_doing_nothing():
    first = schema.from_arrow(BASE)
    assert edits.add_fields(first, [BASE.field("n")]) == first
    with pytest.raises(errors.InvalidInput, match="name the columns to add"):
        edits.add_fields(first, [])


def test_a_column_may_become_nullable():
    assert edits.relax_fields(schema.from_arrow(BASE), ["at"]).columns[0].nullable


def test_the_ids_of_a_first_schema_are_those_of_columns_and_then_of_fields():
    first = schema.from_arrow(
        pa.schema(
            [
                ("at", pa.timestamp("us")),
                ("tags", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int8()))]))),
                ("n", pa.int64()),
                ("names", pa.map_(pa.string(), pa.int8())),
            ]
        )
    )
    b = {"list": {"id": 8, "type": "int8"}}
    a_and_b = [{"id": 6, "name": "a", "type": "int8"}, {"id": 7, "name": "b", "type": b}]
    assert [(c.id, c.type) for c in first.columns] == [
        (1, "timestamp_ntz"),
        (2, {"list": {"id": 5, "type": {"struct": a_and_b}}}),
        (3, "int64"),
        (4, {"map": [{"id": 9, "type": "string"}, {"id": 10, "type": "int8"}]}),
    ]


def test_the_fields_of_a_column_that_is_added_have_ids_that_their_parents_give():
    kind = pa.map_(pa.string(), pa.struct([("x", pa.int8())]))
    first = schema.from_arrow(BASE)
    second = edits.add_fields(first, [pa.field("m", kind)])
    column = second.columns[-1]
    (key, value), taken = column_types.inner_fields(column.type), [1, 2]
    assert column.id == ids.added_id(0, "m", taken)
    assert (key.id, value.id) == tuple(ids.added_id(column.id, n, taken) for n in ("key", "value"))
    assert column_types.inner_fields(value.type)[0].id == ids.added_id(value.id, "x", taken)
    assert evolution.check_successor(first, second) is None
    wrong = replaced_id(column, value.id)
    forged = msgspec.structs.replace(second, columns=(*second.columns[:-1], wrong))
    assert "is the next one" in evolution.check_successor(first, forged)


def replaced_id(column, old):
    """A column in whose type one id is another one."""
    text = msgspec.json.encode(column.type).replace(b":%d," % old, b":%d," % (old + 1))
    return msgspec.structs.replace(column, type=msgspec.json.decode(text))


def test_an_id_that_is_taken_is_not_given_again():
    first = ids.added_id(0, "x", [])
    second = ids.added_id(0, "x", [first])
    assert (
        len({first, second, ids.added_id(0, "x", [first, second]), ids.added_id(7, "x", [])}) == 4
    )
    assert all(ids.FIRST_ADDED <= number < ids.LAST for number in (first, second))


def successors():
    old = schema.from_arrow(BASE)
    new = edits.add_fields(old, [pa.field("new", pa.string())])
    columns = new.columns
    replace = msgspec.structs.replace
    extra = Column(4, "other", "string")
    yield "id skipped", replace(new, id=3)
    yield "id kept", replace(new, id=1)
    yield "id of another name", replace(new, columns=(*columns[:2], replace(columns[2], name="x")))
    yield "id out of order", replace(new, columns=(*columns[:2], replace(columns[2], id=3)))
    yield "a retired id that lives", replace(new, retired=(2,))
    yield "an empty list of retired ids", replace(new, retired=())
    yield "old id reused", replace(new, columns=(*columns[:2], replace(columns[2], id=2)))
    yield "name twice", replace(new, columns=(*columns, replace(extra, name="new")))
    yield "id twice", replace(new, columns=(*columns, replace(columns[2], name="other")))
    yield "no such type", replace(new, columns=(*columns[:2], replace(columns[2], type="uuid")))
    yield "renamed", replace(new, columns=(replace(columns[0], name="when"), *columns[1:]))


@pytest.mark.parametrize(("what", "new"), list(successors()), ids=lambda x: str(x)[:20])
def test_the_fold_refuses_successors_that_are_none(what, new):
    assert evolution.check_successor(schema.from_arrow(BASE), new), what


@pytest.mark.parametrize(
    "stored",
    [
        "uuid", "decimal(39,2)", "decimal(5,6)", "decimal(0,0)", {}, {"list": 5}, {"list": "int8"},
        {"set": {"id": 1, "type": "int8"}}, {"list": {"id": 1, "type": "int8"}, "x": 1},
        {"list": {"type": "int8", "id": 1}}, {"list": {"id": -1, "type": "int8"}},
        {"list": {"id": True, "type": "int8"}}, {"map": [{"id": 1, "type": "int8"}]},
        {"map": ["string"]}, {"struct": []}, {"struct": [{"id": 1, "name": "a"}]},
        {"struct": [{"id": 1, "name": 5, "type": "int8"}]}, {"struct": ["int8"]},
        {"struct": [{"name": "a", "type": "int8"}]},
    ],
    ids=str,
)  # fmt: skip
def test_stored_types_that_the_format_lacks_are_corrupt(stored):
    with pytest.raises(errors.Corrupt):
        column_types.arrow_type(stored)


@pytest.mark.parametrize("name", ["missing", "n"])
def test_the_time_column_is_a_time(name):
    with pytest.raises(errors.InvalidInput, match=name):
        schema.check_time_column(schema.from_arrow(BASE), name)


def test_columns_that_differ_by_case_alone_are_refused():
    table = create()
    taken = table.session.head().schema.names[1].upper()
    with pytest.raises(errors.InvalidInput, match="capitals alone do not tell columns apart"):
        table.add_columns(table.session.head().schema.append(pa.field(taken, pa.int64())))


@pytest.mark.hazard("W8")
@pytest.mark.parametrize("name", ["_change", "_version", "_time", "_Time"])
def test_names_that_changes_have_of_their_own_are_refused(name):
    table = create()
    wider = SCHEMA.append(pa.field(name, pa.int64()))
    for make in (lambda: table.add_columns(wider), lambda: create(schema=wider)):
        with pytest.raises(errors.InvalidInput, match=f"'{name}' cannot be the name"):
            make()
    assert table.refresh().version == 0
    assert changes(table, 0).to_table().num_rows == 0


def test_the_fields_of_a_struct_s_field_have_one_order():
    kept = {"struct": [{"id": 2, "name": "x", "type": "int64"}]}
    assert column_types.arrow_type(kept) == pa.struct([("x", pa.int64())])
    with pytest.raises(errors.Corrupt):
        column_types.arrow_type({"struct": [{"id": 2, "type": "int64", "name": "x"}]})
