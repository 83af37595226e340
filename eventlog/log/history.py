"""Walking the log: history, versions by time, transactions by id.

A history reads headers only, with ranged GETs of 2 KB, one page ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from eventlog.errors import CommitUnknown, VersionNotFound
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import utc
from eventlog.model.records import Correction, Header
from eventlog.state.small.timing import effective
from eventlog.store.parallel import HEADER_THREADS, each

PAGE = 32  # headers read ahead


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version in a history.

    Attributes:
        version: the version.
        time: when it was committed (UTC), with later corrections of the clock applied.
        operation: the operation of its first accepted transaction.
        writer: the writer of that transaction.
        adds: number of segments added.
        drops: number of segments dropped.
        rows: net change in rows.
        bytes: net change in segment bytes.
        transactions: number of transactions that took effect.
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
        return _entry(header, effective(clock, header.version, header.time))

    last = -1 if limit is None else max(-1, start - limit)
    versions = range(start, last, -1)
    answers = each(log.header, versions, count=HEADER_THREADS, window=PAGE)
    missing = start
    try:
        for header in answers:
            yield entry(header)
            missing = header.version - 1
    except VersionNotFound:
        if missing == start or log.not_replicated(missing) is None:
            raise


def version_at(log: Log, head: Snapshot, time_ms: int, known: int = -1) -> int:
    """Return the newest version committed at or before `time_ms`, by bisection over headers.

    Args:
        log: the log.
        head: the newest version.
        time_ms: the time, in ms UTC.
        known: a version known to be from before that time; -1: none.

    Raises:
        VersionNotFound: the table was created after that time.
        VersionNotReplicated: this replica does not have the versions of that time.
    """
    absent = -1  # versions up to this one are not in this replica

    def time_of(version: int) -> int:
        return effective(head.meta.clock, version, log.header(version).time)

    if head.header.time <= time_ms:
        return head.version
    low, high = known, head.version  # time(low) <= time_ms < time(high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            later = time_of(middle) > time_ms
        except VersionNotFound:
            edge = log.start_above(middle)
            if edge is None:
                raise
            later = low < edge.after and time_of(edge.after) > time_ms
            if later:
                middle = edge.after
            else:
                absent = middle
        low, high = (low, middle) if later else (middle, high)
    if low >= 0 and low == absent:
        raise log.not_replicated(low) or VersionNotFound(
            f"version {low} is missing: run `eventlog fsck`", table=log.store.uri, version=low
        )
    if low < 0:
        created = utc(time_of(0))
        raise VersionNotFound(
            f"the table was created at {created.isoformat()}, after the requested time",
            table=log.store.uri,
        )
    return low


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
    for commit, body in each(log.read_below, range(start, head + 1)):
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
    )
