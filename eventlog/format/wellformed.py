"""What can be told of a value of the log by itself: forms, orders, bounds.

Pure layer. The decoder compares the encoding; this is the rest of FORMAT.md "Who checks what" that
needs no other object. Readers, writers and fsck share it, so that they refuse the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from eventlog import limits
from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.format.places import entry_key, first_key
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import (
    Commit,
    Drop,
    Header,
    KeyFrame,
    Leaf,
    Meta,
    Schema,
    Segment,
    SetSchema,
    Spill,
    Transaction,
)

_FIELDS = Meta.__struct_fields__
_MAPS = [field for field in _FIELDS if isinstance(getattr(Meta(), field), dict)]


def check_header(header: Header, version: int | None) -> None:
    """Check a header that stands in the commit of `version`, if that is known.

    Raises:
        Corrupt: it is of another version, or a field is not of its form.
    """
    if version is not None and header.version != version:  # against version-not-compared
        raise Corrupt(
            f"the commit of version {version} says it is of {header.version}", version=version
        )
    _check_form(header.table, header.version, header.time, "commit")
    _check_hash(header.state_hash)
    if (header.prev is None) != (header.version == 0):
        raise Corrupt("only version 0 has no previous commit", version=header.version)
    if header.prev is not None:
        _check_hash(header.prev)
    if header.keyframe is not None and not 0 <= header.keyframe < header.version:
        raise Corrupt(
            f"version {header.version} cannot start from the key frame of {header.keyframe}",
            version=header.version,
        )


def check_commit(commit: Commit) -> None:
    """Check a commit but for its header and the entries of its delta (`check_delta`).

    Raises:
        Corrupt: a part is not of its form, or out of order.
    """
    version = commit.header.version
    if not commit.transactions:
        raise Corrupt("the commit holds no transaction", version=version)
    for transaction in commit.transactions:
        check_transaction(transaction)
        if transaction.read_version >= version:
            raise Corrupt(
                f"transaction {transaction.id} has read version {transaction.read_version}, which "
                "did not exist before it",
                version=version,
            )
        for action in transaction.actions:
            if isinstance(action, SetSchema):
                _check_types(action.schema, 9)
    # The typed fields bound their own depth; only `state` is free in shape.
    _check_depth(commit.state, 2)
    _check_state(commit.state)
    _check_spill(commit.delta.spill)
    if commit.delta.spill is not None and (commit.delta.adds or commit.delta.drops):
        raise Corrupt("a delta both holds and spills its entries", version=version)


def check_transaction(transaction: Transaction) -> None:
    """Check a transaction, wherever it stands. What its actions say is the fold's to judge.

    Raises:
        Corrupt: a part is not of its form, or out of order.
    """
    if not keys.is_segment_id(transaction.id):
        raise Corrupt(f"{transaction.id[:80]!r} is no transaction id")
    if transaction.read_version < -1:
        raise Corrupt(f"transaction {transaction.id} has read version {transaction.read_version}")
    _check_ordered(transaction.info, "info")
    _check_spill(transaction.spill)


def check_delta(
    adds: Sequence[Segment], drops: Sequence[Drop], base: int | None, version: int
) -> None:
    """Check the entries of the delta of `version` over the key frame of `base`, spilled or not.

    Raises:
        Corrupt: one is not of its form, out of order, or of another time.
    """
    for segment in adds:
        keys.check_entry(segment)
    for drop in drops:
        keys.segment_key(0, drop.chunk, drop.id)
        _check_hash(drop.hash)
    _check_rising(((s.version, s.partition) for s in adds), "adds of a delta")
    _check_rising(((d.chunk, d.id) for d in drops), "drops of a delta")
    first = -1 if base is None else base
    if adds and not first < adds[0].version <= adds[-1].version <= version:
        raise Corrupt("a delta adds what its key frame has, or a later version", version=version)
    for entries in (adds, drops):
        if len({entry.id for entry in entries}) != len(entries):
            raise Corrupt("a segment id occurs twice in one delta", version=version)


def check_root(root: KeyFrame) -> None:
    """Check a key frame root but for its sums (`keyframe.check`).

    Raises:
        Corrupt: a part is not of its form, or out of order.
    """
    _check_form(root.table, root.version, root.time, "key frame")
    _check_hash(root.commit)
    for field in _MAPS:
        _check_ordered(getattr(root.state, field), field)
    _check_types(root.state.schema, 6)
    if root.segments and root.leaves:
        raise Corrupt("a key frame has both segments and leaves", version=root.version)
    for segment in root.segments:
        keys.check_entry(segment)
    _check_rising((entry_key(s.chunk, s.id) for s in root.segments), "segments of a key frame")
    for leaf in root.leaves:
        _check_leaf(leaf)
    _check_rising((first_key(leaf) for leaf in root.leaves), "leaves of a key frame")


def _check_leaf(leaf: Leaf) -> None:
    start, end, segment_id = first_key(leaf)
    columns = [stat.column for stat in leaf.stats]
    if (
        not keys.is_segment_id(segment_id)
        or not start < end <= leaf.end <= MAX_MS
        or leaf.segments == 0
        or columns != sorted(set(columns))
    ):
        raise Corrupt("a key frame says of a leaf what cannot be")
    _check_hash(leaf.sha256)
    _check_hash(leaf.hash_sum)


def _check_form(table: str, version: int, time_ms: int, what: str) -> None:
    if not keys.is_segment_id(table):
        raise Corrupt(f"{table[:80]!r} is no table id", version=version)
    if version > keys.MAX_VERSION:
        raise Corrupt(f"there is no version {version}")
    if not MIN_MS <= time_ms < MAX_MS:
        raise Corrupt(f"the {what}'s time lies outside the years 0001 to 9999", version=version)


def _check_hash(text: str) -> None:
    keys.frame_key(text)


def _check_spill(spill: Spill | None) -> None:
    if spill is not None:
        _check_hash(spill.sha256)


def _check_state(state: dict[str, Any]) -> None:
    """Check the order of a commit's `state`: fields as in the small state, maps by name."""
    unknown = [field for field in state if field not in _FIELDS]
    if unknown:
        raise Corrupt(f"the commit's state has an unknown field {unknown[0][:80]!r}")
    places = [_FIELDS.index(field) for field in state]
    if places != sorted(places):
        raise Corrupt("the fields of the commit's state are not in order")
    for field in _MAPS:
        if isinstance(change := state.get(field), dict):
            _check_ordered(change, field)


def _check_ordered(names: Iterable[str], what: str) -> None:
    """Maps have one order (FORMAT.md R5.1): that of UTF-8 bytes, which is that of code points."""
    listed = list(names)
    if listed != sorted(listed):
        raise Corrupt(f"the names of the map {what} are not in order")


def _check_rising(places: Iterable[Any], what: str) -> None:
    if any(before >= after for before, after in pairwise(places)):
        raise Corrupt(f"the {what} are not in order, or stand there twice")


def _check_types(schema: Schema | None, depth: int) -> None:
    """Column types are the other part that is free in shape; the `depth`-th level is theirs."""
    for column in schema.columns if schema else ():
        _check_depth(column.type, depth)


def _check_depth(value: Any, depth: int) -> None:
    """Bound how many arrays and objects lie inside one another; `value` is the `depth`-th."""
    if isinstance(value, dict | list):
        if depth > limits.JSON_DEPTH:
            raise Corrupt(f"JSON nested deeper than {limits.JSON_DEPTH}")
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth + 1)
