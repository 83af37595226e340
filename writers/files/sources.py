"""One file of rows: where it lies, how it is opened, and how it is refused.

Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from writers.files.partitions import Partition

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
        return pa.input_stream(self.path, compression=self.codec)

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
        except (pa.ArrowException, OSError, ValueError, EOFError) as error:
            raise self.refused(str(error) or type(error).__name__) from None
