"""Reading key frames: roots and leaves, checked and cached.

Leaves are named by the hash of their content, so a cached leaf is never stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from eventlog import limits
from eventlog.cache import Cache
from eventlog.format import codec, keys
from eventlog.model.records import KeyFrame, Leaf
from eventlog.state import keyframe
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

LEAF_CACHE_BYTES = 64 * 2**20
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

    def remember(self, root: KeyFrame, entries: Mapping[str, pa.Table] | None = None) -> None:
        """Cache a root that was read or written, and the entries of leaves that were written.

        Args:
            root: the root.
            entries: the entries by the sha256 of their leaf. Their hashes were compared when the
                leaves that they come from were read, or were computed here.
        """
        self._roots.put(root.version, root)
        for sha256, table in (entries or {}).items():
            self._leaves.put(sha256, table)
            if sha256 in self._leaves:
                self._checked_leaves.add(sha256)

    def leaf(self, leaf: Leaf) -> pa.Table:
        """Return the entries of a leaf. One GET, or none if cached.

        The entries are not compared with their hashes.

        Raises:
            Corrupt: its content is not what the root describes.
            KeyNotFound: it does not exist.
        """
        table = self._leaves.get(leaf.sha256)
        if table is None:
            most = min(leaf.size, limits.FRAME_BYTES) + 1
            body = self._store.get(keys.frame_key(leaf.sha256), length=most)
            table = keyframe.check_leaf(leaf, body)
            self._leaves.put(leaf.sha256, table)
        return table

    def leaves(self, wanted: Sequence[Leaf], *, checked: bool = True) -> dict[str, pa.Table]:
        """Return the entries of leaves by their sha256, in the order given. Concurrent GETs.

        Args:
            wanted: the leaves, as the root describes them.
            checked: also compare each entry with its hash, which costs more than reading it.

        Raises:
            Corrupt: the content of a leaf is not what the root describes, or an entry does not
                match its hash.
            KeyNotFound: a leaf does not exist.
        """
        tables = each(self.leaf, wanted)
        leaves = {leaf.sha256: table for leaf, table in zip(wanted, tables, strict=True)}
        for sha256 in leaves.keys() - self._checked_leaves if checked else ():
            keyframe.check_entries(sha256, leaves[sha256])
            if sha256 in self._leaves:
                self._checked_leaves.add(sha256)
        return leaves
