"""Large segments in parts that are checked one by one before anything is decoded.

Parquet's checksums cover only the data of pages: a flipped bit in a footer or in a page header has
led to wrong rows, endless loops and crashes of the process. So the object of a large segment ends
with a *tail*: a checksum for each part of the bytes before it, and then the Parquet footer. The
entry in the log has the tail's size and sha256. A reader that checks the tail first, and then each
part that it fetches, decodes only committed bytes (FORMAT.md R7.7). Other Parquet readers ignore
the checksums, since nothing in the footer refers to them.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from eventlog import limits
from eventlog.errors import Corrupt
from eventlog.format import codec
from eventlog.model.entries import Count, Tail

# Key of the Parquet metadata that gives the decoded size of the columns of each row group.
DECODED_KEY = "eventlog.decoded_bytes"
_CHECKSUM_BYTES = 4
_SIZES = msgspec.json.Decoder(list[list[Count]])
_MAGIC = b"PAR1"
_END_BYTES = 4 + len(_MAGIC)  # length of the Parquet footer, magic


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a segment's object, before its tail.

    Attributes:
        bounds: the start of each part, ascending from 0, and the end of the last one.
        checksums: of the parts, concatenated.
    """

    bounds: tuple[int, ...]
    checksums: bytes

    def covering(self, start: int, end: int) -> range:
        """Return the indices of the parts that contain the bytes from `start` to `end`."""
        return range(bisect_right(self.bounds, start) - 1, bisect_left(self.bounds, end))

    def check(self, part: int, body: memoryview) -> bool:
        """Say whether `body` has the checksum of a part."""
        return checksum(body) == self.checksum_of(part)

    def checksum_of(self, part: int) -> bytes:
        """Return the checksum of a part."""
        at = part * _CHECKSUM_BYTES
        return self.checksums[at : at + _CHECKSUM_BYTES]


def make_tail(parquet: memoryview) -> tuple[int, bytes] | None:
    """Return the offset and the bytes of a segment's tail; None for a small segment.

    Args:
        parquet: a Parquet file; the segment's object is its bytes up to the offset, then the tail.
    """
    if len(parquet) <= limits.WHOLE_BYTES:
        return None
    start = _footer_start(parquet, len(parquet))
    footer = bytes(parquet[start:])
    bounds = _bounds(parse_footer(footer), start)
    checksums = b"".join(checksum(parquet[low:high]) for low, high in pairwise(bounds))
    return start, checksums + footer


def describe(tail: bytes) -> Tail:
    """Return the description of a tail for the segment's entry."""
    return Tail(size=len(tail), sha256=codec.sha256(tail))


def parse_tail(tail: bytes, size: int) -> tuple[Any, Parts]:
    """Return the Parquet metadata in a tail, and the parts before it.

    Args:
        tail: its bytes, already checked against the segment's entry.
        size: of the object, tail included.

    Raises:
        Corrupt: the committed bytes are not a valid tail.
    """
    at = _footer_start(memoryview(tail), len(tail))
    footer = parse_footer(tail[at:])
    bounds = _bounds(footer, size - len(tail))
    if at != _CHECKSUM_BYTES * (len(bounds) - 1):
        raise Corrupt(f"the object has {at} bytes of checksums for {len(bounds) - 1} parts")
    return footer, Parts(bounds, tail[:at])


def parse_footer(footer: bytes) -> Any:
    """Return the metadata in the last bytes of a Parquet file.

    Raises:
        Corrupt: they are not a valid footer.
    """
    try:
        return pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"the object does not decode: {error}") from None


def footer_bytes(end: bytes) -> int:
    """Return the size of a Parquet footer, its length and magic included.

    Args:
        end: the last bytes of the file.

    Raises:
        Corrupt: they are not the end of a Parquet file.
    """
    if len(end) < _END_BYTES or not end.endswith(_MAGIC):
        raise Corrupt("the object does not decode: it does not end as Parquet does")
    return int.from_bytes(end[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES


def encode_sizes(sizes: Sequence[Sequence[int]]) -> str:
    """Return the value to store under `DECODED_KEY`.

    Args:
        sizes: for each row group, for each top-level column, the bytes of its values in Arrow.
    """
    return msgspec.json.encode(sizes).decode()


def decoded_sizes(footer: Any, columns: int) -> list[list[int]] | None:
    """Return the sizes that the writer passed to `encode_sizes`; None if it stored none.

    Args:
        footer: the Parquet metadata.
        columns: number of top-level columns.
    """
    try:
        sizes = _SIZES.decode((footer.metadata or {}).get(DECODED_KEY.encode(), b""))
    except msgspec.DecodeError:
        return None
    complete = len(sizes) == footer.num_row_groups and all(len(row) == columns for row in sizes)
    return sizes if complete else None


def chunk_spans(footer: Any) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each column chunk, by row group and then by column."""
    for group in range(footer.num_row_groups):
        columns = footer.row_group(group)
        for index in range(columns.num_columns):
            yield chunk_span(columns.column(index))


def chunk_checksums(file: memoryview, tail: Tail) -> tuple[list[bytes], bytes] | None:
    """Return the checksums of a large segment's column chunks, as of parts of their own.

    And that of the first chunk with the magic before it. None: the chunks do not follow each other.

    Args:
        file: its object, already compared with the log.
        tail: the description of its tail.

    Raises:
        Corrupt: see `parse_tail`.
    """
    footer, known = parse_tail(bytes(file[len(file) - tail.size :]), len(file))
    spans = list(chunk_spans(footer))
    bounds = known.bounds
    if not spans or spans != sorted(spans) or spans[0][0] != len(_MAGIC):
        return None
    if any(end != start for (_, end), (start, _) in pairwise(spans)):
        return None
    (start, end), others = spans[0], range(1, len(spans))
    first = checksum(file[start:end])
    assert bounds[1] == end  # noqa: S101 - chunks without gaps are parts
    return [first, *map(known.checksum_of, others)], known.checksum_of(0)


def chunk_span(column: Any) -> tuple[int, int]:
    """Return the start and end, in the object, of a column chunk of a Parquet footer."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    return start, start + column.total_compressed_size


def checksum(body: memoryview) -> bytes:
    """Return the checksum of a part.

    CRC-32 detects corruption on disk and in transit, at a third of the cost of a hash. The tail
    that contains it, and the whole object, have a sha256 in the log.
    """
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def _bounds(footer: Any, end: int) -> tuple[int, ...]:
    """Return the bounds of the parts: the start of each column chunk but the first, and the ends.

    The first part also contains the magic at the start of the file; the last one, the bytes between
    the column chunks and the tail.
    """
    spans = sorted(chunk_spans(footer))
    if not spans:
        return (0, end)
    starts = [start for start, _ in spans]
    ends = [stop for _, stop in spans]
    bounds = (0, *starts[1:], ends[-1], end)
    overlap = any(stop > start for stop, start in zip(ends, starts[1:], strict=False))
    if starts[0] < len(_MAGIC) or overlap or any(low > high for low, high in pairwise(bounds)):
        raise Corrupt("the object does not decode: its column chunks overlap or are out of bounds")
    return bounds


def _footer_start(body: memoryview, end: int) -> int:
    start = end - footer_bytes(bytes(body[-_END_BYTES:]))
    if start < 0:
        raise Corrupt("the object does not decode: its footer is longer than the object")
    return start
