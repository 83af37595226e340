"""Concurrent requests whose answers are returned in order: by threads, or by executors of Spark.

The numbers of threads of all pools that read are defined here.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Literal, Protocol, TypeVar

from eventlog.arguments import choice
from eventlog.errors import InvalidInput

# Threads hide the latency of a store; decoding is bound by the machine's cores in any case.
THREADS = 8
HEADER_THREADS = 16  # for answers of 2 KB, and for commits, which are small as a rule
INTENT_THREADS = 32  # for published transactions: a leader waits for the slowest of them
COPY_THREADS = 4  # for segments that are held in memory as a whole
WINDOW = 16  # the maximum number of items to read ahead
_MOST_KEPT = 4  # pools that wait for work: those of two scans at once

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
DriverName = Literal["local", "spark"]


class Executors(Protocol):
    """Processes, elsewhere as a rule, that share some work."""

    def __call__(
        self,
        work: Callable[[Sequence[_Item]], Iterable[_Answer]],
        items: Sequence[_Item],
        weigh: Callable[[_Item], int],
    ) -> list[_Answer]:
        """Return the answers for all items, in order. Where the items weigh little, it works here.

        Args:
            work: returns the answers for a share of the items, in order. It and the items can be
                pickled, and it may be called several times for one share.
            items: the items.
            weigh: returns the bytes that the work reads for an item.

        Raises:
            EventLogError: the first one that `work` raised.
        """
        ...


def executors_of(driver: DriverName) -> Executors | None:
    """Return the executors of a driver; None: the work is done in this process.

    Raises:
        InvalidInput: there is no such driver; or PySpark is not installed, or there is no session.
    """
    if choice(driver, "driver", ("local", "spark")) == "local":
        return None
    try:
        from eventlog.readers.spark.executors import active_executors  # noqa: PLC0415 - the extra
    except ImportError as error:
        raise InvalidInput(
            f"the driver spark needs PySpark: pip install 'eventlog-tables[spark]' ({error})"
        ) from error
    return active_executors()


class _Pool(Executor):
    """Threads that can be given back once all of their work has ended."""

    def __init__(self, count: int) -> None:
        self._own: set[int] = set()
        self._threads = ThreadPoolExecutor(
            count,
            thread_name_prefix="eventlog-read",
            initializer=lambda: self._own.add(get_ident()),
        )
        self._begun: set[Future[Any]] = set()

    def submit(self, work: Callable[..., _Answer], /, *args: Any, **named: Any) -> Future[_Answer]:
        future = self._threads.submit(work, *args, **named)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def settle(self) -> bool:
        """Wait for what is under way, and cancel the rest. Return whether that was possible."""
        if get_ident() in self._own:  # which would wait for itself
            self.shutdown(wait=False, cancel_futures=True)
            return False
        for future in tuple(self._begun):
            future.cancel()
        wait(tuple(self._begun))
        return True


# Pools of `THREADS` threads without work. Arrow decodes into memory that belongs to a thread: with
# new threads a scan of 16 segments takes a fifth more CPU, since each of them gets its memory new.
_kept: deque[_Pool] = deque()
if hasattr(os, "register_at_fork"):  # a fork has none of its parent's threads
    os.register_at_fork(after_in_child=_kept.clear)


@contextmanager
def threads(count: int = THREADS) -> Iterator[Executor]:
    """Yield a pool of threads. What they were given to do has ended when the context ends.

    A few threads are kept for the next reader; see `end_idle_threads`.
    """
    try:
        pool = _kept.pop() if count == THREADS else _Pool(count)
    except IndexError:
        pool = _Pool(count)
    try:
        yield pool
    finally:
        if pool.settle():
            if count == THREADS and len(_kept) < _MOST_KEPT:
                _kept.append(pool)
            else:
                pool.shutdown()


def end_idle_threads() -> None:
    """End the threads that are kept for the next reader. They also end with the interpreter."""
    while _kept:
        _kept.pop().shutdown()


def read_ahead(
    pool: Executor,
    items: Iterable[_Item],
    work: Callable[[_Item], _Answer],
    *,
    weigh: Callable[[_Item], int] = lambda _: 0,
    most: int = 0,
    window: int = WINDOW,
) -> Generator[_Answer, None, None]:
    """Yield the answers in order, while the next few are in flight.

    An error is raised in place of its answer, and cancels the items that have not started.

    Args:
        pool: runs `work`.
        items: the items to process. A generator is closed at the end.
        work: returns the answer for an item.
        weigh: returns the weight of an item's answer.
        most: bound on the total weight of the answers that are in flight or not consumed yet,
            unless a single one is heavier.
        window: bound on their number.
    """
    in_flight: deque[tuple[int, Future[_Answer]]] = deque()
    weight = 0
    try:
        for item in items:
            own = weigh(item)
            while in_flight and (len(in_flight) >= window or weight + own > most):
                weight -= in_flight[0][0]
                yield in_flight.popleft()[1].result()
            in_flight.append((own, start(pool, work, item)))
            weight += own
        while in_flight:
            yield in_flight.popleft()[1].result()
    finally:
        for _, future in in_flight:
            future.cancel()
        if isinstance(items, Generator):  # it may have threads
            items.close()


def start(pool: Executor, work: Callable[[_Item], _Answer], item: _Item) -> Future[_Answer]:
    """Start work in a thread, or do it now if no thread can be started.

    That is so at the end of the interpreter, in an `atexit` handler, and at a limit of threads.
    """
    try:
        return pool.submit(work, item)
    except RuntimeError:
        done: Future[_Answer] = Future()
        try:
            done.set_result(work(item))
        except Exception as error:  # noqa: BLE001 - raised where the answer is taken
            done.set_exception(error)
        return done


def each(
    work: Callable[[_Item], _Answer],
    items: Sequence[_Item],
    *,
    count: int = THREADS,
    window: int = WINDOW,
) -> Generator[_Answer, None, None]:
    """Like `read_ahead`, with a separate pool; with fewer than two items, without threads."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with threads(count) as pool:
        yield from read_ahead(pool, items, work, window=window)
