"""What happens to a table in a day, by the headers of its newest commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from eventlog.log.history import HistoryEntry
from eventlog.monitoring.prices import Prices

_DAY_H = 24.0
_LEAST_H = 1.0  # a table of a second ago would seem to have 86,400 commits a day


class Daily(Struct, frozen=True, kw_only=True):
    """Rates a day, over a part of the history that ends when it was read.

    Requests are estimated from what the log records: a PUT for each commit, each added segment and
    each transaction that another writer's commit took along, and one for each key frame, which has
    more objects in a large table; and a GET for each segment that was dropped, which a rewrite has
    read. Reads, vacuums, copies and repeated attempts leave no trace in the log: their requests
    come on top.

    Attributes:
        start_time: when the part begins.
        hours: its length; rates of a part of less than an hour are those of an hour.
        commits: number of commits a day.
        transactions: number of transactions in them; more than commits where writers combine.
        segments_added: number of segments that commits added.
        segments_dropped: number of segments that commits dropped.
        rows: by how many rows the table grows; negative if it shrinks.
        bytes: by how many bytes its segments grow.
        puts: estimated number of requests that write.
        gets: estimated number of requests that read.
        request_dollars: what these cost.
    """

    start_time: datetime
    hours: float
    commits: float
    transactions: float
    segments_added: float
    segments_dropped: float
    rows: float
    bytes: float
    puts: float
    gets: float
    request_dollars: float


def daily(
    entries: Iterable[HistoryEntry],
    now: datetime,
    *,
    span: timedelta,
    keyframe_commits: int,
    prices: Prices,
) -> Daily:
    """Return the rates of the newest versions.

    Args:
        entries: the newest versions, newest first; those before the span are not counted.
        now: when the history was read.
        span: the length of the part of the history that counts.
        keyframe_commits: the table's property of this name.
        prices: of requests.
    """
    counted, since = _counted(entries, now - span)
    hours = max(0.0, (now - since) / timedelta(hours=1))
    a_day = _DAY_H / max(hours, _LEAST_H)

    def rate(name: str) -> float:
        return round(a_day * sum(int(getattr(entry, name)) for entry in counted), 3)

    commits = round(a_day * len(counted), 3)
    transactions, added, dropped = rate("transactions"), rate("adds"), rate("drops")
    taken_along = max(0.0, transactions - commits)
    puts = round(commits + added + taken_along + commits / keyframe_commits, 3)
    return Daily(
        start_time=since,
        hours=round(hours, 3),
        commits=commits,
        transactions=transactions,
        segments_added=added,
        segments_dropped=dropped,
        rows=rate("rows"),
        bytes=rate("bytes"),
        puts=puts,
        gets=dropped,
        request_dollars=round(prices.requests(puts, dropped), 6),
    )


def _counted(
    entries: Iterable[HistoryEntry], since: datetime
) -> tuple[list[HistoryEntry], datetime]:
    """Return the commits after a time, and when the part of the history that they are begins.

    Args:
        entries: the newest versions, newest first. The last of them only marks the beginning, if it
            is later than `since`.
        since: the earliest time of interest.
    """
    counted: list[HistoryEntry] = []
    for entry in entries:
        if entry.time <= since:
            return counted, since
        counted.append(entry)
    if not counted:
        return [], since
    return counted[:-1], counted[-1].time
