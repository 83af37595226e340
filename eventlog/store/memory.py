"""A store in the memory of this process, for tests and simulation."""

from __future__ import annotations

import itertools
import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from pyarrow.fs import FileSystem

from eventlog.clock import Clock
from eventlog.errors import InvalidInput, KeyNotFound
from eventlog.store.files import store_filesystem
from eventlog.store.port import (
    Body,
    ObjectInfo,
    check_hint,
    check_key,
    check_limit,
    check_prefix,
    check_range,
    check_replaceable,
)

_SCHEME = "memory://"
_PAGE = 1000


class MemoryStore:
    """A dict under a lock.

    Stores with the same URI share their objects until the process ends, and so do pickled copies
    within it. Without a URI the store is new, and its objects are freed with its last copy.

    Args:
        uri: `memory://name`, or None.
        clock: the source of `now_ms`; None for a store that reports no time.

    Raises:
        InvalidInput: the URI is not of that form.
    """

    def __init__(self, uri: str | None = None, clock: Clock | None = None) -> None:
        self._uri, self._shelf = _open_shelf(uri)
        self._clock = clock

    def __reduce__(self) -> tuple[object, ...]:
        return (MemoryStore, (self._uri, self._clock))

    def __repr__(self) -> str:
        return f"MemoryStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return self._uri

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`."""
        return True

    @property
    def unproven(self) -> None:
        """See `ObjectStore.unproven`: a lock makes the create atomic."""

    @property
    def forks(self) -> tuple[()]:
        """See `ObjectStore.forks`: none, because this is no branch."""
        return ()

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        check_key(key)
        check_range(start, length)
        body = self._shelf.objects.get(key)
        if body is None:
            raise KeyNotFound("no such object", table=self._uri, key=key)
        return body[start : None if length is None else start + length]

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`."""
        check_key(key)
        copy = bytes(body)
        with self._shelf.lock:
            if key in self._shelf.objects:
                return False
            self._shelf.objects[key] = copy
            insort(self._shelf.keys, key)
        return True

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`."""
        check_hint(key)
        with self._shelf.lock:
            if key not in self._shelf.objects:
                insort(self._shelf.keys, key)
            self._shelf.objects[key] = bytes(body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`."""
        check_replaceable(key)
        with self._shelf.lock:
            stored = self._shelf.objects.get(key)
            if stored == old:
                self._shelf.objects[key] = bytes(body)
            return stored in (old, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        check_prefix(prefix)
        check_limit(limit)
        return itertools.islice(self._pages(prefix, after), limit)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        for key in keys:
            check_key(key)
            with self._shelf.lock:
                if self._shelf.objects.pop(key, None) is not None:
                    del self._shelf.keys[bisect_left(self._shelf.keys, key)]

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`."""
        return store_filesystem(self)

    def now_ms(self) -> int | None:
        """See `ObjectStore.now_ms`."""
        return None if self._clock is None else self._clock.now_ms()

    def _pages(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        # Python orders str by code point, which is the order of the UTF-8 bytes.
        shelf = self._shelf
        while True:
            with shelf.lock:
                first = max(bisect_right(shelf.keys, after), bisect_left(shelf.keys, prefix))
                page = [
                    ObjectInfo(key, len(shelf.objects[key]))
                    for key in itertools.takewhile(
                        lambda key: key.startswith(prefix), shelf.keys[first : first + _PAGE]
                    )
                ]
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].key


class _Shelf:
    """The objects of one URI, and their keys in order."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.keys: list[str] = []


_lock = threading.Lock()
_named: dict[str, _Shelf] = {}
_unnamed: weakref.WeakValueDictionary[str, _Shelf] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def _open_shelf(uri: str | None) -> tuple[str, _Shelf]:
    with _lock:
        if uri is None:
            # The space keeps it apart from URIs that users choose.
            uri, shelf = f"{_SCHEME}unnamed {next(_numbers)}", _Shelf()
            _unnamed[uri] = shelf
            return uri, shelf
        uri = uri.rstrip("/") if uri != _SCHEME else uri
        if not uri.startswith(_SCHEME) or uri == _SCHEME:
            raise InvalidInput(f"{uri!r} is not the URI of a store in memory: write {_SCHEME}name")
        unnamed = _unnamed.get(uri)
        return uri, unnamed if unnamed is not None else _named.setdefault(uri, _Shelf())
