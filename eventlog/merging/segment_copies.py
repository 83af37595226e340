"""Copies the segments that a merge adds to the target, under keys of the target's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import UnsetType

from eventlog.copying.copier import COPY_BYTES, Copier, Item, read_checked
from eventlog.errors import CommitConflict, DataLoss, KeyNotFound
from eventlog.format import keys
from eventlog.format.deletion_vectors import decode_vector, join_bitmaps
from eventlog.log.snapshot import Snapshot
from eventlog.merging.planning.carried import Carried
from eventlog.merging.planning.forms import object_key, segment_id, segment_of_form
from eventlog.model.actions import Add
from eventlog.model.entries import Segment, StoredBitmap, Vector, stored_bitmap
from eventlog.session.session import Session
from eventlog.state.delta import add_of
from eventlog.store.parallel import read_ahead, threads
from eventlog.store.retry import put_once, retrying

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
        # By id of a form: where the target has its vector, unless that stands in the entry.
        self._stored: dict[str, StoredBitmap] = {}
        self.segments = self.bytes = 0
        self.gone: tuple[Segment, str] | None = None

    def add_of(self, form: Segment, live: Segment | None) -> Add:
        """Return the add of the target by which a form that was copied becomes live.

        Args:
            form: the form.
            live: the target's entry of the segment, of which only the vector changes; None: the
                segment was copied.
        """
        add = add_of(segment_of_form(form) if live is None else live)
        if live is None:
            add = msgspec.structs.replace(add, epoch=self._staged[add.id])
        stored = self._stored.get(form.id)
        vector = form.vector
        if stored is not None and not isinstance(vector, UnsetType):
            vector = Vector(vector.rows, stored=stored)
        return msgspec.structs.replace(add, vector=vector)

    def copy(self, carried: Carried) -> bool:
        """Copy the objects that the target lacks; return whether all of them were found.

        Of a segment that the target has, and of which only other rows are to be deleted, that is
        the vector alone.
        """
        head = self._target.head()
        fence, epoch = head.meta.fence, head.version
        kept = {segment_id(i) for i, _ in carried.drops}
        pending = [
            form
            for form in {segment_id(s.id): s for s in carried.adds}.values()
            if segment_id(form.id) not in kept and self._staged.get(segment_id(form.id), -1) < fence
        ]
        gone = None
        with threads(_THREADS) as pool:
            answers = read_ahead(
                pool,
                pending,
                lambda entry: (entry, self._copy_one(entry, epoch, carried.copies.get(entry.id))),
                weigh=lambda entry: entry.bytes,
                most=COPY_BYTES,
            )
            for entry, there in answers:
                if there:
                    self._staged[segment_id(entry.id)] = epoch
                    self.segments += 1
                    self.bytes += entry.bytes
                else:
                    gone = (entry, object_key(entry))
        self.gone = gone or self._copy_vectors(carried, head)
        return self.gone is None

    def _copy_vectors(self, carried: Carried, head: Snapshot) -> tuple[Segment, str] | None:
        """Copy stored vectors to one object; return a form whose vector is gone, if any."""
        fence, epoch = head.meta.fence, head.version
        pending, bitmaps = list[str](), list[bytes]()
        for form in carried.adds:
            vector, stored = form.vector, stored_bitmap(form.vector)
            known = self._stored.get(form.id)
            is_copied = known is not None and known.epoch >= fence
            if isinstance(vector, UnsetType) or stored is None or is_copied:
                continue
            mine = carried.copies.get(form.id, ((False, ""),))[0][0]
            store = self._target.store if mine else self._source.store
            key = keys.vectors_key(stored)
            read = partial(
                retrying(self._target.clock), store.get, start=stored.offset, length=stored.size
            )
            try:
                bitmap = read(key)
            except KeyNotFound:
                return form, key
            try:
                decode_vector(bitmap, vector, form.rows)  # against damaged-vector-merged
            except DataLoss as error:
                error.table, error.key, error.version = store.uri, key, form.version
                raise
            bitmaps.append(bitmap)
            pending.append(form.id)
        if pending:
            clock = self._target.clock
            body, places = join_bitmaps(epoch, clock.random_id(), bitmaps)
            put_once(self._target.store, clock, keys.vectors_key(places[0]), body)
            self._stored.update(zip(pending, places, strict=True))
        return None

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
        places = places or ((False, object_key(entry)),)
        return any(self._copy_from(*place, entry, epoch) for place in places)

    def _copy_from(self, mine: bool, key: str, entry: Segment, epoch: int) -> bool:
        store = self._target.store if mine else self._source.store
        new_key = keys.segment_key(epoch, entry.chunk, segment_id(entry.id))
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
