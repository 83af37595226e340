"""Rows that are read each time they are consumed: as Arrow, pandas, Polars or DuckDB."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventlog.display import Described, Description
from eventlog.errors import InvalidInput
from eventlog.segments.batches import without_columns

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class RowStream(Described, ABC):
    """Rows that are read each time they are consumed: as Arrow, pandas, Polars or DuckDB.

    Every batch has exactly `schema`. Consumers that read through the C interface report read errors
    as their own error type.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, in bounded memory."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. See `to_batches` for the errors of reading it."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows in memory. See `to_batches` for its errors."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame, with every value unchanged.

        See `to_batches` for the errors of reading.

        Integer columns with nulls get pandas' nullable types (`Int64`). Inside lists and structs
        such integers become Python integers, because pandas would turn them into floats and round
        large ones. Times have microseconds. Decimals, dates and nested values are objects. Pandas
        has only one missing float: both null and NaN become NaN.

        Raises:
            InvalidInput: pandas is not installed, or Python cannot represent a value, such as a
                date outside the years 1 to 9999.
        """
        pandas = needed("pandas", "eventlog-tables[pandas]")
        rows = self.to_table()
        try:
            frame: pd.DataFrame = rows.to_pandas(integer_object_nulls=True)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise InvalidInput(
                f"pandas cannot represent a value ({error}): leave its column out, or use "
                "to_table() or to_polars()"
            ) from None
        for place, column in enumerate(rows.columns):
            if pa.types.is_integer(column.type) and column.null_count:
                nullable = pandas.array([], dtype=f"Int{column.type.bit_width}").dtype
                values = column.to_pandas(types_mapper={column.type: nullable}.get)
                values.index = frame.index
                frame.isetitem(place, values)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame, with every value unchanged.

        See `to_batches` for the errors of reading.

        Raises:
            InvalidInput: Polars is not installed.
        """
        polars = needed("polars", "eventlog-tables[polars]")
        frame: pl.DataFrame = polars.from_arrow(self.to_table())
        return frame

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, which streams them each time it runs.

        Every value is unchanged. DuckDB's own SQL interprets them by its rules and the time zone of
        its session, for example when it reads a time without an offset.

        Args:
            connection: a DuckDB connection; the default one if None.

        Raises:
            InvalidInput: DuckDB is not installed.
        """
        module = needed("duckdb", "eventlog-tables[duckdb]")
        relation: duckdb.DuckDBPyRelation = (connection or module).from_arrow(self)
        return relation

    def _described(self) -> Description:
        return Description(type(self).__name__, [("columns", ", ".join(self.schema.names))])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new stream of the rows by Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def first_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of batches, and ask for no batch that is not needed.

    Args:
        batches: all rows.
        limit: the number of rows; None: all.
    """
    left = limit
    if left == 0:
        return
    for batch in batches:
        if left is None:
            yield batch
            continue
        wanted = min(left, batch.num_rows)
        yield batch.slice(0, wanted) if batch.num_columns else without_columns(wanted)
        left -= wanted
        if not left:
            return


def needed(module: str, requirement: str) -> Any:
    """Return a module that an extra installs.

    Args:
        module: its name.
        requirement: what to install, for the error.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidInput(f"this needs {module}: pip install '{requirement}'") from None
