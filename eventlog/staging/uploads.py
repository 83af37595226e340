"""Uploads segments in threads while the next ones are prepared.

The uploads in flight are bounded by their bytes, so that a slow store blocks the writer instead of
filling the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class Uploads(Generic[_Result]):
    """Runs uploads in threads. `close` ends the threads.

    Args:
        threads: the number of threads.
        most_bytes: bound on the bytes in flight; a single upload may exceed it.
        most: bound on the number of uploads in flight, including those that wait for a thread; none
            if None.
    """

    def __init__(self, threads: int, most_bytes: int, most: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eventlog-upload")
        self._most_bytes, self._most = most_bytes, most
        self._all: list[Future[_Result]] = []
        self._in_flight: dict[Future[_Result], int] = {}

    def close(self) -> None:
        """Wait for uploads that have started, and cancel the others."""
        self._pool.shutdown(cancel_futures=True)

    def under_way(self) -> bool:
        """Say whether uploads are in flight, or have ended without being noticed by `add`."""
        return bool(self._in_flight)

    def add(self, size: int, work: Callable[..., _Result], *given: Any) -> None:
        """Start an upload as soon as there is room for its `size` in bytes.

        Raises: the error of an earlier upload.
        """
        while self._in_flight and self._is_full(size):
            done, _ = wait(self._in_flight, return_when="FIRST_COMPLETED")
            for future in done:
                del self._in_flight[future]
                future.result()
        future = self._pool.submit(work, *given)
        self._in_flight[future] = size
        self._all.append(future)

    def results(self) -> list[_Result]:
        """Wait for all uploads, and return their results in the order of the calls of `add`.

        Raises: the error of an upload.
        """
        return [future.result() for future in self._all]

    def _is_full(self, size: int) -> bool:
        if self._most is not None and len(self._in_flight) >= self._most:
            return True
        return sum(self._in_flight.values()) + size > self._most_bytes
