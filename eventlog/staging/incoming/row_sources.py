"""Rows in forms that have no Arrow stream of their own: lists of dicts, datasets, lazy frames.

Imports none of the libraries: where one of their objects is, its library is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from eventlog.model.columns.edits import path_text
from eventlog.staging.incoming.casting import absent_in
from eventlog.staging.incoming.pandas_frames import check_column_objects
from eventlog.staging.incoming.problems import first_line


def as_stream(rows: Any) -> Any:
    """Return rows of a known form as a stream of batches, and anything else as it is.

    Args:
        rows: a list of dicts with the same keys, a dataset or scanner of pyarrow, a LazyFrame of
            Polars, a DeltaTable; or something else.

    Raises:
        InvalidInput: the rows cannot be read, or their conversion would change a value.
    """
    if isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping):
        return _of_mappings(rows)
    library, name = type(rows).__module__.partition(".")[0], type(rows).__name__
    try:
        if library == "polars" and name == "LazyFrame":
            return _of_lazy_frame(rows)
        if library == "deltalake" and name == "DeltaTable":
            # Its own reader: the one by pyarrow refuses deletion vectors and renamed columns.
            query = sys.modules[library].QueryBuilder().register("rows", rows)
            return pa.RecordBatchReader.from_stream(query.execute("SELECT * FROM rows"))
        dataset = sys.modules.get("pyarrow.dataset")
        if dataset is not None and isinstance(rows, dataset.Dataset):
            return rows.scanner().to_reader()
        if dataset is not None and isinstance(rows, dataset.Scanner):
            return rows.to_reader()
    except (EventLogError, MemoryError):
        raise
    except Exception as error:  # whatever the library raises
        raise InvalidInput(f"the rows of a {name} cannot be read: {first_line(error)}") from error
    return rows


def _of_mappings(rows: Sequence[Any]) -> pa.RecordBatchReader:
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
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        try:
            column = pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise InvalidInput(
                f"the values of {name!r} cannot be converted to Arrow: {first_line(error)}"
            ) from None
        check_column_objects(name, values, column.type)
        _check_keys_of_structs(name, values, column.type)
        columns.append(column)
    table = pa.Table.from_arrays(columns, names)
    return table.to_reader()


def _check_keys_of_structs(name: str, values: Sequence[Any], kind: pa.DataType) -> None:
    """Check that dicts in the values of a column have the same keys, as the rows have."""
    if not pa.types.is_nested(kind):
        return
    for place, value in enumerate(values):
        path = absent_in(value, kind, (name,))
        if path is not None:  # against keys-that-dicts-lack-erased
            raise InvalidInput(
                f"row {place} of the list has no {path_text(path)}, which others have: give all "
                "dicts there the same keys, with None where a value is null"
            )


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
