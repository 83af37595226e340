"""The version at which a question turns true, found by halving: `bisect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.session.tags import VersionOrName, version_number


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a question turns true.

    Attributes:
        version: the first version at which it is true; None if it is false at the last one. It is
            that of the first version asked if the question is true there already.
        already: whether it is true at the first version asked.
        answers: the answers, by version, in the order in which they were asked for.
    """

    version: int | None
    already: bool
    answers: dict[int, bool]


def bisect(
    t: Table,
    question: Callable[[int], bool],
    start: VersionOrName | None = None,
    end: VersionOrName | None = None,
) -> Turn:
    """Return the first version at which a question is true.

    Asks at both ends first, and then at about log2(end - start) versions between. It assumes that
    the question turns once, and stays true: else it returns one of the versions at which it turns.

    Args:
        t: the table.
        question: gets the number of a version, and returns whether it is true there:
            `lambda version: count(t, "celsius > 60", version) > 0`.
        start: the first version; the oldest one that vacuum keeps if None.
        end: the last version; the newest if None.

    Raises:
        InvalidInput: the end is before the start.
        VersionNotFound: there is no such version.
    """
    head = t.refresh()
    low = head.meta.horizon if start is None else version_number(t.session, start, "start")
    high = head.version if end is None else version_number(t.session, end, "end")
    if high < low:
        raise InvalidInput(f"version {high}, the end, is before version {low}, the start")
    answers = {low: bool(question(low))}
    if answers[low]:
        return Turn(low, True, answers)
    if high not in answers:
        answers[high] = bool(question(high))
    if not answers[high]:
        return Turn(None, False, answers)
    while high - low > 1:  # false at low, true at high
        middle = (low + high) // 2
        answers[middle] = bool(question(middle))
        low, high = (low, middle) if answers[middle] else (middle, high)
    return Turn(high, False, answers)
