"""Vacuum's decisions: how far fence and horizon may move, and which objects are garbage.

No I/O (FORMAT.md "Vacuum"). Which objects are garbage follows from the log alone. Clocks only
propose how far the marks move, so a wrong clock may cost a writer or reader a retry, but never
loses rows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.format.frames import frame_bytes
from eventlog.model.actions import Drop
from eventlog.model.records import CommitChanges, Meta
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
    """The object of a dropped segment, or of vectors: the version that dropped it, and its size.

    Vectors are dropped by the last version in which an entry ceased to name one of them.
    """

    key: str
    version: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Marks:
    """How far fence and horizon move.

    Attributes:
        fence: staged objects of epochs below it are garbage.
        horizon: segments dropped at or below it are garbage.
        aged: the horizon that the retention alone would allow.
        held: the pins and replicas that keep the horizon below `aged`, oldest first.
    """

    fence: int
    horizon: int
    aged: int
    held: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Dropped segments: garbage is deleted now, the others have a reason to wait."""

    garbage: tuple[Dropped, ...]
    waiting: tuple[Dropped, ...]


def marks(meta: Meta, *, aged: int, staged: int) -> Marks:
    """Return the new marks: never lower, and the horizon never past a pin or a replica.

    Args:
        meta: the small state at the head.
        aged: the version that was the head when the retention period began.
        staged: the version that was the head when the oldest permitted upload may have started.
    """
    aged = max(aged, meta.horizon)
    blockers = tuple(hold for hold in holds(meta) if hold.version < aged)
    horizon = min([aged, *(hold.version for hold in blockers)])  # against marks-pass-holds
    return Marks(max(staged, meta.fence), max(horizon, meta.horizon), aged, blockers)


def is_worth_raising(
    low: int, high: int, dropped: Iterable[Dropped], deleted: int, *, published: bool
) -> bool:
    """Return whether a horizon that rises from `low` to `high` frees or hides something.

    If not, it stays: the versions between show nothing that `high` does not need, and keeping them
    readable stores no object more (FORMAT.md 10.1).

    Args:
        low: the horizon of the table.
        high: the horizon that retention and holds would allow.
        dropped: the objects that commits above `low` dropped, and that are still stored.
        deleted: the rows that vectors delete at `high`: older versions may show them.
        published: whether versions are published for other engines, which a vacuum cuts at the
            horizon.
    """
    if published:  # against publication-below-kept-for-ever
        return True
    if deleted:  # against row-deleted-by-a-vector-readable-for-ever
        return True
    return any(low < d.version <= high for d in dropped)  # against dropped-below-kept-for-ever


def is_of_vacuum(changes: CommitChanges) -> bool:
    """Return whether a vacuum made a commit, alone, so that it changed no segment and no row."""
    segments = changes.adds, changes.drops, changes.vectors or 0
    return changes.operation == "vacuum" and changes.transactions == 1 and segments == (0, 0, 0)


def verdict(
    dropped: Mapping[str, Dropped], live: Container[str], fence: int, horizon: int
) -> Verdict:
    """Split dropped segments into garbage and waiting; those that are live again are neither.

    Args:
        dropped: the dropped segments, by key.
        live: the keys of the objects that live entries name at the version that set the marks.
        fence: the fence of that version.
        horizon: the horizon of that version.
    """
    # against live-again-deleted
    gone = [segment for key, segment in sorted(dropped.items()) if key not in live]
    # against dropped-above-the-fence-deleted, dropped-above-the-horizon-deleted
    garbage = tuple(d for d in gone if d.version <= horizon and object_epoch(d.key) < fence)
    garbage_keys = {segment.key for segment in garbage}
    waiting = tuple(segment for segment in gone if segment.key not in garbage_keys)
    return Verdict(garbage, waiting)


def unnamed(
    listed: Mapping[str, int], live: Container[str], dropped: Mapping[str, Dropped], fence: int
) -> list[Dropped]:
    """Return the listed objects that no commit made live: staged, and abandoned.

    Args:
        listed: the sizes of the objects under `data/`, by key.
        live: the keys of the objects that live entries name at the version that set the marks.
        dropped: segments that were live before, by key; `verdict` decides on these.
        fence: the fence of that version.
    """
    return [
        Dropped(key, 0, size)
        for key, size in listed.items()
        # against unnamed-above-the-fence-deleted, live-uploads-deleted
        if key not in live and key not in dropped and object_epoch(key) < fence
    ]


def spared(objects: Iterable[Dropped], live: Mapping[str, int]) -> list[Dropped]:
    """Return the objects whose ids are live in other objects, which alone keeps them.

    Args:
        objects: dropped or abandoned objects.
        live: for the keys whose ids are live, the epochs of the live segments.
    """
    return [d for d in objects if d.key in live and object_epoch(d.key) != live[d.key]]


def reason(dropped: Dropped, limits: Marks) -> str:
    """Return why a dropped segment is kept: `retention`, `staging`, or `pin 'name' of owner`."""
    if dropped.version > limits.aged:
        return "retention"
    for hold in limits.held:
        if hold.version < dropped.version:
            return f"{hold.kind} {hold.name!r} of {hold.owner}"
    return "staging"


def object_epoch(key: str) -> int:
    """Return the epoch in the key of a segment or of deletion vectors.

    Raises:
        Corrupt: it is the key of something else (hazard V4).
    """
    return _parsed(key)[0]


def object_id(key: str) -> str:
    """Return the id in the key of a segment or of deletion vectors.

    Raises:
        Corrupt: it is the key of something else.
    """
    return _parsed(key)[1]


def drops_of_keys(names: Iterable[str]) -> list[Drop]:
    """Return the drops by which a snapshot finds the segments of keys that are live.

    Nothing is returned for objects of deletion vectors.
    """
    parsed = (keys.parse_segment_key(key) for key in names)
    return [Drop(p[2], p[1], "") for p in parsed if p]


def to_object(waiting: Iterable[Dropped]) -> bytes:
    """Return the record of the segments that wait for the next vacuum, as Parquet."""
    rows = sorted(waiting, key=lambda row: row.key)
    columns = [[row.key for row in rows], [row.version for row in rows], [r.bytes for r in rows]]
    return frame_bytes.to_parquet(pa.table(columns, schema=_PENDING))


def from_object(body: bytes, rows: int, last: int) -> dict[str, Dropped]:
    """Return the segments in a record of `to_object`, by key.

    Args:
        body: the record.
        rows: the number of segments in it.
        last: the last version that the vacuum which made the record examined.

    Raises:
        Corrupt: the object is not such a record.
    """
    table = frame_bytes.read_frame(body, rows)
    if table.column_names != _PENDING.names:
        raise Corrupt("the record of the last vacuum has the wrong columns")
    columns = (column.to_pylist() for column in table.columns)
    dropped = {
        key: Dropped(key, version, size) for key, version, size in zip(*columns, strict=True)
    }
    for key, row in dropped.items():
        object_epoch(key)
        if not 0 <= row.version <= last:
            raise Corrupt(
                f"the record of the last vacuum has a segment dropped in version {row.version}, "
                f"but it ends at version {last}"
            )
    return dropped


def _parsed(key: str) -> tuple[int, str]:
    parsed = keys.parse_data_key(key)
    if parsed is None:  # against foreign-key-given-an-epoch
        raise Corrupt(f"{key[:80]!r} is not the key of a segment or of vectors", key=key[:80])
    return parsed
