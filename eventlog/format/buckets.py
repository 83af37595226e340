"""The bucket of a key: the same in every writer and reader (FORMAT.md "Buckets").

For a key of one column it is Apache Iceberg's bucket transform: `murmur3_x86_32` with seed 0 over
the value's bytes, without its sign bit, modulo the number of buckets. Hashes of several columns are
joined as in `31 * first + second`, modulo 2^32. So a table with twice as many buckets has the keys
of bucket b in b and b + N. In a table whose buckets were split these two stand next to each other,
as 2b and 2b + 1: so a range of buckets is one again after any number of splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_C1, _C2 = 0xCC9E2D51, 0x1B873593
_JOIN = 31
_MASK = 0xFFFFFFFF
_U32 = pa.uint32()
_LONG_BYTES = 256  # longer values are hashed one by one


def buckets_of(rows: pa.Table, key: Sequence[str], buckets: int, splits: int = 0) -> pa.Array:
    """Return the bucket of each row, as int32.

    Args:
        rows: a table whose key columns have no nulls.
        key: the names of the key columns, in order.
        buckets: the number of buckets.
        splits: how many times it was doubled since the table was created.
    """
    total: pa.Array | None = None
    for name in key:
        column = _hashes(_whole(rows.column(name)))
        total = column if total is None else _add(_times(total, _JOIN), column)
    if total is None:
        raise ValueError("a key has at least one column")
    positive = pc.bit_wise_and(total, _u32(0x7FFFFFFF)).cast(pa.int64())
    first = buckets >> splits
    quotient = pc.divide(positive, first)
    bucket = pc.subtract(positive, pc.multiply(quotient, first))
    if splits:  # a bit of the hash for each of them, the first one before the others
        turned = _turned(splits).take(pc.bit_wise_and(quotient, 2**splits - 1))
        bucket = pc.add(pc.shift_left(bucket, splits), turned)
    return bucket.cast(pa.int32())


@lru_cache(maxsize=16)
def _turned(bits: int) -> pa.Array:
    """Return the numbers of `bits` bits, in order, each with its bits reversed."""
    return pa.array([int(f"{n:0{bits}b}"[::-1], 2) for n in range(2**bits)], pa.int64())


def murmur3(data: bytes) -> int:
    """Return `murmur3_x86_32` of the bytes, with seed 0 (Austin Appleby, public domain)."""
    h = 0
    blocks_end = len(data) - len(data) % 4
    for start in range(0, blocks_end, 4):
        h ^= _scrambled(int.from_bytes(data[start : start + 4], "little"))
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & _MASK
    if blocks_end < len(data):
        h ^= _scrambled(int.from_bytes(data[blocks_end:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _scrambled(k: int) -> int:
    k = k * _C1 & _MASK
    return (k << 15 | k >> 17) * _C2 & _MASK


def _hashes(values: pa.Array) -> pa.Array:
    """Return the hash of each value, as uint32."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return _one_by_one(values)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(values.view(pa.binary()) if pa.types.is_string(kind) else values)
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    return _of_longs(values.cast(pa.int64()))


def _of_longs(values: pa.Array) -> pa.Array:
    """Hash int64 values by their 8 bytes, little-endian."""
    bits = values.view(pa.uint64())
    low = pc.bit_wise_and(bits, pa.scalar(_MASK, pa.uint64())).cast(_U32)
    high = pc.shift_right(bits, pa.scalar(32, pa.uint64())).cast(_U32)
    h = pa.repeat(_u32(0), len(values))
    return _finished(_mixed(_mixed(h, low), high), pa.repeat(_u32(8), len(values)))


def _of_bytes(values: pa.Array) -> pa.Array:
    """Hash binary values: block after block, those of one length class together."""
    lengths = pc.binary_length(values)
    longest = pc.max(lengths).as_py() or 0
    if longest > _LONG_BYTES:
        return _one_by_one(values)
    h = pa.repeat(_u32(0), len(values))
    for start in range(0, longest - 3, 4):
        has = pc.greater_equal(lengths, start + 4)
        h = _where(
            has, h, lambda h, start=start, has=has: _mixed(h, _block(values.filter(has), start))
        )
    for rest in range(1, 4):
        has = pc.equal(pc.bit_wise_and(lengths, 3), rest)
        if pc.any(has).as_py():
            h = _where(
                has,
                h,
                lambda h, rest=rest, has=has: _xor(h, _scramble(_tail(values.filter(has), rest))),
            )
    return _finished(h, lengths.cast(_U32))


def _where(mask: pa.Array, old: pa.Array, change: object) -> pa.Array:
    """Return the values with those in the mask changed."""
    return pc.replace_with_mask(old, mask, change(old.filter(mask)))  # type: ignore[operator]


def _block(values: pa.Array, start: int) -> pa.Array:
    return _as_words(pc.binary_slice(values, start, start + 4))


def _tail(values: pa.Array, count: int) -> pa.Array:
    """Return the last `count` bytes of each value as a little-endian number."""
    last = pc.binary_slice(values, -count)
    return _as_words(pc.binary_join_element_wise(last, b"\0" * (4 - count), b""))


def _as_words(values: pa.Array) -> pa.Array:
    """Return binary values of 4 bytes each as uint32."""
    words = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4), len(values), [None, values.buffers()[2]], offset=values.offset
    )
    return words.view(_U32)


def _one_by_one(values: pa.Array) -> pa.Array:
    """Hash each distinct value by itself."""
    encoded = values.dictionary_encode()
    known = [murmur3(_bytes_of(value)) for value in encoded.dictionary.to_pylist()]
    return pa.array(known, _U32).take(encoded.indices)


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    sign, digits, exponent = value.as_tuple()  # type: ignore[attr-defined]
    del exponent  # of the type's scale: the unscaled number is hashed
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _mixed(h: pa.Array, k: pa.Array) -> pa.Array:
    h = _rotated(_xor(h, _scramble(k)), 13)
    return _add(_times(h, 5), _u32(0xE6546B64))


def _scramble(k: pa.Array) -> pa.Array:
    return _times(_rotated(_times(k, _C1), 15), _C2)


def _finished(h: pa.Array, lengths: pa.Array) -> pa.Array:
    h = _xor(h, lengths)
    h = _times(_xor(h, _shifted(h, 16)), 0x85EBCA6B)
    h = _times(_xor(h, _shifted(h, 13)), 0xC2B2AE35)
    return _xor(h, _shifted(h, 16))


def _rotated(h: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(h, _u32(by)), _shifted(h, 32 - by))


def _shifted(h: pa.Array, by: int) -> pa.Array:
    return pc.shift_right(h, _u32(by))


def _times(h: pa.Array, factor: int) -> pa.Array:
    return pc.multiply(h, _u32(factor))  # modulo 2^32


def _add(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.add(a, b)


def _xor(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(a, b)


def _u32(value: int) -> pa.Scalar:
    return pa.scalar(value, _U32)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
