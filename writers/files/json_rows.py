"""JSON lines: one object per line, read with the table's types.

Imports eventlog only. A field that the table lacks is refused, with the number of its line; a field
that a line lacks is null. Duplicate fields and large numbers, which JSON leaves to its readers, are
read exactly or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from eventlog.keyed.rule import DELETE, OP
from eventlog.model.columns.edits import path_text
from eventlog.staging.incoming.casting import absent_in
from eventlog.writers.files.json_values import Rounded, to_array
from eventlog.writers.files.sources import InputFile, OpenInput
from eventlog.writers.files.texts import Misfit, short_fractions

_BLOCK_BYTES = 2**20
_LONGEST_LINE = 64 * 2**20
_BOM = b"\xef\xbb\xbf"
# A string before a colon: a field's name, or a quote within a string; at least all names match.
_SPACED_NAME = re.compile(rb'"[ \t\r]+:')
_MINUS_ZERO = re.compile(rb"(?<![eE])-0(?![0-9.eE])")
_TEXT_OR_MINUS_ZERO = re.compile(rb'"(?:[^"\\]|\\.)*"|' + _MINUS_ZERO.pattern)
_SHOWN = 80
_NEEDS_TEXT = re.compile(r"\bdecimal|\bfloat\b")


EXTEND = "Drop them, or extend the table first: Table.add_columns"


class Needed(NamedTuple):
    """What an object must have, perhaps as null, unless it is a delete.

    Attributes:
        columns: the fields of the object. Structs in it must have all of theirs.
        why: the reason, and what to do, as the end of a message.
        others: what to do about fields that are no columns of `wanted`.
    """

    columns: frozenset[str]
    why: str
    others: str = EXTEND


def open_json(
    source: InputFile, wanted: pa.Schema, time_column: str | None, needed: Needed | None = None
) -> OpenInput:
    """Open a file of JSON lines. Its event times stay text, which the append parses.

    Nothing is read before the first batch.

    Args:
        source: the file.
        wanted: the table's columns.
        time_column: the column of the event times.
        needed: what objects must have; None: they may lack any field that can be null.
    """
    schema = pa.schema([(f.name, pa.string() if f.name == time_column else f.type) for f in wanted])
    lines = _Lines(schema, time_column, needed)
    return OpenInput(schema, _batches(source, lines))


def _batches(source: InputFile, lines: _Lines) -> Iterator[pa.RecordBatch]:
    with source.open() as file:
        rest: list[bytes] = []
        done = 0
        while block := file.read(_BLOCK_BYTES):
            if not done and not rest:
                block = block.removeprefix(_BOM)
            rest.append(block)
            if b"\n" not in block:
                if sum(map(len, rest)) > _LONGEST_LINE:
                    raise ValueError(f"line {done + 1} is longer than {_LONGEST_LINE:,} bytes")
                continue
            complete, _, last = b"".join(rest).rpartition(b"\n")
            yield lines.read(complete, done + 1)
            done += complete.count(b"\n") + 1
            rest = [last]
        # A compressed file without rows has its own end marker, which shows that it is complete.
        if source.stream is not None and not done and not any(rest):
            raise ValueError("it is empty: its producer may have failed")
        yield lines.read(b"".join(rest), done + 1)


class _Lines:
    """Reads lines as rows of a schema."""

    def __init__(self, schema: pa.Schema, time_column: str | None, needed: Needed | None) -> None:
        self._schema, self._time_column, self._needed = schema, time_column, needed
        self._nested = [field for field in schema if pa.types.is_nested(field.type)]
        self._names = frozenset(schema.names)
        self._exact = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
        # Decimals and floats that a double would round first need the written digits; otherwise
        # floats are decoded directly.
        written = any(_NEEDS_TEXT.search(str(kind)) for kind in schema.types)
        self._decoder = self._exact if written else msgspec.json.Decoder(dict[str, Any])

    def read(self, text: bytes, first: int) -> pa.RecordBatch:
        """Return the rows of complete lines; the first line has the number `first`.

        Raises:
            ValueError: a line is not an object, or does not fit.
        """
        if _MINUS_ZERO.search(text):  # decoders return the integer 0, which has no sign
            text = _TEXT_OR_MINUS_ZERO.sub(_signed_zero, text)
        lines = text.split(b"\n")
        numbers: Sequence[int] = range(first, first + len(lines))
        if any(not line or line.isspace() for line in lines):
            kept = [(n, x) for n, x in zip(numbers, lines, strict=True) if x and not x.isspace()]
            numbers, lines = [n for n, _ in kept], [x for _, x in kept]
        rows = self._decoded(lines, numbers, self._decoder)
        for number, row in zip(numbers, rows, strict=True):
            if not row.keys() <= self._names:
                unknown = ", ".join(repr(name) for name in row if name not in self._names)
                others = EXTEND if self._needed is None else self._needed.others
                has = "the table has" if others == EXTEND else "wanted are"
                raise ValueError(
                    f"line {number}: unknown columns {unknown[:_SHOWN]}; {has} "
                    f"{', '.join(self._schema.names)}. {others}"
                )
            if self._needed is not None and row.get(OP) != DELETE:
                self._check_whole(row, number, self._needed)
        if text.count(b'":') != _count_names(rows, numbers) or _SPACED_NAME.search(text):
            _check_names(lines, numbers)
        try:
            return self._batch(rows, numbers)
        except Rounded:
            return self._batch(self._decoded(lines, numbers, self._exact), numbers)

    def _check_whole(self, row: dict[str, Any], number: int, needed: Needed) -> None:
        """Check that an object has what it must have."""
        if not needed.columns <= row.keys():
            left = needed.columns - row.keys()
            lacking = ", ".join(repr(name) for name in self._schema.names if name in left)
            raise ValueError(f"line {number} has no {lacking[:_SHOWN]}, {needed.why}")
        for field in self._nested:
            path = absent_in(row.get(field.name), field.type, (field.name,))
            if path is not None:  # against fields-that-objects-lack-erased
                raise ValueError(f"line {number} has no {path_text(path)}, {needed.why}")

    def _decoded(
        self, lines: Sequence[bytes], numbers: Sequence[int], decoder: msgspec.json.Decoder[Any]
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        try:
            rows.extend(map(decoder.decode, lines))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
            number = numbers[len(rows)]
            raise ValueError(
                f"line {number} is not one JSON object: {error}; JSON lines need one on each line"
            ) from None
        return rows

    def _batch(self, rows: Sequence[dict[str, Any]], numbers: Sequence[int]) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            name = field.name
            try:
                values = to_array([row.get(name) for row in rows], field.type)
            except Misfit as error:
                raise ValueError(f"line {numbers[error.index]}, column {name!r}: {error}") from None
            columns.append(short_fractions(values) if name == self._time_column else values)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _signed_zero(match: re.Match[bytes]) -> bytes:
    return b"-0e0" if match[0] == b"-0" else match[0]


def _count_names(rows: Sequence[dict[str, Any]], numbers: Sequence[int]) -> int:
    """Return the number of field names in all rows, at any depth."""
    counts: list[int] = []
    try:
        counts.extend(map(_names_in, rows))
    except RecursionError:
        raise ValueError(f"line {numbers[len(counts)]}: its values are nested too deeply") from None
    return sum(counts)


def _names_in(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_names_in(v) for v in value.values() if isinstance(v, dict | list))
    return sum(_names_in(item) for item in value if isinstance(item, dict | list))


def _check_names(lines: Sequence[bytes], numbers: Sequence[int]) -> None:
    """Refuse an object with a duplicate field: a decoder would keep only one of the values."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{twice[:_SHOWN]!r} occurs twice in an object")

    for number, line in zip(numbers, lines, strict=True):
        try:
            json.loads(line, object_pairs_hook=once, parse_int=str, parse_float=str)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
