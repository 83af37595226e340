"""The times of versions: the time stored in a commit, and its correction afterwards.

FORMAT.md R10.2 to R10.5. Times decide which version a timestamp selects and how long old versions
are kept. They never decide whether a commit takes effect, so a wrong clock can be corrected later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from eventlog.display import command
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.actions import SetClock
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.entries import Correction
from eventlog.model.records import Header, Meta, Transaction

MAX_LEAP_MS = 3653 * 86_400_000
MAX_CORRECTIONS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTABLE_MS = 86_400_000  # a head that is further ahead of the clock is reported


def effective_time(clock: Sequence[Correction], version: int, time_ms: int) -> int:
    """Return the corrected time of a version in ms UTC (R10.4). It never falls between versions.

    Args:
        clock: the corrections of the newest known state, in order.
        version: the version.
        time_ms: the time in its header, or the time that the state recorded for its commit.
    """
    for fix in clock:
        if version <= fix.version:
            time_ms = min(time_ms, fix.new) if fix.new < fix.old else max(time_ms, fix.new)
    return time_ms


def correct_clock(action: SetClock, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state with a correction of the clock, or why it is void (R10.3)."""
    if action.version != version - 1:
        return f"the clock cannot be set after version {action.version}: it is not the newest"
    if action.new != time_ms or (meta.clock and meta.clock[-1].version == action.version):
        return "the clock can be set once per commit, to the time of that commit"
    if 0 <= action.new - action.old <= MAX_LEAP_MS:
        return (
            "the table's time needs no correction: it can only be set back, or ahead by more than "
            "ten years; a smaller step comes with the next commit"
        )
    if len(meta.clock) >= MAX_CORRECTIONS:
        return f"the clock was already set {MAX_CORRECTIONS} times, the limit"
    correction = Correction(action.version, action.old, action.new)
    return msgspec.structs.replace(meta, clock=(*meta.clock, correction))


def check_time(before: Header, header: Header, meta: Meta) -> None:
    """Check the time of a commit against that of the commit before it (R10.2).

    Args:
        before: the header of the version before.
        header: the header of the commit.
        meta: the small state after the commit.

    Raises:
        Corrupt: the time does not increase, or a correction states a wrong old time.
    """
    if meta.clock and meta.clock[-1].version == before.version:
        if meta.clock[-1].old != before.time:
            raise Corrupt(
                f"the clock was set from a time that version {before.version} does not have",
                version=header.version,
            )
    elif header.time <= before.time:
        raise Corrupt(
            "the commit's time is not later than that of the commit before it",
            version=header.version,
        )


def commit_time(head: Header | None, now_ms: int, transaction: Transaction) -> int:
    """Return the time of the commit after `head`, in ms UTC.

    That is the present, or a millisecond after the head's time if that is later; or the time that
    the transaction sets the clock to.

    Args:
        head: the header of the newest version; None before version 0.
        now_ms: the present, in ms UTC.
        transaction: the transaction to commit.

    Raises:
        InvalidInput: the clock is more than ten years ahead of the table's time (which could not
            move back by itself), or the transaction sets the clock from another time than the
            head's.
    """
    if head is None:
        return now_ms
    for action in transaction.actions:
        if isinstance(action, SetClock) and action.version == head.version:
            if action.old != head.time:
                raise InvalidInput(
                    f"the clock cannot be set from {shown_time(action.old)}: the time of version "
                    f"{head.version} is {shown_time(head.time)}",
                    version=head.version,
                )
            return action.new
    check_leap(head, now_ms)
    return max(now_ms, head.time + 1)


def check_leap(head: Header, now_ms: int) -> None:
    """Check that the clock is not far ahead of the table's time.

    Args:
        head: the header of the newest version.
        now_ms: the present, in ms UTC.

    Raises:
        InvalidInput: it is more than ten years ahead.
    """
    if now_ms - head.time > MAX_LEAP_MS:
        raise InvalidInput(
            f"this clock shows {shown_time(now_ms)}, more than ten years after the table's newest "
            f"commit ({shown_time(head.time)}): correct the clock, or, if the table's time is "
            "wrong, correct that with `eventlog clock TABLE --set` or Table.set_clock",
            version=head.version,
        )


def time_problem(head: Header, now_ms: int, table: str) -> str | None:
    """Return how far the table's time is off the clock and what to do; None if it is not.

    Args:
        head: the header of the newest version.
        now_ms: the present, in ms UTC.
        table: the root URI of the table.
    """
    ahead_ms = head.time - now_ms
    if ahead_ms > _NOTABLE_MS:
        offset = (
            f"{ahead_ms // _NOTABLE_MS:,} days ahead of this clock: old versions are kept longer"
        )
    elif -ahead_ms > MAX_LEAP_MS:
        offset = f"{-ahead_ms // _NOTABLE_MS:,} days behind this clock: nothing can be committed"
    else:
        return None
    return (
        f"the newest commit is stamped {shown_time(head.time)}, {offset}. If this clock "
        f"({shown_time(now_ms)}) is right, correct the table's time: "
        f"{command('clock', table, '--set')}"
    )


def shown_time(time_ms: int) -> str:
    """Return a time in ms UTC as text for people."""
    if not MIN_MS <= time_ms < MAX_MS:
        return f"{time_ms:,} ms since 1970, outside the years 0001 to 9999"
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="seconds")[:19] + "Z"
