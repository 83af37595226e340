"""Incoming rows as a stream of batches, which can be read only once.

No I/O except reading the caller's stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from eventlog.model.columns.edits import path_text
from eventlog.staging.incoming.casting import absent_fields, check_columns
from eventlog.staging.incoming.pandas_frames import check_index, check_mixtures, check_objects
from eventlog.staging.incoming.problems import first_line
from eventlog.staging.incoming.row_sources import TableTypes, as_stream, refusal

# Streams that were read, or whose reading failed half-way: reading on would miss rows.
_spent: WeakSet[pa.RecordBatchReader] = WeakSet()


def to_reader(rows: Any, table: TableTypes | None = None) -> pa.RecordBatchReader:
    """Return rows of any known form as a stream of batches; those of Arrow without copying.

    Args:
        rows: the rows.
        table: the types for values of Python; None: those that Arrow chooses.

    Raises:
        InvalidInput: the object cannot be read as Arrow, or the conversion would lose data.
    """
    rows = as_stream(rows, table)
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.Table):
        return rows.to_reader()
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if isinstance(rows, pa.ChunkedArray) and pa.types.is_struct(rows.type):
        names = [field.name for field in rows.type]
        # A table, because the stream of a chunked array exports the offsets of its slices.
        rows = pa.Table.from_arrays(rows.flatten(), names)
    if hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, type):
        check_index(rows)
        check_mixtures(rows)
        try:
            reader = pa.RecordBatchReader.from_stream(rows)
        except (EventLogError, MemoryError):
            raise
        except Exception as error:  # whatever the library behind it raises
            raise InvalidInput(
                f"the rows of a {type(rows).__name__} cannot be converted to Arrow: "
                f"{first_line(error)}"
            ) from error
        check_objects(rows, reader.schema)
        return reader
    raise InvalidInput(refusal(rows))


def spelled_names(given: Sequence[str], table: Sequence[str]) -> list[str]:
    """Return names of columns as a table spells them: capitals do not matter, as in expressions.

    Args:
        given: the names.
        table: the names of the table's columns, which differ by more than capitals.
    """
    if given == table:
        return [*given]
    known = {name.lower(): name for name in table}
    return [name if name in table else known.get(name.lower(), name) for name in given]


def spelled(given: pa.Schema, table: Sequence[str]) -> pa.Schema:
    """Return the schema of rows with the names of its columns as a table spells them."""
    names = spelled_names(given.names, table)
    if names == given.names:
        return given
    fields = [field.with_name(name) for field, name in zip(given, names, strict=True)]
    return pa.schema(fields, given.metadata)


def batches(
    reader: pa.RecordBatchReader, wanted: pa.Schema, time_column: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, which can be read only once, as the table spells its columns.

    Raises:
        InvalidInput: a batch does not have the columns of the stream's schema; the stream fails; or
            it was read before, so that only the rest of its rows, or none, would be written.
    """
    if reader in _spent:
        raise InvalidInput(
            "this stream of rows was read before, completely or in part: a stream can be read only "
            "once, so pass a new one"
        )
    _spent.add(reader)
    names = spelled_names(reader.schema.names, wanted.names)
    try:
        for batch in reader:
            _check_batch(batch.schema, reader.schema, wanted, time_column)
            yield batch if batch.schema.names == names else batch.rename_columns(names)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"the rows could not be read: {first_line(error)}") from error


def _check_batch(
    given: pa.Schema, declared: pa.Schema, wanted: pa.Schema, time_column: str | None
) -> None:
    """Check a batch against the schema of its stream; pyarrow does not compare them."""
    if given.equals(declared):
        return
    if given.names != declared.names:
        raise InvalidInput(
            f"a batch has the columns {', '.join(given.names)[:200]}, but the schema of its stream "
            f"has {', '.join(declared.names)[:200]}: give every batch the same columns"
        )
    if given.types != declared.types:
        check_columns(spelled(given, wanted.names), wanted, time_column)
        lacking = absent_fields(given, declared)
        if lacking:  # against batches-that-lack-fields-of-their-stream
            raise InvalidInput(
                f"a batch lacks {path_text(lacking[0])}, which the schema of its stream has: give "
                "every batch the same fields"
            )
