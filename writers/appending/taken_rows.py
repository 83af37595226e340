"""Rows of a caller become bytes in the table's types, or are refused, in the caller's thread.

Imports eventlog only. The bytes are a copy: the caller may reuse its buffers as soon as `append` of
an appender returns, long before the rows are committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from eventlog import Table
from eventlog.clock import Clock
from eventlog.errors import EventLogError, InvalidInput
from eventlog.log.snapshot import Snapshot
from eventlog.quantities import size_text
from eventlog.staging.encoding import Recipe
from eventlog.staging.incoming.streams import batches, spelled
from eventlog.staging.stager import MIN_MEMORY_BYTES, Stager
from eventlog.staging.upsert_rows import Missing
from eventlog.writers.appending.backlog import APPEND_BYTES
from eventlog.writers.batch import Unkept, check_rows, fitting_rows

_OF_PENDING = 16  # a stager holds this part of its memory before it cuts rows by time chunk


def take_rows(
    t: Table, data: Any, missing: Missing | None, most_bytes: int
) -> tuple[pa.Buffer, int, Snapshot]:
    """Return rows as an Arrow stream in the table's types, their number, and the version of these.

    Args:
        t: the table.
        data: the rows, in any form that `append` takes.
        missing: see `append`.
        most_bytes: the most bytes that they may take in Arrow.

    Raises:
        InvalidInput: the rows do not fit the table, or take more bytes.
    """
    try:
        rows, head = fitting_rows(t, t.session.head(), data)
        taken = _brought(rows, head, missing, most_bytes, t.clock)
    except InvalidInput:
        # A column may have become nullable: refresh, so that the next call sees it.
        with contextlib.suppress(EventLogError):
            t.refresh()
        raise
    stream = _stream_of(taken)
    if stream.size + APPEND_BYTES > most_bytes:
        raise _too_large(most_bytes)
    return stream, taken.num_rows, head


def _brought(
    rows: pa.RecordBatchReader, head: Snapshot, missing: Missing | None, most: int, clock: Clock
) -> pa.Table:
    """Return rows in the table's types, after they were tested. Raises: as `take_rows`."""
    recipe = Recipe.of(head, fills=missing is not None)
    wanted = check_rows(spelled(rows.schema, head.schema.names), head, missing)
    given = 0
    # Nothing is stored: the stager only brings the rows to the types, and tests them.
    with Stager(Unkept(), clock, recipe, max(MIN_MEMORY_BYTES, _OF_PENDING * most)) as stager:
        for batch in batches(rows, wanted, recipe.layout.time_column):
            stager.write(batch)
            given += batch.nbytes
            if given > most and stager.few(most) is None:  # a stream may have no end
                break
        few = stager.few(most)
        count = stager.rows
    if few is None and count:
        raise _too_large(most)
    return wanted.empty_table() if few is None else few


def _too_large(most: int) -> InvalidInput:
    return InvalidInput(
        f"the rows take more than the buffer of {size_text(most)}: append them in smaller parts, "
        "or by Table.append, which streams them; nothing was taken"
    )


def joined_rows(streams: Sequence[pa.Buffer]) -> pa.Table:
    """Return the rows of several streams that `take_rows` returned for one version, in order."""
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    # Some may have `_op` and others not; null means the same as none.
    rows = pa.concat_tables(tables, promote_options="default")
    return rows.combine_chunks()


def _stream_of(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue()
