"""Wrappers of a store: one that counts requests, one under a prefix, one that injects faults.

The first two keep the contract of the port; the last breaks it as planned (`faults`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice

from pyarrow.fs import FileSystem

from eventlog.model.records import Fork
from eventlog.store.files import store_filesystem
from eventlog.store.port import (
    Body,
    ObjectInfo,
    ObjectStore,
    check_hint,
    check_key,
    check_limit,
    check_prefix,
    check_replaceable,
)
from eventlog.store.testing.faults import Crash, Fault, FaultyStore
from eventlog.store.testing.tally import Counts, Tally

__all__ = ["CountingStore", "Crash", "Fault", "FaultyStore", "PrefixedStore"]

_PAGE = 1000


class CountingStore:
    """Counts the requests to a store, as S3 would bill them, and the bytes of content.

    A listing counts as one request per page of 1000 consumed rows, a delete as one per 1000 keys.
    Refused and failed requests count. A pickled copy counts separately, from zero.

    Args:
        inner: the wrapped store.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self._tally = Tally()

    def __reduce__(self) -> tuple[object, ...]:
        return (CountingStore, (self.inner,))

    def __repr__(self) -> str:
        return f"CountingStore({self.inner!r})"

    @property
    def counts(self) -> Counts:
        """A copy of the counts since the start or the last reset."""
        return self._tally.counts

    def reset(self) -> None:
        """Set the counts to zero."""
        self._tally.reset()

    def measure(self) -> AbstractContextManager[Counts]:
        """Return a context manager that yields the counts of its block, updated as it runs."""
        return self._tally.measure()

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return self.inner.uri

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`; its reads are counted."""
        return False

    @property
    def unproven(self) -> str | None:
        """See `ObjectStore.unproven`."""
        return self.inner.unproven

    @property
    def forks(self) -> tuple[Fork, ...]:
        """See `ObjectStore.forks`."""
        return self.inner.forks

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        self._tally.add("get")
        body = self.inner.get(key, start=start, length=length)
        self._tally.add("get", requests=0, read=len(body))
        return body

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`."""
        self._tally.add("put", written=memoryview(body).nbytes)
        return self.inner.put_if_absent(key, body)

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`; counted as a put."""
        self._tally.add("put", written=len(body))
        self.inner.put_hint(key, body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`; counted as a get and a put."""
        self._tally.add("get", read=len(old))
        self._tally.add("put", written=len(body))
        return self.inner.replace(key, old, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        return self._counted(self.inner.list(prefix, after=after, limit=limit))

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        left = iter(keys)
        while batch := tuple(islice(left, _PAGE)):
            self._tally.add("delete")
            self.inner.delete(batch)

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`; its reads are counted here."""
        return store_filesystem(self)

    def now_ms(self) -> int | None:
        """See `ObjectStore.now_ms`."""
        return self.inner.now_ms()

    def _counted(self, rows: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        self._tally.add("list")
        for number, row in enumerate(rows):
            if number and number % _PAGE == 0:
                self._tally.add("list")
            yield row


class PrefixedStore:
    """The part of a store under a prefix, as a separate store.

    Its file system is that of the inner store, which also counts those reads.

    Args:
        inner: the wrapped store.
        prefix: a plain key without a trailing `/`.

    Raises:
        InvalidInput: the prefix is not a plain key.
    """

    def __init__(self, inner: ObjectStore, prefix: str) -> None:
        self.inner = inner
        self._prefix = check_key(prefix) + "/"

    def __repr__(self) -> str:
        return f"PrefixedStore({self.inner!r}, {self._prefix!r})"

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return f"{self.inner.uri}/{self._prefix}".rstrip("/")

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`."""
        return self.inner.near

    @property
    def unproven(self) -> str | None:
        """See `ObjectStore.unproven`."""
        return self.inner.unproven

    @property
    def forks(self) -> tuple[()]:
        """See `ObjectStore.forks`: none, because the prefix is a whole root."""
        return ()

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        return self.inner.get(self._key(key), start=start, length=length)

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`."""
        return self.inner.put_if_absent(self._key(key), body)

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`."""
        self.inner.put_hint(self._key(check_hint(key)), body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`."""
        return self.inner.replace(self._key(check_replaceable(key)), old, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        check_prefix(prefix)
        check_limit(limit)
        # Without `after` the listing starts at the prefix.
        bound = self._prefix + after if after else ""
        rows = self.inner.list(self._prefix + prefix, after=bound, limit=limit)
        return (ObjectInfo(row.key.removeprefix(self._prefix), row.size) for row in rows)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        self.inner.delete(self._key(key) for key in keys)

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`."""
        filesystem, root = self.inner.filesystem()
        return filesystem, f"{root}/{self._prefix}".rstrip("/")

    def now_ms(self) -> int | None:
        """See `ObjectStore.now_ms`."""
        return self.inner.now_ms()

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)
