"""Several requests under way at once, their answers in order.

Shell layer. Every pool of threads that reads has its number of threads from here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

# Threads hide the latency of a store; decoding shares the machine's cores anyway.
THREADS = 8
HEADER_THREADS = 16  # for answers of 2 KB
INTENT_THREADS = 32  # for published transactions: a leader waits for the slowest of them
COPY_THREADS = 4  # for segments that are held in memory whole
WINDOW = 16  # what is read ahead at most

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@contextmanager
def threads(count: int = THREADS) -> Iterator[ThreadPoolExecutor]:
    """Yield the threads of one piece of work; none outlives it."""
    pool = ThreadPoolExecutor(count, thread_name_prefix="eventlog-read")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def read_ahead(
    pool: ThreadPoolExecutor,
    items: Iterable[_Item],
    work: Callable[[_Item], _Answer],
    *,
    weigh: Callable[[_Item], int] = lambda _: 0,
    most: int = 0,
    window: int = WINDOW,
) -> Generator[_Answer, None, None]:
    """Yield the answers in order, while the next few are being worked on.

    An error is raised in the place of its answer; what has not begun by then is cancelled.

    Args:
        pool: works on them.
        items: what to work on.
        work: makes an answer of an item.
        weigh: what an item's answer takes.
        most: what all that are under way, or wait to be taken, may take.
        window: how many these may be.
    """
    flying: deque[tuple[int, Future[_Answer]]] = deque()
    weight = 0
    try:
        for item in items:
            own = weigh(item)
            while flying and (len(flying) >= window or weight + own > most):
                weight -= flying[0][0]
                yield flying.popleft()[1].result()
            flying.append((own, pool.submit(work, item)))
            weight += own
        while flying:
            yield flying.popleft()[1].result()
    finally:
        for _, future in flying:
            future.cancel()


def each(
    work: Callable[[_Item], _Answer],
    items: Sequence[_Item],
    *,
    count: int = THREADS,
    window: int = WINDOW,
) -> Generator[_Answer, None, None]:
    """Do as `read_ahead` does, with threads of its own; with none where there is one item."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with threads(count) as pool:
        yield from read_ahead(pool, items, work, window=window)
