"""Scans: the rows of one version as Arrow, and from there to pandas, Polars and DuckDB.

Imports eventlog only. A scan is pinned to its version when it is made; every time it is consumed it
reads the same rows in the same order.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog import scan as planning
from eventlog.errors import InvalidInput
from eventlog.holds import check_kept
from eventlog.predicate import Where
from eventlog.scan import ScanPlan
from readers.fragments import DEFAULT_BATCH_ROWS, Reading


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows that one question asks of one version; nothing is read before it is consumed.

    Rows come in the order of (time chunk, version, place in that version's commit), and within a
    segment as they lie there; the time column is sorted across rows only as far as that goes. Every
    batch has exactly `schema`. Consuming methods may be called again; each reads anew. Consumers
    that pull through the C interface see errors of reading as their own error type.

    Attributes:
        plan: the segments that are read, and why not the others.
        reading: how they are read.
    """

    plan: ScanPlan
    reading: Reading

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.plan.schema

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.plan.version

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; memory stays bounded whatever their number.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: the predicate fails on the rows, such as by an overflow.
            Unavailable: the store does not answer.
        """
        return self.reading.batches(self.plan.in_scan_order())

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. See `to_batches` for what reading it raises."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows in memory. Raises: see `to_batches`."""
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame. Raises: see `to_batches`.

        Raises:
            InvalidInput: pandas is not installed.
        """
        _need("pandas", "pandas")
        return self.to_table().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a Polars DataFrame. Raises: see `to_batches`.

        Raises:
            InvalidInput: Polars is not installed.
        """
        return _need("polars", "eventlog[polars]").from_arrow(self.to_table())

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the rows as a DuckDB relation, which streams them each time it is run.

        Args:
            connection: a DuckDB connection; the default one if None.

        Raises:
            InvalidInput: DuckDB is not installed.
        """
        duckdb = _need("duckdb", "eventlog[duckdb]")
        return (duckdb if connection is None else connection).from_arrow(self)

    def count(self) -> int:
        """Return the number of rows: from metadata where it tells, else reading filter columns.

        Raises: see `to_batches`.
        """
        known = self.plan.count()
        return self.reading.count(self.plan.in_scan_order()) if known is None else known

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new stream of the rows for any library that speaks Arrow (PyCapsule)."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def scan(
    t: Table,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    version: int | None = None,
    timestamp: datetime | str | int | None = None,
    *,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> Scan:
    """Return the scan of one version of a table, pinned by this call.

    Args:
        t: the table.
        columns: names of the columns wanted, in this order; all if None; may be empty.
        where: SQL text or a pyarrow expression that rows have to pass.
        version: which version; the newest if neither this nor `timestamp` is given.
        timestamp: see `Table.snapshot`.
        batch_rows: at most so many rows in a batch.

    Raises:
        InvalidInput: an argument is wrong; the message names the part.
        VersionNotFound: there is no such version.
        VersionVacuumed: it was given up, and its segments may be gone.
    """
    if batch_rows < 1:
        raise InvalidInput("batch_rows is 1 or more")
    plan = planning.plan(kept_snapshot(t, version, timestamp), columns=columns, where=where)
    reading = Reading(
        store=t.store,
        version=plan.version,
        table_schema=plan.table_schema,
        schema=plan.schema,
        filter=plan.filter,
        filter_columns=frozenset() if plan.predicate is None else plan.predicate.columns(),
        batch_rows=batch_rows,
    )
    return Scan(plan, reading)


def count(
    t: Table,
    where: Where | None = None,
    version: int | None = None,
    timestamp: datetime | str | int | None = None,
) -> int:
    """Return the number of rows of one version. See `scan` for the arguments.

    Raises:
        InvalidInput: an argument is wrong.
        VersionNotFound: there is no such version.
        VersionVacuumed: it was given up.
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    return scan(t, [], where, version, timestamp).count()


def kept_snapshot(
    t: Table, version: int | None = None, timestamp: datetime | str | int | None = None
) -> Snapshot:
    """Return a version whose rows can be read: `Table.snapshot`, but none that was given up.

    Raises:
        VersionNotFound: there is no such version.
        VersionVacuumed: it lies below the newest horizon that this handle knows.
    """
    snapshot = t.snapshot(version, timestamp)
    head = t.head()
    newest = max((head, snapshot), key=lambda known: known.version)
    check_kept(newest.meta, newest.version, snapshot.version, t.uri)
    return snapshot


def _need(module: str, requirement: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidInput(f"this needs {module}: pip install '{requirement}'") from None
