"""Stages deletion vectors: one object for those of all segments that a commit changes."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from eventlog.clock import Clock
from eventlog.format import keys
from eventlog.format.deletion_vectors import encode_vectors
from eventlog.model.actions import Add
from eventlog.model.entries import Segment, Vector
from eventlog.store.port import ObjectStore
from eventlog.store.retry import put_once


def stage_vectors(
    store: ObjectStore,
    clock: Clock,
    epoch: int,
    deleted: Sequence[tuple[Segment | Add, BitMap64]],
) -> list[Vector]:
    """Store the deletion vectors of some segments, and return their parts of the entries, in order.

    One request; none if there are no segments. Nothing refers to the object until it is committed.

    Args:
        store: the table's store.
        clock: for the object's id.
        epoch: the head version that the writer read.
        deleted: for each segment the positions of its deleted rows, at least one and not all.

    Raises:
        Unavailable: the store does not answer.
    """
    if not deleted:
        return []
    named = [(keys.segment_key(s.epoch, s.chunk, s.id), positions) for s, positions in deleted]
    body, vectors = encode_vectors(epoch, clock.random_id(), named)
    put_once(store, clock, keys.vectors_key(vectors[0]), body)
    return vectors
