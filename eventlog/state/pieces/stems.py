"""Stems: objects that describe neighbouring leaves, so that the root of a key frame stays small.

A root's description of a stem follows from the leaves alone (FORMAT.md R9.9), so it is computed
again and compared when a stem is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.format.frames import stem_bytes
from eventlog.model.entries import ColumnStats
from eventlog.model.records import Leaf, Stem


def cut_stems(
    leaves: Sequence[Leaf], target: int, objects: dict[str, bytes], made: dict[str, Sequence[Leaf]]
) -> list[Stem]:
    """Cut neighbouring leaves into stems of about the same number of leaves.

    Args:
        leaves: the leaves, in order.
        target: the number of leaves that a stem should have.
        objects: receives the bytes of the stems, by key.
        made: receives their leaves, by sha256.

    Raises:
        InvalidInput: a stem would be larger than readers accept.
    """
    count = len(leaves)
    pieces = max(1, round(count / target)) if count else 0
    points = [count * number // pieces for number in range(pieces + 1)] if pieces else []
    stems = []
    for start, end in pairwise(points):
        part = leaves[start:end]
        body = stem_bytes.to_stem(part)
        stem = stem_of(part, codec.sha256(body), len(body))
        objects[keys.stem_key(stem.sha256)], made[stem.sha256] = body, part
        stems.append(stem)
    return stems


def stem_of(leaves: Sequence[Leaf], sha256: str, size: int) -> Stem:
    """Return the root's entry for a stem.

    Args:
        leaves: its leaves, one or more.
        sha256: of its bytes.
        size: the number of its bytes.
    """
    deleted, inline = (
        sum(0 if isinstance(value, UnsetType) else value for value in values)
        for values in ([leaf.deleted for leaf in leaves], [leaf.inline for leaf in leaves])
    )
    return Stem(
        sha256=sha256,
        size=size,
        leaves=len(leaves),
        first=leaves[0].first,
        end=max(leaf.end for leaf in leaves),
        segments=sum(leaf.segments for leaf in leaves),
        rows=sum(leaf.rows for leaf in leaves),
        bytes=sum(leaf.bytes for leaf in leaves),
        hash_sum=codec.hex_hash(sum(codec.parse_hash(leaf.hash_sum) for leaf in leaves)),
        stats=_common_stats(leaves),
        deleted=deleted or UNSET,
        inline=inline or UNSET,
    )


def check_stem(stem: Stem, body: bytes) -> tuple[Leaf, ...]:
    """Return the leaves of a stem, checked against its root.

    Args:
        stem: the stem, as its root describes it.
        body: the bytes of the stem object.

    Raises:
        Corrupt: the bytes or the leaves are not those that the root describes.
    """
    key = keys.stem_key(stem.sha256)
    # against stem-hash-not-checked
    if codec.sha256(body) != stem.sha256 or len(body) != stem.size:
        raise Corrupt("the stem's bytes do not have the hash and size in its root", key=key)
    leaves = stem_bytes.from_stem(body)
    # against stem-not-compared
    if not leaves or stem_of(leaves, stem.sha256, stem.size) != stem:
        raise Corrupt("the stem's leaves differ from the root's entry of it", key=key)
    return leaves


def _common_stats(leaves: Sequence[Leaf]) -> tuple[ColumnStats, ...]:
    """Return the bounds over all leaves, for the columns of which every leaf has them."""
    by_column = [{stat.column: stat for stat in leaf.stats} for leaf in leaves]
    found = []
    for column in by_column[0]:
        stats = [known[column] for known in by_column if column in known]
        if len(stats) == len(leaves):
            found.append(_joined(column, stats))
    return tuple(stat for stat in found if stat is not None)


def _joined(column: int, stats: Sequence[ColumnStats]) -> ColumnStats | None:
    """Return the bounds that enclose those of some leaves; None if they are of two kinds.

    A leaf has no bounds of a column where all of its values are null.
    """
    lows = [stat.min for stat in stats if stat.min is not None]
    highs = [stat.max for stat in stats if stat.max is not None]
    if len({isinstance(bound, str) for bound in (*lows, *highs)}) > 1:
        return None
    nulls = sum(stat.nulls for stat in stats)
    return ColumnStats(column, min(lows, default=None), max(highs, default=None), nulls)
