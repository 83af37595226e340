"""Moments in arguments: what says without a guess which millisecond is meant.

Pure layer. `overwrite` and `timestamp=` take them; a time that is read wrongly replaces other rows
than those that were meant, so that whatever could mean two times is refused (hazard W7).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from eventlog.arguments import index, shown
from eventlog.errors import InvalidInput
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.query.sql.literals import moment

Moment: TypeAlias = "datetime | date | str | int"

# Plain whole numbers are taken for milliseconds from 1979 to 2286 only: seconds of the years up to
# 9999, years, and dates as digits (20130107, 201301070500) are less, microseconds are more.
LEAST_MS = 3 * 10**11
MOST_MS = 10**13

_FORMS = (
    "write 2013-01-07, 2013-01-07T05:00:00Z (UTC if it says no offset), a datetime with a time "
    "zone, or milliseconds since 1970 UTC as an int of 12 or 13 digits from 300000000000 on "
    "(eventlog.Ms(0) for others)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d", re.ASCII)  # as the name of a time chunk
_NS_PER_MS = 1_000_000


class Ms(int):
    """Milliseconds since 1970-01-01 UTC, said to be so: taken as such whatever their size."""

    __slots__ = ()


def to_ms(when: Moment, *, whole: bool = False) -> int:
    """Return a moment as ms UTC, rounded down to whole milliseconds.

    Args:
        when: a datetime with a time zone (pandas' too); extended ISO 8601 text with at least a date
            (2013-01-07, 2013-01-07T05:00:00Z), in UTC if it says no offset; a date, which is its
            midnight UTC; a NumPy datetime64, in UTC; `Ms`; or an int of milliseconds since 1970 UTC
            between `LEAST_MS` and `MOST_MS`.
        whole: refuse what would be rounded, as where it bounds the rows that are replaced.

    Raises:
        InvalidInput: it is none of these, or lies outside the years 0001 to 9999; the message says
            what is taken.
    """
    found, rest = _to_ms(when)
    if not MIN_MS <= found <= MAX_MS:
        raise InvalidInput(f"{shown(when)} lies outside the years 0001 to 9999")
    if whole and rest:
        raise InvalidInput(f"{shown(when)} lies between two milliseconds: give a whole one")
    return found


def _to_ms(when: Any) -> tuple[int, Any]:
    """Return whole milliseconds, and what is left of less than one, in any unit."""
    if isinstance(when, str):
        return _from_text(when, when)
    if isinstance(when, datetime):
        return _from_datetime(when)
    if isinstance(when, date):
        return (datetime(when.year, when.month, when.day, tzinfo=UTC) - _EPOCH) // _MILLISECOND, 0
    if type(when) is Ms:
        return int(when), 0
    if type(when).__module__ == "numpy" and type(when).__name__ == "datetime64":
        text = str(when)
        return _from_text(text + {4: "-01-01", 7: "-01"}.get(len(text), ""), when)
    number = index(when)
    if number is not None:
        if LEAST_MS <= abs(number) < MOST_MS:
            return number, 0
        raise InvalidInput(f"the number {shown(when)} could be of several units: {_FORMS}")
    raise InvalidInput(f"{shown(when)} is not a time: {_FORMS}")


def _from_text(text: str, given: Any) -> tuple[int, int]:
    if _HOUR.fullmatch(text):
        text += ":00"
    try:
        return divmod(moment(text).ns, _NS_PER_MS)
    except InvalidInput:
        raise InvalidInput(f"{shown(given)} is not a time: {_FORMS}") from None


def _from_datetime(when: datetime) -> tuple[int, Any]:
    try:
        if when.utcoffset() is not None:
            # A commit in the same millisecond is not yet there.
            found, rest = divmod(when - _EPOCH, _MILLISECOND)
            return int(found), rest
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{shown(when)} is not a time: {error}") from None
    raise InvalidInput(f"{shown(when)} needs a time zone: use datetime(..., tzinfo=timezone.utc)")
