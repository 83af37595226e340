"""The bytes of packs: the rows of many small segments as one Parquet object (FORMAT.md R21.4).

The rows of segments of one pack have one Parquet schema. Their order, and which rows are whose,
stand in the key-value metadata of the footer.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.decoding import most_bytes
from eventlog.format.conversion import leaf_paths
from eventlog.model.entries import Count

INDEX = "eventlog.segments"
_LOOKED_AT = 2048  # rows
MOST_BYTES = 64 * 2**20  # of the rows of a segment, or of a pack, in Arrow
_FAILURES = (pa.ArrowException, OSError, ValueError, msgspec.DecodeError)


class Indexed(NamedTuple):
    """A segment in a pack.

    Attributes:
        id: its id.
        rows: the number of its rows.
        bytes: the size of its object.
        inline: the version of the commit that has its bytes.
    """

    id: str
    rows: Count
    bytes: Count
    inline: Count


class Packed(NamedTuple):
    """An opened pack.

    Attributes:
        segments: its segments, in the order of their rows.
        file: the Parquet file.
        source: its bytes.
    """

    segments: tuple[Indexed, ...]
    file: pq.ParquetFile
    source: pa.BufferReader


def object_rows(body: bytes, rows: int) -> pa.Table | None:
    """Return the rows of a segment's object as a pack keeps them; None if a pack cannot.

    Args:
        body: the bytes of the object.
        rows: how many rows it has.
    """
    try:
        opened = _opened(body)
        table = opened.read(use_threads=False).replace_schema_metadata(None)
    except _FAILURES:
        return None
    return table if table.num_rows == rows and table.num_columns else None


def encode_pack(index: Sequence[Indexed], tables: Sequence[pa.Table]) -> bytes:
    """Return the bytes of a pack: the same for the same rows and library release.

    Args:
        index: the segments.
        tables: the rows of each, all of one schema.
    """
    sink = io.BytesIO()
    rows = pa.concat_tables(tables).combine_chunks()
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression="zstd",
        write_statistics=False,
        store_schema=False,
        **_encodings(rows),
    ) as file:
        file.write_table(rows, row_group_size=max(1, rows.num_rows))
        file.add_key_value_metadata({INDEX: msgspec.json.encode(index).decode()})
    return sink.getvalue()


def open_pack(body: bytes) -> Packed | None:
    """Return an opened pack; None if the bytes are those of none."""
    try:
        source = pa.BufferReader(body)
        file = pq.ParquetFile(source)
        stored = (file.metadata.metadata or {}).get(INDEX.encode(), b"")
        index = tuple(msgspec.json.decode(stored, type=list[Indexed]))
    except _FAILURES:
        return None
    if sum(entry.rows for entry in index) != file.metadata.num_rows:
        return None
    return Packed(index, file, source)


def pack_columns(
    pack: Packed, columns: Sequence[int] | None = None, most: int = MOST_BYTES
) -> pa.Table | None:
    """Return columns of a pack in the types of the file; None if they take too much memory.

    Args:
        pack: the pack.
        columns: indexes of Parquet columns; all if None.
        most: the bytes that they may take in Arrow, up to `MOST_BYTES`.
    """
    try:
        chosen = range(pack.file.metadata.num_columns) if columns is None else columns
        if not chosen:  # against rows-without-columns-lost
            return _bare_rows(pack.file.metadata.num_rows)
        _check_size(pack.source, pack.file.metadata, chosen, min(most, MOST_BYTES))
        rows = pack.file.reader.read_all(list(chosen), use_threads=False)
        return rows.replace_schema_metadata(None)  # that of the file, which has the index
    except _FAILURES:
        return None


def _bare_rows(count: int) -> pa.Table:
    """Return a number of rows without columns: of a file without columns Arrow reads no rows."""
    bare = pa.Array.from_buffers(pa.struct([]), count, [None])
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(bare)])


def same_schema(first: pa.Table, second: pa.Table) -> bool:
    """Return whether the rows of two segments can be in one pack."""
    return bool(first.schema.equals(second.schema, check_metadata=True))


def same_rows(first: pa.Table, second: pa.Table) -> bool:
    """Return whether two segments have the same rows, in the same columns. A NaN is one."""
    if not first.schema.equals(second.schema, check_metadata=True):
        return False
    return encode_pack((), [first]) == encode_pack((), [second])


def _encodings(rows: pa.Table) -> dict[str, Any]:
    """Return the arguments of pyarrow's Parquet writer that say how columns of a pack are encoded.

    Each scan decodes packs. Differences of whole numbers take fewer bytes than ZSTD makes of the
    numbers, and a quarter of the time; a dictionary of values that hardly repeat costs both.
    """
    coded: list[str] = []
    others: dict[str, str] = {}
    # Arrow does not distinguish field `b` of column `a` from a column `a.b`.
    inside = tuple(f"{field.name}." for field in rows.schema if pa.types.is_nested(field.type))
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind, name = field.type, field.name
        if pa.types.is_nested(kind) or name.startswith(inside):
            coded += leaf_paths(name, kind)
        elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
            others[name] = "DELTA_BINARY_PACKED"
        elif _repeats(column):
            coded.append(name)
        elif pa.types.is_floating(kind):
            others[name] = "BYTE_STREAM_SPLIT"
    return {"use_dictionary": coded, "column_encoding": others or None}


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether values of a column come often, judged by the first ones."""
    some = column.slice(0, _LOOKED_AT)
    return 2 * len(some.unique()) <= len(some)


def _opened(body: bytes) -> Any:
    source = pa.BufferReader(body)
    file = pq.ParquetFile(source)
    _check_size(source, file.metadata, range(file.metadata.num_columns))
    return file


def _check_size(
    source: pa.NativeFile, footer: Any, columns: Iterable[int], most: int = MOST_BYTES
) -> None:
    groups = range(footer.num_row_groups)
    bound = most_bytes(source, footer, groups, list(columns), most)
    if not bound.sure or bound.size > most:
        raise ValueError("the rows take too much memory")
