"""Spark's streaming reader: batches planned on the driver, read by tasks as in a batch read.

Imports eventlog, readers and pyspark (extra `spark`). Options of
`spark.readStream.format("eventlog")`:

- `startingVersion`, or `startingTimestamp`: only rows that were appended by that version or later,
  or at that time or later. By default a stream begins with all rows of the newest version.
- `maxVersionsPerTrigger`: the most versions with new rows in one batch.
- `maxBytesPerTrigger`: the most stored bytes in one batch; at least one version, or one segment of
  the first snapshot, is read.
- `skipChangeCommits` (false): pass over transactions that remove rows, or bring some back: deletes,
  overwrites, restores. Without it they end the stream. Compaction is never seen.
- `readChanges` (false): read the changes of rows in each version (`eventlog.readers.changes`), with
  the columns `_change`, `_version` and `_time`. A keyed table is read in no other way. The rows of
  the newest version come first, as inserted ones.
- `failOnDataLoss` (true): end the stream at a version that was vacuumed before it was read. If
  false, the stream logs a warning and goes on with the oldest version that can be read.
- `columns`, `where`, `whereArrow`, `targetBytes`, `tableId`, `overflow`, `storage.<name>`: as in a
  batch read, see `eventlog.readers.spark.source`.

Where a stream begins is decided by its first run; its checkpoint decides from then on. The columns
are those at `load()`.

From Spark 4.2 on the progress of a query shows the newest version of the table (`latestOffset`),
beside the one that its last batch reads up to (`endOffset`).

Spark 4.0 and 4.1 do not pass a source the end of the last batch. There the first batch of each run
reads all that there is, whatever the limits; the batches after it keep to them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from eventlog import Segment, Snapshot, Table
from eventlog.errors import EventLogError, InvalidInput, VersionNotFound
from eventlog.keyed.rule import keyed_of
from eventlog.log import history
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.records import packs_of
from eventlog.query.moments import to_ms
from eventlog.readers.changefeed import change_planning
from eventlog.readers.spark import changes
from eventlog.readers.spark.shares import (
    DEFAULT_TARGET_BYTES,
    Pinned,
    check_schema,
    check_schema_columns,
    share_out_scan,
    where_of,
)
from eventlog.readers.spark.spark_options import (
    CHANGES_NAMES,
    INLINE_ONLY,
    MEMORY,
    SEGMENTS,
    WRITE_NAMES,
    SparkOptions,
    parse_spark_options,
)
from eventlog.readers.spark.streaming import progress
from eventlog.readers.spark.streaming.progress import BEGINNING, Limits, Offset, Rules
from eventlog.readers.spark.streaming.tail import StreamTail
from eventlog.session.tags import version_number
from eventlog.state import scan
from eventlog.state.appends import Appends
from eventlog.store.location import open_store

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the class that this Spark does not have."""


logger = logging.getLogger(__name__)

_Record = dict[str, str | int]


class EventLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows that are appended to a table.

    Spark keeps one reader on the driver for a run of a query, and makes another one for the tasks,
    which get everything from their partitions. So nothing is opened before it is needed.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last: Offset | None = None  # where the last planned batch ends
        self._target: int | None = None  # the last version to read, with Trigger.AvailableNow

    def __getstate__(self) -> dict[str, object]:
        return {}  # for tasks

    def initialOffset(self) -> _Record:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins; the same in all of a run.

        Raises:
            InvalidInput: option `startingVersion` is beyond the next version.
        """
        return self._source.beginning.record()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: _Record | None = None, limit: ReadLimit | None = None
    ) -> _Record:
        """Return where the batch ends that begins at `start`; `start` itself if nothing is new.

        Args:
            start: where the batch begins; None before Spark 4.2, which does not pass it.
            limit: whether the limits of the options apply; None before Spark 4.2.

        Raises:
            InvalidInput: the stream cannot pass the next version; the message has the reason.
            TableNotFound: the table was removed or replaced.
            VersionNotFound: the table has fewer versions than the stream has read.
            VersionVacuumed: the next version was vacuumed.
        """
        begin = self._last if start is None else self._source.parse(start)
        if begin is None:
            self._last = self._source.read_to(self._source.tail.start.version)
        else:
            everything = limit is not None and isinstance(limit, ReadAllAvailable)
            limits = progress.UNLIMITED if everything else self._source.limits
            self._last = self._source.end(begin, limits, self._target)
        return self._last.record()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that the limits of the options apply, if there are any."""
        limits = self._source.limits
        if limits.bytes is not None:
            return ReadMaxBytes(limits.bytes)
        if limits.versions is not None:
            return ReadMaxFiles(limits.versions)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> _Record:  # noqa: N802 - Spark's name
        """Return the offset at the newest version, which the progress of a query shows."""
        return self._source.newest().record()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to the version that is the newest one now, and no further."""
        self._target = self._source.tail.start.version

    def partitions(self, start: _Record, end: _Record) -> Sequence[InputPartition]:
        """Return the partitions of a batch; the same rows whenever the batch is run again.

        Raises: as `latestOffset`.
        """
        self._last = self._source.parse(end)
        return self._source.partitions(self._source.parse(start), self._last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; see `Work.batches`."""
        work, share = partition.value
        yield from work.batches(share)

    def commit(self, end: _Record) -> None:
        """Forget the commits that were read up to here."""
        self._source.forget(self._source.parse(end))


class Source:
    """The table of a stream, opened at the first question. Used on the driver only.

    Attributes:
        given: the options.
        limits: how much a batch may read.
    """

    def __init__(self, given: SparkOptions, schema: StructType, pinned: Pinned | None) -> None:
        self.given = given
        self.limits = Limits(
            given.whole("maxVersionsPerTrigger", low=1), given.whole("maxBytesPerTrigger", low=1)
        )
        self._starting_version = given.version("startingVersion")
        self._schema = schema
        self._pinned = pinned
        self._skip_changes = given.flag("skipChangeCommits", default=False)
        self._read_changes = given.reads_changes
        self._fail_on_data_loss = given.flag("failOnDataLoss", default=True)
        self._target_bytes = given.whole("targetBytes", DEFAULT_TARGET_BYTES, 1)
        self._in_snapshot: tuple[int, list[Segment]] | None = None
        self._warned = 0  # the horizon that was warned of

    @cached_property
    def beginning(self) -> Offset:
        """See `EventLogStreamReader.initialOffset`."""
        head = self.tail.start
        starting = self._starting_version
        timestamp = self.given.named.get("startingTimestamp")
        if timestamp is not None:
            time_ms = to_ms(timestamp) - 1
            try:
                return self.read_to(
                    history.checked_version_at(self.table.session.log, head, time_ms)
                )
            except VersionNotFound:
                return self.read_to(-1)
        if starting is None:
            return replace(self.read_to(head.version), place=BEGINNING)
        version = version_number(self.table.session, starting)
        if version > head.version + 1:
            raise InvalidInput(
                f"option startingVersion is {version}, but the newest version is {head.version}: "
                f"give {head.version + 1} to read only what is appended from now on"
            )
        return self.read_to(version - 1)

    @cached_property
    def table(self) -> Table:
        """The table."""
        table = Table(open_store(self.given.path, self.given.storage))
        if self._pinned is not None:
            table.session.adopt(self._pinned.state)
        table.session.log.table = self.given.named.get("tableId", table.session.log.table)
        return table

    @cached_property
    def tail(self) -> StreamTail:
        """The versions of the table.

        Raises:
            InvalidInput: it is a keyed table.
        """
        tail = StreamTail(self.table)
        if not self._read_changes:
            _check_unkeyed(tail.start.layout, self.table.uri)
        return tail

    @property
    def table_id(self) -> str:
        """The id of the table, or of the branch: its versions above the fork are others."""
        forks = self.table.store.forks
        return forks[0].id if forks else self.tail.start.header.table

    def parse(self, record: _Record) -> Offset:
        """Return an offset; see `progress.parse_offset` and `progress.check_reached`."""
        offset = progress.parse_offset(record, self.table_id, self.table.uri)
        progress.check_reached(offset, self.tail.newest, self.table.uri)
        return offset

    def read_to(self, version: int) -> Offset:
        """Return the offset at which all versions up to this one were read. No request."""
        commit_hash = self.tail.known_hash(version)
        commit = None if commit_hash is None else commit_hash[: progress.COMMIT_DIGITS]
        return Offset(self.table_id, version, commit=commit)

    def newest(self) -> Offset:
        """Return the offset at the newest version of the table.

        Costs one LIST if batches are limited. A batch without limits has looked for new versions.
        """
        version = self.tail.newest
        if self.limits != progress.UNLIMITED:
            with suppress(EventLogError):  # no reason to end a query: its next batch finds out
                version = max(version, self.table.session.log.head_version())
        return Offset(self.table_id, version)

    def _check_commit(self, offset: Offset) -> None:
        """See `progress.check_last_read`."""
        if offset.commit is not None:
            commit_hash = self.tail.hash_of(offset.version)
            if commit_hash is not None:
                progress.check_last_read(offset, commit_hash, self.table.uri)

    def end(self, start: Offset, limits: Limits, target: int | None) -> Offset:
        """Return where the batch ends that begins at `start`.

        Args:
            start: where it begins.
            limits: how much it may read.
            target: the last version to read; None: the newest.

        Raises:
            VersionNotFound: the table has another commit at `start`.
        """
        self._check_commit(start)
        begin = self._kept(start)
        if begin.place is not None and self._question.rule is not None:
            return replace(begin, place=None)  # of a keyed table they are read together
        if begin.place is not None:
            left = self._snapshot_segments(begin.version, begin.place, None)
            return progress.end_in_snapshot(begin, left, limits)
        later = map(self._pruned, self.tail.after(begin.version, target))
        end = progress.end_of_versions(begin, later, limits, self._problem, self._rules.has_rows)
        return start if end == begin else self.read_to(end.version)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions of the batch from one offset to another."""
        if start.place == BEGINNING:  # of the first snapshot, in which the batch ends too
            start = replace(end, place=BEGINNING)
        self._check_commit(start)
        if self._read_changes:
            planned = self._changes(self._kept(start), end)
            self._check_commit(end)  # it was read for that
            return planned
        segments = list(self._segments(self._kept(start), end))
        self._check_commit(end)
        if not segments:
            return []
        # A vacuum of this version, or of a later one, may have deleted a segment of the batch.
        oldest = start.version if start.place is not None else start.version + 1
        packs = packs_of(self.tail.start.base)
        plan = replace(self._question.of(segments, oldest), packs=packs)
        target = self._target_bytes or DEFAULT_TARGET_BYTES
        path, storage = self.given.path, self.given.storage
        wanted = check_schema(self._schema, self._columns)
        memory = self.given.memory_bytes
        work = share_out_scan(path, storage, self._columns, plan, wanted, target, memory)
        alone = work.without_shares()
        return [InputPartition((alone, share)) for share in work.shares]

    def _changes(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions of a batch of changes."""
        plans = []
        clock = self.tail.start.meta.clock
        if start.place is not None:
            snapshot = self._at(start.version)
            if self._question.rule is not None:
                plans.append(change_planning.plan_of_snapshot(snapshot, self._question, clock))
            else:
                upto = end.place if end.version == start.version else None
                some = self._snapshot_segments(start.version, start.place, upto)
                plans.append(
                    change_planning.plan_of_segments(snapshot, some, self._question, clock)
                )
        if end.place is None:
            later = []
            for version in self.tail.after(start.version, end.version):
                error = self._problem(version)
                if error is not None:
                    raise error
                later.append(version)
            question, last = self._question, end.version
            plans.append(
                change_planning.plan_changes(start.version, last, later, self._at, question, clock)
            )
        if not plans:  # the first snapshot was vacuumed, and may be left out
            return []
        target = self._target_bytes or DEFAULT_TARGET_BYTES
        memory = self.given.memory_bytes
        work = changes.share_out_changes(
            plans, self.table, self._columns, self._schema, target, memory_bytes=memory
        )
        alone = work.without_shares()
        return [InputPartition((alone, share)) for share in work.shares]

    def _at(self, version: int) -> Snapshot:
        head = self.tail.start
        return head if head.version == version else self.table.session.log.snapshot(version)

    def forget(self, end: Offset) -> None:
        """Forget the commits that were read up to an offset."""
        self.tail.forget(end.version)
        if end.place is None:
            self._in_snapshot = None

    @cached_property
    def _columns(self) -> Snapshot:
        """The version that the stream has its columns from."""
        pinned = self._pinned
        return self.tail.start if pinned is None else Snapshot(pinned.state, self.table.session.log)

    @cached_property
    def _question(self) -> scan.ScanQuestion:
        state, where = self._columns.state, where_of(self.given)
        if self._read_changes:
            names = changes.table_columns(self._schema).names
            return change_planning.change_question(state, names, where, self.given.overflow)
        return scan.question(state, self._schema.names, where)

    @cached_property
    def _rules(self) -> Rules:
        columns, uri = self._columns.stored_schema, self.table.uri
        rule = self._question.rule
        return Rules(
            uri,
            columns,
            skip_changes=self._skip_changes,
            fail_on_data_loss=self._fail_on_data_loss,
            read_changes=self._read_changes,
            forgets=rule is not None and rule.ordered_deletes,
        )

    def _problem(self, version: Appends) -> EventLogError | None:
        return self._rules.problem(version, self.tail.horizon)

    def _segments(self, start: Offset, end: Offset) -> Iterator[Segment]:
        """Yield the segments of a batch."""
        version = start.version
        if start.place is not None:
            upto = end.place if end.version == version else None
            yield from self._snapshot_segments(version, start.place, upto)
        if end.place is None:
            for appended in map(self._pruned, self.tail.after(version, end.version)):
                error = self._problem(appended)
                if error is not None:
                    raise error
                yield from appended.segments

    def _snapshot_segments(self, version: int, start: str, end: str | None) -> list[Segment]:
        """Return segments of the first snapshot in scan order, from one place to another."""
        if self._in_snapshot is None or self._in_snapshot[0] != version:
            snapshot = self._at(version)
            error = self._problem(Appends(version, schema=snapshot.stored_schema))
            if error is not None:
                raise error
            plan = self.table.session.log.answer(snapshot.state, self._question)[1]
            self._in_snapshot = version, plan.in_scan_order()
        return progress.after_place(self._in_snapshot[1], start, end)

    def _kept(self, start: Offset) -> Offset:
        """Return where reading goes on: at the horizon, if that has passed and is no error."""
        horizon = self.tail.horizon
        begin = start.version + 1
        if start.place is not None or self._read_changes:  # changes begin at the version before
            begin = start.version
        if begin >= horizon:
            return start
        if self._fail_on_data_loss:
            if start.place is not None:
                raise progress.vacuumed(start.version, horizon, self.table.uri)
            return start
        if self._warned < horizon:
            self._warned = horizon
            logger.warning(
                "%s: versions %d to %d were vacuumed before the stream read them; it goes on at "
                "version %d",
                self.table.uri,
                begin,
                horizon - 1,
                horizon,
            )
        return self.read_to(horizon if self._read_changes else horizon - 1)

    def _pruned(self, appended: Appends) -> Appends:
        """Return the same without segments that cannot have a row that is asked for."""
        if not appended.segments or self._question.predicate is None or self._read_changes:
            return appended
        plan = self._question.of(appended.segments, appended.version)
        return replace(appended, segments=tuple(plan.in_scan_order()))


def make_stream_reader(
    options: Mapping[str, str], schema: StructType, pinned: Pinned | None
) -> EventLogStreamReader:
    """Return the reader of a stream. No request.

    Args:
        options: the options of the load.
        schema: the columns for Spark, in this order: those of `load_schema`, or the user's.
        pinned: what `load_schema` returned; None if the user gave the schema.

    Raises:
        InvalidInput: an option is wrong.
    """
    given = parse_spark_options(options)
    given.refuse(
        ("version", "timestamp"),
        "is for one version: give a stream startingVersion or startingTimestamp",
    )
    given.refuse(
        tuple(name for name in WRITE_NAMES if name != MEMORY), "is for writes: leave the option out"
    )
    given.refuse((SEGMENTS, INLINE_ONLY), "is for batch reads: leave the option out")
    if {"startingVersion", "startingTimestamp"} <= given.named.keys():
        raise InvalidInput("give option startingVersion or startingTimestamp, not both")
    given.refuse(CHANGES_NAMES, "is for batch reads: a stream reads what comes; leave it out")
    if given.reads_changes and "skipChangeCommits" in given.named:
        raise InvalidInput("give option readChanges or skipChangeCommits, not both")
    check_schema_columns(given, changes.table_columns(schema) if given.reads_changes else schema)
    if pinned is not None and not given.reads_changes:
        _check_unkeyed(pinned.state.layout, given.path)
    return EventLogStreamReader(Source(given, schema, pinned))


def _check_unkeyed(layout: NamedLayout, uri: str) -> None:
    """Check that a stream can read a table.

    Raises:
        InvalidInput: it is a keyed one, whose rows replace and remove others.
    """
    if keyed_of(layout) is not None:
        raise InvalidInput(
            "a keyed table has no appended rows to read as a stream: its rows replace and remove "
            "others. Set option readChanges=true to read the changes of each version",
            table=uri,
        )
