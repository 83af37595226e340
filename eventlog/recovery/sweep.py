"""Vacuum's decisions: how far fence and horizon may go, and which objects are dead.

Pure layer (FORMAT.md "Vacuum"). What is dead follows from the log alone;
clocks only propose how far the marks go, so that they decide who is inconvenienced and never what
is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa

from eventlog.errors import Corrupt
from eventlog.format import keys, segments
from eventlog.model.records import Meta
from eventlog.state.small.holds import Hold, holds

_PENDING = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("dropped", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A segment's object that is not live any more: the version that dropped it, and its size."""

    key: str
    version: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Marks:
    """How far fence and horizon go.

    Attributes:
        fence: staged objects of epochs below it are dead.
        horizon: what was dropped at or below it is dead.
        aged: how far the horizon would go by the retention alone.
        held: the pins and replicas that keep it from going so far, the oldest first.
    """

    fence: int
    horizon: int
    aged: int
    held: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of dropped segments: dead ones go now, the rest waits for a reason."""

    dead: tuple[Dropped, ...]
    waiting: tuple[Dropped, ...]


def marks(meta: Meta, *, aged: int, staged: int) -> Marks:
    """Return how far the marks go: never back, and the horizon never past a pin or a replica.

    Args:
        meta: the small state at the head.
        aged: the version that was the head as long ago as the retention says.
        staged: the version that was the head as long ago as an upload may take.
    """
    aged = max(aged, meta.horizon)
    held = tuple(hold for hold in holds(meta) if hold.version < aged)
    horizon = min([aged, *(hold.version for hold in held)])  # against marks-pass-holds
    return Marks(max(staged, meta.fence), max(horizon, meta.horizon), aged, held)


def verdict(
    dropped: Mapping[str, Dropped], live: AbstractSet[str], fence: int, horizon: int
) -> Verdict:
    """Sort dropped segments into dead and waiting; what is live again is neither.

    Args:
        dropped: by key.
        live: the keys of those that are live at the version that carries the marks.
        fence: of that version.
        horizon: of that version.
    """
    # against live-again-deleted
    gone = [one for key, one in sorted(dropped.items()) if key not in live]
    # against dropped-above-the-fence-deleted, dropped-above-the-horizon-deleted
    dead = tuple(one for one in gone if one.version <= horizon and epoch_of(one.key) < fence)
    taken = {one.key for one in dead}
    return Verdict(dead, tuple(one for one in gone if one.key not in taken))


def unnamed(
    listed: Mapping[str, int], live: AbstractSet[str], dropped: Mapping[str, Dropped], fence: int
) -> list[Dropped]:
    """Return the listed objects that no commit made live: staged, and given up.

    Args:
        listed: key to size of objects under `data/`.
        live: the keys of those that are live at the version that carries the marks.
        dropped: by key: what was live once; `verdict` decides on those.
        fence: of that version.
    """
    return [
        Dropped(key, 0, size)
        for key, size in listed.items()
        # against unnamed-above-the-fence-deleted, live-uploads-deleted
        if key not in live and key not in dropped and epoch_of(key) < fence
    ]


def reason(one: Dropped, found: Marks) -> str:
    """Return what keeps a dropped segment: `retention`, `staging`, or `pin 'name' of owner`."""
    if one.version > found.aged:
        return "retention"
    for hold in found.held:
        if hold.version < one.version:
            return f"{hold.kind} {hold.name!r} of {hold.owner}"
    return "staging"


def epoch_of(key: str) -> int:
    """Return the epoch in a segment's key.

    Raises:
        Corrupt: the key is not of a segment (hazard V4).
    """
    parsed = keys.parse_segment_key(key)
    if parsed is None or keys.segment_key(*parsed) != key:  # against foreign-key-given-an-epoch
        raise Corrupt(f"{key[:80]!r} is no key of a segment", key=key[:80])
    return parsed[0]


def to_object(waiting: Iterable[Dropped]) -> bytes:
    """Return the object that keeps what waits for the next vacuum."""
    rows = sorted(waiting, key=lambda one: one.key)
    columns = [[one.key for one in rows], [one.version for one in rows], [o.bytes for o in rows]]
    return segments.to_parquet(pa.table(columns, schema=_PENDING))


def from_object(body: bytes, rows: int) -> dict[str, Dropped]:
    """Return what such an object holds, by key.

    Raises:
        Corrupt: it is something else.
    """
    table = segments.read_frame(body, rows)
    if table.column_names != _PENDING.names:
        raise Corrupt("the object that a vacuum left has other columns")
    columns = (column.to_pylist() for column in table.columns)
    found = {key: Dropped(key, version, size) for key, version, size in zip(*columns, strict=True)}
    for key in found:
        epoch_of(key)
    return found
