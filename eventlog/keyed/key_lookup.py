"""Keys of rows, in Arrow tables: which rows have one of some keys, and which keys there are.

No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


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
        return pa.table([pc.unique(rows.column(key[0]))], schema=pa.schema([field]))
    keys = numbered_keys(rows, key).select(key_aliases(key))
    return (
        keys.group_by(key_aliases(key), use_threads=False).aggregate([]).rename_columns(list(key))
    )


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
