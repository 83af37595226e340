"""Rows in forms that have no Arrow stream of their own: lists of dicts, datasets, lazy frames.

Imports none of the libraries: where one of their objects is, its library is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from eventlog.staging.incoming.dict_values import Unfit, from_python, inferred
from eventlog.staging.incoming.pandas_frames import is_of
from eventlog.staging.incoming.problems import first_line


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The types that values of Python are converted to: those of a table's columns.

    Attributes:
        schema: of the table.
        time_column: its event times, which may be text.
        may_widen: whether the table is to get a wider type for values that do not fit.
    """

    schema: pa.Schema
    time_column: str
    may_widen: bool = False

    def kind_of(self, name: str, values: Sequence[Any]) -> pa.DataType | None:
        """Return the type of the column for a key, whose capitals do not matter; None: no column.

        Args:
            name: the key.
            values: of the key.
        """
        spellings = [known for known in self.schema.names if known.lower() == name.lower()]
        if not spellings:
            return None
        field = self.schema.field(name if name in spellings else spellings[0])
        is_text = field.name == self.time_column and {*map(type, values)} <= {str, type(None)}
        return pa.string() if is_text else field.type


def is_rows_of_python(rows: Any) -> bool:
    """Return whether rows are a list of dicts, which can be converted more than once."""
    return bool(isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping))


def as_stream(rows: Any, table: TableTypes | None = None) -> Any:
    """Return rows of a known form as a stream of batches, and anything else as it is.

    Args:
        rows: a list of dicts with the same keys, a dataset or scanner of pyarrow, a LazyFrame of
            Polars, a DeltaTable; or something else.
        table: the types for dicts; None: those that Arrow chooses.

    Raises:
        InvalidInput: the rows cannot be read, or their conversion would change a value.
    """
    if is_rows_of_python(rows):
        return _of_mappings(rows, table)
    library, name = type(rows).__module__.partition(".")[0], type(rows).__name__
    try:
        if library == "polars" and name == "LazyFrame":
            return _of_lazy_frame(rows)
        if library == "deltalake" and name == "DeltaTable":
            # Its own reader: the one by pyarrow refuses deletion vectors and renamed columns.
            query = sys.modules[library].QueryBuilder().register("rows", rows)
            return pa.RecordBatchReader.from_stream(query.execute("SELECT * FROM rows"))
        if is_of(rows, "pyarrow.dataset", "Dataset"):
            return rows.scanner().to_reader()
        if is_of(rows, "pyarrow.dataset", "Scanner"):
            return rows.to_reader()
    except (EventLogError, MemoryError):
        raise
    except Exception as error:  # whatever the library raises
        raise InvalidInput(f"the rows of a {name} cannot be read: {first_line(error)}") from error
    return rows


def _of_mappings(rows: Sequence[Any], table: TableTypes | None) -> pa.RecordBatchReader:
    names = list(rows[0])
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping) or row.keys() != rows[0].keys():
            raise InvalidInput(
                f"row {place} of the list has other keys than the first row: give every row the "
                "same keys, with None where a value is null"
            )
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"{name!r} is a key of the rows and no text: columns have names")
    try:
        columns = [_column([row[name] for row in rows], name, table) for name in names]
    except Unfit as error:
        raise InvalidInput(f"{error}; nothing was committed") from None
    return pa.Table.from_arrays(columns, names).to_reader()


def _column(values: list[Any], name: str, table: TableTypes | None) -> pa.Array:
    """Return the values of a key in the type of its column, or else in the one Arrow chooses."""
    kind = None if table is None else table.kind_of(name, values)
    if kind is not None:
        try:
            return from_python(values, kind, (name,))
        except Unfit as error:
            if not error.foreign and not (table and table.may_widen):
                raise
    return inferred(values, (name,))


def _of_lazy_frame(rows: Any) -> pa.RecordBatchReader:
    """Return the rows of a lazy frame, which Polars computes as they are consumed."""
    polars = sys.modules["polars"]
    schema = polars.DataFrame(schema=rows.collect_schema()).to_arrow().schema

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            if hasattr(rows, "collect_batches"):
                frames = rows.collect_batches(maintain_order=True, lazy=True)
            else:
                frames = iter([rows.collect()])
            for frame in frames:
                yield from frame.to_arrow().cast(schema).to_batches()
        except (EventLogError, MemoryError):
            raise
        except Exception as error:  # of Polars, or of what it reads
            raise InvalidInput(f"the rows could not be read: {first_line(error)}") from error

    return pa.RecordBatchReader.from_batches(schema, batches())
