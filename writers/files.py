"""Rows from files: Parquet, CSV, JSON lines and Arrow IPC as one stream, in bounded memory.

Imports eventlog only. Text formats are read with the table's own types, so that what a file leaves
open (is `1` a number or a name?) is decided by the table and not by a guess.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.json as pa_json

from eventlog.errors import InvalidInput

STDIN = "-"
FORMATS = ("parquet", "csv", "json", "arrow")
_BY_SUFFIX = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "ipc": "arrow",
    "feather": "arrow",
}
_COMPRESSED = ("gz", "bz2", "zst")
_BATCH_ROWS = 64 * 1024
_BATCHES_AHEAD = 2

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Rows:
    """A stream of rows, and how many there are where the files say so without being read."""

    reader: pa.RecordBatchReader
    total: int | None


def open_rows(
    files: Sequence[str], wanted: pa.Schema, time_column: str, file_format: str | None = None
) -> Rows:
    """Return the rows of all files, in the order given.

    Args:
        files: paths of files or folders of one format, or `-` alone for an Arrow IPC stream on
            standard input.
        wanted: the table's schema, whose types text files are read with.
        time_column: read as text where the format is text: an append parses any ISO 8601.
        file_format: one of `FORMATS`; by the names of the files if None.

    Raises:
        InvalidInput: a file cannot be read, or the files are of several formats.
    """
    if STDIN in files:
        if len(files) > 1:
            raise InvalidInput("'-' reads standard input and stands alone")
        return Rows(_stdin(sys.stdin.buffer), None)
    missing = [file for file in files if not os.path.exists(file)]  # noqa: PTH110
    if missing:
        raise InvalidInput(f"no such file: {', '.join(missing)}")
    kind = file_format or _format_of(files)
    try:
        dataset = _dataset(files, kind, _text_types(wanted, time_column))
        total = dataset.count_rows() if kind in ("parquet", "arrow") else None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(files, error) from None
    scanner = dataset.scanner(
        batch_size=_BATCH_ROWS, batch_readahead=_BATCHES_AHEAD, fragment_readahead=1
    )
    reader = pa.RecordBatchReader.from_batches(
        dataset.schema, _readable(files, scanner.to_batches())
    )
    return Rows(reader, total)


def counted(reader: pa.RecordBatchReader, advance: Advance) -> pa.RecordBatchReader:
    """Return the same stream, which tells `advance` the number of rows that went through."""

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            done += batch.num_rows
            advance(done)
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _format_of(files: Sequence[str]) -> str:
    found: dict[str, str] = {}
    for file in files:
        suffixes = [suffix[1:].lower() for suffix in PurePath(file).suffixes]
        if suffixes and suffixes[-1] in _COMPRESSED:
            suffixes.pop()
        kind = _BY_SUFFIX.get(suffixes[-1]) if suffixes else None
        if kind is None:
            raise InvalidInput(
                f"the name of {file} does not say its format: give --format, one of "
                f"{', '.join(FORMATS)}"
            )
        found.setdefault(kind, file)
    if len(found) > 1:
        raise InvalidInput(
            f"files of several formats, such as {' and '.join(found.values())}: append each on its "
            "own"
        )
    return next(iter(found))


def _text_types(wanted: pa.Schema, time_column: str) -> dict[str, pa.DataType]:
    """Return the types that text columns are read with; other times than the event's are guessed.

    Arrow's readers take a time zone or none, but not both; what they guess is cast by the append.
    """
    types = {f.name: f.type for f in wanted if not pa.types.is_timestamp(f.type)}
    return {**types, time_column: pa.string()}


def _dataset(files: Sequence[str], kind: str, types: dict[str, pa.DataType]) -> ds.Dataset:
    """Return the files as one dataset, of all columns that any of them has."""
    file_format = _file_format(kind, types)
    parts = [ds.dataset(file, format=file_format) for file in files]
    fragments = [fragment for part in parts for fragment in part.get_fragments()]
    # A dataset would take the columns of its first file and drop what only the others have.
    schemas = [fragment.physical_schema for fragment in fragments]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    return ds.FileSystemDataset(
        fragments, schema.remove_metadata(), file_format, fragments[0].filesystem
    )


def _file_format(kind: str, types: dict[str, pa.DataType]) -> ds.FileFormat:
    if kind == "csv":
        return ds.CsvFileFormat(convert_options=pa_csv.ConvertOptions(column_types=types))
    if kind == "json":
        options = pa_json.ParseOptions(
            explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="infer"
        )
        return ds.JsonFileFormat(parse_options=options)
    return ds.ParquetFileFormat() if kind == "parquet" else ds.IpcFileFormat()


def _readable(files: Sequence[str], batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(files, error) from None


def _unreadable(files: Sequence[str], error: Exception) -> InvalidInput:
    some = ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
    return InvalidInput(f"cannot read {some}: {error}")


def _stdin(stream: BinaryIO) -> pa.RecordBatchReader:
    try:
        return pa.ipc.open_stream(stream)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"standard input is no Arrow IPC stream: {error}") from None
