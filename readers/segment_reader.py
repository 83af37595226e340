"""Reads many small segments: each is fetched and decoded as a whole, several per task.

Imports eventlog only. A separate decoder for compaction: with `eventlog.segments.fragments` the
rewrite of a thousand segments of a thousand rows takes a fifth more CPU time. Here a segment is
fetched, compared with the log (size, checksum, rows) and decoded in one step. Any failure is left
to `eventlog.segments.fragments`, which retries and raises the right error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import BoundedSemaphore

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UnsetType

from eventlog.decoding import most_bytes
from eventlog.errors import DataLoss, EventLogError
from eventlog.format import keys
from eventlog.format.codec import sha256
from eventlog.model.entries import Segment
from eventlog.segments.file_columns import FileColumns
from eventlog.segments.fragments import Reading
from eventlog.store.parallel import WINDOW, read_ahead, threads

# Larger segments are read in pieces, and their parts are checked instead of the whole.
WHOLE_BYTES = 2**20
_DECODERS = 2  # decoding is bound by the cores; more only slow each other down
_LOOSE = 8  # a cheap bound on the size of rows is far above it
_MOST_SEGMENTS = 32  # per task: enough to make the cost of a thread switch negligible

Runs = Iterable[tuple[str, Sequence[Segment]]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Segments of one run that are read by one task."""

    run: str
    segments: tuple[Segment, ...]
    small: bool


def read_runs(reading: Reading, runs: Runs) -> Generator[tuple[str, pa.Table], None, None]:
    """Yield the rows of named runs of segments, in the order given: (name of the run, rows).

    Args:
        reading: how to read; without a filter, and with all columns of its table.
        runs: names of runs, each with its segments.

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
    """Yield a run in batches: small segments up to `most` stored bytes, or large ones."""

    def is_small(segment: Segment) -> bool:
        # Segments with deletion vectors are left to `eventlog.segments.fragments`.
        return segment.bytes <= most and isinstance(segment.vector, UnsetType)

    for small, same_size in groupby(segments, key=is_small):
        part: list[Segment] = []
        size = 0
        for segment in same_size:
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
        for batch, results in read_ahead(pool, batches, read):
            for is_table, parts in groupby(results, key=lambda part: isinstance(part, pa.Table)):
                if is_table:
                    yield batch.run, pa.concat_tables(parts).combine_chunks()
                else:
                    for rows in reading.batches(parts):
                        yield batch.run, pa.Table.from_batches([rows])


def _decoded(
    reading: Reading, segments: Sequence[Segment], bodies: Sequence[bytes], most: int
) -> list[pa.Table | Segment]:
    """Return each segment's rows, or the segment itself if `reading` has to read it."""
    results: list[pa.Table | Segment] = []
    size = 0
    for segment, body in zip(segments, bodies, strict=True):
        rows = _rows_in(body, segment, reading, most - size)
        size += 0 if rows is None else rows.nbytes
        results.append(segment if rows is None else rows)
    return results


def _fetched(reading: Reading, segment: Segment) -> bytes:
    """Return the bytes of a segment's object, empty if it cannot be fetched."""
    try:
        # Ask for one byte more than expected, to notice an object that is too long.
        return reading.store.get(keys.key_of(segment), length=segment.bytes + 1)
    except EventLogError:
        return b""


def _rows_in(body: bytes, segment: Segment, reading: Reading, most: int) -> pa.Table | None:
    """Return a segment's rows, or None if they differ from the log's entry or exceed `most`."""
    schema = reading.schema
    if sha256(body) != segment.checksum:
        return None
    try:
        source = pa.BufferReader(body)
        file = pq.ParquetFile(source)
        footer = file.metadata
        stored = FileColumns(footer.schema, reading.columns, keyed=False)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        encoded = sum(group.total_byte_size for group in groups)
        least = 8 * footer.num_rows * footer.num_columns
        if footer.num_rows != segment.rows or max(encoded, least) > most:
            return None
        # A few encoded bytes may decode to many.
        columns = stored.leaves(schema.names)
        bound = most_bytes(source, footer, range(len(groups)), columns, _LOOSE * most)
        if not bound.sure or bound.size > _LOOSE * most:
            return None
        rows = stored.conformed(file.reader.read_all(columns, use_threads=False), schema)
        return None if any(rows.column(name).null_count for name in reading.required) else rows
    except (DataLoss, pa.ArrowException, OSError, ValueError):
        return None
