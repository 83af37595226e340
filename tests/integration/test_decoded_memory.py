"""Memory is bounded by what rows decode to, whatever few bytes they are stored in."""

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.field_ids import with_ids
from support.peaks import grown

from eventlog import Table
from eventlog.format import codec, keys
from eventlog.model.actions import Add, Swept
from eventlog.model.entries import Spill, Sweep
from eventlog.model.schema import from_arrow
from eventlog.replication import follow
from eventlog.store.location import place_of
from eventlog.writers import append, delete, overwrite, upsert

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
MIB = 2**20
MEMORY = 32 * MIB  # what each is given
BOUND = 96 * MIB  # beside it the allocator keeps what was freed, and threads have stacks
ROWS, WIDTH = 30_000, 5000  # 150 MB in Arrow
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.string()),
        ("v", pa.int64()),
    ]
)
WAYS = ["scanned", pytest.param("counted", marks=pytest.mark.long)]
TOLD = pytest.param("told", marks=pytest.mark.long)  # deletes above such rows are told, too
TEXTS = pa.array([f"{n} of a few texts ".ljust(WIDTH - 1) + "x" for n in range(4)])


def rows(shift=0):
    """Rows that take a thousand times less stored than they do in Arrow."""
    ids = pa.array([n * 7919 % ROWS for n in range(ROWS)], pa.int64())
    texts = TEXTS.take(pa.array([(n + shift) % 4 for n in range(ROWS)]))
    return pa.table([ids, pa.array([0] * ROWS, SCHEMA.field("at").type), texts, ids], SCHEMA)


def table(folder, **options):
    return Table.create(folder, SCHEMA, time_column="at", granularity="all", **options)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of the same rows, by name."""
    folder = tmp_path_factory.mktemp("tables")
    plain = table(folder / "plain")
    append(plain, rows(), memory_bytes=MEMORY)
    logs = table(folder / "logs", key="id", buckets=1)
    upsert(logs, rows(), memory_bytes=MEMORY)
    for t in (plain, logs):
        assert 500 * t.refresh().totals.bytes < ROWS * WIDTH
    return folder


def bounded(what, root):
    """Do something in bounded memory, and return its answer."""
    size, answer = grown(what, root, MEMORY)
    assert size < BOUND
    return answer


@pytest.mark.verify
@pytest.mark.hazard("W16")
@pytest.mark.parametrize("what", [*WAYS, "told"])
def test_of_a_table_without_a_key(tables, what):
    assert bounded(what, tables / "plain") == ROWS


@pytest.mark.verify
@pytest.mark.hazard("W16")
@pytest.mark.parametrize("what", [*WAYS, TOLD])
def test_of_rows_that_are_merged(tables, what):
    assert bounded(what, tables / "logs") == ROWS


@pytest.mark.verify
@pytest.mark.hazard("W16")
def test_of_narrow_deletes_above_wide_rows(tables, tmp_path):
    root = tmp_path / "t"
    shutil.copytree(tables / "logs", root)
    delete(Table.open(root), keys=pa.table({"id": range(ROWS)}))
    assert bounded("last_told", root) == ROWS


@pytest.mark.long
@pytest.mark.hazard("W16")
def test_of_all_that_became_of_rows(tables, tmp_path):
    """Deletes by a predicate lie above the rows; these come back, and are merged into a base."""
    root = tmp_path / "t"
    shutil.copytree(tables / "logs", root)
    assert bounded("deleted", root) == 2
    assert bounded("scanned", root) == 0
    Table.open(root).restore(1)
    assert bounded("last_told", root) == ROWS
    assert bounded("compacted", root) == ROWS
    delete(Table.open(root), where="v >= 0")
    assert bounded("last_told", root) == ROWS
    assert bounded("scanned", root) == 0


@pytest.mark.long
@pytest.mark.hazard("W16")
def test_of_rows_that_an_overwrite_exchanged(tables, tmp_path):
    root = tmp_path / "t"
    shutil.copytree(tables / "plain", root)
    t = Table.open(root)
    overwrite(t, rows(shift=1), memory_bytes=MEMORY)
    assert bounded("last_told", root) == 2 * ROWS


@pytest.mark.verify
@pytest.mark.hazard("W16")
def test_of_keys_whose_wide_order_is_checked(tmp_path):
    t = table(tmp_path / "t", key="id", order_by="s", buckets=1)
    upsert(t, rows(), memory_bytes=MEMORY)
    assert 500 * t.refresh().totals.bytes < ROWS * WIDTH
    assert bounded("checked", tmp_path / "t") == ROWS


@pytest.mark.verify
@pytest.mark.hazard("W16")
def test_of_a_delete_by_a_predicate(tables, tmp_path):
    root = tmp_path / "t"
    shutil.copytree(tables / "logs", root)
    assert bounded("deleted_by_text", root) == 2
    assert Table.open(root).refresh().totals.rows == 2 * ROWS


@pytest.mark.verify
@pytest.mark.hazard("W16")
@pytest.mark.parametrize(
    ("name", "write"),
    [("logs", upsert), pytest.param("plain", overwrite, marks=pytest.mark.long)],
)
def test_of_what_two_copies_wrote_that_are_merged(tables, tmp_path, name, write):
    """Of the rows that both overwrote those of the source are taken."""
    roots = [tmp_path / "t", tmp_path / "other"]
    shutil.copytree(tables / name, roots[1])
    follow(roots[1], roots[0])
    for shift, root in enumerate(roots, 1):
        write(Table.open(root), rows(shift), memory_bytes=MEMORY)
    assert bounded("merged", roots[0]) == ROWS


# Rows of 300 MB whose stored form says so nowhere, or says otherwise.
HIDDEN, HIDDEN_WIDTH = 300, 10**6
FORMS = ["delta", "dictionary", "sizes", "claim"]


def hiding(form):
    """Return the Parquet of such rows, in a few kilobytes.

    Texts that are as the one before by DELTA_BYTE_ARRAY; in a dictionary; a footer that lies about
    sizes; one that lies about what a writer may say of them.
    """
    zeros = pa.array([0] * HIDDEN, pa.int64())
    text = pa.array(["x" * HIDDEN_WIDTH]).take(zeros)
    found = pa.table([zeros, zeros.cast(SCHEMA.field("at").type), text, zeros], SCHEMA)
    how = {"use_dictionary": True, "dictionary_pagesize_limit": 2**24}
    if form == "delta":
        others = dict.fromkeys(["id", "at", "v"], "PLAIN")
        encodings = {**others, "s": "DELTA_BYTE_ARRAY"}
        how = {"use_dictionary": False, "column_encoding": encodings}
    sink = io.BytesIO()
    how |= {"compression": "zstd", "write_statistics": False, "store_schema": False}
    found = with_ids(found, from_arrow(SCHEMA))
    with pq.ParquetWriter(sink, found.schema, **how) as file:
        file.write_table(found)
        if form == "claim":
            file.add_key_value_metadata({"eventlog.decoded_bytes": "[[2400,2400,300,2400]]"})
    body = sink.getvalue()
    return understated(body) if form == "sizes" else body


@pytest.fixture(scope="module", params=FORMS)
def hidden(request, tmp_path_factory):
    """Return the root of a table of such rows, which another program wrote."""
    root, body = tmp_path_factory.mktemp("hidden") / "t", hiding(request.param)
    assert len(body) < 5000
    t = table(root)
    added = Add(t.clock.random_id(), "all", 0, HIDDEN, len(body), codec.sha256(body), 1)
    t.store.put_if_absent(keys.segment_key(0, "all", added.id), body)
    t.commit(t.transaction("append", [added]))
    return root


@pytest.mark.verify
@pytest.mark.hazard("W16")
@pytest.mark.parametrize(
    "what",
    ["scanned", *(pytest.param(what, marks=pytest.mark.long) for what in ("counted", "told"))],
)
def test_of_rows_whose_stored_form_hides_what_they_take(hidden, what):
    assert bounded(what, hidden) == HIDDEN


@pytest.mark.long
@pytest.mark.hazard("W16")
def test_of_a_compaction_of_such_rows(hidden, tmp_path):
    root = tmp_path / "t"
    shutil.copytree(hidden, root)
    append(Table.open(root), rows().slice(0, 1))
    assert bounded("compacted", root) == HIDDEN + 1


@pytest.mark.verify
@pytest.mark.hazard("W16")
@pytest.mark.parametrize("form", ["delta", pytest.param("dictionary", marks=pytest.mark.long)])
def test_of_an_append_from_a_file_of_such_rows(tmp_path, form):
    table(tmp_path / "t")
    (tmp_path / "file.parquet").write_bytes(hiding(form))
    assert bounded("appended", tmp_path / "t") == HIDDEN


def understated(body):
    """Change a footer so that it says of everything large that it has 50 bytes."""
    group = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    sizes = {group.total_byte_size, *(column.total_uncompressed_size for column in columns)}
    for size in sizes:
        if size > 2**14:
            said = varint(2 * size)
            least = bytes([varint(2 * 50)[0] | 128]).ljust(len(said) - 1, b"\x80") + b"\0"
            body = body.replace(said, least)
    return body


def varint(number):
    digits = []
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.verify
@pytest.mark.hazard("W16")
@pytest.mark.parametrize("lies", [False, True])
def test_of_an_object_of_the_log_that_repeats_a_text(tmp_path, lies):
    """The record of a vacuum, of 2 GB; leaves and spills are read likewise."""
    count, width = (20_000, 10**5) if lies else (500, 4 * 10**6)
    numbers, indices = pa.array([1] * count), pa.array([0] * count, pa.int32())
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * width]))
    record = pa.table({"key": texts, "dropped": numbers, "bytes": numbers})
    sink = io.BytesIO()
    pq.write_table(
        record,
        sink,
        compression="zstd",
        dictionary_pagesize_limit=2**24,
        write_statistics=False,
        store_schema=lies,  # which says that the texts are to be read as a dictionary
    )
    body = understated(sink.getvalue()) if lies else sink.getvalue()
    assert len(body) < 2000
    t = table(tmp_path / "t")
    append(t, pa.table([[1], pa.array([1], SCHEMA.field("at").type), ["a"], [1]], SCHEMA))
    spill = Spill(codec.sha256(body), len(body), 0, count)
    t.store.put_if_absent(keys.frame_key(spill.sha256), body)
    swept = Swept(Sweep(0, 0, 1, spill, place_of(t.store)))
    t.commit(t.transaction("vacuum", [swept]))
    size, version = grown("vacuumed", tmp_path / "t", 0)
    assert (size < 3 * BOUND, version) == (True, 2)
