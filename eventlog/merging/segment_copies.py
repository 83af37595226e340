"""Copies the segments that a merge adds to the target, under keys of the target's epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType
from pyroaring import BitMap64

from eventlog.copying.copier import COPY_BYTES, Copier, Item, read_checked
from eventlog.errors import CommitConflict, DataLoss, KeyNotFound
from eventlog.format import keys
from eventlog.format.deletion_vectors import (
    decode_vector,
    encode_bitmap,
    join_bitmaps,
    most_in_log,
    positions_in_entry,
    vector_hash,
)
from eventlog.log.snapshot import Snapshot
from eventlog.merging.planning.carried import Carried
from eventlog.merging.planning.forms import (
    ObjectPlace,
    SegmentParts,
    form_id,
    form_of,
    object_place,
    segment_id,
    segment_of_form,
)
from eventlog.model.actions import Add, Drop
from eventlog.model.entries import Segment, Vector, stored_bitmap
from eventlog.session.session import Session
from eventlog.state.delta import add_of
from eventlog.store.parallel import read_ahead, threads
from eventlog.store.retry import put_once, retrying

_THREADS = 8


@dataclass(frozen=True, slots=True)
class NewForm:
    """A form that a segment gets at the target.

    Attributes:
        entry: the segment as the log that has it names it; with its vector, unless it is divided.
        live: the target's entry so far; None: the segment is not live there.
        name: of the form, or what stands for it until its vector is encoded.
        lacking: of a divided segment, the positions of the rows that the form lacks.
        places: where the object is, as in `Carried.copies`.
    """

    entry: Segment
    live: Segment | None
    name: str
    lacking: BitMap64 | None
    places: Sequence[ObjectPlace]

    @property
    def has_vector(self) -> bool:
        """Whether rows of the form are deleted."""
        if self.lacking is not None:
            return bool(self.lacking)
        return not isinstance(self.entry.vector, UnsetType)


class SegmentCopies:
    """Copies segments to the target, each once per epoch.

    Args:
        source: the table to merge from.
        target: the table to merge into.

    Attributes:
        segments: number of segments that were copied.
        bytes: their size.
        gone: a segment that the last `copy` did not find, and its key; None if it found all.
        parts: the parts of segments that a plan speaks of.
    """

    def __init__(self, source: Session, target: Session) -> None:
        self._source, self._target = source, target
        self._copier = Copier(source.store, target.store, target.clock)
        self._staged: dict[str, int] = {}  # by id: the epoch under which the target has it
        self._inline: dict[str, bytes] = {}  # by id: the bytes that the commit will have
        self._vectors: dict[str, Vector] = {}  # by name of a form: as the target has its vector
        self.segments = self.bytes = 0
        self.gone: tuple[Segment, str] | None = None
        self.parts = SegmentParts()

    def new_forms(
        self, carried: Carried, head: Snapshot
    ) -> tuple[list[Segment], dict[str, tuple[NewForm, frozenset[str]]]]:
        """Return what a planned transaction means for the segments of this head of the target.

        First come the live entries to drop. Second come the forms of the segments to add, by the
        segments' ids, with their parts. A segment of which only rows come or go is in both.

        Raises:
            CommitConflict: segments that it changes were dropped or changed meanwhile.
        """
        gone: dict[str, set[str]] = {}
        added: dict[str, list[Segment]] = {}
        chunks = {segment_id(i): chunk for i, chunk in carried.drops}
        for name, _ in carried.drops:
            gone.setdefault(segment_id(name), set()).add(name)
        for part in carried.adds:
            added.setdefault(segment_id(part.id), []).append(part)
            if self.parts.divides(part.id):
                chunks[segment_id(part.id)] = part.chunk
        live = head.live([Drop(name, chunk, "") for name, chunk in chunks.items()])
        drops, forms = list[Segment](), dict[str, tuple[NewForm, frozenset[str]]]()
        for name in (*(n for n in gone if n not in added), *added):
            entry = live.get(name)
            form = None if entry is None else form_of(entry).id
            is_known = form is None or self.parts.is_known(form)
            before = self.parts.ids(form) if form is not None and is_known else frozenset()
            # against rows-deleted-meanwhile-brought-back
            if not (is_known and gone.get(name, set()) <= before):
                raise CommitConflict("segments were dropped meanwhile", table=self._target.uri)
            parts = before - gone.get(name, set()) | {part.id for part in added.get(name, ())}
            if parts == before:
                continue
            drops += [] if entry is None else [entry]
            if parts:
                new = self._new_form(name, parts, added.get(name, ()), entry, carried)
                forms[name] = new, parts
        return drops, forms

    def _new_form(
        self,
        name: str,
        parts: frozenset[str],
        added: Sequence[Segment],
        live: Segment | None,
        carried: Carried,
    ) -> NewForm:
        """Return the form of a segment that has these parts.

        Args:
            name: the segment's id.
            parts: ids of the parts.
            added: those of them that come from the source.
            live: the target's entry so far; None: the segment is not live there.
            carried: the planned transaction.
        """
        places = next((carried.copies[p.id] for p in added if p.id in carried.copies), ())
        if not self.parts.divides(name):
            [form] = added
            entry = segment_of_form(form)
            return NewForm(entry, live, form.id, None, places or (object_place(form),))
        entry = self.parts.whole(added[0]) if live is None else live
        return NewForm(
            entry,
            live,
            f"{name} {' '.join(sorted(parts))}",
            self.parts.lacking(name, parts),
            places or (object_place(entry),),
        )

    def add_of(self, form: NewForm) -> Add:
        """Return the add by which a form that was copied becomes live at the target."""
        add = add_of(form.entry if form.live is None else form.live)
        if form.live is None:
            # against inline-of-another-log
            add = msgspec.structs.replace(
                add,
                epoch=self._staged[add.id],
                inline=UNSET,
                parquet=self._inline.get(add.id, UNSET),
            )
        return msgspec.structs.replace(add, vector=self._vectors.get(form.name, UNSET))

    def note(self, forms: Mapping[str, tuple[NewForm, frozenset[str]]]) -> None:
        """Note which parts the forms have that were committed."""
        for name, (form, parts) in forms.items():
            if self.parts.divides(name):
                vector = self._vectors.get(form.name)
                self.parts.note(
                    name if vector is None else form_id(name, vector_hash(vector)), parts
                )

    def copy(self, carried: Carried) -> bool:
        """Copy the objects that the target lacks; return whether all of them were found.

        Of a segment that the target has, and of which only other rows are to be deleted, that is
        the vector alone.

        Raises:
            CommitConflict: segments that it changes were dropped or changed meanwhile.
        """
        head = self._target.head()
        _, found = self.new_forms(carried, head)
        forms = [form for form, _ in found.values()]
        new = [(form.entry, form.places) for form in forms if form.live is None]
        self.gone = self._copy_objects(new, head) or self._copy_vectors(forms, head)
        return self.gone is None

    def copy_early(self, forms: Sequence[Segment], drops: Collection[str]) -> bool:
        """Copy the objects of forms of the source; return whether all they need was found.

        Args:
            forms: the forms, or parts.
            drops: ids of forms and parts whose segments the target has.
        """
        head, kept = self._target.head(), set(map(segment_id, drops))
        entries = {
            segment_id(form.id): self.parts.whole(form)
            if self.parts.divides(form.id)
            else segment_of_form(form)
            for form in forms
            if segment_id(form.id) not in kept
        }
        new = [(entry, (object_place(entry),)) for entry in entries.values()]
        self.gone = self._copy_objects(new, head)
        for form in forms if self.gone is None else ():
            stored = stored_bitmap(form.vector)
            if stored is not None and read_vector(self._source, form) is None:
                self.gone = form, keys.vectors_key(stored)
        return self.gone is None

    def is_there(self, place: ObjectPlace) -> bool:
        """Return whether an object exists. Costs one GET."""
        return is_there(self._target if place.mine else self._source, place.needed)

    def _copy_objects(
        self, new: Iterable[tuple[Segment, Sequence[ObjectPlace]]], head: Snapshot
    ) -> tuple[Segment, str] | None:
        """Copy segments' objects from their places; return a segment that is gone, if any."""
        fence, epoch, gone = head.meta.fence, head.version, None
        pending = [item for item in new if self._staged.get(item[0].id, -1) < fence]
        with threads(_THREADS) as pool:
            answers = read_ahead(
                pool,
                pending,
                lambda item: (item, self._copy_one(*item, epoch)),
                weigh=lambda item: item[0].bytes,
                most=COPY_BYTES,
            )
            for (entry, places), there in answers:
                if there:
                    self._staged[entry.id] = epoch
                    self.segments += 1
                    self.bytes += entry.bytes
                else:
                    gone = entry, places[0].key
        return gone

    def _copy_vectors(self, forms: Sequence[NewForm], head: Snapshot) -> tuple[Segment, str] | None:
        """Store the larger vectors of forms in one object; return a form whose vector is gone."""
        bitmaps = dict[str, tuple[bytes, int]]()  # by name of a form, with the number of rows
        stored = set[str]()  # those that the source stores, too
        for form in forms:
            if self._has_vector(form, head.meta.fence):
                continue
            place = stored_bitmap(form.entry.vector) if form.lacking is None else None
            found = self._bitmap_of(form)
            if found is None:
                assert place is not None  # noqa: S101 - nothing else is gone
                return form.entry, keys.vectors_key(place)
            bitmaps[form.name] = found
            stored |= {form.name} if place is not None else set()
        most = most_in_log([bitmap for n, (bitmap, _) in bitmaps.items() if n not in stored])
        large = [n for n, (bitmap, _) in bitmaps.items() if n in stored or len(bitmap) > most]
        self._vectors |= {n: Vector(rows, bitmap) for n, (bitmap, rows) in bitmaps.items()}
        if large:
            clock, some = self._target.clock, [bitmaps[name][0] for name in large]
            body, places = join_bitmaps(head.version, clock.random_id(), some)
            put_once(self._target.store, clock, keys.vectors_key(places[0]), body)
            for name, at in zip(large, places, strict=True):
                self._vectors[name] = Vector(bitmaps[name][1], stored=at)
        return None

    def _has_vector(self, form: NewForm, fence: int) -> bool:
        """Return whether nothing has to be copied for the vector of a form."""
        known = self._vectors.get(form.name)
        stored = None if known is None else stored_bitmap(known)
        is_known = known is not None and (stored is None or stored.epoch >= fence)
        return is_known or not form.has_vector

    def _bitmap_of(self, form: NewForm) -> tuple[bytes, int] | None:
        """Return the bitmap of a form, and the number of its rows; None: it is gone."""
        if form.lacking is not None:
            return encode_bitmap(form.lacking), len(form.lacking)
        log = self._target if form.places[0][0] else self._source
        found = read_vector(log, form.entry)
        return None if found is None else (found[0], len(found[1]))

    def _copy_one(self, entry: Segment, places: Sequence[ObjectPlace], epoch: int) -> bool:
        """Copy an object to a key of the target; return whether the object exists (R19.4).

        Args:
            entry: the segment's entry.
            places: where the object may be, as (whether at the target, key).
            epoch: the epoch of the new key.
        """
        return any(self._copy_from(place, entry, epoch) for place in places)

    def _copy_from(self, place: ObjectPlace, entry: Segment, epoch: int) -> bool:
        store = self._target.store if place.mine else self._source.store
        new_key = keys.segment_key(epoch, entry.chunk, entry.id)
        item = Item(
            place.key,
            "segment",
            entry.version,
            entry.bytes,
            entry.checksum,
            inline=place.inline,
        )
        if self._copier.copied_within(item, new_key, store):
            return True
        try:
            body = read_checked(partial(retrying(self._target.clock), store.get), item, store.uri)
        except KeyNotFound:
            return False
        if place.inline is not None:  # it stands in the commit there, and will here
            self._inline[entry.id] = bytes(body)
            return True
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


def read_vector(log: Session, form: Segment) -> tuple[bytes, BitMap64] | None:
    """Return the bitmap of a form's vector and the positions that it deletes; None: it is gone.

    Costs one GET if it is stored.

    Raises:
        DataLoss: it is damaged.
    """
    vector, stored = form.vector, stored_bitmap(form.vector)
    assert not isinstance(vector, UnsetType)  # noqa: S101 - only of those that have one
    if stored is None:
        return vector.bitmap or b"", positions_in_entry(vector, form.rows)
    read, key = retrying(log.clock), keys.vectors_key(stored)
    try:
        bitmap = read(log.store.get, key, start=stored.offset, length=stored.size)
    except KeyNotFound:
        return None
    try:
        # against damaged-vector-merged
        return bitmap, decode_vector(bitmap, vector, form.rows)
    except DataLoss as error:
        error.table, error.key, error.version = log.store.uri, key, form.version
        raise


def is_there(of: Session, key: str) -> bool:
    """Return whether an object exists. Costs one GET."""
    try:
        retrying(of.clock)(lambda key: of.store.get(key, length=1), key)
    except KeyNotFound:
        return False
    return True
