"""Copies single objects, and compares each with its description before and after storing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from eventlog.clock import Clock
from eventlog.display import command
from eventlog.errors import CommitConflict, Corrupt, DataLoss
from eventlog.format.codec import sha256
from eventlog.format.deletion_vectors import has_bitmaps
from eventlog.inline.inline_objects import objects_in
from eventlog.model.entries import StoredBitmap
from eventlog.store.branching import within
from eventlog.store.port import Body, ObjectStore
from eventlog.store.retry import retrying

Role = Literal["segment", "vectors", "frame", "leaf", "pending"]

COPY_BYTES = 256 * 2**20  # in flight, unless a single object is larger
_READS = 3  # of an object whose bytes differ from those that the log describes


@dataclass(frozen=True, slots=True)
class Item:
    """An object to copy.

    Attributes:
        key: the object's key, relative to the root.
        role: the kind of the object. A vacuum's list of `pending` objects may be missing, and so
            may a leaf of a key frame, which may also be damaged: readers do without them.
        version: the version that needs the object.
        bytes: the size of the object; of deletion vectors up to the last one that is named.
        sha256: the digest of its bytes, as the log records it; of deletion vectors it has none.
        maybe_there: whether the target may have the object already.
        unnamed: whether it may be that no version of the target names the object, so that its bytes
            at the target have to be compared.
        vectors: the bitmaps in an object of deletion vectors that the version names.
        inline: the version of the commit that has the bytes of a segment; None: no commit has.
    """

    key: str
    role: Role
    version: int
    bytes: int
    sha256: str
    maybe_there: bool = False
    unnamed: bool = False
    vectors: tuple[StoredBitmap, ...] = ()
    inline: int | None = None

    @property
    def asked(self) -> int | None:
        """How many bytes to ask for, to see whether the object has too many; None: all of it."""
        return None if self.vectors else self.bytes + 1

    def is_body(self, body: Body) -> bool:
        """Return whether these are the bytes that the log describes."""
        found = memoryview(body).tobytes()
        if self.vectors:
            return has_bitmaps(found, self.vectors)
        return len(found) == self.bytes and sha256(found) == self.sha256


class Copier:
    """Copies objects between the stores of two tables.

    Args:
        source: the store that has the objects.
        target: the store in which they are created.
        clock: for pauses.
    """

    def __init__(self, source: ObjectStore, target: ObjectStore, clock: Clock) -> None:
        self._source, self._target, self._clock = source, target, clock
        # Whether the store copies objects itself; assumed until it shows otherwise.
        self._within = within.may_copy(source, target)

    def copied_within(
        self, item: Item, new_key: str | None = None, store: ObjectStore | None = None
    ) -> bool:
        """Have the store itself copy a segment; return whether it did, with the log's sha256.

        Other objects are not copied in this way, since they are read to be checked.

        Args:
            item: the object.
            new_key: the object's key at the target; the same as at the source if None.
            store: the store that has the object; the source if None.

        Raises:
            DataLoss: the copy has other bytes than the log describes.
        """
        if not self._within or item.role != "segment" or item.bytes > within.MOST_BYTES:
            return False
        if item.inline is not None:
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
        # An earlier try stored it, or the store itself copied it without a comparison.
        # against other-bytes-taken-for-a-copy, damage-copied-to-the-target
        if self._target.get(key, length=memoryview(body).nbytes + 1) != bytes(body):
            raise CommitConflict(
                "the target has other bytes under this key: it is no copy of the source, or took "
                f"writes of its own; {command('merge', self._source.uri, self._target.uri)}, and "
                "then the other way round, joins the two",
                table=self._target.uri,
                key=key,
            )
        return False


def read_checked(get: Callable[..., bytes], item: Item, table: str) -> bytes:
    """Return the bytes of an object, checked against the log's description.

    Args:
        get: `ObjectStore.get` of the object's store, with or without retries.
        item: the object.
        table: the root URI of the object's table, for the error.

    Raises:
        Corrupt: the bytes are others than the log describes. For a segment or vectors: DataLoss.
        KeyNotFound: there is no such object.
    """
    for _ in range(_READS):
        found = {} if item.inline is None else objects_in(get, item.inline)
        body = found.get(item.sha256) or get(item.key, length=item.asked)
        if item.is_body(body):  # against damage-replicated, damage-merged
            return body
    raise damaged(item, table)


def damaged(item: Item, table: str) -> Corrupt:
    """Return the error for an object with other bytes than the log describes.

    Args:
        item: the object.
        table: the root URI of the object's table.
    """
    kind = DataLoss if item.role in ("segment", "vectors") else Corrupt
    return kind(
        f"version {item.version} needs an object that has other bytes than the log describes, and "
        f"it was not copied: run {command('fsck', table, '--checksums')}",
        table=table,
        key=item.key,
        version=item.version,
    )
