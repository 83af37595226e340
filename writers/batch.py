"""Batch writes of Arrow rows: append, and overwrite of a time range.

Imports eventlog only. The work on the rows is done once, whatever commits land meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from eventlog import Table
from eventlog.arguments import choice, opened, text, whole
from eventlog.commit.identity import WINDOW_S
from eventlog.errors import EventLogError, InvalidInput
from eventlog.format.segments import to_segments
from eventlog.log import spills
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.records import Action, Add, App, Unchanged
from eventlog.query.moments import Moment, to_ms
from eventlog.staging.encoding import Recipe
from eventlog.staging.rows import batches, check_columns, to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, Stager
from eventlog.state.delta import drop_of
from eventlog.state.small import rules
from eventlog.table.restage import commit_staged

logger = logging.getLogger(__name__)


def append(
    t: Table,
    data: Any,
    *,
    app_id: str | None = None,
    app_seq: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> int:
    """Append rows and return the committed version. Never conflicts with anything.

    A warm handle needs one request a segment and one for the commit. Without rows and without an
    app id nothing is committed and the newest version known is returned.

    Args:
        t: the table.
        data: anything with `__arrow_c_stream__`, a pyarrow Table, RecordBatch or RecordBatchReader.
            A stream can be read once: after an error hand in a new one. Batches wait uncopied until
            a segment is full, so do not fill the buffer of one again for the next. NaN in the
            floats of a pandas frame stands for null, as pandas itself hands them over.
        app_id: with `app_seq`, makes the append idempotent: of all appends with this id, a sequence
            that is not above the last one has no effect and is taken as done. Let one app id have
            one writer at a time, and its sequences come in order.
        app_seq: 0 or more, growing with every unit of work of the app.
        memory_bytes: bound on the memory that the rows take here, whatever their number.

    Raises:
        InvalidInput: the rows do not fit the table; the message names column, count and an example.
        CommitConflict: the schema they were written with is no longer valid, or the upload took so
            long that a vacuum gave it up.
        CommitUnknown: nobody could say whether the commit landed; append again with the same app id
            and sequence, or ask `Table.find_transaction`.
        Unavailable: the store does not answer; nothing was committed.
    """
    opened(t)
    app = make_app(app_id, app_seq)
    head = t.head()
    done = already(head, app)
    if done is not None:
        t.verify(WINDOW_S)
        report_mismatch(t, head, app, data)
        return done
    rows = to_reader(data)
    head = _knowing(t, head, rows.schema)
    adds = stage(t, head, rows, memory_bytes)
    if not adds and app is None:
        return head.version
    transaction = t.transaction("append", adds, read_version=head.version, app=app)
    return commit_staged(t, transaction)


def overwrite(  # noqa: PLR0913 - the public API
    t: Table,
    data: Any,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    isolation: Literal["carry", "serializable"] = "carry",
    read_version: int | None = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> int:
    """Replace the rows of a time range and return the committed version.

    What was live in the range at the newest version is dropped and `data` takes its place; `data`
    without rows empties the range. Segments that other writers add meanwhile are carried forward.

    Args:
        t: the table.
        data: see `append`; every row's chunk must lie in the range.
        start: begin of the range (inclusive), at a chunk boundary; the beginning of time if None.
            `eventlog.query.moments.to_ms` says which times are taken.
        end: end of the range (exclusive), at a chunk boundary; the end of time if None.
        isolation: `serializable` makes segments that arrived after the read version a conflict.
        read_version: the version that `data` was made from: what was live then is dropped, what
            came since is carried forward or a conflict. The newest version if None, so that
            without it rows that came between a read and this call are dropped unseen.
        app_id: see `append`.
        app_seq: see `append`.
        memory_bytes: see `append`.

    Raises:
        InvalidInput: rows outside the range, or a boundary inside a chunk that has rows.
        CommitConflict: a dropped segment was replaced meanwhile, or `serializable` and news came.
        CommitUnknown: see `append`.
        Unavailable: see `append`.
    """
    opened(t)
    app = make_app(app_id, app_seq)
    choice(isolation, "isolation", ("carry", "serializable"))
    head = t.refresh()
    done = already(head, app)
    if done is not None:
        t.verify(WINDOW_S)
        return done
    low, high = to_range(start, end)
    before = head if read_version is None else t.snapshot(read_version)
    drops = range_drops(before, low, high)
    adds = stage(t, head, data, memory_bytes)
    actions = overwrite_actions(adds, drops, low, high, isolation=isolation)
    transaction = t.transaction("overwrite", actions, read_version=before.version, app=app)
    return commit_staged(t, transaction)


def make_app(app_id: str | None, app_seq: int | None) -> App | None:
    """Return the idempotence key, if one was given.

    Raises:
        InvalidInput: one of both is missing, or out of bounds.
    """
    if (app_id is None) != (app_seq is None):
        raise InvalidInput("give app_id and app_seq together, or neither")
    if app_id is None or app_seq is None:
        return None
    return App(text(app_id, "app_id"), whole(app_seq, "app_seq"))


def already(snapshot: Snapshot, app: App | None) -> int | None:
    """Return a version that includes the app's unit of work, if the snapshot knows of one."""
    mark = rules.done(snapshot.meta, app)
    return None if mark is None else mark.version


def report_mismatch(t: Table, head: Snapshot, app: App | None, data: Any) -> None:
    """Warn where a unit of work comes again with another number of rows: the first one stands.

    Only what is known without reading `data` is compared (hazard I5).
    """
    rows = getattr(data, "num_rows", None)
    mark = head.meta.apps.get(app.id) if app else None
    if app is None or mark is None or mark.seq != app.seq or not isinstance(rows, int):
        return
    commit = spills.unpack(t.log.read(mark.version)[0], t.log.spill)
    for transaction in commit.transactions:
        known = sum(a.rows for a in transaction.actions if isinstance(a, Add))
        if transaction.app == app and known != rows:
            logger.warning(
                "app %r came again with sequence %d and %d rows; version %d has %d of it, which "
                "stand: give other content another sequence",
                app.id,
                app.seq,
                rows,
                mark.version,
                known,
            )


def _knowing(t: Table, head: Snapshot, incoming: pa.Schema) -> Snapshot:
    """Return the head, or a newer one where the rows do not fit the schema that the handle knows.

    Columns may have been added since, or one that the rows lack become nullable.
    """
    given = set(incoming.names)
    columns = head.stored_schema.columns
    fit = given <= {c.name for c in columns} and all(c.nullable or c.name in given for c in columns)
    return head if fit else t.refresh()


def stage(t: Table, head: Snapshot, rows: Any, memory_bytes: int) -> list[Add]:
    """Stage rows as segments of the epoch `head`; nothing refers to them yet.

    Raises:
        InvalidInput: the rows do not fit the table.
        TableNotFound: the table of this handle was removed, or replaced by another.
        Unavailable: the store does not answer.
    """
    reader = to_reader(rows)
    check_columns(reader.schema, head.schema, head.layout.time_column)
    try:
        # What the commit would wait for is looked up meanwhile.
        with t.verifying(), Stager(t.store, t.clock, Recipe.of(head), memory_bytes) as stager:
            for batch in batches(reader, head.schema, head.layout.time_column):
                stager.write(batch)
            adds = stager.finish()
    except InvalidInput:
        # A column may take nulls by now: another try on this handle will know.
        with contextlib.suppress(EventLogError):
            t.refresh()
        raise
    t.log.vouch(adds)
    return adds


def to_range(start: Moment | None, end: Moment | None) -> tuple[int, int]:
    """Return [start, end) in ms UTC.

    Raises:
        InvalidInput: a bound is no time of whole milliseconds, or the range is empty.
    """
    low = MIN_MS if start is None else to_ms(start, whole=True)
    high = MAX_MS if end is None else to_ms(end, whole=True)
    if not low < high:
        raise InvalidInput(f"the range from {start} to {end} is empty")
    return low, high


def range_drops(head: Snapshot, low: int, high: int) -> list[Action]:
    """Return the drops of every segment live in [low, high) ms.

    Raises:
        InvalidInput: a segment's chunk reaches over a boundary.
    """
    inside = to_segments(head.entries(low, high))
    for segment in inside:
        _check_inside(segment.chunk, low, high, "holds live rows")
    return [drop_of(segment) for segment in inside]


def overwrite_actions(
    adds: Sequence[Add], drops: Sequence[Action], low: int, high: int, *, isolation: str
) -> list[Action]:
    """Return the actions of an overwrite.

    Raises:
        InvalidInput: a new segment lies outside the range.
    """
    for add in adds:
        _check_inside(add.chunk, low, high, "has new rows")
    needs: list[Action] = [Unchanged(low, high)] if isolation == "serializable" else []
    return [*needs, *drops, *adds]


def _check_inside(chunk: str, low: int, high: int, what: str) -> None:
    bounds = parse_chunk(chunk)
    if bounds.start < low or bounds.end > high:
        raise InvalidInput(
            f"chunk {chunk} {what} but does not lie inside the range: "
            "choose bounds at chunk boundaries"
        )
