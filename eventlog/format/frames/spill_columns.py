"""Spills in columns: the adds and drops of a commit that do not fit into it.

The rows are those of `entry_columns`, with the column `drop`. A null `version` stands for the
version of the commit that names the spill (FORMAT.md R6.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt
from eventlog.format.frames import entry_columns
from eventlog.format.frames.entry_columns import (
    FIXED,
    OF_COMMIT,
    POSITION,
    SLICE,
    SPILL_ACTION,
    VECTOR,
)
from eventlog.model.actions import Add, DeleteRows, Drop
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment, Slice


def to_spill(
    adds: Iterable[Add | Segment],
    drops: Iterable[Drop],
    version: int | None = None,
    deletes: Iterable[DeleteRows] = (),
) -> pa.Table:
    """Return the table of a spill object: the adds, then the drops, then the deletes of rows.

    Adds that are `Add` actions, or segments of `version`, get a null version and partition, so that
    the object is the same whichever version the commit gets. A null partition is counted: segments
    of `version` keep both where the commit dropped one of its own adds.
    """
    added: list[Add | Segment] = list(adds)
    dropped: list[Drop | DeleteRows] = [*drops, *deletes]
    vectors = [d.vector if isinstance(d, DeleteRows) else UNSET for d in dropped]
    columns = entry_columns.fixed_columns(added)
    own = [isinstance(a, Add) or a.version == version for a in added]
    places = [a.partition for a in added if isinstance(a, Segment) and a.version == version]
    if places != list(range(len(places))):  # against gap-in-a-spill
        own = [False] * len(own)
    columns["version"] = [None if o else a.version for a, o in zip(added, own, strict=True)]  # type: ignore[union-attr]
    columns["partition"] = [None if o else a.partition for a, o in zip(added, own, strict=True)]  # type: ignore[union-attr]
    columns["hash"] = [None] * len(added)
    if any(not isinstance(a.slice, UnsetType) for a in added):
        left = [_left_to_commit(a) if o else a.slice for a, o in zip(added, own, strict=True)]
        for name in OF_COMMIT:
            columns[f"slice_{name}"] = [
                None if isinstance(place, UnsetType) else getattr(place, name) for place in left
            ]
    chunks = [parse_chunk(drop.chunk) for drop in dropped]
    drop_columns: dict[str, list[Any]] = {name: [None] * len(dropped) for name in FIXED.names}
    drop_columns |= {
        "chunk_start": [c.start for c in chunks],
        "chunk_end": [c.end for c in chunks],
        "id": [bytes.fromhex(drop.id) for drop in dropped],
        "hash": [bytes.fromhex(drop.hash) for drop in dropped],
    }
    drop_columns |= entry_columns.vector_columns(vectors)
    table = entry_columns.concat(
        [entry_columns.from_columns(columns, added), entry_columns.from_columns(drop_columns, [])]
    )
    marks = pa.array([False] * len(added) + [True] * len(dropped), pa.bool_())
    return table.append_column(SPILL_ACTION, marks)


def from_spill(
    table: pa.Table, version: int, *, actions: bool = False
) -> tuple[list[Segment], list[Drop], list[DeleteRows]]:
    """Return the adds, drops and deletes of a spill object named by the commit of `version`.

    Args:
        table: the object.
        version: the version of the commit.
        actions: they are actions of a transaction: their slices leave to the commit what they do.

    Raises:
        Corrupt: a row is neither an add nor a drop, or the versions and partitions of adds are not
            of one form.
    """
    marks = table.column(SPILL_ACTION.name)
    table = table.drop_columns([SPILL_ACTION.name])
    entry_columns.check_filled(table, POSITION)
    drop_rows = table.filter(marks)
    add_rows = table.filter(pa.compute.invert(marks))
    entry_columns.check_filled(drop_rows, ("hash",))
    used = (*POSITION, "hash", *VECTOR.names)
    others = [name for name in drop_rows.column_names if name not in used]
    _check_empty(drop_rows, others)
    entry_columns.check_filled(add_rows, ("epoch", "rows", "bytes", "checksum", "schema"))
    _check_empty(add_rows, ["hash", *(("version", "partition") if actions else ())])
    try:
        chunks = entry_columns.chunk_names(
            drop_rows.column("chunk_start").to_pylist(), drop_rows.column("chunk_end").to_pylist()
        )
        ids, hashes = drop_rows.column("id").to_pylist(), drop_rows.column("hash").to_pylist()
        named = zip(ids, chunks, hashes, entry_columns.vectors(drop_rows), strict=True)
        drops, deletes = list[Drop](), list[DeleteRows]()
        for i, chunk, digest, vector in named:
            if isinstance(vector, UnsetType) and not deletes:
                drops.append(Drop(i.hex(), chunk, digest.hex()))
            elif isinstance(vector, UnsetType):
                raise Corrupt("a spill object has a drop after a delete of rows")
            else:
                deletes.append(DeleteRows(i.hex(), chunk, digest.hex(), vector))
        versions = add_rows.column("version")
        own = pa.compute.is_null(versions)
        given = pa.compute.any(pa.compute.equal(versions, version)).as_py()
        if not own.equals(pa.compute.is_null(add_rows.column("partition"))):
            raise Corrupt("a spill object has adds with half a place")
        if given and versions.null_count:
            raise Corrupt("a spill object records only for some adds that its commit made them")
        ordinals = pa.compute.subtract(pa.compute.cumulative_sum(own.cast(pa.int64())), 1)
        partitions = pa.compute.if_else(own, ordinals, add_rows.column("partition"))
        for name, values in (("version", versions.fill_null(version)), ("partition", partitions)):
            at = add_rows.schema.get_field_index(name)  # columns of statistics may stand before it
            add_rows = add_rows.set_column(at, FIXED.field(name), values)
        add_rows = add_rows if actions else _with_spans(add_rows, version)
        return entry_columns.to_segments(add_rows), drops, deletes
    except (TypeError, AttributeError) as error:
        raise Corrupt(f"a spill object has rows that violate the format: {error}") from None


def _left_to_commit(entry: Add | Segment) -> Slice | UnsetType:
    """Return the place of an own add of a commit, without the fields that it determines."""
    place = entry.slice
    if isinstance(place, UnsetType) or isinstance(entry, Add):
        return place
    if place.low == entry.version and not place.level:
        place = msgspec.structs.replace(place, low=None, high=None)
    if place.ordinal == entry.partition:
        place = msgspec.structs.replace(place, ordinal=None)
    return place


def _with_spans(table: pa.Table, version: int) -> pa.Table:
    """Return the adds of a spill with the spans and ordinals that they leave to their commit."""
    if "slice_kind" not in table.column_names:
        return table
    placed = pc.is_valid(table.column("slice_kind"))
    for name in ("slice_low", "slice_high"):
        column = table.column(name)
        filled = pc.if_else(pc.and_(placed, pc.is_null(column)), version, column)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, SLICE.field(name), filled)
    ordinals = pc.coalesce(table.column("slice_ordinal"), table.column("partition"))
    at = table.schema.get_field_index("slice_ordinal")
    ordinals = pc.if_else(placed, ordinals, pa.scalar(None, pa.int64()))
    return table.set_column(at, SLICE.field("slice_ordinal"), ordinals)


def _check_empty(table: pa.Table, names: Iterable[str]) -> None:
    """Refuse values where FORMAT.md R6.4 has nulls."""
    for name in names:
        if table.column(name).null_count != table.num_rows:
            raise Corrupt(f"a spill object has values in its column {name!r} that mean nothing")
