"""The objects of segments: every byte that is handed on was compared with the log.

Imports eventlog only. Small objects are fetched and checked whole. Of large ones first the tail is,
whose size and sha256 the entry has, and then each part that is asked for, by the checksums in the
tail (`eventlog.format.parts`). So a decoder never sees a byte that is not the one that was
committed: no bit that rots on a disk or on the way can make it loop, crash or answer with other
rows.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa

from eventlog import limits
from eventlog.errors import (
    Corrupt,
    DataLoss,
    EventLogError,
    KeyNotFound,
    NotFound,
    TableNotFound,
    Unavailable,
    VersionVacuumed,
)
from eventlog.format import codec, keys, parts
from eventlog.format.parts import Parts
from eventlog.log.log import Log
from eventlog.model.records import Segment
from eventlog.state.small.holds import check_kept
from eventlog.store.checksum import object_checksum
from eventlog.store.port import ObjectStore

_ATTEMPTS = 3  # of one fetch: what was damaged on the way only is right the next time
# Requests: what lies so near to each other is fetched in one, up to so much.
_GAP_BYTES = 8 * 2**10
_MOST_BYTES = 32 * 2**20
# An object whose entry has no tail is checked whole, and in blocks of this size from then on.
_BLOCK_BYTES = 2**20
_END_BYTES = 8

_Answer = TypeVar("_Answer")
_Span = tuple[int, int]


class SegmentObject:
    """One segment's object. Call `open` first.

    Args:
        store: where it lies.
        segment: its entry.
        version: the version that is read, for messages.
        fetchers: fetch ranges side by side; one after another if None.
        table: id of the table, which the log must still be of where the object is missing.
    """

    def __init__(
        self,
        store: ObjectStore,
        segment: Segment,
        version: int,
        fetchers: Executor | None = None,
        *,
        table: str | None = None,
    ) -> None:
        self.key = keys.key_of(segment)
        self.segment = segment
        self._store, self._version, self._fetchers = store, version, fetchers
        self._table = table
        self._whole: bytes | None = None
        self._parts = Parts((), b"")
        self.end = b""
        self.footer: Any = None

    def open(self) -> None:
        """Fetch and check what says where everything is: `footer`, from `end`, its bytes.

        Raises:
            DataLoss: the object is missing or damaged.
            Unavailable: the store does not answer.
        """
        segment = self.segment
        try:
            if segment.bytes <= limits.WHOLE_BYTES:
                self._whole = self.end = self._tried(self._fetch_whole)
                self.footer = parts.parse_footer(self.end)
            elif segment.tail is not None:
                self.end = self._tried(self._fetch_tail)
                self.footer, self._parts = parts.parse_tail(self.end, segment.bytes)
            else:
                self._parts = self._tried(self._blocks)
                size = parts.footer_bytes(self._bytes(segment.bytes - _END_BYTES))
                self.end = self._bytes(max(0, segment.bytes - size))
                self.footer = parts.parse_footer(self.end)
        except Corrupt as error:  # what was committed is no segment
            if isinstance(error, DataLoss):
                raise
            raise self.loss(error.message) from error

    def read(self, spans: Iterable[_Span]) -> pa.NativeFile:
        """Return a file in which these bytes of the object are, checked; others cannot be read.

        Raises:
            DataLoss: the object is missing or damaged.
            Unavailable: the store does not answer.
        """
        if self._whole is not None:
            return pa.BufferReader(self._whole)
        ranges = list(_joined(self._parts, spans))
        if self._fetchers is not None and len(ranges) > 1:
            held = list(self._fetchers.map(self._fetch, ranges))
        else:
            held = list(map(self._fetch, ranges))
        return pa.PythonFile(_Held(held, self.segment.bytes), mode="r")

    def _bytes(self, start: int) -> bytes:
        """Return the last bytes of the object, checked."""
        file = self.read([(start, self.segment.bytes)])
        file.seek(start)
        return bytes(file.read())

    def _fetch(self, numbers: range) -> tuple[int, memoryview]:
        """Return where parts that lie side by side start, and their bytes, checked."""
        return self._tried(lambda: self._fetch_parts(numbers))

    def _tried(self, fetch: Callable[[], _Answer | None]) -> _Answer:
        """Return what is fetched; None, which is other bytes than there should be, is DataLoss."""
        # No pauses: the adapter has made them, and damaged bytes are not waited for.
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found = fetch()
            except KeyNotFound:
                raise self.missing() from None
            except Unavailable:
                if attempt == _ATTEMPTS:
                    raise
                continue
            if found is not None:
                return found
        raise self.loss("the object's bytes are not those that were committed")

    def _fetch_whole(self) -> bytes | None:
        # One byte more than there should be, to notice one too many.
        body = self._store.get(self.key, length=self.segment.bytes + 1)
        # against segment-bytes-not-compared
        return body if codec.sha256(body) == self.segment.checksum else None

    def _fetch_tail(self) -> bytes | None:
        tail, size = self.segment.tail, self.segment.bytes
        assert tail is not None  # noqa: S101 - the caller's guard, for the type checker
        body = self._store.get(self.key, start=size - tail.size, length=tail.size + 1)
        return body if codec.sha256(body) == tail.sha256 else None

    def _fetch_parts(self, numbers: range) -> tuple[int, memoryview] | None:
        bounds = self._parts.bounds[numbers.start : numbers.stop + 1]
        first, last = bounds[0], bounds[-1]
        body = memoryview(self._store.get(self.key, start=first, length=last - first))
        checked = zip(numbers, pairwise(bounds), strict=True)
        if all(self._parts.check(n, body[a - first : b - first]) for n, (a, b) in checked):
            return first, body
        return None

    def _blocks(self) -> Parts | None:
        """Read the whole object once, and return the checksums of its blocks if it is undamaged."""
        size, checksums = self.segment.bytes, list[bytes]()
        whole = object_checksum(
            self._store,
            self.key,
            size + 1,
            piece_bytes=_BLOCK_BYTES,
            watch=lambda body: checksums.append(parts.checksum(memoryview(body))),
        )
        if whole != self.segment.checksum:
            return None
        return Parts((*range(0, size, _BLOCK_BYTES), size), b"".join(checksums))

    def missing(self) -> EventLogError:
        """Return what a missing object means: vacuumed below the newest horizon, else lost.

        Or the whole table was removed, and maybe another one created in its place.

        Raises:
            Unavailable: the store does not answer, so that nobody can tell.
        """
        try:
            log = Log(self._store)
            log.table = self._table
            newest = log.head()
            check_kept(newest.meta, newest.version, self._version, self._store.uri)
        except (TableNotFound, VersionVacuumed) as error:
            return error  # against vacuumed-called-lost
        except (Corrupt, NotFound):
            pass  # a damaged log does not say whether a vacuum took it
        return self.loss("the object is missing")

    def loss(self, what: str) -> DataLoss:
        """Return the error that says what is wrong with the object."""
        return DataLoss(
            f"a segment that the version needs is lost: {what}; run `eventlog fsck "
            "--checksums`, and restore the object from a backup or an older version of it",
            table=self._store.uri,
            key=self.key,
            version=self._version,
        )


def check_sizes(store: ObjectStore, segments: Sequence[Segment], version: int) -> None:
    """Check that the objects are there and as large as the log says, for readers that do not.

    Raises:
        DataLoss: one is missing or has another size.
        Unavailable: the store does not answer.
    """
    files, root = store.filesystem()
    try:
        found = files.get_file_info([f"{root}/{keys.key_of(segment)}" for segment in segments])
    except OSError as error:
        why = f"the store does not answer: {error}; try again later"
        raise Unavailable(why, table=store.uri, version=version) from error
    for segment, there in zip(segments, found, strict=True):
        if there.size != segment.bytes:
            source = SegmentObject(store, segment, version)
            if not there.is_file:
                raise source.missing()
            raise source.loss(f"the object has {there.size} bytes, not {segment.bytes}")


def _joined(known: Parts, spans: Iterable[_Span]) -> Iterator[range]:
    """Yield runs of parts that hold the spans, each to be fetched in one request."""
    wanted = sorted({number for start, end in spans for number in known.covering(start, end)})
    bounds = known.bounds
    run: range | None = None
    for number in wanted:
        if run is not None:
            near = bounds[number] - bounds[run.stop] <= _GAP_BYTES
            if near and bounds[number + 1] - bounds[run.start] <= _MOST_BYTES:
                run = range(run.start, number + 1)
                continue
            yield run
        run = range(number, number + 1)
    if run is not None:
        yield run


class _Held(io.RawIOBase):
    """What was fetched of an object, in the place where it lies there."""

    def __init__(self, held: Sequence[tuple[int, memoryview]], size: int) -> None:
        super().__init__()
        self._held, self._size = held, size
        self._starts = [start for start, _ in held]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read_buffer(self, size: int) -> memoryview:
        """Return the bytes themselves; pyarrow asks for them like this."""
        place = bisect_right(self._starts, self._position) - 1
        start, body = self._held[place] if place >= 0 else (0, memoryview(b""))
        end = min(self._position + size, self._size)
        if place < 0 or end > start + len(body):
            raise OSError(f"bytes {self._position} to {end} of the object were not asked for")
        found = body[self._position - start : end - start]
        self._position = end
        return found

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._position
        return bytes(self.read_buffer(left if size is None or size < 0 else min(size, left)))
