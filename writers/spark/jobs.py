"""One save of a DataFrame: decided on the driver, staged by tasks, committed as one transaction.

Imports eventlog, readers and pyspark. Every attempt of a task writes under its own keys and returns
its adds to the driver; only those of the attempts that Spark picked are committed (hazard I1). The
transaction's id is created once, on the driver, before the first task. Nothing is ever deleted here
(hazard I6): vacuum removes the segments that a failed job staged.

Every segment of a keyed table costs each later read a merge. So a task with few rows of one returns
them, and the driver stages those of neighbouring tasks as one segment.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import msgspec
import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.arguments import choice
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.log.history import find_transaction
from eventlog.model.actions import Action, Add
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import App, Transaction
from eventlog.model.schema import to_arrow
from eventlog.query.moments import Moment
from eventlog.query.predicate import parse_predicate
from eventlog.session.tags import VersionOrName
from eventlog.staging.encoding import Recipe
from eventlog.staging.fitting import coarsest_for_first_rows
from eventlog.staging.incoming.streams import spelled
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES, Stager
from eventlog.staging.upsert_rows import Missing
from eventlog.state.version import VersionState
from eventlog.store.location import open_store
from eventlog.writers.batch import (
    already,
    check_replacing,
    check_rows,
    evolve_to,
    naming_version,
    warn_restored,
)
from eventlog.writers.changing.deletes import request_of
from eventlog.writers.changing.finding import Search
from eventlog.writers.changing.landing import land
from eventlog.writers.changing.replacing import passing_rows
from eventlog.writers.granularity_choice import choose_granularity
from eventlog.writers.keyed import (
    as_deletes,
    check_delete_columns,
    deletes_schema,
    rule_or_refuse,
    timed_by,
)
from eventlog.writers.overwriting import (
    commit_renewed,
    overwrite_actions,
    range_drops,
    read_at,
    to_range,
)
from eventlog.writers.replace_where import (
    check_aligned,
    parse_replace_where,
    range_within_chunks,
)
from eventlog.writers.spark.save_target import Creation, check_agrees, open_or_create

logger = logging.getLogger(__name__)

Operation = Literal["append", "upsert", "delete"]
_adds = msgspec.json.Decoder(list[Add])  # created once; safe to share between threads
# The most bytes of rows that a task returns: the driver can hold those of thousands of tasks.
FEW_BYTES = 512 * 2**10
_FEW_TIMES = 4  # times the bytes of an append that stands in its commit, without a key
_PACKED_BYTES = 64 * 2**10
NO_ADDS = b"[]"  # what a task without rows returns
_ADDS = b"["  # how JSON of adds begins, and an Arrow stream does not


@dataclass(frozen=True, slots=True)
class Replacement:
    """The rows that an overwrite replaces: all, a condition's range, or the range [start, end).

    Attributes:
        where: a predicate as SQL text.
        start: start of the range (inclusive), at a chunk boundary; unbounded if None.
        end: end of the range (exclusive), at a chunk boundary; unbounded if None.
        isolation: `snapshot` or `serializable`; see `eventlog.writers.overwrite`.
        read_version: the version that the rows were computed from; None: the newest.
    """

    where: str | None = None
    start: Moment | None = None
    end: Moment | None = None
    isolation: str = "snapshot"
    read_version: VersionOrName | None = None

    def __post_init__(self) -> None:
        choice(self.isolation, "isolation", ("snapshot", "serializable"))


@dataclass(frozen=True, slots=True)
class Job:
    """One save: everything that the driver decides before the first task.

    Attributes:
        table: the table; pickled without its snapshot and client.
        head: the state that was read last, so that a commit elsewhere need not read it again.
        recipe: how rows become segments.
        names: of the columns of the rows, as the table spells them.
        transaction: the transaction, without its actions.
        replaces: the range [start, end) ms whose rows the job replaces; None appends.
        isolation: the isolation of an overwrite, `snapshot` or `serializable`.
        memory_bytes: bound on the memory for rows in a task, in bytes.
        done: a version that includes the job's (app id, sequence), or None.
        deletes: the schema of the rows that delete the given keys; None: the rows are as given.
        where: the predicate whose rows the job replaces; None: it replaces a range, or appends.
        exact: whether it is a conflict that others changed the rows to replace since they were
            read.
        evolved: a version that has the columns which were added for the rows; None: none were.
    """

    table: Table
    head: VersionState
    recipe: Recipe
    names: list[str]
    transaction: Transaction
    replaces: tuple[int, int] | None
    isolation: str
    memory_bytes: int
    done: int | None
    deletes: pa.Schema | None = None
    where: str | None = None
    exact: bool = False
    evolved: int | None = None

    def stage(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Do the same as the function `stage_task`, unless the job is done already."""
        if self.done is not None:
            return NO_ADDS
        with naming_version(self.evolved):
            return self._stage(batches)

    def _stage(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        rule, deletes = self.recipe.rule, self.deletes
        batches = (batch.rename_columns(self.names) for batch in batches)
        if rule is not None and deletes is not None:
            timed = timed_by(self.recipe.layout)
            batches = (as_deletes(batch, deletes, rule, timed) for batch in batches)
        if self.where is not None:
            schema, time_column = self.recipe.schema, self.recipe.layout.time_column
            predicate = parse_predicate(self.where, schema)
            batches = passing_rows(
                batches, to_arrow(schema), time_column, predicate, self.table.uri
            )
        return stage_task(self.table, self.recipe, batches, self.memory_bytes)

    def stage_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the same as `stage_task`, in the form that `DataFrame.mapInArrow` calls (`STAGED`).

        Args:
            batches: the rows, with columns that were numbered for Spark.
        """
        adds = pa.array([self.stage(batches)], pa.binary())
        yield pa.RecordBatch.from_arrays([adds], ["adds"])

    def commit(self, staged: Iterable[bytes]) -> int:
        """Commit the results of the tasks as one transaction, and return the version.

        Raises:
            CommitConflict: an overwrite cannot be carried to the head; nothing was committed.
            CommitUnknown: it is not known whether the commit landed: run the job again with the
                same app id and sequence.
            InvalidInput: an overwrite has rows outside its range; nothing was committed.
        """
        if self.done is not None:
            return self.done
        with naming_version(self.evolved):
            return self._commit(staged)

    def _commit(self, staged: Iterable[bytes]) -> int:
        """Commit the results of the tasks. Raises: as `commit`."""
        adds = adds_of(self.table, self.recipe, staged, self.memory_bytes)
        replaces = self.replaces is not None or self.where is not None
        if not adds and not replaces and self.transaction.app is None:
            return self.transaction.read_version
        _report_small(adds, self.recipe.layout.time_column)
        self.table.session.adopt(self.head)
        self.table.session.log.staged.vouch(adds)  # staged by the job's tasks
        if self.where is not None:
            return self._replace_selected(adds)
        session = self.table.session
        choose_granularity(session, session.head(), adds, self.recipe.coarsest)
        transaction = msgspec.structs.replace(self.transaction, actions=tuple(self._actions(adds)))
        try:
            return commit_renewed(self.table, transaction, exact=self.exact)
        except CommitConflict:
            # The same job may have been committed already, by another copy of this object.
            landed = self._landed()
            if landed is None:
                raise
            return landed

    def _replace_selected(self, adds: list[Add]) -> int:
        """Commit the rows in the place of those that the predicate selects."""
        start, txn = read_at(self.table, self.transaction.read_version), self.transaction
        of = request_of(start, "overwrite", self.where, self.isolation, txn.app, self.memory_bytes)
        request = dataclasses.replace(of, transaction=txn.id, exact=self.exact)
        landed = self._landed()
        if landed is not None:  # by another copy of this object
            return landed
        search = Search(self.table, self.where, self.memory_bytes)
        return land(self.table, request, start, search, lambda _: (adds, None))

    def _actions(self, adds: list[Add]) -> list[Action]:
        if self.replaces is None:
            return list(adds)
        # The segments that were live when the job began. A version never changes, so it is read
        # again, not sent.
        before = read_at(self.table, self.transaction.read_version)
        drops = range_drops(before, *self.replaces)
        seen = before.version
        return overwrite_actions(
            adds, drops, *self.replaces, isolation=self.isolation, read_version=seen
        )

    def _landed(self) -> int | None:
        """Return the version in which this job's transaction is already committed, or None."""
        head, start = self.table.refresh().version, self.transaction.read_version + 1
        return find_transaction(self.table.session.log, self.transaction.id, start, head)


def stage_task(
    table: Table, recipe: Recipe, batches: Iterable[pa.RecordBatch], memory_bytes: int
) -> bytes:
    """Stage the rows of one task, and return its adds as JSON. No commit refers to them yet.

    If they are few, and the table is a keyed one or lets small appends stand in their commit,
    nothing is staged, and they are returned as an Arrow stream.

    Args:
        table: the table. Only its store is used: it need not have been read.
        recipe: how rows become segments.
        batches: the rows.
        memory_bytes: bound on the memory for rows, in bytes.

    Raises:
        InvalidInput: rows do not fit the table; the message names column, count and an example.
        Unavailable: the store does not answer; Spark retries the task.
    """
    few_bytes = _FEW_TIMES * recipe.inline_bytes if recipe.rule is None else FEW_BYTES
    # Many tasks have more than fits into the commit, which the driver alone can tell.
    # against commit-of-the-rows-of-all-tasks
    recipe = dataclasses.replace(recipe, inline_bytes=0)
    with Stager(table.store, table.clock, recipe, memory_bytes) as stager:
        for batch in batches:
            stager.write(batch)
        few = stager.few(few_bytes) if few_bytes else None
        packed = pack_rows(few) if few is not None else b""
        if packed and len(packed) <= _PACKED_BYTES:
            return packed
        return msgspec.json.encode(stager.finish())


def adds_of(table: Table, recipe: Recipe, staged: Iterable[bytes], memory_bytes: int) -> list[Add]:
    """Return the adds of tasks (`stage_task`), by chunk; stage the rows that they returned.

    Args:
        table: the table.
        recipe: how rows become segments, as the tasks had it.
        staged: the results in the order of the tasks. In a keyed table the rows of a key count in
            the order of the adds, so it must be the same whenever the job is run again.
        memory_bytes: bound on the memory for rows, in bytes.

    Raises:
        Unavailable: the store does not answer.
    """
    adds: list[Add] = []
    parts = [message for message in staged if message != NO_ADDS]
    if recipe.rule is None:  # the order of the adds decides nothing
        parts.sort(key=_has_adds)
    if any(map(_has_adds, parts)):
        recipe = dataclasses.replace(recipe, inline_bytes=0)
    for are_adds, messages in groupby(parts, _has_adds):
        if are_adds:
            adds += (add for message in messages for add in _adds.decode(message))
            continue
        with Stager(table.store, table.clock, recipe, memory_bytes) as stager:
            for message in messages:
                for batch in pa.ipc.open_stream(message):
                    stager.write(batch)
            adds += stager.finish()
    return sorted(adds, key=lambda add: add.chunk)


def _has_adds(message: bytes) -> bool:
    return message.startswith(_ADDS)


def pack_rows(rows: pa.Table) -> bytes:
    """Return rows as a compressed Arrow stream, in which tasks send them to the driver."""
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


# From which number of segments on, how many times the number of chunks, and below which average
# size a save warns that a repartition would pay.
_MANY_SEGMENTS = 100
_TIMES_CHUNKS = 4
_SMALL_BYTES = 8 * 2**20

STAGED = "adds binary"  # the schema of `Job.stage_rows`, as Spark spells it


def prepare(  # noqa: PLR0913 - what the ways to save pass on
    uri: str,
    incoming: pa.Schema,
    *,
    storage_options: Mapping[str, str] | None = None,
    table_id: str | None = None,
    creation: Creation | None = None,
    replacement: Replacement | None = None,
    app: App | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    operation: Operation = "append",
    missing: Missing | None = None,
    evolve: bool = False,
) -> Job:
    """Return the job of one save, after all checks that are possible before a task runs.

    Args:
        uri: the table's root.
        incoming: the columns of the rows.
        storage_options: see `eventlog.store.options`. They are sent to the executors.
        table_id: the id that the table must have, which is then not created; None: any.
        creation: how to create the table, if it is absent and a time column is given.
        replacement: what to replace; None appends.
        app: the app id and sequence of the unit of work.
        memory_bytes: bound on the memory for rows in a task, in bytes.
        operation: what the rows are for, unless they replace others; to `delete` they are keys.
        missing: see `eventlog.writers.upsert`, and `overwrite` where rows are replaced.
        evolve: see `eventlog.writers.append`.

    Raises:
        CommitConflict: see `evolve`.
        InvalidInput: an argument, or the columns, do not fit; no task runs.
        TableNotFound: the table is absent and no time column is given, or another table is there.
    """
    table = _open(uri, storage_options, table_id, incoming, creation or Creation())
    evolved = _evolved(table, incoming, app) if evolve else None
    head, fills = table.session.head(), "null" if replacement is not None else missing
    done, verb = _done(table, head, app), "overwrite" if replacement else operation
    with naming_version(evolved):
        incoming = spelled(incoming, head.schema.names)
        deletes = _deletes(incoming, head, table.uri) if operation == "delete" else None
        check_rows(incoming if deletes is None else deletes, head, fills)
        given = None if missing is not None or done is not None else incoming
        before, where, replaces = _replaced(table, replacement, given)
    return Job(
        table=table,
        head=head.state,
        recipe=_recipe(head, (where, replaces), fills=fills is not None),
        names=incoming.names,
        transaction=table.transaction(verb, (), read_version=before.version, app=app),
        replaces=replaces,
        isolation=replacement.isolation if replacement else "snapshot",
        memory_bytes=memory_bytes,
        done=done,
        deletes=deletes,
        where=where,
        exact=replacement is not None and replacement.read_version is not None,
        evolved=evolved,
    )


def _recipe(
    head: Snapshot, replaced: tuple[str | None, tuple[int, int] | None], *, fills: bool
) -> Recipe:
    """Return how rows become segments. Rows in the place of a part choose no granularity."""
    whole = replaced in ((None, None), (None, (MIN_MS, MAX_MS)))
    coarsest = coarsest_for_first_rows(head, part=True) if whole else None
    return Recipe.of(head, fills=fills, coarsest=coarsest)


def _open(
    uri: str,
    storage_options: Mapping[str, str] | None,
    table_id: str | None,
    incoming: pa.Schema,
    creation: Creation,
) -> Table:
    """Return the table; one with a given id is not created. Raises: as `prepare`."""
    if table_id is None:
        return open_or_create(uri, storage_options, incoming, creation)
    table = Table(open_store(uri, storage_options))
    table.session.log.table = table_id
    return check_agrees(table, creation)


def _evolved(table: Table, incoming: pa.Schema, app: App | None) -> int | None:
    """Give the table the columns of rows, unless their unit of work is done; see `evolve_to`."""
    return None if already(table.session.head(), app) is not None else evolve_to(table, incoming)


def _replaced(
    table: Table, replacement: Replacement | None, given: pa.Schema | None
) -> tuple[Snapshot, str | None, tuple[int, int] | None]:
    """Return the version that is read, and what of it is replaced (`_selection_of`).

    Args:
        table: the table.
        replacement: what to replace; None: nothing.
        given: the columns of the rows, which need all of them where rows are replaced; None: not.

    Raises:
        InvalidInput: a column is missing, or the replacement is wrong.
    """
    if replacement is None:
        return table.session.head(), None, None
    before = read_at(table, replacement.read_version)
    where, replaces = _selection_of(replacement, before)
    if given is not None and (where is not None or range_drops(before, *replaces or (0, 0))):
        check_replacing(table.session.head().schema, given, None)
    return before, where, replaces


def _deletes(keys: pa.Schema, head: Snapshot, uri: str) -> pa.Schema:
    """Return the schema of the rows that delete keys with these columns.

    Raises:
        InvalidInput: the columns are not those of a key.
    """
    check_delete_columns(keys, head, rule_or_refuse(head, uri))
    return deletes_schema(keys, head.schema)


def _report_small(adds: Sequence[Add], time_column: str | None) -> None:
    """Warn if tasks staged many small segments, since each of them had rows of many chunks."""
    chunks = {add.chunk for add in adds}
    if len(adds) < _MANY_SEGMENTS or len(adds) < _TIMES_CHUNKS * len(chunks):
        return
    size = sum(add.bytes for add in adds)
    if size < len(adds) * _SMALL_BYTES:
        logger.warning(
            "%d segments for %d chunks, %d kB each on average: %s, or let compaction join them",
            len(adds),
            len(chunks),
            size // len(adds) // 1000,
            "coalesce the DataFrame before the save"
            if time_column is None
            else "each task had rows of many chunks; repartition the DataFrame by the day or the "
            f"hour of column {time_column!r} before the save",
        )


def _done(table: Table, head: Snapshot, app: App | None) -> int | None:
    """Return `already`; warn where a restore, or a later unit of the app, is why."""
    done = already(head, app)
    if done is not None:
        warn_restored(table, head, app)
    mark = head.meta.apps.get(app.id) if app else None
    if app is not None and mark is not None and mark.seq > app.seq:
        logger.warning(
            "app %r is at sequence %d already (version %d), so that sequence %d counts as done and "
            "nothing is written: if its rows are not in the table, give them another app id",
            app.id,
            mark.seq,
            mark.version,
            app.seq,
        )
    return done


def _selection_of(
    replacement: Replacement, head: Snapshot
) -> tuple[str | None, tuple[int, int] | None]:
    """Return the predicate, or the range [start, end) ms, whose rows an overwrite replaces.

    A predicate that is a range of whole chunks drops these as they are, in keyed tables, too.

    Raises:
        InvalidInput: the predicate or the range is wrong; or the table has a key, and the predicate
            is no range of whole chunks.
    """
    if replacement.where is not None:
        if replacement.start is not None or replacement.end is not None:
            raise InvalidInput("option start, end means the same as replaceWhere: give one of them")
        try:
            low, high = parse_replace_where(replacement.where, head)
            if range_within_chunks(low, high, head) is None:
                return None, (low, high)
        except InvalidInput:
            if keyed_of(head.layout) is not None:
                raise
        parse_predicate(replacement.where, head.stored_schema)  # before any task runs
        return replacement.where, None
    low, high = to_range(replacement.start, replacement.end, head)
    within = range_within_chunks(low, high, head)
    if within is not None:
        return within, None
    check_aligned(low, high, head)
    return None, (low, high)
