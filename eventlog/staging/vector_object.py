"""Deletion vectors of a commit: small ones stand in the log, others are staged in one object."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from eventlog.clock import Clock
from eventlog.format import keys
from eventlog.format.deletion_vectors import encode_bitmap, join_bitmaps, most_in_log
from eventlog.model.entries import StoredBitmap, Vector
from eventlog.store.port import ObjectStore
from eventlog.store.retry import put_once


def stage_vectors(
    store: ObjectStore, clock: Clock, epoch: int, deleted: Sequence[BitMap64]
) -> list[Vector]:
    """Return the vectors of some segments, in order; those that are not small are stored.

    One request for all that are stored, or none. Nothing refers to the object until it is
    committed.

    Args:
        store: the table's store.
        clock: for the object's id.
        epoch: the head version that the writer read.
        deleted: for each segment the positions of its deleted rows, at least one and not all.

    Raises:
        Unavailable: the store does not answer.
    """
    bitmaps = [encode_bitmap(positions) for positions in deleted]
    most = most_in_log(bitmaps)
    large = [bitmap for bitmap in bitmaps if len(bitmap) > most]
    places: list[StoredBitmap] = []
    if large:
        body, places = join_bitmaps(epoch, clock.random_id(), large)
        put_once(store, clock, keys.vectors_key(places[0]), body)
    named = iter(places)
    return [
        Vector(len(positions), bitmap)
        if len(bitmap) <= most
        else Vector(len(positions), stored=next(named))
        for positions, bitmap in zip(deleted, bitmaps, strict=True)
    ]


def stored_bytes(deleted: Sequence[BitMap64]) -> int:
    """Return the number of bytes that `stage_vectors` would store beside the log."""
    bitmaps = [encode_bitmap(positions) for positions in deleted]
    most = most_in_log(bitmaps)
    return sum(len(bitmap) for bitmap in bitmaps if len(bitmap) > most)
