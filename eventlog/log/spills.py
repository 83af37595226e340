"""Spills: adds and drops too large for a commit, in a separate object that the commit names.

No I/O (FORMAT.md R6.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes, spill_columns
from eventlog.model.actions import Add, DeleteRows, Drop
from eventlog.model.entries import Segment, Spill
from eventlog.model.records import Commit, DeltaRecord, Transaction
from eventlog.state.delta import Delta, add_of, from_lists

SPILL_BYTES = 128 * 1024  # adds and drops whose JSON is larger are spilled

# Reads a spill object and returns its table.
Fetch = Callable[[Spill], pa.Table]


def delta_of(commit: Commit, fetch: Fetch) -> Delta:
    """Return the commit's delta.

    Args:
        commit: the commit.
        fetch: reads a spill object.

    Raises:
        Corrupt: the delta breaks the format.
    """
    recorded, header = commit.delta, commit.header
    adds: Sequence[Segment] = recorded.adds
    drops: Sequence[Drop] = recorded.drops
    if recorded.spill is not None:
        adds, drops, deletes = _unspill(recorded.spill, header.version, fetch)
        if deletes:
            raise Corrupt("a delta has deletes of rows", version=header.version)
    return from_lists(adds, drops, header.keyframe, header.version)


def unpack(commit: Commit, fetch: Fetch) -> Commit:
    """Return the commit with all adds and drops of spilled transactions in their actions.

    Args:
        commit: the commit.
        fetch: reads a spill object.

    Raises:
        Corrupt: a spill object is not what its transaction describes.
    """
    if all(t.spill is None for t in commit.transactions):
        return commit
    version = commit.header.version
    unpacked = []
    for transaction in commit.transactions:
        if transaction.spill is not None:
            added, dropped, deletes = _unspill(transaction.spill, version, fetch, actions=True)
            adds = tuple(add_of(segment) for segment in added)
            actions = (*transaction.actions, *adds, *dropped, *deletes)
            transaction = msgspec.structs.replace(transaction, actions=actions, spill=None)  # noqa: PLW2901
        unpacked.append(transaction)
    return msgspec.structs.replace(commit, transactions=tuple(unpacked))


def spill_transaction(transaction: Transaction, objects: dict[str, bytes]) -> Transaction:
    """Return the transaction in its stored form, with many adds, drops and deletes in a spill.

    Args:
        transaction: the transaction, with all its actions.
        objects: the spill object is added here, by its key.
    """
    adds = _spilled_adds(transaction)
    drops = [a for a in transaction.actions if isinstance(a, Drop)]
    deletes = [a for a in transaction.actions if isinstance(a, DeleteRows)]
    bulk = [*adds, *drops, *deletes]
    if len(msgspec.json.encode(bulk)) <= SPILL_BYTES:
        return transaction
    table = spill_columns.to_spill(adds, drops, deletes=deletes)
    counts = (len(adds), len(drops), len(deletes) or UNSET)
    spill = _store(table, counts, objects)
    gone = set(map(id, bulk))
    rest = tuple(action for action in transaction.actions if id(action) not in gone)
    return msgspec.structs.replace(transaction, actions=rest, spill=spill)


def _spilled_adds(transaction: Transaction) -> list[Add]:
    """Return the adds that a spill can have: those behind the last one that it cannot (R6.4).

    A spill has no bytes of segments, and no later schemas. Adds keep their order, which decides
    their partitions.
    """
    adds = [action for action in transaction.actions if isinstance(action, Add)]
    kept = [
        place
        for place, add in enumerate(adds, 1)
        if not isinstance(add.parquet, UnsetType) or not isinstance(add.tested, UnsetType)
    ]
    return adds[kept[-1] if kept else 0 :]


def spill_delta(delta: Delta, version: int, objects: dict[str, bytes]) -> DeltaRecord:
    """Return the delta in its stored form, with a large delta in a spill object.

    Args:
        delta: the delta since the key frame that the commit names.
        version: the version of the commit.
        objects: the spill object is added here, by its key.
    """
    stored = delta.record()
    if len(msgspec.json.encode(stored)) <= SPILL_BYTES:
        return stored
    table = spill_columns.to_spill(stored.adds, stored.drops, version)
    counts = (len(stored.adds), len(stored.drops), UNSET)
    return DeltaRecord(spill=_store(table, counts, objects))


def _store(
    table: pa.Table, counts: tuple[int, int, int | UnsetType], objects: dict[str, bytes]
) -> Spill:
    body = frame_bytes.to_parquet(table)
    digest = codec.sha256(body)
    objects[keys.frame_key(digest)] = body
    return Spill(digest, len(body), *counts)


def _unspill(
    spill: Spill, version: int, fetch: Fetch, *, actions: bool = False
) -> tuple[list[Segment], list[Drop], list[DeleteRows]]:
    rows = spill_columns.from_spill(fetch(spill), version, actions=actions)
    added, dropped, deletes = rows
    found = (len(added), len(dropped), len(deletes))
    stated = (spill.adds, spill.drops, spill.vectors or 0)
    if found != stated:
        raise Corrupt(
            f"a spill object has {found} adds, drops and deletes of rows; its commit states "
            f"{stated}",
            version=version,
        )
    return rows
