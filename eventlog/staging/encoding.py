"""Encoding: rows of one chunk become the object of a segment, and the action that adds it.

`put_segment` stores the object. Small segments are encoded in one call, large ones row group by row
group; in both cases the object of a large one ends with a tail (`eventlog.format.parts`).
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET, UnsetType

from eventlog import limits
from eventlog.clock import Clock
from eventlog.commit.proposal import check_writable
from eventlog.errors import Corrupt
from eventlog.format import codec, keys, parts
from eventlog.keyed.log_rows import upserts
from eventlog.keyed.rule import MergeRule, keyed_of
from eventlog.log.snapshot import Snapshot
from eventlog.model import stats
from eventlog.model.actions import Add
from eventlog.model.columns.named_layout import NamedKey, NamedLayout
from eventlog.model.entries import Column, ColumnStats, Granularity, Schema, Slice, Tail
from eventlog.model.properties import INLINE, setting
from eventlog.model.schema import stored_time_column, to_arrow, with_field_ids
from eventlog.staging.cutting import bounded, weight, within
from eventlog.staging.parquet.column_forms import are_few, parquet_options
from eventlog.staging.parquet.joined_files import JoinedFile, footer_tree
from eventlog.staging.parquet.thrift_trees import Tree
from eventlog.store.port import Body, ObjectStore
from eventlog.store.retry import put_once

# Segments whose rows take fewer bytes in Arrow do not store their decoded sizes: they are small.
_RECORDED_BYTES = 2**20
_GROUP_BYTES = 32 * 2**20  # Arrow bytes of a row group in a `SegmentWriter`


@dataclass(frozen=True, slots=True)
class Recipe:
    """How rows of one table become segments: everything that an executor needs besides the store.

    Attributes:
        epoch: the head version that the job read when it started (FORMAT.md "Staging").
        schema: the schema that the segments are written with.
        layout: time column, granularity, sort order.
        stats_columns: the columns that get statistics.
        segment_bytes: Arrow bytes of a chunk that fill a segment.
        rule: the merge rule of a keyed table; None for others.
        bucket_bytes: in a keyed table: Arrow bytes above which an upsert writes a segment a bucket.
        fills: in a keyed table: whether columns that upserts lack are null even where that erases
            values (`missing="null"`).
        coarsest: the coarsest granularity by which the rows may be cut, instead of by that of the
            layout, if they suggest it (`eventlog.staging.fitting`); None: they may not.
        inline_bytes: the most bytes of segments that stand in their commit; 0: none do.
    """

    epoch: int
    schema: Schema
    layout: NamedLayout
    stats_columns: tuple[Column, ...]
    segment_bytes: int
    rule: MergeRule | None = None
    bucket_bytes: int = 0
    fills: bool = False
    coarsest: Granularity | None = None
    inline_bytes: int = 0

    @property
    def sorted_by(self) -> str | None:
        """The key of a keyed table, if it is one column: rows are sorted by it in a bucket."""
        return None if self.rule is None or len(self.rule.key) > 1 else self.rule.key[0]

    def tested(self, rows: pa.Table) -> pa.Table:
        """Return the rows that must meet the table's checks: not those that delete a key."""
        return rows if self.rule is None else upserts(rows)

    @classmethod
    def of(
        cls, snapshot: Snapshot, *, fills: bool = False, coarsest: Granularity | None = None
    ) -> Recipe:
        """Return the recipe of a table as of a snapshot.

        Args:
            snapshot: the snapshot.
            fills: see the attribute.
            coarsest: see the attribute.

        Raises:
            UnsupportedFormat: the table requires a newer writer.
        """
        header, properties = snapshot.state.header, snapshot.state.meta.properties
        schema, layout = snapshot.state.stored_schema, snapshot.state.layout
        check_writable(header)  # before anything is staged
        time = stored_time_column(schema, layout)
        setting_text = properties.get(stats.PROPERTY)
        kinds = {column.name: column.type for column in schema.columns}
        # Older releases accepted columns that have no order; they are ignored.
        order = tuple(n for n in layout.order_by if isinstance(kinds.get(n), str))
        layout = msgspec.structs.replace(layout, order_by=order)
        return cls(
            epoch=header.version,
            schema=schema,
            layout=layout,
            stats_columns=_with_key(
                stats.stats_columns(schema, setting_text, None if time is None else time.id),
                schema,
                keyed_of(layout),
            ),
            segment_bytes=setting(properties, "segment_bytes"),
            rule=snapshot.merge_rule,
            bucket_bytes=setting(properties, "bucket_bytes"),
            fills=fills,
            coarsest=coarsest,
            inline_bytes=setting(properties, INLINE),
        )


def _with_key(
    columns: tuple[Column, ...], schema: Schema, keyed: NamedKey | None
) -> tuple[Column, ...]:
    """Return the columns that get statistics, by id, with those of the key, for look-ups."""
    wanted = {column.name for column in columns} | set(keyed.key if keyed else ())
    found = (column for column in schema.columns if column.name in wanted)
    return tuple(sorted(found, key=lambda column: column.id))


class Encoded(NamedTuple):
    """The bytes of a segment's object, and the description of their tail for its entry."""

    body: memoryview
    tail: Tail | None


class StoredGroups(NamedTuple):
    """All row groups of a segment, as they are stored.

    Attributes:
        file: the Parquet file.
        footer: that of it.
        rows: their number.
        column_stats: the statistics of the rows.
        sizes: for each row group, for each top-level column, the bytes of its values in Arrow.
        checksums: of its column chunks, as those of parts (`eventlog.format.parts`).
        first_checksum: that of the first chunk with the magic before it.
    """

    file: memoryview
    footer: Tree
    rows: int
    column_stats: tuple[ColumnStats, ...]
    sizes: list[list[int]]
    checksums: list[bytes]
    first_checksum: bytes


class SegmentWriter:
    """Writes one segment incrementally; only the rows of one row group wait for their encoding.

    Call `write(...)` for the rows in their final order, then `seal()`, and store the result with
    `put_segment`.

    Args:
        clock: for the segment's id.
        recipe: how the segment is written; rows are not sorted.
        chunk: name of the time chunk of all rows.
        watch: called with all rows, right before they are encoded.
        group_bytes: Arrow bytes that fill a row group.
        path: a file for the encoded bytes, so that only waiting rows are held in memory.
        schema: that of the rows; the recipe's if None.
        form: the footer of a segment of the recipe (`footer_without_rows`), if row groups of others
            are to be taken as they are.
    """

    def __init__(
        self,
        clock: Clock,
        recipe: Recipe,
        chunk: str,
        *,
        watch: Callable[[pa.Table], None] | None = None,
        group_bytes: int = _GROUP_BYTES,
        path: Path | None = None,
        schema: pa.Schema | None = None,
        form: Tree | None = None,
    ) -> None:
        self._clock, self._recipe, self._watch = clock, recipe, watch
        self.chunk, self._group_bytes, self._path = chunk, group_bytes, path
        self._sink = io.BytesIO() if path is None else path.open("w+b")
        self._schema = to_arrow(recipe.schema) if schema is None else schema
        self._file: pq.ParquetWriter | None = None
        self._joined = None if form is None else JoinedFile(self._sink, form)
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._groups: list[tuple[int, tuple[ColumnStats, ...]]] = []
        self._sizes: list[list[int]] = []
        # Of the column chunks that were taken as they are: their numbers and checksums.
        self._taken = list[tuple[int, bytes]]()
        self.rows = 0
        self.encoded_rows = 0

    @property
    def encoded_bytes(self) -> int:
        """Bytes of the encoded row groups, which have `encoded_rows` rows."""
        return self._sink.tell()

    @property
    def held_bytes(self) -> int:
        """Bytes held in memory: waiting rows, and encoded row groups if there is no file."""
        return self._pending_bytes + (0 if self._path else self.encoded_bytes)

    def write(self, table: pa.Table) -> None:
        """Take rows of exactly the recipe's schema."""
        self.rows += table.num_rows
        while table.num_rows:
            part = table.slice(0, limits.ROW_GROUP_ROWS - self._pending_rows)
            part = part.slice(0, within(part, self._group_bytes - self._pending_bytes))
            table = table.slice(part.num_rows)
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += weight(part)
            full = self._pending_rows >= limits.ROW_GROUP_ROWS
            if full or self._pending_bytes >= self._group_bytes:
                self.flush()

    def flush(self) -> None:
        """Encode the waiting rows as a row group of their own."""
        if not self._pending:
            return
        group = pa.concat_tables(self._pending).combine_chunks()
        if self._watch is not None:
            self._watch(group)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if self._joined is None:
            self._opened(group).write_table(group, row_group_size=group.num_rows)
        else:
            own = encode_segment(group, self._recipe.schema).body
            self._joined.take(own, footer_tree(own))
        column_stats = stats.compute(group, self._recipe.stats_columns)
        self._came(group.num_rows, column_stats, [_sizes(group)])

    def take(self, stored: StoredGroups) -> None:
        """Take the row groups of another segment as they are, after the rows so far.

        Raises:
            pa.ArrowInvalid: they have other columns than those of the form.
        """
        self.flush()
        assert self._joined is not None  # noqa: S101 - the caller's choice, for the type checker
        first = self._joined.chunks
        self._joined.take(stored.file, stored.footer)
        checksums = [*stored.checksums]
        if not first:
            checksums[0] = stored.first_checksum
        self._taken += enumerate(checksums, first)
        self.rows += stored.rows
        self._came(stored.rows, stored.column_stats, stored.sizes)

    def _came(
        self, rows: int, column_stats: tuple[ColumnStats, ...], sizes: Sequence[list[int]]
    ) -> None:
        self._groups.append((rows, column_stats))
        self._sizes += sizes
        self.encoded_rows += rows

    def abandon(self) -> None:
        """Close the file, whose rows are not needed any more."""
        if self._file is not None:
            self._file.close()
        self._sink.close()

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return the Parquet file, which is written as suits its first rows."""
        if self._file is None:
            self._file = _parquet_file(
                self._sink, rows, self._recipe.schema, self._recipe.sorted_by
            )
        return self._file

    def seal(self, place: Slice | UnsetType = UNSET) -> tuple[Add, memoryview]:
        """Return the action that will add the segment, and the bytes of its object.

        Args:
            place: its place in the slices of a keyed table.

        If the bytes are in a file, the file is unlinked; they stay available while referenced.
        """
        self.flush()
        if self._joined is None:
            file = self._opened(self._schema.empty_table())
            _record_sizes(file, self._sizes)
            file.close()
        else:
            self._joined.close(_recorded_sizes(self._sizes))
        encoded = _with_tail(self._sink)
        _check_taken(encoded, self._taken)
        if self._path is not None:
            self._sink.close()
            self._path.unlink()
        add = make_add(
            self._recipe,
            self._clock,
            self.chunk,
            encoded,
            rows=self.rows,
            column_stats=stats.merge_stats(self._groups),
            place=place,
        )
        return add, encoded.body


def put_segment(store: ObjectStore, clock: Clock, add: Add, body: Body) -> None:
    """Store the object of a staged segment; nothing refers to it until it is committed.

    Raises:
        Unavailable: the store does not answer.
    """
    put_once(store, clock, keys.segment_key(add.epoch, add.chunk, add.id), body)


def encode_segment(table: pa.Table, schema: Schema, key: str | None = None) -> Encoded:
    """Return rows as the bytes of a segment: Parquet with statistics and field ids.

    Args:
        table: the rows.
        schema: that of the table, which has the ids of the columns.
        key: see `parquet_options`.
    """
    most_rows, most_bytes = limits.ROW_GROUP_ROWS, limits.ROW_GROUP_BYTES
    if 0 < table.num_rows <= most_rows and table.nbytes <= most_bytes and are_few(table):
        return _encoded_few(table, schema, key)
    sink = io.BytesIO()
    sizes: list[list[int]] = []
    with _parquet_file(sink, table, schema, key) as file:
        for group in bounded(table, limits.ROW_GROUP_ROWS, limits.ROW_GROUP_BYTES):
            file.write_table(group, row_group_size=group.num_rows)
            sizes.append(_sizes(group))
        _record_sizes(file, sizes)
    return _with_tail(sink)


def _encoded_few(table: pa.Table, schema: Schema, key: str | None) -> Encoded:
    """Return `encode_segment` of a few rows: their sizes need no look, and Arrow holds the bytes.

    A file of Python would be called for each piece of each page.
    """
    sink, stored = pa.BufferOutputStream(), with_field_ids(table.schema, schema)
    with pq.ParquetWriter(sink, stored, **parquet_options(table, key)) as file:
        file.write_table(table, row_group_size=table.num_rows)
    body = memoryview(sink.getvalue())
    located = parts.make_tail(body)  # of a great many columns
    if located is None:
        return Encoded(body, None)
    start, end = located
    return Encoded(memoryview(bytes(body[:start]) + end), parts.describe(end))


def footer_without_rows(recipe: Recipe) -> Tree:
    """Return the footer of a segment of a recipe without rows."""
    return footer_tree(encode_segment(to_arrow(recipe.schema).empty_table(), recipe.schema).body)


def _parquet_file(
    sink: BinaryIO, rows: pa.Table, schema: Schema, key: str | None
) -> pq.ParquetWriter:
    """Return a writer of a Parquet file.

    Args:
        sink: receives its bytes.
        rows: its rows, or the first of them.
        schema: that of the table, which has the ids of the columns.
        key: see `parquet_options`.
    """
    out, stored = pa.PythonFile(sink, "w"), with_field_ids(rows.schema, schema)
    return pq.ParquetWriter(out, stored, **parquet_options(rows, key))


def _sizes(group: pa.Table) -> list[int]:
    return [int(column.nbytes) for column in group.columns]


def _record_sizes(file: pq.ParquetWriter, sizes: list[list[int]]) -> None:
    if found := _recorded_sizes(sizes):
        file.add_key_value_metadata(found)


def _recorded_sizes(sizes: list[list[int]]) -> dict[str, str]:
    """Return the metadata with the decoded sizes of the row groups, by which readers bound memory.

    A small segment has none.
    """
    recorded = sum(map(sum, sizes)) > _RECORDED_BYTES
    return {parts.DECODED_KEY: parts.encode_sizes(sizes)} if recorded else {}


def _check_taken(encoded: Encoded, taken: Sequence[tuple[int, bytes]]) -> None:
    """Check that column chunks that were taken have the bytes that they came with.

    Args:
        encoded: the object.
        taken: numbers of chunks in its footer, and the checksums that they had.

    Raises:
        Corrupt: one has others.
    """
    if not taken:
        return
    size = len(encoded.body)
    if encoded.tail is None:
        raise Corrupt("row groups that were taken as they are make no large segment")
    _, found = parts.parse_tail(bytes(encoded.body[size - encoded.tail.size :]), size)
    for number, checksum in taken:
        # against taken-rows-not-compared
        if found.checksum_of(number) != checksum:
            encoded.body.release()
            raise Corrupt("a column that was taken as it is has other bytes; nothing was committed")


def _with_tail(sink: BinaryIO) -> Encoded:
    """Return a Parquet file as a segment's object: if it is large, with a tail for its footer."""
    size = sink.tell()
    tail = None
    body = _view(sink, size)
    located = parts.make_tail(body)
    if located is not None:
        body.release()
        start, end = located
        sink.seek(start)
        sink.write(end)
        body, tail = _view(sink, start + len(end)), parts.describe(end)
    return Encoded(body, tail)


def _view(sink: BinaryIO, size: int) -> memoryview:
    """Return the bytes of a file; a file on disk is memory-mapped, and can then be unlinked."""
    if isinstance(sink, io.BytesIO):
        return sink.getbuffer()
    sink.flush()
    return memoryview(mmap.mmap(sink.fileno(), size, access=mmap.ACCESS_READ))


def make_add(
    recipe: Recipe,
    clock: Clock,
    chunk: str,
    encoded: Encoded,
    *,
    rows: int,
    column_stats: tuple[ColumnStats, ...],
    place: Slice | UnsetType = UNSET,
) -> Add:
    """Return the action that adds a segment under a fresh id.

    Args:
        recipe: how it was written.
        clock: for the id.
        chunk: name of the time chunk of all rows.
        encoded: its object.
        rows: their number.
        column_stats: their statistics.
        place: its place in the slices of a keyed table.
    """
    return Add(
        id=clock.random_id(),  # against attempts-share-keys
        chunk=chunk,
        epoch=recipe.epoch,
        rows=rows,
        bytes=len(encoded.body),
        checksum=codec.sha256(encoded.body),
        schema=recipe.schema.id,
        stats=column_stats,
        tail=encoded.tail,
        slice=place,
    )
