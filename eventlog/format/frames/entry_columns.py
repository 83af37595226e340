"""Segment entries in columns: the Arrow form of key frame leaves, spills and large snapshots.

One row per entry: ids and hashes as binary, the chunk as its bounds, statistics as `min_<id>`,
`max_<id>`, `nulls_<id>` by column id (FORMAT.md "Key frame leaf"). `spill_columns` has the rows of
spills, and `frame_bytes` the bytes of these tables in the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt, InvalidInput
from eventlog.format import codec, keys
from eventlog.model.actions import Add
from eventlog.model.chunks import chunk_name, parse_chunk
from eventlog.model.entries import ColumnStats, Segment, Slice, StoredBitmap, Tail, Vector

FIXED = pa.schema(
    [
        ("chunk_start", pa.int64()),
        ("chunk_end", pa.int64()),
        ("id", pa.binary(16)),
        ("epoch", pa.int64()),
        ("version", pa.int64()),
        ("partition", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("checksum", pa.binary(32)),
        ("schema", pa.int64()),
        ("hash", pa.binary(32)),
        ("tail_size", pa.int64()),
        ("tail_sha256", pa.binary(32)),
    ]
)
# In keyed tables, between those and the statistics.
SLICE = pa.schema(
    [
        ("slice_kind", pa.string()),
        ("slice_first", pa.int64()),
        ("slice_last", pa.int64()),
        ("slice_low", pa.int64()),
        ("slice_high", pa.int64()),
        ("slice_level", pa.int64()),
        ("slice_ordinal", pa.int64()),
    ]
)
SPLITS = pa.field("slice_splits", pa.int64())  # after those, where an entry has it
# Where an entry has a deletion vector, between those and the statistics.
VECTOR = pa.schema(
    [
        ("vector_rows", pa.int64()),
        ("vector_bitmap", pa.binary()),  # this one is null, or all that follow
        ("vector_epoch", pa.int64()),
        ("vector_object", pa.binary(16)),
        ("vector_offset", pa.int64()),
        ("vector_size", pa.int64()),
        ("vector_hash", pa.binary(32)),
    ]
)
INLINE = pa.field("inline", pa.int64())  # after all of those, where an entry has it
_BEFORE_STATISTICS = (*FIXED.names, *SLICE.names, SPLITS.name, *VECTOR.names, INLINE.name)
STORED = tuple(VECTOR.names[2:])
OF_COMMIT = ("low", "high", "ordinal")  # the fields that an add leaves to its commit
SPILL_ACTION = pa.field("drop", pa.bool_())
POSITION = ("chunk_start", "chunk_end", "id")
TAIL = ("tail_size", "tail_sha256")
ORDER = [("chunk_start", "ascending"), ("chunk_end", "ascending"), ("id", "ascending")]
# Schema.empty_table would import pandas, which costs half a second in every process.
EMPTY = pa.Table.from_batches([], schema=FIXED)


def from_segments(segments: Sequence[Segment], hashes: Sequence[int] | None = None) -> pa.Table:
    """Return the entries as a table, in the order given.

    Args:
        segments: the entries.
        hashes: their `codec.entry_hash`, where known.
    """
    columns = fixed_columns(segments)
    columns["version"] = [s.version for s in segments]
    columns["partition"] = [s.partition for s in segments]
    if hashes is None:
        columns["hash"] = codec.entry_digests(segments)
    else:
        columns["hash"] = [h.to_bytes(32, "big") for h in hashes]
    try:
        return from_columns(columns, segments)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Corrupt(f"segment entries do not fit together: {error}") from None


def to_segments(table: pa.Table) -> list[Segment]:
    """Return the entries of a table as values, in row order."""
    fixed = {name: table.column(name).to_pylist() for name in FIXED.names if name != "hash"}
    return list(
        map(
            Segment,
            map(bytes.hex, fixed["id"]),
            chunk_names(fixed["chunk_start"], fixed["chunk_end"]),
            fixed["epoch"],
            fixed["version"],
            fixed["partition"],
            fixed["rows"],
            fixed["bytes"],
            map(bytes.hex, fixed["checksum"]),
            fixed["schema"],
            _stats_rows(table),
            _tails(table),
            _slices(table),
            vectors(table),
            _inline(table),
        )
    )


def hash_sum(table: pa.Table) -> int:
    """Return the sum of the entries' hashes mod 2^256."""
    width = codec.HASH_BYTES
    hashes = b"".join(
        memoryview(chunk.buffers()[1])[chunk.offset * width : (chunk.offset + len(chunk)) * width]
        for chunk in table.column("hash").chunks  # a hash is never null here
        if len(chunk)
    )
    return _sum_of(hashes, width) % codec.HASH_MODULUS


def _sum_of(numbers: bytes, width: int) -> int:
    """Return the sum of numbers of `width` big-endian bytes, which stand one after the other.

    All are added at once: as one number that is folded, half upon half. Each has twice its width
    then, so that no sum of fewer than 2^(8 * width) of them reaches into the next.
    """
    count = (len(numbers) // width + 1) // 2
    lanes = int.from_bytes(numbers, "big")
    every_other = int.from_bytes((bytes(width) + b"\xff" * width) * count, "big")
    total = (lanes & every_other) + ((lanes >> 8 * width) & every_other)
    while count > 1:
        count = (count + 1) // 2
        bits = 16 * width * count
        total = (total >> bits) + (total & ((1 << bits) - 1))
    return total


def hashes_hold(table: pa.Table) -> bool:
    """Return whether the column `hash` matches the other columns (FORMAT.md R8.1)."""
    stored: list[bytes] = table.column("hash").to_pylist()
    return codec.entry_digests(to_segments(table)) == stored


def ordered(table: pa.Table, parts: Sequence[int] = ()) -> bool:
    """Return whether the entries are in leaf order, without duplicates.

    Args:
        table: the entries.
        parts: the rows at which parts begin that are in order each, and not among themselves.
    """
    rising = pa.array([False] * max(0, table.num_rows - 1), pa.bool_())
    for name, _ in reversed(ORDER):
        column = table.column(name).combine_chunks()
        before, after = column.slice(0, len(rising)), column.slice(1)
        rising = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), rising))
    if pc.all(rising, min_count=0).as_py():
        return True
    falls = pc.indices_nonzero(pc.invert(rising)).to_pylist()
    return {row + 1 for row in falls} <= {*parts}


def chunk_edges(table: pa.Table) -> list[int]:
    """Return the rows whose time chunk is not that of the row before, the first among them."""
    if not table.num_rows:
        return []
    columns = (table.column(name).combine_chunks() for name in ("chunk_start", "chunk_end"))
    last = table.num_rows - 1
    differs = (pc.not_equal(column.slice(0, last), column.slice(1)) for column in columns)
    return [0, *(row + 1 for row in pc.indices_nonzero(pc.or_(*differs)).to_pylist())]


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; columns that a table lacks are null (FORMAT.md R9.3)."""
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return EMPTY
    try:
        table = pa.concat_tables(filled, promote_options="default")
    except pa.ArrowException as error:
        raise Corrupt(f"segment entries do not fit together: {error}") from None
    # Columns that the first table lacks come last.
    place = {name: number for number, name in enumerate(_BEFORE_STATISTICS)}
    names = sorted(table.column_names, key=lambda name: place.get(name, len(place)))
    return table if names == table.column_names else table.select(names)


def stats_ids(table: pa.Table) -> list[int]:
    """Return the ids of the columns that have statistics in this table, ascending."""
    return stats_ids_in(table.column_names)


def stats_ids_in(names: Iterable[str]) -> list[int]:
    """Return the ids of the columns whose statistics are in columns of these names, ascending."""
    return sorted(int(n.removeprefix("nulls_")) for n in names if n.startswith("nulls_"))


def from_columns(columns: dict[str, list[Any]], entries: Sequence[Add | Segment]) -> pa.Table:
    """Return a table of entries.

    Args:
        columns: values by column: those of `FIXED`, and those of `SLICE` and `VECTOR` that replace
            the entries'.
        entries: the entries, which give the places in slices, the vectors, the versions that have
            their bytes, and the statistics.
    """
    own = _slice_columns(entries) | vector_columns([e.vector for e in entries])
    columns = own | _inline_column(entries) | columns
    more = (*SLICE, SPLITS, *VECTOR, INLINE)
    present = [*FIXED, *(field for field in more if field.name in columns)]
    arrays = [pa.array(columns[field.name], field.type) for field in present]
    fields = list(present)
    by_column: dict[int, dict[int, ColumnStats]] = {}
    for row, entry in enumerate(entries):
        for stat in entry.stats:
            by_column.setdefault(stat.column, {})[row] = stat
    for column, rows in sorted(by_column.items()):
        stats = [rows.get(row) for row in range(len(entries))]
        bound = _bound_type([bound for s in rows.values() for bound in (s.min, s.max)])
        for name, kind in (("min", bound), ("max", bound), ("nulls", pa.int64())):
            fields.append(pa.field(f"{name}_{column}", kind))
            arrays.append(pa.array([s and getattr(s, name) for s in stats], kind))
    return pa.table(arrays, schema=pa.schema(fields))


def fixed_columns(entries: Sequence[Add | Segment]) -> dict[str, list[Any]]:
    """Return the values of those columns of `FIXED` that adds and live segments both have."""
    chunks = [parse_chunk(entry.chunk) for entry in entries]
    return {
        "chunk_start": [c.start for c in chunks],
        "chunk_end": [c.end for c in chunks],
        "id": [bytes.fromhex(e.id) for e in entries],
        "epoch": [e.epoch for e in entries],
        "rows": [e.rows for e in entries],
        "bytes": [e.bytes for e in entries],
        "checksum": [bytes.fromhex(e.checksum) for e in entries],
        "schema": [e.schema for e in entries],
        "tail_size": [e.tail and e.tail.size for e in entries],
        "tail_sha256": [e.tail and bytes.fromhex(e.tail.sha256) for e in entries],
    }


def chunk_names(starts: list[int], ends: list[int]) -> list[str]:
    """Return the names of time chunks by their bounds, in ms UTC.

    Raises:
        Corrupt: bounds are those of no chunk.
    """
    try:
        return [chunk_name(start, end) for start, end in zip(starts, ends, strict=True)]
    except (InvalidInput, TypeError) as error:
        raise Corrupt(f"a frame object has an invalid time chunk: {error}") from None


def object_keys(table: pa.Table) -> list[str]:
    """Return the keys of the objects of entries, in row order.

    Raises:
        Corrupt: an entry has the bounds of no time chunk.
    """
    epochs, starts, ends, ids = (
        table.column(name).to_pylist() for name in ("epoch", "chunk_start", "chunk_end", "id")
    )
    return [
        f"{keys.SEGMENTS_PREFIX}{epoch:012d}/{chunk}/{id_.hex()}.parquet"
        for epoch, chunk, id_ in zip(epochs, chunk_names(starts, ends), ids, strict=True)
    ]


def check_filled(table: pa.Table, names: Iterable[str]) -> None:
    """Refuse nulls in columns that every entry must fill."""
    for name in names:
        if table.column(name).null_count:
            raise Corrupt(f"a frame object has nulls in its column {name!r}")


def with_live_rows(table: pa.Table) -> pa.Table:
    """Return the entries with the rows that readers see in their column `rows`."""
    if "vector_rows" not in table.column_names:
        return table
    deleted = pc.fill_null(table.column("vector_rows"), 0)
    at = table.schema.get_field_index("rows")
    return table.set_column(at, "rows", pc.subtract(table.column("rows"), deleted))


def with_vector(table: pa.Table) -> pa.Table:
    """Return the entries that have a deletion vector."""
    if "vector_rows" not in table.column_names:
        return EMPTY
    return table.filter(pc.is_valid(table.column("vector_rows")))


def deleted_sum(table: pa.Table) -> int:
    """Return the number of rows that the vectors of the entries delete."""
    if "vector_rows" not in table.column_names:
        return 0
    return int(pc.sum(table.column("vector_rows"), min_count=0).as_py())


def inline_count(table: pa.Table) -> int:
    """Return the number of entries whose bytes stand in commits."""
    if INLINE.name not in table.column_names:
        return 0
    return int(table.num_rows - table.column(INLINE.name).null_count)


def vector_columns(given: Sequence[Vector | UnsetType]) -> dict[str, list[Any]]:
    """Return the columns of deletion vectors; none where there is none."""
    if all(isinstance(vector, UnsetType) for vector in given):
        return {}
    present = [None if isinstance(vector, UnsetType) else vector for vector in given]
    stored = [None if v is None or isinstance(v.stored, UnsetType) else v.stored for v in present]
    columns: dict[str, list[Any]] = {
        "vector_rows": [v and v.rows for v in present],
        "vector_bitmap": [
            None if v is None or isinstance(v.bitmap, UnsetType) else v.bitmap for v in present
        ],
    }
    for name in STORED:
        columns[name] = [s and getattr(s, name.removeprefix("vector_")) for s in stored]
    for name in ("vector_object", "vector_hash"):
        columns[name] = [v and bytes.fromhex(v) for v in columns[name]]
    return columns


def vectors(table: pa.Table) -> list[Vector | UnsetType]:
    """Return the deletion vector of each entry; UNSET for an entry without one."""
    if "vector_rows" not in table.column_names:
        return [UNSET] * table.num_rows
    columns = [table.column(name).to_pylist() for name in VECTOR.names]
    return [_vector(*row) for row in zip(*columns, strict=True)]


def _vector(
    rows: int | None, bitmap: bytes | None, epoch: int | None, *named: Any
) -> Vector | UnsetType:
    if rows is None:
        return UNSET
    stored: StoredBitmap | UnsetType = UNSET
    if epoch is not None:
        object_id, offset, size, digest = named
        stored = StoredBitmap(epoch, object_id.hex(), offset, size, digest.hex())
    return Vector(rows, UNSET if bitmap is None else bitmap, stored)


def _slice_columns(entries: Sequence[Add | Segment]) -> dict[str, list[Any]]:
    """Return the columns of the places in slices; none where no entry has one."""
    places = [None if isinstance(entry.slice, UnsetType) else entry.slice for entry in entries]
    if not any(places):
        return {}
    names = [name.removeprefix("slice_") for name in SLICE.names]
    columns = {f"slice_{n}": [None if p is None else getattr(p, n) for p in places] for n in names}
    splits = [None if p is None or isinstance(p.splits, UnsetType) else p.splits for p in places]
    # Tables that were never split keep the bytes that they had.
    return columns | ({SPLITS.name: splits} if any(splits) else {})


def _inline_column(entries: Sequence[Add | Segment]) -> dict[str, list[Any]]:
    """Return the column of the versions that have the bytes; none where no entry has one."""
    if all(isinstance(entry.inline, UnsetType) for entry in entries):
        return {}
    return {INLINE.name: [None if isinstance(e.inline, UnsetType) else e.inline for e in entries]}


def _inline(table: pa.Table) -> list[int | UnsetType]:
    if INLINE.name not in table.column_names:
        return [UNSET] * table.num_rows
    return [UNSET if v is None else v for v in table.column(INLINE.name).to_pylist()]


def _bound_type(bounds: list[int | str | None]) -> pa.DataType:
    """Return the narrowest type; of nulls alone that is null, which merges with any other type."""
    if any(isinstance(bound, str) for bound in bounds):
        return pa.string()
    return pa.null() if all(bound is None for bound in bounds) else pa.int64()


def _slices(table: pa.Table) -> list[Slice | UnsetType]:
    if "slice_kind" not in table.column_names:
        return [UNSET] * table.num_rows
    columns = [table.column(name).to_pylist() for name in SLICE.names]
    splits: list[int | None] = [None] * table.num_rows
    if SPLITS.name in table.column_names:
        splits = table.column(SPLITS.name).to_pylist()
    columns.append([UNSET if count is None else count for count in splits])
    return [UNSET if row[0] is None else Slice(*row) for row in zip(*columns, strict=True)]


def _stats_rows(table: pa.Table) -> list[tuple[ColumnStats, ...]]:
    columns: list[Iterable[ColumnStats | None]] = []
    complete = True
    for column in stats_ids(table):
        low, high, nulls = (
            table.column(f"{name}_{column}").to_pylist() for name in ("min", "max", "nulls")
        )
        stats = map(ColumnStats, repeat(column), low, high, nulls)
        if None in nulls:  # some entries have no statistics of the column
            complete = False
            pairs = zip(stats, nulls, strict=True)
            columns.append([None if count is None else stat for stat, count in pairs])
        else:
            columns.append(stats)
    if not columns:
        return [()] * table.num_rows
    rows = zip(*columns, strict=True)
    return list(rows) if complete else [tuple(s for s in row if s is not None) for row in rows]


def _tails(table: pa.Table) -> list[Tail | None]:
    if table.column("tail_size").null_count == table.num_rows:
        return [None] * table.num_rows
    sizes, hashes = (table.column(name).to_pylist() for name in TAIL)
    return [
        None if size is None else Tail(size, sha256.hex())
        for size, sha256 in zip(sizes, hashes, strict=True)
    ]
