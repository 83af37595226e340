"""Parquet, with checks that readers lack: INT96 times, other calendars, damaged pages.

Imports eventlog only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eventlog.decoding import BatchSize, most_bytes
from eventlog.staging.compact_arrays import spanned
from eventlog.staging.incoming.casting import PANDAS
from eventlog.writers.files.sources import InputFile, OpenInput, check_alone, open_path

_MAGIC = b"PAR1"
_BATCH_ROWS = 64 * 1024
# A file with one of these keys, or written by Spark before 3.0 (INT96: before 3.1), or marked so by
# Hive, counts days before 1582 (and times before 1900) in another calendar. Spark before 2.4.6 did
# not write its version.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = re.compile(rb"([0-9]{1,4})\.([0-9]{1,4})")
_SPARK_ROW = b"org.apache.spark.sql.parquet.row.metadata"
_HIVE_PROLEPTIC = b"writer.date.proleptic"
_SAME_SINCE = datetime(1900, 1, 1, tzinfo=UTC)


def open_parquet(source: InputFile, once: int) -> OpenInput:
    """Open a Parquet file.

    Args:
        source: the file.
        once: about how many bytes are decoded at once, beside a page of each column.

    Raises:
        ValueError: it comes from a pipe; while reading batches: a value would change; at their end:
            several files were joined.
        pa.ArrowException: it is not Parquet, or is cut.
    """
    if source.stream is not None:
        raise ValueError("Parquet has its footer at the end and cannot be read from a pipe")
    file = _parquet(source.path, "us")
    metadata = file.schema_arrow.metadata or {}
    pandas = {key: metadata[key] for key in metadata if key == PANDAS}
    return OpenInput(
        file.schema_arrow.with_metadata(pandas or None),
        _batches(source.path, file, once),
        file.metadata.num_rows,
        partial(file.close, force=True),
    )


def _bytes_before_footer(path: str, metadata: pq.FileMetaData) -> int:
    """Return how many bytes lie between the last column chunk and the footer.

    They are page indexes and Bloom filters. If files were joined, they include all files before the
    last, so the second file starts within this many bytes from the start.
    """
    end = len(_MAGIC)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            start = chunk.data_page_offset
            if chunk.has_dictionary_page:
                start = min(start, chunk.dictionary_page_offset)
            end = max(end, start + chunk.total_compressed_size)
    footer: int = Path(path).stat().st_size - metadata.serialized_size - 2 * len(_MAGIC)
    return max(0, footer - end)


def _parquet(path: str, int96_unit: str) -> pq.ParquetFile:
    # Arrow's default unit for INT96, nanoseconds, overflows outside the years 1678 to 2261. Its
    # pre-buffering would hold a whole file.
    return pq.ParquetFile(
        open_path(path),
        coerce_int96_timestamp_unit=int96_unit,
        page_checksum_verification=True,
        pre_buffer=False,
    )


def _batches(path: str, file: pq.ParquetFile, once: int) -> Iterator[pa.RecordBatch]:
    int96 = _int96_columns(file)
    doubtful = _old_calendar_columns(file, int96)
    others = [_parquet(path, unit) for unit in ("s", "ns")] if int96 else []
    try:
        with open_path(path) as source:
            for batch, *other in _iter_batches(source, file, others, int96, once):
                for name in int96:
                    _check_microseconds(name, batch.column(name), *(o.column(name) for o in other))
                _check_calendar(batch, doubtful)
                yield batch
        # Only now: asked about chunks that it could not read, Arrow aborts the process.
        check_alone(path, _MAGIC, _bytes_before_footer(path, file.metadata))
    except (pa.ArrowException, OSError):
        check_alone(path, _MAGIC)  # joined files are the cause, and a better message
        raise
    finally:
        for one in (file, *others):
            one.close(force=True)


def _iter_batches(
    source: pa.NativeFile,
    file: pq.ParquetFile,
    others: Sequence[pq.ParquetFile],
    names: list[str],
    once: int,
) -> Iterator[tuple[pa.RecordBatch, ...]]:
    """Yield the batches of a file, each with the same rows of `names` by the other readers of it.

    Args:
        source: the file's bytes.
        file: the file.
        others: readers of the same file.
        names: the columns that they read.
        once: about how many bytes are decoded at once.
    """
    for groups in _runs(file):
        portion = BatchSize([one.reader for one in (file, *others)], _BATCH_ROWS, once)
        batches = [file.iter_batches(portion.rows, row_groups=groups)]
        batches += [one.iter_batches(portion.rows, groups, names) for one in others]
        known = False
        for batch, *other in zip(*batches, strict=True):
            if not known:  # not before all columns were read: see `_batches`
                known, portion.most = True, _most_rows(source, file, groups, once)
            portion.came(batch)
            yield batch, *other


def _most_rows(
    source: pa.NativeFile, file: pq.ParquetFile, groups: Sequence[int], once: int
) -> int:
    """Return how many rows of row groups may be decoded at once."""
    footer = file.metadata
    rows: int = sum(footer.row_group(group).num_rows for group in groups)
    size = most_bytes(source, footer, groups, range(footer.num_columns), once).size
    return max(1, min(_BATCH_ROWS, rows * once // max(1, size)))


def _runs(file: pq.ParquetFile) -> Iterator[list[int]]:
    """Yield the row groups that are read together: small ones, if Arrow can join them."""
    alone = any(_nests_dictionary(kind) for kind in file.schema_arrow.types)
    run: list[int] = []
    rows = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if run and (alone or rows + count > _BATCH_ROWS):
            yield run
            run, rows = [], 0
        run.append(group)
        rows += count
    if run:
        yield run


def _nests_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type contains dictionaries, which Arrow cannot join across row groups."""
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return any(pa.types.is_dictionary(part) or _nests_dictionary(part) for part in inner)


def _old_calendar_columns(file: pq.ParquetFile, int96: list[str]) -> list[str]:
    """Return the columns whose old days may be in another calendar."""
    metadata = file.metadata.metadata or {}
    spark = _SPARK_VERSION.match(metadata.get(b"org.apache.spark.version", b""))
    default = (2, 4) if _SPARK_ROW in metadata else (9999, 0)
    version = (int(spark[1]), int(spark[2])) if spark else default
    if (
        any(key in metadata for key in _OLD_CALENDAR)
        or version < (3, 0)
        or metadata.get(_HIVE_PROLEPTIC, b"true").lower() == b"false"
    ):
        return list(file.schema_arrow.names)
    return int96 if version < (3, 1) else []


def _int96_columns(file: pq.ParquetFile) -> list[str]:
    """Return the columns that contain an INT96, at any depth."""
    leaves = [file.schema.column(i) for i in range(len(file.schema))]
    int96 = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    return [
        name
        for name in file.schema_arrow.names
        if any(path == name or path.startswith(f"{name}.") for path in int96)
    ]


def _check_microseconds(name: str, values: pa.Array, seconds: pa.Array, exact: pa.Array) -> None:
    """Refuse times that microseconds cannot hold.

    INT96 in microseconds overflows modulo 2^64, in seconds never. Nanoseconds overflow too; the
    difference between them and the microseconds, modulo 2^64, is what was cut off.
    """
    for rounded, coarse, nanos in zip(*map(_leaves, (values, seconds, exact)), strict=True):
        if not pa.types.is_timestamp(rounded.type) or rounded.type.unit != "us":
            continue
        microseconds = rounded.cast(pa.int64())
        apart = pc.subtract(pc.divide(microseconds, 1_000_000), coarse.cast(pa.int64()))
        if pc.any(pc.greater(pc.abs(apart), 1)).as_py():
            raise ValueError(
                f"column {name!r} has times (INT96) outside 290,000 years: the "
                "file is damaged, or its writer has a bug"
            )
        rest = pc.subtract(nanos.cast(pa.int64()), pc.multiply(microseconds, 1000))
        if pc.any(pc.not_equal(rest, 0)).as_py():
            raise ValueError(
                f"column {name!r} has times (INT96) finer than a microsecond: round them first"
            )


def _check_calendar(batch: pa.RecordBatch, names: list[str]) -> None:
    for name in names:
        for values in _leaves(batch.column(name)):
            kind = values.type
            if pa.types.is_date(kind):
                since: Any = pa.scalar(_SAME_SINCE.date(), kind)
            elif pa.types.is_timestamp(kind):
                since = pa.scalar(
                    _SAME_SINCE if kind.tz else _SAME_SINCE.replace(tzinfo=None), kind
                )
            else:
                continue
            if pc.any(pc.less(values, since)).as_py():
                raise ValueError(
                    f"column {name!r} has days before 1900 in the calendar of Spark 2: write the "
                    "file again in Spark 3 or newer, with int96RebaseModeInWrite and "
                    "datetimeRebaseModeInWrite (spark.sql.parquet) set to CORRECTED"
                )


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of primitive values in an array, at any depth of nesting."""
    kind = values.type
    if pa.types.is_struct(kind):
        for child in values.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(kind):
        yield from _leaves(spanned(values, values.keys))
        yield from _leaves(spanned(values, values.items))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(values.flatten())
    else:
        yield values
