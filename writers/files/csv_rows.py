"""CSV as in RFC 4180: a header, commas, quotes doubled inside quotes.

Imports eventlog only. An unquoted empty field is null and a quoted one the empty string; no other
text is null unless the caller names it. Arrow's parser accepts malformed input, such as half a
quoted field or text after a closing quote. So the bytes are checked before they reach it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from eventlog.writers.files.sources import InputFile, OpenInput
from eventlog.writers.files.texts import Misfit, parse_texts, short_fractions

# Of what Arrow parses at once, and of a row, with its line end: Arrow reads some rows of up to two
# blocks, by where they begin. Arrow's memory is about fifty times as much.
_BLOCK_BYTES = 4 * 2**20
_BOM = b"\xef\xbb\xbf"
_QUOTE = 0x22
_BARE_RETURN = (
    "a carriage return (CR) without a line feed (LF) is outside of quotes, where programs do "
    "not agree whether it ends a line: end lines with LF or CRLF, and quote fields with a CR"
)
_LONG_ROW = f"a row is longer than {_BLOCK_BYTES:,} bytes, or a quote is never closed"
_RETURN = re.compile(rb"\r[^\n]")
_AROUND = (b"", b",", b"\n", b"\r")
_OFTEN_NULL = {"NA", "N/A", "#N/A", "NULL", "NONE", "\\N", "-", "?"}


_SEPARATOR = re.compile(r"[;\t|]")
_COMMAS = (
    "Fields are separated by commas: convert a file with semicolons, tabs or bars, or append what "
    "pandas or Polars reads from it"
)


def open_csv(
    source: InputFile, wanted: pa.Schema, time_column: str | None, nulls: Sequence[str] = ()
) -> OpenInput:
    """Open a CSV file. Its event times stay text, which the append parses.

    Raises:
        ValueError: it has no header, or a name twice; while reading batches: a value does not fit.
        pa.ArrowException: it is not CSV.
    """
    try:
        checked, reader = _reader(source, wanted, nulls)
    except pa.ArrowInvalid as error:
        if "Expected 1 columns" in str(error):
            raise ValueError(f"{error}. {_COMMAS}") from None
        raise
    names = reader.schema.names
    if len(names) == 1 and names[0] not in wanted.names and _SEPARATOR.search(names[0]):
        checked.close()
        raise ValueError(f"its header is one name, {names[0][:80]!r}. {_COMMAS}")
    if len(names) == 1:  # an empty line means null; Arrow would skip it
        checked.close()
        if source.stream is not None:
            raise ValueError("a CSV of one column cannot come from a pipe: give a file")
        checked, reader = _reader(source, wanted, nulls, empty_lines=True)
        if reader.schema.names != names:
            checked.close()
            raise ValueError("there is an empty line before its header: remove it")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        checked.close()
        raise ValueError(f"its header has {', '.join(map(repr, twice))} twice")
    kinds = {f.name: pa.string() if f.name == time_column else f.type for f in wanted}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    return OpenInput(schema, _batches(reader, checked, schema, time_column), close=checked.close)


def _reader(
    source: InputFile, wanted: pa.Schema, nulls: Sequence[str], *, empty_lines: bool = False
) -> tuple[_Checked, pa_csv.CSVStreamingReader]:
    """Return the file and Arrow's reader of strings, which separates null from empty strings."""
    parse_options = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not empty_lines)
    convert_options = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(wanted.names, pa.string()),
        null_values=["", *nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    checked = _Checked(source.open())
    try:
        with _explained_long_rows():
            reader = pa_csv.open_csv(
                checked,
                read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
                parse_options=parse_options,
                convert_options=convert_options,
            )
    except BaseException:
        checked.close()
        raise
    return checked, reader


def _batches(
    reader: pa_csv.CSVStreamingReader, checked: _Checked, schema: pa.Schema, time_column: str | None
) -> Iterator[pa.RecordBatch]:
    before = 0
    try:
        with _explained_long_rows():
            for batch in reader:
                yield _typed(batch, schema, time_column, before)
                before += batch.num_rows
    finally:
        checked.close()


@contextmanager
def _explained_long_rows() -> Iterator[None]:
    """Replace Arrow's message for a row that is longer than a block."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
        raise ValueError(_LONG_ROW) from None


def _typed(
    batch: pa.RecordBatch, schema: pa.Schema, time_column: str | None, before: int
) -> pa.RecordBatch:
    columns = []
    for field, values in zip(schema, batch.columns, strict=True):
        if field.name == time_column:
            columns.append(short_fractions(values))
            continue
        if values.null_count < len(values) and (
            pa.types.is_nested(field.type) or pa.types.is_binary(field.type)
        ):
            raise ValueError(
                f"column {field.name!r} has type {field.type}, which CSV cannot represent: append "
                "Parquet or Arrow"
            )
        try:
            columns.append(_values(values, field.type))
        except Misfit as error:
            row, text = before + error.index + 1, values[error.index].as_py()
            hint = (
                f"; give --null {text!r} to read it as null" if text.upper() in _OFTEN_NULL else ""
            )
            raise ValueError(f"row {row}, column {field.name!r}: {error}{hint}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    return parse_texts(values, kind)


class _Checked:
    r"""A CSV file that raises while it is read if it violates RFC 4180.

    Arrow would read the rest of a file that ends inside quotes as one field, and would misread
    `"a\"b"`, which is how Spark writes a quote by default. A last line without a line end may be
    cut inside a field.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._inside = False  # quotes: the state before the last byte seen
        self._begun = 0  # bytes of the row that is not complete, the last byte seen left out
        self._last = b""
        self._kept = b""
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            ValueError: they are not valid CSV, or the file is cut.
        """
        block = self._next(size)
        if block and not self._last:
            block = block.removeprefix(_BOM)
            self._last = b"\n"
        if block:
            self._check(self._last + block)
        elif size:
            self._check_end()
        return block

    def readable(self) -> bool:
        """Say that it can be read, as files do."""
        return True

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()

    def _next(self, size: int) -> bytes:
        """Return the next bytes, never starting with the LF of a CRLF.

        Arrow drops an LF at the start of a block after a CR, even inside quotes.
        """
        if not size:
            return b""
        block: bytes = self._kept + self._file.read(size - len(self._kept) if size > 0 else size)
        self._kept = b""
        if block == b"\r":
            block += self._file.read(1)
        if block[-1:] == b"\r" and len(block) > 1:
            block, self._kept = block[:-1], b"\r"
        return block

    def _check(self, text: bytes) -> None:
        """Check bytes that begin with the last byte of the block before."""
        if b"\0" in text:  # after it Arrow stops looking for quotes
            raise ValueError("it has a NUL byte, which CSV cannot hold: append Parquet or Arrow")
        quotes = text.count(b'"')
        if quotes:
            pieces = pc.split_pattern(pa.array([text], pa.large_binary()), pattern='"')[0].values
            pieces = pieces.slice(int(self._inside))  # now every second piece is outside quotes
            outside = pieces.filter(_each_second(len(pieces)))
            begun = outside if self._inside else outside.slice(1)
            ended = outside if (quotes + self._inside) % 2 else outside.slice(0, len(outside) - 1)
            _check_bounds(pc.binary_slice(begun, 0, 1), pc.binary_slice(ended, -1))
        if b"\r" in text and _RETURN.search(text):
            _check_line_ends(text, inside=self._inside)
        self._check_length(text)
        ends_in_quote = text[-1] == _QUOTE
        self._inside ^= (quotes - ends_in_quote) % 2 == 1
        self._last = text[-1:]

    def _check_length(self, text: bytes) -> None:
        """Check that no row is too long; `text` as for `_check`, its last byte for the next time.

        Rows that begin and end in one text are as short as that.
        """
        size = len(text) - 1
        first = _first_row_end(text, size, inside=self._inside)
        if self._begun + (size if first < 0 else first + 1) > _BLOCK_BYTES:
            raise ValueError(_LONG_ROW)
        inside = self._inside ^ (text.count(b'"', 0, size) % 2 == 1)
        last = first if first < 0 else _last_row_end(text, size, inside=inside)
        self._begun = self._begun + size if last < 0 else size - last - 1

    def _check_end(self) -> None:
        inside = self._inside ^ (self._last == b'"')
        if inside:
            raise ValueError("it ends inside quotes: it is cut")
        if self._last == b"\r":
            raise ValueError(_BARE_RETURN)
        if self._begun + len(self._last) > _BLOCK_BYTES:
            raise ValueError(_LONG_ROW)
        if self._last and self._last != b"\n":
            raise ValueError(
                "its last line has no line end, so its last field may be cut: if not, add "
                "a line end"
            )


def _each_second(count: int) -> pa.Array:
    """Return a mask of `count` items that selects the first, third, fifth and so on."""
    bits = pa.py_buffer(b"\x55" * (count // 8 + 1))  # the lowest bit comes first
    return pa.Array.from_buffers(pa.bool_(), count, [None, bits])


def _first_row_end(text: bytes, size: int, *, inside: bool) -> int:
    """Return where in the first bytes of a text the first LF outside of quotes is; -1: nowhere."""
    at = 0
    while at < size:
        quote = text.find(b'"', at, size)
        if not inside:
            line_end = text.find(b"\n", at, size if quote < 0 else quote)
            if line_end >= 0:
                return line_end
        if quote < 0:
            return -1
        at, inside = quote + 1, not inside
    return -1


def _last_row_end(text: bytes, size: int, *, inside: bool) -> int:
    """Return where the last one is, given whether the bytes after these are inside quotes."""
    end = size
    while end > 0:
        quote = text.rfind(b'"', 0, end)
        if not inside:
            line_end = text.rfind(b"\n", quote + 1, end)
            if line_end >= 0:
                return line_end
        end, inside = quote, not inside
    return -1


def _check_line_ends(text: bytes, *, inside: bool) -> None:
    """Refuse a CR outside of quotes without an LF. A CR at the end is checked later."""
    pieces = text.removesuffix(b"\r").split(b'"')
    for piece in pieces[int(inside) :: 2]:
        if piece.count(b"\r") != piece.count(b"\r\n"):
            raise ValueError(_BARE_RETURN)


def _check_bounds(*bounds: pa.Array) -> None:
    """Check the bytes next to quoted fields; a doubled quote has none between its quotes."""
    around = pa.array(_AROUND, pa.binary())
    for edges in bounds:
        if not pc.all(pc.is_in(edges.cast(pa.binary()), around), min_count=0).as_py():
            raise ValueError(
                "there is a quote inside a field; RFC 4180 doubles it inside a quoted field "
                """(in Spark: .option("escape", '"'))"""
            )
