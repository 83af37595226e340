"""Moments in arguments: values that unambiguously identify a millisecond.

`overwrite` and `timestamp=` take them. A misread time would replace the wrong rows, so anything
ambiguous is refused (hazard W7).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from eventlog.arguments import index, shown
from eventlog.errors import InvalidInput
from eventlog.model.chunks import DAY_MS, MAX_MS, MIN_MS
from eventlog.query.sql.literals import parse_moment

Moment: TypeAlias = "datetime | date | str | int"

# Plain integers are accepted as milliseconds only from 1979 to 2286. Seconds up to the year 9999,
# years, and dates written as digits (20130107, 201301070500) are smaller, microseconds are larger.
LEAST_MS = 3 * 10**11
MOST_MS = 10**13

_FORMS = (
    "write 2013-01-07, 2013-01-07T05:00:00Z (UTC if it has no offset), a datetime with a time "
    "zone, or milliseconds since 1970 UTC as an int of 12 or 13 digits from 300000000000 on "
    "(eventlog.Ms(0) for others)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d", re.ASCII)  # as the name of a time chunk
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NS_PER_MS = 1_000_000


class Ms(int):
    """Explicit milliseconds since 1970-01-01 UTC, accepted whatever their size."""

    __slots__ = ()


def to_ms(when: Moment, *, whole: bool = False) -> int:
    """Return a moment in ms UTC, rounded down to whole milliseconds.

    Args:
        when: a datetime with a time zone (also one of pandas); extended ISO 8601 text with at least
            a date (2013-01-07, 2013-01-07T05:00:00Z), in UTC if it has no offset; a date, meaning
            its midnight UTC; a NumPy datetime64, in UTC; `Ms`; or an int of milliseconds since 1970
            UTC of at least `LEAST_MS` and below `MOST_MS` in absolute value.
        whole: refuse a moment that would be rounded, for example because it bounds the rows to
            replace.

    Raises:
        InvalidInput: it is none of these, or is outside the years 0001 to 9999; the message says
            what is accepted.
    """
    time_ms, rest = _to_ms(when)
    if not MIN_MS <= time_ms <= MAX_MS:
        raise InvalidInput(f"{shown(when)} is outside the years 0001 to 9999")
    if whole and rest:
        raise InvalidInput(f"{shown(when)} is between two milliseconds: round it to one")
    return time_ms


def to_last_ms(when: Moment) -> int:
    """Return the last ms of a moment that ends a range and belongs to it: a date is the whole day.

    Raises:
        InvalidInput: see `to_ms`.
    """
    time_ms = to_ms(when)
    day = isinstance(when, date) and not isinstance(when, datetime)
    if day or (isinstance(when, str) and _DAY.fullmatch(when)):
        return min(time_ms + DAY_MS - 1, MAX_MS)
    return time_ms


def _to_ms(when: Any) -> tuple[int, Any]:
    """Return whole milliseconds, and the rest below a millisecond in any unit."""
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
        raise InvalidInput(f"the unit of the number {shown(when)} is ambiguous: {_FORMS}")
    raise InvalidInput(f"{shown(when)} is not a time: {_FORMS}")


def _from_text(text: str, given: Any) -> tuple[int, int]:
    if _HOUR.fullmatch(text):
        text += ":00"
    try:
        return divmod(parse_moment(text).ns, _NS_PER_MS)
    except InvalidInput:
        raise InvalidInput(f"{shown(given)} is not a time: {_FORMS}") from None


def _from_datetime(when: datetime) -> tuple[int, Any]:
    try:
        if when.utcoffset() is not None:
            # Rounded down: a commit later in the same millisecond is not included yet.
            time_ms, rest = divmod(when - _EPOCH, _MILLISECOND)
            return int(time_ms), rest
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{shown(when)} is not a time: {error}") from None
    raise InvalidInput(f"{shown(when)} needs a time zone: use datetime(..., tzinfo=timezone.utc)")
