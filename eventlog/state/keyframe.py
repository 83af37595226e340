"""Key frames that share structure: a root over leaves of segment entries.

The entries in (chunk start, chunk end, id) order are cut into leaves at chunk boundaries. A new key
frame rewrites only the leaves that the delta touches and refers to the old ones for the rest, as a
git tree does. Its content is a function of the previous key frame and the delta, so two writers of
one version write the same objects (FORMAT.md "Key frames").
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.format.entry_order import EntryKey, entry_key, first_key
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.model.actions import Drop
from eventlog.model.chunks import chunk_name
from eventlog.model.entries import ColumnStats, Segment, deleted_rows, inline_among
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    Header,
    KeyFrame,
    Leaf,
    Meta,
    Totals,
)
from eventlog.state.delta import Delta

INLINE_SEGMENTS = 100  # at most this many entries are stored in the root itself
LEAF_TARGET = 640  # target number of entries of a new leaf
LEAF_SMALL = 160  # a leaf with fewer entries is merged into a rewritten neighbour
LEAF_MAX = 4096  # a single chunk with more entries than this is split across leaves
LEAF_STATS = 4  # columns whose bounds are stored in the root


class Frame(NamedTuple):
    """A key frame ready to be stored: first `objects`, the leaves by key, then `root`.

    Attributes:
        root: the root.
        objects: the bytes of the new leaves, by key.
        entries: the entries of the new leaves, by sha256.
    """

    root: KeyFrame
    objects: dict[str, bytes]
    entries: dict[str, pa.Table]


def containing(leaves: Sequence[Leaf], positions: Iterable[EntryKey]) -> set[int]:
    """Return the indexes of the leaves that may contain entries at these positions.

    These are the leaves in whose range a position falls, and earlier ones whose chunks reach that
    far. A segment that is not found in them counts as not live, so a leaf that was cut in the wrong
    place must not hide an entry.
    """
    if not leaves:
        return set()
    firsts = [first_key(leaf) for leaf in leaves]
    reach = list(accumulate((leaf.end for leaf in leaves), max))
    indexes: set[int] = set()
    for position in positions:
        last = max(0, bisect_right(firsts, position) - 1)
        indexes.add(last)
        while last > 0 and reach[last - 1] > position.start:
            last -= 1
            if leaves[last].end > position.start:
                indexes.add(last)
    return indexes


def touched(root: KeyFrame | None, delta: Delta) -> list[Leaf]:
    """Return the leaves of `root` that `build_key_frame` needs in order to apply `delta`."""
    if root is None or not root.leaves:
        return []
    return [leaf for run in _runs(root.leaves, delta) for leaf in run.leaves if run.rewritten]


def build_key_frame(
    root: KeyFrame | None,
    delta: Delta,
    leaves: Mapping[str, pa.Table],
    *,
    header: Header,
    commit_hash: str,
    meta: Meta,
) -> Frame:
    """Return the key frame of `header.version`.

    Args:
        root: the key frame that the commit's delta starts from; None is the empty state.
        delta: the complete delta of the commit, never a filtered one (hazard P3).
        leaves: entry tables by sha256, at least those of `touched(root, delta)`.
        header: the header of the commit of this version.
        commit_hash: sha256 of that commit's bytes.
        meta: the small state at this version.

    Raises:
        Corrupt: the entries do not add up to the header's totals and state hash.
    """
    objects: dict[str, bytes] = {}
    cut: dict[str, pa.Table] = {}
    new_leaves: list[Leaf] = []
    inline = entry_columns.EMPTY
    if root is None or not root.leaves:
        before = entry_columns.from_segments(root.segments) if root else entry_columns.EMPTY
        inline = _apply(before, delta)
    else:
        for run in _runs(root.leaves, delta):
            if not run.rewritten:
                new_leaves.extend(run.leaves)
                continue
            entries = entry_columns.concat([leaves[leaf.sha256] for leaf in run.leaves])
            entries = _apply(entries, Delta(run.adds(), run.drops()))
            new_leaves.extend(_cut(entries, objects, cut))
    if inline.num_rows > INLINE_SEGMENTS:
        new_leaves, inline = _cut(inline, objects, cut), entry_columns.EMPTY
    frame = KeyFrame(
        format=FORMAT_NAME,
        min_reader=FORMAT_VERSION,
        features=header.features,
        table=header.table,
        version=header.version,
        commit=commit_hash,
        time=header.time,
        totals=header.totals,
        state_hash=header.state_hash,
        state=meta,
        segments=tuple(entry_columns.to_segments(inline)),
        leaves=tuple(new_leaves),
    )
    check_key_frame(frame)  # against key-frame-from-a-filtered-delta
    return Frame(frame, objects, cut)


def check_key_frame(root: KeyFrame) -> None:
    """Check that a root's parts add up to its own totals and state hash.

    Raises:
        Corrupt: they do not.
    """
    total = codec.meta_hash(root.state) + sum(codec.entry_hash(s) for s in root.segments)
    total += sum(codec.parse_hash(leaf.hash_sum) for leaf in root.leaves)
    sums = [
        sum(getattr(part, name) for part in root.segments)
        + sum(getattr(part, name) for part in root.leaves)
        for name in ("rows", "bytes")
    ]
    count = len(root.segments) + sum(leaf.segments for leaf in root.leaves)
    deleted = sum(deleted_rows(s.vector) for s in root.segments)
    deleted += sum(x.deleted for x in root.leaves if not isinstance(x.deleted, UnsetType))
    inline = inline_among(root.segments)
    inline += sum(x.inline for x in root.leaves if not isinstance(x.inline, UnsetType))
    rows, size = sums
    totals = Totals(count, rows - deleted, size, deleted or UNSET, inline or UNSET)
    # against root-not-added-up
    if codec.hex_hash(total) != root.state_hash or totals != root.totals:
        raise Corrupt("the key frame does not add up to its state hash", version=root.version)


def check_leaf(leaf: Leaf, body: bytes) -> pa.Table:
    """Return the entry table of a leaf, checked against its root.

    The entries are not compared with their own hashes; `check_entries` does that.

    Args:
        leaf: the leaf, as its root describes it.
        body: the bytes of the leaf object.

    Raises:
        Corrupt: the bytes or the entries are not those that the root describes.
    """
    # against leaf-hash-not-checked
    if codec.sha256(body) != leaf.sha256 or len(body) != leaf.size:
        raise Corrupt(
            "the leaf's bytes do not have the hash and size in its root",
            key=keys.frame_key(leaf.sha256),
        )
    table = frame_bytes.from_parquet(body, leaf.segments)
    # Lookups and pruning trust the root's entry of a leaf.
    stated = (leaf.first, leaf.end, leaf.rows, leaf.bytes)
    deleted = entry_columns.deleted_sum(table) or UNSET
    if (
        codec.hex_hash(entry_columns.hash_sum(table)) != leaf.hash_sum
        or stated != _extent(table)
        or leaf.deleted != deleted
        or leaf.inline != (entry_columns.inline_count(table) or UNSET)
        or not entry_columns.ordered(table)
        or not _covers(leaf.stats, table)
    ):
        raise Corrupt(
            "the leaf's entries differ from the root's entry of it", key=keys.frame_key(leaf.sha256)
        )
    return table


def check_entries(sha256: str, table: pa.Table) -> None:
    """Check each entry of a leaf against the hash stored with it (FORMAT.md R9.8).

    Args:
        sha256: the hash in the leaf's name, for the error.
        table: the entries of the leaf.

    Raises:
        Corrupt: an entry does not match its hash.
    """
    if not entry_columns.hashes_hold(table):
        raise Corrupt("an entry of the leaf does not match its hash", key=keys.frame_key(sha256))


class _Run:
    """Neighbouring leaves that are rewritten together, or one leaf that stays as it is."""

    def __init__(self, leaf: Leaf, changes: list[tuple[bool, str]], delta: Delta) -> None:
        self.leaves = [leaf]
        self.changes = changes
        self.delta = delta

    @property
    def rewritten(self) -> bool:
        """Whether the delta changes any of the leaves."""
        return bool(self.changes)

    def absorb(self, other: _Run) -> None:
        """Add the leaves and changes of the next run."""
        self.leaves += other.leaves
        self.changes = self.changes + other.changes

    def adds(self) -> dict[str, Segment]:
        """Return the entries that the delta adds to these leaves, by id."""
        return {i: self.delta.adds[i] for added, i in self.changes if added}

    def drops(self) -> dict[str, Drop]:
        """Return the drops that the delta has for these leaves, by id."""
        return {i: self.delta.drops[i] for added, i in self.changes if not added}


def _runs(leaves: Sequence[Leaf], delta: Delta) -> list[_Run]:
    """Group the leaves: each touched leaf is joined with its touched or small neighbours."""
    firsts = [first_key(leaf) for leaf in leaves]
    changes: dict[int, list[tuple[bool, str]]] = {}
    for added, entries in ((True, delta.adds.values()), (False, delta.drops.values())):
        for entry in entries:
            at = max(0, bisect_right(firsts, entry_key(entry.chunk, entry.id)) - 1)
            changes.setdefault(at, []).append((added, entry.id))
    runs: list[_Run] = []
    for index, leaf in enumerate(leaves):
        run = _Run(leaf, changes.get(index, []), delta)
        if runs and _join(runs[-1], run):
            runs[-1].absorb(run)
        else:
            runs.append(run)
    return runs


def _join(left: _Run, right: _Run) -> bool:
    if left.rewritten and right.rewritten:
        return True
    small = [run.leaves[-1].segments < LEAF_SMALL for run in (left, right)]
    return (left.rewritten and small[1]) or (right.rewritten and small[0])


def _apply(entries: pa.Table, delta: Delta) -> pa.Table:
    """Return the entries after the delta, in leaf order.

    Raises:
        Corrupt: a dropped segment is not among the entries.
    """
    if delta.drops:
        gone = pa.array([bytes.fromhex(d.hash) for d in delta.drops.values()], pa.binary(32))
        kept = entries.filter(pc.invert(pc.is_in(entries.column("hash"), gone)))
        if entries.num_rows - kept.num_rows != len(delta.drops):
            raise Corrupt("the delta drops a segment that is not in the key frame")
        entries = kept
    added = list(delta.adds.values())
    return entry_columns.concat([entries, entry_columns.from_segments(added)]).sort_by(
        entry_columns.ORDER
    )


def _cut(entries: pa.Table, objects: dict[str, bytes], cut: dict[str, pa.Table]) -> list[Leaf]:
    """Cut sorted entries into leaves; their bytes and entries are added to `objects` and `cut`."""
    leaves = []
    for start, end in pairwise(_cut_points(entries)):
        part = entries.slice(start, end - start)
        body = frame_bytes.to_parquet(part)
        leaf = _leaf(part, body)
        objects[keys.frame_key(leaf.sha256)] = body
        cut[leaf.sha256] = part
        leaves.append(leaf)
    return leaves


def _cut_points(entries: pa.Table) -> list[int]:
    """Return the row numbers, 0 to n, at which leaves begin and end.

    The leaves have about the same size, and are cut at chunk boundaries where possible.
    """
    count = entries.num_rows
    if not count:
        return []
    starts, ends = (
        entries.column("chunk_start").to_pylist(),
        entries.column("chunk_end").to_pylist(),
    )
    edges = [
        0,
        *(i for i in range(1, count) if (starts[i], ends[i]) != (starts[i - 1], ends[i - 1])),
        count,
    ]
    pieces = max(1, round(count / LEAF_TARGET))
    size = count / pieces
    points = [0]
    for left, right in pairwise(edges):
        if right - left > LEAF_MAX:  # a single chunk is too large for one leaf
            points += [left, *range(left + LEAF_MAX, right, LEAF_MAX), right]
        elif right - points[-1] >= size * 0.75:
            points.append(right)
    return sorted({*points, count})


def _extent(part: pa.Table) -> tuple[str, int, int, int]:
    """Return the first entry, the greatest chunk end, and the sums of rows and bytes."""
    if not part.num_rows:
        return "", 0, 0, 0
    chunk = chunk_name(part.column("chunk_start")[0].as_py(), part.column("chunk_end")[0].as_py())
    return (
        f"{chunk}/{part.column('id')[0].as_py().hex()}",
        pc.max(part.column("chunk_end")).as_py(),
        pc.sum(part.column("rows")).as_py(),
        pc.sum(part.column("bytes")).as_py(),
    )


def _leaf(part: pa.Table, body: bytes) -> Leaf:
    first, end, rows, size = _extent(part)
    return Leaf(
        sha256=codec.sha256(body),
        size=len(body),
        first=first,
        end=end,
        segments=part.num_rows,
        rows=rows,
        bytes=size,
        hash_sum=codec.hex_hash(entry_columns.hash_sum(part)),
        stats=_leaf_stats(part),
        deleted=entry_columns.deleted_sum(part) or UNSET,
        inline=entry_columns.inline_count(part) or UNSET,
    )


def _covers(stated: Sequence[ColumnStats], part: pa.Table) -> bool:
    """Return whether the bounds that a root states for a leaf are true of all its entries."""
    columns = set(entry_columns.stats_ids(part))
    for stat in stated:
        real = _bounds(part, stat.column) if stat.column in columns else None
        if real is None or real.nulls != stat.nulls:
            return False
        for low, high in ((stat.min, real.min), (real.max, stat.max)):
            if low is None or high is None:
                if low is not high:
                    return False
            elif isinstance(low, str) != isinstance(high, str) or low > high:  # type: ignore[operator]
                return False
    return True


def _leaf_stats(part: pa.Table) -> tuple[ColumnStats, ...]:
    """Return the bounds over all entries, for columns where every entry with values has bounds."""
    stats = (_bounds(part, column) for column in entry_columns.stats_ids(part)[:LEAF_STATS])
    return tuple(stat for stat in stats if stat is not None)


def _bounds(part: pa.Table, column: int) -> ColumnStats | None:
    """Return a column's bounds over all entries; None if an entry with values has no bounds."""
    low, high, nulls = (part.column(f"{name}_{column}") for name in ("min", "max", "nulls"))
    counts = pc.fill_null(nulls, 0) if nulls.null_count else nulls
    if low.null_count or high.null_count:
        unbounded = pc.or_(pc.is_null(low), pc.is_null(high))
        some = pc.or_kleene(pc.is_null(nulls), pc.less(counts, part.column("rows")))
        if pc.any(pc.and_(unbounded, some)).as_py():
            return None
    return ColumnStats(column, pc.min(low).as_py(), pc.max(high).as_py(), pc.sum(counts).as_py())
