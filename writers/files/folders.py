"""The data files behind the paths of an append: folders, their partitions, and their markers.

Imports eventlog only. Every file in a folder is either read or known to have no rows. Anything else
is refused by name, because it may have rows or determine which other files count.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

import pyarrow as pa

from eventlog.errors import InvalidInput
from eventlog.writers.files.partitions import Partition, parse_parts
from eventlog.writers.files.sources import CODECS, FORMATS, SUFFIXES, InputFile

_DONE = "_SUCCESS"
_EMPTY_BYTES = 64  # an empty text is smaller than this when compressed
# Files without rows that writers leave beside data files.
_NO_ROWS = re.compile(r"_SUCCESS|_metadata|_common_metadata|\..*\.crc|\.DS_Store")
# Markers of a folder that is more than the files in it.
_MARKERS = {
    "_temporary": "a job has not finished writing this folder, or failed: write it again",
    "_spark_metadata": "a stream's log determines which files count: read it with Spark",
    ".hoodie": "this is a Hudi table, whose timeline determines which files count",
    "_log": "this may be an eventlog table, whose log determines which files count: scan it",
}
# Tables whose files have deleted rows, too, with the way that reads those that count.
_DELTA = (
    "a Delta Lake table, whose log determines which rows count: in Python, append(t, DeltaTable("
)
_ICEBERG = (
    "an Iceberg table, whose metadata determines which rows count: in Python, open it with "
    "pyiceberg and append(t, table.scan().to_arrow_batch_reader())"
)


@dataclass(frozen=True, slots=True)
class _DataFile:
    """The path of a data file, and the folder argument that it was listed from, if any."""

    path: str
    folder: str | None
    size: int


def find_files(files: Sequence[str], wanted: pa.Schema, file_format: str | None) -> list[InputFile]:
    """Return the data files, those of a folder in the order of their names.

    Args:
        files: paths of files and folders.
        wanted: the table's columns, which a path may name.
        file_format: one of `FORMATS`; derived from the files' names if None.

    Raises:
        InvalidInput: a path is missing, is not a data file, is given twice, or has another format
            than the rest.
    """
    pipes = [file for file in files if _is_pipe(file)]
    if pipes:
        if len(files) > 1 or file_format is None:
            raise InvalidInput(f"{pipes[0]} is a pipe: give no other file, and give its --format")
        stream = Path(pipes[0]).open("rb")  # noqa: SIM115 - read while the rows are
        return [InputFile(pipes[0], file_format, Partition(), stream=stream)]
    listed = [part for file in files for part in _below(file)]
    _check_once(listed)
    sources = _sources(listed, wanted, file_format)
    for folder in {part.folder for part in listed} - {None}:
        _check_same_columns(
            [s for s, part in zip(sources, listed, strict=True) if part.folder == folder]
        )
    return [s for s, part in zip(sources, listed, strict=True) if not _is_without_rows(s, part)]


def _is_pipe(file: str) -> bool:
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116
    except FileNotFoundError:
        raise InvalidInput(f"no such file: {file}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _check_no_table(folder: str) -> None:
    """Refuse the folder of a table whose files are not its rows."""
    if os.path.isdir(os.path.join(folder, "_delta_log")):  # noqa: PTH112, PTH118
        raise InvalidInput(f"{folder} is {_DELTA}{folder!r}))")
    with suppress(OSError), os.scandir(os.path.join(folder, "metadata")) as entries:  # noqa: PTH118
        if any(".metadata.json" in entry.name for entry in entries):
            raise InvalidInput(f"{folder} is {_ICEBERG}")


def _below(file: str) -> list[_DataFile]:
    above = Path(os.path.realpath(file)).parents  # against deleted-rows-of-a-table-appended
    for folder in above:
        _check_no_table(str(folder))
    if not Path(file).is_dir():
        return [_DataFile(file, None, Path(file).stat().st_size)]
    try:
        listed = [_DataFile(p, file, Path(p).stat().st_size) for p in _walk(file, frozenset())]
    except OSError as error:
        raise InvalidInput(f"cannot read the folder {file}: {error}") from None
    if not listed:
        raise InvalidInput(f"the folder {file} has no data files")
    return listed


def _walk(folder: str, above: frozenset[str]) -> Iterator[str]:
    """Yield every data file below a folder, in the order of names.

    Unlike `os.walk` it follows links and raises where a folder cannot be listed.
    """
    real = os.path.realpath(folder)
    if real in above:
        raise InvalidInput(f"the folder {folder} is a link into itself")
    _check_no_table(folder)  # against table-of-another-format-read-as-files
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if why := _MARKERS.get(entry.name):
            raise InvalidInput(f"{entry.path}: {why}; or name the files one by one")
    for entry in listed:
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
        f"{path} may be hidden, unfinished, or a marker of an unknown program: "
        "remove it, or name the data files one by one"
    )


def _check_once(listed: Sequence[_DataFile]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for part in listed:
        status = os.stat(part.path)  # noqa: PTH116 - follows links
        file = status.st_dev, status.st_ino
        if file in seen:
            raise InvalidInput(
                f"{part.path} is given twice (as {seen[file]}): its rows would be appended twice"
            )
        seen[file] = part.path


def _sources(
    listed: Sequence[_DataFile], wanted: pa.Schema, file_format: str | None
) -> list[InputFile]:
    sources, first = [], None
    for part in listed:
        kind, codec = _format_of(part, file_format)
        if codec and kind in ("parquet", "arrow"):
            raise InvalidInput(f"{part.path} is compressed as a whole: decompress it first")
        source = InputFile(part.path, kind, _partition(part, wanted), codec)
        first = first or source
        if kind != first.kind:
            raise InvalidInput(
                f"files of several formats, such as {first.path} and {part.path}: append each "
                "format separately"
            )
        sources.append(source)
    return sources


def _format_of(part: _DataFile, file_format: str | None) -> tuple[str, str | None]:
    """Return a file's format and compression; in a folder a known suffix takes precedence."""
    suffixes = [suffix[1:].lower() for suffix in PurePath(part.path).suffixes]
    codec = CODECS.get(suffixes.pop()) if suffixes and suffixes[-1] in CODECS else None
    kind = SUFFIXES.get(suffixes[-1]) if suffixes else None
    if file_format and (kind is None or part.folder is None):
        kind = file_format
    if kind is None:
        raise InvalidInput(
            f"the name of {part.path} does not show its format: give --format, one of "
            f"{', '.join(FORMATS)}"
        )
    return kind, codec


def _partition(part: _DataFile, wanted: pa.Schema) -> Partition:
    """Return the columns in the path: below the given folder all of them, above it the table's."""
    absolute = os.path.abspath(part.path)  # noqa: PTH100 - links keep their names
    folders = [name for name in PurePath(absolute).parts[:-1] if "=" in name]
    inside = 0
    if part.folder is not None:
        below = os.path.relpath(part.path, part.folder)
        inside = sum("=" in name for name in PurePath(below).parts[:-1])
    known = {name.casefold() for name in wanted.names}
    named = []
    for at, folder in enumerate(folders):
        (name,) = parse_parts([folder]).values or [""]
        if name not in wanted.names and (at >= len(folders) - inside or name.casefold() in known):
            raise InvalidInput(
                f"{part.path}: the folder {folder!r} names a column {name!r}, which the table "
                f"lacks; it has {', '.join(wanted.names)}"
            )
        if name in wanted.names:
            named.append(folder)
    return parse_parts(named)


def _check_same_columns(sources: Sequence[InputFile]) -> None:
    """Refuse a folder where only some paths name a column: it would be null for the others."""
    first = sources[0]
    for source in sources:
        if source.partition.values.keys() != first.partition.values.keys():
            raise InvalidInput(
                f"the paths {first.path} and {source.path} in one folder do not name the same "
                "columns: append them one by one"
            )


def _is_without_rows(source: InputFile, part: _DataFile) -> bool:
    """Return whether a text file is empty and may be skipped because its writer had finished.

    Raises:
        InvalidInput: it is empty, and the writer left no `_SUCCESS` or the format has no empty
            files.
    """
    text = source.kind in ("csv", "json")
    done = text and part.folder is not None and (Path(part.folder) / _DONE).exists()
    if part.size:
        return done and part.size <= _EMPTY_BYTES and _is_empty_inside(source)
    if done:
        return True
    raise source.refused("it is empty: its writer may have failed")


def _is_empty_inside(source: InputFile) -> bool:
    with source.errors_named(), source.open() as content:
        return not content.read(1)
