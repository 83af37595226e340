"""The times of versions: what a commit is stamped with, and what a stamp is worth afterwards.

Pure layer (FORMAT.md R10.2 to R10.5). Times decide what is offered to people and how long old
versions stay; none of them decides whether a commit takes effect, so that a wrong clock can be
corrected afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import Correction, Header, Meta, SetClock, Transaction

MAX_LEAP_MS = 3653 * 86_400_000
MAX_CORRECTIONS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTABLE_MS = 86_400_000  # a head that is so far ahead of the clock is worth a word


def effective(clock: Sequence[Correction], version: int, time_ms: int) -> int:
    """Return the time of a version as the corrections leave it (R10.4); it never falls with it.

    Args:
        clock: the corrections of the newest state known, in order.
        version: the version.
        time_ms: what its header says, or what the state noted of its commit.
    """
    for each in clock:
        if version <= each.version:
            time_ms = min(time_ms, each.new) if each.new < each.old else max(time_ms, each.new)
    return time_ms


def set_clock(action: SetClock, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state with a correction of the clock, or why it is void (R10.3)."""
    if action.version != version - 1:
        return f"the clock was to be set after version {action.version}, which is not the newest"
    if action.new != time_ms or (meta.clock and meta.clock[-1].version == action.version):
        return "the clock is set once in a commit, to the time of the commit"
    if 0 <= action.new - action.old <= MAX_LEAP_MS:
        return (
            "the clock is set back, or ahead by more than ten years; by less it goes ahead by "
            "itself, with the next commit"
        )
    if len(meta.clock) >= MAX_CORRECTIONS:
        return f"the clock was set {MAX_CORRECTIONS} times, which is as often as it can be"
    correction = Correction(action.version, action.old, action.new)
    return msgspec.structs.replace(meta, clock=(*meta.clock, correction))


def check_time(before: Header, header: Header, meta: Meta) -> None:
    """Check the time of a commit against the one before it (R10.2).

    Args:
        before: of the version before.
        header: of the commit.
        meta: the small state after it.

    Raises:
        Corrupt: time runs backwards, or was set from another time than it had.
    """
    if meta.clock and meta.clock[-1].version == before.version:
        if meta.clock[-1].old != before.time:
            raise Corrupt("the clock was set from a time it did not have", version=header.version)
    elif header.time <= before.time:
        raise Corrupt("the commit's time does not grow", version=header.version)


def commit_time(head: Header | None, now_ms: int, transaction: Transaction) -> int:
    """Return the time of the commit after `head`: now, but always later than the head's.

    Or the time that the transaction sets the clock to.

    Raises:
        InvalidInput: the clock is far ahead of the table's, which could not go back by itself; or
            the transaction takes the head for one of another time.
    """
    if head is None:
        return now_ms
    for action in transaction.actions:
        if isinstance(action, SetClock) and action.version == head.version:
            if action.old != head.time:
                raise InvalidInput(
                    f"version {head.version} is of {shown(head.time)}: the clock cannot be set "
                    f"from {shown(action.old)}",
                    version=head.version,
                )
            return action.new
    check_leap(head, now_ms)
    return max(now_ms, head.time + 1)


def check_leap(head: Header, now_ms: int) -> None:
    """Refuse to go on by a clock that is far ahead of the table's.

    Raises:
        InvalidInput: it is.
    """
    if now_ms - head.time > MAX_LEAP_MS:
        raise InvalidInput(
            f"this clock says {shown(now_ms)}, more than ten years after the table's newest commit "
            f"({shown(head.time)}): set it right; or, if it is the table's time that is wrong, "
            "correct that (`eventlog clock --set`, Table.set_clock)",
            version=head.version,
        )


def odd(head: Header, now_ms: int) -> str | None:
    """Return what is odd about a table's time by a clock, and the way out; None if nothing is."""
    ahead_ms = head.time - now_ms
    if ahead_ms > _NOTABLE_MS:
        told = f"{ahead_ms // _NOTABLE_MS:,} days ahead of this clock: old versions are kept longer"
    elif -ahead_ms > MAX_LEAP_MS:
        told = f"{-ahead_ms // _NOTABLE_MS:,} days behind this clock: nothing can be committed"
    else:
        return None
    return (
        f"the newest commit is stamped {shown(head.time)}, {told}. If the clock "
        f"({shown(now_ms)}) is right, correct the table's time: `eventlog clock --set`"
    )


def shown(time_ms: int) -> str:
    """Return a time as text for people."""
    if not MIN_MS <= time_ms < MAX_MS:
        return f"{time_ms:,} ms since 1970, outside the years 0001 to 9999"
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="seconds")[:19] + "Z"
