"""Walking the log: pages of history, versions by time, transactions by id.

Shell layer. Histories read headers only: ranged GETs of 2 KB, a page of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from eventlog.errors import CommitUnknown, VersionNotFound
from eventlog.log import Log
from eventlog.model import Header

PAGE = 32
_THREADS = 16


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version in a history.

    Attributes:
        version: the version.
        time: when it was committed (UTC).
        operation: what its first accepted transaction did.
        writer: who wrote it.
        adds: segments added.
        drops: segments dropped.
        rows: net change of rows.
        bytes: net change of segment bytes.
        transactions: transactions that took effect.
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


def history(log: Log, start: int, limit: int | None) -> Iterator[HistoryEntry]:
    """Yield the versions from `start` downwards, at most `limit` of them."""
    last = -1 if limit is None else max(-1, start - limit)
    with ThreadPoolExecutor(_THREADS) as pool:
        for top in range(start, last, -PAGE):
            page = range(top, max(last, top - PAGE), -1)
            yield from map(
                _entry, pool.map(log.header, page) if len(page) > 1 else map(log.header, page)
            )


def version_at(log: Log, head: Header, time_ms: int, known: int = -1) -> int:
    """Return the newest version committed at or before `time_ms`, by bisection over headers.

    Args:
        log: the log.
        head: of the newest version.
        time_ms: the time.
        known: a version that may be taken for one of before that time.

    Raises:
        VersionNotFound: the table is younger, and none was known.
    """
    if head.time <= time_ms:
        return head.version
    low, high = known, head.version  # time(low) <= time_ms < time(high)
    while high - low > 1:
        middle = (low + high) // 2
        if log.header(middle).time <= time_ms:
            low = middle
        else:
            high = middle
    if low < 0:
        created = datetime.fromtimestamp(log.header(0).time / 1000, tz=UTC)
        raise VersionNotFound(
            f"the table was created at {created.isoformat()}, after the time asked for",
            table=log.store.uri,
        )
    return low


def find_transaction(
    log: Log, transaction_id: str, start: int, head: int, until: int = -1
) -> int | None:
    """Return the version from `start` to `head` in which the transaction took effect, or None.

    Raises:
        CommitUnknown: it is not there, and `head` has not come to `until`: it may still arrive.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        for low in range(start, head + 1, PAGE):
            page = range(low, min(low + PAGE, head + 1))
            for commit, body in pool.map(log.read, page) if len(page) > 1 else map(log.read, page):
                listed = any(t.id == transaction_id for t in commit.transactions)
                if listed and log.holds(commit, log.resolve(commit, body), transaction_id):
                    return commit.header.version
    if head < until:
        raise CommitUnknown(
            f"the transaction is not in the log, and may still arrive until version {until}: ask "
            "again once the table has that version",
            table=log.store.uri,
            version=start,
            until=until,
            transaction=transaction_id,
        )
    return None


def _entry(header: Header) -> HistoryEntry:
    changes = header.changes
    return HistoryEntry(
        version=header.version,
        time=datetime.fromtimestamp(header.time / 1000, tz=UTC),
        operation=changes.operation,
        writer=changes.writer,
        adds=changes.adds,
        drops=changes.drops,
        rows=changes.rows,
        bytes=changes.bytes,
        transactions=changes.transactions,
    )
