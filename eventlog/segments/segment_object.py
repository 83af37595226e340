"""The objects of segments: every byte is compared with the log before it is used.

Small objects are fetched and checked as a whole. For a large object the tail
is fetched first and checked against its size and sha256 in the entry; then each requested part is
checked against the checksums in the tail (`eventlog.format.parts`). So a decoder sees committed
bytes only: a bit flipped on a disk or in transit cannot make it loop, crash or return other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from msgspec import UnsetType

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
from eventlog.inline import inline_objects
from eventlog.log.log import Log
from eventlog.model.entries import Segment
from eventlog.state.small.holds import check_kept
from eventlog.store.branching.roots import check_there, held_from
from eventlog.store.checksum import object_checksum
from eventlog.store.files import FetchedRanges
from eventlog.store.port import ObjectStore

_ATTEMPTS = 3  # of one fetch: damage in transit is gone the next time
# Ranges that are closer than the gap are fetched in one request, of at most `_MOST_BYTES`.
_GAP_BYTES = 8 * 2**10
_MOST_BYTES = 32 * 2**20
# An object whose entry has no tail is checked as a whole once, and in such blocks from then on.
_BLOCK_BYTES = 2**20
_END_BYTES = 8

_Answer = TypeVar("_Answer")
_Span = tuple[int, int]


class SegmentObject:
    """One segment's object. Call `open` first.

    Args:
        store: the store that has it.
        segment: its entry in the log.
        version: the version that is read, for messages.
        fetchers: fetch ranges in parallel, if requests take time; one after another if None.
        table: the table's id. If the object is missing, the log is checked to have this id still.
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
        """Fetch and check the object's last bytes (`end`), and parse `footer` from them.

        Raises:
            DataLoss: the object is missing or damaged.
            Unavailable: the store does not answer.
        """
        segment = self.segment
        try:
            if segment.bytes <= limits.WHOLE_BYTES or not isinstance(segment.inline, UnsetType):
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
        except Corrupt as error:  # what was committed is not a segment
            if isinstance(error, DataLoss):
                raise
            raise self.loss(error.message) from error

    def read(self, spans: Iterable[_Span]) -> pa.NativeFile:
        """Return a file from which these ranges of the object can be read, checked; no others can.

        Raises:
            DataLoss: the object is missing or damaged.
            Unavailable: the store does not answer.
        """
        if self._whole is not None:
            return pa.BufferReader(self._whole)
        ranges = list(_joined(self._parts, spans))
        if self._fetchers is not None and len(ranges) > 1 and not self._store.near:
            fetched = list(self._fetchers.map(self._fetch, ranges))
        else:
            fetched = list(map(self._fetch, ranges))
        return pa.PythonFile(FetchedRanges(fetched, self.segment.bytes), mode="r")

    def _bytes(self, start: int) -> bytes:
        """Return the last bytes of the object, checked."""
        file = self.read([(start, self.segment.bytes)])
        file.seek(start)
        return bytes(file.read())

    def _fetch(self, numbers: range) -> tuple[int, memoryview]:
        """Return where adjacent parts start, and their checked bytes."""
        return self._tried(lambda: self._fetch_parts(numbers))

    def _tried(self, fetch: Callable[[], _Answer | None]) -> _Answer:
        """Fetch with retries. None from `fetch`, which means wrong bytes, becomes DataLoss."""
        # No pauses: the adapter has paused already, and waiting does not mend damaged bytes.
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = fetch()
            except KeyNotFound:
                raise self.missing() from None
            except Unavailable:
                if attempt == _ATTEMPTS:
                    raise
                continue
            if answer is not None:
                return answer
        raise self.loss("the object's bytes are not those that were committed")

    def _fetch_whole(self) -> bytes | None:
        body = self._read_whole()
        return body if is_object_of(body, self.segment) else None

    def _read_whole(self) -> bytes:
        if not isinstance(self.segment.inline, UnsetType):
            return inline_objects.get_object(self._store, self.segment)
        # Ask for one byte more than expected, to notice an object that is too long.
        return self._store.get(self.key, length=self.segment.bytes + 1)

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
        """Read the whole object once. Return the checksums of its blocks if it is undamaged."""
        size, checksums, lengths = self.segment.bytes, list[bytes](), list[int]()

        def watch(body: bytes) -> None:
            checksums.append(parts.checksum(memoryview(body)))
            lengths.append(len(body))

        checksum = object_checksum(
            self._store,
            self.key,
            size + 1,
            piece_bytes=_BLOCK_BYTES,
            watch=watch,
        )
        if checksum != self.segment.checksum or sum(lengths) != size:
            return None
        return Parts((*range(0, size, _BLOCK_BYTES), size), b"".join(checksums))

    def missing(self) -> EventLogError:
        """Return the error for the object if it is missing. See `missing_error`."""
        return missing_error(self._store, self.key, self._version, self._table)

    def loss(self, what: str) -> DataLoss:
        """Return the error for the object, with the reason."""
        return loss_error(self._store, self.key, self._version, what)


def is_object_of(body: bytes, segment: Segment) -> bool:
    """Return whether bytes are those of a segment's object, by its size and checksum."""
    # against segment-bytes-not-compared
    return len(body) == segment.bytes and codec.sha256(body) == segment.checksum


def missing_error(
    store: ObjectStore, key: str, version: int, table: str | None, *, what: str = "segment"
) -> EventLogError:
    """Return the error for a missing object: vacuumed if below the newest horizon, else lost.

    Or the whole table was removed, and another one may have been created in its place.

    Args:
        store: the store that should have it.
        key: its key.
        version: the version that needs it.
        table: the table's id; the log is checked to have it still.
        what: what the object is, for the message.

    Raises:
        Unavailable: the store does not answer, so that the cause cannot be determined.
    """
    try:
        check_there(store)
        log = Log(store)
        log.table = table
        newest = log.head()
        oldest = held_from(store.forks)
        check_kept(newest.meta, newest.version, version, store.uri, held=oldest)
    except (TableNotFound, VersionVacuumed) as error:
        return error  # against vacuumed-called-lost
    except (Corrupt, NotFound):
        pass  # a damaged log does not show whether a vacuum deleted it
    return loss_error(store, key, version, "the object is missing", what=what)


def loss_error(
    store: ObjectStore, key: str, version: int, why: str, *, what: str = "segment"
) -> DataLoss:
    """Return the error for an object that a version needs.

    Args:
        store: the store that should have it.
        key: its key.
        version: the version that needs it.
        why: what is wrong with it.
        what: what the object is.
    """
    return DataLoss(
        f"a {what} that the version needs is lost: {why}; run `eventlog fsck "
        "--checksums`, and restore the object from a backup or an older version of it",
        damage=why,
        table=store.uri,
        key=key,
        version=version,
    )


def check_sizes(store: ObjectStore, segments: Sequence[Segment], version: int) -> None:
    """Check that the objects exist with the sizes in the log, for readers that do not check.

    Raises:
        DataLoss: an object is missing or has another size.
        Unavailable: the store does not answer.
    """
    files, root = store.filesystem()
    try:
        infos = files.get_file_info([f"{root}/{keys.key_of(segment)}" for segment in segments])
    except OSError as error:
        why = f"the store does not answer: {error}; try again later"
        raise Unavailable(why, table=store.uri, version=version) from error
    for segment, info in zip(segments, infos, strict=True):
        if info.size != segment.bytes:
            source = SegmentObject(store, segment, version)
            if not info.is_file:
                raise source.missing()
            raise source.loss(f"the object has {info.size} bytes, not {segment.bytes}")


def _joined(known: Parts, spans: Iterable[_Span]) -> Iterator[range]:
    """Yield runs of parts that cover the spans, each to be fetched in one request."""
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
