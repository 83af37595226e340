"""Keys of rows, in Arrow tables: which rows have one of some keys, and which keys there are.

No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

# What it costs to look a value up by binary search, and to hash it, beside looking up a value of
# the column in a hash table.
_PROBED, _HASHED = 6, 8
_MOST_PARTS = 64  # in which values ascend


def among(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return which rows have one of the given keys.

    Args:
        rows: rows with the key columns.
        keys: a table with the key columns.
        key: their names.
    """
    if not keys.num_rows or not rows.num_rows:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    if len(key) == 1:
        values = keys.column(key[0])
        return pc.is_in(in_one_piece(rows.column(key[0])), value_set=in_one_piece(values))
    left = numbered_keys(rows, key)
    right = (
        numbered_keys(keys, key).select(key_aliases(key)).group_by(key_aliases(key)).aggregate([])
    )
    hits = left.join(right, keys=key_aliases(key), join_type="left semi", use_threads=False)
    return pc.is_in(row_numbers(rows.num_rows), value_set=in_one_piece(hits.column("row")))


def rows_with(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the numbers of the rows that have one of the given keys, from 0 and ascending.

    It is fast where the rows are sorted by their key, or consist of a few parts that are.

    Args:
        rows: rows with the key columns.
        keys: a table with the key columns, each key once.
        key: their names.
    """
    if not keys.num_rows or not rows.num_rows:
        return pa.nulls(0, pa.int64())
    if len(key) == 1:
        column, values = rows.column(key[0]), in_one_piece(keys.column(key[0]))
        found = _searched(column, values)
        if found is None:
            found = pc.indices_nonzero(pc.is_in(in_one_piece(column), value_set=values))
        return found.cast(pa.int64())
    maybe = pa.scalar(True)  # fewer rows are joined faster
    for name in key:
        values = pc.unique(keys.column(name))
        maybe = pc.and_(maybe, pc.is_in(in_one_piece(rows.column(name)), value_set=values))
    numbers = pc.indices_nonzero(maybe).cast(pa.int64())
    some = rows.select(list(key)).take(numbers)
    return numbers.filter(among(some, keys, key))


def without_rows(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    """Return the other rows, in their order.

    Args:
        rows: rows of one or more columns.
        numbers: numbers of rows, from 0, each once.
    """
    return rows.filter(all_but(numbers, rows.num_rows)) if len(numbers) else rows


def all_but(numbers: pa.Array, count: int) -> pa.Array:
    """Return which of `count` rows are not among some, as booleans.

    Args:
        numbers: numbers of rows, from 0, each once.
        count: the number of all rows, at least one.
    """
    if hasattr(pc, "ScatterOptions"):  # older pyarrow has not
        marks = pa.repeat(pa.scalar(True), len(numbers))
        return pc.scatter(marks, numbers, max_index=count - 1).is_null()
    return pc.invert(pc.is_in(row_numbers(count), value_set=numbers.cast(pa.int64())))


def _searched(column: pa.ChunkedArray, values: pa.Array) -> pa.Array | None:
    """Return where some values stand in a column, ascending, by binary search; None if it is slow.

    Args:
        column: the column.
        values: those that are looked for, each once.
    """
    kind = column.type
    known = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    if not (known or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    if not hasattr(pc, "search_sorted"):  # older pyarrow
        return None
    if len(_falls(values)):
        values = values.take(pc.sort_indices(values))
    parts = _sorted_parts(column)
    if parts is None:
        return None
    wanted = [_between(values, part[0], part[-1]) for _, part in parts]
    if _PROBED * sum(map(len, wanted)) > len(column) + _HASHED * len(values):
        return None
    found = [pa.nulls(0, pa.int64())]
    for (start, part), some in zip(parts, wanted, strict=True):
        places = pc.search_sorted(part, some)
        hits = places.filter(pc.equal(part.take(places), some)).cast(pa.int64())
        found.append(pc.add(hits, start))
    return pa.concat_arrays(found)


def _sorted_parts(column: pa.ChunkedArray) -> list[tuple[int, pa.Array]] | None:
    """Return the parts of a column in which values ascend strictly, and the place of each.

    No value is twice in a part. None if there are many parts.
    """
    parts: list[tuple[int, pa.Array]] = []
    start = 0
    for chunk in column.chunks:
        falls = _falls(chunk)
        if len(parts) + len(falls) > _MOST_PARTS:
            return None
        for low, high in pairwise([0, *(fall + 1 for fall in falls.to_pylist()), len(chunk)]):
            if low < high:
                parts.append((start + low, chunk.slice(low, high - low)))
        start += len(chunk)
    return parts


def _falls(column: pa.Array) -> pa.Array:
    """Return the numbers of the values after which one comes that is not greater."""
    count = max(0, len(column) - 1)
    return pc.indices_nonzero(pc.less_equal(column.slice(1), column.slice(0, count)))


def _between(values: pa.Array, low: pa.Scalar, high: pa.Scalar) -> pa.Array:
    """Return those of ascending values that lie between two, these included."""
    start = pc.search_sorted(values, low).as_py()
    end = pc.search_sorted(values, high, side="right").as_py()
    return values.slice(start, end - start)


def places(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return for each row the place of its key in a table of keys; null where it is not there.

    Args:
        rows: rows with the key columns.
        keys: a table with the key columns, each key once.
        key: their names.
    """
    if len(key) == 1:
        value_set = in_one_piece(keys.column(key[0]))
        return pc.index_in(in_one_piece(rows.column(key[0])), value_set=value_set).cast(pa.int64())
    right = numbered_keys(keys, key).rename_columns([*key_aliases(key), "place"])
    left = numbered_keys(rows, key)
    joined = left.join(right, keys=key_aliases(key), join_type="left outer", use_threads=False)
    return in_one_piece(joined.sort_by("row").column("place"))


def distinct(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the keys of the rows, each once."""
    if len(key) == 1:
        field = rows.schema.field(key[0])
        values = in_one_piece(rows.column(key[0]))
        falls = len(_falls(values))
        if falls > _MOST_PARTS:
            values = pc.unique(values)
        elif falls:  # parts that are sorted already are sorted faster than hashed
            values = values.take(pc.sort_indices(values))
            values = values.filter(pc.invert(_like_the_one_before(values)))
        return pa.table([values], schema=pa.schema([field]))
    keys = numbered_keys(rows, key).select(key_aliases(key))
    return (
        keys.group_by(key_aliases(key), use_threads=False).aggregate([]).rename_columns(list(key))
    )


def shared(rows: pa.Table, key: Sequence[str]) -> pa.Array | None:
    """Return the numbers of the rows whose key other rows have, too; None if that is slow to tell.

    They come from 0 on and ascend.

    Args:
        rows: rows with the key columns.
        key: their names.
    """
    if len(key) > 1:
        return None
    values = in_one_piece(rows.column(key[0]))
    falls = len(_falls(values))
    if falls > _MOST_PARTS:
        return None
    if not falls:
        return pa.nulls(0, pa.int64())
    order = pc.sort_indices(values)
    same = _like_the_one_before(values.take(order))
    of_key = pc.or_(same, pa.concat_arrays([same.slice(1), pa.array([False])]))
    numbers = order.filter(of_key)
    return numbers.take(pc.sort_indices(numbers)).cast(pa.int64())


def _like_the_one_before(values: pa.Array) -> pa.Array:
    """Return which values are equal to the one before them."""
    count = max(0, len(values) - 1)
    first = pa.repeat(pa.scalar(False), min(1, len(values)))
    return pa.concat_arrays([first, pc.equal(values.slice(1), values.slice(0, count))])


def numbered_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the key columns, and the number of each row in a column `row`.

    The columns are renamed to `key_aliases`: Arrow parses a name that starts with a dot as a path.
    """
    columns = [in_one_piece(rows.column(name)) for name in key]
    return pa.table([*columns, row_numbers(rows.num_rows)], [*key_aliases(key), "row"])


def key_aliases(key: Sequence[str]) -> list[str]:
    """Return the names of the key columns in `numbered_keys`."""
    return [f"k{place}" for place in range(len(key))]


def row_numbers(count: int) -> pa.Array:
    """Return the numbers from 0 on, `count` of them."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def in_one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
