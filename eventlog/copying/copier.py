"""Copies single objects, each compared with its description before and after it is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from eventlog.clock import Clock
from eventlog.errors import CommitConflict, Corrupt, DataLoss
from eventlog.format.codec import sha256
from eventlog.store.branching import within
from eventlog.store.port import Body, ObjectStore
from eventlog.store.retry import retrying

Role = Literal["segment", "frame", "leaf", "pending"]

COPY_BYTES = 256 * 2**20  # in flight, unless a single object is larger
_READS = 3  # of bytes that are not those that the log describes


@dataclass(frozen=True, slots=True)
class Item:
    """An object to copy.

    Attributes:
        key: relative to the root.
        role: what it is. The vacuum's record of what is `pending` may be missing, and a leaf of a
            key frame may be damaged, too: readers do without it.
        version: the version that needs it.
        bytes: its size.
        sha256: of its bytes, as the log says.
        maybe_there: whether the target may have it already.
        unnamed: whether no version of the target may name it, so that its bytes there are compared.
    """

    key: str
    role: Role
    version: int
    bytes: int
    sha256: str
    maybe_there: bool = False
    unnamed: bool = False


class Copier:
    """Copies objects between the stores of two tables.

    Args:
        source: where the objects are.
        target: where they are created.
        clock: for pauses.
    """

    def __init__(self, source: ObjectStore, target: ObjectStore, clock: Clock) -> None:
        self._source, self._target, self._clock = source, target, clock
        # Whether bytes need not come through here, until the store shows otherwise.
        self._within = within.may_copy(source, target)

    def copied_within(
        self, item: Item, new_key: str | None = None, store: ObjectStore | None = None
    ) -> bool:
        """Return whether the store itself copied a segment, and its sha256 is that of the log.

        Other objects are read to be checked anyway.

        Args:
            item: the object.
            new_key: its key at the target; the same if None.
            store: where the object is; the source if None.

        Raises:
            DataLoss: the copy has other bytes than the log describes.
        """
        if not self._within or item.role != "segment" or item.bytes > within.MOST_BYTES:
            return False
        source, key = store or self._source, item.key if new_key is None else new_key
        digest = within.copied(source, item.key, self._target, key, self._clock)
        if digest is None:
            self._within = False
            return False
        # against damage-copied-within-the-store, damage-merged-within-the-store
        if digest and digest != item.sha256:
            raise damaged(item, source.uri)
        return bool(digest)

    def put(self, key: str, body: Body) -> bool:
        """Create an object at the target, and return whether this call did.

        Raises:
            CommitConflict: the target has other bytes under the key.
            Unavailable: the target does not answer.
        """
        if retrying(self._clock)(self._target.put_if_absent, key, body):
            return True
        # An earlier try stored it, or the store itself copied it, which nobody compared.
        # against other-bytes-taken-for-a-copy, damage-copied-to-the-target
        if self._target.get(key, length=memoryview(body).nbytes + 1) != bytes(body):
            raise CommitConflict(
                "the target has other bytes under this key: it is no copy of the source, or took "
                "writes of its own; `eventlog merge` joins two histories",
                table=self._target.uri,
                key=key,
            )
        return False


def read_checked(get: Callable[..., bytes], item: Item, table: str) -> bytes:
    """Return the bytes of an object, which are those that the log describes.

    Args:
        get: `ObjectStore.get` of its store, with retries or without.
        item: the object.
        table: the root URI of its table, for the error.

    Raises:
        Corrupt: they are others. Of a segment: DataLoss.
        KeyNotFound: there is no such object.
    """
    for _ in range(_READS):
        body = get(item.key, length=item.bytes + 1)
        # against damage-replicated, damage-merged
        if len(body) == item.bytes and sha256(body) == item.sha256:
            return body
    raise damaged(item, table)


def damaged(item: Item, table: str) -> Corrupt:
    """Return the error for an object of other bytes than the log describes.

    Args:
        item: the object.
        table: the root URI of its table.
    """
    kind = DataLoss if item.role == "segment" else Corrupt
    return kind(
        f"version {item.version} needs an object that has other bytes than the log describes, and "
        "it was not copied: run `eventlog fsck --checksums`",
        table=table,
        key=item.key,
        version=item.version,
    )
