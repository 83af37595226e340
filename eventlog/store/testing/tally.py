"""Counts of requests and bytes, for tests, benchmarks and tuning."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(slots=True)
class Counts:
    """Requests by kind, and bytes of content, as the client sees them.

    `head` and `post` are counted only by the server (`eventlog.store.testing.local_server`).
    """

    get: int = 0
    put: int = 0
    list: int = 0
    delete: int = 0
    head: int = 0
    post: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def total(self) -> int:
        """The number of requests of all kinds."""
        return self.get + self.put + self.list + self.delete + self.head + self.post


class Tally:
    """Counts of requests and bytes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()
        self._measures: list[Counts] = []

    @property
    def counts(self) -> Counts:
        """A copy of the counts since the start or the last reset."""
        with self._lock:
            return replace(self._counts)

    def reset(self) -> None:
        """Set the counts to zero; active measurements are not affected."""
        with self._lock:
            self._counts = Counts()

    @contextmanager
    def measure(self) -> Iterator[Counts]:
        """Yield counts that start at zero and are updated until the context ends."""
        measured = Counts()
        with self._lock:
            self._measures.append(measured)
        try:
            yield measured
        finally:
            with self._lock:
                # By identity: two measurements may have equal counts.
                self._measures = [other for other in self._measures if other is not measured]

    def add(self, kind: str, *, requests: int = 1, read: int = 0, written: int = 0) -> None:
        """Count requests of one kind (a field of `Counts`) and their bytes."""
        with self._lock:
            for counts in (self._counts, *self._measures):
                setattr(counts, kind, getattr(counts, kind) + requests)
                counts.bytes_read += read
                counts.bytes_written += written
