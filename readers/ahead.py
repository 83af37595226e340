"""Reading ahead: the next few pieces of work are under way while an answer is made use of.

Imports nothing of the project.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

# Threads hide the latency of a store; decoding shares the machine's cores anyway.
_THREADS = 8
WINDOW = 16  # what is read ahead at most

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield the threads of one read; none outlives it."""
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="eventlog-read")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def read_ahead(
    pool: ThreadPoolExecutor,
    items: Iterable[_Item],
    work: Callable[[_Item], _Answer],
    weigh: Callable[[_Item], int],
    most: int,
) -> Generator[_Answer, None, None]:
    """Yield the answers in order, while the next few are being worked on.

    Args:
        pool: works on them.
        items: what to work on.
        work: makes an answer of an item.
        weigh: what an item's answer takes.
        most: what all that are under way, or wait to be taken, may take.
    """
    flying: deque[tuple[int, Future[_Answer]]] = deque()
    weight = 0
    for item in items:
        own = weigh(item)
        while flying and (len(flying) >= WINDOW or weight + own > most):
            weight -= flying[0][0]
            yield flying.popleft()[1].result()
        flying.append((own, pool.submit(work, item)))
        weight += own
    while flying:
        yield flying.popleft()[1].result()
