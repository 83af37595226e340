"""Rows as a file or on standard output, in batches: CSV, JSON lines, Parquet, Arrow IPC."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from eventlog.display import plain, plain_json
from eventlog.errors import EventLogError, InvalidInput
from eventlog.segments.batches import holds_floats
from eventlog.writers.files import SUFFIXES

FORMATS = ("csv", "json", "parquet", "arrow")
_TEXTS: dict[str, Callable[[str], str]] = {"csv": plain, "json": plain_json}
_PARTIAL = ".partial"
_STREAM = "arrows"  # the suffix of an Arrow IPC stream; other files of Arrow can be read in parts
_DAY_US = 86_400 * 10**6
_FIRST_DAY, _END_DAY = -12_687_428, 11_248_738  # days of years within ±32767, which Arrow can write


def format_named(output: str) -> str:
    """Return the format that the name of a file shows.

    Raises:
        InvalidInput: it shows none.
    """
    kind = SUFFIXES.get(PurePath(output).suffix[1:].lower())
    if kind is None:
        raise InvalidInput(
            f"the name {output} does not show a format (.csv, .json, .jsonl, .parquet, .arrow): "
            f"rename it, or give --format, one of {', '.join(FORMATS)}"
        )
    return kind


def write_rows(reader: pa.RecordBatchReader, row_format: str, output: str | None) -> int:
    """Write the rows and return their number.

    Args:
        reader: the rows.
        row_format: one of `FORMATS`.
        output: path of a file, which is created only once it is complete; standard output if None.

    Raises:
        InvalidInput: the format cannot hold a type or a value, or the path cannot be written.
    """
    if output is None:
        if row_format == "parquet":
            raise InvalidInput("Parquet cannot be written to standard output: give --output FILE")
        sink: Any = sys.stdout.buffer
        if sys.stdout.isatty() and row_format in _TEXTS:
            sink = _Shown(sink, _TEXTS[row_format])
        return _WRITERS[row_format](reader, sink)
    target = Path(output)
    write = _WRITERS[row_format]
    if row_format == "arrow" and target.suffix[1:] != _STREAM:
        write = _to_arrow_file
    partial = target.with_name(target.name + _PARTIAL)
    with _errors_naming(output):
        with partial.open("wb") as sink:
            rows = write(reader, sink)
        partial.replace(target)
    return rows


class _Shown(io.RawIOBase):
    """Text for a terminal, without the characters that it would obey."""

    def __init__(self, sink: BinaryIO, shown: Callable[[str], str]) -> None:
        super().__init__()
        self._sink, self._shown, self._left = sink, shown, b""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, piece: Any) -> int:
        """Write the whole lines of a piece, and keep the rest for the next one."""
        # Whole lines only: a piece may end within a character.
        *lines, self._left = (self._left + bytes(piece)).split(b"\n")
        for line in lines:
            self._sink.write(self._shown(line.decode()).encode() + b"\n")
        return len(piece)


def limited(reader: pa.RecordBatchReader, limit: int) -> pa.RecordBatchReader:
    """Return the first `limit` rows of a stream, reading no more batches than needed."""

    def batches() -> Iterator[pa.RecordBatch]:
        left = limit
        while left > 0:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _to_csv(reader: pa.RecordBatchReader, sink: BinaryIO) -> int:
    rows = 0
    try:
        writer = pa_csv.CSVWriter(sink, reader.schema)
    except pa.ArrowException as error:
        raise InvalidInput(f"these columns do not fit CSV: {error}") from None
    with writer:
        for batch in reader:
            rows += batch.num_rows
            _check_years(batch)
            try:
                writer.write_batch(batch)
            except pa.ArrowException as error:
                raise _unfit("CSV", error) from None
    return rows


def _check_years(batch: pa.RecordBatch) -> None:
    """Refuse dates and times for which Arrow would write an error text into the CSV."""
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_date(values.type):
            units, a_day = values.view(pa.int32()), 1
        elif pa.types.is_timestamp(values.type):
            units, a_day = values.view(pa.int64()), _DAY_US
        else:
            continue
        bounds = pc.min_max(units).as_py()
        if units.null_count < len(units) and not (
            _FIRST_DAY * a_day <= bounds["min"] and bounds["max"] < _END_DAY * a_day
        ):
            raise _unfit("CSV", ValueError(f"a year in column {name!r} is beyond 32767"))


def _to_json(reader: pa.RecordBatchReader, sink: BinaryIO) -> int:
    rows = 0
    encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="string")
    floats = any(holds_floats(kind) for kind in reader.schema.types)
    for batch in reader:
        try:
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                sink.write(encoder.encode(_spelled(row) if floats else row))
                sink.write(b"\n")
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise _unfit("JSON", error) from None
        rows += batch.num_rows
    return rows


def _spelled(value: Any) -> Any:
    """Return a value with NaN and infinities, which JSON lacks, as strings that `append` reads."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {_spelled(key): _spelled(inner) for key, inner in value.items()}
        case list():
            return [_spelled(inner) for inner in value]
    return value


def _unfit(row_format: str, error: Exception) -> InvalidInput:
    return InvalidInput(
        f"a value cannot be written as {row_format} ({error}): leave its column out with "
        "--columns, or give --format arrow or parquet"
    )


def _to_parquet(reader: pa.RecordBatchReader, sink: BinaryIO) -> int:
    rows = 0
    with pq.ParquetWriter(sink, reader.schema, compression="zstd") as writer:
        for batch in reader:
            rows += batch.num_rows
            writer.write_batch(batch)
    return rows


def _to_arrow(reader: pa.RecordBatchReader, sink: BinaryIO) -> int:
    rows = 0
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            rows += batch.num_rows
            writer.write_batch(batch)
    return rows


def _to_arrow_file(reader: pa.RecordBatchReader, sink: BinaryIO) -> int:
    rows = 0
    with pa.ipc.new_file(sink, reader.schema) as writer:
        for batch in reader:
            rows += batch.num_rows
            writer.write_batch(batch)
    return rows


_WRITERS: dict[str, Callable[[pa.RecordBatchReader, BinaryIO], int]] = {
    "csv": _to_csv,
    "json": _to_json,
    "parquet": _to_parquet,
    "arrow": _to_arrow,
}


@contextmanager
def _errors_naming(output: str) -> Iterator[None]:
    try:
        yield
    except EventLogError:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot write {output}: {error}") from None


def cell_text(value: Any) -> str:
    """Return a value as text for display: null is blank, and a text that could be taken for it not.

    A text that is empty, or that begins or ends with a space or a quote, is quoted as in JSON.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        odd = not value or value != value.strip() or value[0] == '"' or value[-1] == '"'
        return json.dumps(value, ensure_ascii=False) if odd else value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_inner_text)
    return _inner_text(value)


def _inner_text(value: Any) -> str:
    if isinstance(value, datetime):
        shown = value.isoformat(sep=" ", timespec="auto")
        return shown.replace("+00:00", "Z")
    return value.hex() if isinstance(value, bytes) else str(value)
