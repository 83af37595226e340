"""The objects of staged segments: which are missing in the store, and which ids are fresh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from msgspec import UnsetType

from eventlog.errors import Corrupt, KeyNotFound
from eventlog.format import keys
from eventlog.model.actions import Add
from eventlog.model.entries import stored_bitmap
from eventlog.store.parallel import INTENT_THREADS, each
from eventlog.store.port import ObjectStore

MAX_VOUCHED = 100_000  # ids of uploads that are remembered as fresh


class StagedSegments:
    """Looks for the objects that adds name, and remembers those that this process stored.

    Safe to use from several threads.

    Args:
        store: the store of the table.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = Lock()
        self._vouched: set[tuple[str, int, str]] = set()  # (id, epoch, chunk) of uploads

    def vouch(self, adds: Iterable[Add]) -> None:
        """Record uploads whose ids were generated at random for them alone.

        Judging their adds needs no leaf of the key frame, because their ids cannot be in it.
        """
        with self._lock:
            if len(self._vouched) > MAX_VOUCHED:
                self._vouched.clear()  # only costs reads of leaves
            self._vouched.update((add.id, add.epoch, add.chunk) for add in adds)

    def fresh(self, adds: Iterable[Add]) -> frozenset[tuple[str, int, str]]:
        """Return the (id, epoch, chunk) of those adds whose uploads were recorded by `vouch`."""
        names = ((add.id, add.epoch, add.chunk) for add in adds)
        return frozenset(name for name in names if name in self._vouched)

    def lost(self, adds: Iterable[Add]) -> set[str]:
        """Return the ids of adds whose objects do not exist. One GET of one byte for each object.

        Nothing is sent for the uploads that this process vouches for.

        Raises:
            Unavailable: the store does not answer.
        """
        unknown = [a for a in adds if (a.id, a.epoch, a.chunk) not in self._vouched]
        missing = each(self._is_missing, unknown, count=INTENT_THREADS)
        return {add.id for add, is_missing in zip(unknown, missing, strict=True) if is_missing}

    def missing(self, adds: Sequence[Add]) -> list[str]:
        """Return the keys of adds' objects that do not exist. One GET of one byte each.

        Raises:
            Corrupt: an add has a name that no object can have.
            Unavailable: the store does not answer.
        """
        return [key for key in each(self._missing_key, adds) if key is not None]

    def _is_missing(self, add: Add) -> bool:
        try:
            return self._missing_key(add) is not None
        except Corrupt:  # no object has such a name
            return True

    def _missing_key(self, add: Add) -> str | None:
        needed: list[str] = []
        stands = add.inline
        in_commit = not isinstance(stands, UnsetType) and self._is_there(keys.commit_key(stands))
        if isinstance(add.parquet, UnsetType) and not in_commit:
            needed.append(keys.segment_key(add.epoch, add.chunk, add.id))
        stored = stored_bitmap(add.vector)
        if stored is not None:  # against vectors-never-looked-for
            needed.append(keys.vectors_key(stored))
        return next((key for key in needed if not self._is_there(key)), None)

    def _is_there(self, key: str) -> bool:
        try:
            self._store.get(key, length=1)
        except KeyNotFound:
            return False
        return True
