"""Arrow IPC: the file form, which ends in a footer, and the stream form, which ends in a marker.

Imports eventlog only. Arrow takes the end of the bytes for the end of a stream. Here a stream
without its marker is refused: its producer may have died half-way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eventlog.writers.files.sources import Opened, Source, check_alone

_FILE_MAGIC = b"ARROW1"


def open_arrow(source: Source) -> Opened:
    """Open a file or a stream of Arrow IPC, whichever it is.

    Raises:
        pa.ArrowException: it is neither; out of the batches, where it is cut.
        ValueError: out of the batches, where the end of a stream is missing, or bytes follow it.
    """
    file = source.open()
    if source.stream is None:
        if file.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
            file.close()
            return _open_file(source)
        file.seek(0)
    stream = _Ended(file)
    try:
        reader = pa.ipc.open_stream(stream)
    except pa.ArrowException as error:
        stream.close()
        raise ValueError(f"it is no Arrow IPC stream: {error}") from None
    return Opened(reader.schema, _streamed(reader, stream), close=stream.close)


def _open_file(source: Source) -> Opened:
    # Not mapped into memory: rows wait there to be encoded, and the file may change meanwhile.
    file = pa.OSFile(os.fsencode(source.path))
    try:
        reader = pa.ipc.open_file(file)
        check_alone(source.path, _FILE_MAGIC)
        # Older releases of Arrow count rows by reading them.
        rows = reader.count_rows() if hasattr(reader, "count_rows") else None
        return Opened(reader.schema, _filed(reader, file), rows, file.close)
    except BaseException:
        file.close()
        raise


def _filed(reader: pa.RecordBatchFileReader, file: Any) -> Iterator[pa.RecordBatch]:
    with file:
        for number in range(reader.num_record_batches):
            yield _whole(reader.get_batch(number))


def _streamed(reader: pa.RecordBatchStreamReader, stream: _Ended) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield _whole(batch)
    stream.check_end()
    stream.close()


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch if its offsets stay within its buffers, which Arrow does not look at.

    Raises:
        pa.ArrowInvalid: they do not: other bytes would be read as values.
    """
    batch.validate(full=True)
    return batch


class _Ended:
    """A stream as a file to read, which knows whether Arrow stopped before the bytes did.

    Arrow reads what it needs and no more: at the marker it stops, and where there is none it asks
    for more than there is. The marker's bytes alone say nothing, as rows may end in the same.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._short = False
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, as many as there are of `size`."""
        block: bytes = self._file.read(size)
        self._short |= len(block) < size
        return block

    def readable(self) -> bool:
        """Say that it can be read, as files do."""
        return True

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()

    def check_end(self) -> None:
        """Check that the stream ended with its marker and that nothing follows it.

        Raises:
            ValueError: it did not.
        """
        if self._short:
            raise ValueError(
                "the Arrow IPC stream stops without its end-of-stream marker: its producer may "
                "have died half-way"
            )
        if self._file.read(1):
            raise ValueError(
                "bytes follow the end of the Arrow IPC stream: append each stream on its own"
            )
