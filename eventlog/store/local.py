"""A store in a directory of a local (or NFS) file system.

An object is written to a temporary file, synced, and then linked to its name by `os.link`, which
fails if the name exists: this is the atomic create of FORMAT.md "What the storage must provide".
Directories are kept when their last object is deleted. Temporary files that a crash left in `.tmp`
may be removed at any time: a writer who misses its own writes another one. `eventlog erase` does.

The root may be a symbolic link; none below it is followed. Every directory on the way to an object
is opened by its name in the one above, so that a link made at any moment leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import heapq
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pyarrow.fs import FileSystem

from eventlog.clock import Clock, SystemClock
from eventlog.errors import Corrupt, InvalidInput, KeyNotFound, OutcomeUnknown, Unavailable
from eventlog.store.files import store_filesystem
from eventlog.store.port import (
    TEMPORARY,
    Body,
    ObjectInfo,
    SymbolicLink,
    check_hint,
    check_key,
    check_limit,
    check_prefix,
    check_range,
    check_replaceable,
)

_SKIPPED = TEMPORARY.encode() + b"/"
_ATTEMPTS = 8
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
# O_NONBLOCK: to open a named pipe does not wait for a writer.
_OBJECT = os.O_RDONLY | os.O_NONBLOCK
_NO_LINKS = {
    errno.EPERM: "it has no hard links (as FAT, exFAT and many FUSE mounts), or forbids them here",
    errno.EOPNOTSUPP: "it has no hard links",
    errno.ENOSYS: "it has no hard links",
    errno.EMLINK: "it allows only one name for a file",
    errno.EXDEV: "parts of the table are on different file systems or mounts",
}

# The class has a method called `list`.
_Names = list[bytes]


class TemporaryFile(NamedTuple):
    """A file from which no object has come, or whose object has another name beside it.

    Attributes:
        key: `.tmp/` and its name.
        size: in bytes.
        sha256: of its bytes.
        time: when it was written last, in ms UTC.
    """

    key: str
    size: int
    sha256: str
    time: int


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
        """See `ObjectStore.forks`: none, because this is no branch."""
        return ()

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`; never waits for anything but a file.

        Raises:
            SymbolicLink: the key is a symbolic link, or lies behind one.
        """
        check_range(start, length)
        check_key(key)
        try:
            descriptor = self._open_object(key)
            try:
                left = max(0, os.fstat(descriptor).st_size - start)
                return _read(descriptor, start, left if length is None else min(left, length))
            finally:
                os.close(descriptor)
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
        check_key(key)
        try:
            scratch, temporary = self._write_temporary(body)
        except OSError as error:
            raise self._unavailable("write", error, key) from error
        try:
            return self._link(scratch, temporary, key)  # against local-put-overwrites
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=scratch)
            os.close(scratch)

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`; a symbolic link there is replaced, not followed.

        Raises:
            InvalidInput: there are other objects under this key, or the key is under another one.
            Unavailable: the file could not be written, or its directory could not be synced.
        """
        self._rename(check_hint(key), body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`; by `rename(2)`, after a look at the bytes.

        Raises:
            SymbolicLink: the key is a symbolic link, or lies behind one.
        """
        check_replaceable(key)
        try:
            stored = self.get(key)
        except KeyNotFound:
            return False
        if stored == old:  # against local-replace-without-a-look
            self._rename(key, body)
        return stored in (old, body)

    def _rename(self, key: str, body: bytes) -> None:
        """Create a file, or put another one in its place, in one step."""
        directory, _, name = key.rpartition("/")
        try:
            scratch, temporary = self._write_temporary(body)
            try:
                parent = self._make(directory)
                try:
                    os.replace(temporary, name, src_dir_fd=scratch, dst_dir_fd=parent)
                    os.fsync(parent)
                finally:
                    os.close(parent)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=scratch)
                os.close(scratch)
        except IsADirectoryError:
            raise InvalidInput("there are other objects under this key", key=key) from None
        except NotADirectoryError:
            raise InvalidInput("the key is under another object", key=key) from None
        except OSError as error:
            raise self._unavailable("write", error, key) from error

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`; every directory is read once, when the listing reaches it.

        Anything but a file, such as a named pipe, is listed with the size 0; `get` refuses it.

        Raises:
            SymbolicLink: the listing reaches one; after its key and a `/` it goes on.
        """
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
            directory, _, name = check_key(key).rpartition("/")
            try:
                parent = self._open_directory(directory)
                try:
                    if not stat.S_ISDIR(_status(name, parent).st_mode):
                        os.unlink(name, dir_fd=parent)
                finally:
                    os.close(parent)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._unavailable("delete", error, key) from error

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`; pyarrow's own would follow symbolic links."""
        return store_filesystem(self, self._size)

    def now_ms(self) -> int | None:
        """Return None: a directory has no clock."""
        return None

    def temporary_files(self) -> Sequence[TemporaryFile]:
        """Return the files in `.tmp`, which `list` leaves out; each is read.

        They are of writers at work, and of those that a crash ended.

        Raises:
            SymbolicLink: `.tmp` is one.
            Unavailable: they cannot be read.
        """
        try:
            descriptor = self._open_directory(TEMPORARY)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable("list", error, TEMPORARY) from error
        try:
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in entries)
            found = (_temporary_file(descriptor, name) for name in names)
            return [one for one in found if one is not None]
        except OSError as error:
            raise self._unavailable("read", error, TEMPORARY) from error
        finally:
            os.close(descriptor)

    def delete_temporary(self, files: Iterable[TemporaryFile]) -> None:
        """Delete files in `.tmp`; missing ones are ignored. A writer at work writes its own again.

        Raises:
            SymbolicLink: `.tmp` is one.
            Unavailable: one cannot be deleted.
        """
        for one in files:
            try:
                descriptor = self._open_directory(TEMPORARY)
                try:
                    os.unlink(one.key.removeprefix(f"{TEMPORARY}/"), dir_fd=descriptor)
                finally:
                    os.close(descriptor)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._unavailable("delete", error, one.key) from error

    def _size(self, key: str) -> int | None:
        """Return the size of an object, or None if there is none."""
        check_key(key)
        try:
            descriptor = self._open_object(key)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unavailable("read", error, key) from error
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _open_object(self, key: str) -> int:
        """Return a descriptor of an object's file.

        Raises:
            SymbolicLink: it is a symbolic link, or lies behind one.
            Corrupt: it is a named pipe, a socket or a device.
            OSError: it cannot be opened.
            IsADirectoryError: it is a directory.
        """
        directory, _, name = key.rpartition("/")
        parent = self._open_directory(directory)
        try:
            descriptor = self._open_at(name, _OBJECT, parent, key)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, or a device that is not there
                raise self._is_no_file(key) from None
            raise
        finally:
            os.close(parent)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(key)
        raise self._is_no_file(key)

    def _open_directory(self, path: str) -> int:
        """Return a descriptor of the directory at `path` below the root; "" is the root.

        Raises:
            SymbolicLink: a part of the path is a symbolic link.
            OSError: it cannot be opened.
        """
        descriptor, place = os.open(self._root, _DIRECTORY), ""
        for name in path.split("/") if path else ():
            place = f"{place}/{name}" if place else name
            try:
                inner = self._open_at(name, _DIRECTORY, descriptor, place)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _open_at(self, name: str, flags: int, parent: int, place: str) -> int:
        """Open `name` in a directory, unless it is a symbolic link; `place` is its whole path."""
        try:
            # against link-leads-out-of-the-root
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
        except OSError:
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(_status(name, parent).st_mode):
                    raise self._is_link(place) from None
            raise

    def _write_temporary(self, body: Body) -> tuple[int, str]:
        """Return the directory of a new file, as a descriptor, and the name there."""
        scratch = self._make(TEMPORARY)
        try:
            return scratch, self._write_new(scratch, body)
        except BaseException:
            os.close(scratch)
            raise

    def _write_new(self, scratch: int, body: Body) -> str:
        # Not a retry of one request: each attempt uses another name, without a pause.
        for attempt in range(_ATTEMPTS):
            name = self._clock.random_id()
            try:
                descriptor = os.open(
                    name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=scratch
                )
            except FileExistsError:
                # The same token was drawn before, with the same seed; the next one differs.
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            try:
                _write_durably(descriptor, body)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=scratch)
                raise
            finally:
                os.close(descriptor)
            return name
        raise AssertionError("unreachable")

    def _link(self, scratch: int, temporary: str, key: str) -> bool:
        """Give a temporary file the name of the object, unless the name exists."""
        directory, _, name = key.rpartition("/")
        try:
            parent = self._make(directory)
        except NotADirectoryError:
            raise InvalidInput("the key is under another object", key=key) from None
        except OSError as error:
            raise self._unavailable("write", error, key) from error
        try:
            os.link(temporary, name, src_dir_fd=scratch, dst_dir_fd=parent, follow_symlinks=False)
            self._sync_name(parent, key)
        except FileExistsError:
            if not self._is_own(scratch, temporary, parent, key):
                return False
            self._sync_name(parent, key)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise self._without_links(error, key) from error
            raise self._unavailable("write", error, key) from error
        finally:
            os.close(parent)
        return True

    def _is_own(self, scratch: int, temporary: str, parent: int, key: str) -> bool:
        # NFS may apply a link twice, and answer only the second time.
        try:
            status = _status(key.rpartition("/")[2], parent)
            own = os.path.samestat(_status(temporary, scratch), status)
        except OSError:
            return False
        if stat.S_ISLNK(status.st_mode):
            raise self._is_link(key)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput("there are other objects under this key", key=key)
        return own

    def _sync_name(self, parent: int, key: str) -> None:
        try:
            os.fsync(parent)
        except OSError as error:
            raise OutcomeUnknown(
                f"the object was created, but its directory could not be synced: {error}",
                table=self.uri,
                key=key,
            ) from error

    def _make(self, path: str) -> int:
        """Create and sync the directory at `path` below the root; return a descriptor of it.

        Existing ones are synced too: another writer may have created them and not synced them yet.
        """
        try:
            return self._make_once(path)
        except FileNotFoundError:
            # One of them was removed since this process created it.
            self._known.clear()
            return self._make_once(path)

    def _make_once(self, path: str) -> int:
        self._make_root(self._root)
        descriptor, place = os.open(self._root, _DIRECTORY), ""
        for name in path.split("/") if path else ():
            place = f"{place}/{name}" if place else name
            try:
                if place not in self._known:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                    os.fsync(descriptor)
                    self._known.add(place)
                inner = self._open_at(name, _DIRECTORY, descriptor, place)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _make_root(self, directory: str) -> None:
        """Create and sync the root, and the directories above it."""
        if directory in self._known:
            return
        parent = os.path.dirname(directory)  # noqa: PTH120
        if not os.path.isdir(directory):  # noqa: PTH112
            self._make_root(parent)
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
        try:
            descriptor = self._open_directory(os.fsdecode(directory).rstrip("/"))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._unavailable("list", error, os.fsdecode(directory)) from error
        try:
            names = self._matching(descriptor, directory, prefix, after)
            for name in sorted(names) if limit is None else _popped(names):
                if name.endswith(b"/"):
                    yield from self._walk(name, prefix, after, limit)
                elif info := self._info(descriptor, name):
                    yield info
        finally:
            os.close(descriptor)

    def _matching(self, descriptor: int, directory: bytes, prefix: bytes, after: bytes) -> _Names:
        """Return the keys of matching files, and of directories and links (trailing `/`)."""
        names: _Names = []
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = directory + os.fsencode(entry.name)
                    below = name + b"/"
                    inside = entry.is_dir(follow_symlinks=False)
                    if inside or entry.is_symlink():
                        # All keys below start with the name: skipped unless `after` is among them.
                        wanted = below > after or after.startswith(below)
                        wanted &= below != _SKIPPED and (inside or below != after)
                        name = below
                    else:
                        wanted = name > after
                    if wanted and name.startswith(prefix):
                        names.append(name)
        except OSError as error:
            raise self._unavailable("list", error, os.fsdecode(directory)) from error
        return names

    def _info(self, descriptor: int, name: bytes) -> ObjectInfo | None:
        try:
            key = name.decode()
            status = _status(key.rpartition("/")[2], descriptor)
        except (FileNotFoundError, UnicodeDecodeError):
            # Deleted in the meantime, or a name that is not a valid key.
            return None
        except OSError as error:
            raise self._unavailable("list", error, os.fsdecode(name)) from error
        if stat.S_ISLNK(status.st_mode):
            raise self._is_link(key)
        if stat.S_ISDIR(status.st_mode):
            return None
        return ObjectInfo(key, status.st_size if stat.S_ISREG(status.st_mode) else 0)

    def _is_no_file(self, key: str) -> Corrupt:
        path = f"{self._root}/{key}"
        return Corrupt(
            f"{path} is a named pipe, a socket or a device, not a file: "
            f"`rm {shlex.quote(path)}` removes it; if an object was there, put it back from a copy",
            table=self.uri,
            key=key,
        )

    def _is_link(self, place: str) -> SymbolicLink:
        path = f"{self._root}/{place}"
        return SymbolicLink(
            f"{path} is a symbolic link, and no link below the root of a table is followed: what "
            f"it refers to may be another's. `rm {shlex.quote(path)}` removes the link alone; if "
            "the files belong to this table, move them to its place",
            table=self.uri,
            key=place,
        )

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


def _status(name: str, parent: int) -> os.stat_result:
    """Return the status of `name` in a directory, also if it is a symbolic link."""
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def _read(descriptor: int, start: int, size: int) -> bytes:
    """Return `size` bytes of a file, or all to its end."""
    body = os.pread(descriptor, size, start)
    if not body or len(body) == size:
        return body
    pieces, left = [body], size - len(body)
    while left and (piece := os.pread(descriptor, left, start + size - left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


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


def _temporary_file(directory: int, name: str) -> TemporaryFile | None:
    """Return a file in `.tmp`; None: it is gone, or no file."""
    try:
        descriptor = os.open(name, _OBJECT | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:  # its writer has done with it
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return TemporaryFile(f"{TEMPORARY}/{name}", status.st_size, digest, status.st_mtime_ns // 10**6)
