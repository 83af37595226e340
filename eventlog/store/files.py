"""Files as pyarrow reads them: a file system over any `ObjectStore`, and ranges of an object.

The file system is read-only, and reads through `get`. It is used by adapters without a native
pyarrow file system, and by wrappers, which must also count reads of segments and inject faults into
them.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NoReturn

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType, PyFileSystem

from eventlog.errors import InvalidInput, KeyNotFound
from eventlog.store.port import ObjectStore

_ROOT = "root"
# The size and content of a smaller object take one request; the port has no HEAD.
_HEAD_BYTES = 256 * 1024


# From a key to the size of the object; None if there is none.
SizeOf = Callable[[str], int | None]


def store_filesystem(store: ObjectStore, size_of: SizeOf | None = None) -> tuple[FileSystem, str]:
    """Return a read-only pyarrow file system over `store`, and the path of its root there.

    Args:
        store: the store to read.
        size_of: of its objects; if None, they are listed.
    """
    return PyFileSystem(StoreFiles(store, size_of)), _ROOT


class StoreFiles(FileSystemHandler):  # type: ignore[misc]  # pyarrow is untyped
    """The part of pyarrow's file system protocol that reads; the rest raises NotImplementedError.

    A missing object is a FileNotFoundError, as in pyarrow's own file systems; other errors of the
    store pass through pyarrow unchanged.
    """

    def __init__(self, store: ObjectStore, size_of: SizeOf | None = None) -> None:
        self.store = store
        self._size_of = size_of or self._listed_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFiles) and other.store is self.store

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self.store)

    def get_type_name(self) -> str:
        """Return the name of this kind of file system."""
        return "eventlog-store"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is: keys have one form."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Return for each path whether it is a file (with its size), a directory, or missing."""
        return [self._file_info(path) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return the object for random access."""
        return pa.PythonFile(_StoreFile(self.store, _key(path), self._size_of), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Return the object for reading from start to end."""
        return self.open_input_file(path)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Refuse: segments are listed in the log, not in the store."""
        _refuse("list", selector.base_dir)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Refuse: read-only."""
        _refuse("create_dir", path, recursive)

    def delete_dir(self, path: str) -> None:
        """Refuse: read-only."""
        _refuse("delete_dir", path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        """Refuse: read-only."""
        _refuse("delete_dir_contents", path, missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        """Refuse: read-only."""
        _refuse("delete_root_dir_contents")

    def delete_file(self, path: str) -> None:
        """Refuse: read-only."""
        _refuse("delete_file", path)

    def move(self, src: str, dest: str) -> None:
        """Refuse: read-only."""
        _refuse("move", src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        """Refuse: read-only."""
        _refuse("copy_file", src, dest)

    def open_output_stream(self, path: str, metadata: object) -> NoReturn:
        """Refuse: read-only."""
        _refuse("open_output_stream", path, metadata)

    def open_append_stream(self, path: str, metadata: object) -> NoReturn:
        """Refuse: read-only."""
        _refuse("open_append_stream", path, metadata)

    def _file_info(self, path: str) -> FileInfo:
        if path.rstrip("/") == _ROOT:
            return FileInfo(path, FileType.Directory)
        key = _key(path)
        size = self._size_of(key)
        if size is not None:
            return FileInfo(path, FileType.File, size=size)
        for _ in self.store.list(f"{key}/", limit=1):
            return FileInfo(path, FileType.Directory)
        return FileInfo(path, FileType.NotFound)

    def _listed_size(self, key: str) -> int | None:
        # The object itself sorts first among the keys that start with its key.
        for row in self.store.list(key, limit=1):
            if row.key == key:
                return row.size
        return None


class _StoreFile(io.RawIOBase):
    """One object as a seekable file; its first bytes are kept."""

    def __init__(self, store: ObjectStore, key: str, size_of: SizeOf) -> None:
        super().__init__()
        self._get: Callable[..., bytes] = store.get
        self._key = key
        self._position = 0
        try:
            self._head = store.get(key, length=_HEAD_BYTES)
            self._size = len(self._head)
            if self._size == _HEAD_BYTES:
                self._size = self._object_size(store, size_of)
        except KeyNotFound as error:
            raise FileNotFoundError(str(error)) from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        if self.closed:
            raise ValueError("read of a closed file")
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        end = self._position + length
        if end <= len(self._head):
            body = self._head[self._position : end]
        else:
            try:
                body = self._get(self._key, start=self._position, length=length)
            except KeyNotFound as error:
                raise FileNotFoundError(str(error)) from error
        self._position += len(body)
        return body

    def _object_size(self, store: ObjectStore, size_of: SizeOf) -> int:
        size = size_of(self._key)
        if size is not None:
            return size
        # A listing may be stale; the object itself is not.
        self._head += store.get(self._key, start=len(self._head))
        return len(self._head)


def _key(path: str) -> str:
    root, _, key = path.partition("/")
    if root != _ROOT or not key:
        raise InvalidInput(f"{path[:80]!r} is outside this file system")
    return key


def _refuse(verb: str, *arguments: object) -> NoReturn:
    raise NotImplementedError(f"{verb}{arguments}: the file system of a store is read-only")


class FetchedRanges(io.RawIOBase):
    """A read-only file of an object's size that has only the fetched ranges of its bytes.

    Args:
        held: (offset, bytes) of the ranges, by ascending offset.
        size: of the object.
    """

    def __init__(self, ranges: Sequence[tuple[int, memoryview]], size: int) -> None:
        super().__init__()
        self._ranges, self._size = ranges, size
        self._starts = [start for start, _ in ranges]
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read_buffer(self, size: int) -> memoryview:
        """Return the next bytes without a copy; pyarrow calls this.

        Raises:
            OSError: they are in no fetched range.
        """
        place = bisect_right(self._starts, self._position) - 1
        start, body = self._ranges[place] if place >= 0 else (0, memoryview(b""))
        end = min(self._position + size, self._size)
        if place < 0 or end > start + len(body):
            raise OSError(f"bytes {self._position} to {end} of the object were not requested")
        data = body[self._position - start : end - start]
        self._position = end
        return data

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, or all to the end.

        Raises:
            OSError: they are in no fetched range.
        """
        left = self._size - self._position
        return bytes(self.read_buffer(left if size is None or size < 0 else min(size, left)))
