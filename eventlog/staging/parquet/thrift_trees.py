"""Structs of Thrift's compact protocol as trees, which can be changed and written again.

Parquet's footers and indexes are such structs. Nothing here knows their fields. No I/O.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from eventlog.pages import varint

# The kinds of values; the two of a boolean are its values.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    12,
)
_NUMBERS = (I16, I32, I64)
_MOST_DEPTH = 16  # Parquet's structs have at most seven in one another

# By the number of a field its kind and value: an int, bytes, a tree, or (kind of its items, items).
Tree = dict[int, tuple[int, Any]]


def parse_tree(body: bytes, at: int = 0) -> tuple[Tree, int]:
    """Return the struct that begins at a place, and where it ends.

    Raises:
        pa.ArrowInvalid: there is none, or it has a field twice.
    """
    try:
        return _struct(body, at, 0)
    except IndexError:
        raise pa.ArrowInvalid("a struct of Thrift is cut") from None


def tree_bytes(tree: Tree) -> bytes:
    """Return a struct's bytes, its fields in the order of their numbers."""
    out = bytearray()
    last = 0
    for number, (kind, value) in sorted(tree.items()):
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _put_signed(out, number)
        last = number
        if kind not in (TRUE, FALSE):
            out += _value_bytes(kind, value)
    out.append(0)
    return bytes(out)


def _struct(body: bytes, at: int, depth: int) -> tuple[Tree, int]:
    tree: Tree = {}
    number = 0
    if depth > _MOST_DEPTH:
        raise pa.ArrowInvalid("structs of Thrift lie too deep in one another")
    while True:
        byte = body[at]
        at += 1
        if not byte:
            return tree, at
        if byte > 15:
            number += byte >> 4
        else:
            number, at = _signed(body, at)
        if number in tree or number < 1:
            raise pa.ArrowInvalid("a struct of Thrift has a field twice")
        kind = byte & 15
        value: Any = None
        if kind not in (TRUE, FALSE):
            value, at = _value(kind, body, at, depth)
        tree[number] = kind, value


def _value(kind: int, body: bytes, at: int, depth: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _signed(body, at)
    if kind == BINARY:
        size, at = varint(body, at)
        if at + size > len(body):
            raise IndexError
        return body[at : at + size], at + size
    if kind == STRUCT:
        return _struct(body, at, depth + 1)
    if kind in (LIST, SET):
        return _items(body, at, depth)
    if kind in (BYTE, DOUBLE, TRUE, FALSE):  # a boolean among the items of a list is a byte
        size = 8 if kind == DOUBLE else 1
        return body[at : at + size], at + size
    raise pa.ArrowInvalid(f"a struct of Thrift has a field of kind {kind}")


def _items(body: bytes, at: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
    kind, count = body[at] & 15, body[at] >> 4
    at += 1
    if count == 15:
        count, at = varint(body, at)
    if count > len(body):
        raise IndexError
    items = []
    for _ in range(count):
        item, at = _value(kind, body, at, depth + 1)
        items.append(item)
    return (kind, items), at


def _value_bytes(kind: int, value: Any) -> bytes:
    if kind == STRUCT:
        return tree_bytes(value)
    out = bytearray()
    if kind in _NUMBERS:
        _put_signed(out, value)
    elif kind == BINARY:
        _put(out, len(value))
        out += value
    elif kind in (LIST, SET):
        inner, items = value
        if len(items) < 15:
            out.append(len(items) << 4 | inner)
        else:
            out.append(15 << 4 | inner)
            _put(out, len(items))
        for item in items:
            out += _value_bytes(inner, item)
    else:
        out += value
    return bytes(out)


def _signed(body: bytes, at: int) -> tuple[int, int]:
    number, at = varint(body, at)
    return number >> 1 ^ -(number & 1), at


def _put_signed(out: bytearray, number: int) -> None:
    _put(out, number << 1 if number >= 0 else (-number << 1) - 1)


def _put(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
