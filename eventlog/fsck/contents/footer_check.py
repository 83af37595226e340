"""The check of a Parquet footer for values on which Arrow ends the process and raises no error.

Arrow compares a column chunk's type and its histograms with the schema when its metadata are first
asked for, and throws where nothing catches it. An audit looks first, to name the segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from eventlog.pages import varint

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MOST_DEPTH = 64
_LENGTH_BYTES, _MAGIC_BYTES = 4, 4
_BYTE_ARRAY = 6  # a physical type
_OPTIONAL, _REPEATED = 1, 2  # repetition types


class _Leaf(NamedTuple):
    """A Parquet column: its physical type, and its greatest levels."""

    kind: int
    definition: int
    repetition: int


def check_footer(end: bytes) -> None:
    """Check that the column chunks of a Parquet footer fit to its schema.

    Args:
        end: the last bytes of the file, the whole footer among them.

    Raises:
        ValueError: they do not, or the footer is damaged.
    """
    size = int.from_bytes(end[-_LENGTH_BYTES - _MAGIC_BYTES : -_MAGIC_BYTES], "little")
    body = end[max(0, len(end) - size - _LENGTH_BYTES - _MAGIC_BYTES) :]
    try:
        footer, _ = _struct(body, 0, 0)
        leaves = list(_leaves(footer[2]))
        for group in footer.get(4, ()):
            _check_group(group[1], leaves)
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError("its footer is damaged") from None


def _check_group(columns: list[dict[int, Any]], leaves: list[_Leaf]) -> None:
    if len(columns) != len(leaves):
        raise ValueError(f"a row group has {len(columns)} column chunks, not {len(leaves)}")
    for place, (column, leaf) in enumerate(zip(columns, leaves, strict=True)):
        chunk = column[3]
        if chunk[1] != leaf.kind:
            raise ValueError(f"column chunk {place} has another type than its column")
        sizes = chunk.get(16, {})
        for levels, most in ((sizes.get(2), leaf.repetition), (sizes.get(3), leaf.definition)):
            if levels and len(levels) != most + 1:
                raise ValueError(f"column chunk {place} has a histogram of {len(levels)} levels")
        if 1 in sizes and leaf.kind != _BYTE_ARRAY:
            raise ValueError(f"column chunk {place} has sizes of texts, and no texts")


def _leaves(elements: list[dict[int, Any]]) -> Iterator[_Leaf]:
    """Yield the columns of a schema, which is a tree in depth-first order."""
    around = [(elements[0].get(5, 0), 0, 0)]  # children that are to come, and levels
    for element in elements[1:]:
        while around and not around[-1][0]:
            around.pop()
        left, definition, repetition = around.pop()
        around.append((left - 1, definition, repetition))
        kind = element.get(3, 0)
        definition += kind in (_OPTIONAL, _REPEATED)
        repetition += kind == _REPEATED
        if element.get(5):
            around.append((element[5], definition, repetition))
        else:
            yield _Leaf(element[1], definition, repetition)


def _struct(body: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by number, and where it ends."""
    if depth > _MOST_DEPTH:
        raise ValueError("its footer is nested too deeply")
    fields: dict[int, Any] = {}
    field = 0
    while byte := body[at]:
        at += 1
        if byte >> 4:
            field += byte >> 4
        else:
            field, at = _number(body, at)
        fields[field], at = _value(byte & 15, body, at, depth)
    return fields, at + 1


def _value(kind: int, body: bytes, at: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BYTE:
        return body[at], at + 1
    if kind in (_I16, _I32, _I64):
        return _number(body, at)
    if kind == _DOUBLE:
        return None, at + 8
    if kind == _BINARY:
        length, at = varint(body, at)
        return None, at + length
    if kind == _STRUCT:
        return _struct(body, at, depth + 1)
    if kind in (_LIST, _SET):
        return _list(body, at, depth)
    raise ValueError(f"its footer has a field of type {kind}")  # no map is in a footer


def _list(body: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    count, kind = body[at] >> 4, body[at] & 15
    at += 1
    if count == 15:
        count, at = varint(body, at)
    values = []
    for _ in range(count):
        if kind in (_TRUE, _FALSE):  # a byte each, unlike in structs
            value, at = body[at], at + 1
        else:
            value, at = _value(kind, body, at, depth + 1)
        values.append(value)
    return values, at


def _number(body: bytes, at: int) -> tuple[int, int]:
    number, at = varint(body, at)
    return number >> 1 ^ -(number & 1), at
