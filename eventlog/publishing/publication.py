"""What lies in a table's root for the engines of another format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Publication:
    """The versions of a table that engines read in another format.

    Attributes:
        table: the table's root URI.
        format: `delta`.
        first: the oldest published version.
        last: the newest one.
        put: how many versions this call published; 0 if all were.
    """

    table: str
    format: str
    first: int
    last: int
    put: int
