"""The storage port: what eventlog asks of an object store, and no more.

Ports layer. There is no `put`: objects are created once and never replaced, so immutability holds
by construction (FORMAT.md "What the storage must provide"). Adapters live in `s3`, `local` and
`memory`, wrappers in `wrappers`; one contract suite runs against all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eventlog.clock import Clock
from eventlog.errors import InvalidInput

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# A body is anything with the buffer protocol: bytes, or a pyarrow.Buffer that need not be copied.
Body = bytes | memoryview

# What S3 allows for a whole key; the root's prefix is counted by the adapter that has one.
MAX_KEY_BYTES = 1024
# Temporary files of a local root; no store lets a key lie there, so that tables can be copied.
TEMPORARY = ".tmp"

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\\%]")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One row of a listing: the key relative to the root, and the size in bytes."""

    key: str
    size: int


class ObjectStore(Protocol):
    """A flat map from keys (relative to a root) to immutable objects.

    Every method may raise `Unavailable` when the store does not answer after the adapter's own
    retries, and `InvalidInput` for a key that is not relative and plain. Adapters are safe to use
    from several threads, and may be pickled to another process.
    """

    @property
    def uri(self) -> str:
        """The root as a URI, without a trailing slash."""
        ...

    @property
    def near(self) -> bool:
        """Whether a read costs no request, as in a directory or in memory."""
        ...

    @property
    def unproven(self) -> str | None:
        """The place whose promise of R2.1 is taken on trust, as a text; None where it is known.

        What a probe found holds for every store of the same place.
        """
        ...

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the object's bytes from `start`, at most `length` of them.

        A range that passes the end is cut there; `start` at or past the end gives b"".

        Raises:
            KeyNotFound: the key is not there.
        """
        ...

    def put_if_absent(self, key: str, body: Body) -> bool:
        """Create the object if the key is absent: atomic, durable when this returns.

        At most one request that could have an effect is sent and not answered clearly; it is never
        sent again by the adapter.

        Returns:
            True: created by this call. False: the key was there, nothing was changed.

        Raises:
            OutcomeUnknown: no clear answer; the object may be there, or may still arrive.
            Unavailable: (not OutcomeUnknown) it failed before it could have an effect.
            InvalidInput: the store refused for good, with no effect.
        """
        ...

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is greater than `after`.

        In UTF-8 byte order of the key, at most `limit` of them, fetched page by page as consumed.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; keys that are not there are fine."""
        ...

    def filesystem(self) -> tuple[FileSystem, str]:
        """Return a pyarrow file system for reads, and the root's path in it, without trailing /."""
        ...

    def now_ms(self) -> int | None:
        """Return the store's own wall time (ms UTC) as far as its answers told it, else None."""
        ...


def store_time_ms(store: ObjectStore, clock: Clock) -> int:
    """Return the store's own time (ms UTC), or this machine's where the store tells none."""
    told = store.now_ms()
    return clock.now_ms() if told is None else told


def check_key(key: str) -> str:
    r"""Return `key` if it is relative and plain.

    Plain: 1 to `MAX_KEY_BYTES` bytes of UTF-8; parts between single `/`, none of them empty, `.` or
    `..`; no `\`, `%` or control character; not under `.tmp/`.

    Raises:
        InvalidInput: it is not.
    """
    if not key or not {"", ".", ".."}.isdisjoint(parts := key.split("/")):
        raise InvalidInput(
            f"key {key[:80]!r} is not relative and plain: an empty, '.' or '..' part"
        )
    if parts[0] == TEMPORARY:
        raise InvalidInput(f"key {key[:80]!r} lies under {TEMPORARY}/, which is reserved")
    _check_characters(key)
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix` if a plain key can start with it; "" and a trailing `/` are fine.

    Raises:
        InvalidInput: no key that `check_key` passes starts so.
    """
    *parts, _ = prefix.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise InvalidInput(f"prefix {prefix[:80]!r} is not relative and plain")
    _check_characters(prefix)
    return prefix


def check_range(start: int, length: int | None) -> None:
    """Refuse a negative range.

    Raises:
        InvalidInput: `start` or `length` is below 0.
    """
    if start < 0 or (length is not None and length < 0):
        raise InvalidInput(f"range start={start} length={length} is negative")


def check_limit(limit: int | None) -> None:
    """Refuse a negative limit.

    Raises:
        InvalidInput: `limit` is below 0.
    """
    if limit is not None and limit < 0:
        raise InvalidInput(f"limit {limit} is negative")


def _check_characters(text: str) -> None:
    if found := _FORBIDDEN.search(text):
        raise InvalidInput(f"key {text[:80]!r} holds {found[0]!r}, which keys may not")
    if len(text.encode()) > MAX_KEY_BYTES:
        raise InvalidInput(f"key {text[:80]!r}... is longer than {MAX_KEY_BYTES} bytes")
