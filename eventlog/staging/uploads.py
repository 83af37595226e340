"""Segments on their way to the store while the next ones are made.

Shell layer. What is under way is bounded by its bytes, so that a slow store holds the writer up
instead of filling the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class Uploads(Generic[_Result]):
    """Work on segments beside the caller. `close` ends its threads.

    Args:
        threads: how many work at once.
        most_bytes: what all that is under way may hold; one piece of work alone may hold more.
        most: how many pieces may be under way, those that wait for a thread included; no bound if
            None.
    """

    def __init__(self, threads: int, most_bytes: int, most: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eventlog-upload")
        self._most_bytes, self._most = most_bytes, most
        self._all: list[Future[_Result]] = []
        self._flying: dict[Future[_Result], int] = {}

    def close(self) -> None:
        """Wait for what is being worked on, and give up what has not begun."""
        self._pool.shutdown(cancel_futures=True)

    def under_way(self) -> bool:
        """Say whether anything is under way, as far as it was waited for."""
        return bool(self._flying)

    def add(self, size: int, work: Callable[..., _Result], *given: Any) -> None:
        """Begin a piece of work that holds so many bytes; wait until there is room for it.

        Raises: what an earlier piece of work met.
        """
        while self._flying and self._is_full(size):
            done, _ = wait(self._flying, return_when="FIRST_COMPLETED")
            for future in done:
                del self._flying[future]
                future.result()
        future = self._pool.submit(work, *given)
        self._flying[future] = size
        self._all.append(future)

    def results(self) -> list[_Result]:
        """Wait for all work, and return what came of it, in the order in which it was begun.

        Raises: what a piece of work met.
        """
        return [future.result() for future in self._all]

    def _is_full(self, size: int) -> bool:
        if self._most is not None and len(self._flying) >= self._most:
            return True
        return sum(self._flying.values()) + size > self._most_bytes
