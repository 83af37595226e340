"""Batch writes of Arrow rows: append, and overwrite of a time range.

Imports eventlog only. The rows are staged once, whatever commits land meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
from msgspec import UnsetType
from msgspec.structs import replace

from eventlog import Table
from eventlog.arguments import choice, opened, text, whole
from eventlog.commit.identity import WINDOW_S
from eventlog.errors import EventLogError, InvalidInput, VersionNotFound
from eventlog.keyed.rule import OP, keyed_of
from eventlog.log import spills
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add, Restore
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Granularity
from eventlog.model.records import App, Commit
from eventlog.staging.encoding import Recipe
from eventlog.staging.fitting import coarsest_for_first_rows
from eventlog.staging.incoming.casting import check_columns, left_out
from eventlog.staging.incoming.row_sources import TableTypes, is_rows_of_python
from eventlog.staging.incoming.streams import batches, spelled, to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, Stager
from eventlog.staging.upsert_rows import (
    MISSING,
    Missing,
    check_complete,
    incoming,
    replacing_incomplete,
)
from eventlog.state.small import rules
from eventlog.store.memory import MemoryStore
from eventlog.store.port import Body
from eventlog.table.evolving import evolve_for
from eventlog.table.stage_again import commit_staged
from eventlog.telemetry.signals import traced
from eventlog.writers.granularity_choice import choose_granularity

logger = logging.getLogger(__name__)


@traced("eventlog.append")
def append(
    t: Table,
    data: Any,
    *,
    app_id: str | None = None,
    app_seq: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
    evolve: bool = False,
) -> int:
    """Append rows and return the committed version. An append never conflicts with other commits.

    A warm handle needs one request per segment and one for the commit. Without rows and without an
    app id nothing is committed, and the newest known version is returned.

    Args:
        t: the table.
        data: anything with `__arrow_c_stream__`, a pyarrow Table, RecordBatch, RecordBatchReader or
            Dataset, a Polars LazyFrame, a DeltaTable, a list of dicts with the same keys. A stream
            can be read only once: after an error pass a new one. Batches are held without a copy
            until a segment is full, so do not reuse their buffers. NaN in the floats of a pandas
            frame becomes null, as in pandas' own conversion to Arrow. Values of dicts get the types
            of the table: an int fits each integer that is wide enough, and a float of 32 bits is
            the nearest one.
        app_id: with `app_seq`, makes the append idempotent: an append whose sequence is not above
            the last one of this id is a no-op and counts as done. Use an app id from one writer at
            a time, with increasing sequences.
        app_seq: 0 or more; must grow with every unit of work of the app.
        memory_bytes: bound on the memory for rows in bytes, whatever their number.
        missing: in a keyed table: see `upsert`. Otherwise a nullable column that `data` lacks has
            its default in the rows, which replace none: null, where it has no other.
        evolve: first give the table the columns and the wider types of `data` that it lacks, in a
            commit of their own (`Table.add_columns`, `Table.widen_column`).

    Raises:
        InvalidInput: the rows do not fit the table; the message names column, count and an example.
        CommitConflict: the schema they were written with is no longer valid, or the upload took so
            long that a vacuum's fence passed it.
        CommitUnknown: it is not known whether the commit landed. Append again with the same app id
            and sequence, or call `Table.find_transaction`.
        Unavailable: the store does not answer; nothing was committed.
    """
    opened(t)
    app, meaning = make_app(app_id, app_seq), check_missing(missing)
    with evolving(t, data, app, evolve=evolve) as rows:
        return add_rows(t, rows, "append", app, memory_bytes, meaning)


def check_evolving(*, dry_run: bool) -> None:
    """Check that what changes the columns first is no dry run.

    Raises:
        InvalidInput: it is one.
    """
    if dry_run:
        raise InvalidInput(
            "evolve changes the columns of the table first, which a dry run does not do: give one "
            "of them"
        )


@contextlib.contextmanager
def evolving(
    t: Table,
    data: Any,
    app: App | None,
    *,
    evolve: bool,
    dry_run: bool = False,
    complete: bool = True,
) -> Iterator[Any]:
    """A context with the rows, in which the table has their columns and types if it is to evolve.

    It does not evolve if their unit of work is done already.

    Args:
        t: the table.
        data: the rows.
        app: the app id and sequence of the unit of work.
        evolve: whether the table is to get the columns and types; if not, nothing is done.
        dry_run: whether nothing is to be committed.
        complete: see `evolve_to`.

    Raises:
        CommitConflict: another writer changed the same columns in the meantime.
        InvalidInput: the rows cannot be read, a name or a type is not possible, or it is a dry run.
            One that is raised in the context also has the version of the new columns.
    """
    if evolve:
        check_evolving(dry_run=dry_run)
    if not evolve or already(t.session.head(), app) is not None:
        yield data
        return
    reader = to_reader(data, types_of(t.session.head(), may_widen=True))
    version = evolve_to(t, reader.schema, complete=complete)
    with naming_version(version):
        yield reader


def evolve_to(t: Table, incoming: pa.Schema, *, complete: bool = True) -> int | None:
    """Give the table the columns and types that rows have besides its own; see `evolve_for`.

    Args:
        t: the table.
        incoming: the columns of the rows.
        complete: whether the rows need the columns that must not be null; rows with `_op` do not.

    Raises: as `evolve_for`, and as `check_evolved`.
    """
    layout = t.session.head().layout
    return evolve_for(
        t.session, [incoming], lambda new: check_evolved(incoming, new, layout, complete=complete)
    )


def check_evolved(
    incoming: pa.Schema, table: pa.Schema, layout: NamedLayout, *, complete: bool
) -> None:
    """Check that rows fit the schema that a table is to get for them.

    Args:
        incoming: the columns of the rows.
        table: the schema.
        layout: of the table, which decides whether `_op` is a column of rows.
        complete: see `evolve_to`.

    Raises:
        InvalidInput: a column is missing, or of a type that does not fit.
    """
    given = spelled(incoming, table.names)
    if keyed_of(layout) is not None:
        table = table.append(pa.field(OP, pa.string()))
    complete = complete and OP not in given.names
    needed = pa.schema([field for field in table if complete or field.name in given.names])
    check_columns(given, needed, layout.time_column)


@contextlib.contextmanager
def naming_version(version: int | None) -> Iterator[None]:
    """A context in which an error of rows says that their columns stay.

    Args:
        version: one that has columns which were added for the rows; None: none were.
    """
    try:
        yield
    except InvalidInput as error:
        if version is not None:  # against columns-that-stay-unsaid
            text = error.message.removesuffix("; nothing was committed")
            error.message = (
                f"{text}; no row was committed, but version {version} has the new columns"
            )
        raise


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
    rows, head = fitting_rows(t, head, data)
    adds = stage_appended(t, head, rows, memory_bytes, missing)
    version = head.state.header.version
    if not adds and app is None:
        return version
    transaction = session.transaction(operation, adds, read_version=version, app=app)
    return commit_staged(session, transaction)


def stage_appended(
    t: Table, head: Snapshot, rows: Any, memory_bytes: int, missing: Missing | None
) -> list[Add]:
    """Stage rows that are appended; the first rows of a table also choose its granularity.

    Args and Raises: as `stage`.
    """
    coarsest = coarsest_for_first_rows(head)
    adds = stage(t, head, rows, memory_bytes, missing, coarsest=coarsest)
    if adds:
        choose_granularity(t.session, head, adds, coarsest)
    return adds


def check_rows(given: pa.Schema, head: Snapshot, missing: Missing | None) -> pa.Schema:
    """Check the columns of rows before they are read; those of a keyed table may have `_op`.

    Args:
        given: the columns, as the table spells them.
        head: the table.
        missing: `null` if columns and fields that the rows lack are to be null even where that
            erases values.

    Returns: the schema that the rows are brought to.

    Raises:
        InvalidInput: a column is unknown, missing, or of a type that does not fit.
    """
    rule = head.merge_rule
    wanted = head.schema if rule is None else incoming(head.schema, rule, given)
    check_columns(given, wanted, head.layout.time_column)
    check_complete(head.schema, rule, given, missing)
    return wanted


def check_replacing(table: pa.Schema, given: pa.Schema, missing: Missing | None) -> None:
    """Check that rows which replace others have all columns and fields, unless nulls are meant.

    Args:
        table: the table's schema.
        given: that of the rows.
        missing: `null` if nulls are meant.

    Raises:
        InvalidInput: a column or a field is missing.
    """
    lacking = left_out(given, table)
    if lacking and missing is None:
        raise InvalidInput(replacing_incomplete(lacking))


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


def types_of(head: Snapshot, *, may_widen: bool = False) -> TableTypes:
    """Return the types that values of Python are converted to for a table.

    Args:
        head: the table.
        may_widen: whether the table is to get a wider type for values that do not fit.
    """
    return TableTypes(head.schema, head.layout.time_column, may_widen)


def fitting_rows(t: Table, head: Snapshot, data: Any) -> tuple[pa.RecordBatchReader, Snapshot]:
    """Return rows as a stream, and the head, refreshed if they do not fit the one of the handle.

    Args:
        t: the table.
        head: the version that the handle has read.
        data: rows in any form that `append` takes.

    Raises:
        InvalidInput: the rows cannot be read, or a value does not fit.
    """
    try:
        rows = to_reader(data, types_of(head))
    except InvalidInput:
        newer = t.refresh() if is_rows_of_python(data) else head
        if newer.schema == head.schema:
            raise
        return to_reader(data, types_of(newer)), newer
    newer = _fitting_head(t, head, rows.schema)
    # against types-of-an-older-schema
    if newer.schema == head.schema or not is_rows_of_python(data):
        return rows, newer
    return to_reader(data, types_of(newer)), newer


def _fitting_head(t: Table, head: Snapshot, given_schema: pa.Schema) -> Snapshot:
    """Return the head, or refresh it if the rows do not fit the schema that the handle has.

    Columns may have been added since, or a column that the rows lack may have become nullable.
    """
    columns = head.state.stored_schema.columns
    names = spelled(given_schema, [column.name for column in columns]).names
    given = {*names} - ({OP} if keyed_of(head.state.layout) else set())
    fit = given <= {c.name for c in columns} and all(c.nullable or c.name in given for c in columns)
    return head if fit else t.refresh()


def stage(
    t: Table,
    head: Snapshot,
    rows: Any,
    memory_bytes: int,
    missing: Missing | None = None,
    *,
    as_given: bool = False,
    kept: bool = True,
    coarsest: Granularity | None = None,
) -> list[Add]:
    """Stage rows as segments in the epoch of `head`. No commit refers to them yet.

    Args:
        t: the table.
        head: the version whose schema and layout the segments have.
        rows: see `append`.
        memory_bytes: see `append`.
        missing: see `append`.
        as_given: keep the rows of a chunk in their order, whatever the layout's is.
        kept: store the segments; otherwise the rows are checked, and the segments only measured.
        coarsest: see `Recipe`.

    Raises:
        InvalidInput: the rows do not fit the table; or without `missing` they would erase values.
        TableNotFound: the table of this handle was removed, or replaced by another.
        Unavailable: the store does not answer.
    """
    session, reader = t.session, to_reader(rows, types_of(head))
    store = session.store if kept else Unkept()  # against dry-run-that-stores
    recipe = Recipe.of(head, fills=missing is not None, coarsest=coarsest)
    if as_given:
        recipe = dataclasses.replace(recipe, layout=replace(recipe.layout, order_by=()))
    wanted = check_rows(spelled(reader.schema, head.schema.names), head, missing)
    try:
        # Verify the handle in parallel: the commit would have to wait for it.
        with (
            session.verifying(),
            Stager(store, session.clock, recipe, memory_bytes) as stager,
        ):
            for batch in batches(reader, wanted, recipe.layout.time_column):
                stager.write(batch)
            adds = stager.finish()
    except InvalidInput:
        # A column may have become nullable: refresh, so that a retry on this handle sees it.
        with contextlib.suppress(EventLogError):
            session.refresh()
        raise
    if kept:
        session.log.staged.vouch(adds)
        session.uploads = any(isinstance(add.parquet, UnsetType) for add in adds)
    return adds


class Unkept(MemoryStore):
    """A store that answers every PUT, and keeps nothing: for segments that are only measured."""

    def put_if_absent(self, key: str, body: Body) -> bool:  # noqa: ARG002
        """Keep nothing; see `ObjectStore.put_if_absent`."""
        return True
