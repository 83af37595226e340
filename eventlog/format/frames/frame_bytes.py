"""The bytes of objects under `_frames/`: tables of entries as Parquet, written and read.

Other programs and damage can change these bytes, so a reader checks all that FORMAT.md R9.3 and
R6.4 demand, and its memory is bounded by `limits.FRAME_BYTES`, whatever a footer claims.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eventlog import limits
from eventlog.decoding import decode, most_bytes
from eventlog.errors import Corrupt, InvalidInput
from eventlog.format.frames import entry_columns
from eventlog.format.frames.entry_columns import (
    FIXED,
    INLINE,
    OF_COMMIT,
    SLICE,
    SPILL_ACTION,
    SPLITS,
    STORED,
    TAIL,
    VECTOR,
)
from eventlog.format.keys import MAX_VERSION

_MAX_SPLITS = 12
_SLICE_KINDS = ("base", "late", "log")
_COLUMN_ID = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
# The Parquet types of the columns, each with its logical type (FORMAT.md R9.3). An INT32 has nulls
# only: the bounds of a column whose bounds are all unknown.
_PHYSICAL: dict[tuple[str, str], Any] = {
    ("BOOLEAN", "None"): pa.bool_(),
    ("INT32", "Null"): pa.null(),
    ("INT64", "None"): pa.int64(),
    ("BYTE_ARRAY", "String"): pa.string(),
    ("BYTE_ARRAY", "None"): pa.binary(),
    ("FIXED_LEN_BYTE_ARRAY", "None"): "fixed",
}
_BOUND_TYPES = (pa.string(), pa.null())
_TEXT_TYPES = (pa.string(), pa.binary())
# A column of texts with at most one distinct value for so many rows has a dictionary, and is so
# small then that it is not compressed.
_REPEATED = 32
# Schemas of objects that were read, and what `_plain_schema` makes of them: those of one table have
# few, and to look at one column by column costs a tenth of reading the object.
_seen: deque[tuple[Any, pa.Schema, pa.Schema]] = deque(maxlen=16)
_COUNTS = (
    "epoch",
    "version",
    "partition",
    "rows",
    "bytes",
    "schema",
    "tail_size",
    *(name for name in SLICE.names if name != "slice_kind"),
    SPLITS.name,
    *("vector_rows", "vector_epoch", "vector_offset", "vector_size"),
    INLINE.name,
)
_MAX_FRAME_BYTES = limits.FRAME_BYTES
# The most that is decoded at once, and kept before the whole size is known: also in rows, since a
# footer may record the wrong number of bytes.
_ONCE_BYTES = 32 * 2**20
_ONCE_ROWS = 256


def to_parquet(table: pa.Table) -> bytes:
    """Return the table as Parquet: the same bytes for the same rows and library release.

    Raises:
        InvalidInput: it is larger than readers accept.
    """
    if table.nbytes > _MAX_FRAME_BYTES // 2 and _plain_bytes(table) > _MAX_FRAME_BYTES:
        raise InvalidInput(
            f"{table.num_rows} segment entries take more than the {_MAX_FRAME_BYTES} bytes that "
            "one object may have: commit fewer at once, or keep statistics of fewer columns"
        )
    sink = pa.BufferOutputStream()
    # A small column costs a reader more to decompress than to decode: numbers are packed instead.
    packed = [field.name for field in table.schema if pa.types.is_int64(field.type)]
    texts = [field.name for field in table.schema if field.type in _TEXT_TYPES]
    dictionary = [name for name in texts if _repeats(table.column(name))]
    compressed = [name for name in texts if name not in dictionary]
    pq.write_table(
        table.replace_schema_metadata(None),
        sink,
        compression={name: "zstd" if name in compressed else "none" for name in table.column_names},
        compression_level=dict.fromkeys(compressed, 3),
        use_dictionary=dictionary,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        write_statistics=False,
        store_schema=False,
        row_group_size=max(1, table.num_rows),
    )
    return bytes(sink.getvalue())


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(len(column.unique()) * _REPEATED <= len(column))


def _plain_bytes(table: pa.Table) -> int:
    """Return an upper bound on the bytes of all columns before compression."""
    size: int = table.nbytes + 16 * table.num_rows * table.num_columns
    return size


def from_parquet(body: bytes, rows: int, *, spilled: bool = False) -> pa.Table:
    """Return the entry table in `body`.

    Args:
        body: the bytes of a leaf or spill.
        rows: the number of its rows.
        spilled: it is a spill, which has the column `drop`, and not a leaf.

    Raises:
        Corrupt: it is not Parquet, does not have `rows` rows, or other columns than FORMAT.md R9.3
            and R6.4 name, of other types or in another order; or a row is none of an entry.
    """
    table = read_columns(body, rows, spilled=spilled)
    check_entry_rows(table, spilled=spilled)
    return table


def read_columns(
    body: bytes, rows: int, *, spilled: bool = False, statistics: bool = True
) -> pa.Table:
    """Return the entry table in `body`, of which columns are checked, and rows not yet.

    `check_entry_rows` checks the rows of several tables at once, for less than those of each.

    Args:
        body: see `from_parquet`, also for the errors.
        rows: see there.
        spilled: see there.
        statistics: false: the columns of statistics are left out.
    """
    try:
        return read_frame(body, rows, partial(_exact, spilled=spilled, statistics=statistics))
    except UnicodeDecodeError:
        raise Corrupt("a frame object has text that is not valid UTF-8") from None


def rows_of_frame(body: bytes) -> int:
    """Return the number of rows of an object under `_frames/` of which nothing else is known.

    Raises:
        Corrupt: it is not Parquet.
    """
    try:
        return int(pq.ParquetFile(pa.BufferReader(body), pre_buffer=False).metadata.num_rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"a frame object is not readable Parquet: {error}") from None


def read_frame(
    body: bytes, rows: int, wanted: Callable[[pa.Schema], pa.Schema] | None = None
) -> pa.Table:
    """Return the table in the bytes of an object under `_frames/`, whatever its columns.

    Args:
        body: the bytes.
        rows: the number of its rows.
        wanted: returns the columns to decode, given all of them; raises if it refuses them. None:
            all are decoded.

    Raises:
        Corrupt: it is not Parquet, does not have `rows` rows, or has a column of a type that no
            object there has.
    """
    try:
        source = pa.BufferReader(body)
        file = pq.ParquetFile(source, pre_buffer=False)
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        # Decided by the footer, before anything is decompressed.
        if (
            file.metadata.num_rows != rows
            or sum(group.num_rows for group in groups) != rows
            or sum(g.total_byte_size for g in groups) > _MAX_FRAME_BYTES
        ):
            raise Corrupt(
                f"a frame object has {file.metadata.num_rows} rows instead of {rows}, or more than "
                f"{_MAX_FRAME_BYTES} bytes"
            )
        plain = _plain_schema(file.schema, file.schema_arrow)
        return _decoded(source, file, plain, plain if wanted is None else wanted(plain))
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, Corrupt):
            raise
        raise Corrupt(f"a frame object is not readable Parquet: {error}") from None


def _decoded(
    source: pa.BufferReader, file: pq.ParquetFile, plain: pa.Schema, wanted: pa.Schema
) -> pa.Table:
    """Return the wanted columns of a frame object, in their types, of all that it has in `plain`.

    Memory is bounded by what is decoded: a dictionary repeats its texts, and a footer may lie.

    Raises:
        Corrupt: they take more than `_MAX_FRAME_BYTES`.
    """
    footer = file.metadata
    names = None if len(wanted) == len(plain) else wanted.names
    groups = range(footer.num_row_groups)
    columns = range(len(plain)) if names is None else [plain.get_field_index(n) for n in names]
    enough = _ONCE_BYTES * max(1, footer.num_rows // _ONCE_ROWS)
    most = most_bytes(source, footer, groups, columns, enough)
    if most.sure and most.size <= min(_ONCE_BYTES, _MAX_FRAME_BYTES):
        return _cast(file.read(columns=names, use_threads=False), wanted)
    few = max(1, min(_ONCE_ROWS, footer.num_rows * _ONCE_BYTES // max(1, most.size)))
    once = None if most.sure else _ONCE_BYTES
    size, pieces = 0, []
    for batch in decode(source, footer, groups, columns, few, once=once):
        # Other programs note types of their own beside those of Parquet.
        piece = _cast(batch, wanted)
        # The first is quicker, but counts shared bytes once for each piece.
        size += piece.get_total_buffer_size() if size <= _ONCE_BYTES else piece.nbytes
        if size > _MAX_FRAME_BYTES:
            raise Corrupt(f"a frame object decodes to more than {_MAX_FRAME_BYTES} bytes")
        if size <= _ONCE_BYTES:
            pieces.append(piece)
    # Nothing large is kept before its size is known.
    if size > _ONCE_BYTES:
        return _cast(file.read(columns=names), wanted)
    return pa.Table.from_batches(pieces, wanted)


def _cast(rows: Any, wanted: pa.Schema) -> Any:
    """Return a table or batch with exactly these columns, which differ in notes of others only."""
    return rows if rows.schema.equals(wanted, check_metadata=True) else rows.cast(wanted)


def _plain_schema(schema: Any, arrow: pa.Schema) -> pa.Schema:
    """Return the columns by their Parquet types, before anything is decoded.

    Args:
        schema: the Parquet schema.
        arrow: what Arrow makes of it.

    Raises:
        Corrupt: one has a type that no column of these objects has.
    """
    for known, known_arrow, plain in tuple(_seen):
        if schema.equals(known) and arrow.equals(known_arrow):
            return plain
    plain = _columns_of(schema, arrow.names)
    _seen.append((schema, arrow, plain))
    return plain


def _columns_of(schema: Any, names: Sequence[str]) -> pa.Schema:
    fields = []
    for place in range(len(schema)):
        column = schema.column(place)
        plain = _PHYSICAL.get((column.physical_type, str(column.logical_type)))
        flat = len(schema) == len(names) and column.max_repetition_level == 0
        if not flat or column.max_definition_level > 1 or plain is None:
            raise Corrupt(
                f"a frame object has a column {column.path[:80]!r} of the Parquet type "
                f"{column.physical_type} {column.logical_type}"
            )
        fields.append(
            pa.field(column.name, pa.binary(column.length) if plain == "fixed" else plain)
        )
    return pa.schema(fields)


def check_entry_rows(table: pa.Table, *, spilled: bool = False) -> None:
    """Refuse rows that no entry has.

    Args:
        table: rows of leaves or of a spill, as `read_columns` returns them.
        spilled: they are those of a spill.

    Raises:
        Corrupt: a row breaks FORMAT.md R9.3 or R6.4.
    """
    try:
        table.validate(full=True)  # invalid UTF-8 would otherwise fail only when it is read
    except (pa.ArrowException, ValueError) as error:
        raise Corrupt(f"a frame object has columns of the wrong type: {error}") from None
    if not spilled:
        entry_columns.check_filled(table, (name for name in FIXED.names if name not in TAIL))
        _check_chunks(table)
    sizes, hashes = (pc.is_null(table.column(name)) for name in TAIL)
    if not sizes.equals(hashes):
        raise Corrupt("a frame object has incomplete tails")
    _check_slices(table, spilled=spilled)
    _check_counts(table)
    _check_vectors(table)
    if not spilled:
        _check_entries(table)


def _check_chunks(table: pa.Table) -> None:
    """Refuse bounds of no time chunk. Entries of one chunk stand together: one is enough."""
    edges = pa.array(entry_columns.chunk_edges(table), pa.int64())
    firsts = table.select(["chunk_start", "chunk_end"]).take(edges)
    entry_columns.chunk_names(*(column.to_pylist() for column in firsts.columns))


def _check_entries(table: pa.Table) -> None:
    """Refuse entries of a leaf as `keys.check_entry` does those of JSON."""
    columns = [(table.column("tail_size"), table.column("bytes"))]
    columns.append((pa.scalar(1, pa.int64()), table.column("schema")))
    # against epoch-that-no-key-has
    columns.append((table.column("epoch"), pa.scalar(MAX_VERSION, pa.int64())))
    if "slice_kind" in table.column_names:
        names = (("first", "last"), ("low", "high"))
        columns += [tuple(table.column(f"slice_{name}") for name in pair) for pair in names]
        columns.append((table.column("slice_high"), table.column("version")))
    if INLINE.name in table.column_names:
        columns.append((table.column(INLINE.name), table.column("version")))
    for least, most in columns:
        if pc.any(pc.greater(least, most), min_count=0).as_py():
            raise Corrupt("a frame object has an entry whose parts contradict each other")


def _check_slices(table: pa.Table, *, spilled: bool) -> None:
    """Refuse places in slices that are incomplete or of an unknown kind."""
    if "slice_kind" not in table.column_names:
        return
    kinds = table.column("slice_kind")
    absent = pc.is_null(kinds)
    for name in SLICE.names:
        missing = pc.is_null(table.column(name))
        if name.removeprefix("slice_") in OF_COMMIT and spilled:
            if pc.any(pc.and_(absent, pc.invert(missing)), min_count=0).as_py():
                raise Corrupt("a frame object has incomplete slices")
        elif not missing.equals(absent):
            raise Corrupt("a frame object has incomplete slices")
    if SPLITS.name in table.column_names:
        _check_splits(table.column(SPLITS.name), absent)
    low, high = (pc.is_null(table.column(name)) for name in ("slice_low", "slice_high"))
    if not low.equals(high):
        raise Corrupt("a frame object has incomplete slices")
    if not pc.all(
        pc.is_in(kinds.drop_null(), value_set=pa.array(_SLICE_KINDS)), min_count=0
    ).as_py():
        raise Corrupt("a frame object has a slice of an unknown kind")


def _check_vectors(table: pa.Table) -> None:
    """Refuse vectors as `keys.check_vector` does in JSON."""
    if "vector_rows" not in table.column_names:
        return
    present, inline, *stored = (
        pc.is_valid(table.column(name)) for name in ("vector_rows", "vector_bitmap", *STORED)
    )
    either = pc.equal(pc.xor(inline, stored[0]), present)
    twice = pc.any(pc.and_(inline, stored[0]), min_count=0).as_py()
    # against half-vector-of-a-leaf
    if twice or not pc.all(either).as_py() or any(not s.equals(stored[0]) for s in stored):
        raise Corrupt("a frame object has incomplete deletion vectors")
    epochs = table.column("vector_epoch")
    if pc.any(pc.greater(epochs, MAX_VERSION), min_count=0).as_py():
        raise Corrupt("a frame object has an epoch that no key has")
    numbers = [table.column("vector_rows"), table.column("vector_size")]
    for column in (*numbers, pc.binary_length(table.column("vector_bitmap"))):
        if pc.any(pc.equal(column, 0), min_count=0).as_py():
            raise Corrupt("a frame object has a deletion vector without rows or bytes")
    excess = pc.greater_equal(table.column("vector_rows"), table.column("rows"))
    if pc.any(excess, min_count=0).as_py():  # against vector-of-all-rows
        raise Corrupt("a frame object has a vector that deletes all rows of its segment")


def _check_splits(splits: pa.ChunkedArray, absent: pa.ChunkedArray) -> None:
    if pc.any(pc.and_(absent, pc.is_valid(splits)), min_count=0).as_py():
        raise Corrupt("a frame object has incomplete slices")
    possible = pc.and_(pc.greater_equal(splits, 1), pc.less_equal(splits, _MAX_SPLITS))
    if not pc.all(possible, min_count=0).as_py():
        raise Corrupt("a frame object has a slice of impossible splits")


@lru_cache(maxsize=64)  # the objects of one table have few schemas
def _exact(schema: pa.Schema, *, spilled: bool, statistics: bool) -> pa.Schema:
    """Check the columns of a frame object, and return those to decode with their exact types."""
    fixed, fields = {field.name: field for field in (*FIXED, *SLICE, SPLITS, *VECTOR, INLINE)}, []
    known = fixed | ({SPILL_ACTION.name: SPILL_ACTION} if spilled else {})
    for field in schema:
        stem, _, number = field.name.partition("_")
        if field.name in known:
            fields.append(known[field.name])
        elif stem in ("min", "max", "nulls") and _COLUMN_ID.fullmatch(number):
            kept = stem != "nulls" and field.type in _BOUND_TYPES
            fields.append(pa.field(field.name, field.type if kept else pa.int64()))
        else:
            raise Corrupt(f"a frame object has an unknown column {field.name[:80]!r}")
    # A table of adds alone has columns of its vectors where one has a vector, and a keyed one none.
    ordered = [name for name in schema.names if name in fixed]
    if ordered[-1:] == [INLINE.name]:
        del ordered[-1]
    if ordered not in (
        FIXED.names,
        [*FIXED.names, *VECTOR.names],
        [*FIXED.names, *SLICE.names],
        [*FIXED.names, *SLICE.names, SPLITS.name],
    ):
        raise Corrupt("a frame object lacks a column of an entry, or has them in another order")
    odd = next((f.name for f, to in zip(schema, fields, strict=True) if f.type != to.type), None)
    if odd is not None:
        raise Corrupt(f"a frame object has a column {odd!r} of the wrong type")
    columns = entry_columns.stats_ids_in(schema.names)
    wanted = {f"{stem}_{column}" for column in columns for stem in ("min", "max", "nulls")}
    stats = [name for name in schema.names if name not in fixed and name != SPILL_ACTION.name]
    if sorted(stats) != sorted(wanted) or schema.names.count(SPILL_ACTION.name) != int(spilled):
        raise Corrupt("a frame object has incomplete statistics, or a spill lacks 'drop'")
    for number in columns:
        kinds = {schema.field(f"{stem}_{number}").type for stem in ("min", "max")} - {pa.null()}
        if len(kinds) > 1:
            raise Corrupt(f"a frame object has texts and numbers as bounds of column {number}")
    return pa.schema([field for field in fields if statistics or field.name in fixed])


def _check_counts(table: pa.Table) -> None:
    """Refuse negative counts, which JSON cannot contain either (FORMAT.md R5.2)."""
    # All at once: a call for each column costs more than the look at its values.
    counts = [name in _COUNTS or name.startswith("nulls_") for name in table.column_names]
    chunks = [chunk for batch in table.to_batches() for chunk in compress(batch.columns, counts)]
    least = pc.min(pa.chunked_array(chunks, pa.int64())).as_py()
    if least is not None and least < 0:
        names = compress(table.column_names, counts)
        wrong = next(name for name in names if (pc.min(table.column(name)).as_py() or 0) < 0)
        raise Corrupt(f"a frame object has a negative count in its column {wrong!r}")
