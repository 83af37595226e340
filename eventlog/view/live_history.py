"""The history of a live table: read again when a page asks, and then its new commits alone."""

from __future__ import annotations

import threading

from eventlog.errors import EventLogError, InvalidInput
from eventlog.table.table import Table
from eventlog.view.history_reading import Advance, HistoryReader
from eventlog.view.page import history_json, page_of
from eventlog.view.picture import Picture

_BETWEEN_S = 1.0  # between two questions to the store, however many pages ask


class LiveHistory:
    """Follows a table. Safe to use from several threads. It writes nothing.

    Args:
        table: the table.
        first: the first version of the picture; None: the first one that the table has.
        advance: called with the number of commits read at the beginning, and their total.

    Raises:
        InvalidInput: there is no such version.
        VersionNotFound: a copy lacks it.
        Corrupt: the commits do not add up.
    """

    def __init__(
        self, table: Table, first: int | None = None, advance: Advance = lambda *_: None
    ) -> None:
        self._table, self._lock = table, threading.Lock()
        self._reader = HistoryReader(table, first)
        self._picture = self._reader.read(table.session.head().version, advance)
        self._json: tuple[int, str] | None = None
        self._asked_s = table.clock.elapsed_s()
        self._failure: EventLogError | None = None  # of the last question

    @property
    def picture(self) -> Picture:
        """The picture of what was read so far."""
        return self._picture

    def page(self) -> str:
        """Return a page that asks for new commits.

        Raises:
            EventLogError: as `newer`.
        """
        with self._lock:
            self._refresh()
            return page_of(self._picture, live=True)

    def newer(self, version: int) -> str | None:
        """Return the history as JSON if it has versions after the given one, else None.

        Costs one GET if there are none, and none within a second of the last question, whose error
        stands as long; with them the requests of `HistoryReader.read`.

        Args:
            version: the last version that the page has.

        Raises:
            EventLogError: the table cannot be read now.
        """
        with self._lock:
            self._refresh()
            if self._picture.last == version:
                return None
            if self._json is None or self._json[0] != self._picture.last:
                self._json = self._picture.last, history_json(self._picture)
            return self._json[1]

    def _refresh(self) -> None:
        now_s = self._table.clock.elapsed_s()
        if now_s - self._asked_s < _BETWEEN_S:
            if self._failure is not None:
                raise self._failure
            return
        self._asked_s, self._failure = now_s, None
        try:
            head = self._table.refresh().version
            if head > self._picture.last:
                self._picture = self._reader.read(head)
        except EventLogError as error:
            self._failure = error
            raise


def known_version(text: str) -> int:
    """Return the version that a page has, from its request.

    Raises:
        InvalidInput: it is no number.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise InvalidInput(f"not a version: {text!r}")
    return int(text)
