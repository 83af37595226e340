"""Key frames that share structure: a root over leaves of segment entries, or over stems of leaves.

The entries in (chunk start, chunk end, id) order are cut into leaves at chunk boundaries. A new key
frame rewrites only the leaves that the delta touches and refers to the old ones for the rest, as a
git tree does. Where there are very many leaves the root names stems, which describe them, and only
the stems of leaves that change are rewritten. Its content is a function of the previous key frame
and the delta, so two writers of one version write the same objects (FORMAT.md "Key frames").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.model.chunks import chunk_name
from eventlog.model.entries import ColumnStats, deleted_rows, inline_among
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    Header,
    KeyFrame,
    Leaf,
    Meta,
    Piece,
    Stem,
    Totals,
    pieces_in,
)
from eventlog.state.delta import Delta
from eventlog.state.pieces.places import Stems, piece_runs
from eventlog.state.pieces.stems import cut_stems

INLINE_SEGMENTS = 100  # at most this many entries are stored in the root itself
LEAF_TARGET = 640  # target number of entries of a new leaf
SCATTERED = 32  # of so many entries of a rewritten run at most one is new: its leaves are larger
LEAF_SMALL = 160  # a leaf with fewer entries is merged into a rewritten neighbour
LEAF_MAX = 4096  # a single chunk with more entries than this is split across leaves
LEAF_STATS = 4  # columns whose bounds are stored in the root
ROOT_LEAVES = 500  # a root with more leaves has stems instead
STEM_TARGET = 500  # target number of leaves of a new stem
STEM_SMALL = 125  # a stem with fewer leaves is merged into a rewritten neighbour


class Frame(NamedTuple):
    """A key frame ready to be stored: first `objects`, then `root`.

    Attributes:
        root: the root.
        objects: the bytes of the new leaves and stems, by key.
        entries: the entries of the new leaves, by sha256.
        stems: the leaves of the new stems, by sha256.
    """

    root: KeyFrame
    objects: dict[str, bytes]
    entries: dict[str, pa.Table]
    stems: dict[str, Sequence[Leaf]]


def touched(root: KeyFrame | None, delta: Delta, stems: Stems) -> Sequence[Piece]:
    """Return what of `root` has to be read before `build_key_frame` can apply `delta`.

    Args:
        root: the key frame; None is the empty state.
        delta: the delta.
        stems: the stems that were read. As long as one that is rewritten is not among them, such
            stems are returned, and no leaves.
    """
    if root is not None and _few_are_left(root, delta):
        return _all_pieces(root, stems)
    parts = _parts(root, delta)
    lacking = [s for p in parts if p.delta for s in p.stems if s.sha256 not in stems]
    return lacking or [
        leaf
        for part in parts
        if part.delta is not None
        for run in piece_runs(part.below(stems), part.delta, LEAF_SMALL)
        if run.rewritten
        for leaf in cast("list[Leaf]", run.pieces)
    ]


def build_key_frame(
    root: KeyFrame | None,
    delta: Delta,
    leaves: Mapping[str, pa.Table],
    stems: Stems = MappingProxyType({}),
    *,
    header: Header,
    commit_hash: str,
    meta: Meta,
) -> Frame:
    """Return the key frame of `header.version`.

    Args:
        root: the key frame that the commit's delta starts from; None is the empty state.
        delta: the complete delta of the commit, never a filtered one (hazard P3).
        leaves: entry tables by sha256, at least those of `touched(root, delta, stems)`.
        stems: the leaves of stems by sha256, at least of those that `touched` names without them.
        header: the header of the commit of this version.
        commit_hash: sha256 of that commit's bytes.
        meta: the small state at this version.

    Raises:
        Corrupt: the entries do not add up to the header's totals and state hash.
        InvalidInput: an object would be larger than readers accept.
    """
    inline, made = entry_columns.EMPTY, _Made(leaves, stems)
    if not pieces_in(root):
        before = entry_columns.from_segments(root.segments) if root else entry_columns.EMPTY
        inline = _apply(before, delta)
        if inline.num_rows > INLINE_SEGMENTS:
            made.leaves, inline = made.cut(inline), entry_columns.EMPTY
    elif root is not None and _few_are_left(root, delta):
        below = [leaves[leaf.sha256] for leaf in _all_pieces(root, stems)]
        inline = _apply(entry_columns.concat(below), delta)
    else:
        for part in _parts(root, delta):
            made.take(part)
    made.settle()
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
        leaves=tuple(made.leaves),
        stems=tuple(made.stems) or UNSET,
    )
    check_key_frame(frame)  # against key-frame-from-a-filtered-delta
    return Frame(frame, made.objects, made.entries, made.grown)


def check_key_frame(root: KeyFrame) -> None:
    """Check that a root's parts add up to its own totals and state hash.

    Raises:
        Corrupt: they do not.
    """
    total = codec.meta_hash(root.state) + sum(codec.entry_hash(s) for s in root.segments)
    pieces = pieces_in(root)
    total += sum(codec.parse_hash(piece.hash_sum) for piece in pieces)
    sums = [
        sum(getattr(part, name) for part in root.segments)
        + sum(getattr(part, name) for part in pieces)
        for name in ("rows", "bytes")
    ]
    count = len(root.segments) + sum(piece.segments for piece in pieces)
    deleted = sum(deleted_rows(s.vector) for s in root.segments)
    deleted += sum(x.deleted for x in pieces if not isinstance(x.deleted, UnsetType))
    inline = inline_among(root.segments)
    inline += sum(x.inline for x in pieces if not isinstance(x.inline, UnsetType))
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
    table = decode_leaf(leaf, body)
    check_decoded([leaf], [table])
    return table


def decode_leaf(leaf: Leaf, body: bytes, *, statistics: bool = True) -> pa.Table:
    """Return the entry table of a leaf that `check_decoded` has yet to check.

    Args:
        leaf: the leaf, as its root describes it.
        body: the bytes of the leaf object.
        statistics: false: the columns of statistics are left out.

    Raises:
        Corrupt: the bytes are not those that the root describes, or no leaf.
    """
    # against leaf-hash-not-checked
    if codec.sha256(body) != leaf.sha256 or len(body) != leaf.size:
        raise Corrupt(
            "the leaf's bytes do not have the hash and size in its root",
            key=keys.frame_key(leaf.sha256),
        )
    return frame_bytes.read_columns(body, leaf.segments, statistics=statistics)


def check_decoded(
    leaves: Sequence[Leaf], tables: Sequence[pa.Table], bare: Collection[str] = ()
) -> None:
    """Check decoded leaves against their root: together, which costs less than one by one.

    Args:
        leaves: the leaves, as the root describes them.
        tables: what `decode_leaf` returned of each.
        bare: the sha256 of those that were decoded without statistics.

    Raises:
        Corrupt: the entries of a leaf are not those that the root describes.
    """
    alike: dict[pa.Schema, list[tuple[Leaf, pa.Table]]] = {}
    for leaf, table in zip(leaves, tables, strict=True):
        alike.setdefault(table.schema, []).append((leaf, table))
    for some in alike.values():
        try:
            _check_alike(some, bare)
        except Corrupt:
            for one in some if len(some) > 1 else ():
                _check_alike([one], bare)  # so that the error names the leaf
            raise


def _check_alike(described: Sequence[tuple[Leaf, pa.Table]], bare: Collection[str]) -> None:
    """Check leaves whose tables have one schema. Raises: as `check_decoded`."""
    together = pa.concat_tables([table for _, table in described])
    frame_bytes.check_entry_rows(together)
    begins = list(accumulate(table.num_rows for _, table in described))
    in_order = entry_columns.ordered(together, begins)
    for leaf, table in described:
        # Lookups and pruning trust the root's entry of a leaf.
        bounded = leaf.sha256 in bare or _covers(leaf.stats, table)
        if not (in_order and bounded and _is_true(leaf, table)):
            raise Corrupt(
                "the leaf's entries differ from the root's entry of it",
                key=keys.frame_key(leaf.sha256),
            )


def _is_true(leaf: Leaf, table: pa.Table) -> bool:
    """Return whether a leaf has the entries that its root describes; bounds are not compared."""
    return (
        codec.hex_hash(entry_columns.hash_sum(table)) == leaf.hash_sum
        and (leaf.first, leaf.end, leaf.rows, leaf.bytes) == _extent(table)
        and leaf.deleted == (entry_columns.deleted_sum(table) or UNSET)
        and leaf.inline == (entry_columns.inline_count(table) or UNSET)
    )


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


class _Part(NamedTuple):
    """Neighbouring leaves of a root, and what a delta changes there.

    Attributes:
        stems: the stems that have the leaves; none where the root has the leaves themselves.
        delta: the part of the delta that falls there; None: the stems stay as they are.
        apart: whether the leaves that follow from it are cut into stems by themselves.
        leaves: those that the root has.
    """

    stems: Sequence[Stem]
    delta: Delta | None
    apart: bool = True
    leaves: Sequence[Leaf] = ()

    def below(self, stems: Stems) -> Sequence[Leaf]:
        """Return the leaves."""
        return [*self.leaves, *(leaf for stem in self.stems for leaf in stems[stem.sha256])]


class _Made:
    """The leaves and stems of a new key frame, and the objects of those that are new.

    Args:
        leaves: entry tables of the leaves of before that are rewritten, by sha256.
        stems: the leaves of the stems of before that are rewritten, by sha256.

    Attributes:
        leaves: those that the root names; none if it names stems.
        stems: those that the root names.
        objects: see `Frame`.
        entries: see `Frame`.
        grown: see `Frame.stems`.
    """

    def __init__(self, leaves: Mapping[str, pa.Table], stems: Stems) -> None:
        self._old_leaves, self._old_stems = leaves, stems
        self.leaves, self.stems = list[Leaf](), list[Stem]()
        self.objects = dict[str, bytes]()
        self.entries = dict[str, pa.Table]()
        self.grown = dict[str, Sequence[Leaf]]()

    def take(self, part: _Part) -> None:
        """Add what becomes of a part of the key frame of before."""
        if part.delta is None:
            self.stems += part.stems
            return
        leaves = list[Leaf]()
        for run in piece_runs(part.below(self._old_stems), part.delta, LEAF_SMALL):
            old = cast("list[Leaf]", run.pieces)
            if run.rewritten:
                entries = entry_columns.concat([self._old_leaves[leaf.sha256] for leaf in old])
                delta = run.delta()
                old = self.cut(_apply(entries, delta), len(delta.adds) + len(delta.drops))
            leaves += old
        if part.apart:
            self.stems += cut_stems(leaves, STEM_TARGET, self.objects, self.grown)
        else:
            self.leaves += leaves

    def cut(self, entries: pa.Table, changes: int | None = None) -> list[Leaf]:
        """Cut sorted entries into leaves.

        Args:
            entries: the entries.
            changes: how many the delta adds or drops; None: all are new.
        """
        leaves, target = [], LEAF_TARGET
        if changes is not None and entries.num_rows >= max(SCATTERED * changes, 4 * LEAF_TARGET):
            # Each key frame of such a writer rewrites all of these leaves.
            target = 2 * LEAF_TARGET
        for start, end in pairwise(_cut_points(entries, target)):
            part = entries.slice(start, end - start)
            body = frame_bytes.to_parquet(part)
            leaf = _leaf(part, body)
            self.objects[keys.frame_key(leaf.sha256)], self.entries[leaf.sha256] = body, part
            leaves.append(leaf)
        return leaves

    def settle(self) -> None:
        """Cut the leaves into stems if the root would name too many."""
        if len(self.leaves) > ROOT_LEAVES:
            self.stems = cut_stems(self.leaves, STEM_TARGET, self.objects, self.grown)
            self.leaves = []


def _few_are_left(root: KeyFrame, delta: Delta) -> bool:
    """Return whether a delta leaves so few of the entries in leaves that the root has them."""
    entries = sum(piece.segments for piece in pieces_in(root))
    return entries + len(delta.adds) - len(delta.drops) <= INLINE_SEGMENTS


def _all_pieces(root: KeyFrame, stems: Stems) -> list[Piece]:
    """Return the stems of a root that were not read, or all of its leaves if there is none."""
    named = () if isinstance(root.stems, UnsetType) else root.stems
    lacking: list[Piece] = [stem for stem in named if stem.sha256 not in stems]
    below = (leaf for stem in named if not lacking for leaf in stems[stem.sha256])
    return lacking or [*root.leaves, *below]


def _parts(root: KeyFrame | None, delta: Delta) -> list[_Part]:
    """Return the leaves of a root in parts, each of which is rewritten by itself."""
    if root is None or not pieces_in(root):
        return []
    if isinstance(root.stems, UnsetType):
        return [_Part((), delta, apart=False, leaves=root.leaves)]
    if sum(stem.leaves for stem in root.stems) < ROOT_LEAVES // 2:  # few again: the root has them
        return [_Part(root.stems, delta, apart=False)]
    return [
        _Part(cast("list[Stem]", run.pieces), run.delta() if run.rewritten else None)
        for run in piece_runs(root.stems, delta, STEM_SMALL)
    ]


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
    added = entry_columns.from_segments(list(delta.adds.values()))
    # In one piece: rows are taken from many pieces at several times the cost.
    return entry_columns.concat([entries, added]).combine_chunks().sort_by(entry_columns.ORDER)


def _cut_points(entries: pa.Table, target: int) -> list[int]:
    """Return the row numbers, 0 to n, at which leaves begin and end.

    The leaves have about the same size, and are cut at chunk boundaries where possible.
    """
    count = entries.num_rows
    if not count:
        return []
    edges = [0, *entry_columns.chunk_edges(entries)[1:], count]
    pieces = max(1, round(count / target))
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
