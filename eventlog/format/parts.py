"""Large segments in parts that are checked one by one before anything is decoded.

Pure layer. The checksums of Parquet cover the data of pages and nothing else: a flipped bit in a
footer or in the header of a page has given other rows, endless loops and crashes of the process. So
the object of a large segment ends with a *tail*: a checksum of each part of what stands before it,
and then the Parquet footer. The entry in the log has the tail's size and sha256. A reader that
checks the tail first and then each part that it fetches decodes nothing but what was committed
(FORMAT.md R7.7). Parquet readers that know nothing of it step over the checksums, since nothing in
the footer points there.
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
from eventlog.model.records import Count, Tail

# Key of the Parquet metadata that says what the columns of each row group take once decoded.
DECODED_KEY = "eventlog.decoded_bytes"
_CHECKSUM_BYTES = 4
_SIZES = msgspec.json.Decoder(list[list[Count]])
_MAGIC = b"PAR1"
_END_BYTES = 4 + len(_MAGIC)  # length of the Parquet footer, magic


@dataclass(frozen=True, slots=True)
class Parts:
    """What a segment's object before its tail consists of.

    Attributes:
        bounds: where each part starts, ascending from 0, and where the last one ends.
        checksums: of the parts, one after another.
    """

    bounds: tuple[int, ...]
    checksums: bytes

    def covering(self, start: int, end: int) -> range:
        """Return the numbers of the parts that hold the bytes from `start` to `end`."""
        return range(bisect_right(self.bounds, start) - 1, bisect_left(self.bounds, end))

    def check(self, part: int, body: memoryview) -> bool:
        """Say whether these are the bytes of a part."""
        at = part * _CHECKSUM_BYTES
        return checksum(body) == self.checksums[at : at + _CHECKSUM_BYTES]


def make_tail(parquet: memoryview) -> tuple[int, bytes] | None:
    """Return where the tail of a segment starts, and its bytes; None for one that is small.

    Args:
        parquet: a Parquet file; the segment's object is its bytes up to there, then the tail.
    """
    if len(parquet) <= limits.WHOLE_BYTES:
        return None
    start = _footer_start(parquet, len(parquet))
    footer = bytes(parquet[start:])
    bounds = _bounds(parse_footer(footer), start)
    checksums = b"".join(checksum(parquet[low:high]) for low, high in pairwise(bounds))
    return start, checksums + footer


def describe(tail: bytes) -> Tail:
    """Return what the segment's entry says of its tail."""
    return Tail(size=len(tail), sha256=codec.sha256(tail))


def parse_tail(tail: bytes, size: int) -> tuple[Any, Parts]:
    """Return the Parquet metadata in a tail, and the parts before it.

    Args:
        tail: its bytes, as they were committed.
        size: of the whole object.

    Raises:
        Corrupt: whoever committed it made no tail.
    """
    at = _footer_start(memoryview(tail), len(tail))
    footer = parse_footer(tail[at:])
    bounds = _bounds(footer, size - len(tail))
    if at != _CHECKSUM_BYTES * (len(bounds) - 1):
        raise Corrupt(f"the object has checksums of {at} bytes for {len(bounds) - 1} parts")
    return footer, Parts(bounds, tail[:at])


def parse_footer(footer: bytes) -> Any:
    """Return the metadata in the last bytes of a Parquet file.

    Raises:
        Corrupt: they hold none.
    """
    try:
        return pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"the object does not decode: {error}") from None


def footer_bytes(end: bytes) -> int:
    """Return the size of a Parquet footer with all that follows, from the file's last bytes.

    Raises:
        Corrupt: they are not the last ones of a Parquet file.
    """
    if len(end) < _END_BYTES or not end.endswith(_MAGIC):
        raise Corrupt("the object does not decode: it does not end as Parquet does")
    return int.from_bytes(end[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES


def encode_sizes(sizes: Sequence[Sequence[int]]) -> str:
    """Return the text under `DECODED_KEY`.

    Args:
        sizes: of each row group, of each top-level column, the bytes of its values in Arrow.
    """
    return msgspec.json.encode(sizes).decode()


def decoded_sizes(footer: Any, columns: int) -> list[list[int]] | None:
    """Return the sizes that `encode_sizes` took; None where the writer did not tell them.

    Args:
        footer: the Parquet metadata.
        columns: number of top-level columns.
    """
    try:
        sizes = _SIZES.decode((footer.metadata or {}).get(DECODED_KEY.encode(), b""))
    except msgspec.DecodeError:
        return None
    whole = len(sizes) == footer.num_row_groups and all(len(row) == columns for row in sizes)
    return sizes if whole else None


def chunk_spans(footer: Any) -> Iterator[tuple[int, int]]:
    """Yield where each column chunk starts and ends, by row group and then by column."""
    for group in range(footer.num_row_groups):
        columns = footer.row_group(group)
        for index in range(columns.num_columns):
            yield chunk_span(columns.column(index))


def chunk_span(column: Any) -> tuple[int, int]:
    """Return where a column chunk of a Parquet footer starts and ends in the object."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    return start, start + column.total_compressed_size


def checksum(body: memoryview) -> bytes:
    """Return the checksum of a part.

    CRC-32 finds what rots on disks and on the way, at a third of what a hash costs; the tail that
    holds it, and the object as a whole, have a sha256 in the log.
    """
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def _bounds(footer: Any, end: int) -> tuple[int, ...]:
    """Return where parts start and end: at each column chunk but the first, after the last."""
    spans = sorted(chunk_spans(footer))
    if not spans:
        return (0, end)
    starts = [start for start, _ in spans]
    ends = [stop for _, stop in spans]
    bounds = (0, *starts[1:], ends[-1], end)
    overlap = any(stop > start for stop, start in zip(ends, starts[1:], strict=False))
    if starts[0] < len(_MAGIC) or overlap or any(low > high for low, high in pairwise(bounds)):
        raise Corrupt("the object does not decode: its column chunks do not lie side by side")
    return bounds


def _footer_start(body: memoryview, end: int) -> int:
    start = end - footer_bytes(bytes(body[-_END_BYTES:]))
    if start < 0:
        raise Corrupt("the object does not decode: its footer is longer than what holds it")
    return start
