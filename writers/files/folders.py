"""The files of rows behind the paths of an append: folders, their partitions, and their markers.

Imports eventlog only. Every file in a folder is read or known to hold no rows; whatever else lies
there is refused by name, because it may hold rows, or say which of the others count.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import pyarrow as pa

from eventlog.errors import InvalidInput
from eventlog.writers.files.partitions import Partition, parse_parts
from eventlog.writers.files.sources import CODECS, FORMATS, Source

_BY_SUFFIX = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "arrows": "arrow",
    "ipc": "arrow",
    "feather": "arrow",
}
_DONE = "_SUCCESS"
_EMPTY_BYTES = 64  # compressed text of no byte takes fewer
# What writers leave beside rows, and what holds none.
_NO_ROWS = re.compile(r"_SUCCESS|_metadata|_common_metadata|\..*\.crc|\.DS_Store")
# What says that a folder is not just the files in it.
_MARKERS = {
    "_temporary": "a job has not finished writing this folder, or died: write it again",
    "_spark_metadata": "a stream's list says which of these files count: read it with Spark",
    "_delta_log": "this is a Delta Lake table, whose log says which files count",
    ".hoodie": "this is a Hudi table, whose timeline says which files count",
    "_log": "this may be an eventlog table, whose log says which files count: scan it",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """A path to a file of rows, and the folder it was found in, if it was."""

    path: str
    folder: str | None
    size: int


def find_files(files: Sequence[str], wanted: pa.Schema, file_format: str | None) -> list[Source]:
    """Return the files of rows, those of a folder in the order of their names.

    Args:
        files: paths of files and folders.
        wanted: the table's columns, which a path may name.
        file_format: one of `FORMATS`; by the files' names if None.

    Raises:
        InvalidInput: something that is missing, is no file of rows, comes twice, or has another
            format than the rest.
    """
    pipes = [file for file in files if _is_pipe(file)]
    if pipes:
        if len(files) > 1 or file_format is None:
            raise InvalidInput(f"{pipes[0]} is a pipe: give it alone, and say its --format")
        stream = Path(pipes[0]).open("rb")  # noqa: SIM115 - read while the rows are
        return [Source(pipes[0], file_format, Partition(), stream=stream)]
    found = [part for file in files for part in _below(file)]
    _check_once(found)
    sources = _sources(found, wanted, file_format)
    for folder in {part.folder for part in found} - {None}:
        _check_same_columns(
            [s for s, part in zip(sources, found, strict=True) if part.folder == folder]
        )
    return [s for s, part in zip(sources, found, strict=True) if not _holds_nothing(s, part)]


def _is_pipe(file: str) -> bool:
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116
    except FileNotFoundError:
        raise InvalidInput(f"no such file: {file}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _below(file: str) -> list[_Found]:
    if not Path(file).is_dir():
        return [_Found(file, None, Path(file).stat().st_size)]
    try:
        found = [_Found(p, file, Path(p).stat().st_size) for p in _walk(file, frozenset())]
    except OSError as error:
        raise InvalidInput(f"cannot read the folder {file}: {error}") from None
    if not found:
        raise InvalidInput(f"the folder {file} has no files of rows")
    return found


def _walk(folder: str, above: frozenset[str]) -> Iterator[str]:
    """Yield every file of rows below a folder, in the order of names.

    Unlike `os.walk` it follows links and raises where a folder cannot be listed.
    """
    real = os.path.realpath(folder)
    if real in above:
        raise InvalidInput(f"the folder {folder} is a link into itself")
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if why := _MARKERS.get(entry.name):
            raise InvalidInput(f"{entry.path}: {why}; or name the files one by one")
        if entry.is_dir():
            if entry.name.startswith(("_", ".")) and "=" not in entry.name:
                raise _unknown(entry.path)
            yield from _walk(entry.path, above | {real})
        elif not _NO_ROWS.fullmatch(entry.name):
            if entry.name.startswith(("_", ".")) or not entry.is_file():
                raise _unknown(entry.path)
            yield entry.path


def _unknown(path: str) -> InvalidInput:
    return InvalidInput(
        f"{path} may be hidden, unfinished, or a marker of a program that is not known here: "
        "remove it, or name the files of rows one by one"
    )


def _check_once(found: Sequence[_Found]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for part in found:
        status = os.stat(part.path)  # noqa: PTH116 - of what links lead to
        file = status.st_dev, status.st_ino
        if file in seen:
            raise InvalidInput(
                f"{part.path} is given twice (as {seen[file]}): its rows would be there twice"
            )
        seen[file] = part.path


def _sources(found: Sequence[_Found], wanted: pa.Schema, file_format: str | None) -> list[Source]:
    sources, first = [], None
    for part in found:
        kind, codec = _format_of(part, file_format)
        if codec and kind in ("parquet", "arrow"):
            raise InvalidInput(f"{part.path} is compressed as a whole: decompress it first")
        source = Source(part.path, kind, _partition(part, wanted), codec)
        first = first or source
        if kind != first.kind:
            raise InvalidInput(
                f"files of several formats, such as {first.path} and {part.path}: append each on "
                "its own"
            )
        sources.append(source)
    return sources


def _format_of(part: _Found, file_format: str | None) -> tuple[str, str | None]:
    """Return the format of a file and its compression; a known suffix in a folder is believed."""
    suffixes = [suffix[1:].lower() for suffix in PurePath(part.path).suffixes]
    codec = CODECS.get(suffixes.pop()) if suffixes and suffixes[-1] in CODECS else None
    kind = _BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    if file_format and (kind is None or part.folder is None):
        kind = file_format
    if kind is None:
        raise InvalidInput(
            f"the name of {part.path} does not say its format: give --format, one of "
            f"{', '.join(FORMATS)}"
        )
    return kind, codec


def _partition(part: _Found, wanted: pa.Schema) -> Partition:
    """Return the columns that the path says: any of the table's, and inside a folder all."""
    absolute = os.path.abspath(part.path)  # noqa: PTH100 - links keep their names
    folders = [name for name in PurePath(absolute).parts[:-1] if "=" in name]
    inside = 0
    if part.folder is not None:
        below = os.path.relpath(part.path, part.folder)
        inside = sum("=" in name for name in PurePath(below).parts[:-1])
    known = {name.casefold() for name in wanted.names}
    said = []
    for at, folder in enumerate(folders):
        (name,) = parse_parts([folder]).values or [""]
        if name not in wanted.names and (at >= len(folders) - inside or name.casefold() in known):
            raise InvalidInput(
                f"{part.path}: the folder {folder!r} says a column {name!r}, which the table does "
                f"not have; it has {', '.join(wanted.names)}"
            )
        if name in wanted.names:
            said.append(folder)
    return parse_parts(said)


def _check_same_columns(sources: Sequence[Source]) -> None:
    """Refuse a folder where some paths say a column and others do not: it would be null there."""
    first = sources[0]
    for source in sources:
        if source.partition.values.keys() != first.partition.values.keys():
            raise InvalidInput(
                f"the paths {first.path} and {source.path} in one folder do not say the same "
                "columns: append them one by one"
            )


def _holds_nothing(source: Source, part: _Found) -> bool:
    """Say whether an empty text file may be left out: where its writer says that it was done.

    Raises:
        InvalidInput: nobody says so, or the format has no empty files.
    """
    text = source.kind in ("csv", "json")
    done = text and part.folder is not None and (Path(part.folder) / _DONE).exists()
    if part.size:
        return done and part.size <= _EMPTY_BYTES and _is_empty_inside(source)
    if done:
        return True
    raise source.refused("it is empty, as a file is whose writer died")


def _is_empty_inside(source: Source) -> bool:
    with source.complaining(), source.open() as content:
        return not content.read(1)
