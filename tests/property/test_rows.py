"""Whatever spelling rows come in, every value comes back, before and after compaction."""

import datetime as dt
import math
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, note
from hypothesis import strategies as st
from support.builders import create

from eventlog import errors
from eventlog.compaction import run
from eventlog.readers import scan
from eventlog.staging import compact_arrays
from eventlog.writers import append

EPOCH = dt.datetime(1970, 1, 1)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_moments = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999))
_extremes = {
    f"int{bits}": st.sampled_from([-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1])
    for bits in (8, 16, 32, 64)
}
_floats = st.floats() | st.sampled_from([-0.0, 0.0, math.nan, math.inf, 5e-324])


def _decimals(precision: int, scale: int) -> st.SearchStrategy:
    most = 10**precision - 1
    units = st.integers(-most, most) | st.sampled_from([-most, 0, most])
    return units.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


LEAVES: list[tuple[pa.DataType, st.SearchStrategy]] = [
    (pa.bool_(), st.booleans()),
    *[(pa.type_for_alias(name), values) for name, values in _extremes.items()],
    (pa.float32(), st.floats(width=32) | st.sampled_from([-0.0, math.nan])),
    (pa.float64(), _floats),
    (pa.string(), _texts),
    (pa.binary(), st.binary(max_size=6)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), _moments),
    (pa.timestamp("us", "UTC"), _moments.map(lambda at: at.replace(tzinfo=dt.UTC))),
    (pa.decimal128(5, 2), _decimals(5, 2)),
    (pa.decimal128(18, 0), _decimals(18, 0)),
    (pa.decimal128(38, 38), _decimals(38, 38)),
]


@st.composite
def kinds(draw, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy]:
    """A type of the format, and values of it, nulls among them."""
    shape = draw(st.sampled_from(["leaf", "leaf", "list", "struct", "map"])) if depth else "leaf"
    if shape == "leaf":
        kind, values = draw(st.sampled_from(LEAVES))
    elif shape == "list":
        inner, values = draw(kinds(depth=depth - 1))
        kind, values = pa.list_(inner), st.lists(values, max_size=3)
    elif shape == "struct":
        fields = [draw(kinds(depth=depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        kind = pa.struct([(f"f{n}", inner) for n, (inner, _) in enumerate(fields)])
        values = st.fixed_dictionaries({f"f{n}": v for n, (_, v) in enumerate(fields)})
    else:
        inner, items = draw(kinds(depth=depth - 1))
        kind = pa.map_(pa.string(), inner)
        values = st.lists(st.tuples(_texts, items), max_size=3, unique_by=lambda pair: pair[0])
    return kind, st.none() | values


@st.composite
def columns(draw, rows: int) -> pa.Array:
    """So many values of one type."""
    kind, values = draw(kinds())
    return pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)


def spelled(draw, values: pa.Array) -> pa.Array:  # noqa: PLR0912 - a case a type
    """The same values in one of Arrow's other types for them, at any depth."""
    kind = values.type
    if pa.types.is_list(kind):
        inner, offsets = spelled(draw, values.values), values.offsets
        mask = values.is_null()
        if draw(st.booleans()):
            return pa.ListArray.from_arrays(offsets, inner, mask=mask)
        return pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), inner, mask=mask)
    if pa.types.is_struct(kind):
        inside = {kind.field(n).name: values.field(n) for n in range(kind.num_fields)}
        order = draw(st.permutations(list(inside)))
        arrays = [spelled(draw, inside[name]) for name in order]
        return pa.StructArray.from_arrays(arrays, order, mask=values.is_null())
    if pa.types.is_map(kind):
        items = spelled(draw, values.items)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, mask=values.is_null())
    others = [kind]
    if kind == pa.string():
        others += [pa.large_string(), pa.string_view()]
    elif kind == pa.binary():
        others += [pa.large_binary(), pa.binary_view()]
    elif pa.types.is_timestamp(kind):
        others += [pa.timestamp(unit, kind.tz) for unit in ("s", "ms", "ns")]
        others += [pa.timestamp("us", "Asia/Kathmandu")] if kind.tz else [pa.date64()]
    elif pa.types.is_decimal(kind):
        others += [pa.decimal256(kind.precision, kind.scale)]
        others += [pa.decimal32(5, 2)] if kind.precision == 5 else []
        others += [pa.decimal64(18, 0)] if kind.precision == 18 else []
    elif pa.types.is_integer(kind):
        others += [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32()]
        others = [other for other in others if other.bit_width < kind.bit_width] + [kind]
    elif pa.types.is_floating(kind):
        others += [pa.float16(), pa.float32()]
    elif kind == pa.date32():
        others += [pa.date64()]
    wanted = draw(st.sampled_from(others))
    try:
        other = values.cast(wanted)
        other = other if repr(other.cast(kind).to_pylist()) == repr(values.to_pylist()) else values
    except (pa.ArrowException, OverflowError, ValueError):
        other = values
    if draw(st.booleans()) and other.type.id not in compact_arrays._VIEWS:
        index = draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int64(), pa.uint64()]))
        return _encoded(other, index)
    if draw(st.booleans()) and other.type.id in compact_arrays._VIEWS:
        return _encoded(values, pa.uint32(), other.type)
    return other


def _encoded(values: pa.Array, index: pa.DataType, kind: pa.DataType | None = None) -> pa.Array:
    try:
        found = values.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return values
    inside = found.dictionary if kind is None else found.dictionary.cast(kind)
    return pa.DictionaryArray.from_arrays(found.indices.cast(index), inside)


@st.composite
def spellings(draw) -> tuple[pa.Table, pa.Table]:
    """Rows in the table's own types, and the same rows as others spell them, in slices."""
    rows = draw(st.integers(1, 6))
    count = draw(st.integers(1, 3))
    given_ = [draw(columns(rows)) for _ in range(count)]
    at = pa.array(range(rows), pa.timestamp("us", "UTC"))
    names = ["at", *[f"c{n}" for n in range(count)]]
    plain = pa.table([at, *given_], names)
    # Before and after lie others: whoever forgets that an array is a slice finds those.
    around = [pa.concat_arrays([array, array, array]) for array in given_]
    other = [spelled(draw, array).slice(rows, rows) for array in around]
    return plain, pa.table([at, *other], names)


def shown(table: pa.Table) -> list[str]:
    """Every value, so that NaN equals NaN and -0.0 does not equal 0.0."""
    return [repr(column.to_pylist()) for column in table.columns]


@pytest.mark.hazard("W3")
@given(spellings(), st.sampled_from(["table", "reader", "batches", "duckdb", "polars"]))
def test_w3_every_value_comes_back_from_any_spelling(found, source):
    plain, other = found
    note(str(other.schema))
    table = create(schema=plain.schema, granularity="year")
    rows = handed_over(other, source, plain.schema)
    assume(rows is not None)
    append(table, rows)
    append(table, other)
    wanted = shown(pa.concat_tables([plain, plain]).sort_by("at"))
    stable = [("at", "ascending")]
    assert shown(scan(table).to_table().sort_by(stable)) == wanted
    run(table)
    assert shown(scan(table).to_table().sort_by(stable)) == wanted


def _times(schema: pa.Schema) -> int:
    return sum(str(kind).count("timestamp") for kind in schema.types)


def handed_over(rows, source, wanted):
    """The rows as another library has them; None where it has not all of these types."""
    if source == "reader":
        return rows.to_reader(max_chunksize=2)
    if source == "batches":
        (batch,) = rows.combine_chunks().to_batches()
        return batch
    if source == "table":
        return rows
    try:
        if source == "polars":
            frame = pl.from_arrow(rows)
            held = frame.to_arrow()
        else:
            frame = duckdb.connect().from_arrow(rows)
            held = frame.to_arrow_table()
        alike = shown(held.cast(wanted)) == shown(rows.cast(wanted))
        # Polars makes times of days in milliseconds, and those are refused as days.
        alike = alike and _times(held.schema) == _times(wanted)
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - of types they lack
        return None
    return frame if alike else None


@given(spellings(), st.integers(1, 300))
@example((None, pa.table({"x": pa.array(["a" * 100] * 9, pa.string_view())})), 250)
def test_pieces_hold_all_rows_and_little_each(found, most):
    _, other = found
    for batch in other.to_batches():
        parts = list(compact_arrays.pieces(batch, most))
        assert shown(pa.Table.from_batches(parts)) == shown(pa.Table.from_batches([batch]))
        for part in parts:
            written = pa.table(
                [compact_arrays.to_plain_array(c) for c in part.columns], part.schema.names
            )
            assert part.num_rows == 1 or written.nbytes <= most + 64 * len(part.columns)


@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=5), st.booleans())
def test_text_that_is_none_is_refused_with_its_column(values, nested):
    array = pa.array(values, pa.binary())
    try:
        [value.decode() for value in values]
    except UnicodeDecodeError:
        pass
    else:
        assume(False)
    text = pa.Array.from_buffers(pa.string(), len(values), array.buffers())
    if nested:
        text = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), text)
    at = pa.array(range(len(values)), pa.timestamp("us", "UTC"))
    table = create(schema=pa.schema([("at", at.type), ("name", text.type)]))
    try:
        append(table, pa.table({"at": at, "name": text}))
    except errors.InvalidInput as error:
        assert "'name'" in error.message  # noqa: PT017
    else:
        raise AssertionError("text that is no UTF-8 was taken")
    assert table.refresh().version == 0
