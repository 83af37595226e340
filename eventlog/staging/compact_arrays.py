"""Decodes Arrow's compact forms of values, views and dictionaries, within bounds.

A view or an index takes a few bytes however long its value is, so a small batch may represent more
text than 32-bit offsets can address, and Arrow's casts do not always detect that. Batches are
therefore first split by their decoded size. "Decoded" in this module means without views and
dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.decimals import to_units

# Decoded size of a piece: far below what 32-bit offsets can address.
PIECE_BYTES = 256 * 2**20
_MOST_OFFSET = 2**31 - 1
_WIDE = 16  # bytes of the widest value that is neither text nor nested

# By type id: the hash of a type is that of its text, which would dominate the cost here.
_VIEWS = {
    pa.string_view().id: (pa.string(), pa.large_string()),
    pa.binary_view().id: (pa.binary(), pa.large_binary()),
}
_COMPACT = {*_VIEWS, pa.dictionary(pa.int8(), pa.int8()).id}


def pieces(batch: pa.RecordBatch, most: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most `most` decoded bytes, or of one row.

    A damaged batch is yielded unchanged; the later validation of its values reports the damage.
    """
    if not _is_sound(batch):
        yield batch
        return
    given = batch.columns
    columns = [with_offsets(values) for values in given]
    if any(one is not other for one, other in zip(columns, given, strict=True)):
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        if part.num_rows > 1 and _decoded_bytes(part) > most:
            middle = part.num_rows // 2
            waiting += [part.slice(middle), part.slice(0, middle)]
        else:
            yield _rebased(part)


def even(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with every column cut to the batch's number of rows.

    In the C data interface the arrays of a stream may be longer than their struct, and pyarrow
    imports them unchanged.

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
        raise InvalidInput(f"column {short[0]!r} has fewer values than the batch has rows")
    columns = [values.slice(0, rows) for values in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def with_offsets(values: pa.Array) -> pa.Array:
    """Return the same values, with offsets at every depth.

    The columnar format lets an empty array omit its offsets, and writers such as Arrow's Java
    library do. Arrow validates such an array, and crashes when it measures, joins or writes it.

    Args:
        values: passed Arrow's validation.
    """
    kind = values.type
    if not len(values):
        return pa.nulls(0, kind) if kind.num_fields or _has_offsets(kind) else values
    if pa.types.is_struct(kind):
        columns = [values.field(place) for place in range(kind.num_fields)]
        made = [with_offsets(column) for column in columns]
        if all(one is other for one, other in zip(made, columns, strict=True)):
            return values
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(made, fields=fields, mask=values.is_null())
    if pa.types.is_map(kind):
        keys, items = values.keys, values.items
        made = [with_offsets(keys), with_offsets(items)]
        if made[0] is keys and made[1] is items:
            return values
        inside = pa.StructArray.from_arrays(made, fields=[kind.key_field, kind.item_field])
    elif _is_list(kind):
        items = values.values
        inside = with_offsets(items)
        if inside is items:
            return values
    else:
        return values
    own = values.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(values), own, offset=values.offset, children=[inside])


def _has_offsets(kind: pa.DataType) -> bool:
    of_32_bits = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(of_32_bits or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _rebased(part: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows at offsets within 32 bits, since Arrow's casts do not rebase them."""
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
    """Say whether all offsets and indices are in bounds; otherwise Arrow could crash on them."""
    try:
        for values in batch.columns:
            values.validate(full=is_compact(values.type))
    except pa.ArrowException:
        return False
    return True


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    try:
        columns = batch.columns
        if not any(is_compact(values.type) for values in columns):
            return int(batch.nbytes)
        return sum(map(written_bytes, columns))
    except (pa.ArrowException, IndexError, ValueError):
        return 0  # a type that cannot be decoded: the later cast reports it


def written_bytes(values: pa.Array) -> int:
    """Return the bytes that an array takes once decoded, or slightly more."""
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


def to_plain_array(values: pa.Array, *, large: bool = False) -> pa.Array:
    """Return the same values without views and dictionaries, at any depth.

    Args:
        values: of a batch of `pieces`, so that 32-bit offsets suffice. The values of dictionaries,
            which `pieces` does not split, become large strings.
        large: make all strings large.

    Raises:
        pa.ArrowException: a dictionary index is out of bounds, or Arrow cannot decode the type.
    """
    kind = values.type
    if not is_compact(kind):
        return values
    if kind.id in _VIEWS:
        return values.cast(_VIEWS[kind.id][large])
    if pa.types.is_dictionary(kind):
        return to_plain_array(values.dictionary, large=True).take(values.indices)
    if not len(values):
        values = pa.nulls(0, kind)
    missing = values.is_null()
    if pa.types.is_struct(kind):
        inner = [
            to_plain_array(values.field(place), large=large) for place in range(kind.num_fields)
        ]
        names = [kind.field(place).name for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, names, mask=missing)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(
            to_plain_array(_inside(values), large=large), kind.list_size, mask=missing
        )
    inside = to_plain_array(_inside(values), large=large)
    offsets = pc.subtract(values.offsets, values.offsets[0])
    if pa.types.is_map(kind):
        keys, items = inside.field(0), inside.field(1)
        return pa.MapArray.from_arrays(offsets, keys, items, mask=missing)
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(offsets, inside, mask=missing)


def check_decimals(values: pa.Array) -> None:
    """Check that no decimal has more digits than its type, in an array of `to_plain_array`.

    Arrow's own validation misses only the least integer of 128 or 256 bits, whose absolute value
    overflows to the same integer.

    Raises:
        pa.ArrowInvalid: a value has too many digits.
    """
    kind = values.type
    if not len(values):
        return
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        least = pc.min(values).as_py()
        if least is not None and to_units(least, kind.scale) <= -(10**kind.precision):
            raise pa.ArrowInvalid(f"{least} has more digits than {kind} allows")
    elif pa.types.is_struct(kind):
        for inside in values.flatten():
            check_decimals(inside)
    elif kind.num_fields and "decimal" in str(kind):
        check_decimals(_inside(values) if pa.types.is_map(kind) else values.flatten())


def is_compact(kind: pa.DataType) -> bool:
    """Say whether a type is a view or a dictionary, or contains one."""
    return kind.id in _COMPACT or (
        kind.num_fields > 0
        and any(is_compact(kind.field(place).type) for place in range(kind.num_fields))
    )


def _inside(values: pa.Array) -> pa.Array:
    """Return the items of an array's lists (or the entries of its maps), without unused ones."""
    if pa.types.is_fixed_size_list(values.type):
        size = values.type.list_size
        return values.values.slice(values.offset * size, len(values) * size)
    return spanned(values, values.values)


def spanned(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Return the items that an array of lists or maps spans.

    If it spans none, its offsets may be beyond the items; slicing there would crash Arrow.
    """
    if not len(lists):  # in a file, an empty array may lack its offsets
        return items.slice(0, 0)
    start, end = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return items.slice(start, end - start) if start < end else items.slice(0, 0)


def _lengths(values: pa.Array) -> pa.Array:
    """Return for each value its length in bytes; 0 for null."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return pc.fill_null(_lengths(values.dictionary).take(values.indices), 0)
    if kind.id in _VIEWS:
        # A view is four 32-bit integers; the first is its length.
        count = values.offset + len(values)
        words = pa.Array.from_buffers(pa.int32(), 4 * count, [None, values.buffers()[1]])
        lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(words, 4), 0)
        lengths = lengths.slice(values.offset).cast(pa.int64())
        return pc.if_else(values.is_valid(), lengths, 0)
    if pa.types.is_nested(kind):  # an upper bound: each as long as all of them together
        return pa.repeat(pa.scalar(written_bytes(values), pa.int64()), len(values))
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0)
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(pc.binary_length(values), 0)
    return pa.repeat(pa.scalar(0, pa.int64()), len(values))
