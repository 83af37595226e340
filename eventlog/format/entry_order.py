"""The order of segment entries in key frames: by time chunk, then by id.

Entries are ordered by the interval of their chunk, not by its name (FORMAT.md R9.1).
"""

from __future__ import annotations

from typing import NamedTuple

from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import Piece


class EntryKey(NamedTuple):
    """The order of entries: chunk start, chunk end (ms UTC), then segment id."""

    start: int
    end: int
    id: str


def entry_key(chunk: str, segment_id: str) -> EntryKey:
    """Return the position of an entry."""
    parsed = parse_chunk(chunk)
    return EntryKey(parsed.start, parsed.end, segment_id)


def entry_key_if_valid(chunk: str, segment_id: str) -> EntryKey | None:
    """Return the position of an entry, or None if `chunk` is not the name of a chunk."""
    try:
        return entry_key(chunk, segment_id)
    except InvalidInput:
        return None


def first_key(piece: Piece) -> EntryKey:
    """Return the position of the first entry of a leaf or a stem.

    Raises:
        Corrupt: `first` violates the format.
    """
    chunk, _, segment_id = piece.first.partition("/")
    try:
        return entry_key(chunk, segment_id)
    except InvalidInput as error:
        raise Corrupt(f"a key frame root has an invalid first entry: {error}") from None
