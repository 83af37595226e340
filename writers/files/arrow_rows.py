"""Arrow IPC: the file form, which ends in a footer, and the stream form, which ends in a marker.

Imports eventlog only. Arrow accepts a stream that ends without a marker. Here it is refused: its
producer may have failed half-way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eventlog.writers.files.sources import InputFile, OpenInput, check_alone

_FILE_MAGIC = b"ARROW1"


def open_arrow(source: InputFile) -> OpenInput:
    """Open Arrow IPC in its file or its stream form.

    Raises:
        pa.ArrowException: it is neither; also while reading the batches, if it is cut.
        ValueError: while reading the batches: the end of a stream is missing, or bytes follow it.
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
        raise ValueError(f"it is not an Arrow IPC stream: {error}") from None
    return OpenInput(reader.schema, _stream_batches(reader, stream), close=stream.close)


def _open_file(source: InputFile) -> OpenInput:
    # Not memory-mapped: the file may change before its rows are encoded.
    file = pa.OSFile(os.fsencode(source.path))
    try:
        reader = pa.ipc.open_file(file)
        check_alone(source.path, _FILE_MAGIC)
        # Older releases of Arrow count rows by reading them.
        rows = reader.count_rows() if hasattr(reader, "count_rows") else None
        return OpenInput(reader.schema, _file_batches(reader, file), rows, file.close)
    except BaseException:
        file.close()
        raise


def _file_batches(reader: pa.RecordBatchFileReader, file: Any) -> Iterator[pa.RecordBatch]:
    with file:
        for number in range(reader.num_record_batches):
            yield _validated(reader.get_batch(number))


def _stream_batches(reader: pa.RecordBatchStreamReader, stream: _Ended) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield _validated(batch)
    stream.check_end()
    stream.close()


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch if its offsets stay within its buffers, which Arrow does not check.

    Raises:
        pa.ArrowInvalid: they do not, so other bytes would be read as values.
    """
    batch.validate(full=True)
    return batch


class _Ended:
    """A stream as a file, which records whether Arrow tried to read past its end.

    Arrow reads only what it needs: it stops at the marker, and without one it asks for more bytes
    than there are. The marker's bytes alone prove nothing, because rows may end with the same
    bytes.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._short = False
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes."""
        block: bytes = self._file.read(size)
        self._short |= len(block) < size
        return block

    def readable(self) -> bool:
        """Return True, as a readable file does."""
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
                "the Arrow IPC stream ends without its end-of-stream marker: its producer may "
                "have failed half-way"
            )
        if self._file.read(1):
            raise ValueError(
                "bytes follow the end of the Arrow IPC stream: append each stream separately"
            )
