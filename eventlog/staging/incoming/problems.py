"""Why rows cannot be written: the column, the reason, and an example for the message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows that cannot be written: the column, the reason, their number, and an example."""

    column: str
    why: str
    count: int
    example: str


def halved(
    values: pa.Array, make: Callable[[pa.Array], Any]
) -> Iterator[tuple[pa.Array, Any | None]]:
    """Yield the values in parts, in order, with the result of `make` for each.

    A part for which `make` returns None is halved, down to single values. A few bad values among a
    million are found in a few steps.
    """
    waiting = [values]
    while waiting:
        part = waiting.pop()
        result = make(part)
        if result is None and len(part) > 1:
            middle = len(part) // 2
            waiting += [part.slice(middle), part.slice(0, middle)]
        else:
            yield part, result


def example_of(value: pa.Array) -> str:
    """Return the only value of an array for a message, even if Python cannot represent it."""
    try:
        return str(value[0])[:80]
    except (LookupError, OverflowError, ValueError):  # such as a time in an unknown zone
        return " ".join(value.to_string().split())[:80]


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, shortened, for a message."""
    return str(error).split("\n", 1)[0][:200]
