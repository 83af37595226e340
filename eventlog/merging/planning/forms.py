"""Forms and parts of segments: what a merge compares in place of segments. No I/O.

A segment of which rows are deleted shows other rows than before. So each state of its deletion
vector is a form (MERGING.md R19.12). The id of a form is that of the segment, and for a vector the
hash of its bitmap behind it: two logs that deleted the same rows have the same form.

Where both logs deleted rows of one segment, planners look at its parts: the rows that each of its
forms either shows or lacks together. To delete rows is to drop parts. Parts of other segments are
their forms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from pyroaring import BitMap64

from eventlog.format import keys
from eventlog.format.deletion_vectors import vector_hash
from eventlog.model.entries import Segment

_ID = 32  # characters of a segment's id


def form_of(segment: Segment) -> Segment:
    """Return the form of a segment."""
    if isinstance(segment.vector, UnsetType):
        return segment
    # against form-without-its-vector
    return msgspec.structs.replace(segment, id=form_id(segment.id, vector_hash(segment.vector)))


def form_id(name: str, vector_hash: str) -> str:
    """Return the id of a form with a vector, from the id of its segment and the vector's hash."""
    return f"{name}:{vector_hash}"


def segment_of_form(form: Segment) -> Segment:
    """Return the segment of a form."""
    return msgspec.structs.replace(form, id=segment_id(form.id))


def segment_id(name: str) -> str:
    """Return the id of the segment of a form or a part, from its id."""
    return name[:_ID]


def is_part(name: str) -> bool:
    """Return whether this is the id of a part of a divided segment."""
    return name[_ID : _ID + 1] == "/"


class ObjectPlace(NamedTuple):
    """Where the object of a segment may be.

    Attributes:
        mine: whether at the target; else at the source.
        key: its key there.
        inline: the version of the commit there that has its bytes; None: none has.
    """

    mine: bool
    key: str
    inline: int | None

    @property
    def needed(self) -> str:
        """The key of the object that has the bytes: its own, or that of the commit."""
        return self.key if self.inline is None else keys.commit_key(self.inline)


def object_place(form: Segment, *, mine: bool = False) -> ObjectPlace:
    """Return where the object is that has the rows of a form or a part, among others.

    Args:
        form: as the log that has it names it.
        mine: whether that is the target.
    """
    key = keys.segment_key(form.epoch, form.chunk, segment_id(form.id))
    return ObjectPlace(mine, key, None if isinstance(form.inline, UnsetType) else form.inline)


class SegmentParts:
    """The parts of some segments.

    A part is a `Segment` with an id of its own, with the rows of the part alone, without a vector.

    Args:
        segments: an entry of each segment to divide, by id.
        forms: by id the forms that the two logs gave these segments, with the positions that each
            of them lacks.
    """

    def __init__(
        self,
        segments: Mapping[str, Segment] | None = None,
        forms: Mapping[str, BitMap64] | None = None,
    ) -> None:
        self._segments = segments or {}
        self._positions: dict[str, BitMap64] = {}
        self._of: dict[str, frozenset[str]] = {}
        lacking: dict[str, dict[str, BitMap64]] = {name: {} for name in self._segments}
        for form, deleted in (forms or {}).items():
            lacking[segment_id(form)][form] = deleted
        for name, entry in self._segments.items():
            divided = sorted(_divided(entry.rows, lacking[name].values()), key=min)
            parts = {f"{name}/{n}": rows for n, rows in enumerate(divided)}
            self._positions.update(parts)
            for form, deleted in lacking[name].items():
                shown = [part for part, rows in parts.items() if rows.isdisjoint(deleted)]
                self.note(form, shown)

    def divides(self, name: str) -> bool:
        """Return whether the segment of a form or a part is divided."""
        return segment_id(name) in self._segments

    def is_known(self, form: str) -> bool:
        """Return whether a form, by its id, is one that was named when its segment was divided."""
        return form in self._of or not self.divides(form)

    def ids(self, form: str) -> frozenset[str]:
        """Return the ids of the parts of a form: its own id where its segment is not divided."""
        return self._of[form] if self.divides(form) else frozenset([form])

    def of(self, form: Segment) -> list[Segment]:
        """Return the parts of a form."""
        if not self.divides(form.id):
            return [form]
        return [
            msgspec.structs.replace(
                form,
                id=part,
                rows=len(self._positions[part]),
                # Parts of one object are not the same rows.
                checksum=f"{form.checksum}/{part[_ID + 1 :]}",
                vector=UNSET,
            )
            for part in sorted(self._of[form.id])
        ]

    def whole(self, part: Segment) -> Segment:
        """Return the entry, without a vector, of the segment of a part."""
        entry = self._segments[segment_id(part.id)]
        return msgspec.structs.replace(
            part, id=segment_id(part.id), rows=entry.rows, checksum=entry.checksum
        )

    def lacking(self, name: str, parts: Collection[str]) -> BitMap64:
        """Return the positions of a divided segment, by its id, that are in none of these parts."""
        return _all_rows(self._segments[name].rows).difference(*(self._positions[p] for p in parts))

    def note(self, form: str, parts: Collection[str]) -> None:
        """Note that a form of a divided segment, by its id, has these parts."""
        self._of[form] = frozenset(parts)


def divide(
    entries: Mapping[str, Segment],
    forms: Mapping[str, BitMap64 | None],
    passed: Mapping[str, Collection[str]],
) -> SegmentParts:
    """Return the parts of segments, as far as the vectors of their forms exist.

    A form whose vector is gone has the rows of the forms after it if it is passed. Else its segment
    is not divided.

    Args:
        entries: an entry of each segment, by id.
        forms: the positions that each form lacks, by id; None: its vector is gone.
        passed: by id the forms that both logs know to be replaced, with those that came after each.
    """
    gone = {name for name, deleted in forms.items() if deleted is None}
    # against segment-divided-without-a-vector
    whole = {segment_id(name) for name in gone - passed.keys()}
    parts = SegmentParts(
        {name: entry for name, entry in entries.items() if name not in whole},
        {n: d for n, d in forms.items() if d is not None and segment_id(n) not in whole},
    )
    for name in sorted(gone):
        if parts.divides(name):
            later, pending = set[str](), [name]
            while pending:
                more = set(passed.get(pending.pop(), ())) - later
                later |= more
                pending += more & gone
            parts.note(name, frozenset().union(*(parts.ids(form) for form in later - gone)))
    return parts


def _divided(rows: int, lacking: Iterable[BitMap64]) -> list[BitMap64]:
    """Return the positions of each part of a segment, by what its forms lack."""
    parts = [_all_rows(rows)]
    for deleted in lacking:
        halves = ((part & deleted, part - deleted) for part in parts)
        parts = [half for both in halves for half in both if half]
    return parts


def _all_rows(rows: int) -> BitMap64:
    return BitMap64(range(rows))
