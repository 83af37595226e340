"""Reading many small segments: each fetched and decoded whole, several in one go.

Imports eventlog only. A decoder of its own, for compaction: what `eventlog.readers.fragments` does
for any segment makes the rewrite of a thousand segments of a thousand rows cost a fifth more of the
processor's time. Here a segment is fetched, compared with the log (size, checksum, rows) and
decoded at once; whatever is not as it should be is left to `eventlog.readers.fragments`, which
tries again and knows what it means.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import BoundedSemaphore

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.errors import EventLogError
from eventlog.format import keys
from eventlog.format.codec import sha256
from eventlog.model.records import Segment
from eventlog.readers.batches import conform
from eventlog.readers.decoding import most_bytes
from eventlog.readers.fragments import Reading
from eventlog.store.parallel import WINDOW, read_ahead, threads

# Larger ones are read in pieces, and their pages are checked instead of the whole.
WHOLE_BYTES = 2**20
_DECODERS = 2  # decoding shares the machine's cores; more at once only get in each other's way
_LOOK_BYTES = 64 * 2**20  # what rows may expand to before anybody looks how long the texts are
_MOST_SEGMENTS = 32  # in one go: enough for the cost of a thread's hand-over not to matter

Runs = Iterable[tuple[str, Sequence[Segment]]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Segments of one run that are read in one go."""

    run: str
    segments: tuple[Segment, ...]
    small: bool


def read_runs(reading: Reading, runs: Runs) -> Generator[tuple[str, pa.Table], None, None]:
    """Yield the rows of named runs of segments, in the order given: (name of the run, rows).

    Args:
        reading: how; without a filter, and all columns of its table.
        runs: names, each with its segments.

    Raises:
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    most = min(WHOLE_BYTES, reading.ahead_bytes // (8 * WINDOW))
    batches = (batch for run, found in runs for batch in _batches(run, found, most))
    for small, found in groupby(batches, key=lambda batch: batch.small):
        if small:
            yield from _small(reading, found, reading.ahead_bytes // WINDOW)
        else:
            for batch in found:
                for rows in reading.batches(batch.segments):
                    yield batch.run, pa.Table.from_batches([rows])


def _batches(run: str, segments: Sequence[Segment], most: int) -> Iterator[_Batch]:
    """Yield a run in parts: small segments up to so many stored bytes, or large ones in a row."""
    for small, found in groupby(segments, key=lambda segment: segment.bytes <= most):
        part: list[Segment] = []
        size = 0
        for segment in found:
            if small and part and (size + segment.bytes > most or len(part) == _MOST_SEGMENTS):
                yield _Batch(run, tuple(part), small)
                part, size = [], 0
            part.append(segment)
            size += segment.bytes
        yield _Batch(run, tuple(part), small)


def _small(
    reading: Reading, batches: Iterable[_Batch], most: int
) -> Iterator[tuple[str, pa.Table]]:
    decoders = BoundedSemaphore(_DECODERS)

    def read(batch: _Batch) -> tuple[_Batch, list[pa.Table | Segment]]:
        bodies = [_fetched(reading, segment) for segment in batch.segments]
        with decoders:
            return batch, _decoded(reading, batch.segments, bodies, most)

    with threads() as pool:
        for batch, found in read_ahead(pool, batches, read):
            for whole, parts in groupby(found, key=lambda part: isinstance(part, pa.Table)):
                if whole:
                    yield batch.run, pa.concat_tables(parts).combine_chunks()
                else:
                    for rows in reading.batches(parts):
                        yield batch.run, pa.Table.from_batches([rows])


def _decoded(
    reading: Reading, segments: Sequence[Segment], bodies: Sequence[bytes], most: int
) -> list[pa.Table | Segment]:
    """Return each segment's rows, or the segment where another has to look at it."""
    found: list[pa.Table | Segment] = []
    size = 0
    for segment, body in zip(segments, bodies, strict=True):
        rows = _rows_in(body, segment, reading.schema, most - size)
        size += 0 if rows is None else rows.nbytes
        found.append(segment if rows is None else rows)
    return found


def _fetched(reading: Reading, segment: Segment) -> bytes:
    """Return the bytes of a segment's object, or none."""
    try:
        # One byte more than there should be, to notice one too many.
        return reading.store.get(keys.key_of(segment), length=segment.bytes + 1)
    except EventLogError:
        return b""


def _rows_in(body: bytes, segment: Segment, schema: pa.Schema, most: int) -> pa.Table | None:
    """Return a segment's rows, or None if they are not what the log says, or more than `most`."""
    if sha256(body) != segment.checksum:
        return None
    try:
        source = pa.BufferReader(body)
        file = pq.ParquetFile(source)
        footer = file.metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        encoded = sum(group.total_byte_size for group in groups)
        least = 8 * footer.num_rows * footer.num_columns
        if footer.num_rows != segment.rows or max(encoded, least) > most:
            return None
        # A dictionary holds a long text once: rows of few bytes may be many to hold.
        if footer.num_rows * encoded > _LOOK_BYTES:
            columns = range(footer.num_columns)
            if most_bytes(source, footer, range(len(groups)), columns, most) > most:
                return None
        return conform(file.read(use_threads=False), schema)
    except (pa.ArrowException, OSError, ValueError):
        return None
