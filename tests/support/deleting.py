"""Deletes of rows by their positions: one object of vectors and one commit, as a writer makes them.

    delete_rows(t, {segment.id: [0, 7]})

`staged_deletes` stages the object alone, for tests that put the actions into a transaction.
"""

from collections.abc import Iterable, Mapping

from msgspec import UnsetType
from pyroaring import BitMap64
from support.builders import commit, live

from eventlog import Segment, Table
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import decode_vector, encode_vectors, united
from eventlog.model.actions import DeleteRows


def deleted_positions(table: Table, segment: Segment) -> BitMap64:
    """The positions, from 0, of the segment's rows that its vector deletes."""
    vector = segment.vector
    if isinstance(vector, UnsetType):
        return BitMap64()
    key = keys.vectors_key(vector)
    blob = table.store.get(key, start=vector.offset, length=vector.size)
    return decode_vector(blob, vector, segment.rows)


def staged_deletes(
    table: Table, positions: Mapping[str, Iterable[int]], of: Iterable[Segment] = ()
) -> list[DeleteRows]:
    """Stage one object of the vectors of some segments, and return the actions that set them.

    Args:
        table: the table.
        positions: by the id of a segment the positions, from 0, of the rows to delete; its vector
            so far is united with them.
        of: entries of segments that are not live; of others they are those of the head.
    """
    snapshot = table.head()
    named = {segment.id: segment for segment in (*live(snapshot), *of)}
    segments = [named[segment_id] for segment_id in positions]
    united_with = [
        united([deleted_positions(table, segment), BitMap64(positions[segment.id])])
        for segment in segments
    ]
    referenced = [keys.key_of(segment) for segment in segments]
    body, vectors = encode_vectors(
        snapshot.version,
        table.clock.random_id(),
        list(zip(referenced, united_with, strict=True)),
    )
    assert table.store.put_if_absent(keys.vectors_key(vectors[0]), body)
    return [
        DeleteRows(segment.id, segment.chunk, codec.hex_hash(codec.entry_hash(segment)), vector)
        for segment, vector in zip(segments, vectors, strict=True)
    ]


def delete_rows(
    table: Table, positions: Mapping[str, Iterable[int]], *more: object, **options: object
) -> int:
    """Delete rows of live segments of the head in one commit, and return its version.

    Args:
        table: the table.
        positions: as in `staged_deletes`.
        more: further actions of the transaction, which come after the deletes.
        options: those of `Table.transaction`.
    """
    table.refresh()
    actions = staged_deletes(table, positions)
    return commit(table, *actions, *more, operation="delete", **options)
