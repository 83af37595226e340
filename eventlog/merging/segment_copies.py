"""Copies the segments that a merge adds to the target, under keys of the target's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventlog.copying.copier import COPY_BYTES, Copier, Item, read_checked
from eventlog.errors import CommitConflict, DataLoss, KeyNotFound
from eventlog.format import keys
from eventlog.merging.planning.carried import Carried
from eventlog.model.entries import Segment
from eventlog.session.session import Session
from eventlog.store.parallel import read_ahead, threads
from eventlog.store.retry import retrying

_THREADS = 8


class SegmentCopies:
    """Copies segments to the target, each once per epoch.

    Args:
        source: the table to merge from.
        target: the table to merge into.

    Attributes:
        segments: number of segments that were copied.
        bytes: their size.
        gone: a segment that the last `copy` did not find, and its key; None if it found all.
    """

    def __init__(self, source: Session, target: Session) -> None:
        self._source, self._target = source, target
        self._copier = Copier(source.store, target.store, target.clock)
        self._staged: dict[str, int] = {}  # by id: the epoch under which the target has it
        self.segments = self.bytes = 0
        self.gone: tuple[Segment, str] | None = None

    def epoch_of(self, entry: Segment) -> int:
        """Return the epoch of the key under which a copied segment is stored at the target."""
        return self._staged[entry.id]

    def copy(self, carried: Carried) -> bool:
        """Copy the segments that the target lacks; return whether all of them were found."""
        head = self._target.head()
        fence = head.meta.fence
        pending = [s for s in carried.adds if self._staged.get(s.id, -1) < fence]
        if not pending:
            return True
        epoch = head.version
        with threads(_THREADS) as pool:
            answers = read_ahead(
                pool,
                pending,
                lambda entry: (entry, self._copy_one(entry, epoch, carried.copies.get(entry.id))),
                weigh=lambda entry: entry.bytes,
                most=COPY_BYTES,
            )
            gone = None
            for entry, there in answers:
                if there:
                    self._staged[entry.id] = epoch
                    self.segments += 1
                    self.bytes += entry.bytes
                else:
                    gone = (entry, keys.key_of(entry))
        self.gone = gone
        return gone is None

    def _copy_one(
        self, entry: Segment, epoch: int, places: Sequence[tuple[bool, str]] | None = None
    ) -> bool:
        """Copy an object to a key of the target; return whether the object exists (R19.4).

        Args:
            entry: the segment's entry.
            epoch: the epoch of the new key.
            places: where the object may be, as (whether at the target, key); None: under its own
                key at the source.
        """
        places = places or ((False, keys.key_of(entry)),)
        return any(self._copy_from(*place, entry, epoch) for place in places)

    def _copy_from(self, mine: bool, key: str, entry: Segment, epoch: int) -> bool:
        store = self._target.store if mine else self._source.store
        new_key = keys.segment_key(epoch, entry.chunk, entry.id)
        item = Item(key, "segment", entry.version, entry.bytes, entry.checksum)
        if self._copier.copied_within(item, new_key, store):
            return True
        try:
            body = read_checked(partial(retrying(self._target.clock), store.get), item, store.uri)
        except KeyNotFound:
            return False
        try:
            self._copier.put(new_key, body)
        except CommitConflict:
            raise DataLoss(
                "the target has other bytes under this key than the log describes, such as "
                "damage that was copied before: delete this object there, and merge again",
                table=self._target.uri,
                key=new_key,
                version=entry.version,
            ) from None
        return True


def is_there(of: Session, key: str) -> bool:
    """Return whether an object exists. Costs one GET."""
    try:
        retrying(of.clock)(lambda key: of.store.get(key, length=1), key)
    except KeyNotFound:
        return False
    return True
