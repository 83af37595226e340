"""Walking the log: history, versions by time, transactions by id, the schemas of segments.

A history reads headers only, with ranged GETs of 2 KB, one page ahead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from eventlog.display import Described, Description, command
from eventlog.errors import CommitUnknown, Corrupt, VersionCut, VersionNotFound
from eventlog.format.codec import sha256
from eventlog.log import chain
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import utc
from eventlog.model.entries import Correction, Schema, Segment
from eventlog.model.records import Commit, Header, Stub
from eventlog.quantities import count_text
from eventlog.state.small.timing import effective_time
from eventlog.store.branching.roots import unless_deleted
from eventlog.store.parallel import HEADER_THREADS, each

PAGE = 32  # headers read ahead


@dataclass(frozen=True, slots=True, repr=False)
class HistoryEntry(Described):
    """One version in a history.

    Attributes:
        version: the version.
        time: when it was committed (UTC), with later corrections of the clock applied.
        operation: the operation of its first accepted transaction.
        writer: the writer of that transaction.
        adds: number of segments added.
        drops: number of segments dropped.
        rows: net change in rows, without deleted ones.
        bytes: net change in segment bytes.
        transactions: number of transactions that took effect.
        deletes: number of segments that stay live, and of which rows were deleted. Where a merge, a
            restore or a compaction adds a segment of which rows are deleted, `adds` counts it, and
            not `deletes`.
    """

    version: int
    time: datetime
    operation: str
    writer: str
    adds: int
    drops: int
    rows: int
    bytes: int
    transactions: int
    deletes: int = 0

    @property
    def text(self) -> str:
        """What the version is, in one line: `version 7  …  append: +1 segment, +9 rows  by …`."""
        parts = (
            f"+{count_text(self.adds, 'segment')}" if self.adds else "",
            f"-{count_text(self.drops, 'segment')}" if self.drops else "",
            f"deletes in {count_text(self.deletes, 'segment')}" if self.deletes else "",
            f"{self.rows:+,} rows" if self.rows else "",
        )
        time = f"{self.time:%Y-%m-%dT%H:%M:%SZ}"
        changes = ", ".join(filter(None, parts)) or "no change of rows"
        return f"version {self.version}  {time}  {self.operation}: {changes}  by {self.writer}"

    def _described(self) -> Description:
        return Description(self.text)


def history(
    log: Log, start: int, limit: int | None, clock: Sequence[Correction] = ()
) -> Iterator[HistoryEntry]:
    """Yield the versions from `start` downwards, at most `limit` of them.

    Args:
        log: the log.
        start: the first version to yield.
        limit: the maximum number of versions; None: all.
        clock: the clock corrections of the newest known state.

    A replica that lacks old versions ends where it starts.

    Raises:
        VersionNotFound: a version does not exist.
        Corrupt: a header breaks the format.
    """

    def entry(header: Header) -> HistoryEntry:
        return _entry(header, effective_time(clock, header.version, header.time))

    last = -1 if limit is None else max(-1, start - limit)
    versions = range(start, last, -1)
    answers = each(log.header, versions, count=HEADER_THREADS, window=PAGE)
    missing = start
    try:
        for header in answers:
            yield entry(header)
            missing = header.version - 1
    except VersionNotFound:
        if missing == start or log.starts.not_replicated(missing) is None:
            raise


def version_at(log: Log, head: Snapshot, time_ms: int, known: int = -1) -> int:
    """Return the newest version committed at or before `time_ms`, by bisection over headers.

    The times in the headers are not checked: `checked_version_at` does, with up to three GETs
    more.

    Args:
        log: the log.
        head: the newest version.
        time_ms: the time, in ms UTC.
        known: a version known to be from before that time; -1: none.

    Raises:
        VersionNotFound: the table was created after that time.
        VersionNotReplicated: this replica does not have the versions of that time.
    """
    return _bisected(log, head, time_ms, known)[0]


def newest_before(log: Log, head: Snapshot, time_ms: int) -> int:
    """Return `version_at`; -1 if all versions are later, or this replica lacks the others."""
    try:
        return version_at(log, head, time_ms)
    except VersionNotFound:
        return -1


def checked_version_at(log: Log, head: Snapshot, time_ms: int) -> int:
    """Return `version_at`, and read its commit and the next one: headers may be of another log.

    Raises:
        Corrupt: it is not the one that the version above it names, which is later; or that one is
            not the one that the version above that names; or times fall.
        VersionNotFound: the table was created after that time.
        VersionNotReplicated: this replica does not have the versions of that time.
    """
    at_time = _commit_at(log, head, time_ms)
    return head.version if at_time is None else at_time[0].header.version


def snapshot_at(log: Log, head: Snapshot, time_ms: int) -> Snapshot:
    """Return the newest version committed at or before `time_ms`.

    Raises:
        Corrupt: as `checked_version_at`; or the commits do not add up.
        VersionNotFound: the table was created after that time.
        VersionNotReplicated: this replica does not have the versions of that time.
    """
    at_time = _commit_at(log, head, time_ms)
    return head if at_time is None else log.resolve(*at_time)


def _commit_at(log: Log, head: Snapshot, time_ms: int) -> tuple[Commit, bytes] | None:
    """Return the commit of that time, which the commit above names; None if it is the head's.

    The time lies between the times in the headers of these two commits, so both must belong to this
    log: the commit above is also compared with the one that names it.
    """
    version, seen = _bisected(log, head, time_ms, -1)
    with unless_deleted(log.store):
        _check_times(log, head, seen)
        if version == head.version:
            return None
        read = range(version, min(version + 2, head.version))
        at_time, *above = each(log.read_below, read, count=len(read))
        (commit, body), later = at_time, seen[version + 1]
        # against time-of-another-log
        chain.check_named(commit.header, sha256(body), later, log.store.uri)
        for commit, body in above:
            named_by = seen.get(version + 2) or log.above(head, version + 1)
            if named_by is not None:  # against time-above-of-another-log
                chain.check_named(commit.header, sha256(body), named_by, log.store.uri)
    return at_time


def _check_times(log: Log, head: Snapshot, seen: Mapping[int, Header]) -> None:
    """Check that no version has a time before that of a version below it (R10.4)."""
    for below, above in pairwise(seen[version] for version in sorted(seen)):
        if _time_of(head, below) > _time_of(head, above):  # against times-that-fall
            raise Corrupt(
                f"the time of version {below.version} is after that of version {above.version}, so "
                "that one of the two is of another log, or damaged: run "
                f"{command('fsck', log.store.uri)}, and put the right one back from a copy",
                table=log.store.uri,
                version=below.version,
            )


def _time_of(head: Snapshot, header: Header) -> int:
    return effective_time(head.meta.clock, header.version, header.time)


def _bisected(
    log: Log, head: Snapshot, time_ms: int, known: int
) -> tuple[int, Mapping[int, Header]]:
    """Return the version of that time, and the headers read, that of the one above it included."""
    absent = -1  # versions up to this one are not in this replica
    seen = {head.version: head.header}

    def is_later(version: int) -> bool:
        seen[version] = log.header(version)
        return _time_of(head, seen[version]) > time_ms

    if head.header.time <= time_ms:
        return head.version, seen
    low, high = known, head.version  # time(low) <= time_ms < time(high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            later = is_later(middle)
        except VersionNotFound:
            edge = log.starts.above(middle)
            if edge is None:
                raise
            later = low < edge.after and is_later(edge.after)
            if later:
                middle = edge.after
            else:
                absent = middle
        if later:
            high = middle
        else:
            low = middle
    if low == absent:
        raise _not_there(log, head, low)
    return low, seen


def _not_there(log: Log, head: Snapshot, version: int) -> VersionNotFound:
    """Return why there is no version of a time; -1: all versions are later."""
    if version >= 0:
        return log.starts.not_replicated(version) or VersionNotFound(
            f"version {version} is missing: run {command('fsck', log.store.uri)}",
            table=log.store.uri,
            version=version,
        )
    created = utc(effective_time(head.meta.clock, 0, log.header(0).time))
    return VersionNotFound(
        f"the table was created at {created.isoformat()}, after the requested time",
        table=log.store.uri,
    )


def first_whole(log: Log, high: int) -> int:
    """Return the lowest version that has a commit and no stub, by a bisection; at most `high`.

    Versions that a copy lacks count as stubs. One GET if there is no stub.

    Args:
        log: the log.
        high: a version whose commit is known to be whole.
    """

    def is_ended(version: int) -> bool:
        try:
            return isinstance(log.slot(version)[0], Stub)
        except VersionNotFound:
            return True

    if not high or not is_ended(0):
        return 0
    return bisect_left(range(high), True, lo=1, key=lambda version: not is_ended(version))


def find_transaction(
    log: Log, transaction_id: str, start: int, head: int, until: int = -1
) -> int | None:
    """Return the version from `start` to `head` in which the transaction took effect, or None.

    Args:
        log: the log.
        transaction_id: the id of the transaction.
        start: the first version to look at.
        head: the last version to look at.
        until: the last version in which the transaction may take effect.

    Raises:
        CommitUnknown: it is not in these versions, but `head` is before `until`, so it may still
            take effect.
        VersionNotReplicated: this replica lacks one of these versions.
    """
    before: tuple[Commit, bytes] | None = None
    for commit, body in each(log.read_below, range(start, head + 1)):
        if before is not None:  # against transaction-sought-in-another-log
            chain.check_later(*before, commit, log.store.uri)
        before = commit, body
        listed = any(t.id == transaction_id for t in commit.transactions)
        if listed and log.took_effect(commit, log.resolve(commit, body), transaction_id):
            return commit.header.version
    if head < until:
        raise CommitUnknown(
            f"the transaction is not in the log yet, and may still take effect until version "
            f"{until}: ask again once the table has that version",
            table=log.store.uri,
            version=start,
            until=until,
            transaction=transaction_id,
        )
    return None


def written_schema(log: Log, segment: Segment) -> Schema | None:
    """Return the schema that a segment was written with; None where this copy lacks its versions.

    It is mostly that of a version from the segment's epoch to the one that added it, and of one
    before where a merge of two logs copied the segment.

    Raises:
        Corrupt: the log does not add up.
    """
    near = _schema_of(log, segment.schema, segment.epoch, segment.version)
    return near or _schema_of(log, segment.schema, 0, segment.epoch)


def _schema_of(log: Log, number: int, low: int, high: int) -> Schema | None:
    """Return the schema with a number, if a version from `low` to `high` has it."""
    version = high
    while low <= high and number:
        try:
            schema = log.snapshot(version).stored_schema
        except (VersionCut, VersionNotFound):
            low = version + 1  # a copy has the later ones, and so has a log that is cut
        else:
            if schema.id == number:
                return schema
            low, high = (version + 1, high) if schema.id < number else (low, version - 1)
        version = (low + high) // 2
    return None


def _entry(header: Header, time_ms: int) -> HistoryEntry:
    changes = header.changes
    return HistoryEntry(
        version=header.version,
        time=utc(time_ms),
        operation=changes.operation,
        writer=changes.writer,
        adds=changes.adds,
        drops=changes.drops,
        rows=changes.rows,
        bytes=changes.bytes,
        transactions=changes.transactions,
        deletes=changes.vectors or 0,
    )
