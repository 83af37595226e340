"""Digests of rows that do not depend on their order: what a rewrite must not change (hazard K6).

Pure. Of each column its nulls and a sum over its values' bits, so that the digest of the whole is
the sum of those of any parts. A value of a fixed width counts times a number made of its row's
event time, so that one that ends up in a row of another time changes the sum too; of texts that is
so for their lengths only, of decimals and of what lists hold not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import Corrupt

_WORD = 2**64
# One odd factor for each kind of sum of a column, so that they do not cancel each other out.
_LENGTHS, _BYTES = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_INNER, _NULLS = 0x165667B19E3779F9, 0x27D4EB2F165667C5
_VIEWS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_EXACT = Context(prec=100)


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of some rows.

    Attributes:
        rows: their number.
        columns: by name: number of nulls, and the sum mod 2^64.
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


def digest(table: pa.Table, time_column: str) -> Digest:
    """Return the digest of a table's rows.

    Args:
        table: with the columns of a table's schema (FORMAT.md R7.1).
        time_column: the event-time column; it has no nulls.
    """
    total = NOTHING
    for batch in table.to_batches():
        if batch.num_rows:
            times = _words(batch.column(batch.schema.get_field_index(time_column)))
            weights = pc.add(pc.multiply(times, 2), 1)  # against values-that-change-places
            columns = {
                name: (column.null_count, _sum(column, weights))
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            total = total + Digest(batch.num_rows, columns)
    return total


def check_same(before: Digest, after: Digest, chunk: str, table: str) -> None:
    """Check that the rows written are the rows read.

    Raises:
        Corrupt: they are not; the message says in which chunk and column.
    """
    what = None
    if before.rows != after.rows:
        what = f"{before.rows} rows were read and {after.rows} written"
    elif before.rows:  # against only-rows-counted
        columns = {**before.columns, **after.columns}
        changed = [n for n in columns if before.columns.get(n) != after.columns.get(n)]
        if changed:
            what = f"the values of column {changed[0]!r} are not those that were read"
    if what:
        raise Corrupt(
            f"the rewrite of chunk {chunk} is wrong: {what}; nothing was committed", table=table
        )


def _sum(values: pa.Array, weights: pa.Array | None) -> int:
    """Return the sum mod 2^64 over one column's values that are not null."""
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
            # A struct's fields lie beside its rows; what lists hold does not.
            beside = weights if lengths is None else None
            total += 0 if lengths is None else _total(lengths, weights) * _LENGTHS
            total += (inner.null_count * _NULLS + _sum(inner, beside)) * factor
        return total % _WORD
    return _total(_words(values), weights)


def _total(words: pa.Array, weights: pa.Array | None) -> int:
    weighted = words if weights is None else pc.multiply(words, weights)
    return int(pc.sum(weighted).as_py() or 0) % _WORD


def _words(values: pa.Array) -> pa.Array:
    """Return values of a fixed width as 64-bit integers: floats and times by their bits."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int64())
    words = values.view(_VIEWS[values.type.byte_width])
    return words if words.type == pa.int64() else words.cast(pa.int64())


def _bytes_of(values: pa.Array) -> int:
    """Return the sum of all bytes of texts or binary values."""
    there = values.drop_null() if values.null_count else values
    if not len(there):
        return 0
    offsets = pa.Array.from_buffers(
        pa.int32(), len(there) + 1, [None, there.buffers()[1]], offset=there.offset
    )
    start, end = offsets[0].as_py(), offsets[len(there)].as_py()
    if start == end:
        return 0
    octets = pa.Array.from_buffers(
        pa.uint8(), end - start, [None, there.buffers()[2]], offset=start
    )
    return int(pc.sum(octets).as_py())


def _parts(values: pa.Array) -> Iterator[tuple[int, pa.Array | None, pa.Array]]:
    """Yield (a factor, how many there are in each value if that varies, the values inside)."""
    kind = values.type
    if pa.types.is_struct(kind):
        for place, inner in enumerate(values.flatten()):
            yield 2 * place + 1, None, inner
        return
    if pa.types.is_map(kind):
        entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        values = values.cast(pa.list_(entry))
    yield _INNER, pc.list_value_length(values), values.flatten()
