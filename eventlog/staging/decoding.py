"""Arrow's compact spellings of values, views and dictionaries, written out within bounds.

Pure layer. A view or an index takes a few bytes wherever its value is long, so that a small batch
may hold more text than 32-bit offsets can address; Arrow's casts between them do not always notice.
So batches are first cut by what they hold once written out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.decimals import to_units

# Of one piece, written out: far below what 32-bit offsets address.
PIECE_BYTES = 256 * 2**20
_MOST_OFFSET = 2**31 - 1
_WIDE = 16  # bytes of the widest value that is neither text nor nested

# By their ids: types hash by their text, which costs more than all else here.
_VIEWS = {
    pa.string_view().id: (pa.string(), pa.large_string()),
    pa.binary_view().id: (pa.binary(), pa.large_binary()),
}
_COMPACT = {*_VIEWS, pa.dictionary(pa.int8(), pa.int8()).id}


def pieces(batch: pa.RecordBatch, most: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that take at most `most` bytes written out, or have one row.

    A damaged batch is yielded as it is, for whoever looks at its values to say how.
    """
    waiting = [batch] if _is_sound(batch) else []
    if not waiting:
        yield batch
    while waiting:
        part = waiting.pop()
        if part.num_rows > 1 and _holds(part) > most:
            middle = part.num_rows // 2
            waiting += [part.slice(middle), part.slice(0, middle)]
        else:
            yield _near(part)


def even(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns of its own length.

    By the C data interface the arrays of a stream may be longer than the struct that holds them,
    and pyarrow imports them so.

    Raises:
        InvalidInput: a column is shorter.
    """
    rows = batch.num_rows
    if all(len(values) == rows for values in batch.columns):
        return batch
    short = [
        name
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        if len(values) < rows
    ]
    if short:
        raise InvalidInput(f"column {short[0]!r} of the rows has fewer values than there are rows")
    columns = [values.slice(0, rows) for values in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _near(part: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows at offsets that 32 bits address, which Arrow's casts do not move."""
    if part.get_total_buffer_size() < _MOST_OFFSET:
        return part
    columns = [
        pa.concat_arrays([values, values.slice(0, 0)])
        if values.get_total_buffer_size() >= _MOST_OFFSET
        else values
        for values in part.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=part.schema)


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Say whether lengths can be taken: by offsets and indices out of bounds Arrow would crash."""
    try:
        for values in batch.columns:
            values.validate(full=is_compact(values.type))
    except pa.ArrowException:
        return False
    return True


def _holds(batch: pa.RecordBatch) -> int:
    try:
        return sum(map(written_bytes, batch.columns))
    except (pa.ArrowException, IndexError, ValueError):
        return 0  # of a type that cannot be written out: whoever casts it says so


def written_bytes(values: pa.Array) -> int:
    """Return the bytes that an array takes once written out, or somewhat more."""
    kind = values.type
    if not is_compact(kind):
        return int(values.nbytes)
    if kind.id in _COMPACT:
        return _WIDE * len(values) + (pc.sum(_lengths(values)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(written_bytes(values.field(place)) for place in range(kind.num_fields))
    inner = _inside(values)
    parts = [inner.field(0), inner.field(1)] if pa.types.is_map(kind) else [inner]
    return _WIDE * len(values) + sum(map(written_bytes, parts))


def plain(values: pa.Array, *, large: bool = False) -> pa.Array:
    """Return the same values without views and dictionaries, at any depth.

    Args:
        values: of a batch of `pieces`, so that 32-bit offsets reach; what dictionaries hold becomes
            large text, since they are not cut.
        large: write all text out as large text.

    Raises:
        pa.ArrowException: an index of a dictionary is out of its bounds, or a type that Arrow
            cannot write out.
    """
    kind = values.type
    if not is_compact(kind):
        return values
    if kind.id in _VIEWS:
        return values.cast(_VIEWS[kind.id][large])
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary, large=True).take(values.indices)
    if not len(values):
        values = pa.nulls(0, kind)  # whose offsets are there
    missing = values.is_null()
    if pa.types.is_struct(kind):
        inner = [plain(values.field(place), large=large) for place in range(kind.num_fields)]
        names = [kind.field(place).name for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, names, mask=missing)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(
            plain(_inside(values), large=large), kind.list_size, mask=missing
        )
    inside = plain(_inside(values), large=large)
    offsets = pc.subtract(values.offsets, values.offsets[0])
    if pa.types.is_map(kind):
        keys, items = inside.field(0), inside.field(1)
        return pa.MapArray.from_arrays(offsets, keys, items, mask=missing)
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(offsets, inside, mask=missing)


def check_decimals(values: pa.Array) -> None:
    """Check that no decimal has more digits than its type, in an array of `plain`.

    Arrow's own validation finds all of them but the least integer of 128 or 256 bits: it takes the
    absolute value, which is the same integer again.

    Raises:
        pa.ArrowInvalid: one has.
    """
    kind = values.type
    if not len(values):
        return
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        least = pc.min(values).as_py()
        if least is not None and to_units(least, kind.scale) <= -(10**kind.precision):
            raise pa.ArrowInvalid(f"{least} has more digits than {kind} holds")
    elif pa.types.is_struct(kind):
        for inside in values.flatten():
            check_decimals(inside)
    elif kind.num_fields and "decimal" in str(kind):
        check_decimals(_inside(values) if pa.types.is_map(kind) else values.flatten())


def is_compact(kind: pa.DataType) -> bool:
    """Say whether a type is a view or a dictionary, or holds one."""
    return kind.id in _COMPACT or (
        kind.num_fields > 0
        and any(is_compact(kind.field(place).type) for place in range(kind.num_fields))
    )


def _inside(values: pa.Array) -> pa.Array:
    """Return what the lists of an array hold (of maps, the entries), and nothing beside that."""
    if pa.types.is_fixed_size_list(values.type):
        size = values.type.list_size
        return values.values.slice(values.offset * size, len(values) * size)
    return spanned(values, values.values)


def spanned(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Return those of the items that an array of lists or maps spans.

    Where it spans none, its offsets may lie beyond the items, of which Arrow ends the process.
    """
    if not len(lists):  # in a file it may have no offsets at all
        return items.slice(0, 0)
    start, end = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return items.slice(start, end - start) if start < end else items.slice(0, 0)


def _lengths(values: pa.Array) -> pa.Array:
    """Return for each value how many bytes of text it has; 0 where it is null."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return pc.fill_null(_lengths(values.dictionary).take(values.indices), 0)
    if kind.id in _VIEWS:
        # A view is four numbers of 32 bits, of which the first is its length.
        count = values.offset + len(values)
        words = pa.Array.from_buffers(pa.int32(), 4 * count, [None, values.buffers()[1]])
        found = pc.list_element(pa.FixedSizeListArray.from_arrays(words, 4), 0)
        found = found.slice(values.offset).cast(pa.int64())
        return pc.if_else(values.is_valid(), found, 0)
    if pa.types.is_nested(kind):  # as if each were all of them
        return pa.repeat(pa.scalar(written_bytes(values), pa.int64()), len(values))
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0)
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(pc.binary_length(values), 0)
    return pa.repeat(pa.scalar(0, pa.int64()), len(values))
