"""The storage port: everything that eventlog requires of an object store.

Objects are created once, so they are immutable by construction (FORMAT.md "What the storage must
provide"). There are two exceptions: two hints of other formats, which `put_hint` replaces and which
nothing here reads, and commits below the start of the log, which a vacuum replaces by stubs. The
adapters are `s3`, `local` and `memory`, the wrappers `testing.wrappers` and `testing.faults`; one
contract suite runs against all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eventlog.clock import Clock
from eventlog.errors import InvalidInput
from eventlog.model.records import Fork

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# A body is anything with the buffer protocol: bytes, or a pyarrow.Buffer, which is not copied.
Body = bytes | memoryview

# S3's limit on the length of a key. An adapter with a prefix includes it in the check.
MAX_KEY_BYTES = 1024
# Directory for temporary files in a local root. Every store refuses keys there, so that tables can
# be copied between stores.
TEMPORARY = ".tmp"
# The only keys that may be replaced: where other engines look first for the newest version.
HINTS = ("_delta_log/_last_checkpoint", "metadata/version-hint.text")

_HINTS_OF_PARTS = tuple(f"/{hint}" for hint in HINTS)
_REPLACEABLE = re.compile(r"(?:.*/)?_log/\d{12}\.json", re.ASCII)
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\\%]")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One row of a listing: the key relative to the root, and the size in bytes."""

    key: str
    size: int


class SymbolicLink(InvalidInput):
    """A part of a key is a symbolic link, which is not followed; `key` names that part."""


class ObjectStore(Protocol):
    """A flat map from keys (relative to a root) to immutable objects.

    Every method may raise `Unavailable` if the store does not answer after the adapter's own
    retries, and `InvalidInput` for a key that is not relative and plain (see `check_key`). Adapters
    are thread-safe, and can be pickled and sent to another process.
    """

    @property
    def uri(self) -> str:
        """The root as a URI, without a trailing slash."""
        ...

    @property
    def near(self) -> bool:
        """Whether reads cost no requests, as in a directory or in memory."""
        ...

    @property
    def unproven(self) -> str | None:
        """The place that has to be probed for R2.1 (atomic create), or None if it is known to hold.

        The result of a probe applies to every store of the same place.
        """
        ...

    @property
    def forks(self) -> tuple[Fork, ...]:
        """Where the log was forked: of a branch, of the branch that it was forked from, and so on.

        () if this is no branch, and then no request is sent.
        """
        ...

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the object's bytes from `start`, at most `length` of them.

        A range that exceeds the object is truncated; if `start` is at or past the end, the result
        is b"".

        Raises:
            KeyNotFound: there is no such object.
            Corrupt: the file there is no object, such as a named pipe.
        """
        ...

    def put_if_absent(self, key: str, body: Body) -> bool:
        """Create the object if the key is absent. Atomic; durable when this returns.

        After a request whose outcome is unclear, the adapter does not send the request again.

        Returns:
            True: created by this call. False: the key existed, nothing was changed.

        Raises:
            OutcomeUnknown: no clear answer; the object may exist, or may still arrive.
            Unavailable: (not OutcomeUnknown) it failed before it could have an effect.
            InvalidInput: the store refused permanently, with no effect.
        """
        ...

    def put_hint(self, key: str, body: bytes) -> None:
        """Create or replace a hint (see `check_hint`). Durable when this returns.

        The last writer wins. A reader gets the old bytes or the new ones, never parts of both.

        Raises:
            Unavailable: no clear answer, after the adapter's own retries; the old hint or the new
                one is there.
            InvalidInput: the key is no hint, or the store refused permanently, with no effect.
        """
        ...

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """Replace the object of a commit (see `check_replaceable`), if it still has the old bytes.

        Atomic: the key is never absent, and a reader gets the old bytes or the new ones. An object
        that another program has changed meanwhile stays as it is; in a directory this is certain
        only if nobody else replaces it at the same moment. Durable when this returns.

        Args:
            key: of the object.
            old: the bytes that it must have.
            body: the new ones.

        Returns:
            True: the object has the new bytes, perhaps since an earlier call. False: it is missing,
            or has others than both; nothing was changed.

        Raises:
            Unavailable: no clear answer; the old object or the new one is there. Call it again.
            InvalidInput: the key is no commit's, or the store refused permanently, with no effect.
        """
        ...

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is greater than `after`.

        In UTF-8 byte order of the keys, at most `limit` objects. Pages are fetched as the iterator
        is consumed.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; missing keys are ignored."""
        ...

    def filesystem(self) -> tuple[FileSystem, str]:
        """Return a pyarrow file system for reads, and the path of the root, without trailing /."""
        ...

    def now_ms(self) -> int | None:
        """Return the store's own wall time (ms UTC), from its latest answers; None if unknown."""
        ...


def store_time_ms(store: ObjectStore, clock: Clock) -> int:
    """Return the store's own time (ms UTC), or this machine's if the store reports none."""
    store_ms = store.now_ms()
    return clock.now_ms() if store_ms is None else store_ms


def check_key(key: str) -> str:
    r"""Return `key` if it is relative and plain.

    Plain: 1 to `MAX_KEY_BYTES` bytes of UTF-8; parts between single `/`, none of them empty, `.` or
    `..`; no `\`, `%` or control character; not under `.tmp/`.

    Raises:
        InvalidInput: it is not.
    """
    if not key or not {"", ".", ".."}.isdisjoint(parts := key.split("/")):
        raise InvalidInput(
            f"key {key[:80]!r} is not relative and plain: it has an empty, '.' or '..' part"
        )
    if parts[0] == TEMPORARY:
        raise InvalidInput(f"key {key[:80]!r} is under {TEMPORARY}/, which is reserved")
    _check_characters(key)
    return key


def check_hint(key: str) -> str:
    """Return `key` if it is plain and one of `HINTS`, or one of them below the root of a part.

    A part of a store is a branch, or what is under a prefix.

    Raises:
        InvalidInput: it is not, so its object must not be replaced.
    """
    check_key(key)
    # against any-key-replaced
    if key not in HINTS and not key.endswith(_HINTS_OF_PARTS):
        raise InvalidInput(
            f"key {key[:80]!r} is no hint: only {' and '.join(HINTS)} may be replaced", key=key
        )
    return key


def check_replaceable(key: str) -> str:
    """Return `key` if it is plain and that of a commit, perhaps below the root of a part.

    Raises:
        InvalidInput: it is not, so its object must not be replaced.
    """
    check_key(key)
    if not _REPLACEABLE.fullmatch(key):  # against any-object-replaced
        raise InvalidInput(f"key {key[:80]!r} is no commit's: only commits are replaced", key=key)
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix` if a plain key can start with it; "" and a trailing `/` are allowed.

    Raises:
        InvalidInput: no key that `check_key` accepts starts with it.
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
    if match := _FORBIDDEN.search(text):
        raise InvalidInput(f"key {text[:80]!r} contains {match[0]!r}, which keys must not contain")
    if len(text.encode()) > MAX_KEY_BYTES:
        raise InvalidInput(f"key {text[:80]!r}... is longer than {MAX_KEY_BYTES} bytes")
