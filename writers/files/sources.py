"""One file of rows: where it lies, how it is opened, and how it is refused.

Imports eventlog only.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from eventlog.writers.files.partitions import Partition

STDIN = "-"
FORMATS = ("parquet", "csv", "json", "arrow")
CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


def _nothing() -> None:
    """Close what holds nothing open."""


@dataclass(frozen=True, slots=True)
class Opened:
    """One file, opened: its columns, its rows where they are known, and its batches, read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None = None
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows.

    Attributes:
        path: where it is, as it was given; what messages call it.
        kind: one of `FORMATS`.
        partition: the columns whose values stand in the path.
        codec: how it is compressed, as Arrow calls it; None if it is not.
        stream: a pipe, which can be read once and from its beginning only.
    """

    path: str
    kind: str
    partition: Partition
    codec: str | None = None
    stream: BinaryIO | None = None

    def open(self) -> Any:
        """Return the (decompressed) bytes as a file; a cut in the compression raises OSError."""
        if self.stream is not None:
            return self.stream
        file = open_path(self.path)
        return pa.CompressedInputStream(file, self.codec) if self.codec else file

    def refused(self, why: str) -> InvalidInput:
        """Return the error that says why this file is not read."""
        return InvalidInput(f"cannot read {self.path}: {why}")

    @contextmanager
    def complaining(self) -> Iterator[None]:
        """Raise what goes wrong with this file as InvalidInput that names it."""
        try:
            yield
        except EventLogError:
            raise
        except RecursionError:
            raise self.refused("its values nest too deep") from None
        except (pa.ArrowException, OSError, ValueError, EOFError) as error:
            why = str(error) or type(error).__name__
            if self.kind == "parquet" and isinstance(error, pa.ArrowException | OSError):
                said = " ".join(why.split()).rstrip(".")
                why = (
                    f"{said}. Where another program reads it, let that one write it again, as Arrow"
                )
            raise self.refused(why) from None


def open_path(path: str) -> pa.OSFile:
    """Return a file of any name: Arrow itself encodes a text as UTF-8, which a name need not be."""
    return pa.OSFile(os.fsencode(path))


def check_alone(path: str, magic: bytes, within: int | None = None) -> None:
    """Check that a file with a footer is not several, one after the other (`cat a b > c`).

    The footer at the end describes only the last of them, and its offsets point into the first.

    Args:
        path: a file that starts and ends with `magic`, with the footer's length before the last.
        magic: what each file starts and ends with.
        within: a second file starts at most so many bytes from the start; anywhere if None.

    Raises:
        ValueError: another file begins inside of it.
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
                    f"several files were joined in it, of which one ends at byte "
                    f"{at + len(magic)}: append each on its own"
                )
            at = data.find(2 * magic, at + 1, stop)
