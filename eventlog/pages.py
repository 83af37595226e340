"""Headers of Parquet's pages, which determine what is decoded; a footer only claims it.

Imports nothing of the project. Arrow decompresses a page to the size in its header and decodes the
number of values in the header, whatever the footer claims; and it does not show the headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

DICTIONARY = 2  # the type of a page
_HEADER_BYTES = 192  # of nearly all headers; statistics of long texts take more
_MOST_HEADER_BYTES = 16 * 2**20  # as in Arrow
# Types of Thrift's compact protocol. The structs of page headers have no other.
_I16, _I32, _I64, _BINARY, _STRUCT = 4, 5, 6, 8, 12
_LENGTHS = {1: 0, 2: 0, 3: 1, 7: 8}  # true, false, byte, double
# By the type of a page: where its header has the number of values, and their encoding. A number is
# found at sixteen times the field of its struct, plus its own.
_PLACES = {
    0: (5 * 16 + 1, 5 * 16 + 2),
    DICTIONARY: (7 * 16 + 1, 7 * 16 + 2),
    3: (8 * 16 + 1, 8 * 16 + 4),
}
# The headers that most programs write, in one step: without statistics, with or without a checksum.
_USUAL = re.compile(
    rb"\x15(\x00)\x15(#)\x15(#)(?:\x2c|\x15#\x1c)\x15(#)\x15(#)\x15#\x15#\x00\x00"
    rb"|\x15(\x04)\x15(#)\x15(#)(?:\x4c|\x15#\x3c)\x15(#)\x15(#)[\x11\x12]?\x00\x00".replace(
        b"#", rb"[\x80-\xff]{0,4}[\x00-\x7f]"
    )
)
# That of a page of values up to its statistics, which have lengths of their own.
_COUNTED = re.compile(
    rb"\x15(\x00)\x15(#)\x15(#)(?:\x2c|\x15#\x1c)\x15(#)\x15(#)\x15#\x15#\x1c".replace(
        b"#", rb"[\x80-\xff]{0,4}[\x00-\x7f]"
    )
)


class Page(NamedTuple):
    """The contents of a page's header.

    Attributes:
        kind: its type, as `DICTIONARY`.
        encoding: that of its values.
        values: their number, nulls included.
        size: in bytes, not compressed.
    """

    kind: int
    encoding: int
    values: int
    size: int


def pages(source: pa.NativeFile, column: Any) -> Iterator[Page]:
    """Yield the pages of a column chunk that Arrow reads: until it has the chunk's values.

    Args:
        source: the Parquet file; the bytes of this chunk suffice.
        column: the chunk's metadata in the footer.

    Raises:
        pa.ArrowInvalid: a header is damaged, or the pages have more values than the chunk.
        OSError: the chunk is not within the file.
    """
    at = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = int(column.dictionary_page_offset)
    end = at + int(column.total_compressed_size)
    left = int(column.num_values)
    while left > 0 and at < end:
        page, stored, length = _header(source, at, end)
        if min(page.values, page.size, stored) < 0:
            raise pa.ArrowInvalid("a page's header is damaged")
        if page.kind in _PLACES:
            if page.kind != DICTIONARY:
                left -= page.values
            if left < 0:
                raise pa.ArrowInvalid("a page has more values than its column chunk")
            yield page
        at += length + stored


def _header(source: pa.NativeFile, at: int, end: int) -> tuple[Page, int, int]:
    """Return a page, and the bytes that it and its header are stored in."""
    size = _HEADER_BYTES
    while True:
        body = source.read_at(min(size, end - at), at)
        usual = _USUAL.match(body)
        length = 0 if usual is None else usual.end()
        if usual is None and (usual := _COUNTED.match(body)) is not None:
            length = _after_statistics(body, usual.end())
        if usual is not None and length:
            kind, plain, stored, values, encoding = (
                _signed(digits, 0)[0] for digits in usual.groups() if digits is not None
            )
            return Page(kind, encoding, values, plain), stored, length
        try:
            fields, length = _numbers(body)
        except IndexError:
            if len(body) < size or size > _MOST_HEADER_BYTES:
                raise pa.ArrowInvalid("a page's header is cut") from None
            size *= 16
            continue
        kind, plain, stored = (fields.get(place, -1) for place in (1, 2, 3))
        values, encoding = (fields.get(place, -1) for place in _PLACES.get(kind, (2, 2)))
        return Page(kind, encoding, values, plain), stored, length


def _after_statistics(body: bytes, at: int) -> int:
    """Return where a header ends whose statistics begin at a place; 0: it is not a usual one."""
    try:
        while byte := body[at]:
            kind = byte & 15
            if byte < 16 or kind in (_I32, _STRUCT):
                return 0
            at = _after(kind, body, at + 1)
        return at + 3 if body[at + 1 : at + 3] == b"\0\0" else 0
    except IndexError:
        return 0


def _numbers(body: bytes) -> tuple[dict[int, int], int]:
    numbers: dict[int, int] = {}
    at = field = 0
    around: list[int] = []  # the fields of the structs that this one is in
    while True:
        byte = body[at]
        at += 1
        if not byte:
            if not around:
                return numbers, at
            field = around.pop()
            continue
        if byte > 15:
            field += byte >> 4
        else:
            field, at = _signed(body, at)
        if not 0 < field < 2**15:  # Thrift would take it modulo 2^16
            raise pa.ArrowInvalid("a page's header has a field of an unknown number")
        kind = byte & 15
        if kind == _I32:
            number, at = _signed(body, at)
            if field < 16 and len(around) < 2:
                numbers[16 * around[0] + field if around else field] = number
        elif kind == _STRUCT:
            around.append(field)
            field = 0
        else:
            at = _after(kind, body, at)


def _after(kind: int, body: bytes, at: int) -> int:
    """Return where a value ends that is not needed."""
    if kind in _LENGTHS:
        return at + _LENGTHS[kind]
    if kind not in (_I16, _I64, _BINARY):
        raise pa.ArrowInvalid("a page's header has a field of an unknown type")
    number, at = varint(body, at)
    return at + number if kind == _BINARY else at


def _signed(body: bytes, at: int) -> tuple[int, int]:
    number = body[at]
    if number < 128:
        return number >> 1 ^ -(number & 1), at + 1
    number, at = varint(body, at)
    if number >= 2**32:
        raise pa.ArrowInvalid("a number in a page's header is too long")
    return number >> 1 ^ -(number & 1), at


def varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of Thrift's compact protocol, and where it ends.

    Raises:
        IndexError: the bytes end before it.
        pa.ArrowInvalid: it has more than 64 bits.
    """
    number = shift = 0
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise pa.ArrowInvalid("a number in its metadata is too long")
