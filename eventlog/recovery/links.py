"""A store for audits that skips symbolic links, at which the table's own store stops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from pyarrow.fs import FileSystem

from eventlog.errors import KeyNotFound
from eventlog.model.records import Fork
from eventlog.store.branching.branch import BranchStore
from eventlog.store.port import Body, ObjectInfo, ObjectStore, SymbolicLink

# The links that were met: for the key of each, what to do about it.
Links = dict[str, str]


def past_links(store: ObjectStore, found: Links) -> ObjectStore:
    """Return a view of a store in which symbolic links, and objects behind them, are absent.

    Args:
        store: the store of a table or a branch.
        found: receives the links that are met.

    Raises:
        TableNotFound: the branch was deleted.
    """
    if isinstance(store, BranchStore):
        return BranchStore(past_links(store.parent, found), store.name, store.forks[0])
    return _PastLinks(store, found)


class _PastLinks:
    """The port of another store, where an object behind a symbolic link is absent, and noted."""

    def __init__(self, inner: ObjectStore, found: Links) -> None:
        self._inner, self._found = inner, found

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def near(self) -> bool:
        return self._inner.near

    @property
    def unproven(self) -> str | None:
        return self._inner.unproven

    @property
    def forks(self) -> tuple[Fork, ...]:
        return self._inner.forks

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        try:
            return self._inner.get(key, start=start, length=length)
        except SymbolicLink as link:
            self._note(link)
            raise KeyNotFound("a symbolic link is there", table=self.uri, key=key) from None

    def put_if_absent(self, key: str, body: Body) -> bool:
        return self._inner.put_if_absent(key, body)

    def put_hint(self, key: str, body: bytes) -> None:
        self._inner.put_hint(key, body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        return self._inner.replace(key, old, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        return islice(self._listed(prefix, after, limit), limit)

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def filesystem(self) -> tuple[FileSystem, str]:
        return self._inner.filesystem()

    def now_ms(self) -> int | None:
        return self._inner.now_ms()

    def _listed(self, prefix: str, after: str, limit: int | None) -> Iterator[ObjectInfo]:
        while True:
            try:
                for row in self._inner.list(prefix, after=after, limit=limit):
                    yield row
                    after = row.key
            except SymbolicLink as link:
                below = self._note(link)
                if prefix.startswith(below):
                    return
                after = below
            else:
                return

    def _note(self, link: SymbolicLink) -> str:
        """Note a link, and return the prefix that the keys behind it would have."""
        place = link.key or ""
        self._found[place] = link.message
        return f"{place}/"
