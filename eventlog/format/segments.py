"""Segment entries in columns: the Arrow form of key frame leaves, spills and large snapshots.

One row per entry: ids and hashes as binary, the chunk as its bounds, statistics as `min_<id>`,
`max_<id>`, `nulls_<id>` by column id (FORMAT.md "Key frame leaf"). A null `version` in a spill
stands for the version of the commit that names the spill.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET, UnsetType

from eventlog import limits
from eventlog.decoding import decode, most_bytes
from eventlog.errors import Corrupt, InvalidInput
from eventlog.format import codec
from eventlog.model.actions import Add, Drop
from eventlog.model.chunks import chunk_name, parse_chunk
from eventlog.model.entries import ColumnStats, Segment, Slice, Tail

_FIXED = pa.schema(
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
_SLICE = pa.schema(
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
_SPLITS = pa.field("slice_splits", pa.int64())  # after those, where an entry has it
_MAX_SPLITS = 12
_OF_COMMIT = ("low", "high", "ordinal")  # what an add leaves to its commit
_SLICE_KINDS = ("base", "late", "log")
_COLUMN_ID = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_SPILL_ACTION = pa.field("drop", pa.bool_())
# Columns of unique values, for which a dictionary would only take more space.
_PLACE = ("chunk_start", "chunk_end", "id")
# The Parquet types of the columns, each with its logical type (FORMAT.md R9.3). An INT32 has nulls
# only: bounds of which there is none.
_PHYSICAL: dict[tuple[str, str], Any] = {
    ("BOOLEAN", "None"): pa.bool_(),
    ("INT32", "Null"): pa.null(),
    ("INT64", "None"): pa.int64(),
    ("BYTE_ARRAY", "String"): pa.string(),
    ("FIXED_LEN_BYTE_ARRAY", "None"): "fixed",
}
_BOUND_TYPES = (pa.string(), pa.null())
_PLAIN = ("id", "checksum", "hash", "tail_sha256")
_TAIL = ("tail_size", "tail_sha256")
_COUNTS = (
    "epoch",
    "version",
    "partition",
    "rows",
    "bytes",
    "schema",
    "tail_size",
    *(name for name in _SLICE.names if name != "slice_kind"),
    _SPLITS.name,
)
_MAX_FRAME_BYTES = limits.FRAME_BYTES
# What is decoded at once, and kept before the whole size is known: rows also, since a footer may
# lie about bytes.
_ONCE_BYTES = 32 * 2**20
_ONCE_ROWS = 256
ORDER = [("chunk_start", "ascending"), ("chunk_end", "ascending"), ("id", "ascending")]

# Schema.empty_table would import pandas, which costs half a second in every process.
EMPTY = pa.Table.from_batches([], schema=_FIXED)


def from_segments(segments: Sequence[Segment], hashes: Sequence[int] | None = None) -> pa.Table:
    """Return the entries as a table, in the order given.

    Args:
        segments: the entries.
        hashes: their `codec.entry_hash`, where known.
    """
    columns = _fixed_columns(segments)
    columns["version"] = [s.version for s in segments]
    columns["partition"] = [s.partition for s in segments]
    if hashes is None:
        columns["hash"] = codec.entry_digests(segments)
    else:
        columns["hash"] = [h.to_bytes(32, "big") for h in hashes]
    try:
        return _table(columns, segments)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Corrupt(f"segment entries do not fit together: {error}") from None


def to_segments(table: pa.Table) -> list[Segment]:
    """Return the entries of a table as values, in row order."""
    fixed = {name: table.column(name).to_pylist() for name in _FIXED.names if name != "hash"}
    return list(
        map(
            Segment,
            map(bytes.hex, fixed["id"]),
            _chunk_names(fixed["chunk_start"], fixed["chunk_end"]),
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
        )
    )


def hash_sum(table: pa.Table) -> int:
    """Return the sum of the entries' hashes mod 2^256."""
    # from_bytes takes the bytes as big-endian; a hash is never null here.
    return sum(map(int.from_bytes, table.column("hash").to_pylist())) % codec.HASH_MODULUS


def hashes_hold(table: pa.Table) -> bool:
    """Say whether the column `hash` matches the other columns (FORMAT.md R8.1)."""
    stored: list[bytes] = table.column("hash").to_pylist()
    return codec.entry_digests(to_segments(table)) == stored


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; statistics columns that a table lacks are null."""
    filled = [table for table in tables if table.num_rows]
    try:
        return pa.concat_tables(filled, promote_options="default") if filled else EMPTY
    except pa.ArrowException as error:
        raise Corrupt(f"segment entries do not fit together: {error}") from None


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
    dictionary = [name for name in table.column_names if name not in _PLAIN]
    pq.write_table(
        table.replace_schema_metadata(None),
        sink,
        compression="zstd",
        compression_level=3,
        use_dictionary=dictionary,
        write_statistics=False,
        store_schema=False,
        row_group_size=max(1, table.num_rows),
    )
    return bytes(sink.getvalue())


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
            and R6.4 name, of other types or in another order.
    """
    table = read_frame(body, rows)
    try:
        return _conform(table, spilled=spilled)
    except UnicodeDecodeError:
        raise Corrupt("a frame object has text that is not valid UTF-8") from None


def read_frame(body: bytes, rows: int) -> pa.Table:
    """Return the table in the bytes of an object under `_frames/`, whatever its columns.

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
        plain = _plain_schema(file.schema, file.schema_arrow.names)
        return _decoded(source, file, plain)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, Corrupt):
            raise
        raise Corrupt(f"a frame object is not readable Parquet: {error}") from None


def _decoded(source: pa.BufferReader, file: pq.ParquetFile, plain: pa.Schema) -> pa.Table:
    """Return the rows of a frame object in the types of `plain`.

    Memory is bounded by what is decoded: a dictionary repeats its texts, and a footer may lie.

    Raises:
        Corrupt: they take more than `_MAX_FRAME_BYTES`.
    """
    footer = file.metadata
    groups, columns = range(footer.num_row_groups), range(footer.num_columns)
    enough = _ONCE_BYTES * max(1, footer.num_rows // _ONCE_ROWS)
    most = most_bytes(source, footer, groups, columns, enough)
    few = max(1, min(_ONCE_ROWS, footer.num_rows * _ONCE_BYTES // max(1, most.size)))
    once = None if most.sure else _ONCE_BYTES
    # Other programs note types of their own beside those of Parquet.
    foreign = file.schema_arrow.types != plain.types
    size, held = 0, []
    for batch in decode(source, footer, groups, columns, few, once=once):
        piece = batch.cast(plain) if foreign else batch
        # The first is quicker, but counts what pieces share in each of them.
        size += piece.get_total_buffer_size() if size <= _ONCE_BYTES else piece.nbytes
        if size > _MAX_FRAME_BYTES:
            raise Corrupt(f"a frame object decodes to more than {_MAX_FRAME_BYTES} bytes")
        if size <= _ONCE_BYTES:
            held.append(piece)
    # Nothing large is kept before its size is known.
    table = file.read() if size > _ONCE_BYTES else pa.Table.from_batches(held, file.schema_arrow)
    return table.cast(plain) if table.schema.types != plain.types else table


def ordered(table: pa.Table) -> bool:
    """Say whether the entries are in leaf order, without duplicates."""
    rising = pa.array([False] * max(0, table.num_rows - 1), pa.bool_())
    for name, _ in reversed(ORDER):
        column = table.column(name).combine_chunks()
        before, after = column.slice(0, len(rising)), column.slice(1)
        rising = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), rising))
    return bool(pc.all(rising).as_py()) if len(rising) else True


def spill(
    adds: Iterable[Add | Segment], drops: Iterable[Drop], version: int | None = None
) -> pa.Table:
    """Return the table of a spill object: the adds, then the drops.

    Adds that are `Add` actions, or segments of `version`, get a null version and partition, so that
    the object is the same whichever version the commit gets. A null partition is counted: segments
    of `version` keep both where the commit dropped one of its own adds.
    """
    added, dropped = list(adds), list(drops)
    columns = _fixed_columns(added)
    own = [isinstance(a, Add) or a.version == version for a in added]
    places = [a.partition for a in added if isinstance(a, Segment) and a.version == version]
    if places != list(range(len(places))):  # against gap-in-a-spill
        own = [False] * len(own)
    columns["version"] = [None if o else a.version for a, o in zip(added, own, strict=True)]  # type: ignore[union-attr]
    columns["partition"] = [None if o else a.partition for a, o in zip(added, own, strict=True)]  # type: ignore[union-attr]
    columns["hash"] = [None] * len(added)
    if any(not isinstance(a.slice, UnsetType) for a in added):
        left = [_left_to_commit(a) if o else a.slice for a, o in zip(added, own, strict=True)]
        for name in _OF_COMMIT:
            columns[f"slice_{name}"] = [
                None if isinstance(place, UnsetType) else getattr(place, name) for place in left
            ]
    chunks = [parse_chunk(drop.chunk) for drop in dropped]
    gone: dict[str, list[Any]] = {name: [None] * len(dropped) for name in _FIXED.names}
    gone |= {
        "chunk_start": [c.start for c in chunks],
        "chunk_end": [c.end for c in chunks],
        "id": [bytes.fromhex(drop.id) for drop in dropped],
        "hash": [bytes.fromhex(drop.hash) for drop in dropped],
    }
    table = concat([_table(columns, added), _table(gone, [])])
    marks = pa.array([False] * len(added) + [True] * len(dropped), pa.bool_())
    return table.append_column(_SPILL_ACTION, marks)


def from_spill(
    table: pa.Table, version: int, *, actions: bool = False
) -> tuple[list[Segment], list[Drop]]:
    """Return the adds and drops of a spill object named by the commit of `version`.

    Args:
        table: the object.
        version: the version of the commit.
        actions: they are actions of a transaction: their slices leave to the commit what they do.

    Raises:
        Corrupt: a row is neither an add nor a drop, or the versions and partitions of adds are not
            of one form.
    """
    marks = table.column(_SPILL_ACTION.name)
    table = table.drop_columns([_SPILL_ACTION.name])
    _check_filled(table, _PLACE)
    gone = table.filter(marks)
    kept = table.filter(pa.compute.invert(marks))
    _check_filled(gone, ("hash",))
    _check_empty(gone, [name for name in gone.column_names if name not in (*_PLACE, "hash")])
    _check_filled(kept, ("epoch", "rows", "bytes", "checksum", "schema"))
    _check_empty(kept, ["hash", *(("version", "partition") if actions else ())])
    try:
        chunks = _chunk_names(
            gone.column("chunk_start").to_pylist(), gone.column("chunk_end").to_pylist()
        )
        ids, hashes = gone.column("id").to_pylist(), gone.column("hash").to_pylist()
        drops = [Drop(i.hex(), c, h.hex()) for i, c, h in zip(ids, chunks, hashes, strict=True)]
        versions = kept.column("version")
        own = pa.compute.is_null(versions)
        given = pa.compute.any(pa.compute.equal(versions, version)).as_py()
        if not own.equals(pa.compute.is_null(kept.column("partition"))):
            raise Corrupt("a spill object has adds with half a place")
        if given and versions.null_count:
            raise Corrupt("a spill object says only of some adds that its commit made them")
        ordinals = pa.compute.subtract(pa.compute.cumulative_sum(own.cast(pa.int64())), 1)
        partitions = pa.compute.if_else(own, ordinals, kept.column("partition"))
        for name, values in (("version", versions.fill_null(version)), ("partition", partitions)):
            at = kept.schema.get_field_index(name)  # columns of statistics may stand before it
            kept = kept.set_column(at, _FIXED.field(name), values)
        return to_segments(kept if actions else _with_spans(kept, version)), drops
    except (TypeError, AttributeError) as error:
        raise Corrupt(f"a spill object has rows that violate the format: {error}") from None


def _fixed_columns(entries: Sequence[Add | Segment]) -> dict[str, list[Any]]:
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


def _slice_columns(entries: Sequence[Add | Segment]) -> dict[str, list[Any]]:
    """Return the columns of the places in slices; none where no entry has one."""
    places = [None if isinstance(entry.slice, UnsetType) else entry.slice for entry in entries]
    if not any(places):
        return {}
    names = [name.removeprefix("slice_") for name in _SLICE.names]
    columns = {f"slice_{n}": [None if p is None else getattr(p, n) for p in places] for n in names}
    splits = [None if p is None or isinstance(p.splits, UnsetType) else p.splits for p in places]
    # Tables that were never split keep the bytes that they had.
    return columns | ({_SPLITS.name: splits} if any(splits) else {})


def _left_to_commit(entry: Add | Segment) -> Slice | UnsetType:
    """Return the place of an own add of a commit, without what that determines."""
    place = entry.slice
    if isinstance(place, UnsetType) or isinstance(entry, Add):
        return place
    if place.low == entry.version and not place.level:
        place = msgspec.structs.replace(place, low=None, high=None)
    if place.ordinal == entry.partition:
        place = msgspec.structs.replace(place, ordinal=None)
    return place


def _with_spans(table: pa.Table, version: int) -> pa.Table:
    """Return the adds of a spill with the spans and ordinals that they leave to their commit."""
    if "slice_kind" not in table.column_names:
        return table
    placed = pc.is_valid(table.column("slice_kind"))
    for name in ("slice_low", "slice_high"):
        column = table.column(name)
        filled = pc.if_else(pc.and_(placed, pc.is_null(column)), version, column)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, _SLICE.field(name), filled)
    ordinals = pc.coalesce(table.column("slice_ordinal"), table.column("partition"))
    at = table.schema.get_field_index("slice_ordinal")
    ordinals = pc.if_else(placed, ordinals, pa.scalar(None, pa.int64()))
    return table.set_column(at, _SLICE.field("slice_ordinal"), ordinals)


def _slices(table: pa.Table) -> list[Slice | UnsetType]:
    if "slice_kind" not in table.column_names:
        return [UNSET] * table.num_rows
    columns = [table.column(name).to_pylist() for name in _SLICE.names]
    splits: list[int | None] = [None] * table.num_rows
    if _SPLITS.name in table.column_names:
        splits = table.column(_SPLITS.name).to_pylist()
    columns.append([UNSET if count is None else count for count in splits])
    return [UNSET if row[0] is None else Slice(*row) for row in zip(*columns, strict=True)]


def _table(columns: dict[str, list[Any]], entries: Sequence[Add | Segment]) -> pa.Table:
    columns = _slice_columns(entries) | columns
    present = [*_FIXED, *(field for field in (*_SLICE, _SPLITS) if field.name in columns)]
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


def _bound_type(bounds: list[int | str | None]) -> pa.DataType:
    """Return the narrowest type; of nulls alone that is null, which merges with any other type."""
    if any(isinstance(bound, str) for bound in bounds):
        return pa.string()
    return pa.null() if all(bound is None for bound in bounds) else pa.int64()


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
    sizes, hashes = (table.column(name).to_pylist() for name in _TAIL)
    return [
        None if size is None else Tail(size, sha256.hex())
        for size, sha256 in zip(sizes, hashes, strict=True)
    ]


def stats_ids(table: pa.Table) -> list[int]:
    """Return the ids of the columns that have statistics in this table, ascending."""
    return _stats_ids(table.column_names)


def _stats_ids(names: Iterable[str]) -> list[int]:
    return sorted(int(n.removeprefix("nulls_")) for n in names if n.startswith("nulls_"))


def _chunk_names(starts: list[int], ends: list[int]) -> list[str]:
    try:
        return [chunk_name(start, end) for start, end in zip(starts, ends, strict=True)]
    except (InvalidInput, TypeError) as error:
        raise Corrupt(f"a frame object has an invalid time chunk: {error}") from None


def _plain_schema(schema: Any, names: Sequence[str]) -> pa.Schema:
    """Return the columns by their Parquet types, before anything is decoded.

    Raises:
        Corrupt: one has a type that no column of these objects has.
    """
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


def _check_empty(table: pa.Table, names: Iterable[str]) -> None:
    """Refuse values where FORMAT.md R6.4 has nulls."""
    for name in names:
        if table.column(name).null_count != table.num_rows:
            raise Corrupt(f"a spill object has values in its column {name!r} that mean nothing")


def _check_filled(table: pa.Table, names: Iterable[str]) -> None:
    """Refuse nulls in columns that every entry must fill."""
    for name in names:
        if table.column(name).null_count:
            raise Corrupt(f"a frame object has nulls in its column {name!r}")


def _conform(table: pa.Table, *, spilled: bool) -> pa.Table:
    """Check the columns of a decoded frame object, and give them exactly their types."""
    exact = _exact(table.schema, spilled=spilled)
    if not spilled:
        _check_filled(table, (name for name in _FIXED.names if name not in _TAIL))
        starts, ends = (table.column(name).to_pylist() for name in ("chunk_start", "chunk_end"))
        _chunk_names(starts, ends)
    sizes, hashes = (pc.is_null(table.column(name)) for name in _TAIL)
    if not sizes.equals(hashes):
        raise Corrupt("a frame object has incomplete tails")
    try:
        table.validate(full=True)  # invalid UTF-8 would otherwise fail only when it is read
        if not table.schema.equals(exact, check_metadata=True):
            table = table.cast(exact)
    except (pa.ArrowException, ValueError) as error:
        raise Corrupt(f"a frame object has columns of the wrong type: {error}") from None
    _check_slices(table, spilled=spilled)
    _check_counts(table)
    if not spilled:
        _check_entries(table)
    return table


def _check_entries(table: pa.Table) -> None:
    """Refuse entries of a leaf as `keys.check_entry` does those of JSON."""
    columns = [(table.column("tail_size"), table.column("bytes"))]
    columns.append((pa.scalar(1, pa.int64()), table.column("schema")))
    if "slice_kind" in table.column_names:
        names = (("first", "last"), ("low", "high"))
        columns += [tuple(table.column(f"slice_{name}") for name in pair) for pair in names]
        columns.append((table.column("slice_high"), table.column("version")))
    for least, most in columns:
        if pc.any(pc.greater(least, most), min_count=0).as_py():
            raise Corrupt("a frame object has an entry whose parts contradict each other")


def _check_slices(table: pa.Table, *, spilled: bool) -> None:
    """Refuse places in slices of which a part is missing, or of an unknown kind."""
    if "slice_kind" not in table.column_names:
        return
    kinds = table.column("slice_kind")
    absent = pc.is_null(kinds)
    for name in _SLICE.names:
        missing = pc.is_null(table.column(name))
        if name.removeprefix("slice_") in _OF_COMMIT and spilled:
            if pc.any(pc.and_(absent, pc.invert(missing)), min_count=0).as_py():
                raise Corrupt("a frame object has incomplete slices")
        elif not missing.equals(absent):
            raise Corrupt("a frame object has incomplete slices")
    if _SPLITS.name in table.column_names:
        _check_splits(table.column(_SPLITS.name), absent)
    low, high = (pc.is_null(table.column(name)) for name in ("slice_low", "slice_high"))
    if not low.equals(high):
        raise Corrupt("a frame object has incomplete slices")
    if not pc.all(
        pc.is_in(kinds.drop_null(), value_set=pa.array(_SLICE_KINDS)), min_count=0
    ).as_py():
        raise Corrupt("a frame object has a slice of an unknown kind")


def _check_splits(splits: pa.ChunkedArray, absent: pa.ChunkedArray) -> None:
    if pc.any(pc.and_(absent, pc.is_valid(splits)), min_count=0).as_py():
        raise Corrupt("a frame object has incomplete slices")
    possible = pc.and_(pc.greater_equal(splits, 1), pc.less_equal(splits, _MAX_SPLITS))
    if not pc.all(possible, min_count=0).as_py():
        raise Corrupt("a frame object has a slice of impossible splits")


@lru_cache(maxsize=64)  # the objects of one table have few schemas
def _exact(schema: pa.Schema, *, spilled: bool) -> pa.Schema:
    """Check the columns of a decoded frame object, and return them with their exact types."""
    fixed, fields = {field.name: field for field in (*_FIXED, *_SLICE, _SPLITS)}, []
    known = fixed | ({_SPILL_ACTION.name: _SPILL_ACTION} if spilled else {})
    for field in schema:
        stem, _, number = field.name.partition("_")
        if field.name in known:
            fields.append(known[field.name])
        elif stem in ("min", "max", "nulls") and _COLUMN_ID.fullmatch(number):
            kept = stem != "nulls" and field.type in _BOUND_TYPES
            fields.append(pa.field(field.name, field.type if kept else pa.int64()))
        else:
            raise Corrupt(f"a frame object has an unknown column {field.name[:80]!r}")
    if [name for name in schema.names if name in fixed] not in (
        _FIXED.names,
        [*_FIXED.names, *_SLICE.names],
        [*_FIXED.names, *_SLICE.names, _SPLITS.name],
    ):
        raise Corrupt("a frame object lacks a column of an entry, or has them in another order")
    odd = next((f.name for f, to in zip(schema, fields, strict=True) if f.type != to.type), None)
    if odd is not None:
        raise Corrupt(f"a frame object has a column {odd!r} of the wrong type")
    wanted = {f"{stem}_{n}" for n in _stats_ids(schema.names) for stem in ("min", "max", "nulls")}
    stats = [name for name in schema.names if name not in fixed and name != _SPILL_ACTION.name]
    if sorted(stats) != sorted(wanted) or schema.names.count(_SPILL_ACTION.name) != int(spilled):
        raise Corrupt("a frame object has incomplete statistics, or a spill lacks 'drop'")
    for number in _stats_ids(schema.names):
        kinds = {schema.field(f"{stem}_{number}").type for stem in ("min", "max")} - {pa.null()}
        if len(kinds) > 1:
            raise Corrupt(f"a frame object has texts and numbers as bounds of column {number}")
    return pa.schema(fields)


def _check_counts(table: pa.Table) -> None:
    """Refuse what JSON could not say either (FORMAT.md R5.2)."""
    counts = [name for name in _COUNTS if name in table.column_names]
    for name in (*counts, *(name for name in table.column_names if name.startswith("nulls_"))):
        least = pc.min(table.column(name)).as_py()
        if least is not None and least < 0:
            raise Corrupt(f"a frame object has a negative count in its column {name!r}")
