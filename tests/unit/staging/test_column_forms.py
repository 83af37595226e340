"""How columns are written as Parquet follows their values."""

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventlog.format import parts
from eventlog.limits import WHOLE_BYTES
from eventlog.model.schema import FIELD_ID, from_arrow, with_field_ids
from eventlog.staging.encoding import encode_segment
from eventlog.staging.parquet.column_forms import suits_dictionary

KINDS = {
    "number": pa.int64(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "real": pa.float64(),
    "price": pa.decimal128(12, 2),
    "day": pa.date32(),
    "list": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": pa.struct([("a.b", pa.string()), ("c", pa.list_(pa.struct([("d", pa.int32())])))]),
    "struct.c": pa.string(),
}


def rows_of(count):
    """`count` rows of every kind of column."""
    values = {
        "number": range(count),
        "flag": [n % 2 == 0 for n in range(count)],
        "text": [f"word {n % 3}" for n in range(count)],
        "real": [n / 7 for n in range(count)],
        "price": [n % 5 for n in range(count)],
        "day": [n % 4 for n in range(count)],
        "list": [[str(n), "x"] for n in range(count)],
        "map": [[("k", n)] for n in range(count)],
        "struct": [{"a.b": "y", "c": [{"d": n}]} for n in range(count)],
        "struct.c": [None] * count,
    }
    return pa.table([pa.array(values[n], kind) for n, kind in KINDS.items()], names=[*KINDS])


def written(rows):
    """Rows as a Parquet file."""
    return pq.ParquetFile(pa.BufferReader(encode_segment(rows, from_arrow(rows.schema)).body))


def columns_of(file):
    """The metadata of the columns of the first row group, by path."""
    group = file.metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    return {column.path_in_schema: column for column in columns}


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 20_000])
def test_every_kind_of_column_is_read_as_it_was_written(count):
    rows = rows_of(count)
    assert written(rows).read().cast(rows.schema).equals(rows)


def test_a_few_rows_of_a_great_many_columns_have_a_tail():
    columns = 7_000
    rows = pa.table([pa.array([1], pa.int16())] * columns, names=[f"c{n}" for n in range(columns)])
    encoded = encode_segment(rows, from_arrow(rows.schema))
    assert len(encoded.body) > WHOLE_BYTES
    _, tail = parts.parse_tail(bytes(encoded.body[-encoded.tail.size :]), len(encoded.body))
    assert tail.checksum_of(columns - 1)


def test_rows_of_one_schema_get_the_ids_of_the_table_that_they_are_for():
    rows = pa.schema([("a", pa.int64()), ("b", pa.string())])
    first = from_arrow(rows)
    later = msgspec.structs.replace(
        first, columns=tuple(msgspec.structs.replace(c, id=c.id + 10) for c in first.columns)
    )
    first_ids, later_ids, again = (
        {field.name: field.metadata[FIELD_ID] for field in with_field_ids(rows, one)}
        for one in (first, later, first)
    )
    assert first_ids == again == {"a": b"1", "b": b"2"}
    assert later_ids == {"a": b"11", "b": b"12"}
    fewer = pa.schema([rows.field("b").with_nullable(False)])
    assert with_field_ids(fewer, first).field("b").metadata[FIELD_ID] == b"2"
    assert not with_field_ids(fewer, first).field("b").nullable
    assert with_field_ids(rows, first).names == ["a", "b"]


def test_columns_of_few_bytes_need_no_context_of_zstd():
    few, many = columns_of(written(rows_of(100))), columns_of(written(rows_of(20_000)))
    assert {column.compression for column in few.values()} == {"SNAPPY"}
    large = {path for path, column in many.items() if column.compression == "ZSTD"}
    assert {*few} == {*many}
    assert {*many} - large == {"flag"}


def test_values_that_hardly_repeat_have_no_dictionary():
    for rows in (rows_of(300), rows_of(20_000)):
        coded = {path for path, c in columns_of(written(rows)).items() if c.has_dictionary_page}
        plain = {"number", "real", "flag"}
        assert coded == {path for path in columns_of(written(rows)) if path not in plain}


def test_a_handful_of_rows_has_dictionaries_in_nested_columns_alone():
    columns = columns_of(written(rows_of(100)))
    coded = {path for path, column in columns.items() if column.has_dictionary_page}
    assert coded == {path for path in columns if "." in path and path != "struct.c"}
    wide = pa.table({"text": ["x" * 1000] * 100})  # more bytes, which a dictionary saves
    assert columns_of(written(wide))["text"].has_dictionary_page


def test_one_page_of_a_column_has_no_index():
    rows = pa.table({"n": range(100)})
    assert not columns_of(written(rows))["n"].has_offset_index
    rows = pa.table({"n": range(100_000)})
    assert columns_of(written(rows))["n"].has_offset_index


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([], False),
        ([1], False),
        ([*range(500)], False),
        ([7] * 500, True),
        ([n % 20 for n in range(500)], True),
        ([n % 20 for n in range(100_000)], True),
        # Their dictionary would be larger than any that is written.
        ([*range(20_000)] * 2, False),
        ([None] * 500, True),
        (["one long text that repeats", "and another one"] * 50, True),
        ([f"{n} of texts that are all different" for n in range(5000)], False),
    ],
)
def test_a_dictionary_must_be_smaller_than_the_values(values, wanted):
    column = pa.chunked_array([pa.array(values, None if any(values) else pa.int64())])
    assert suits_dictionary(column) is wanted


def test_values_of_one_size_each_decide_by_those_that_a_dictionary_may_have():
    spread = [n % 5000 for n in range(50_000)]  # never twice among the first thousand
    assert suits_dictionary(pa.chunked_array([pa.array(spread, pa.int64())]))


@pytest.mark.parametrize("kind", [pa.int16(), pa.int64(), pa.timestamp("us", "UTC"), pa.date32()])
def test_a_key_is_stored_as_differences(kind):
    count = 20_000
    numbers = pa.array([n // 2 for n in range(count)], pa.int32()).cast(pa.int64())
    if pa.types.is_date(kind):
        numbers = numbers.cast(pa.int32())
    rows = pa.table([numbers.cast(kind), numbers.cast(kind)], ["k", "v"])
    schema = from_arrow(rows.schema)
    sizes = {}
    for key in (None, "k"):
        file = pq.ParquetFile(pa.BufferReader(encode_segment(rows, schema, key).body))
        assert file.read().cast(rows.schema).equals(rows)
        columns = columns_of(file)
        assert "DELTA_BINARY_PACKED" not in columns["v"].encodings
        assert ("DELTA_BINARY_PACKED" in columns["k"].encodings) == (key == "k")
        sizes[key] = columns["k"].total_compressed_size
    assert sizes["k"] < sizes[None]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.decimal128(9, 2)])
def test_a_key_that_is_no_whole_number_is_stored_like_other_columns(kind):
    rows = pa.table([pa.array([str(n) for n in range(3000)]).cast(kind)], ["k"])
    file = pq.ParquetFile(pa.BufferReader(encode_segment(rows, from_arrow(rows.schema), "k").body))
    assert file.read().cast(rows.schema).equals(rows)
    assert "DELTA_BINARY_PACKED" not in columns_of(file)["k"].encodings
