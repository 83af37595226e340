"""One data file: its path, how it is opened, and the error that refuses it.

Imports eventlog only.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from eventlog.writers.files.partitions import Partition

STDIN = "-"
FORMATS = ("parquet", "csv", "json", "arrow")
# By the end of a file's name, the format of its rows.
SUFFIXES = {
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
CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


def _nothing() -> None:
    """Do nothing: there is nothing to close."""


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An opened file: its columns, its number of rows if known, and its batches, read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None = None
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file.

    Attributes:
        path: its path as given, which messages use.
        kind: one of `FORMATS`.
        partition: the columns whose values are in the path.
        codec: its compression by Arrow's name; None if it is not compressed.
        stream: a pipe, which can be read only once, from its beginning.
        opened: the file as it was opened last, so that `position` can be asked for.
    """

    path: str
    kind: str
    partition: Partition
    codec: str | None = None
    stream: BinaryIO | None = None
    opened: list[pa.OSFile] = field(default_factory=list, repr=False, compare=False)

    @property
    def size(self) -> int | None:
        """The bytes of the file, or None of a pipe."""
        return None if self.stream is not None else Path(self.path).stat().st_size

    def position(self) -> int:
        """Return how many bytes have been read since the file was opened last; 0 of a pipe."""
        if not self.opened:
            return 0
        file = self.opened[-1]
        return (self.size or 0) if file.closed else int(file.tell())

    def open(self) -> Any:
        """Return the (decompressed) bytes as a file; truncated compression raises OSError."""
        if self.stream is not None:
            return self.stream
        file = open_path(self.path)
        self.opened[:] = [file]
        return pa.CompressedInputStream(file, self.codec) if self.codec else file

    def refused(self, why: str) -> InvalidInput:
        """Return the error for a file that cannot be read."""
        return InvalidInput(f"cannot read {self.path}: {why}")

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Raise errors in reading this file as InvalidInput that names it."""
        try:
            yield
        except EventLogError:
            raise
        except RecursionError:
            raise self.refused("its values are nested too deeply") from None
        except (pa.ArrowException, OSError, ValueError, EOFError) as error:
            why = str(error) or type(error).__name__
            if self.kind == "parquet" and isinstance(error, pa.ArrowException | OSError):
                message = " ".join(why.split()).rstrip(".")
                why = f"{message}. If another program can read it, rewrite it with that as Arrow"
            raise self.refused(why) from None


def open_path(path: str) -> pa.OSFile:
    """Open a file of any name. Arrow would encode the name as UTF-8, which it need not be."""
    return pa.OSFile(os.fsencode(path))


def check_alone(path: str, magic: bytes, within: int | None = None) -> None:
    """Check that a file with a footer is not several files joined (`cat a b > c`).

    The footer at the end describes only the last of them, but its offsets point into the first.

    Args:
        path: a file that starts and ends with `magic`, with the footer's length before the end's.
        magic: what each file starts and ends with.
        within: search for a second file up to this many bytes from the start; everywhere if None.

    Raises:
        ValueError: another file begins inside it.
    """
    with (
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        stop = len(data) if within is None else within + len(magic)
        at = data.find(2 * magic, len(magic), stop)
        while at >= 0:
            (footer,) = struct.unpack("<I", data[at - 4 : at])
            if 0 < footer <= at - 4 - len(magic):
                raise ValueError(
                    f"several files were joined in it; one ends at byte "
                    f"{at + len(magic)}: append each separately"
                )
            at = data.find(2 * magic, at + 1, stop)
