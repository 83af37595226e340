"""Columns of segments are found by their field ids, whatever they are called in the file."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.foreign import COLUMNS, KEYED, foreign, rows_of, stored, table_of

from eventlog import compaction, errors
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.merging.planning.carried import MergeConflict
from eventlog.merging.planning.schemas.merged_schema import merge_schemas
from eventlog.merging.planning.schemas.schema_history import SchemaHistory, SchemaStep
from eventlog.model.columns.column_types import FIELD_ID
from eventlog.model.columns.ids import TOP, added_id, all_ids
from eventlog.model.entries import Column, Schema
from eventlog.model.schema import from_arrow
from eventlog.readers import count, scan
from eventlog.writers import append, upsert

NESTED = COLUMNS.append(
    pa.field(
        "deep", pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.int8()), ("b", pa.int8())])))
    )
)


def file_ids(schema):
    """The ids in a Parquet schema, from the top to the bottom."""
    names = []

    def visit(field):
        if FIELD_ID in (field.metadata or {}):
            names.append((field.name, int(field.metadata[FIELD_ID])))
        for n in range(field.type.num_fields):
            visit(field.type.field(n))

    for field in schema:
        visit(field)
    return names


@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
def test_every_segment_has_the_ids_of_columns_and_fields(options):
    table = table_of(schema=NESTED, **options)
    table.set_properties({"inline_bytes": "0"})
    for n in (1, 10):
        deep = pa.array([[("x", [{"a": 1, "b": n}])]] * 2, NESTED.field("deep").type)
        (upsert if options else append)(table, rows_of([n, n + 1], deep=deep))
    assert compaction.run(table, policy=compaction.Policy(target_bytes=2**20)).count("done") == 1
    known = all_ids(table.session.head().stored_schema)
    objects = [row.key for row in table.store.list(keys.SEGMENTS_PREFIX)]
    assert len(objects) == 3
    for key in objects:
        file = pq.ParquetFile(io.BytesIO(table.store.get(key)))
        found = [number for _, number in file_ids(file.schema_arrow)]
        assert sorted(found) == sorted(known)
        assert "_op" not in dict(file_ids(file.schema_arrow))
    deep = scan(table, ["id", "deep"]).to_table().sort_by("id").column("deep").to_pylist()
    assert deep == [[("x", [{"a": 1, "b": n}])] for n in (1, 1, 10, 10)]


def renamed(rows, schema=COLUMNS):
    """The bytes of a file in which columns stand in another order and have other names."""
    file = pq.ParquetFile(io.BytesIO(stored(rows, from_arrow(schema), row_group_size=2)))
    turned = file.read().select([*reversed(rows.column_names)])
    names = [f"{name[::-1]} {n}" for n, name in enumerate(turned.column_names)]
    body = io.BytesIO()
    pq.write_table(turned.rename_columns(names), body, row_group_size=2)
    return body.getvalue()


@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
def test_names_and_order_in_a_file_do_not_count(options):
    table = table_of(**options)
    rows = rows_of([1, 2, 3, 4], seen=pa.array([5, 6, 7, 8], pa.int64()))
    foreign(table, renamed(rows), rows=4)
    assert scan(table).to_table().sort_by("id").to_pylist() == rows.to_pylist()
    assert scan(table, ["seen"], "id > 2 and day is not null").to_table().num_rows == 2
    assert fsck(table, checksums=True, keys=bool(options)).findings == ()
    (upsert if options else append)(table, rows_of([9]))
    assert compaction.run(table, policy=compaction.Policy(target_bytes=2**20)).count("done") == 1
    assert scan(table.refresh() and table, ["id"]).to_table().num_rows == 5


@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
def test_a_column_without_a_field_id_is_data_loss(options):
    table = table_of(**options)
    foreign(table, rows_of().append_column("more", pa.array([1, 2])))
    with pytest.raises(errors.DataLoss, match="column 'more' of the object has no field id"):
        scan(table, ["id"]).to_table()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8()), pa.struct([("a", pa.int8())])]
)
def test_elements_of_another_id_are_data_loss(kind):
    schema = COLUMNS.append(pa.field("inner", kind))
    other = schema.insert(0, pa.field("before", pa.int8()))  # which shifts all ids by one
    table = table_of(schema=schema)
    values = pa.array([None, None], kind)
    moved = Schema(1, tuple(
        column if column.name != "inner" else Column(6, "inner", from_arrow(other).columns[-1].type)
        for column in from_arrow(schema).columns
    ))  # fmt: skip
    foreign(table, stored(rows_of(inner=values), moved), rows=2)
    if pa.types.is_struct(kind):  # a field that the file lacks, and one that the table lacks
        assert scan(table, ["inner"]).to_table().to_pylist() == [{"inner": None}] * 2
        return
    with pytest.raises(errors.DataLoss, match="column 'inner' of the object is"):
        scan(table, ["id"]).to_table()


def test_fields_of_structs_are_found_by_id_at_any_depth():
    kind = lambda *names: pa.list_(pa.struct([(name, pa.int16()) for name in names]))
    before, now = (COLUMNS.append(pa.field("s", kind(*names))) for names in ("ab", "xa"))
    table = table_of(schema=now)
    ids = {field: n for n, field in enumerate(all_ids(table.session.head().stored_schema))}
    assert len(ids) == 9
    one = pa.array([[{"a": 1, "b": 2}, None], None], before.field("s").type)
    columns = from_arrow(before).columns
    element = columns[-1].type["list"]
    # What is called `a` in the file is `x` in the table; the field of the id of `a` is not there.
    parts = [element["type"]["struct"][0], {"id": 99, "name": "b", "type": "int16"}]
    stored_type = {"list": {"id": element["id"], "type": {"struct": parts}}}
    old = Schema(1, (*columns[:-1], Column(columns[-1].id, "s", stored_type)))
    foreign(table, stored(rows_of(s=one), old), rows=2)
    found = scan(table, ["s"]).to_table()
    assert found.to_pylist() == [{"s": [{"x": 1, "a": None}, None]}, {"s": None}]
    assert found.schema.field("s").type == now.field("s").type


def test_row_groups_are_not_left_out_by_a_column_of_another_id():
    table = table_of()
    rows = rows_of([1, 2, 3, 4], seen=pa.array([50, 60, 70, 80], pa.int64()))
    swapped = rows.rename_columns(["seen", "at", "id", "day", "small"])
    schema = from_arrow(COLUMNS)
    first, at, third, *rest = schema.columns
    swap = Schema(1, (Column(1, "seen", first.type), at, Column(3, "id", third.type), *rest))
    foreign(table, stored(swapped, swap, row_group_size=2), rows=4)
    assert count(table, "id = 3") == 1
    assert scan(table, ["seen"], "id = 3").to_table().to_pylist() == [{"seen": 70}]


def merged(fork, theirs, ours):
    """The schema that a merge gives the target, of two that changed their schemas once."""
    source, target = (
        SchemaHistory(end, [SchemaStep(fork, end, 1, is_shared=False, is_choice=False)])
        for end in (theirs, ours)
    )
    return merge_schemas(source, target).steps


def test_one_name_with_two_ids_is_a_conflict_until_one_is_renamed():
    ours = from_arrow(COLUMNS)
    both = Schema(2, (*ours.columns, Column(1_400_000_000, "More", "int64")))
    more = added_id(TOP, "more", ())
    theirs = Schema(2, (*ours.columns, Column(more, "more", "int64")))
    unchanged = SchemaHistory(ours, [])
    changed = SchemaHistory(theirs, [SchemaStep(ours, theirs, 1, is_shared=False, is_choice=False)])
    assert merge_schemas(changed, unchanged).steps == (theirs,)
    assert merge_schemas(unchanged, changed).steps == ()
    with pytest.raises(MergeConflict) as e:
        merged(ours, theirs, both)
    assert (e.value.choices, e.value.changes) == ((), (("source", ("rename", "more", "more_2")),))
    other = Schema(2, (*ours.columns, Column(more, "more", "string")))
    words = "column 'more' of type int64 is added; but meanwhile column 'more' of type string"
    with pytest.raises(MergeConflict, match=words):
        merged(ours, theirs, other)
