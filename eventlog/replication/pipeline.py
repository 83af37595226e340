"""Copies objects and takes steps between them, several at once, within a bound of bytes.

Where executors copy, they store the segments of many versions at once. Then this process takes the
steps in their order: so versions appear in the target as they do otherwise.

A target may decline an object for three reasons: the object exists (`put_if_absent` returns False),
the store is overloaded (`Unavailable`: tried again with growing pauses), or the request is invalid,
for example because a permission is missing (`InvalidInput`: nothing more is sent). Any number of
replicators may repeat every step: objects are created once and never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeGuard

from eventlog.clock import Clock
from eventlog.copying.copier import COPY_BYTES, Copier, Item, read_checked
from eventlog.display import command
from eventlog.errors import (
    CommitConflict,
    Corrupt,
    DataLoss,
    EventLogError,
    InvalidInput,
    KeyNotFound,
)
from eventlog.format import codec, keys
from eventlog.format.codec import sha256
from eventlog.store.branching.branch import stored_place
from eventlog.store.parallel import Executors, read_ahead, threads
from eventlog.store.port import Body, ObjectStore
from eventlog.store.s3.adapter import S3Store

logger = logging.getLogger(__name__)

_THREADS = 16
_WINDOW = 64
_TASK_BYTES = 64 * 2**20  # in flight in one task of an executor, unless an object is larger
_BATCH = 2048  # objects and steps of which executors copy the objects together

Step = Callable[[], int]


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of copying an object.

    Attributes:
        bytes: the number of bytes stored; 0 if the target had it.
        error: why it was not copied; None if it was.
    """

    bytes: int
    error: EventLogError | None = None

    def taken(self) -> int:
        """Return the number of bytes, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.bytes


class Pipeline:
    """Copies objects between the stores of two tables, and takes steps between them.

    Args:
        source: the store that has the objects.
        target: the store in which they are created, under the same keys.
        clock: for pauses.
        most_bytes: bound on the bytes in flight.
        executors: copy segments and deletion vectors; None: this process does. Other objects, of
            which the log consists, are copied by this process in any case.

    Attributes:
        objects: number of objects that were created.
        bytes: the size of these objects.
    """

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        clock: Clock,
        most_bytes: int = COPY_BYTES,
        *,
        executors: Executors | None = None,
    ) -> None:
        self._source, self._target, self._clock = source, target, clock
        self._executors = executors
        self._most = most_bytes
        self._copier = Copier(source, target, clock)
        self.objects = self.bytes = 0

    def copied(self, steps: Iterable[Item | Step]) -> Iterator[int]:
        """Copy items and take steps between them, in order; yield the results of the steps.

        A step is taken once all items before it are stored. Items after it may be in flight then.

        Args:
            steps: the items, and the steps as functions.

        Raises:
            CommitConflict: the target has other bytes under a key.
            DataLoss: an object of the source is missing or damaged.
            InvalidInput: executors store objects where this process does not find them.
            Unavailable: a store does not answer.
        """
        if self._executors is None:
            yield from self._taken(steps)
            return
        with closing(_in_batches(steps)) as batches:
            for batch in batches:
                yield from self._taken(self._stored_by(self._executors, batch))

    def _taken(self, steps: Iterable[Item | CopyResult | Step]) -> Iterator[int]:
        with threads(_THREADS) as pool:
            answers = read_ahead(
                pool,
                steps,
                self._prepare,
                weigh=lambda step: step.bytes if isinstance(step, Item) else 0,
                most=self._most,
                window=_WINDOW,
            )
            # The traceback of a step that fails refers to the generators: the threads of `steps`
            # would end only when the error is forgotten.
            with closing(answers):
                for answer in answers:
                    if isinstance(answer, int):
                        self.objects += answer > 0
                        self.bytes += answer
                    else:
                        yield answer()

    def _stored_by(
        self, executors: Executors, batch: Sequence[Item | Step]
    ) -> list[Item | CopyResult | Step]:
        """Have executors copy the rows among some items; return the others, and the results.

        The error of an item takes its place, so that the steps before it are still taken.

        Raises:
            InvalidInput: this process does not find an object that they stored.
        """
        items = [one for one in batch if _has_rows(one)]
        copies = ItemCopies(self._source, self._target, self._clock)
        found = iter(executors(copies, items, lambda item: item.bytes))
        stored: list[Item | CopyResult | Step] = []
        for one in batch:
            if not _has_rows(one):
                stored.append(one)
                continue
            result = next(found)
            if result.error is None and self._target.near:  # against copied-on-another-machine
                self._check_here(one)
            stored.append(result)
        return stored

    def _check_here(self, item: Item) -> None:
        """Check that this process finds an object that an executor stored in a directory."""
        try:
            self._target.get(item.key, length=1)
        except KeyNotFound:
            raise InvalidInput(
                f"an executor stored an object that is not at {self._target.uri} here: use a "
                "directory that all machines share, or a bucket, or the driver local",
                table=self._target.uri,
                key=item.key,
                version=item.version,
            ) from None

    def create(self, key: str, body: bytes) -> None:
        """Create an object at the target, unless it exists.

        Raises:
            CommitConflict: the target has other bytes under the key.
            Unavailable: the target does not answer.
        """
        if self.put(key, body):
            self.objects += 1
            self.bytes += len(body)

    def _prepare(self, step: Item | CopyResult | Step) -> int | Step:
        if isinstance(step, CopyResult):
            return step.taken()
        return self.copy(step) if isinstance(step, Item) else step

    def results(self, items: Iterable[Item]) -> Iterator[CopyResult]:
        """Copy objects, and yield the result of each, in order: an error ends nothing."""
        with threads(_THREADS) as pool:
            yield from read_ahead(
                pool,
                items,
                self._result,
                weigh=lambda item: item.bytes,
                most=self._most,
                window=_WINDOW,
            )

    def _result(self, item: Item) -> CopyResult:
        try:
            return CopyResult(self.copy(item))
        except EventLogError as error:
            return CopyResult(0, error)

    def copy(self, item: Item) -> int:
        """Copy one object, and return the number of bytes stored; 0 if the target had it.

        Raises:
            CommitConflict: the target has other bytes under the key.
            DataLoss: the object is missing or damaged at the source.
            Unavailable: a store does not answer.
        """
        if item.maybe_there and self._is_there(item):
            return 0
        if self._copier.copied_within(item):
            return item.bytes
        try:
            body = read_checked(self._source.get, item, self._source.uri)
        except (Corrupt, KeyNotFound) as error:
            if item.role == "leaf":  # against damaged-leaf-stops-a-follower
                logger.warning("a leaf of key frame %d is not copied: %s", item.version, error)
                return 0
            if isinstance(error, Corrupt):
                raise
            if item.role == "pending":  # without it a vacuum starts over (R12.9)
                return 0
            raise DataLoss(
                f"version {item.version} needs an object that is missing: run "
                f"{command('fsck', self._source.uri)}",
                table=self._source.uri,
                key=item.key,
                version=item.version,
            ) from None
        try:
            return len(body) if self.put(item.key, body) else 0
        except CommitConflict:  # no other write has this key: its name is random, or its content
            raise CommitConflict(
                "the target has other bytes under this key than the log describes, such as damage "
                "that was copied before: delete this object at the target, and follow again",
                table=self._target.uri,
                key=item.key,
                version=item.version,
            ) from None

    def put_slot(self, version: int, body: bytes) -> None:
        """Create a commit, or its stub, at the target, unless it has one of the two.

        Raises:
            CommitConflict: the target has another commit.
            Unavailable: the target does not answer.
        """
        key = keys.commit_key(version)
        try:
            self.create(key, body)
        except CommitConflict:
            there = self._target.get(key, length=codec.MAX_COMMIT_BYTES + 1)
            # against stub-taken-for-another-commit
            if codec.commit_hash_of(there) != codec.commit_hash_of(body):
                raise

    def put(self, key: str, body: Body) -> bool:
        """Create an object at the target, and return whether this call did.

        Raises:
            CommitConflict: the target has other bytes under the key.
            Unavailable: the target does not answer.
        """
        return self._copier.put(key, body)

    def _is_there(self, item: Item) -> bool:
        """Return whether the target has the object.

        The bytes of an `unnamed` item are compared. Other items are compared only as far as is
        possible without reading them: a follower has checked every object that it stored, and the
        store has a checksum of every object that it copied itself.
        """
        try:
            if item.vectors:  # their size says nothing
                return item.is_body(self._target.get(item.key))
            place, key = stored_place(self._target, item.key)
            if isinstance(place, S3Store) and item.role == "segment":
                size, digest = place.size_and_sha256(key)
                if digest is not None or not item.unnamed:
                    # against damage-taken-for-a-copy
                    return size == item.bytes and digest in (None, item.sha256)
            if item.unnamed:  # against unnamed-taken-for-a-copy
                return sha256(place.get(key, length=item.bytes + 1)) == item.sha256
            end = self._target.get(item.key, start=max(0, item.bytes - 1), length=2)
        except KeyNotFound:
            return False
        return len(end) == min(1, item.bytes)


@dataclass(frozen=True, slots=True)
class ItemCopies:
    """Copies shares of objects. Can be pickled.

    Attributes:
        source: the store that has them.
        target: the store in which they are created.
        clock: for pauses.
    """

    source: ObjectStore
    target: ObjectStore
    clock: Clock

    def __call__(self, share: Sequence[Item]) -> Iterator[CopyResult]:
        """Copy objects, and yield the result of each, in order."""
        return Pipeline(self.source, self.target, self.clock, _TASK_BYTES).results(share)


def _has_rows(step: Item | Step) -> TypeGuard[Item]:
    """Return whether a step copies rows, or the deletes of rows."""
    return isinstance(step, Item) and step.role in ("segment", "vectors")


def _in_batches(steps: Iterable[Item | Step]) -> Generator[list[Item | Step], None, None]:
    """Yield steps in batches; if there is an error, those before it come first.

    A generator is closed at the end: it may have threads.
    """
    batch: list[Item | Step] = []
    try:
        for step in steps:
            batch.append(step)
            if len(batch) == _BATCH:
                yield batch
                batch = []
    except EventLogError:
        yield batch  # against batch-before-an-error-dropped
        raise
    else:
        yield batch
    finally:
        if isinstance(steps, Generator):
            steps.close()
