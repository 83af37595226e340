"""How a rewrite takes its inputs: in runs, each for one of the new chunks or across several."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eventlog.model.chunks import chunk_of, parse_chunk
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Granularity, Segment
from eventlog.staging.cutting import chunk_starts

START = ""  # no table has such a column: column names are not empty
ACROSS = "several chunks"  # the run of inputs that span several of the new chunks


def enclosing_chunk(chunk: str, granularity: Granularity) -> str | None:
    """Return the chunk of a granularity that contains a chunk; None if it spans several."""
    inner = parse_chunk(chunk)
    outer = chunk_of(inner.start, granularity)
    return outer.name if inner.end <= outer.end else None


def rewrite_runs(inputs: Sequence[Segment], granularity: Granularity) -> dict[str, list[Segment]]:
    """Return the inputs by the new chunk that contains their rows, or all of them in one run."""
    runs: dict[str, list[Segment]] = {}
    for segment in inputs:
        name = enclosing_chunk(segment.chunk, granularity)
        if name is None:
            return {ACROSS: list(inputs)}
        runs.setdefault(name, []).append(segment)
    return runs


def with_starts(table: pa.Table, layout: NamedLayout) -> pa.Table:
    """Return the rows with the start of each row's chunk in the column `START`."""
    starts = chunk_starts(table.column(layout.time_column), layout.granularity)
    return table.append_column(START, starts)
