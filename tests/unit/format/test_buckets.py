"""Buckets: Iceberg's vectors, and a plain murmur3 beside the vectorised one."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from support.buckets import bucket_of

from eventlog.format.buckets import buckets_of, murmur3

MASK = 0xFFFFFFFF


def plain(data):
    """murmur3_x86_32 with seed 0, as in its description: block by block, then the tail."""
    h = 0
    blocks, tail = divmod(len(data), 4)
    for n in range(blocks):
        k = int.from_bytes(data[4 * n : 4 * n + 4], "little")
        k = k * 0xCC9E2D51 & MASK
        k = (k << 15 | k >> 17) & MASK
        h ^= k * 0x1B873593 & MASK
        h = (h << 13 | h >> 19) & MASK
        h = h * 5 + 0xE6546B64 & MASK
    if tail:
        k = int.from_bytes(data[4 * blocks :], "little") * 0xCC9E2D51 & MASK
        h ^= ((k << 15 | k >> 17) & MASK) * 0x1B873593 & MASK
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & MASK
    return h


def expected(hashes, buckets):
    return [(h & 0x7FFFFFFF) % buckets for h in hashes]


def long(value):
    return plain(value.to_bytes(8, "little", signed=True))


def unscaled(value, scale):
    """The least bytes of the unscaled number, in two's complement."""
    number = int(value.scaleb(scale))
    size = next(n for n in range(1, 20) if -(1 << 8 * n - 1) <= number < 1 << 8 * n - 1)
    return plain(number.to_bytes(size, "big", signed=True))


def of(values, kind, buckets=2**31 - 1):
    """The buckets of values; with the most buckets they are nearly the hashes."""
    return buckets_of(pa.table({"k": pa.array(values, kind)}), ["k"], buckets).to_pylist()


@pytest.mark.parametrize(
    ("value", "kind", "known"),
    [
        (34, pa.int32(), 2017239379),
        (34, pa.int64(), 2017239379),
        (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        (date(2017, 11, 16), pa.date32(), -653330422),
        (datetime(2017, 11, 16, 22, 31, 8), pa.timestamp("us"), -2047944441),
        (datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), pa.timestamp("us", "UTC"), -2047944441),
        ("iceberg", pa.string(), 1210000089),
        (b"\x00\x01\x02\x03", pa.binary(), -188683207),
    ],
)
def test_vectors_that_iceberg_publishes(value, kind, known):
    # Appendix B of Iceberg's specification has signed hashes.
    assert bucket_of([pa.scalar(value, kind)], 2**31 - 1) == (known & 0x7FFFFFFF) % (2**31 - 1)
    assert of([value], kind, 16) == [(known & 0x7FFFFFFF) % 16]


def test_the_scalar_hash_is_murmur3():
    known = {b"": 0, b"hello": 0x248BFA47, b"hello, world": 0x149BBB7F}
    assert {data: murmur3(data) for data in known} == known
    chance = random.Random(1)
    for size in range(70):
        data = chance.randbytes(size)
        assert murmur3(data) == plain(data)


@pytest.mark.parametrize("buckets", [1, 2, 7, 16, 4096])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers_of_every_width(bits, buckets):
    chance = random.Random(bits)
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    values = edges + [chance.randrange(edges[4], edges[3]) for _ in range(200)]
    kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    assert of(values, kind, buckets) == expected(map(long, values), buckets)


@pytest.mark.parametrize("sizes", [[0], [3], [4], [0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 256], [257, 0]])
def test_bytes_of_every_length(sizes):
    chance = random.Random(3)
    values = [chance.randbytes(chance.choice(sizes)) for _ in range(100)]
    assert of(values, pa.binary()) == expected(map(plain, values), 2**31 - 1)


def test_texts():
    values = ["", "a", "ab", "abc", "abcd", "abcde", "ä", "\U0010ffff", "\0", "x" * 300, "é" * 128]
    hashes = [plain(v.encode()) for v in values]
    assert of(values, pa.string()) == expected(hashes, 2**31 - 1)
    assert of(values[:-2], pa.string()) == expected(hashes[:-2], 2**31 - 1)


def test_decimals_are_hashed_by_their_unscaled_number():
    texts = ["0", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "327.67", "9999999.99"]
    values = [Decimal(t) for t in texts]
    for kind in (pa.decimal128(9, 2), pa.decimal128(38, 2)):
        assert of(values, kind, 1000) == expected([unscaled(v, 2) for v in values], 1000)


def test_times_are_their_microseconds_and_dates_their_days():
    at = [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)]
    micros = [int(t.timestamp()) * 10**6 + t.microsecond for t in at]
    assert of(at, pa.timestamp("us", "UTC")) == expected(map(long, micros), 2**31 - 1)
    days = [date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]
    numbers = [d.toordinal() - date(1970, 1, 1).toordinal() for d in days]
    assert of(days, pa.date32()) == expected(map(long, numbers), 2**31 - 1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["skipped", "", "a", "abcd", "abcdefgh", "ab", "skipped too"], pa.string()),
        ([b"skipped", b"\0", b"", b"12345", b"1234", b"1", b"skipped too"], pa.binary()),
        ([9, 8, 7, -6, 5, 4, 3], pa.int64()),
        ([9, 8, 7, -6, 5, 4, 3], pa.int16()),
        ([Decimal(n) for n in (9, 8, 7, -6, 5, 4, 3)], pa.decimal128(9, 2)),
        ([date(2024, 1, n) for n in range(1, 8)], pa.date32()),
    ],
)
def test_slices_and_chunks_have_the_buckets_of_their_rows(values, kind):
    whole = of(values, kind, 1000)
    array = pa.array(values, kind)
    for start in range(len(values)):
        for end in range(start, len(values) + 1):
            part = pa.table({"k": array.slice(start, end - start)})
            assert buckets_of(part, ["k"], 1000).to_pylist() == whole[start:end]
    chunked = pa.chunked_array([array.slice(0, 2), array.slice(2, 0), array.slice(2)])
    assert buckets_of(pa.table({"k": chunked}), ["k"], 1000).to_pylist() == whole
    assert [bucket_of([pa.scalar(v, kind)], 1000) for v in values] == whole


def test_several_columns_are_joined_in_order():
    ks, ss = [1, 2, 2, -5], ["", "x", "y", "x" * 300]
    table = pa.table({"k": ks, "s": ss})
    both = [31 * long(k) + plain(s.encode()) & MASK for k, s in zip(ks, ss, strict=True)]
    other = [31 * plain(s.encode()) + long(k) & MASK for k, s in zip(ks, ss, strict=True)]
    assert buckets_of(table, ["k", "s"], 999).to_pylist() == expected(both, 999)
    assert buckets_of(table, ["s", "k"], 999).to_pylist() == expected(other, 999)
    assert bucket_of([pa.scalar(2), pa.scalar("y")], 999) == expected(both, 999)[2]


@pytest.mark.parametrize("buckets", [1, 3, 16])
def test_twice_as_many_buckets_split_each_in_two(buckets):
    chance = random.Random(buckets)
    table = pa.table(
        {
            "k": [chance.randrange(-(2**63), 2**63) for _ in range(500)],
            "s": [chance.randbytes(chance.randrange(9)) for _ in range(500)],
        }
    )
    few = buckets_of(table, ["k", "s"], buckets).to_pylist()
    many = buckets_of(table, ["k", "s"], 2 * buckets).to_pylist()
    assert all(m in (f, f + buckets) for f, m in zip(few, many, strict=True))
    assert set(many) == set(range(2 * buckets))


@pytest.mark.parametrize("buckets", [1, 3, 16])
def test_a_split_keeps_the_parts_of_a_bucket_together(buckets):
    chance = random.Random(buckets)
    table = pa.table({"k": [chance.randrange(-(2**63), 2**63) for _ in range(3000)]})
    before = buckets_of(table, ["k"], buckets).to_pylist()
    hashes = [value % 2**31 for value in buckets_of(table, ["k"], 2**31).to_pylist()]
    for splits in range(1, 5):
        count = buckets << splits
        after = buckets_of(table, ["k"], count, splits).to_pylist()
        assert [n // 2 for n in after] == before
        assert set(after) == set(range(count))
        # As sets of keys they are those of a table that was created with as many.
        remainders = {(a, h % count) for a, h in zip(after, hashes, strict=True)}
        assert len(remainders) == count
        before = after


def test_no_rows_have_no_buckets():
    for kind in (pa.string(), pa.binary(), pa.int8(), pa.decimal128(9, 2), pa.date32()):
        assert of([], kind) == []
    with pytest.raises(ValueError, match="at least one column"):
        buckets_of(pa.table({"k": [1]}), [], 4)
