"""Walking the log: history, versions by time, transactions by id.

A history reads headers only, with ranged GETs of 2 KB, one page ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from eventlog.errors import CommitUnknown, VersionNotFound
from eventlog.log import chain
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import utc
from eventlog.model.records import Commit, Correction, Header
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

    Of what the headers say nothing is checked: `checked_version_at` does, with one GET more.

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


def checked_version_at(log: Log, head: Snapshot, time_ms: int) -> int:
    """Return `version_at`, and read that commit: its header alone may be of another log.

    Raises:
        Corrupt: it is not the one that the version above it names, which is later.
        VersionNotFound: the table was created after that time.
        VersionNotReplicated: this replica does not have the versions of that time.
    """
    found = _commit_at(log, head, time_ms)
    return head.version if found is None else found[0].header.version


def snapshot_at(log: Log, head: Snapshot, time_ms: int) -> Snapshot:
    """Return the newest version committed at or before `time_ms`.

    Raises:
        Corrupt: it is not the one that the version above it names, which is later; or the commits
            do not add up.
        VersionNotFound: the table was created after that time.
        VersionNotReplicated: this replica does not have the versions of that time.
    """
    found = _commit_at(log, head, time_ms)
    return head if found is None else log.resolve(*found)


def _commit_at(log: Log, head: Snapshot, time_ms: int) -> tuple[Commit, bytes] | None:
    """Return the commit of that time, which the one above names; None: it is that of the head."""
    version, above = _bisected(log, head, time_ms, -1)
    if version == head.version:
        return None
    commit, body = log.read_below(version)
    chain.check_named(commit, body, above, log.store.uri)  # against time-of-another-log
    return commit, body


def _bisected(log: Log, head: Snapshot, time_ms: int, known: int) -> tuple[int, Header]:
    """Return the version of that time, and the header of the one above it (or of the head)."""
    absent = -1  # versions up to this one are not in this replica

    def is_later(header: Header) -> bool:
        return effective(head.meta.clock, header.version, header.time) > time_ms

    if head.header.time <= time_ms:
        return head.version, head.header
    low, high, above = known, head.version, head.header  # time(low) <= time_ms < time(high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            header = log.header(middle)
            later = is_later(header)
        except VersionNotFound:
            edge = log.start_above(middle)
            if edge is None:
                raise
            later = False
            if low < edge.after:
                header = log.header(edge.after)
                later = is_later(header)
            if later:
                middle = edge.after
            else:
                absent = middle
        if later:
            high, above = middle, header
        else:
            low = middle
    if low == absent:
        raise _not_there(log, head, low)
    return low, above


def _not_there(log: Log, head: Snapshot, version: int) -> VersionNotFound:
    """Return why there is no version of a time; -1: all versions are later."""
    if version >= 0:
        return log.not_replicated(version) or VersionNotFound(
            f"version {version} is missing: run `eventlog fsck`",
            table=log.store.uri,
            version=version,
        )
    created = utc(effective(head.meta.clock, 0, log.header(0).time))
    return VersionNotFound(
        f"the table was created at {created.isoformat()}, after the requested time",
        table=log.store.uri,
    )


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
