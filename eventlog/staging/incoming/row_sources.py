"""Rows in forms that have no Arrow stream of their own: lists of dicts, datasets, lazy frames.

Imports none of the libraries: where one of their objects is, its library is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eventlog.arguments import shown
from eventlog.errors import EventLogError, InvalidInput
from eventlog.staging.incoming.dict_values import Unfit, from_python, inferred
from eventlog.staging.incoming.pandas_frames import is_of
from eventlog.staging.incoming.problems import first_line


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The types that values of Python are converted to: those of a table's columns.

    Attributes:
        schema: of the table.
        time_column: its event times, which may be text; None: it has none.
        may_widen: whether the table is to get a wider type for values that do not fit.
    """

    schema: pa.Schema
    time_column: str | None
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
        rows: a list of dicts with the same keys, or of nothing; a dataset or scanner of pyarrow, a
            LazyFrame of Polars, a DeltaTable; or something else.
        table: the types for dicts; None: those that Arrow chooses.

    Raises:
        InvalidInput: the rows cannot be read, or their conversion would change a value.
    """
    if is_rows_of_python(rows):
        return _of_mappings(rows, table)
    if isinstance(rows, list | tuple) and not rows:
        return (pa.schema([]) if table is None else table.schema).empty_table().to_reader()
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


def refusal(rows: Any) -> str:
    """Return why rows of no known form are refused, with the call that takes them."""
    what, library = type(rows).__name__, type(rows).__module__.partition(".")[0]
    if isinstance(rows, str | os.PathLike):
        path = shown(os.fspath(rows))
        return (
            f"{path} is a path and no rows: pass pyarrow.dataset.dataset({path}) for files of "
            f"Parquet, DeltaTable({path}) for a table of Delta Lake, and for one of Iceberg what "
            "scan().to_arrow_batch_reader() of pyiceberg returns. In the shell, `eventlog append "
            "URI PATH` takes files of Parquet, Arrow, CSV and JSON"
        )
    if library == "pyiceberg" and hasattr(rows, "scan"):
        return f"a {what} of pyiceberg is no stream of rows: pass scan().to_arrow_batch_reader()"
    if library == "pyiceberg" and hasattr(rows, "to_arrow_batch_reader"):
        return f"a {what} of pyiceberg is no stream of rows: pass its to_arrow_batch_reader()"
    if isinstance(rows, Mapping):
        return (
            "a dict is no list of rows: pass pyarrow.table(…) of it if its values are columns, or "
            "a list of it if it is one row"
        )
    if isinstance(rows, Iterator):
        return f"a {what} has no columns: pass list(…) of it, with dicts as rows"
    if isinstance(rows, list | tuple):
        row = type(rows[0]).__name__
        way = "pass dicts with the columns as keys"
        if isinstance(rows[0], list | tuple):
            way += ", such as [dict(zip(names, row, strict=True)) for row in rows]"
        elif isinstance(rows[0], pa.RecordBatch):
            way = "pass pyarrow.Table.from_batches(…) of it"
        elif isinstance(rows[0], pa.Table):
            way = "pass pyarrow.concat_tables(…) of it"
        return f"cannot read rows from a {what} of {row}: {way}"
    return (
        f"cannot read rows from a {what}: pass a pyarrow Table or RecordBatchReader, a pyarrow "
        "dataset, a pandas or Polars frame, a DuckDB relation, a DeltaTable, a list of dicts with "
        "the columns as keys, or anything else with __arrow_c_stream__"
    )


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
