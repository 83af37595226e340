"""Deletes of rows by their positions, as a writer makes them.

    delete_rows(t, {segment.id: [0, 7]})

`staged_deletes` gives the actions alone, for tests that put them into a transaction. Bitmaps are
stored in an object, also small ones, unless they are to stand in the log.
"""

from collections.abc import Iterable, Mapping

from msgspec import UnsetType, structs
from pyroaring import BitMap64
from support.builders import HASH, commit, live

from eventlog import Segment, Table
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import encode_bitmap, join_bitmaps
from eventlog.model.actions import DeleteRows
from eventlog.model.entries import StoredBitmap, Vector
from eventlog.segments.vectors import fetch_positions

IN_LOG = False  # where bitmaps stand if a test does not say so


def vector_at(rows: int, epoch: int, **changes: object) -> Vector:
    """A vector whose bitmap would be stored at an epoch; nothing stores it."""
    place = StoredBitmap(epoch, "c" * 32, 4, 50, HASH)
    return Vector(rows, stored=structs.replace(place, **changes))


def deleted_positions(table: Table, segment: Segment) -> BitMap64:
    """The positions, from 0, of the segment's rows that its vector deletes."""
    if isinstance(segment.vector, UnsetType):
        return BitMap64()
    return fetch_positions(table.store, segment.vector, segment.rows)


def staged_deletes(
    table: Table,
    positions: Mapping[str, Iterable[int]],
    of: Iterable[Segment] = (),
    *,
    in_log: bool | None = None,
) -> list[DeleteRows]:
    """Return the actions that set vectors of some segments, whose bitmaps are one object.

    Args:
        table: the table.
        positions: by the id of a segment the positions, from 0, of the rows to delete; its vector
            so far is united with them.
        of: entries of segments that are not live; of others they are those of the head.
        in_log: whether the bitmaps stand in the actions, and not in an object; None: as `IN_LOG`.
    """
    snapshot = table.session.head()
    named = {segment.id: segment for segment in (*live(snapshot), *of)}
    segments = [named[segment_id] for segment_id in positions]
    united_with = [
        deleted_positions(table, segment) | BitMap64(positions[segment.id]) for segment in segments
    ]
    bitmaps = [*map(encode_bitmap, united_with)]
    counts = [*map(len, united_with)]
    if IN_LOG if in_log is None else in_log:
        vectors = [Vector(*pair) for pair in zip(counts, bitmaps, strict=True)]
    else:
        body, places = join_bitmaps(snapshot.version, table.clock.random_id(), bitmaps)
        assert table.store.put_if_absent(keys.vectors_key(places[0]), body)
        vectors = [Vector(rows, stored=at) for rows, at in zip(counts, places, strict=True)]
    return [
        DeleteRows(segment.id, segment.chunk, codec.hex_hash(codec.entry_hash(segment)), vector)
        for segment, vector in zip(segments, vectors, strict=True)
    ]


def delete_rows(
    table: Table,
    positions: Mapping[str, Iterable[int]],
    *more: object,
    in_log: bool | None = None,
    **options: object,
) -> int:
    """Delete rows of live segments of the head in one commit, and return its version.

    Args:
        table: the table.
        positions: as in `staged_deletes`.
        more: further actions of the transaction, which come after the deletes.
        in_log: as in `staged_deletes`.
        options: those of `Table.transaction`.
    """
    table.refresh()
    actions = staged_deletes(table, positions, in_log=in_log)
    return commit(table, *actions, *more, operation="delete", **options)
