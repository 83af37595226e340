"""A store in a directory of a local (or NFS) file system.

An object is written to a temporary file, synced, and then linked to its name by `os.link`, which
fails if the name exists: this is the atomic create of FORMAT.md "What the storage must provide".
Directories are kept when their last object is deleted. Temporary files that a crash left in `.tmp`
may be removed while there are no writers.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pyarrow.fs import FileSystem, LocalFileSystem

from eventlog.clock import Clock, SystemClock
from eventlog.errors import InvalidInput, KeyNotFound, OutcomeUnknown, Unavailable
from eventlog.store.port import (
    TEMPORARY,
    Body,
    ObjectInfo,
    check_key,
    check_limit,
    check_prefix,
    check_range,
)

_SKIPPED = TEMPORARY.encode() + b"/"
_ATTEMPTS = 8
_NO_LINKS = {
    errno.EPERM: "it has no hard links (as FAT, exFAT and many FUSE mounts), or forbids them here",
    errno.EOPNOTSUPP: "it has no hard links",
    errno.ENOSYS: "it has no hard links",
    errno.EMLINK: "it allows only one name for a file",
    errno.EXDEV: "parts of the table are on different file systems or mounts",
}

# The class has a method called `list`.
_Names = list[bytes]


class LocalStore:
    """Objects as files under `root`; the first put creates the directory.

    The file system must support hard links and create them atomically, as POSIX requires.

    Args:
        root: absolute path of the directory.
        clock: names the temporary files.

    Raises:
        InvalidInput: the root is not absolute.
    """

    def __init__(self, root: str | os.PathLike[str], clock: Clock | None = None) -> None:
        self._path = Path(root)
        if not self._path.is_absolute():
            raise InvalidInput(f"local root {str(root)!r} is not absolute")
        self._root = str(self._path)
        self._clock = clock or SystemClock()
        # Directories whose own entry is known to be durable.
        self._known: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStore, (self._root, self._clock))

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`; of the form `file:///path`, percent-encoded."""
        return self._path.as_uri()

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`."""
        return True

    @property
    def unproven(self) -> None:
        """See `ObjectStore.unproven`: `link(2)` is atomic."""

    @property
    def forks(self) -> tuple[()]:
        """See `ObjectStore.forks`: a root of its own."""
        return ()

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        check_range(start, length)
        path = self._path_of(key)
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - Path.open costs twice the time
                if start:
                    file.seek(start)
                return file.read(-1 if length is None else length)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise KeyNotFound("no such object", table=self.uri, key=key) from None
        except OSError as error:
            raise self._unavailable("read", error, key) from error

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`.

        Raises:
            InvalidInput: the file system does not support hard links; nothing was created.
            Unavailable: the file could not be written; nothing was created.
            OutcomeUnknown: the file was created, but the directory could not be synced.
        """
        path = self._path_of(key)
        try:
            temporary = self._write_temporary(body)
        except OSError as error:
            raise self._unavailable("write", error, key) from error
        try:
            created = self._link(temporary, path, key)  # against local-put-overwrites
            if created:
                self._sync_name(path, key)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
        return created

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`; every directory is read once, when the listing reaches it."""
        check_prefix(prefix)
        check_limit(limit)
        start = prefix[: prefix.rfind("/") + 1].encode()
        if start.startswith(_SKIPPED):
            return iter(())
        walk = self._walk(start, prefix.encode(), after.encode(errors="surrogatepass"), limit)
        return islice(walk, limit)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        for key in keys:
            path = self._path_of(key)
            try:
                os.unlink(path)  # noqa: PTH108
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if os.path.isdir(path):  # noqa: PTH112
                    continue
                raise self._unavailable("delete", error, key) from error

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`."""
        return LocalFileSystem(use_mmap=False), self._root

    def now_ms(self) -> int | None:
        """Return None: a directory has no clock of its own."""
        return None

    def _path_of(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _write_temporary(self, body: Body) -> str:
        directory = f"{self._root}/{TEMPORARY}"
        # Not a retry of one request: each attempt uses another name, without a pause.
        for attempt in range(_ATTEMPTS):
            path = f"{directory}/{self._clock.token()}"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileNotFoundError:
                self._known.clear()
                self._make(directory)
                continue
            except FileExistsError:
                # The same token was drawn before, with the same seed; the next one differs.
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            try:
                _write_durably(descriptor, body)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
                raise
            finally:
                os.close(descriptor)
            return path
        raise FileNotFoundError(directory)

    def _link(self, temporary: str, path: str, key: str) -> bool:
        directory = path.rpartition("/")[0]
        try:
            self._make(directory)
            try:
                os.link(temporary, path)
            except FileNotFoundError:
                # The directory was removed since this process created it.
                self._known.clear()
                self._make(directory)
                os.link(temporary, path)
        except FileExistsError:
            return self._is_own(temporary, path, key)
        except NotADirectoryError:
            raise InvalidInput("the key is under another object", key=key) from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise self._without_links(error, key) from error
            raise self._unavailable("write", error, key) from error
        return True

    def _is_own(self, temporary: str, path: str, key: str) -> bool:
        # NFS may apply a link twice, and answer only the second time.
        if os.path.isdir(path):  # noqa: PTH112
            raise InvalidInput("there are other objects under this key", key=key)
        try:
            return os.path.samestat(os.stat(temporary), os.stat(path))  # noqa: PTH116
        except OSError:
            return False

    def _sync_name(self, path: str, key: str) -> None:
        try:
            _sync_directory(path.rpartition("/")[0])
        except OSError as error:
            raise OutcomeUnknown(
                f"the object was created, but its directory could not be synced: {error}",
                table=self.uri,
                key=key,
            ) from error

    def _make(self, directory: str) -> None:
        """Create and sync the directory and its parents.

        Existing ones are synced too: another writer may have created them and not synced them yet.
        """
        if directory in self._known:
            return
        parent = os.path.dirname(directory)  # noqa: PTH120
        inside = directory.startswith(f"{self._root}/")
        if inside or not os.path.isdir(directory):  # noqa: PTH112
            self._make(parent)
            try:
                os.mkdir(directory)  # noqa: PTH102
            except FileExistsError:
                if not os.path.isdir(directory):  # noqa: PTH112
                    raise NotADirectoryError(directory) from None
            _sync_directory(parent)
        self._known.add(directory)

    def _walk(
        self, directory: bytes, prefix: bytes, after: bytes, limit: int | None
    ) -> Iterator[ObjectInfo]:
        names = self._matching(directory, prefix, after)
        for name in sorted(names) if limit is None else _popped(names):
            if name.endswith(b"/"):
                yield from self._walk(name, prefix, after, limit)
            elif info := self._stat(name):
                yield info

    def _matching(self, directory: bytes, prefix: bytes, after: bytes) -> _Names:
        """Return the keys of matching files, and of directories with matches (trailing `/`)."""
        names: _Names = []
        try:
            with os.scandir(os.fsencode(self._root) + b"/" + directory) as entries:
                for entry in entries:
                    name = directory + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        name += b"/"
                        # All keys below start with the name: skipped unless `after` is among them.
                        wanted = name > after or after.startswith(name)
                        wanted &= name != _SKIPPED
                    else:
                        wanted = name > after
                    if wanted and name.startswith(prefix):
                        names.append(name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unavailable("list", error, os.fsdecode(directory)) from error
        return names

    def _stat(self, name: bytes) -> ObjectInfo | None:
        try:
            size = os.stat(os.fsencode(self._root) + b"/" + name).st_size  # noqa: PTH116
            return ObjectInfo(name.decode(), size)
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            # Deleted in the meantime, a dangling link, or a name that is not a valid key.
            return None
        except OSError as error:
            raise self._unavailable("list", error, os.fsdecode(name)) from error

    def _without_links(self, error: OSError, key: str) -> InvalidInput:
        return InvalidInput(
            f"the file system of {self._root} cannot create a file only if it does not exist: "
            f"{_NO_LINKS[error.errno or 0]} ({error.strerror}). Put the table on one local file "
            "system with hard links (ext4, xfs, btrfs, APFS, NTFS, NFS), or on S3",
            table=self.uri,
            key=key,
        )

    def _unavailable(self, verb: str, error: OSError, key: str) -> Unavailable:
        return Unavailable(
            f"cannot {verb} under {self._root}: {error.strerror or error}; "
            "check its free space, permissions and disk, then try again",
            table=self.uri,
            key=key,
        )


def _popped(names: _Names) -> Iterator[bytes]:
    """Yield the names in order; cheaper than sorting if only the first few are consumed."""
    heapq.heapify(names)
    while names:
        yield heapq.heappop(names)


def _write_durably(descriptor: int, body: Body) -> None:
    left = memoryview(body).cast("B")
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
