"""Columns whose values are in a path: `station=Oslo/day=2013-01-07/part-0.parquet`.

Imports eventlog only. The form is Hive's, as Spark, pandas, Polars and DuckDB write it: names and
values percent-encoded, null as `__HIVE_DEFAULT_PARTITION__`. Values are parsed with the table's
types.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.writers.files.texts import Misfit, is_text, parse_texts

if TYPE_CHECKING:
    from eventlog.writers.files.sources import OpenInput

_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Partition:
    """The values of the columns in a path, by name; None is null."""

    values: Mapping[str, str | None] = field(default_factory=dict)

    def added_to(
        self, part: OpenInput, wanted: pa.Schema, *, nulls_say_nothing: bool = False
    ) -> OpenInput:
        """Return the file with the columns of its path added.

        Args:
            part: the file.
            wanted: the table's schema.
            nulls_say_nothing: a null in the file may mean that the field is missing, as in JSON.

        Raises:
            ValueError: a value does not fit its column's type; while reading batches: the file has
                the column too, with another value.
        """
        if not self.values:
            return part
        typed = {n: _typed(n, text, wanted.field(n).type) for n, text in self.values.items()}
        schema = part.schema
        for name, value in typed.items():
            if name not in schema.names:
                schema = schema.append(pa.field(name, value.type))
        texts = self.values if nulls_say_nothing else {}
        batches = _with(part.batches, schema, typed, texts)
        return dataclasses.replace(part, schema=schema, batches=batches)


def parse_parts(parts: Sequence[str]) -> Partition:
    """Return the columns in the folders of a path; folders without `=` are ignored.

    Raises:
        InvalidInput: a column occurs twice, or the percent-encoding is not UTF-8.
    """
    values: dict[str, str | None] = {}
    for part in parts:
        name, separator, text = part.partition("=")
        if not separator or not name:
            continue
        try:
            name, value = unquote(name, errors="strict"), unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise InvalidInput(f"the folder {part!r} is not percent-encoded UTF-8") from None
        if name in values:
            raise InvalidInput(f"the path has column {name!r} twice: {'/'.join(parts)}")
        # A writer that distinguishes a string of this name percent-encodes it.
        values[name] = None if text == _NULL else value
    return Partition(values)


def _typed(name: str, text: str | None, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise ValueError(f"column {name!r} of type {kind} cannot be read from a path")
    try:
        return parse_texts(pa.array([text], pa.string()), kind)[0]
    except Misfit as error:
        raise ValueError(f"the path has {name}={text}: {error}") from None


def _with(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    typed: Mapping[str, pa.Scalar],
    filling: Mapping[str, str | None],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, value in typed.items():
            if name in columns:
                if filling.get(name) is not None:
                    text = is_text(columns[name].type)
                    columns[name] = columns[name].fill_null(filling[name] if text else value)
                _check_agrees(columns[name], name, value)
            else:
                columns[name] = pa.repeat(value, batch.num_rows)
        yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _check_agrees(values: Any, name: str, value: pa.Scalar) -> None:
    """Refuse a file whose own column has other values than its path."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    try:
        same = parse_texts(values, value.type) if is_text(values.type) else values.cast(value.type)
    except (Misfit, pa.ArrowInvalid):
        same = None
    if same is not None and not value.is_valid and same.null_count == len(same):
        return
    if same is None or not pc.all(_agree(same, value), skip_nulls=False, min_count=0).as_py():
        raise ValueError(
            f"the path has {name}={value.as_py()}, but column {name!r} in the file has another "
            "value: move the file, or leave the column out"
        )


def _agree(values: pa.Array, value: pa.Scalar) -> pa.Array:
    if pa.types.is_floating(value.type) and value.is_valid and math.isnan(value.as_py()):
        return pc.is_nan(values)
    return pc.equal(values, value)
