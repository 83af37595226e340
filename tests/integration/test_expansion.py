"""Few stored bytes that hold many: what was written is read, in bounded memory."""

from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.builders import DAY_US, commit, create, live, reopen
from support.field_ids import with_ids

from eventlog import compaction, limits
from eventlog.errors import InvalidInput
from eventlog.format import codec, keys
from eventlog.model.actions import Add
from eventlog.model.schema import from_arrow
from eventlog.readers import count, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("n", pa.int64()),
    ]
)
BOUND = 208 * 2**20  # of Arrow: what is read ahead, and a row group; the rows take 300 MB


def padded(rows, width, first=0):
    """Rows as a mainframe sends them: a few texts, each padded with blanks."""
    texts = [f"station {n}".ljust(width) for n in range(10)]
    numbers = range(first, first + rows)
    return pa.table(
        [
            [n * DAY_US // 10**6 for n in numbers],
            pa.array(texts).take(pa.array([n % 10 for n in numbers])),
            [["a", "b"]] * rows,
            list(numbers),
        ],
        schema=SCHEMA,
    )


def nested(rows, width):
    """The padded texts in lists: no column of texts."""
    plain = padded(rows, width)
    lists = pa.ListArray.from_arrays(
        pa.array(range(rows + 1), pa.int32()), plain.column("text").combine_chunks()
    )
    return plain.set_column(1, "text", pa.nulls(rows, pa.string())).set_column(2, "tags", lists)


def check_read(table, rows, width, column="text"):
    """Read every row in bounded memory, with and without a predicate."""
    held, seen, size = pa.total_allocated_bytes(), 0, 0
    for batch in scan(table).to_batches():
        texts = batch.column(column) if column == "text" else batch.column(column).flatten()
        assert pc.all(pc.equal(pc.utf8_length(texts), width)).as_py()
        seen, size = seen + batch.num_rows, size + batch.nbytes
        assert pa.total_allocated_bytes() - held < BOUND
    assert seen == rows
    assert size >= rows * width
    assert sum(b.num_rows for b in scan(table, [column], where="n >= 7").to_batches()) == rows - 7
    assert count(table, where="n >= 7") == rows - 7
    assert scan(table, ["n"], where="n >= 7").to_table().column("n")[0].as_py() == 7


@pytest.mark.long
@pytest.mark.hazard("W4")
def test_appends_of_padded_text_are_readable_after_compaction():
    store = MemoryStore()
    table = create(store, schema=SCHEMA, granularity="all")
    for n in range(12):
        append(table, padded(5000, 5000, first=5000 * n))
    assert compaction.run(table).count("done")
    (segment,) = live(table.session.head())
    assert segment.bytes < limits.WHOLE_BYTES
    footer = pq.read_metadata(BytesIO(store.get(keys.key_of(segment))))
    groups = [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]
    assert max(groups) * 5000 <= limits.ROW_GROUP_BYTES
    check_read(reopen(store), 60_000, 5000)


@pytest.mark.verify
@pytest.mark.hazard("W4")
def test_one_large_append_of_padded_text_is_readable():
    store = MemoryStore()
    table = create(store, schema=SCHEMA, granularity="all")
    append(table, padded(60_000, 5000))
    assert len(live(table.session.head())) > 1  # as if the rows had come in small batches
    check_read(reopen(store), 60_000, 5000)


@pytest.mark.long
@pytest.mark.hazard("W4")
@pytest.mark.parametrize("make", [pytest.param(padded, marks=pytest.mark.long), nested])
def test_one_row_group_that_another_writer_did_not_cut_is_readable(make):
    """Rows of 300 MB in one row group, in one dictionary: as earlier writers made them."""
    store = MemoryStore()
    table = create(store, schema=SCHEMA, granularity="all")
    rows, width = 60_000, 5000
    out = BytesIO()
    pq.write_table(
        with_ids(make(rows, width), from_arrow(SCHEMA)), out, compression="zstd", store_schema=False
    )
    body = out.getvalue()
    added = Add(table.clock.random_id(), "all", 0, rows, len(body), codec.sha256(body), 1)
    assert store.put_if_absent(keys.segment_key(0, "all", added.id), body)
    commit(table, added)
    check_read(reopen(store), rows, width, "tags" if make is nested else "text")
    for n in range(3):
        append(table, padded(10, 10, first=rows + 10 * n))
    assert compaction.run(table).count("done")


def test_short_texts_of_an_encoding_that_may_repeat_come_in_large_batches():
    store = MemoryStore()
    table = create(store, schema=SCHEMA, granularity="all")
    out = BytesIO()
    encodings = {"at": "PLAIN", "tags.list.element": "PLAIN", "n": "PLAIN"}
    encodings["text"] = "DELTA_BYTE_ARRAY"
    rows = with_ids(padded(60_000, 12), from_arrow(SCHEMA))
    pq.write_table(rows, out, use_dictionary=False, column_encoding=encodings, store_schema=False)
    body = out.getvalue()
    added = Add(table.clock.random_id(), "all", 0, rows.num_rows, len(body), codec.sha256(body), 1)
    assert store.put_if_absent(keys.segment_key(0, "all", added.id), body)
    commit(table, added)
    sizes = [batch.num_rows for batch in scan(table).to_batches()]
    assert sum(sizes) == rows.num_rows
    assert len(sizes) < 8  # they grow while little comes


@pytest.mark.long
@pytest.mark.hazard("W4")
def test_a_value_larger_than_a_row_group_is_cut_at_makes_the_whole_way():
    store = MemoryStore()
    table = create(store, schema=SCHEMA, granularity="all", order_by=["n"])
    large = "x" * (70 * 2**20)
    append(table, padded(3, 5).set_column(1, "text", pa.array(["a", large, None])))
    del large
    append(table, padded(3, 5, first=3))
    assert compaction.run(table).count("done")
    again = reopen(store)
    found = scan(again, ["n", "text"]).to_table()
    assert pc.utf8_length(found.column("text")).to_pylist() == [1, 70 * 2**20, None, 9, 9, 9]
    assert found.column("n").to_pylist() == list(range(6))


def test_a_row_larger_than_the_format_allows_is_refused_before_anything_is_stored(monkeypatch):
    monkeypatch.setattr(limits, "ROW_BYTES", 40 * 2**20)
    store = MemoryStore()
    table = create(store, schema=SCHEMA, granularity="all", properties={"segment_bytes": "1024"})
    fits = "x" * (39 * 2**20)
    append(table, padded(1, 5).set_column(1, "text", pa.array([fits])))
    there = [found.key for found in store.list("")]
    with pytest.raises(InvalidInput, match=r"row 1 takes .* column 'text'.* at most 41943040"):
        append(table, padded(2, 5).set_column(1, "text", pa.array(["a", fits + "x" * 2**20])))
    assert [found.key for found in store.list("")] == there
