"""A Parquet file that takes row groups of other files as they are: nothing is decoded or encoded.

Only offsets change, which Parquet counts from the start of the file. No I/O but to the sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import pyarrow as pa

from eventlog.format.parts import footer_bytes
from eventlog.staging.parquet.thrift_trees import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Tree,
    parse_tree,
    tree_bytes,
)

_MAGIC = b"PAR1"
_LENGTH_BYTES = 8  # that of the footer, and the magic
# Numbers of fields in the structs of Parquet.
_SCHEMA, _ROWS, _GROUPS, _METADATA = 2, 3, 4, 5  # FileMetaData
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7  # RowGroup
_CHUNK_OFFSET, _FACTS = 2, 3  # ColumnChunk
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)  # there: where it is, and its length
_ENCRYPTED = (8, 9)  # there
_SIZE, _DATA, _INDEX, _DICTIONARY = 7, 9, 10, 11  # ColumnMetaData
_BLOOM = (14, 15)  # there
_LOCATIONS, _PAGE_OFFSET = 1, 1  # OffsetIndex, PageLocation


def footer_tree(file: memoryview) -> Tree:
    """Return the footer of a Parquet file.

    Raises:
        Corrupt: it does not end as Parquet does.
        pa.ArrowInvalid: the footer is damaged.
    """
    start = len(file) - footer_bytes(bytes(file[-_LENGTH_BYTES:]))
    return parse_tree(bytes(file[max(0, start) :]))[0]


def same_columns_stored(one: Tree, other: Tree) -> bool:
    """Return whether the files of two footers have the same columns, ids and types."""
    return one[_SCHEMA] == other[_SCHEMA]


class JoinedFile:
    """Writes a Parquet file of the row groups of others. Call `take` for each, then `close`.

    Args:
        sink: receives the file.
        form: the footer of a Parquet file with the same columns.

    Attributes:
        chunks: number of column chunks so far.
    """

    def __init__(self, sink: BinaryIO, form: Tree) -> None:
        self._sink, self._footer = sink, dict(form)
        self._groups: list[Tree] = []
        # By chunk: the tree of its offset index, and the bytes of its column index.
        self._indexes: list[tuple[Tree | None, bytes]] = []
        self.chunks = 0
        sink.write(_MAGIC)

    def take(self, file: memoryview, footer: Tree) -> None:
        """Take all row groups of a file, in their order.

        Args:
            file: its bytes.
            footer: that of it.

        Raises:
            pa.ArrowInvalid: it has other columns, or something that cannot be taken.
        """
        if not same_columns_stored(footer, self._footer):
            raise pa.ArrowInvalid("a file with other columns cannot be joined")
        for group in footer[_GROUPS][1][1]:
            columns = [self._taken(file, chunk) for chunk in group[_COLUMNS][1][1]]
            made = {
                **group,
                _COLUMNS: (LIST, (STRUCT, columns)),
                _ORDINAL: (I16, len(self._groups)),
            }
            if _GROUP_OFFSET in group:
                made[_GROUP_OFFSET] = I64, min(map(_start, columns), default=len(_MAGIC))
            self._groups.append(made)

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write the indexes and the footer.

        Args:
            metadata: the key-value metadata of the file.
        """
        chunks = [chunk for group in self._groups for chunk in group[_COLUMNS][1][1]]
        for chunk, (_, column_index) in zip(chunks, self._indexes, strict=True):
            self._put_index(chunk, _COLUMN_INDEX, column_index)
        for chunk, (offset_index, _) in zip(chunks, self._indexes, strict=True):
            written = b"" if offset_index is None else tree_bytes(offset_index)
            self._put_index(chunk, _OFFSET_INDEX, written)
        footer = self._footer
        footer[_ROWS] = I64, sum(group[_GROUP_ROWS][1] for group in self._groups)
        footer[_GROUPS] = LIST, (STRUCT, self._groups)
        footer.pop(_METADATA, None)
        if metadata:
            pairs = [
                {1: (BINARY, k.encode()), 2: (BINARY, v.encode())} for k, v in metadata.items()
            ]
            footer[_METADATA] = LIST, (STRUCT, pairs)
        body = tree_bytes(footer)
        self._sink.write(body + len(body).to_bytes(4, "little") + _MAGIC)

    def _taken(self, file: memoryview, chunk: Tree) -> Tree:
        """Write a column chunk, and return its description with the offsets that it has now."""
        if any(field in chunk for field in _ENCRYPTED):
            raise pa.ArrowInvalid("an encrypted column cannot be joined")
        facts = dict(chunk[_FACTS][1])
        start, at = _start(chunk), self._sink.tell()
        body = file[start : start + facts[_SIZE][1]]
        self._sink.write(body)
        self.chunks += 1
        self._indexes.append(_indexes(file, chunk, at - start))
        for place in (_DATA, _INDEX, _DICTIONARY):
            if facts.get(place, (I64, 0))[1]:
                facts[place] = I64, facts[place][1] + at - start
        made = {**chunk, _FACTS: (STRUCT, _without(facts, _BLOOM))}
        if chunk.get(_CHUNK_OFFSET, (I64, 0))[1]:
            made[_CHUNK_OFFSET] = I64, chunk[_CHUNK_OFFSET][1] + at - start
        return _without(made, (*_OFFSET_INDEX, *_COLUMN_INDEX))

    def _put_index(self, chunk: Tree, fields: tuple[int, int], body: bytes) -> None:
        if body:
            chunk[fields[0]], chunk[fields[1]] = (I64, self._sink.tell()), (I32, len(body))
            self._sink.write(body)


def _start(chunk: Tree) -> int:
    facts = chunk[_FACTS][1]
    places = [facts.get(place, (I64, 0))[1] for place in (_DATA, _DICTIONARY)]
    return min(int(place) for place in places if place)


def _indexes(file: memoryview, chunk: Tree, moved: int) -> tuple[Tree | None, bytes]:
    """Return the offset index of a chunk, moved, or None, and the bytes of its column index."""
    found = []
    for at, size in (_OFFSET_INDEX, _COLUMN_INDEX):
        start = chunk.get(at, (I64, 0))[1]
        found.append(bytes(file[start : start + chunk[size][1]]) if start else b"")
    if not found[0]:
        return None, found[1]
    index = parse_tree(found[0])[0]
    for location in index[_LOCATIONS][1][1]:
        location[_PAGE_OFFSET] = I64, location[_PAGE_OFFSET][1] + moved
    return index, found[1]


def _without(tree: Tree, fields: tuple[int, ...]) -> Tree:
    return {number: value for number, value in tree.items() if number not in fields}
