"""Checks of single values of the log, which need no other object: forms, orders, bounds.

The decoder checks the encoding; this module does the remaining checks of FORMAT.md "Who checks
what" on a single object. Readers, writers and fsck share it, so that they refuse the same input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import UnsetType

from eventlog import limits
from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.format.entry_order import entry_key, first_key
from eventlog.model.actions import Drop, Restore, SetOrigin, SetSchema
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.entries import Analysed, Schema, Segment, Spill, Sweep
from eventlog.model.records import (
    INLINE_FEATURE,
    VECTORS_FEATURE,
    Claim,
    Commit,
    Fork,
    Header,
    KeyFrame,
    Leaf,
    LogCut,
    Meta,
    Origin,
    Piece,
    Start,
    Stub,
    Totals,
    Transaction,
)

_FIELDS = Meta.__struct_fields__
_MAPS = [f for f in _FIELDS if f == "origins" or isinstance(getattr(Meta(), f), dict)]


def check_header(header: Header, version: int | None) -> None:
    """Check the header of the commit of `version`, if the version is known.

    Raises:
        Corrupt: it is of another version, or a field is malformed.
    """
    if version is not None and header.version != version:  # against version-not-compared
        raise Corrupt(
            f"the commit of version {version} names version {header.version}",
            version=version,
        )
    _check_form(header.table, header.version, header.time, "commit")
    _check_hash(header.state_hash)
    _check_features(header.features)
    _check_write_features(header.write_features)
    _check_counted(header.totals.deleted, header.totals.inline, header.changes.vectors)
    _check_announced(header.features, header.totals)
    if (header.prev is None) != (header.version == 0):
        raise Corrupt("`prev` must be null in version 0, and only there", version=header.version)
    if header.prev is not None:
        _check_hash(header.prev)
    if header.keyframe is not None and not 0 <= header.keyframe < header.version:
        raise Corrupt(
            f"version {header.version} cannot start from the key frame of {header.keyframe}",
            version=header.version,
        )


def check_commit(commit: Commit) -> None:
    """Check a commit, except its header and the entries of its delta (see `check_delta`).

    Raises:
        Corrupt: a part is malformed, or out of order.
    """
    version = commit.header.version
    if not commit.transactions:
        raise Corrupt("the commit has no transactions", version=version)
    for transaction in commit.transactions:
        check_transaction(transaction)
        if transaction.read_version >= version:
            raise Corrupt(
                f"transaction {transaction.id} has read version {transaction.read_version}, which "
                "does not precede its commit",
                version=version,
            )
        for action in transaction.actions:
            if isinstance(action, SetSchema):
                _check_types(action.schema, 9)
    # The other fields are typed, which bounds their depth; `state` may have any shape.
    _check_depth(commit.state, 2)
    _check_state(commit.state)
    _check_spill(commit.delta.spill)
    if commit.delta.spill is not None and (commit.delta.adds or commit.delta.drops):
        raise Corrupt("a delta has both entries and a spill", version=version)


def check_transaction(transaction: Transaction) -> None:
    """Check a transaction, committed or published. The fold checks its actions.

    Raises:
        Corrupt: a part is malformed, or out of order.
    """
    if not keys.is_segment_id(transaction.id):
        raise Corrupt(f"{transaction.id[:80]!r} is not a transaction id")
    if transaction.read_version < -1:
        raise Corrupt(f"transaction {transaction.id} has read version {transaction.read_version}")
    _check_ordered(transaction.info, "info")
    for action in transaction.actions:
        if isinstance(action, Restore | SetOrigin):
            _check_ordered(action.apps or (), "apps")
    _check_spill(transaction.spill)


def check_stub(stub: Stub, version: int | None) -> None:
    """Check what is left of the commit of `version`, if the version is known.

    Raises:
        Corrupt: it is of another version, or a field is malformed.
    """
    check_header(stub.header, version)
    _check_hash(stub.commit)


def check_start(start: Start) -> None:
    """Check the start of a replica, except its version (see `codec.decode_start`).

    Raises:
        Corrupt: a part is malformed.
    """
    if not keys.is_segment_id(start.table):
        raise Corrupt(f"{start.table[:80]!r} is not a table id")
    _check_features(start.features)


def check_hash_forms(field: str, value: Any) -> None:
    """Check the forms of the ids and hashes in a field of the small state (FORMAT.md R5.2).

    Args:
        field: its name.
        value: its value; of a map also the names that changed, with None for one that is gone.

    Raises:
        Corrupt: one of them is malformed. The names of maps are not looked at.
    """
    if isinstance(value, LogCut) and not value.version:
        raise Corrupt("the cut of the log is 0, and not absent")
    if isinstance(value, Sweep):
        _check_spill(value.pending)
    elif isinstance(value, Analysed):
        _check_hash(value.policy)
    elif isinstance(value, dict) and field in ("claims", "origins"):
        for entry in value.values():
            if isinstance(entry, Origin):
                _check_hash(entry.commit)
            elif isinstance(entry, Claim):
                _check_ids(entry.segments)


def check_fork(fork: Fork, name: str) -> None:
    """Check where a branch forks.

    Raises:
        Corrupt: a part is malformed, or it is the fork of another branch.
    """
    if fork.name != name:  # against fork-of-another-branch
        raise Corrupt(f"the fork of branch {name!r} is that of {fork.name[:120]!r}")
    if not keys.is_segment_id(fork.table) or not keys.is_segment_id(fork.id):
        raise Corrupt("the fork of a branch has a malformed id")
    _check_hash(fork.commit)
    if not fork.held <= fork.version <= keys.MAX_VERSION:
        raise Corrupt(
            f"the branch cannot fork at version {fork.version} and hold version {fork.held}"
        )


def check_delta(
    adds: Sequence[Segment], drops: Sequence[Drop], base: int | None, version: int
) -> None:
    """Check the entries of the delta of `version` since the key frame of `base`, spilled or not.

    Raises:
        Corrupt: an entry is malformed, out of order, or of a version outside the delta.
    """
    for segment in adds:
        keys.check_entry(segment)
    for drop in drops:
        keys.segment_key(0, drop.chunk, drop.id)
        _check_hash(drop.hash)
    _check_rising(((s.version, s.partition) for s in adds), "adds of a delta")
    _check_rising(((d.chunk, d.id) for d in drops), "drops of a delta")
    first = -1 if base is None else base
    # An entry of the key frame that got a vector since is dropped, and added with its old version.
    older = {d.id for d in drops}
    fresh = [s for s in adds if s.id not in older or isinstance(s.vector, UnsetType)]
    if (fresh and fresh[0].version <= first) or (adds and adds[-1].version > version):
        raise Corrupt(
            "a delta adds a segment of a version before its key frame or after its commit",
            version=version,
        )
    for entries in (adds, drops):
        if len({entry.id for entry in entries}) != len(entries):
            raise Corrupt("a segment id occurs twice in one delta", version=version)


def check_root(root: KeyFrame) -> None:
    """Check a key frame root, except its sums (see `keyframe.check_key_frame`).

    Raises:
        Corrupt: a part is malformed, or out of order.
    """
    _check_form(root.table, root.version, root.time, "key frame")
    _check_hash(root.commit)
    _check_hash(root.state_hash)
    _check_features(root.features)
    _check_counted(root.totals.deleted, root.totals.inline)
    _check_announced(root.features, root.totals)
    for field in _FIELDS:
        value = getattr(root.state, field)
        if field in _MAPS and not isinstance(value, UnsetType):
            _check_ordered(value, field)
        check_hash_forms(field, value)
    if root.state.origins == {}:  # absent, and never empty (R5.1)
        raise Corrupt("a key frame has an empty map of origins", version=root.version)
    _check_types(root.state.schema, 6)
    stems = () if isinstance(root.stems, UnsetType) else root.stems
    if root.stems == ():  # absent, and never empty (R5.1)
        raise Corrupt("a key frame has an empty list of stems", version=root.version)
    if sum(map(bool, (root.segments, root.leaves, stems))) > 1:  # against stems-beside-leaves
        raise Corrupt("a key frame has entries in two ways", version=root.version)
    for segment in root.segments:
        keys.check_entry(segment)
    _check_rising((entry_key(s.chunk, s.id) for s in root.segments), "segments of a key frame")
    check_leaves(root.leaves)
    for stem in stems:
        _check_piece(stem)
    _check_rising(map(first_key, stems), "stems of a key frame")
    _check_packs(root)


def _check_packs(root: KeyFrame) -> None:
    if isinstance(root.packs, UnsetType):
        return
    if not root.packs:
        raise Corrupt("a key frame has an empty list of packs", version=root.version)
    for pack in root.packs:
        keys.pack_key(pack.last, pack.sha256)
        if not pack.first <= pack.last <= root.version or not pack.segments:
            raise Corrupt("a key frame has an invalid entry for a pack", version=root.version)
    _check_rising(((p.last, p.sha256) for p in root.packs), "packs of a key frame")


def check_leaves(leaves: Sequence[Leaf]) -> None:
    """Check the descriptions of leaves in a root or a stem, without reading the leaves.

    Raises:
        Corrupt: an element is malformed, or they are out of order.
    """
    for leaf in leaves:
        _check_piece(leaf)
    _check_rising(map(first_key, leaves), "leaves of a key frame")


def _check_piece(piece: Piece) -> None:
    _check_hash(piece.sha256)
    _check_hash(piece.hash_sum)
    _check_counted(piece.deleted, piece.inline)
    start, end, segment_id = first_key(piece)
    columns = [stat.column for stat in piece.stats]
    if (
        not keys.is_segment_id(segment_id)
        or not start < end <= piece.end <= MAX_MS
        or piece.segments == 0
        or columns != sorted(set(columns))
        or any(keys.is_mixed(stat) for stat in piece.stats)
    ):
        raise Corrupt(f"a key frame has an invalid entry for the leaf or stem {piece.sha256}")


def _check_form(table: str, version: int, time_ms: int, what: str) -> None:
    if not keys.is_segment_id(table):
        raise Corrupt(f"{table[:80]!r} is not a table id", version=version)
    if version > keys.MAX_VERSION:
        raise Corrupt(f"version {version} is greater than {keys.MAX_VERSION}")
    if not MIN_MS <= time_ms < MAX_MS:
        raise Corrupt(f"the time of the {what} is outside the years 0001 to 9999", version=version)


def _check_hash(text: str) -> None:
    keys.frame_key(text)


def _check_ids(segments: Sequence[str]) -> None:
    wrong = next((i for i in segments if not keys.is_segment_id(i)), None)
    if wrong is not None:
        raise Corrupt(f"a claim names {wrong[:80]!r}, which is not a segment id")


def _check_features(features: Sequence[str]) -> None:
    _check_rising(features, "features")


def _check_write_features(features: Sequence[str] | UnsetType) -> None:
    if isinstance(features, UnsetType):
        return
    if not features:
        raise Corrupt("the features that writers need are an empty list")
    _check_rising(features, "features that writers need")


def _check_spill(spill: Spill | None) -> None:
    if spill is not None:
        _check_hash(spill.sha256)
        _check_counted(spill.vectors)


def _check_announced(features: Sequence[str], totals: Totals) -> None:
    """Refuse a version that lacks a feature of its segments, or has it without such a segment.

    A release that does not know vectors would return the deleted rows (FORMAT.md R20.4), and one
    that does not know segments in commits would miss their objects (R21.3).
    """
    if (VECTORS_FEATURE in features) == isinstance(totals.deleted, UnsetType):
        raise Corrupt("the features are not those of a version with these deleted rows")
    if (INLINE_FEATURE in features) == isinstance(totals.inline, UnsetType):
        raise Corrupt("the features are not those of a version with these segments in commits")


def _check_counted(*counts: int | UnsetType) -> None:
    """Refuse a count that is absent where it is 0 (FORMAT.md R5.1), and 0."""
    if 0 in counts:
        raise Corrupt("a count of deletion vectors, of their rows, or of segments in commits is 0")


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
    """Check that the names of a map are in UTF-8 byte order (FORMAT.md R5.1).

    Python compares strings by code point, which gives the same order.
    """
    listed = list(names)
    if listed != sorted(listed):
        raise Corrupt(f"the names of the map {what} are not in order")


def _check_rising(places: Iterable[Any], what: str) -> None:
    if any(before >= after for before, after in pairwise(places)):
        raise Corrupt(f"the {what} are not in order, or one occurs twice")


def _check_types(schema: Schema | None, depth: int) -> None:
    """Check the nesting of column types, which may have any shape and start at level `depth`."""
    for column in schema.columns if schema else ():
        _check_depth(column.type, depth)


def _check_depth(value: Any, depth: int) -> None:
    """Refuse floats, and check the nesting of arrays and objects; `value` is at level `depth`."""
    if isinstance(value, float):
        raise Corrupt("the format has no floats")
    if isinstance(value, dict | list):
        if depth > limits.JSON_DEPTH:
            raise Corrupt(f"JSON is nested more than {limits.JSON_DEPTH} levels deep")
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth + 1)
