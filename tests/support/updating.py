"""Updates of rows by their positions: deletes and new rows in one commit."""

import random
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
from msgspec import UNSET, structs
from pyroaring import BitMap64
from support.builders import commit, live
from support.deleting import deleted_positions, staged_deletes
from support.replacements import read, recipe

from eventlog import Table
from eventlog.model.actions import Update
from eventlog.readers.changefeed.change_steps import scan_key
from eventlog.staging.stager import Stager
from eventlog.state.delta import drop_of


def update_rows(
    table: Table,
    positions: Mapping[str, Iterable[int]],
    change: Callable[[pa.Table], pa.Table],
    *,
    paired: bool = True,
    operation: str = "update",
) -> int:
    """Update rows of live segments of the head in one commit, and return its version.

    Args:
        table: a table whose segments are not sorted.
        positions: by the id of a live segment the positions of rows that are not deleted.
        change: returns the new rows, in the order of the old ones; if paired, in their chunks.
        paired: what the action says.
        operation: of the transaction.
    """
    head = table.refresh()
    named = {segment.id: segment for segment in live(head)}
    touched = sorted((named[name] for name in positions), key=scan_key)
    gone = {s.id: BitMap64(positions[s.id]) for s in touched}
    stored = [read(table, [structs.replace(s, vector=UNSET)]) for s in touched]
    places = (pa.array(list(gone[s.id]), pa.int64()) for s in touched)
    old = [rows.take(some) for rows, some in zip(stored, places, strict=True)]
    new = change(pa.concat_tables(old))
    with Stager(table.store, table.clock, recipe(table)) as stager:
        for batch in new.to_batches():
            stager.write(batch)
        adds = stager.finish()
    whole = [s for s in touched if len(gone[s.id] | deleted_positions(table, s)) == s.rows]
    some = {s.id: gone[s.id] for s in touched if s not in whole}
    deletes = staged_deletes(table, some) if some else []
    return commit(
        table,
        Update(sum(map(len, gone.values())), paired),
        *map(drop_of, whole),
        *deletes,
        *adds,
        operation=operation,
    )


def some_positions(chance: random.Random, table: Table, most: float = 1.0) -> dict[str, list[int]]:
    """Choose rows that are not deleted, never all that are left of a segment, by its id.

    Args:
        chance: chooses.
        table: the table.
        most: the greatest share of the rows of a segment.
    """
    found = {}
    for segment in table.refresh().segments():
        left = sorted(set(range(segment.rows)) - set(deleted_positions(table, segment)))
        count = min(len(left) - 1, int(len(left) * most * chance.random()))
        if count > 0:
            found[segment.id] = chance.sample(left, count)
    return found
