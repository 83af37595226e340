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
from typing import Any

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
# Decoding is bound by the cores, and Arrow keeps memory for each thread that it decodes in.
_DECODERS = 1
_DECODED = 2  # tasks whose rows wait
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
        # Segments with deletion vectors, and those in commits, which packs may have, are left to
        # `eventlog.segments.fragments`.
        plain = isinstance(segment.vector, UnsetType) and isinstance(segment.inline, UnsetType)
        return plain and segment.bytes <= most

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
    forms = _Forms(reading)

    def fetch(batch: _Batch) -> tuple[_Batch, list[bytes]]:
        return batch, [_fetched(reading, segment) for segment in batch.segments]

    def decode(fetched: tuple[_Batch, list[bytes]]) -> tuple[str, list[pa.Table | list[Segment]]]:
        batch, bodies = fetched
        return batch.run, _decoded(forms, batch.segments, bodies, most)

    with threads() as pool, threads(_DECODERS) as decoders:
        fetched = read_ahead(pool, batches, fetch)
        for run, results in read_ahead(decoders, fetched, decode, window=_DECODED):
            for part in results:
                if isinstance(part, pa.Table):
                    yield run, part
                else:
                    for rows in reading.batches(part):
                        yield run, pa.Table.from_batches([rows])


@dataclass(slots=True)
class _Form:
    """How files of one Parquet schema are read: computed for the first of them.

    Attributes:
        parquet: the Parquet schema.
        file: the columns of such a file.
        leaves: the Parquet columns that are read.
        stored: the schema of the rows as they are read, once some were.
    """

    parquet: Any
    file: FileColumns
    leaves: list[int]
    stored: pa.Schema | None = None


class _Forms:
    """The forms of the files of some segments, which often have one."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._last: _Form | None = None

    def of(self, parquet: Any) -> _Form:
        """Return the form of the files of a Parquet schema, of which field ids are a part.

        Raises:
            DataLoss: see `FileColumns`.
            pa.ArrowException: see there.
        """
        last = self._last
        if last is None or not last.parquet.equals(parquet):
            file = FileColumns(parquet, self.reading.columns, keyed=False)
            self._last = last = _Form(parquet, file, file.leaves(self.reading.schema.names))
        return last


def _decoded(
    forms: _Forms, segments: Sequence[Segment], bodies: Sequence[bytes], most: int
) -> list[pa.Table | list[Segment]]:
    """Return the segments' rows, and in their places the segments that `reading` has to read."""
    results: list[pa.Table | list[Segment]] = []
    read: list[tuple[_Form | None, pa.Table | None]] = []
    size = 0
    for segment, body in zip(segments, bodies, strict=True):
        read.append(_stored_rows(body, segment, forms, most - size))
        rows = read[-1][1]
        size += 0 if rows is None else rows.get_total_buffer_size()
    at = 0
    # Once for all rows of a form: for each segment it takes as long as to decode it.
    for form, found in groupby(read, key=lambda one: one[0]):
        tables = [rows for _, rows in found]
        some = list(segments[at : at + len(tables)])
        at += len(tables)
        rows = None if form is None else _conformed(form, tables, forms.reading)
        results.append(some if rows is None else rows)
    return results


def _conformed(form: _Form, tables: Sequence[pa.Table], reading: Reading) -> pa.Table | None:
    """Return the rows in the table's types, or None if some do not become it."""
    try:
        rows = form.file.conformed(pa.concat_tables(tables).combine_chunks(), reading.schema)
    except (pa.ArrowException, ValueError):
        return None
    return None if any(rows.column(name).null_count for name in reading.required) else rows


def _fetched(reading: Reading, segment: Segment) -> bytes:
    """Return the bytes of a segment's object, empty if it cannot be fetched."""
    try:
        # Ask for one byte more than expected, to notice an object that is too long.
        return reading.store.get(keys.key_of(segment), length=segment.bytes + 1)
    except EventLogError:
        return b""


def _stored_rows(
    body: bytes, segment: Segment, forms: _Forms, most: int
) -> tuple[_Form | None, pa.Table | None]:
    """Return a segment's rows in the types of its file, and the form of that.

    None of both if they differ from the log's entry or exceed `most` bytes.
    """
    if sha256(body) != segment.checksum:
        return None, None
    try:
        source = pa.BufferReader(body)
        file = pq.ParquetFile(source)
        footer = file.metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        encoded = sum(group.total_byte_size for group in groups)
        least = 8 * footer.num_rows * footer.num_columns
        if footer.num_rows != segment.rows or max(encoded, least) > most:
            return None, None
        form = forms.of(footer.schema)
        # A few encoded bytes may decode to many.
        bound = most_bytes(source, footer, range(len(groups)), form.leaves, _LOOSE * most)
        if not bound.sure or bound.size > _LOOSE * most:
            return None, None
        rows = file.reader.read_all(form.leaves, use_threads=False).replace_schema_metadata()
    except (DataLoss, pa.ArrowException, OSError, ValueError):
        return None, None
    if form.stored is None:
        form.stored = rows.schema
    # What else the footer says, as Arrow's own schema, may have led to other types.
    same = rows.num_rows == segment.rows and form.stored.equals(rows.schema, check_metadata=True)
    return (form, rows) if same else (None, None)
