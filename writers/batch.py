"""Batch writes of Arrow rows: append, and overwrite of a time range.

Imports eventlog only. The rows are staged once, whatever commits land meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Literal, cast

import pyarrow as pa
from msgspec import UnsetType
from msgspec.structs import replace

from eventlog import Table
from eventlog.arguments import choice, opened, text, whole
from eventlog.commit.identity import WINDOW_S
from eventlog.errors import EventLogError, InvalidInput, VersionNotFound
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed.rule import OP, keyed_of
from eventlog.log import spills
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, Add, Restore, Unchanged
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.records import App, Commit
from eventlog.query.moments import Moment, to_ms
from eventlog.staging.encoding import Recipe
from eventlog.staging.incoming.casting import check_columns
from eventlog.staging.incoming.streams import batches, to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, Stager
from eventlog.staging.upsert_rows import MISSING, Missing, check_complete, incoming
from eventlog.state.delta import drop_of
from eventlog.state.small import rules
from eventlog.table.stage_again import commit_staged

logger = logging.getLogger(__name__)


def append(
    t: Table,
    data: Any,
    *,
    app_id: str | None = None,
    app_seq: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
) -> int:
    """Append rows and return the committed version. An append never conflicts with other commits.

    A warm handle needs one request per segment and one for the commit. Without rows and without an
    app id nothing is committed, and the newest known version is returned.

    Args:
        t: the table.
        data: anything with `__arrow_c_stream__`, a pyarrow Table, RecordBatch or RecordBatchReader.
            A stream can be read only once: after an error pass a new one. Batches are held without
            a copy until a segment is full, so do not reuse their buffers. NaN in the floats of a
            pandas frame becomes null, as in pandas' own conversion to Arrow.
        app_id: with `app_seq`, makes the append idempotent: an append whose sequence is not above
            the last one of this id is a no-op and counts as done. Use an app id from one writer at
            a time, with increasing sequences.
        app_seq: 0 or more; must grow with every unit of work of the app.
        memory_bytes: bound on the memory for rows in bytes, whatever their number.
        missing: in a keyed table: see `upsert`. Otherwise a nullable column that `data` lacks is
            null in its rows, which replace none.

    Raises:
        InvalidInput: the rows do not fit the table; the message names column, count and an example.
        CommitConflict: the schema they were written with is no longer valid, or the upload took so
            long that a vacuum's fence passed it.
        CommitUnknown: it is not known whether the commit landed. Append again with the same app id
            and sequence, or call `Table.find_transaction`.
        Unavailable: the store does not answer; nothing was committed.
    """
    opened(t)
    app = make_app(app_id, app_seq)
    return add_rows(t, data, "append", app, memory_bytes, check_missing(missing))


def check_missing(missing: Any) -> Missing | None:
    """Return the meaning of a column that rows lack.

    Raises:
        InvalidInput: it is neither None nor `null`.
    """
    return None if missing is None else cast(Missing, choice(missing, "missing", MISSING))


def add_rows(  # noqa: PLR0917 - what the public functions are given
    t: Table,
    data: Any,
    operation: str,
    app: App | None,
    memory_bytes: int,
    missing: Missing | None,
) -> int:
    """Stage and commit rows that conflict with nothing; return the committed version.

    Raises: as `append`.
    """
    session = t.session
    head = session.head()
    done = already(head, app)
    if done is not None:  # a restore may have let it be loaded again since the handle looked
        head = t.refresh()
        done = skipped(t, head, app)
    if done is not None:
        # In a keyed table rows of one key are merged before they are stored.
        rows_now = None if keyed_of(head.layout) else getattr(data, "num_rows", None)
        report_mismatch(t, head, app, rows_now)
        return done
    rows = to_reader(data)
    head = _fitting_head(t, head, rows.schema)
    adds = stage(t, head, rows, memory_bytes, missing)
    version = head.state.header.version
    if not adds and app is None:
        return version
    transaction = session.transaction(operation, adds, read_version=version, app=app)
    return commit_staged(session, transaction)


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
    missing: Missing | None = None,
) -> int:
    """Replace the rows of a time range and return the committed version.

    The segments live in the range at the newest version are dropped, and `data`, which may have no
    rows, takes their place. Segments that other writers add meanwhile are kept: in a keyed table
    they lie above the new rows, as if they had come after the overwrite.

    Args:
        t: the table.
        data: see `append`; every row's chunk must lie in the range.
        start: start of the range (inclusive), at a chunk boundary; unbounded if None. See
            `eventlog.query.moments.to_ms` for the accepted forms of a time.
        end: end of the range (exclusive), at a chunk boundary; unbounded if None.
        isolation: `serializable` makes segments that arrived after the read version a conflict.
        read_version: the version that `data` was computed from. Segments live at that version are
            dropped; later ones are carried forward, or are a conflict. The newest version if None:
            then rows added between your read and this call are dropped unseen.
        app_id: see `append`.
        app_seq: see `append`.
        memory_bytes: see `append`.
        missing: `null` if columns that `data` lacks are to be null where it replaces rows.

    Raises:
        InvalidInput: rows or a chunk are not wholly in the range; or `data` lacks a column.
        CommitConflict: a segment to drop was replaced meanwhile, or with `serializable` one was
            added to the range; or, in a keyed table, a compaction, a restore or a merge of another
            log has changed segments above the rows. Read again, and overwrite again.
        Corrupt: `read_version` is not the one that the next version follows; nothing was committed.
        CommitUnknown: see `append`.
        Unavailable: see `append`.
    """
    opened(t)
    app, missing = make_app(app_id, app_seq), check_missing(missing)
    choice(isolation, "isolation", ("carry", "serializable"))
    head = t.refresh()
    done = skipped(t, head, app)
    if done is not None:
        return done
    low, high = to_range(start, end)
    before = read_at(t, read_version)
    drops = range_drops(before, low, high)
    rows = to_reader(data)
    if drops:
        check_replacing(head.schema, rows.schema, missing)
    adds = stage(t, head, rows, memory_bytes, "null")
    seen = before.version
    actions = overwrite_actions(adds, drops, low, high, isolation=isolation, read_version=seen)
    return commit_staged(t.session, t.transaction("overwrite", actions, read_version=seen, app=app))


def read_at(t: Table, version: int | None) -> Snapshot:
    """Return the version that rows were computed from; the newest that is known if None.

    Raises:
        Corrupt: it is not the one that the next version follows.
        VersionNotFound: there is no such version.
    """
    head = t.head()
    if version is None:
        return head
    before = t.snapshot(version)
    t.session.log.check_linked(head, before)  # against overwritten-as-of-another-log
    return before


def check_replacing(table: pa.Schema, given: pa.Schema, missing: Missing | None) -> None:
    """Check that rows which replace others have all columns, unless nulls are meant.

    Args:
        table: the table's schema.
        given: that of the rows.
        missing: `null` if nulls are meant.

    Raises:
        InvalidInput: a column is missing.
    """
    lacking = [name for name in table.names if name not in given.names]
    if lacking and missing is None:
        raise InvalidInput(
            f"column {', '.join(map(repr, lacking))} is missing, so its values in the rows that "
            "these replace would be lost. Give all columns; or, if you mean null, give "
            "missing='null' (Spark: option missing)"
        )


def make_app(app_id: str | None, app_seq: int | None) -> App | None:
    """Return the idempotence key, if one was given.

    Raises:
        InvalidInput: only one of the two is given, or one is out of bounds.
    """
    if (app_id is None) != (app_seq is None):
        raise InvalidInput("give app_id and app_seq together, or neither")
    if app_id is None or app_seq is None:
        return None
    return App(text(app_id, "app_id"), whole(app_seq, "app_seq"))


def already(snapshot: Snapshot, app: App | None) -> int | None:
    """Return a version that includes the app's unit of work, if the snapshot records one."""
    mark = rules.done(snapshot.state.meta, app)
    return None if mark is None else mark.version


def skipped(t: Table, head: Snapshot, app: App | None) -> int | None:
    """Return `already`; where it is a version, verify the handle's table, and warn of a restore.

    Raises:
        TableNotFound: the handle's table is gone, or another one is there.
    """
    done = already(head, app)
    if done is not None:
        t.verify(WINDOW_S)
        warn_restored(t, head, app)
    return done


def warn_restored(t: Table, head: Snapshot, app: App | None) -> None:
    """Warn if a unit of work is skipped that only versions before a restore have.

    Args:
        t: the table.
        head: a version that has the unit of work.
        app: its app id and sequence.
    """
    mark = None if app is None else head.meta.apps.get(app.id)
    commit = None if mark is None else _commit_of(t, mark.version)
    if app is None or mark is None or commit is None:
        return
    actions = (a for txn in commit.transactions for a in txn.actions if isinstance(a, Restore))
    for action in actions:
        reset = None if isinstance(action.apps, UnsetType) else action.apps.get(app.id)
        if reset is not None and reset.old == reset.new:
            logger.warning(
                "app %r: sequence %d was skipped. Version %d restored version %d, which may not "
                "have its rows: if they are missing, `Table.restore(%d, forget_units=True)`, or "
                "`eventlog restore URI %d --forget-units`, lets it be loaded again",
                app.id,
                app.seq,
                mark.version,
                *[action.version] * 3,
            )


def _commit_of(t: Table, version: int) -> Commit | None:
    """Return a commit, or None if this copy of the table begins after it."""
    try:
        return spills.unpack(t.session.log.read(version)[0], t.session.log.spill)
    except VersionNotFound:
        return None


def report_mismatch(t: Table, head: Snapshot, app: App | None, rows: object) -> None:
    """Warn if a unit of work is repeated with another number of rows: the first one stands.

    Args:
        t: the table.
        head: a version that has the unit of work.
        app: its app id and sequence.
        rows: its rows now, if that is known without reading them (hazard I5).
    """
    mark = head.meta.apps.get(app.id) if app else None
    if app is None or mark is None or mark.seq != app.seq or not isinstance(rows, int):
        return
    commit = _commit_of(t, mark.version)
    for transaction in () if commit is None else commit.transactions:
        known = sum(a.rows for a in transaction.actions if isinstance(a, Add))
        if transaction.app == app and known != rows:
            logger.warning(
                "app %r repeated sequence %d with %d rows, but version %d has it with %d, which "
                "stand: use a new sequence for other content",
                app.id,
                app.seq,
                rows,
                mark.version,
                known,
            )


def _fitting_head(t: Table, head: Snapshot, given_schema: pa.Schema) -> Snapshot:
    """Return the head, or refresh it if the rows do not fit the schema that the handle has.

    Columns may have been added since, or a column that the rows lack may have become nullable.
    """
    given = {*given_schema.names} - ({OP} if keyed_of(head.state.layout) else set())
    columns = head.state.stored_schema.columns
    fit = given <= {c.name for c in columns} and all(c.nullable or c.name in given for c in columns)
    return head if fit else t.refresh()


def stage(
    t: Table, head: Snapshot, rows: Any, memory_bytes: int, missing: Missing | None = None
) -> list[Add]:
    """Stage rows as segments in the epoch of `head`. No commit refers to them yet.

    Raises:
        InvalidInput: the rows do not fit the table; or without `missing` they would erase values.
        TableNotFound: the table of this handle was removed, or replaced by another.
        Unavailable: the store does not answer.
    """
    session, reader = t.session, to_reader(rows)
    recipe = Recipe.of(head, fills=missing is not None)
    wanted, time_column = head.schema, recipe.layout.time_column
    if recipe.rule is not None:
        wanted = incoming(wanted, recipe.rule, reader.schema)
    check_columns(reader.schema, wanted, time_column)
    check_complete(head.schema, recipe.rule, reader.schema.names, missing)
    try:
        # Verify the handle in parallel: the commit would have to wait for it.
        with (
            session.verifying(),
            Stager(session.store, session.clock, recipe, memory_bytes) as stager,
        ):
            for batch in batches(reader, wanted, time_column):
                stager.write(batch)
            adds = stager.finish()
    except InvalidInput:
        # A column may have become nullable: refresh, so that a retry on this handle sees it.
        with contextlib.suppress(EventLogError):
            session.refresh()
        raise
    session.log.staged.vouch(adds)
    return adds


def to_range(start: Moment | None, end: Moment | None) -> tuple[int, int]:
    """Return [start, end) in ms UTC.

    Raises:
        InvalidInput: a bound is not a time in whole milliseconds, or the range is empty.
    """
    low = MIN_MS if start is None else to_ms(start, whole=True)
    high = MAX_MS if end is None else to_ms(end, whole=True)
    if not low < high:
        raise InvalidInput(f"the range from {start} to {end} is empty: start must be before end")
    return low, high


def range_drops(head: Snapshot, low: int, high: int) -> list[Action]:
    """Return the drops of every segment live in [low, high) ms.

    Raises:
        InvalidInput: a segment's chunk crosses a boundary.
    """
    inside = to_segments(head.entries(low, high))
    for segment in inside:
        _check_inside(segment.chunk, low, high, "live rows")
    return [drop_of(segment) for segment in inside]


def overwrite_actions(
    adds: Sequence[Add],
    drops: Sequence[Action],
    low: int,
    high: int,
    *,
    isolation: str,
    read_version: int,
) -> list[Action]:
    """Return the actions of an overwrite.

    In a keyed table the new rows take their place at the read version, below everything that
    arrived since (FORMAT.md R15.10).

    Args:
        adds: the staged segments.
        drops: what `range_drops` returned at the read version.
        low: start of the range in ms UTC.
        high: end of the range in ms UTC, exclusive.
        isolation: see `overwrite`.
        read_version: the version that the rows were computed from.

    Raises:
        InvalidInput: a new segment lies outside the range.
    """
    for add in adds:
        _check_inside(add.chunk, low, high, "new rows")
    needs: list[Action] = [Unchanged(low, high)] if isolation == "serializable" else []
    return [*needs, *drops, *(_as_of(add, read_version) for add in adds)]


def _as_of(add: Add, version: int) -> Add:
    """Return an add of new rows whose place in its slices is that of rows of a version."""
    if isinstance(add.slice, UnsetType):
        return add
    place = replace(add.slice, low=version, high=version)
    return replace(add, slice=place)


def _check_inside(chunk: str, low: int, high: int, what: str) -> None:
    bounds = parse_chunk(chunk)
    if bounds.end <= low or bounds.start >= high:
        raise InvalidInput(
            f"there are {what} of {chunk}, outside the range of the overwrite: leave them out, or "
            "widen the range"
        )
    if bounds.start < low or bounds.end > high:
        raise InvalidInput(
            f"chunk {chunk} has {what} but does not lie inside the range: "
            "choose bounds at chunk boundaries"
        )
