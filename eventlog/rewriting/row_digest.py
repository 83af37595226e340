"""Digests of rows, independent of their order, which a rewrite must not change (hazard K6).

A digest has, for each column, the number of nulls and a sum over the bits of the values. The
digests of parts of the rows add up to the digest of all rows. A value of fixed width is multiplied
by a number derived from its row's event time, so a value that moves to a row with another time
changes the sum. In a table without a time column the first column of integers, times or floats
takes its place. For strings this is true of their lengths only, for decimals and the items of lists
not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import Corrupt

_WORD = 2**64
# One odd factor for each kind of sum of a column, so that they do not cancel out.
_LENGTHS, _BYTES = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_INNER, _NULLS = 0x165667B19E3779F9, 0x27D4EB2F165667C5
_VIEWS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_EXACT = Context(prec=100)
_AT_ONCE = 32 * 1024  # rows: their products stay in the caches of a processor


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of some rows.

    Attributes:
        rows: number of rows.
        columns: number of nulls and the sum mod 2^64, by column name.
    """

    rows: int
    columns: dict[str, tuple[int, int]]

    def __add__(self, other: Digest) -> Digest:
        columns = dict(self.columns)
        for name, (nulls, total) in other.columns.items():
            before = columns.get(name, (0, 0))
            columns[name] = (before[0] + nulls, (before[1] + total) % _WORD)
        return Digest(self.rows + other.rows, columns)


NOTHING = Digest(0, {})


def digest(table: pa.Table, time_column: str | None) -> Digest:
    """Return the digest of a table's rows.

    Args:
        table: rows with the columns of a table's schema (FORMAT.md R7.1).
        time_column: the event-time column, which has no nulls; None: the table has none.
    """
    total, weighing = NOTHING, time_column or _weighing(table.schema)
    for batch in table.to_batches(max_chunksize=_AT_ONCE):
        if batch.num_rows:
            weights = None
            if weighing is not None:
                words = _words(batch.column(batch.schema.get_field_index(weighing)))
                words = pc.fill_null(words, 0) if words.null_count else words
                weights = pc.add(pc.multiply(words, 2), 1)  # against values-that-change-places
            columns = {
                name: (column.null_count, _sum(column, weights))
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            total = total + Digest(batch.num_rows, columns)
    return total


def _weighing(schema: pa.Schema) -> str | None:
    """Return the first column whose values weigh the others of their rows, or None."""
    for field in schema:
        kind = field.type
        if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind):
            return str(field.name)
    return None


def check_same(before: Digest, after: Digest, chunk: str, table: str) -> None:
    """Check that the rows written are the rows that were read.

    Raises:
        Corrupt: they are not; the message names the chunk and column.
    """
    problem = None
    if before.rows != after.rows:
        problem = f"{before.rows} rows were read and {after.rows} written"
    elif before.rows:  # against only-rows-counted
        columns = {**before.columns, **after.columns}
        changed = [n for n in columns if before.columns.get(n) != after.columns.get(n)]
        if changed:
            problem = f"the values of column {changed[0]!r} differ from those that were read"
    if problem:
        raise Corrupt(
            f"the rewrite of chunk {chunk} is wrong: {problem}; nothing was committed", table=table
        )


def _sum(values: pa.Array, weights: pa.Array | None) -> int:
    """Return the sum mod 2^64 over the non-null values of one column."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        length = _total(pc.binary_length(values), weights)
        return (length * _LENGTHS + _bytes_of(values) * _BYTES) % _WORD
    if pa.types.is_decimal(kind):
        unscaled = pc.sum(values).as_py()  # 128 bits, wrapping
        return 0 if unscaled is None else int(unscaled.scaleb(kind.scale, _EXACT)) % _WORD
    if pa.types.is_nested(kind):
        total = 0
        for factor, lengths, inner in _parts(values):
            # A struct's fields align with the rows; the items of lists do not.
            beside = weights if lengths is None else None
            total += 0 if lengths is None else _total(lengths, weights) * _LENGTHS
            total += (inner.null_count * _NULLS + _sum(inner, beside)) * factor
        return total % _WORD
    return _total(_words(values), weights)


def _total(words: pa.Array, weights: pa.Array | None) -> int:
    weighted = words if weights is None else pc.multiply(words, weights)
    return int(pc.sum(weighted).as_py() or 0) % _WORD


def _words(values: pa.Array) -> pa.Array:
    """Return values of fixed width as 64-bit integers: floats and times by their bits."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int64())
    words = values.view(_VIEWS[values.type.byte_width])
    return words if words.type == pa.int64() else words.cast(pa.int64())


def _bytes_of(values: pa.Array) -> int:
    """Return the sum of all bytes of string or binary values."""
    present = values.drop_null() if values.null_count else values
    if not len(present):
        return 0
    offsets = pa.Array.from_buffers(
        pa.int32(), len(present) + 1, [None, present.buffers()[1]], offset=present.offset
    )
    start, end = offsets[0].as_py(), offsets[len(present)].as_py()
    if start == end:
        return 0
    octets = pa.Array.from_buffers(
        pa.uint8(), end - start, [None, present.buffers()[2]], offset=start
    )
    return int(pc.sum(octets).as_py())


def _parts(values: pa.Array) -> Iterator[tuple[int, pa.Array | None, pa.Array]]:
    """Yield (a factor, the number of items per value if that varies, the inner values)."""
    kind = values.type
    if pa.types.is_struct(kind):
        for place, inner in enumerate(values.flatten()):
            yield 2 * place + 1, None, inner
        return
    if pa.types.is_map(kind):
        entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        values = values.cast(pa.list_(entry))
    yield _INNER, pc.list_value_length(values), values.flatten()
