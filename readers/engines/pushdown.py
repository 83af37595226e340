"""Versions into which engines push columns and filters: Arrow datasets and Polars' lazy frames."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from eventlog import Table
from eventlog.arguments import whole
from eventlog.query.moments import Moment
from eventlog.readers.pinned import kept_snapshot, table_at
from eventlog.readers.row_stream import needed
from eventlog.readers.scanner import PinnedVersion
from eventlog.segments.fragments import ahead_of
from eventlog.session.tags import VersionOrName
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES


def dataset(
    t: Table | str | os.PathLike[str],
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Return one version of a table as a `pyarrow.dataset.Dataset`, for engines that take one.

    DuckDB, DataFusion, Ibis and `polars.scan_pyarrow_dataset` name the columns and the filter of a
    query, and only what these need is read. In filters NaN is greater than every number and equal
    to itself, as in these engines; Arrow's own comparisons with NaN are false. A dataset can be
    pickled. It has `schema`, `version`, `scan`, `scanner`, `to_table`, `to_batches`, `head`,
    `count_rows`, `filter` and `get_fragments`, and refuses pyarrow's other methods.

    Args:
        t: the table, or its root; see `scan`.
        version: the version to read, or the name of a tag; the newest if neither this nor
            `timestamp` is given.
        timestamp: the time whose version to read; see `Table.snapshot`.
        memory_bytes: about how many bytes of Arrow data a scanner may hold, or all fragments
            together.
        storage_options: with a root: see `eventlog.store.options`.

    Raises:
        InvalidInput: an argument is wrong; the message names it.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon; see `scan`.
    """
    from eventlog.readers.engines.arrow_dataset import VersionDataset  # noqa: PLC0415 - see below

    # The module loads pandas, where it is installed, which takes longer than all others.
    t = table_at(t, storage_options)
    ahead = ahead_of(whole(memory_bytes, "memory_bytes", MIN_MEMORY_BYTES))
    snapshot = kept_snapshot(t, version, timestamp)
    return VersionDataset(PinnedVersion(t.store, snapshot, ahead_bytes=ahead), snapshot.schema)


def lazy(
    t: Table | str | os.PathLike[str],
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Return one version of a table as a Polars LazyFrame. See `dataset` for the arguments.

    Polars names the columns, the predicate and the row limit of a query, and only what these need
    is read. It applies the whole predicate to the rows again.

    Raises:
        InvalidInput: an argument is wrong, or Polars is not installed.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon; see `scan`.
    """
    needed("polars", "eventlog-tables[polars]")
    from eventlog.readers.engines.polars_source import lazy_frame  # noqa: PLC0415 - the extra

    rows = dataset(
        t, version, timestamp, memory_bytes=memory_bytes, storage_options=storage_options
    )
    return lazy_frame(rows)
