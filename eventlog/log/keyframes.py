"""Reading key frames: roots, stems and leaves, checked and cached.

Leaves and stems are named by the hash of their content, so a cached one is never stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from types import MappingProxyType

import pyarrow as pa
from msgspec import UnsetType

from eventlog import limits
from eventlog.cache import Cache
from eventlog.errors import Corrupt, KeyNotFound
from eventlog.format import codec, keys
from eventlog.model.records import KeyFrame, Leaf, Piece, Stem, pieces_in
from eventlog.state import keyframe
from eventlog.state.keyframe import Frame
from eventlog.state.pieces.places import Stems
from eventlog.state.pieces.stems import check_stem
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

LEAF_CACHE_BYTES = 64 * 2**20
BARE_CACHE_BYTES = 32 * 2**20  # some 200,000 entries
STEM_CACHE_LEAVES = 32 * 1024  # some 32 MiB
ROOT_CACHE = 4


class KeyFrameReader:
    """The key frames of one table. Safe to use from several threads.

    Args:
        store: the store of the table.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._checked_leaves: set[str] = set()  # cached leaves whose entries match their hashes
        self._leaves: Cache[str, pa.Table] = Cache(
            LEAF_CACHE_BYTES,
            weigh=lambda table: int(table.nbytes),
            dropped=self._checked_leaves.discard,
        )
        # Those of which the statistics were not decoded.
        self._bare: Cache[str, pa.Table] = Cache(
            BARE_CACHE_BYTES, weigh=lambda table: int(table.nbytes)
        )
        self._stems: Cache[str, tuple[Leaf, ...]] = Cache(STEM_CACHE_LEAVES, weigh=len)
        self._roots: Cache[int, KeyFrame] = Cache(ROOT_CACHE)

    def root(self, version: int) -> KeyFrame:
        """Return the root of the key frame of `version`. One GET, or none if cached.

        Raises:
            KeyNotFound: it does not exist.
            Corrupt: its bytes break the format, or it does not add up.
        """
        known = self._roots.get(version)
        if known is not None:
            return known
        key = keys.keyframe_key(version)
        body = self._store.get(key, length=codec.MAX_KEYFRAME_BYTES + 1)
        root = codec.decode_keyframe(body, version)
        keyframe.check_key_frame(root)
        self.remember(root)
        return root

    def remember(self, root: KeyFrame) -> None:
        """Cache a root that was read or written."""
        self._roots.put(root.version, root)

    def remember_written(self, frame: Frame) -> None:
        """Cache a key frame that was written: its root, and its new leaves and stems.

        The hashes of its entries were compared when the leaves that they come from were read, or
        were computed here.
        """
        self.remember(frame.root)
        for sha256, table in frame.entries.items():
            self._leaves.put(sha256, table)
            if sha256 in self._leaves:
                self._checked_leaves.add(sha256)
        for sha256, leaves in frame.stems.items():
            self._stems.put(sha256, tuple(leaves))

    def stem(self, stem: Stem) -> tuple[Leaf, ...]:
        """Return the leaves of a stem. One GET, or none if cached.

        Raises:
            Corrupt: its content is not what the root describes.
            KeyNotFound: it does not exist.
        """
        leaves = self._stems.get(stem.sha256)
        if leaves is None:
            most = min(stem.size, limits.KEYFRAME_BYTES) + 1
            body = self._store.get(keys.stem_key(stem.sha256), length=most)
            leaves = check_stem(stem, body)
            self._stems.put(stem.sha256, leaves)
        return leaves

    def stems(self, wanted: Iterable[Stem]) -> dict[str, tuple[Leaf, ...]]:
        """Return the leaves of stems by the sha256 of the stem. Concurrent GETs.

        Raises:
            Corrupt: the content of a stem is not what the root describes.
            KeyNotFound: a stem does not exist.
        """
        stems = {stem.sha256: stem for stem in wanted}
        return dict(zip(stems, each(self.stem, [*stems.values()]), strict=True))

    def all_leaves(self, root: KeyFrame) -> Sequence[Leaf]:
        """Return all leaves of a key frame, in order. Its stems are read.

        Raises:
            Corrupt: the content of a stem is not what the root describes.
            KeyNotFound: a stem does not exist.
        """
        if isinstance(root.stems, UnsetType):
            return root.leaves
        stems = self.stems(root.stems)
        return [leaf for stem in root.stems for leaf in stems[stem.sha256]]

    def new_in(
        self, root: KeyFrame, known: KeyFrame | None, made: Stems = MappingProxyType({})
    ) -> list[Piece]:
        """Return the leaves and stems of a key frame that another one does not have.

        Of both only the stems are read that the other one does not have.

        Args:
            root: the key frame.
            known: the other one; None: one that has nothing.
            made: stems of `root` that need not be stored yet, by sha256.

        Raises:
            Corrupt: the content of a stem of `root` is not what the root describes.
            KeyNotFound: a stem of `root` does not exist.
        """
        ours, theirs = ({p.sha256: p for p in pieces_in(one)} for one in (root, known))
        new = [piece for name, piece in ours.items() if name not in theirs]
        stems = [piece for piece in new if isinstance(piece, Stem)]
        below = {**made, **self.stems(stem for stem in stems if stem.sha256 not in made)}
        had = set(theirs)
        with suppress(Corrupt, KeyNotFound):  # then leaves are named again that both have
            old = (p for name, p in theirs.items() if isinstance(p, Stem) and name not in ours)
            had.update(leaf.sha256 for leaves in self.stems(old).values() for leaf in leaves)
        leaves = [leaf for stem in stems for leaf in below[stem.sha256]]
        leaves += (piece for piece in new if isinstance(piece, Leaf))
        return [*(leaf for leaf in leaves if leaf.sha256 not in had), *stems]

    def leaf(self, leaf: Leaf) -> pa.Table:
        """Return the entries of a leaf. One GET, or none if cached.

        The entries are not compared with their hashes.

        Raises:
            Corrupt: its content is not what the root describes.
            KeyNotFound: it does not exist.
        """
        table = self._leaves.get(leaf.sha256)
        if table is None:
            table = self._decoded(leaf)
            keyframe.check_decoded([leaf], [table])
            self._leaves.put(leaf.sha256, table)
        return table

    def _cached(self, leaf: Leaf, bare: Collection[str]) -> pa.Table | None:
        table = self._leaves.get(leaf.sha256)
        return self._bare.get(leaf.sha256) if table is None and leaf.sha256 in bare else table

    def _decoded(self, leaf: Leaf, bare: Collection[str] = ()) -> pa.Table:
        most = min(leaf.size, limits.FRAME_BYTES) + 1
        body = self._store.get(keys.frame_key(leaf.sha256), length=most)
        return keyframe.decode_leaf(leaf, body, statistics=leaf.sha256 not in bare)

    def leaves(
        self, wanted: Sequence[Leaf], *, checked: bool = True, bare: Collection[str] = ()
    ) -> dict[str, pa.Table]:
        """Return the entries of leaves by their sha256, in the order given. Concurrent GETs.

        Args:
            wanted: the leaves, as the root describes them.
            checked: also compare each entry with its hash, which costs more than reading it.
            bare: the sha256 of leaves of which the entries may lack their statistics; for an answer
                that is not checked.

        Raises:
            Corrupt: the content of a leaf is not what the root describes, or an entry does not
                match its hash.
            KeyNotFound: a leaf does not exist.
        """
        cached = {leaf.sha256: self._cached(leaf, bare) for leaf in wanted}
        lacking = [leaf for leaf in wanted if cached[leaf.sha256] is None]
        tables = list(each(lambda leaf: self._decoded(leaf, bare), lacking))
        keyframe.check_decoded(lacking, tables, bare)
        read = {leaf.sha256: table for leaf, table in zip(lacking, tables, strict=True)}
        for sha256, table in read.items():
            (self._bare if sha256 in bare else self._leaves).put(sha256, table)
        read |= {sha256: table for sha256, table in cached.items() if table is not None}
        leaves = {leaf.sha256: read[leaf.sha256] for leaf in wanted}
        for sha256 in leaves.keys() - self._checked_leaves if checked else ():
            keyframe.check_entries(sha256, leaves[sha256])
            if sha256 in self._leaves:
                self._checked_leaves.add(sha256)
        return leaves
