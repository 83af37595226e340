"""A version as a source of Polars, which pushes columns, predicates and row limits into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from eventlog.readers.engines.arrow_dataset import VersionDataset
from eventlog.readers.engines.polars_filters import pushed_filter


def lazy_frame(rows: VersionDataset) -> pl.LazyFrame:
    """Return a dataset as a LazyFrame."""
    empty = pl.DataFrame(pa.Table.from_batches([], rows.schema))
    return register_io_source(_PolarsSource(rows), schema=empty.schema, is_pure=True)


@dataclass(frozen=True, slots=True)
class _PolarsSource:
    """Answers Polars' calls for the rows of a dataset."""

    rows: VersionDataset

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: Any,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[Any]:
        """Yield the rows as frames.

        Args:
            with_columns: the columns, in this order; all if None.
            predicate: a Polars expression that selects rows; all if None.
            n_rows: the number of the first rows that are wanted; all if None.
            batch_size: the number of rows that frames should have; None: any.
        """
        wanted = self.rows.schema.names if with_columns is None else list(with_columns)
        pushed, names = None, wanted
        if predicate is not None:
            pushed = pushed_filter(predicate, self.rows.schema)
            names = list(dict.fromkeys([*wanted, *predicate.meta.root_names()]))
        scan = self.rows.scan(names, pushed, batch_size or None)
        if n_rows is not None and predicate is None:
            scan = scan.limited(n_rows)
        left = n_rows
        for batch in scan.to_batches() if left != 0 else ():
            frame = pl.from_arrow(batch)
            if predicate is not None:
                frame = frame.filter(predicate)  # against polars-filter-trusted
            frame = frame.select(wanted).head(frame.height if left is None else left)
            yield frame
            left = None if left is None else left - frame.height
            if left == 0:
                return
