"""Versions as Arrow datasets, into which DuckDB, DataFusion, Ibis and Polars push their queries.

Imports eventlog and the other modules of readers. Engines ask a `pyarrow.dataset.Dataset` for a
scanner with columns and a filter, and trust it: they do not apply the filter again. A filter is
therefore applied as they mean it (`eventlog.query.engine_filters`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from eventlog.arguments import name_list, whole
from eventlog.errors import EventLogError, InvalidInput
from eventlog.query.engine_filters import EngineFilter
from eventlog.query.predicate import parse_predicate
from eventlog.readers.row_stream import RowStream
from eventlog.readers.scanner import PinnedVersion, Scan
from eventlog.segments.batches import without_columns
from eventlog.state.scan import project

# Each fragment reads ahead, and engines read all fragments at the same time.
_MOST_FRAGMENTS = 2 * (os.cpu_count() or 1)


class VersionDataset(ds.Dataset):
    """A version of a table as a `pyarrow.dataset.Dataset`. Immutable; it can be pickled.

    In its filters NaN is greater than every number and equal to itself, as in DuckDB, DataFusion
    and Polars; Arrow's own comparisons with NaN are false. Rows have the order of a scan.

    Attributes:
        failures: the errors of reads for engines, which raise them as errors of their own.
    """

    def __init__(
        self, pinned: PinnedVersion, schema: pa.Schema, own: pc.Expression | None = None
    ) -> None:
        """Make a dataset.

        Args:
            pinned: the version.
            schema: the columns of it that the dataset has.
            own: a filter that its rows pass, in Arrow's order of NaN.
        """
        self._pinned, self._schema, self._own = pinned, schema, own
        self.failures: list[EventLogError] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return VersionDataset, (self._pinned, self._schema, self._own)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._schema

    @property
    def version(self) -> int:
        """The version being read."""
        return self._pinned.snapshot.version

    @property
    def partition_expression(self) -> pc.Expression:
        """True: nothing is known of all rows."""
        return ds.scalar(True)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        batch_size: int | None = None,
    ) -> Scan:
        """Return the scan of some columns and rows.

        Args:
            columns: names, in this order; all if None.
            filter: selects rows; in it NaN is greater than every number.
            batch_size: the largest number of rows in a batch.

        Raises:
            InvalidInput: a column is unknown, or the filter does not fit the table.
        """
        wanted = self._project(columns).names
        pinned = self._pinned
        if batch_size is not None:
            rows = whole(batch_size, "batch_size", 1, 2**31 - 1)
            pinned = replace(pinned, batch_rows=rows)
        return pinned.scan(wanted, self._own if filter is None else EngineFilter(filter, self._own))

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        batch_size: int | None = None,
        **_hints: Any,
    ) -> EngineScanner:
        """Return a scanner of some columns and rows. See `scan` for the arguments and errors.

        Pyarrow's other options are about how files are read, and have no effect.
        """
        schema = self._project(columns)
        plan = partial(self.scan, columns, filter, batch_size)
        return EngineScanner(schema, plan, self.failures)

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
    ) -> Iterator[EngineFragment]:
        """Yield fragments that have the rows between them, in order: for reads in parallel.

        Each has some segments that may have a row that passes; there are at most two a processor.

        Raises:
            InvalidInput: the filter does not fit the table.
        """
        scan = self.scan(None, filter)
        parts = scan.parts(_MOST_FRAGMENTS)
        for part in parts:
            ahead = max(1, part.reading.ahead_bytes // len(parts))
            reading = replace(part.reading, ahead_bytes=ahead)
            part = replace(part, reading=reading)  # noqa: PLW2901
            yield EngineFragment(part, self._own, filter, self.failures)

    def filter(self, expression: pc.Expression) -> VersionDataset:
        """Return the dataset of the rows that pass, too.

        Raises:
            InvalidInput: the filter does not fit the table.
        """
        predicate = self.scan([], expression).plan.predicate
        own = None if predicate is None else predicate.to_arrow()
        return VersionDataset(self._pinned, self._schema, own)

    def to_table(self, *args: Any, **more: Any) -> pa.Table:
        """Return rows in memory. See `scanner` for the arguments, and `Scan.to_table`."""
        return self.scanner(*args, **more).to_table()

    def to_batches(self, *args: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches. See `scanner` for the arguments, and `Scan.to_batches`."""
        return self.scanner(*args, **more).to_batches()

    def head(self, num_rows: int, *args: Any, **more: Any) -> pa.Table:
        """Return the first rows. See `scanner` for the other arguments."""
        return self.scanner(*args, **more).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **_hints: Any) -> int:  # noqa: A002
        """Return the number of rows that pass. See `Scan.count`."""
        return self.scan([], filter).count()

    def _project(self, columns: Sequence[str] | None) -> pa.Schema:
        if isinstance(columns, Mapping):
            raise InvalidInput("columns are names: a dataset of a table computes no expressions")
        names = None if columns is None else name_list(columns, "columns")
        return project(self._schema, names, self._pinned.snapshot.stored_schema)

    def _refused(self, *_arguments: Any, **_more: Any) -> NoReturn:
        raise InvalidInput(
            "a dataset of a table answers scanner, to_table, to_batches, head, count_rows, filter "
            "and get_fragments: for all else read it first, with to_table()"
        )

    take = sort_by = join = join_asof = replace_schema = _refused
    _get_fragments = _scan_options = _scanner_options = _refused


@dataclass(frozen=True)
class EngineScanner(RowStream):
    """The scan that an engine asked for; it is planned when it is first needed.

    Attributes:
        projected_schema: the columns of the rows.
        plan: plans the scan.
        failures: gets the errors of reading.
        ordinary_nan: whether each NaN is the positive one, the only one that DataFusion puts above
            all numbers.
    """

    projected_schema: pa.Schema
    plan: Callable[[], Scan]
    failures: list[EventLogError] = field(default_factory=list)
    ordinary_nan: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.projected_schema

    dataset_schema = schema

    @cached_property
    def planned(self) -> Scan:
        """The scan."""
        return self.plan()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches. See `Scan.to_batches`.

        Without columns, rows that the log counts are not read.
        """
        try:
            scan = self.planned
            rows = None if self.schema.names else scan.plan.count()
            if rows is not None:
                most = scan.reading.batch_rows
                yield from (without_columns(min(most, rows - at)) for at in range(0, rows, most))
                return
            batches = scan.to_batches()
            yield from map(_with_ordinary_nan, batches) if self.ordinary_nan else batches
        except EventLogError as error:
            self.failures.append(error)
            raise

    def count_rows(self) -> int:
        """Return the number of rows. See `Scan.count`."""
        return self.planned.count()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows. See `Scan.limited`."""
        return self.planned.limited(whole(num_rows, "num_rows")).to_table()


@dataclass(frozen=True)
class EngineFragment:
    """Some rows of a dataset, in the form of a `pyarrow.dataset.Fragment`. It can be pickled.

    Attributes:
        part: the scan of its rows that pass.
        own: the filter that the dataset has, in Arrow's order of NaN.
        pushed: the filter that it was asked for.
        failures: gets the errors of reading.
    """

    part: Scan
    own: pc.Expression | None
    pushed: pc.Expression | None
    failures: list[EventLogError] = field(default_factory=list)

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns of the dataset."""
        return self.part.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """True: nothing is known of all rows."""
        return ds.scalar(True)

    def scanner(
        self,
        schema: pa.Schema | None = None,  # noqa: ARG002 - all fragments have the dataset's
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_hints: Any,
    ) -> EngineScanner:
        """Return a scanner of those of its rows that pass.

        Raises:
            InvalidInput: a column is unknown, or the filter does not fit the table.
        """
        names = self.physical_schema.names if columns is None else list(columns)
        scan = self.part.of_columns(names)
        if filter is not None and not (self.pushed is not None and filter.equals(self.pushed)):
            scan = self._filtered(scan, filter)
        return EngineScanner(scan.schema, lambda: scan, self.failures, ordinary_nan=True)

    def to_table(self, *args: Any, **more: Any) -> pa.Table:
        """Return rows in memory. See `scanner` for the arguments."""
        return self.scanner(*args, **more).to_table()

    def to_batches(self, *args: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches. See `scanner` for the arguments."""
        return self.scanner(*args, **more).to_batches()

    def count_rows(self, *args: Any, **more: Any) -> int:
        """Return the number of rows. See `scanner` for the arguments."""
        return self.scanner(*args, **more).count_rows()

    def _filtered(self, scan: Scan, more: pc.Expression) -> Scan:
        """Return a scan of the same segments whose rows pass another filter, too."""
        pushed = more if self.pushed is None else self.pushed & more
        predicate = parse_predicate(EngineFilter(pushed, self.own), scan.plan.columns)
        plan = replace(scan.plan, predicate=predicate, covered=False)
        reading = replace(
            scan.reading, filter=plan.filter, filter_columns=frozenset(predicate.columns())
        )
        return replace(scan, plan=plan, reading=reading)


def _with_ordinary_nan(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in whose columns of floats no NaN has a sign."""
    for place, column in enumerate(batch.columns):
        if not pa.types.is_floating(column.type):
            continue
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            ordinary = pc.if_else(nan, pa.scalar(float("nan"), column.type), column)
            batch = batch.set_column(place, batch.schema.field(place), ordinary)
    return batch
