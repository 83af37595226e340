"""Forms of segments: what a merge compares in place of segments. No I/O.

A segment of which rows are deleted shows other rows than before. So planners take each state of its
deletion vector for a segment of its own, the form: to delete rows is to drop one form and to add
another one, as an overwrite does (MERGING.md R19.12). The id of a form is that of the segment, and
for a vector the hash of its bitmap behind it: two logs that deleted the same rows have the same
form.
"""

from __future__ import annotations

import msgspec
from msgspec import UnsetType

from eventlog.format import keys
from eventlog.format.deletion_vectors import vector_hash
from eventlog.model.entries import Segment

_ID = 32  # characters of a segment's id


def form_of(segment: Segment) -> Segment:
    """Return the form of a segment."""
    if isinstance(segment.vector, UnsetType):
        return segment
    # against form-without-its-vector
    return msgspec.structs.replace(segment, id=f"{segment.id}:{vector_hash(segment.vector)}")


def segment_of_form(form: Segment) -> Segment:
    """Return the segment of a form."""
    return msgspec.structs.replace(form, id=segment_id(form.id))


def segment_id(form_id: str) -> str:
    """Return the id of the segment of a form."""
    return form_id[:_ID]


def object_key(form: Segment) -> str:
    """Return the key of the object that has the rows of a form, deleted ones included."""
    return keys.segment_key(form.epoch, form.chunk, segment_id(form.id))
