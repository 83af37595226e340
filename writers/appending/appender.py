"""`Appender`: callers hand in rows, and one thread commits them in groups.

What is decided stands in `backlog`; here are the lock, the thread and the waiting.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import TIMEOUT_MAX, Condition, Thread, current_thread
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from eventlog import Table
from eventlog.arguments import opened, seconds, text, whole
from eventlog.errors import (
    CommitConflict,
    CommitUnknown,
    EventLogError,
    InvalidInput,
    Unavailable,
)
from eventlog.model.records import App
from eventlog.quantities import count_text, size_text
from eventlog.staging.stager import MIN_MEMORY_BYTES
from eventlog.staging.upsert_rows import Missing
from eventlog.writers.appending.backlog import (
    Backlog,
    GroupLimits,
    WaitingAppend,
    apps_gone_on,
)
from eventlog.writers.appending.group_commit import commit_group, staged_group
from eventlog.writers.appending.taken_rows import take_rows
from eventlog.writers.batch import check_missing, make_app

logger = logging.getLogger(__name__)

MAX_BUFFER_BYTES = 256 * 2**20  # more would not fit into one column of Arrow
_R = TypeVar("_R")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class Appender:
    """Appends of many callers and threads, committed in groups; get one with `Table.appender`.

    A group is one version, whoever its rows came from. It is committed once it has `max_rows` rows
    or `max_bytes` bytes, or `max_delay_s` seconds after its first append; what comes meanwhile is
    the next group. A thread begins with the first append, and sends nothing while nothing waits.

    Rows that are not committed are in the memory of this process alone. They are lost if it ends
    without `close`: only what a future has acknowledged is in the table. Leaving a `with` block
    closes, also by an exception. After a fork the child has no part in it.

    Args:
        t: the table.
        app_id: the app of appends that name none.
        max_rows: so many rows make a group due.
        max_bytes: so many bytes of them in Arrow make a group due.
        max_delay_s: the longest time that an append waits for others, in seconds.
        buffer_bytes: bound on the bytes of all appends that are not committed; from 1 to 256 MiB.
            Where they are used up, `append` waits.
        retry_s: how long a group is tried again while the store does not answer, in seconds.
        missing: see `eventlog.writers.append`.

    Raises:
        InvalidInput: an argument is out of bounds.
    """

    def __init__(
        self,
        t: Table,
        *,
        app_id: str | None = None,
        max_rows: int = 100_000,
        max_bytes: int = 16 * 2**20,
        max_delay_s: float = 1.0,
        buffer_bytes: int = 64 * 2**20,
        retry_s: float = 120.0,
        missing: Missing | None = None,
    ) -> None:
        opened(t)
        self._app_id = None if app_id is None else text(app_id, "app_id")
        limits = GroupLimits(
            whole(max_rows, "max_rows", 1),
            whole(max_bytes, "max_bytes", 1),
            seconds(max_delay_s, "max_delay_s"),
            whole(buffer_bytes, "buffer_bytes", MIN_MEMORY_BYTES, MAX_BUFFER_BYTES),
        )
        self._table, self._retry_s = t, seconds(retry_s, "retry_s")
        self._missing = check_missing(missing)
        self._backlog = Backlog(limits)
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False
        self._error: EventLogError | None = None
        self._process = os.getpid()

    def append(
        self,
        data: Any,
        *,
        app_id: str | None = None,
        app_seq: int | None = None,
        timeout_s: float | None = None,
    ) -> Future[int]:
        """Take rows, and return a future with the version that has them once they are committed.

        The rows are converted, checked and copied before this returns. Those of one thread are
        stored in the order of its calls. In a keyed table they are upserts, and deletes by `_op`.

        The future has the error if they were not committed: `CommitConflict` or `Unavailable`,
        where nothing of them was committed; `CommitUnknown`, where that is not known; rarely
        `InvalidInput`, as of rows that break a check which was added meanwhile. It cannot be
        cancelled.

        Args:
            data: rows in any form that `eventlog.writers.append` takes. They are held in memory.
            app_id: with `app_seq`, names a source of rows, such as a partition; None: the app of
                the appender, if it has one.
            app_seq: the place of the last of these rows in that source, such as an offset: greater
                than that of the append before. It is committed with the rows. An append whose
                sequence is not above the committed one is a no-op that counts as done.
            timeout_s: how long to wait for room in the buffer; None: until there is some.

        Raises:
            CommitConflict: an earlier append of the app failed: ask `committed`, and go on there.
            InvalidInput: the rows do not fit the table, or take more than `buffer_bytes`; the
                sequence does not grow; the appender is closed, or made before a fork.
            Unavailable: there was no room for `timeout_s`, or the store does not answer; nothing
                was taken.
        """
        self._check_open()
        patience = None if timeout_s is None else seconds(timeout_s, "timeout_s")
        app = self._app(app_id, app_seq)
        if app is not None:
            done = self._done(app)
            if done is not None:
                return _resolved(done)
        most = self._backlog.limits.buffer_bytes
        rows, count, head = take_rows(self._table, data, self._missing, most)
        if not count and app is None:
            return _resolved(head.version)
        with self._changed:
            self._wait_for_room(rows.size, patience)
            done = self._backlog.done(app)
            if done is not None:
                return _resolved(done)
            future = Future[int]()
            future.set_running_or_notify_cancel()
            now = self._table.clock.elapsed_s()
            self._backlog.add(WaitingAppend(rows, count, head, app, future, now))
            self._start()
            # The thread waits for the end of the delay: to be woken by each append costs more than
            # the append itself.
            if len(self._backlog.waiting) == 1 or self._backlog.due_in(now) == 0:
                self._changed.notify_all()
        return future

    def committed(self, app_id: str | None = None) -> int | None:
        """Return the last sequence of an app that is committed, by one GET; None: there is none.

        A source goes on with what follows it: after a start, after it took over from another
        process, and after an append of the app failed.

        Args:
            app_id: the app; None: that of the appender.

        Raises:
            InvalidInput: no app is named.
            Unavailable: the store does not answer.
        """
        self._check_open()
        app = self._app(app_id, 0)
        if app is None:
            raise InvalidInput("give app_id: the appender has none of its own")
        head = self._table.refresh()
        mark = head.meta.apps.get(app.id)
        last = None if mark is None else mark.seq
        with self._changed:
            self._backlog.recall(app.id, last, head.version)
        return last

    def flush(self) -> None:
        """Commit what waits now, and return once all of it is committed.

        Raises:
            EventLogError: the first error of an append since the last `flush`, also of one whose
                future nobody asked.
        """
        self._check_open()
        self._finish()

    def close(self) -> None:
        """Commit what waits, and end. Later appends are refused; a second `close` does nothing.

        Raises: as `flush`.
        """
        if self._process != os.getpid() or self._closed:
            return
        if current_thread() is self._thread:
            raise InvalidInput("an appender cannot be closed by a callback of its own futures")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            self._finish()
        finally:
            if self._thread is not None:
                self._thread.join()
            atexit.unregister(self._tell_lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except EventLogError:
            if kind is None:
                raise
            logger.exception("rows that were appended before the error were not committed")

    def __reduce__(self) -> NoReturn:
        raise InvalidInput("an appender belongs to its process: make one there, by Table.appender")

    def _check_open(self) -> None:
        if self._process != os.getpid():  # against appender-used-after-a-fork
            raise InvalidInput(
                "this appender was made before a fork: its thread runs in the parent alone. Make "
                "one in this process, by Table.appender"
            )
        if self._closed:
            raise InvalidInput("the appender is closed: make another, by Table.appender")

    def _app(self, app_id: str | None, app_seq: int | None) -> App | None:
        return make_app(self._app_id if app_id is None else app_id, app_seq)

    def _done(self, app: App) -> int | None:
        """Return the version that has a unit of work already. Raises: as `Backlog.done`."""
        if app.id not in self._backlog.apps:
            self.committed(app.id)
        with self._changed:
            return self._backlog.done(app)

    def _wait_for_room(self, size: int, patience: float | None) -> None:
        """Wait until an append of so many bytes may be added; a callback of a future never waits.

        Raises:
            InvalidInput: the appender was closed.
            Unavailable: there was no room in time.
        """
        if current_thread() is self._thread:
            return
        ready = self._changed.wait_for(
            lambda: self._closed or self._backlog.has_room(size), patience
        )
        self._check_open()
        if not ready:
            limits = self._backlog.limits
            raise Unavailable(
                f"the buffer of {size_text(limits.buffer_bytes)} is full of appends that are not "
                f"committed yet, and there was no room for {patience:g} s; nothing was taken: "
                "append again later",
                table=self._table.uri,
            )

    def _finish(self) -> None:
        """Have all that waits committed now. Raises: the first error since the last time."""
        if current_thread() is self._thread:
            raise InvalidInput("an appender cannot be flushed by a callback of its own futures")
        with self._changed:
            outstanding = self._backlog.hurry()
            self._changed.notify_all()
        wait(outstanding)
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def _start(self) -> None:
        """Start the thread, if it does not run yet."""
        if self._thread is None:
            name = "eventlog-appender"
            self._thread = Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
            atexit.register(self._tell_lost)

    def _tell_lost(self) -> None:
        """Warn at the end of the process of rows that end with it."""
        lost = len(self._backlog.outstanding())
        if lost and self._process == os.getpid():
            logger.warning(
                "%s to %s %s not committed: close the appender before, or use it in a `with` block",
                count_text(lost, "append"),
                self._table.uri,
                "ends with the process and is" if lost == 1 else "end with the process and are",
            )

    def _run(self) -> None:
        """Commit groups as they are due, until the appender is closed and nothing waits."""
        while True:
            with self._changed:
                while True:
                    due = self._backlog.due_in(self._table.clock.elapsed_s())
                    if due == 0 or (due is None and self._closed):
                        break
                    self._changed.wait(None if due is None else min(due, TIMEOUT_MAX))
                if due is None:
                    return
                group = self._backlog.take()
            self._settle(group)

    def _settle(self, group: Sequence[WaitingAppend]) -> None:
        """Commit appends as one transaction; where they cannot be, those that can."""
        with self._changed:
            since = self._backlog.last_of(group)
        try:
            version = self._commit(group, since)
        except (InvalidInput, CommitConflict) as error:
            self._settle_parts(
                group, apps_gone_on(self._table.session.head().meta.apps, since), error
            )
        except EventLogError as error:
            self._fail(group, error)
        except Exception as error:
            logger.exception("a group of appends failed")
            self._fail(group, EventLogError(f"the group was not committed: {error!r}"))
        else:
            with self._changed:
                self._backlog.committed(group, version)
                self._changed.notify_all()
            for one in group:
                one.future.set_result(version)

    def _settle_parts(
        self, group: Sequence[WaitingAppend], gone_on: set[str], error: EventLogError
    ) -> None:
        """Fail the appends of a refused group that are to blame, and commit the others.

        Args:
            group: the group, of which nothing was committed.
            gone_on: apps that another writer has taken further meanwhile.
            error: why it was refused.
        """
        blamed = [one for one in group if one.app is not None and one.app.id in gone_on]
        if not blamed and len(group) == 1:
            blamed = [*group]
        if blamed:
            self._fail(blamed, error)
            rest = [one for one in group if not one.future.done()]
            if rest:
                self._settle(rest)
            return
        for one in group:  # against group-refused-for-rows-of-one
            if not one.future.done():  # else it failed with another one of its app
                self._settle([one])

    def _commit(self, group: Sequence[WaitingAppend], since: dict[str, int | None]) -> int:
        """Commit appends as one transaction, and return the version. Raises: as `append`."""
        transaction = self._patiently(lambda: staged_group(self._table, group, since))
        return self._patiently(lambda: commit_group(self._table, transaction))

    def _patiently(self, work: Callable[[], _R]) -> _R:
        """Do some work, again and again while the store does not answer, for `retry_s`."""
        clock, pause = self._table.clock, _FIRST_PAUSE_S
        end_s = clock.elapsed_s() + self._retry_s
        while True:
            try:
                return work()
            except (Unavailable, CommitUnknown) as error:
                if clock.elapsed_s() + pause > end_s:
                    raise
                logger.warning("an append is tried again: %s", error)
                clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _fail(self, group: Sequence[WaitingAppend], error: EventLogError) -> None:
        """Tell the callers of appends, and of those that fail with them, why they failed."""
        with self._changed:
            lost = self._backlog.failed(group, error)
            self._error = self._error or error
            self._changed.notify_all()
        for one in lost:
            one.future.set_exception(error)


def _resolved(version: int) -> Future[int]:
    """Return a future that has its version already."""
    future = Future[int]()
    future.set_result(version)
    return future
