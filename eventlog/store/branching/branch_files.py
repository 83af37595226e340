"""The pyarrow file system of a branch: its parent's, with each object looked up where it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystem, FileType, PyFileSystem

from eventlog.store.files import StoreFiles
from eventlog.store.port import ObjectStore

_ROOT = "root"

# From a key of the branch to the keys of its parent's store where the object may lie.
Places = Callable[[str], tuple[str, ...]]


def branch_filesystem(
    store: ObjectStore, parent: ObjectStore, places: Places
) -> tuple[FileSystem, str]:
    """Return a read-only pyarrow file system over a branch, and the path of its root there.

    Args:
        store: the branch.
        parent: the store that has its objects, and those of its parent.
        places: from a key of the branch to the keys of `parent` to look under, in this order.
    """
    return PyFileSystem(_BranchFiles(store, parent, places)), _ROOT


class _BranchFiles(StoreFiles):
    """Reads through the parent's file system, which may ask for many files at once."""

    def __init__(self, store: ObjectStore, parent: ObjectStore, places: Places) -> None:
        super().__init__(store)
        self._files, self._parent_root = parent.filesystem()
        self._places = places

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Return for each path whether it is a file (with its size), a directory, or missing."""
        result: list[FileInfo] = [FileInfo(path, FileType.NotFound) for path in paths]
        left = {number: self._candidates(path) for number, path in enumerate(paths)}
        while left:
            infos = self._files.get_file_info([candidates[0] for candidates in left.values()])
            for number, info in zip(list(left), infos, strict=True):
                if info.type != FileType.NotFound:
                    size = info.size if info.is_file else None
                    result[number] = FileInfo(paths[number], info.type, size=size)
                    left[number] = []
                left[number] = left[number][1:]
            left = {number: candidates for number, candidates in left.items() if candidates}
        return result

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return the object for random access."""
        *others, last = self._candidates(path)
        for place in others:
            try:
                return self._files.open_input_file(place)
            except FileNotFoundError:
                continue
        return self._files.open_input_file(last)

    def _candidates(self, path: str) -> list[str]:
        key = path.removeprefix(f"{_ROOT}/")
        return [f"{self._parent_root}/{place}" for place in self._places(key)]
