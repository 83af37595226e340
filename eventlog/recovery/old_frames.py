"""Objects under `_frames/` that nothing can name any more: what cuts of a log left (R22.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import limits
from eventlog.errors import Corrupt, KeyNotFound, NotFound, UnsupportedFormat
from eventlog.format import keys
from eventlog.format.frames import entry_columns, frame_bytes, stem_bytes
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add, Drop
from eventlog.model.records import KeyFrame
from eventlog.recovery import log_cut
from eventlog.store.parallel import HEADER_THREADS, each
from eventlog.store.port import ObjectStore

_NOTHING = pa.table({})
_LEAF, _SPILL, _STEM = "leaf", "spill", "stem"


def old_frames(log: Log, at_whole: Snapshot) -> list[str]:
    """Return the keys of leaves, stems and spills that no kept version names, and none ever will.

    Reads each object under `_frames/` that no kept key frame names, and where a spill is among
    them the commits of the kept versions, too. Stems come before their leaves: a stem without its
    leaves shows that these were deleted (R9.5).

    Args:
        log: of the table, which is no branch.
        at_whole: the version from which the log stays whole, over its own key frame.

    Raises:
        Corrupt: a commit of a kept version breaks the format.
        Unavailable: the store does not answer.
    """
    listed = [row.key for row in log.store.list(keys.FRAMES_PREFIX)]
    head = log.head()  # after the listing: whatever is listed drops nothing that is newer
    named = _named(log, at_whole.version)
    unknown = [key for key in listed if key not in named]
    found = [one for one in each(partial(_read, log.store), unknown) if one is not None]
    leaves = [f.key for f in found if f.kind == _LEAF and _is_ended_leaf(f.rows, at_whole)]
    gone = {*leaves}
    stems = [f.key for f in found if f.kind == _STEM and _is_ended_stem(log, f.leaves, gone)]
    spilled = [f for f in found if f.kind == _SPILL]
    return [*stems, *leaves, *(_ended_spills(log, spilled, at_whole, head) if spilled else ())]


class _Found(NamedTuple):
    """An object under `_frames/` of which nothing else is known."""

    key: str
    kind: str
    rows: pa.Table = _NOTHING
    leaves: Sequence[str] = ()  # of a stem: the keys of its leaves


def _read(store: ObjectStore, key: str) -> _Found | None:
    """Return the object under a key; None if it is something else, gone or damaged."""
    digest = key.removeprefix(keys.FRAMES_PREFIX).partition(".")[0]
    with suppress(Corrupt, KeyNotFound):
        if key == keys.stem_key(digest):
            leaves = stem_bytes.from_stem(store.get(key, length=limits.KEYFRAME_BYTES + 1))
            return _Found(key, _STEM, leaves=[keys.frame_key(leaf.sha256) for leaf in leaves])
        if key == keys.frame_key(digest):
            return _of_rows(key, store.get(key, length=limits.FRAME_BYTES + 1))
    return None


def _of_rows(key: str, body: bytes) -> _Found:
    """Return a leaf or a spill. Raises: Corrupt, if it is neither."""
    count = frame_bytes.rows_of_frame(body)
    try:
        return _Found(key, _LEAF, frame_bytes.from_parquet(body, count))
    except Corrupt:
        return _Found(key, _SPILL, frame_bytes.from_parquet(body, count, spilled=True))


def _named(log: Log, whole: int) -> set[str]:
    """Return the keys of what the key frames from a version on name, as far as these are sound."""
    named, known = set[str](), None
    listed = log.store.list(keys.LOG_PREFIX)
    for version, framed in filter(None, (keys.parse_log_key(row.key) for row in listed)):
        if version < whole:
            break
        if framed:
            with suppress(Corrupt, NotFound, UnsupportedFormat):
                root: KeyFrame = log.key_frames.root(version)
                pieces = log.key_frames.new_in(root, known)
                named.update(keys.piece_key(piece) for piece in pieces)
                known = root
    return named


def _is_ended_leaf(rows: pa.Table, at_whole: Snapshot) -> bool:
    entries = entry_columns.to_segments(rows)
    live = at_whole.live([Drop(entry.id, entry.chunk, "") for entry in entries])
    return log_cut.is_ended_leaf(entries, live, at_whole.version)


def _is_ended_stem(log: Log, leaves: Sequence[str], ended: set[str]) -> bool:
    """Return whether a leaf of a stem is deleted, or goes now."""
    return any(leaf in ended or not _is_there(log, leaf) for leaf in leaves)


def _is_there(log: Log, key: str) -> bool:
    try:
        log.store.get(key, length=1)
    except KeyNotFound:
        return False
    except Corrupt:
        return True
    return True


def _ended_spills(
    log: Log, found: Sequence[_Found], at_whole: Snapshot, head: Snapshot
) -> Iterator[str]:
    named, known = set[str](), {i.hex() for i in at_whole.entries().column("id").to_pylist()}
    versions = range(at_whole.version, head.version + 1)
    for commit, _ in each(log.read, versions, count=HEADER_THREADS):
        by = [transaction.spill for transaction in commit.transactions]
        named |= {keys.frame_key(s.sha256) for s in (*by, commit.delta.spill) if s is not None}
        done = spills.unpack(commit, log.spill).transactions
        known |= {a.id for t in done for a in t.actions if isinstance(a, Add)}
    for one in found:
        # against spill-of-a-kept-commit-deleted
        if one.key not in named and _is_ended_spill(log, one.rows, known, versions):
            yield one.key


def _is_ended_spill(log: Log, rows: pa.Table, known: AbstractSet[str], versions: range) -> bool:
    added, dropped = (rows.filter(mark) for mark in _marks(rows))
    ids = [i.hex() for i in added.column("id").to_pylist()]
    given = added.column("version").to_pylist()
    inline = [None] * len(ids)
    if entry_columns.INLINE.name in added.column_names:
        inline = added.column(entry_columns.INLINE.name).to_pylist()
    try:
        stored = zip(ids, given, entry_columns.object_keys(added), inline, strict=True)
        adds = [log_cut.SpilledAdd(*add) for add in stored]
        drops = [i.hex() for i in dropped.column("id").to_pylist()]
        return log_cut.is_ended_spill(
            adds, drops, known, versions, lambda key: not _is_there(log, key)
        )
    except (Corrupt, TypeError):
        return False


def _marks(rows: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return which rows of a spill are adds, and which are drops or deletes of rows."""
    drops = rows.column(entry_columns.SPILL_ACTION.name)
    return pc.invert(drops), drops
