"""Appending: what comes in is what comes out, or the call says what is wrong with it."""

import array
import datetime as dt
import io
import itertools
from contextlib import contextmanager
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import builders
from support.builders import SCHEMA, check_sound, create, events, live, reopen
from support.effort import calls_of

from eventlog import errors
from eventlog.format import codec, keys
from eventlog.model.chunks import parse_chunk
from eventlog.readers import scan
from eventlog.staging.stager import MIN_MEMORY_BYTES
from eventlog.writers import append, overwrite

UTC = dt.UTC
AT = dt.datetime(2013, 1, 7, 5, 30, tzinfo=UTC)


def contents(table, columns=None):
    """All rows as dicts, by event time."""
    rows = []
    for segment in live(table.refresh()):
        body = table.store.get(keys.key_of(segment))
        rows += pq.read_table(io.BytesIO(body), columns=columns).to_pylist()
    return sorted(rows, key=lambda row: row["at"])


def one(kind, value, **options):
    """A table with one more column, one row in it, and what the column then holds."""
    table = create(schema=pa.schema([SCHEMA.field("at"), ("x", kind)]), **options)
    append(table, value)
    (row,) = contents(table)
    return row["x"]


def test_every_segment_holds_one_chunk_and_says_what_is_in_it():
    table = create()
    assert append(table, events(100, days=7)) == 1
    found = live(table.session.head())
    assert len(found) == 7
    assert sorted(builders.row_names(table)) == sorted(f"row {n}" for n in range(100))
    for segment in found:
        body = table.store.get(keys.key_of(segment))
        rows = pq.read_table(io.BytesIO(body))
        assert (segment.bytes, segment.checksum) == (len(body), codec.sha256(body))
        assert (segment.rows, segment.epoch, segment.version) == (rows.num_rows, 0, 1)
        span = parse_chunk(segment.chunk)
        low, high = (int(v.timestamp() * 1000) for v in (min(rows["at"].to_pylist()),
                                                          max(rows["at"].to_pylist())))  # fmt: skip
        assert span.start <= low <= high < span.end
        assert segment.stats[0].min == low * 1000 or segment.stats[0].min // 1000 == low


@pytest.mark.parametrize(
    "shape",
    [
        lambda t: t,
        lambda t: t.to_reader(),
        lambda t: t.to_batches()[0],
        lambda t: t.to_pandas(),
        lambda t: __import__("polars").from_arrow(t),
        lambda t: __import__("duckdb").from_arrow(t),
        lambda t: pa.concat_tables([t.slice(0, 3), t.slice(3)]),
        lambda t: t.select(["value", "at", "name"]),
    ],
    ids=["table", "reader", "batch", "pandas", "polars", "duckdb", "chunked", "reordered"],
)
def test_anything_with_an_arrow_stream_is_taken(shape):
    table = create()
    append(table, shape(events(7, days=2)))
    assert builders.row_names(table) == [f"row {n}" for n in (0, 2, 4, 6, 1, 3, 5)]


def test_a_handle_that_is_behind_takes_columns_that_were_added_since():
    table = create()
    behind = reopen(table.store)
    wider = pa.schema([*SCHEMA, ("tags", pa.list_(pa.string())), ("n", pa.int64())])
    rows = pa.table([*events(2).columns, [["a"], None], [1, 2]], schema=wider)
    with pytest.raises(errors.InvalidInput, match="unknown columns: 'tags', 'n'"):
        append(behind, rows)
    table.add_columns(wider)
    assert append(behind, rows) == 2
    assert append(behind, rows.to_reader(max_chunksize=1)) == 3
    with pytest.raises(errors.InvalidInput, match="unknown columns: 'other'"):
        append(behind, rows.append_column("other", [[1, 2]]))
    check_sound(table.store)


def test_a_handle_that_is_behind_takes_nulls_at_the_second_try():
    required = pa.schema([SCHEMA.field("at"), pa.field("x", pa.int64(), nullable=False)])
    table = create(schema=required)
    behind = reopen(table.store)
    table.relax_columns(["x"])
    rows = pa.table({"at": events(2)["at"], "x": [1, None]})
    with pytest.raises(errors.InvalidInput, match="values are null"):
        append(behind, rows)
    assert append(behind, rows) == 2


def test_a_handle_that_is_behind_takes_rows_without_a_column_that_need_not_be_there_any_more():
    strict = pa.schema([SCHEMA.field("at"), pa.field("name", pa.string(), nullable=False)])
    table = create(schema=strict)
    behind = reopen(table.store)
    table.relax_columns(["name"])
    assert append(behind, events(2).select(["at"])) == 2


@pytest.mark.parametrize(
    ("thing", "way"),
    [
        (None, "__arrow_c_stream__"),
        (5, "__arrow_c_stream__"),
        (object(), "__arrow_c_stream__"),
        ("text", "dataset\\('text'\\)"),
        ([1], "pass dicts"),
        ({"at": [AT]}, "pyarrow.table"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused(thing, way):
    with pytest.raises(errors.InvalidInput, match=way):
        append(create(), thing)


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        (pa.int64(), pa.array([7], pa.int8()), 7),
        (pa.int64(), pa.array([7], pa.uint32()), 7),
        (pa.float64(), pa.array([7], pa.int32()), 7.0),
        (pa.float64(), pa.array([0.5], pa.float32()), 0.5),
        (pa.string(), pa.array(["a"], pa.large_string()), "a"),
        (pa.string(), pa.array(["a"]).dictionary_encode(), "a"),
        (pa.string(), pa.array(["a"], pa.string_view()), "a"),
        (pa.timestamp("us"), pa.array([AT.date()]), dt.datetime(2013, 1, 7)),
        (pa.timestamp("us", "UTC"), pa.array([AT], pa.timestamp("ms", "UTC")), AT),
        (pa.timestamp("us", "UTC"), pa.array([AT], pa.timestamp("ns", "Asia/Tokyo")), AT),
        (pa.decimal128(10, 4), pa.array([Decimal("1.5")], pa.decimal128(5, 1)), Decimal("1.5")),
        (pa.list_(pa.int64()), pa.array([[1, None]], pa.large_list(pa.int16())), [1, None]),
        (pa.int64(), pa.nulls(1), None),
        (pa.struct([("a", pa.int64())]), pa.array([{"a": 1}], pa.struct([("a", pa.int8())])),
         {"a": 1}),
    ],
    ids=lambda v: str(getattr(v, "type", v))[:20],
)  # fmt: skip
def test_what_fits_without_loss_is_cast(kind, given, kept):
    assert one(kind, pa.table({"at": pa.array([AT], SCHEMA.field("at").type), "x": given})) == kept


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.int64(), pa.array(["7"])),
        (pa.int64(), pa.array([7.0])),
        (pa.int32(), pa.array([7], pa.int64())),
        (pa.int64(), pa.array([7], pa.uint64())),
        (pa.float32(), pa.array([7.0])),
        (pa.string(), pa.array([b"a"])),
        (pa.string(), pa.array([5])),
        (pa.bool_(), pa.array([1])),
        (pa.timestamp("us"), pa.array([AT])),
        (pa.decimal128(5, 1), pa.array([Decimal("1.25")], pa.decimal128(5, 2))),
        (pa.struct([("a", pa.int64())]), pa.array([{"b": 1}])),
        (pa.list_(pa.int64()), pa.array([["a"]])),
    ],
    ids=lambda v: str(getattr(v, "type", v))[:20],
)
def test_what_would_lose_something_is_refused_by_name(kind, given):
    with pytest.raises(errors.InvalidInput, match="'x'"):
        one(kind, pa.table({"at": pa.array([AT], SCHEMA.field("at").type), "x": given}))


def with_column(name, values):
    index = SCHEMA.get_field_index(name)
    return events(len(values)).set_column(index, name, values)


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (lambda: events(1).append_column("more", pa.array([1])), "unknown columns: 'more'"),
        (lambda: events(1).append_column("name", pa.array(["x"])), "two columns 'name'"),
        (lambda: events(1).drop_columns(["at"]), "'at' is missing"),
        (lambda: with_column("at", pa.array([None, AT], SCHEMA.field("at").type)), "1 event times"),
        (lambda: with_column("at", pa.array(["2013-01-07", "soon", "later"])), "2 event times"),
        (lambda: with_column("at", pa.array([AT], pa.timestamp("ns", "UTC")).cast(pa.int64())
                             .cast(pa.timestamp("ns")).cast(pa.int64())), "'at' has type int64"),
        (lambda: with_column("at", pa.array([2**62], pa.timestamp("us", "UTC"))), "years 0001"),
        (lambda: with_column("at", pa.array([1], pa.timestamp("ns", "UTC"))), "do not fit"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_and_nothing_is_committed(rows, why):
    table = create()
    with pytest.raises(errors.InvalidInput, match=why):
        append(table, rows())
    assert table.refresh().version == 0


def test_a_few_odd_values_among_many_are_found_in_a_few_steps():
    many, place = 10_000, 1_234
    times = pa.array(range(many), pa.int64()).cast(pa.timestamp("us", "UTC"))
    texts = times.cast(pa.string()).to_pylist()
    texts[place] = texts[place].removesuffix("Z")  # without an offset, in UTC as well
    table = create()
    rows = events(many).set_column(SCHEMA.get_field_index("at"), "at", pa.array(texts))
    append(create(), events(1))  # the first one of a program imports more
    assert calls_of(lambda: append(table, rows)) < many / 3
    assert live(table.session.head())[0].rows == many
    mixed = [text.removesuffix("Z") if n % 2 else text for n, text in enumerate(texts)]
    mixed[7], mixed[8] = "1970-01-01T05:00:00.000007+0500", None
    wanted = pa.array([None if n == 8 else n for n in range(many)], pa.int64())
    some = rows.set_column(SCHEMA.get_field_index("at"), "at", pa.array(mixed))
    other = create()
    assert calls_of(lambda: append(other, some.filter(wanted.is_valid()))) < many / 3
    found = scan(other, columns=["at"]).to_table()["at"].cast(pa.int64())
    assert found.combine_chunks().equals(wanted.drop_null())
    texts[place] = "soon"
    rows = rows.set_column(SCHEMA.get_field_index("at"), "at", pa.array(texts))

    def refused():
        with pytest.raises(errors.InvalidInput, match=r"1 event times cannot be read.*'soon'"):
            append(table, rows)

    assert calls_of(refused) < many / 3
    units = pa.array([1000 * n + (n == place) for n in range(many)], pa.timestamp("ns", "UTC"))
    rows = rows.set_column(SCHEMA.get_field_index("at"), "at", units)

    def cut():
        with pytest.raises(errors.InvalidInput, match=r"1 values do not fit.*001234001"):
            append(table, rows)

    assert calls_of(cut) < many / 3


def test_bad_rows_after_good_ones_are_all_counted():
    good, bad = events(5), with_column("at", pa.nulls(4, SCHEMA.field("at").type))
    rows = pa.RecordBatchReader.from_batches(
        SCHEMA, [*good.to_batches(), *bad.to_batches(), *good.to_batches(), *bad.to_batches()]
    )
    table = create()
    with pytest.raises(errors.InvalidInput, match="8 event times are null"):
        append(table, rows)
    assert table.refresh().version == 0


@pytest.mark.hazard("W2")
def test_a_stream_that_breaks_commits_nothing():
    def broken():
        yield events(3).to_batches()[0]
        raise ValueError("the source is gone")

    table = create()
    with pytest.raises((errors.InvalidInput, ValueError), match="gone"):
        append(table, pa.RecordBatchReader.from_batches(SCHEMA, broken()))
    assert table.refresh().version == 0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2013-01-07T05:30:00Z", AT),
        ("2013-01-07 05:30:00", AT),
        ("2013-01-07T06:30:00+01:00", AT),
        ("2013-01-07", dt.datetime(2013, 1, 7, tzinfo=UTC)),
        ("2013-01-07T05:30:00.123456Z", AT.replace(microsecond=123_456)),
    ],
)
def test_event_times_may_be_iso_8601_text(text, moment):
    table = create()
    append(table, with_column("at", pa.array([text])))
    append(table, with_column("at", pa.array([text, "2014-01-01T00:00:00Z", "2015-01-01"])))
    assert [row["at"] for row in contents(table)][:2] == [moment, moment]


@pytest.mark.parametrize("granularity", ["hour", "day", "month", "year", "all"])
@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str
)
def test_rows_at_the_edges_of_chunks_and_of_time(granularity, kind):
    schema = pa.schema([("at", kind), ("n", pa.int64())])
    moments = [
        dt.datetime(1, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        dt.datetime(1970, 1, 1),
        dt.datetime(2012, 2, 29, 23),
        dt.datetime(2012, 3, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59),
    ]
    values = [m.date() if kind == pa.date32() else m for m in moments]
    table = create(schema=schema, granularity=granularity)
    append(table, pa.table({"at": pa.array(values, kind), "n": range(6)}, schema=schema))
    rows = contents(table)
    assert [row["n"] for row in rows] == list(range(6))
    assert sum(s.rows for s in live(table.session.head())) == 6
    assert (len(live(table.session.head())) == 1) == (granularity == "all")
    check_sound(table.store)


def test_rows_are_sorted_inside_a_segment_where_the_table_says_so():
    table = create(order_by=["name"])
    append(table, events(20).sort_by([("name", "descending")]))
    (segment,) = live(table.session.head())
    body = table.store.get(keys.key_of(segment))
    names = pq.read_table(io.BytesIO(body))["name"].to_pylist()
    assert names == sorted(names)


def test_missing_columns_are_null():
    table = create()
    append(table, events(1).select(["at"]))
    assert contents(table)[0]["name"] is None


@pytest.mark.verify
def test_memory_is_bounded_where_one_batch_lacks_most_columns():
    """A two-hundredth of what its rows take comes in; the nulls are made here."""
    at, many = SCHEMA.field("at"), 40_000
    table = create(schema=pa.schema([at, *((f"c{n}", pa.int64()) for n in range(200))]))
    times = pa.array(range(many), pa.int64()).cast(pa.timestamp("us")).cast(at.type)
    with counted_memory() as pool:
        append(table, pa.table({"at": times}), memory_bytes=2**24)
    assert sum(s.rows for s in live(table.session.head())) == many
    assert pool.max_memory() < 2**25 < many * 8 * 200 / 1.5


@pytest.mark.verify
def test_memory_is_bounded_where_lists_hold_truth_values():
    """An eighth of a byte each in Arrow, and several while Parquet is written."""
    at, rows, items = SCHEMA.field("at"), 200, 100_000
    table = create(schema=pa.schema([at, ("flags", pa.list_(pa.bool_()))]))
    bits = pa.py_buffer(bytes(rows * items // 8))
    held = pa.Array.from_buffers(pa.bool_(), rows * items, [None, bits])
    offsets = pa.array(range(0, rows * items + 1, items), pa.int32())
    times = pa.array(range(rows), pa.int64()).cast(pa.timestamp("us")).cast(at.type)
    given = pa.table({"at": times, "flags": pa.ListArray.from_arrays(offsets, held)})
    with counted_memory() as pool:
        append(table, given, memory_bytes=2**24)
    assert sum(s.rows for s in live(table.session.head())) == rows
    assert pool.max_memory() < 3 * 2**25 < rows * items * 6
    assert len(live(table.session.head())) == 1


@contextmanager
def counted_memory():
    """Arrow's memory from here on, counted."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_nothing_to_append_commits_nothing_without_an_app_id():
    table = create()
    assert append(table, SCHEMA.empty_table()) == 0
    assert append(table, SCHEMA.empty_table(), app_id="job", app_seq=0) == 1
    assert append(reopen(table.store), events(1), app_id="job", app_seq=0) == 1
    assert table.refresh().totals.rows == 0


@pytest.mark.parametrize("memory", [MIN_MEMORY_BYTES, 4 * MIN_MEMORY_BYTES])
def test_a_small_budget_of_memory_makes_more_segments_of_the_same_rows(memory):
    table = create()
    rows = events(60_000, days=3)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows.to_batches(max_chunksize=4096))
    assert append(table, reader, memory_bytes=memory) == 1
    found = live(table.session.head())
    assert len(found) >= 3
    assert sum(s.rows for s in found) == 60_000
    assert set(builders.row_names(table)) == set(rows["name"].to_pylist())
    with pytest.raises(errors.InvalidInput):
        append(table, rows, memory_bytes=MIN_MEMORY_BYTES - 1)


def test_a_chunk_with_more_than_a_segment_is_cut_into_several():
    table = create(properties={"segment_bytes": "10000"})
    append(table, events(5_000), memory_bytes=MIN_MEMORY_BYTES)
    assert len({s.chunk for s in live(table.session.head())}) == 1
    assert sum(s.rows for s in live(table.session.head())) == 5_000


def test_an_old_handle_appends_with_the_schema_that_it_knows():
    table = create()
    old = reopen(table.store)
    table.add_columns(SCHEMA.append(pa.field("extra", pa.int64())))
    append(old, events(1))
    with pytest.raises(errors.InvalidInput, match="extra"):
        append(reopen(create().store), events(1).append_column("extra", pa.array([1])))
    head = check_sound(table.store).session.head()
    assert [s.schema for s in live(head)] == [1]
    assert head.schema.names[-1] == "extra"


def test_statistics_follow_the_property():
    table = create(properties={"stats_columns": "1"})
    append(table, events(3))
    table.set_properties({"stats_columns": "name"})
    append(table, events(3, first=3))
    assert [
        [x.column for x in s.stats]
        for s in sorted(live(table.session.head()), key=lambda s: s.version)
    ] == [
        [1],
        [1, 2],
    ]


@pytest.mark.hazard("W2")
@pytest.mark.parametrize("last", [None, 1])
def test_a_stream_that_was_read_is_not_taken_again(last):
    # What is left of it after a failure, or after it was appended, is not the rows.
    table = create()

    def batches():
        yield from events(2).to_batches()
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([last], SCHEMA.field(0).type),
                *(pa.nulls(1, f.type) for f in list(SCHEMA)[1:]),
            ],
            schema=SCHEMA,
        )

    stream = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    if last is None:
        with pytest.raises(errors.InvalidInput, match="null"):
            append(table, stream, app_id="job", app_seq=1)
    else:
        append(table, stream, app_id="job", app_seq=1)
    before = table.session.head().version
    with pytest.raises(errors.InvalidInput, match="read before"):
        append(table, stream, app_id="job", app_seq=2)
    with pytest.raises(errors.InvalidInput, match="read before"):
        overwrite(table, stream)
    assert table.refresh().version == before
    append(table, events(2), app_id="job", app_seq=3)
    assert table.session.head().totals.rows == (2 if last is None else 5)


def test_rows_far_inside_of_a_large_array_are_taken(tmp_path):
    """Of large types, whose offsets take 64 bits; the file behind them takes no room."""
    file = tmp_path / "text"
    words = [b"first", b"second", b"third"]
    start = 2**31 + 7
    with file.open("wb") as out:
        out.seek(start)
        out.write(b"".join(words))
    with pa.memory_map(str(file)) as mapped:
        held = mapped.read_buffer()
        ends = list(itertools.accumulate(map(len, words), initial=start))
        offsets = pa.py_buffer(array.array("q", [0, *ends]).tobytes())
        texts = pa.Array.from_buffers(pa.large_string(), 4, [None, offsets, held])[1:]
        codes = pa.Array.from_buffers(pa.large_binary(), 4, [None, offsets, held])[1:]
        at = pa.array([0, 1, 2], pa.timestamp("us", "UTC"))
        kinds = {"at": at.type, "text": pa.string(), "code": pa.binary()}
        table = create(schema=pa.schema(kinds.items()))
        append(table, pa.table({"at": at, "text": texts, "code": codes}))
    assert scan(table).to_table().to_pydict() == {
        "at": at.to_pylist(),
        "text": ["first", "second", "third"],
        "code": words,
    }


@pytest.mark.parametrize(("first", "through"), [(0, False), (0, True), (1, False)])
def test_of_a_slice_of_structs_only_its_rows_are_taken(first, through):
    """Its stream has arrays that are longer than the structs, or begin before them."""
    table = create(schema=SCHEMA.append(pa.field("x", pa.int64())))
    rows = events(5).append_column("x", pa.nulls(5))
    kept = rows.to_struct_array().slice(first, 2)
    append(table, Through(kept) if through else kept)
    wanted = rows["name"].to_pylist()[first : first + 2]
    assert sorted(row["name"] for row in contents(table)) == sorted(wanted)


def test_lists_that_are_all_empty_over_an_offset_into_nothing_are_taken():
    table = create(schema=pa.schema([SCHEMA.field("at"), ("x", pa.list_(pa.int64()))]))
    nothing = pa.array(range(9), pa.int64()).slice(7, 0)
    at = SCHEMA.field("at").type
    batches = [
        pa.record_batch(
            {
                "at": pa.array([number], pa.int64()).cast(pa.timestamp("us")).cast(at),
                "x": pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), nothing),
            }
        )
        for number in range(2)
    ]
    append(table, pa.Table.from_batches(batches))
    assert [row["x"] for row in contents(table)] == [[], []]


class Through:
    """Rows of which only the stream is known."""

    def __init__(self, rows):
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return self._rows.__arrow_c_stream__(requested_schema)
