"""The store of a branch: the objects under its own root, and its parent's below the fork.

| key | where it lies |
|---|---|
| `_log/`, `_packs/`, `_starts/` of a version | the parent up to the fork, else the branch |
| `data/` of an epoch | the parent below the fork, else the branch |
| `_frames/` | by hash: the branch, else the parent |
| any other | the branch |

Writes and deletes reach the branch's own objects only. They lie below the branch's id, so that
objects written late to a branch that was deleted are not part of another one of that name.
FORMAT.md "Branches".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from pyarrow.fs import FileSystem

from eventlog.display import command
from eventlog.errors import Corrupt, InvalidInput, KeyNotFound, TableNotFound
from eventlog.format import codec, keys
from eventlog.model.records import Fork
from eventlog.store.branching.branch_files import branch_filesystem
from eventlog.store.branching.roots import check_there, is_inherited
from eventlog.store.port import (
    Body,
    ObjectInfo,
    ObjectStore,
    check_hint,
    check_key,
    check_limit,
    check_prefix,
    check_range,
    check_replaceable,
)

_Answer = TypeVar("_Answer")


class BranchStore:
    """The part of a table's store that belongs to a branch, as a separate store.

    No request is sent before the first use, which reads where the branch forks; from then on the
    store is that of this branch, also if it is deleted and made again. A listing of
    `_log/` or `data/` also has the parent's objects below the fork; one of `_frames/` has the
    branch's own only.

    Args:
        parent: the store of the table, or of another branch.
        name: the branch's name.
        fork: where it forks, if that is known.

    Raises:
        InvalidInput: no branch may have this name.
    """

    def __init__(self, parent: ObjectStore, name: str, fork: Fork | None = None) -> None:
        self.parent = parent
        self.name = keys.check_branch(name)
        self._fork_key = f"{keys.branch_root(name)}/{keys.FORK_KEY}"
        self._known = fork

    def __reduce__(self) -> tuple[object, ...]:
        return (BranchStore, (self.parent, self.name, self._known))

    def __repr__(self) -> str:
        return f"BranchStore({self.parent!r}, {self.name!r})"

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return keys.branch_uri(self.parent.uri, self.name)

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`."""
        return self.parent.near

    @property
    def unproven(self) -> str | None:
        """See `ObjectStore.unproven`; the place is the parent's."""
        return self.parent.unproven

    @property
    def forks(self) -> tuple[Fork, ...]:
        """See `ObjectStore.forks`; the first time it costs one GET for each branch.

        Raises:
            TableNotFound: there is no such branch.
        """
        return (self._fork(), *self.parent.forks)

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`.

        Raises:
            Corrupt: the parent's commit at the fork is another than the one that was forked.
            TableNotFound: there is no such branch, or an object of its own is missing because it
                was deleted since.
        """
        check_key(key)
        check_range(start, length)
        if key == keys.FORK_KEY:  # the one object that does not lie below the id
            name = self._fork_key
            return self._placed(key, lambda: self.parent.get(name, start=start, length=length))
        if is_inherited(key, self._fork().version):
            body = self._placed(key, lambda: self.parent.get(key, start=start, length=length))
            whole = not start and (length is None or len(body) < length)
            if whole and key == keys.commit_key(self._fork().version):
                self._check_commit(key, body)
            return body
        for place in self._paths(key):
            with suppress(KeyNotFound):
                return self.parent.get(place, start=start, length=length)
        check_there(self)  # against deleted-branch-called-damaged
        raise KeyNotFound("no such object", table=self.uri, key=key)

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`.

        Raises:
            InvalidInput: the key is one of the parent's.
            TableNotFound: there is no such branch.
        """
        return self.parent.put_if_absent(self._own_name(key), body)

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`; the hint is the branch's own.

        Raises:
            TableNotFound: there is no such branch.
        """
        self.parent.put_hint(self._name(check_hint(key)), body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`.

        Raises:
            InvalidInput: the key is one of the parent's.
            TableNotFound: there is no such branch.
        """
        return self.parent.replace(self._own_name(check_replaceable(key)), old, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`; the parent is asked when the listing reaches its part."""
        check_prefix(prefix)
        check_limit(limit)
        return islice(self._rows(prefix, after, limit), limit)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`; the parent's objects are left alone."""
        self.parent.delete(self._name(key) for key in keys)

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`; over the parent's."""
        return branch_filesystem(self, self.parent, self._paths)

    def now_ms(self) -> int | None:
        """See `ObjectStore.now_ms`."""
        return self.parent.now_ms()

    def place(self, key: str) -> tuple[ObjectStore, str]:
        """Return the store of the parent, and the key there under which an object is stored.

        Of one under `_frames/` the branch's own, whether or not it is there.

        Raises:
            TableNotFound: there is no such branch.
        """
        return self.parent, self._paths(key)[0]

    def _fork(self) -> Fork:
        if self._known is None:
            try:
                body = self.parent.get(self._fork_key, length=codec.MAX_FORK_BYTES + 1)
            except KeyNotFound:
                raise TableNotFound(
                    f"there is no branch {self.name!r} of {self.parent.uri}: "
                    f"{command('branches', self.parent.uri)} lists its branches, "
                    f"{command('branch', self.parent.uri, self.name)} creates this one",
                    table=self.uri,
                ) from None
            self._known = self._placed(keys.FORK_KEY, lambda: codec.decode_fork(body, self.name))
        return self._known

    def _paths(self, key: str) -> tuple[str, ...]:
        """Return where in the parent's store an object may lie, in the order to look in."""
        if key.startswith(keys.FRAMES_PREFIX):
            return (self._name(key), key)
        return (key,) if is_inherited(key, self._fork().version) else (self._name(key),)

    def _rows(self, prefix: str, after: str, limit: int | None) -> Iterator[ObjectInfo]:
        """Yield own rows and the parent's in order. Each part is listed when it is reached."""
        fork = self._fork().version
        own_rows = self._own(prefix, after, limit, fork)
        row = next(own_rows, None)
        for place, low, high in _inherited_ranges(fork):
            if not place.startswith(prefix) and not prefix.startswith(place):
                continue
            while row is not None and row.key < low:
                yield row
                row = next(own_rows, None)
            for other in self._theirs(max(place, prefix), max(after, low), high, limit, fork):
                while row is not None and row.key < other.key:
                    yield row
                    row = next(own_rows, None)
                yield other
        while row is not None:
            yield row
            row = next(own_rows, None)

    def _theirs(
        self, prefix: str, after: str, high: str, limit: int | None, fork: int
    ) -> Iterator[ObjectInfo]:
        """Yield the parent's rows below a key that the branch inherits."""
        while True:
            count = 0
            for row in self.parent.list(prefix, after=after, limit=limit):
                count, after = count + 1, row.key
                if row.key >= high:
                    return
                if is_inherited(row.key, fork):
                    yield row
            # A page that is full may have keys that mean nothing: the rows go on after it.
            if limit is None or count < limit or not limit:
                return

    def _own(self, prefix: str, after: str, limit: int | None, fork: int) -> Iterator[ObjectInfo]:
        """Yield the branch's own rows, without those that its parent's stand for."""
        place = self._place()
        while True:
            bound = place + after if after else ""
            count = 0
            for row in self.parent.list(place + prefix, after=bound, limit=limit):
                count, after = count + 1, row.key.removeprefix(place)
                if not is_inherited(after, fork):
                    yield ObjectInfo(after, row.size)
            if limit is None or count < limit or not limit:
                return

    def _check_commit(self, key: str, body: bytes) -> None:
        """Check that the parent's commit is the one that the branch continues."""
        fork = self._fork()
        if codec.sha256(body) != fork.commit:  # against fork-of-another-log
            raise Corrupt(
                f"the parent's commit is not the one that branch {self.name!r} forked from: the "
                f"parent was replaced, or put back from a copy; {command('fsck', self.uri)} checks "
                "both",
                table=self.uri,
                key=key,
                version=fork.version,
            )
        if codec.decode_header(body[: codec.HEADER_BYTES]).table != fork.table:
            raise Corrupt(
                f"`_fork.json` of branch {self.name!r} has the id of another table, not of its "
                "parent: put it back from a copy, or delete the branch",
                table=self.uri,
                version=fork.version,
            )

    def _placed(self, key: str, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except (KeyNotFound, Corrupt) as error:
            error.table, error.key = self.uri, key
            raise

    def _place(self) -> str:
        # against late-write-in-the-next-branch
        return f"{keys.branch_place(self.name, self._fork().id)}/"

    def _own_name(self, key: str) -> str:
        """Return the name of an object in the parent's store, if it is the branch's own."""
        name = self._name(key)
        if is_inherited(key, self._fork().version):  # against branch-writes-into-its-parent
            raise InvalidInput(
                f"this object belongs to the versions before branch {self.name!r} forked at "
                f"version {self._fork().version}: write it with the parent's root",
                table=self.uri,
                key=key,
            )
        return name

    def _name(self, key: str) -> str:
        return check_key(self._place() + check_key(key))


def stored_place(store: ObjectStore, key: str) -> tuple[ObjectStore, str]:
    """Return the store that is no branch, and the key there, where an object is stored.

    Raises:
        TableNotFound: there is no such branch.
    """
    while isinstance(store, BranchStore):
        store, key = store.place(key)
    return store, key


def _inherited_ranges(fork: int) -> tuple[tuple[str, str, str], ...]:
    """Return (prefix, low, high) of the keys that a branch may have from its parent, in order."""
    newest = keys.commit_key(fork).removesuffix(".json")
    start, pack = keys.start_key(fork), keys.packs_prefix(fork)
    return (
        (keys.LOG_PREFIX, newest, f"{keys.LOG_PREFIX}~"),
        (keys.PACKS_PREFIX, pack, f"{keys.PACKS_PREFIX}~"),
        (keys.STARTS_PREFIX, start.removesuffix(".json"), f"{keys.STARTS_PREFIX}~"),
        (keys.SEGMENTS_PREFIX, keys.SEGMENTS_PREFIX, f"{keys.SEGMENTS_PREFIX}{fork:012d}"),
    )
