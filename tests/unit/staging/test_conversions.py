"""Rows in memory that cannot be stored exactly are refused: the error names column and type."""

import datetime as dt
import os
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.builders import SCHEMA, create

from eventlog import errors
from eventlog.readers import count, scan
from eventlog.staging.compact_arrays import pieces
from eventlog.staging.incoming.casting import conform
from eventlog.writers import append

AT = SCHEMA.field("at").type
THREE = pa.array([0, 1, 2], AT)


def table_of(kind, **options):
    return create(schema=pa.schema([("at", AT), ("x", kind)]), **options)


def raw(kind, count, *buffers):
    """An array of bytes as somebody else's program may hand them over, unchecked."""
    return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, buffers)])


NOT_UTF8 = raw(pa.string(), 3, b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0", b"a\xff\xfe")
LEAST = (-(2**127)).to_bytes(16, "little", signed=True) + b"\1" + b"\0" * 31
LEAST_256 = (-(2**255)).to_bytes(32, "little", signed=True) + b"\1" + b"\0" * 63
WIDE = raw(pa.decimal128(38, 0), 3, LEAST)
S = pa.timestamp("s")
REFUSED = {
    "seconds past the range": (pa.timestamp("us"), pa.array([2**60, 1, None], S)),
    "seconds in a list": (pa.list_(pa.timestamp("us")), pa.array([[2**60]] * 3, pa.list_(S))),
    "seconds in a map": (
        pa.map_(pa.string(), pa.timestamp("us")),
        pa.array([[("k", 2**60)]] * 3, pa.map_(pa.string(), S)),
    ),
    "seconds in a struct": (
        pa.struct([("a", pa.timestamp("us"))]),
        pa.array([{"a": 2**60}] * 3, pa.struct([("a", S)])),
    ),
    "nanoseconds": (pa.timestamp("us"), pa.array([1, 1000, None], pa.timestamp("ns"))),
    "days past the range": (pa.timestamp("us"), pa.array([2**31 - 1, 0, None], pa.date32())),
    "half a day": (pa.date32(), raw(pa.date64(), 3, b"\1" + b"\0" * 23)),
    "no UTF-8": (pa.string(), NOT_UTF8),
    "no UTF-8 in a list": (
        pa.list_(pa.string()),
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NOT_UTF8),
    ),
    "no UTF-8 in a dictionary": (
        pa.string(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), NOT_UTF8),
    ),
    "an index out of bounds": (
        pa.string(),
        pa.DictionaryArray.from_arrays(pa.array([7, 0, 0], pa.int8()), pa.array(["a"]), safe=False),
    ),
    "decimal past its precision": (
        pa.decimal128(5, 2),
        pa.array([10**9, 1, 1], pa.int64()).cast(pa.decimal128(19, 0)).view(pa.decimal128(3, 2)),
    ),
    "the least integer as a decimal": (WIDE.type, WIDE),
    "the least integer as a short decimal": (
        pa.decimal128(5, 2),
        raw(pa.decimal128(5, 2), 3, LEAST),
    ),
    "the least integer of 256 bits": (WIDE.type, raw(pa.decimal256(38, 0), 3, LEAST_256)),
    "the least integer in a list": (
        pa.list_(WIDE.type),
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), WIDE),
    ),
    "the least integer in a map of structs": (
        pa.map_(pa.string(), pa.struct([("d", WIDE.type)])),
        pa.MapArray.from_arrays(
            pa.array([0, 1, 2, 3], pa.int32()),
            pa.array(["a", "b", "c"]),
            pa.StructArray.from_arrays([WIDE], ["d"]),
        ),
    ),
    "two fields of one name": (
        pa.struct([("a", pa.int64())]),
        pa.StructArray.from_arrays(
            [pa.array([1, 2, 3]), pa.array([4, 5, 6])],
            fields=[pa.field("a", pa.int64()), pa.field("a", pa.int64())],
        ),
    ),
    "another field": (
        pa.struct([("a", pa.int64())]),
        pa.array([{"b": 1}] * 3, pa.struct([("b", pa.int64())])),
    ),
    "a wider number in a list": (
        pa.list_(pa.int32()),
        pa.array([[1]] * 3, pa.list_(pa.int64())),
    ),
    "uint64": (pa.int64(), pa.array([1, 2, 3], pa.uint64())),
    "runs": (pa.int64(), pc.run_end_encode(pa.array([1, 1, 2]))),
    "uuids": (pa.string(), pa.array([b"0" * 16] * 3, pa.uuid())),
    "JSON": (pa.string(), pa.array(["1"] * 3, pa.json_())),
    "time": (pa.timestamp("us"), pa.array([1, 2, 3], pa.time64("us"))),
    "duration": (pa.int64(), pa.array([1, 2, 3], pa.duration("s"))),
}


@pytest.mark.hazard("W3")
@pytest.mark.parametrize("case", REFUSED)
def test_w3_what_does_not_fit_is_refused_by_name(case):
    kind, given = REFUSED[case]
    table = table_of(kind)
    with pytest.raises(errors.InvalidInput, match="column 'x'") as caught:
        append(table, pa.table({"at": THREE, "x": given}))
    assert "\n" not in caught.value.message
    assert table.refresh().version == 0


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    "kind",
    [pa.uint64(), pa.binary(3), pa.time32("s"), pa.time64("us"), pa.duration("s"), pa.null(),
     pa.month_day_nano_interval(), pa.decimal256(50, 2), pa.uuid(), pa.json_(), pa.bool8(),
     pa.fixed_shape_tensor(pa.int8(), [2]), pa.run_end_encoded(pa.int32(), pa.int64()),
     pa.list_view(pa.int64()), pa.dense_union([pa.field("a", pa.int8())]), pa.struct([])],
    ids=str,
)  # fmt: skip
def test_w3_types_that_a_table_does_not_have_are_refused_by_name(kind):
    for wanted in (kind, pa.list_(kind), pa.struct([("f", kind)])):
        with pytest.raises(errors.InvalidInput, match="column 'x' has type"):
            table_of(wanted)


@pytest.mark.hazard("W3")
def test_w3_categories_of_polars_and_pandas_are_texts():
    levels = ["high", "low"]
    frames = [
        pl.DataFrame({"x": pl.Series(["low", None, "high"], dtype=pl.Categorical)}),
        pl.DataFrame({"x": pl.Series(["low", None, "high"], dtype=pl.Enum(levels))}),
        pd.DataFrame({"x": pd.Categorical(["low", None, "high"], levels, ordered=True)}),
        pd.DataFrame({"x": pd.array(["low", None, "high"], "string")}),
    ]
    for frame in frames:
        frame = frame.assign(at=THREE.to_pandas()) if isinstance(frame, pd.DataFrame) else (  # noqa: PLW2901
            frame.with_columns(at=pl.from_arrow(THREE)))  # fmt: skip
        table = table_of(pa.string())
        append(table, frame)
        assert scan(table).to_table().column("x").to_pylist() == ["low", None, "high"]


DATE, NAIVE = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 12, 30)
EAST = dt.timezone(dt.timedelta(hours=5))
AWARE = NAIVE.replace(tzinfo=EAST)
FINE = pd.Timestamp("2020-01-01 12:30:00.000000001")
US = pa.timestamp("us")


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("kind", "values", "why"),
    [
        (pa.date32(), [DATE, NAIVE], "a time of day"),
        (US, [DATE, None, NAIVE], "a time of day"),
        (AT, [DATE, AWARE.replace(hour=0, minute=0)], "a zone among dates"),
        (pa.list_(pa.date32()), [[DATE], None, (DATE, NAIVE)], "a time of day"),
        (pa.struct([("a", pa.date32())]), [{"a": DATE}, {"a": NAIVE}], "a time of day"),
        (pa.list_(pa.struct([("a", US)])), [[{"a": NAIVE}], [{"a": FINE}]], "nanoseconds"),
        (pa.date32(), pd.Categorical([DATE, NAIVE]), "a time of day"),
        (US, [NAIVE, pd.NaT, AWARE], "a zone among times"),
        (AT, [AWARE, FINE.tz_localize("UTC")], "nanoseconds"),
        (US, [FINE, pd.NA], "nanoseconds"),
        (AT, [AWARE, 0], "a number among (dates|times)"),
        (US, [NAIVE, Decimal("1.5")], "a number among (dates|times)"),
        (pa.date32(), [DATE, 1.5], "a number among (dates|times)"),
        (pa.int64(), [1, None, np.float16(1.5)], "the fraction of a number"),
        (pa.list_(pa.int64()), [[1], [np.float16(1.5)]], "the fraction of a number"),
        (pa.float64(), [0.5, np.longdouble(2**53) + 1], "digits of a number"),
        (pa.int64(), [1, np.bool_(1)], "a truth value"),
        (pa.float64(), [1.5, True], "a truth value"),
        (pa.list_(pa.float64()), [[1.5], [True]], "a truth value"),
        (pa.list_(pa.int64()), [[1], np.array([True])], "a truth value"),
        (pa.list_(pa.int64()), [[1], np.array([1.5], "f2")], "the fraction of a number"),
        (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": np.float16(2.75)}], "the fraction of"),
        (US, [NAIVE, Decimal("sNaN")], "a number among times"),
        (pa.date32(), [DATE, pd.Timestamp("2020-01-01 00:00:00.000000005")], "a time of day"),
        (AT, [AWARE, NAIVE.replace(tzinfo=dt.timezone(dt.timedelta(microseconds=3)))], "an offset"),
        (pa.binary(), [b"a", "b"], "a text among bytes"),
        (pa.list_(pa.string()), [["a"], np.array([b"b"])], "bytes among texts"),
        (pa.list_(pa.int64()), [np.ma.masked_array([1, 2], [True, False])], "masked"),
        (pa.struct([("a", pa.string())]), [{"a": "b"}, {b"a": "c"}], "names are bytes"),
    ],
)
def test_w3_python_objects_of_a_frame_that_arrow_would_cut_are_refused(kind, values, why):
    """Arrow takes the type of the first and fits the others to it."""
    values = pd.Series(values) if isinstance(values, pd.Categorical) else values
    frame = pd.DataFrame({"x": pd.Series(values, dtype=getattr(values, "dtype", object))})
    frame["at"] = pd.Timestamp(0)
    table = create(schema=pa.schema([("at", AT), ("x", kind)]))
    given = [frame]
    if kind == pa.date32():  # of other values pandas makes an index of another type
        given += [frame.set_index("x"), frame.set_index(["at", "x"])]
    for rows in given:
        with pytest.raises(errors.InvalidInput, match=f"column 'x' contains Python objects.*{why}"):
            append(table, rows)
    assert table.session.head().version == 0


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (pa.date32(), [DATE, pd.NaT, None, dt.datetime(2020, 1, 1)], [DATE, None, None, DATE]),
        (pa.date32(), [pd.NA, DATE, float("nan")], [None, DATE, None]),
        (US, [NAIVE, pd.NaT, pd.Timestamp(NAIVE)], [NAIVE, None, NAIVE]),
        (AT, [AWARE, AWARE.astimezone(dt.UTC)], [AWARE, AWARE]),
        (pa.list_(US), [[NAIVE], None, [pd.NaT]], [[NAIVE], None, [None]]),
        (pa.list_(US), [np.array([NAIVE], "M8[us]"), None], [[NAIVE], None]),
        (US, [np.datetime64(NAIVE), None], [NAIVE, None]),
        (pa.int64(), [1, None, pd.NA, float("nan"), np.float16(2)], [1, None, None, None, 2]),
        (pa.int64(), [np.int64(2**63 - 1), np.int64(-1)], [2**63 - 1, -1]),
        (pa.list_(pa.int16()), [np.array([1, 2], "i2"), (), None], [[1, 2], [], None]),
        (
            pa.list_(pa.float64()),
            [np.array([1.5, np.nan]), [0.5, None, 1]],
            [[1.5, None], [0.5, None, 1.0]],
        ),
        (
            pa.float64(),
            [np.float32(0.5), 1, np.float64(2), None, np.int8(3)],
            [0.5, 1.0, 2.0, None, 3.0],
        ),
        (pa.bool_(), [True, None, np.bool_(0)], [True, None, False]),
        (
            pa.struct(
                [("n", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("b", pa.binary())]
            ),
            [{"n": 1, "s": "Oslo", "d": DATE, "b": b"x"}, {"s": None}, None],
            [
                {"n": 1, "s": "Oslo", "d": DATE, "b": b"x"},
                dict.fromkeys("nsdb"),
                None,
            ],
        ),
        (
            pa.list_(pa.struct([("s", pa.string()), ("f", pa.float64())])),
            [[{"s": "a", "f": 0.5}], [], None],
            [[{"s": "a", "f": 0.5}], [], None],
        ),
        (pa.string(), ["a", None, np.str_("b")], ["a", None, "b"]),
        (pa.int64(), [pa.scalar(None, pa.int64()), pa.scalar(3)], [None, 3]),
        (pa.date32(), [pa.scalar(DATE)], [DATE]),
        (pa.date32(), pd.Categorical([DATE], categories=[DATE, NAIVE]), [DATE]),
        (pa.binary(), [b"a", None], [b"a", None]),
        (US, [np.datetime64(NAIVE), np.float64("nan")], [NAIVE, None]),
        (
            pa.struct([("t", US), ("v", pa.float64())]),
            [{"t": np.datetime64(NAIVE), "v": np.float64(1.5)}],
            [{"t": NAIVE, "v": 1.5}],
        ),
        (pa.list_(pa.float64()), [np.ma.array([1.0, 2.0])], [[1.0, 2.0]]),
        (pa.list_(pa.bool_()), [np.array([True]), None], [[True], None]),
        (pa.list_(pa.float64()), [np.array([0.5]), np.array([2, 2**53])], [[0.5], [2.0, 2.0**53]]),
        (pa.decimal128(5, 2), [Decimal("1.50"), None], [Decimal("1.50"), None]),
    ],
)
def test_w3_python_objects_of_a_frame_that_are_whole_are_taken(kind, values, wanted):
    kept = values if isinstance(values, pd.Categorical) else pd.Series(values, dtype=object)
    frame = pd.DataFrame({"x": kept, "at": pd.Timestamp(0)})
    table = create(schema=pa.schema([("at", AT), ("x", kind)]))
    append(table, frame)
    found = scan(table).to_table().column("x").to_pylist()
    assert found == wanted
    assert list(map(type, found)) == list(map(type, wanted))


@pytest.mark.hazard("W3")
def test_w3_categories_inside_lists_and_structs_are_texts():
    values = ["low", "high"]
    lists = pl.DataFrame({"at": pl.from_arrow(THREE), "x": [values, None, []]},
                         schema_overrides={"x": pl.List(pl.Categorical)})  # fmt: skip
    table = table_of(pa.list_(pa.string()))
    append(table, lists)
    assert scan(table).to_table().column("x").to_pylist() == [values, None, []]


def test_a_zone_that_nobody_knows_is_in_the_message():
    table = table_of(AT)
    times = pa.array([1500, 0, 0]).view(pa.timestamp("ns", "UTC+3"))
    with pytest.raises(errors.InvalidInput, match=r"column 'x'.*1970-01-01 00:00:00.000001500"):
        append(table, pa.table({"at": THREE, "x": times}))


@pytest.mark.parametrize("row", [5, 5000])
def test_a_library_that_fails_over_its_rows_is_told_of(row):
    """DuckDB computes its first rows while the stream is opened, and the others later."""
    value = f"CASE WHEN i = {row} THEN ('x' || i)::BIGINT ELSE i END"
    rows = duckdb.sql(f"SELECT TIMESTAMPTZ '2020-01-01' AS at, {value} AS x FROM range(9999) r(i)")
    table = table_of(pa.int64())
    with pytest.raises(errors.InvalidInput, match="Could not convert string"):
        append(table, rows)
    assert table.refresh().version == 0


@pytest.mark.parametrize("source", [pd.DataFrame({"at": [object()]}), pd.DataFrame])
def test_rows_without_a_form_in_arrow_are_refused(source):
    with pytest.raises(errors.InvalidInput):
        append(create(), source)


def test_decimals_of_every_width_are_taken():
    kinds = [pa.decimal128(9, 2), pa.decimal256(9, 2)]
    if hasattr(pa, "decimal32"):
        kinds += [pa.decimal32(9, 2), pa.decimal64(9, 2)]
    for kind in kinds:
        table = table_of(pa.decimal128(12, 2))
        append(table, pa.table({"at": THREE, "x": pa.array([Decimal("1.25"), None, -1], kind)}))
        assert scan(table).to_table()["x"].to_pylist() == [Decimal("1.25"), None, -1]


FAR = [-(2**62), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**62]


# Microseconds whose years wrap around to some between 1 and 9999 where a month or a year is found.
FAR += [8_213_794_561_484_772_545, 8_342_437_786_441_781_908]


@pytest.mark.parametrize("granularity", ["all", "year", "month", "day"])
@pytest.mark.parametrize("kind", [AT, pa.timestamp("us"), pa.date32()], ids=str)
def test_event_times_outside_the_years_1_to_9999_are_refused(kind, granularity):
    day = 86_400 * 10**6
    for micros in FAR:
        schema = pa.schema([("at", kind)])
        table = create(schema=schema, granularity=granularity)
        date = pa.types.is_date(kind)
        times = pa.array([micros // day if date else micros], pa.int32() if date else pa.int64())
        with pytest.raises(errors.InvalidInput, match="outside the years 0001 to 9999"):
            append(table, pa.table({"at": times.view(kind)}))
        assert table.refresh().version == 0


LATER = {
    "a column that the table lacks": {"at": THREE, "x": [1, 2, 3], "y": [1, 2, 3]},
    "another spelling": {"at": THREE, "X": [1, 2, 3]},
    "fewer columns": {"at": THREE},
    "text": {"at": THREE, "x": ["7", "8", "9"]},
    "doubles": {"at": THREE, "x": [1.0, 2.0, 3.0]},
    "times": {"at": THREE, "x": THREE},
}


@pytest.mark.parametrize("what", LATER)
def test_a_batch_that_is_not_as_its_stream_said_is_refused(what):
    table = table_of(pa.int64())
    first = pa.record_batch({"at": THREE, "x": pa.array([1, 2, 3])})
    rows = [first, pa.record_batch(LATER[what])]
    with pytest.raises(errors.InvalidInput, match="column"):
        append(table, pa.RecordBatchReader.from_batches(first.schema, iter(rows)))
    assert table.refresh().version == 0


def test_batches_of_a_stream_may_differ_in_what_fits():
    table = table_of(pa.int64())
    first = pa.record_batch({"at": THREE, "x": pa.array([1, 2, 3])})
    rows = [first, pa.record_batch({"at": THREE, "x": pa.array([4, 5, None], pa.int16())})]
    append(table, pa.RecordBatchReader.from_batches(first.schema, iter(rows)))
    assert scan(table).to_table()["x"].to_pylist() == [1, 2, 3, 4, 5, None]


def test_a_damaged_dictionary_is_refused_by_name():
    times = pa.array([0] * 20, AT)
    texts = pa.array([f"s{n % 3}" for n in range(20)]).dictionary_encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("at", AT), ("x", texts.type)])) as out:
        out.write_table(pa.table({"at": times, "x": texts}))
    body = bytearray(sink.getvalue().to_pybytes())
    # The dictionary claims 2^43 + 3 texts; Arrow reads where it says, unless it is told to look.
    body[body.rfind((3).to_bytes(8, "little")) + 5] = 0x08
    table = table_of(pa.string())
    with pytest.raises(errors.InvalidInput, match="damaged"):
        append(table, pa.ipc.open_stream(bytes(body)))
    assert count(table) == 0


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32()])
def test_an_offset_is_refused_where_the_time_column_has_no_zone(kind):
    table = create(schema=pa.schema([("at", kind)]))
    shifted = ["2013-01-07T05:00:00+02:00", "2013-01-07 05:00:00-0030", "2013-01-07T00+01"]
    for text in shifted:
        with pytest.raises(errors.InvalidInput, match="offset from UTC"):
            append(table, pa.table({"at": [text]}))
    append(table, pa.table({"at": ["2013-01-07", "2013-01-07T00:00:00"]}))
    assert count(table) == 2


def test_text_with_a_time_of_day_is_no_date():
    table = create(schema=pa.schema([("at", pa.date32())]), granularity="year")
    for text, why in (
        ("2013-01-07T05:00:00", "1 event times have a time of day"),
        ("2013-01-07T00:00:00+09:00", "1 event times have an offset"),
    ):
        with pytest.raises(errors.InvalidInput, match=why):
            append(table, pa.table({"at": ["2013-01-07", text]}))
    append(table, pa.table({"at": ["2013-01-07", "2013-01-08T00:00:00Z"]}))
    days = scan(table).to_table().column("at").to_pylist()
    assert days == [dt.date(2013, 1, 7), dt.date(2013, 1, 8)]


def test_a_batch_that_repeats_a_long_text_is_written_piece_by_piece(monkeypatch):
    """A view or a category takes a few bytes a row; what they stand for may pass 32-bit offsets."""
    monkeypatch.setattr("eventlog.staging.stager.pieces", lambda batch: pieces(batch, 2**20))
    seen = []
    monkeypatch.setattr(
        "eventlog.staging.stager.conform", lambda *args: seen.append(conform(*args)) or seen[-1]
    )
    texts = [chr(65 + n) * 2**16 for n in range(4)]
    rows = 64
    categories = pa.DictionaryArray.from_arrays(pa.array([n % 4 for n in range(rows)]), texts)
    for given in (categories, pa.array([texts[n % 4] for n in range(rows)], pa.string_view())):
        table = table_of(pa.string(), granularity="year")
        append(table, pa.table({"at": pa.array(range(rows), AT), "x": given}))
        found = scan(table, ["x"]).to_table().column(0).to_pylist()
        assert found == [texts[n % 4] for n in range(rows)]
    assert max(part.nbytes for part in seen) <= 2**20 + 64 * rows
    assert len(seen) >= 8


@pytest.mark.skipif("EVENTLOG_EXAMPLES" not in os.environ, reason="takes 5 GiB and a minute")
@pytest.mark.parametrize("rows", [2_500, 5_000])
def test_text_past_32_bits_in_one_batch_is_whole(rows):
    """2.5 and 5 GB of text in one batch, of one buffer that all views share."""
    long = pa.array(["x" * 10**6], pa.string_view())
    words = bytes(long.buffers()[1])
    view = pa.Array.from_buffers(
        pa.string_view(), rows, [None, pa.py_buffer(words * rows), *long.buffers()[2:]]
    )
    table = table_of(pa.string(), granularity="year")
    append(table, pa.table({"at": pa.array(range(rows), AT), "x": view}))
    assert count(table, "length(x) = 1000000") == rows


@pytest.mark.skipif("EVENTLOG_EXAMPLES" not in os.environ, reason="takes 5 GiB and a minute")
def test_one_text_past_32_bits_is_refused_by_name():
    long = pa.array([b"x" * 2**31], pa.large_binary()).cast(pa.large_string())
    table = table_of(pa.string())
    with pytest.raises(errors.InvalidInput, match="column 'x'"):
        append(table, pa.table({"at": THREE.slice(0, 1), "x": long}))
