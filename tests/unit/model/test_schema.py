"""Schemas: what becomes of Arrow types, and which changes a table allows."""

import msgspec
import pyarrow as pa
import pytest
from support.builders import SCHEMA, check_sound, create, events, reopen

from eventlog import Table, errors, limits
from eventlog.fsck.check import fsck
from eventlog.model import schema, schema_text
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
    text = schema_text.type_text(table.head().stored_schema.columns[-1].type)
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
            schema.arrow_type(text)


def test_extending_keeps_ids_and_gives_new_ones():
    first = schema.from_arrow(BASE)
    wanted = pa.schema([("new", pa.string()), BASE.field("n"), BASE.field("at")])
    second = schema.extend(first, wanted)
    assert [(c.id, c.name) for c in second.columns] == [(1, "at"), (2, "n"), (3, "new")]
    assert (second.id, second.last_column_id) == (2, 3)
    assert schema.check_successor(first, second) is None


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (BASE.remove(1), "removed"),
        (BASE.set(1, pa.field("n", pa.int32())), "type"),
        (BASE.append(pa.field("new", pa.int8(), nullable=False)), "nullable"),
        (BASE.set(1, pa.field("n", pa.int64(), nullable=False)), "required"),
        (BASE.append(pa.field("N", pa.int8())), "twice"),
        (BASE.append(pa.field("n", pa.int8())), "twice"),
    ],
)
def test_changes_that_older_segments_do_not_survive_are_refused(wanted, why):
    with pytest.raises(errors.InvalidInput, match=why):
        schema.extend(schema.from_arrow(BASE), wanted)


def test_a_column_may_become_nullable():
    wanted = BASE.set(0, BASE.field("at").with_nullable(True))
    assert schema.extend(schema.from_arrow(BASE), wanted).columns[0].nullable


def successors():
    old = schema.from_arrow(BASE)
    new = schema.extend(old, BASE.append(pa.field("new", pa.string())))
    columns = new.columns
    replace = msgspec.structs.replace
    extra = Column(4, "new", "string")
    yield "id skipped", replace(new, id=3)
    yield "id kept", replace(new, id=1)
    yield "ids would be reused", replace(new, last_column_id=1, columns=columns[:2])
    yield "id beyond the last", replace(new, last_column_id=2)
    yield "old id reused", replace(new, columns=(*columns[:2], replace(columns[2], id=2)))
    yield "name twice", replace(new, last_column_id=4, columns=(*columns, extra))
    yield "id twice", replace(new, columns=(*columns, replace(columns[2], name="other")))
    yield "no such type", replace(new, columns=(*columns[:2], replace(columns[2], type="uuid")))
    yield "renamed", replace(new, columns=(replace(columns[0], name="when"), *columns[1:]))


@pytest.mark.parametrize(("what", "new"), list(successors()), ids=lambda x: str(x)[:20])
def test_the_fold_refuses_successors_that_are_none(what, new):
    assert schema.check_successor(schema.from_arrow(BASE), new), what


@pytest.mark.parametrize(
    "stored",
    [
        "uuid", "decimal(39,2)", "decimal(5,6)", "decimal(0,0)", {}, {"list": 5}, {"set": "int8"},
        {"map": ["string"]}, {"struct": []}, {"struct": [{"name": "a"}]}, {"list": "int8", "x": 1},
        {"struct": [{"name": 5, "type": "int8"}]}, {"struct": ["int8"]},
    ],
    ids=str,
)  # fmt: skip
def test_stored_types_that_the_format_lacks_are_corrupt(stored):
    with pytest.raises(errors.Corrupt):
        schema.arrow_type(stored)


@pytest.mark.parametrize("name", ["missing", "n"])
def test_the_time_column_is_a_time(name):
    with pytest.raises(errors.InvalidInput, match=name):
        schema.check_time_column(schema.from_arrow(BASE), name)


def test_columns_that_differ_by_case_alone_are_refused():
    table = create()
    taken = table.head().schema.names[1].upper()
    with pytest.raises(errors.InvalidInput, match="capitals alone do not tell columns apart"):
        table.add_columns(table.head().schema.append(pa.field(taken, pa.int64())))


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
    kept = {"struct": [{"name": "x", "type": "int64"}]}
    assert schema.arrow_type(kept) == pa.struct([("x", pa.int64())])
    with pytest.raises(errors.Corrupt):
        schema.arrow_type({"struct": [{"type": "int64", "name": "x"}]})
