"""What lies in a table's root for the engines of another format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Publication:
    """The versions of a table that engines read in another format.

    Attributes:
        table: the table's root URI.
        format: `delta` or `iceberg`.
        first: the oldest published version.
        last: the newest one.
        put: how many versions this call published; 0 if all were.
    """

    table: str
    format: str
    first: int
    last: int
    put: int


class PublicationProblem(NamedTuple):
    """What is wrong with an object of a publication."""

    message: str
    key: str
    version: int | None


def always() -> bool:
    """Return True: versions are published without a limit."""
    return True
