"""Decoding of row groups within a bound on memory, however far they expand.

A footer does not record how large decoded rows are, and it may lie: a dictionary stores a text once
that every row may repeat, and so does DELTA_BYTE_ARRAY, the text before. So a bound on their size
is computed from the headers of pages first. Where it is large, the rows are decoded a few at a
time; where it is not sure, as many as take little, judged by the rows before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eventlog.pages import DICTIONARY, Page, pages

_VALUE_BYTES = 8  # of a number, or of a value's offset
# Rows whose size is not known: the first that are decoded at once, by how much more the next may
# be, and the most.
_FIRST_ROWS = 16
_GROWTH = 16
_MOST_ROWS = 64 * 1024
_AS_STORED = (0, 6)  # encodings in which texts take at least their decoded size
_IN_DICTIONARY = (2, 8)


class Bound(NamedTuple):
    """A bound on the decoded size of rows.

    Attributes:
        size: bytes.
        sure: it holds; otherwise only decoding shows their size.
    """

    size: int
    sure: bool


def encoded_bytes(group: Any, columns: Sequence[int]) -> int:
    """Return the uncompressed bytes of columns of a row group, with numbers at full width.

    Args:
        group: the row group's metadata in a Parquet footer.
        columns: indexes of Parquet columns.
    """
    return sum(_encoded_bytes(group.column(place)) for place in columns)


def most_bytes(
    source: pa.NativeFile,
    footer: Any,
    groups: Iterable[int],
    columns: Sequence[int],
    enough: int,
    *,
    claimed: int | None = None,
) -> Bound:
    """Return a bound on the memory that columns of row groups take once decoded.

    Args:
        source: the Parquet file; the bytes of these columns suffice.
        footer: its metadata.
        groups: numbers of the row groups.
        columns: indexes of Parquet columns.
        enough: a bound in bytes. An estimate at or below it may be loose, which is cheaper.
        claimed: the bytes that the writer claims, which are not sure; None if it claims nothing.

    Raises:
        pa.ArrowException: headers of pages are damaged.
        OSError: a column is not within the file.
    """
    size = 0
    doubtful: list[tuple[int, int, _Texts]] = []
    for group in groups:
        described = footer.row_group(group)
        for place in columns:
            numbers, texts = _taken(source, footer, described, place)
            size += numbers + texts.stored
            if texts.most:
                doubtful.append((group, place, texts))
    loose = sum(texts.most for _, _, texts in doubtful)
    if size + loose <= enough:
        return Bound(size + loose, True)
    if claimed is not None:
        return Bound(claimed, False)
    sure = True
    for group, place, texts in doubtful:
        if texts.most <= enough // (8 * len(doubtful)):
            size += texts.most
        elif texts.repeating:
            size += texts.repeating * _longest(source, footer, group, place)
        else:
            sure = False
    return Bound(size, sure)


def decode(
    source: pa.NativeFile,
    footer: Any,
    groups: Sequence[int],
    columns: Sequence[int],
    rows: int,
    *,
    once: int | None = None,
    coded: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield columns of row groups in batches; memory is proportional to a batch.

    Args:
        source: the Parquet file; the bytes of these columns suffice.
        footer: its metadata.
        groups: numbers of row groups.
        columns: indexes of Parquet columns.
        rows: the largest number of rows in a batch.
        once: bytes that a batch may take. For rows whose bound is not sure: a batch then has only
            as many rows as fit, judged by the rows before them. None: they are not measured.
        coded: whether columns of texts that the file has dictionaries for are columns of indexes
            into these, which may be wrong until the batch is validated. Not each text is copied.
    """
    options = {"read_dictionary": _coded(footer, groups[0], columns)} if coded and groups else {}
    # Columns by index: names with dots are ambiguous in a Parquet file. Not with Arrow's dataset,
    # which decodes a whole row group however small the batches are.
    reader = _opened(source, footer, **options).reader
    portion = BatchSize([reader], rows, once)
    for batch in reader.iter_batches(
        portion.rows, row_groups=list(groups), column_indices=list(columns), use_threads=False
    ):
        portion.came(batch)
        yield batch


class BatchSize:
    """How many rows are decoded next: as many as fit, judged by the rows before them.

    Attributes:
        rows: that number.
        most: the largest that it may become.

    Args:
        readers: Arrow's Parquet readers, whose batches of rows they are.
        most: the largest number.
        once: bytes that they may take. None: the number stays as it is.
    """

    def __init__(self, readers: Sequence[Any], most: int, once: int | None) -> None:
        self._readers, self._once = readers, once
        self.most = most if once is None else min(most, _MOST_ROWS)
        self.rows = most if once is None else min(most, _FIRST_ROWS)

    def came(self, batch: pa.RecordBatch) -> None:
        """Take note of a batch that was decoded."""
        if self._once is None or not batch.num_rows:
            return
        fit = self._once * batch.num_rows // max(1, batch.nbytes)
        rows = max(1, min(fit, _GROWTH * batch.num_rows, self.most))
        if rows != self.rows:
            self.rows = rows
            for reader in self._readers:
                reader.set_batch_size(rows)  # from their next batch on


class _Texts(NamedTuple):
    """The sizes of the texts of a column chunk.

    Attributes:
        stored: bytes of those that are stored one by one.
        most: a bound on the bytes of all others.
        repeating: the number of those, if all are in a dictionary that the first page has.
    """

    stored: int
    most: int
    repeating: int


_NO_TEXTS = _Texts(0, 0, 0)


def _taken(source: pa.NativeFile, footer: Any, group: Any, place: int) -> tuple[int, _Texts]:
    """Return a bound on the bytes of a column's numbers, or of its texts' offsets; and its texts.

    Args:
        source: see `most_bytes`.
        footer: see there.
        group: the row group's metadata.
        place: index of the column.
    """
    column, kind = group.column(place), footer.schema.column(place)
    values = max(int(column.num_values), int(group.num_rows))
    if column.physical_type == "BYTE_ARRAY":
        return _VALUE_BYTES * values, _texts(pages(source, column))
    if kind.max_repetition_level:
        list(pages(source, column))  # which refuses more values than the footer claims
    width = int(kind.length) if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
    return (_VALUE_BYTES + width) * values, _NO_TEXTS


def _texts(chunk: Iterable[Page]) -> _Texts:
    all_pages = list(chunk)
    kept = max((page.size for page in all_pages if page.kind == DICTIONARY), default=0)
    data = [page for page in all_pages if page.kind != DICTIONARY]
    stored = sum(page.size for page in data if page.encoding in _AS_STORED)
    repeating = sum(page.values for page in data if page.encoding in _IN_DICTIONARY)
    # No text is longer than its page; one that repeats that before is no longer than all of them.
    largest = sum(page.size for page in data)
    others = sum(page.values for page in data if page.encoding not in _AS_STORED) - repeating
    plain = all_pages[:1] and all_pages[0].kind == DICTIONARY and data[:1] and not others
    shown = bool(plain) and data[0].encoding in _IN_DICTIONARY
    return _Texts(stored, repeating * kept + others * largest, repeating if shown else 0)


def _opened(source: pa.NativeFile, footer: Any, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, metadata=footer, pre_buffer=False, **options)


def _coded(footer: Any, group: int, columns: Sequence[int]) -> list[str]:
    """Return the paths of those columns of texts that have a dictionary in a row group."""
    described = footer.row_group(group)
    chunks = (described.column(place) for place in columns)
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    ]


def _encoded_bytes(column: Any) -> int:
    # Runs and dictionaries of numbers are expanded.
    return max(int(column.total_uncompressed_size), _VALUE_BYTES * int(column.num_values))


def _longest(source: pa.NativeFile, footer: Any, group: int, place: int) -> int:
    """Return the length of the longest value in a column chunk's dictionary."""
    path = footer.schema.column(place).path
    reader = _opened(source, footer, read_dictionary=[path]).reader
    batches = reader.iter_batches(1, row_groups=[group], column_indices=[place], use_threads=False)
    for batch in batches:
        values = batch.column(0)
        while not pa.types.is_dictionary(values.type):
            if not pa.types.is_nested(values.type):
                return int(footer.row_group(group).column(place).total_uncompressed_size)
            values = values.field(0) if pa.types.is_struct(values.type) else values.values
        return int(pc.max(pc.binary_length(values.dictionary)).as_py() or 0)
    return 0
