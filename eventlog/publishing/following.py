"""Publishing that goes along with a log: each version soon after its commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from tenacity import RetryCallState, Retrying

from eventlog.clock import Clock
from eventlog.errors import InvalidInput, KeyNotFound, VersionVacuumed
from eventlog.publishing.delta.delta_listing import list_recent_delta
from eventlog.publishing.delta.publisher import DeltaPublisher
from eventlog.publishing.iceberg.iceberg_publisher import IcebergPublisher
from eventlog.publishing.iceberg.manifest_publisher import PREFIX, parse_metadata_key
from eventlog.publishing.publication import Publication, always
from eventlog.session.session import Session
from eventlog.store.parallel import Executors
from eventlog.store.retry import retrying

FORMATS = ("delta", "iceberg")
_SHORTEST_S = 0.1  # between two looks for a commit, right after one
_GROWTH, _MOST_GROWTHS = 1.5, 50
_VERIFY_S = 60.0  # between two looks whether the table is still the same
_BATCH_S = 5.0  # after which a long publication is told of

logger = logging.getLogger(__name__)


class StandingPublisher:
    """A publisher of one table for many calls, which keeps what it has read between them.

    Not safe to use from several threads.

    Args:
        session: of the table.
        format_name: `delta` or `iceberg`.
        first: where a new publication begins; at the oldest version that vacuum keeps if None.
        scheme: see `eventlog.publishing.publish`.
        format_version: see `eventlog.publishing.publish`.
        executors: merge the keys of a keyed table; None: this process does.

    Attributes:
        session: of the table.

    Raises:
        InvalidInput: an argument is of Iceberg alone.
    """

    def __init__(
        self,
        session: Session,
        format_name: str,
        *,
        first: int | None = None,
        scheme: str | None = None,
        format_version: int | None = None,
        executors: Executors | None = None,
    ) -> None:
        if format_name == "delta" and (scheme is not None or format_version is not None):
            raise InvalidInput("Delta has neither format versions nor schemes: leave them out")
        self.session, self._format, self._first = session, format_name, first
        self._scheme, self._format_version = scheme, format_version
        self._delta = DeltaPublisher(session, executors=executors)
        self._iceberg: IcebergPublisher | None = None
        self._executors = executors

    def step(self, *, last: int | None = None, more: Callable[[], bool] = always) -> Publication:
        """Publish the versions that are not published yet.

        Args:
            last: the last version; None: the newest.
            more: asked before each further version; the rest is left out if it returns False.

        Raises:
            EventLogError: see `eventlog.publishing.publish`.
        """
        if self._format == "delta":
            done = self._delta.publish(self._first, last, more)
            self._first = None  # it has begun
            return done
        while True:
            horizon = self.session.refresh().meta.horizon
            try:
                return self._to_iceberg(last, more)
            except (KeyNotFound, VersionVacuumed):
                # A vacuum took what this publisher had listed, or vectors of old versions.
                # against iceberg-overtaken-by-a-vacuum
                if self.session.refresh().meta.horizon <= horizon:
                    raise

    def _to_iceberg(self, last: int | None, more: Callable[[], bool]) -> Publication:
        publisher, self._iceberg = self._iceberg, None  # made again after an error
        # against publisher-that-knows-too-much
        if publisher is not None and not publisher.is_current():
            publisher = None
        if publisher is None:
            publisher = IcebergPublisher(
                self.session,
                scheme=self._scheme,
                format_version=self._format_version,
                executors=self._executors,
            )
        done = publisher.publish(self._first, last, more)
        self._first, self._iceberg = None, publisher
        return done


def publications(
    session: Session,
    format_name: str,
    first: int | None,
    every_s: float,
    **options: Any,
) -> Iterator[Publication]:
    """Yield what is published: at once, and whenever versions were, without an end.

    Between commits one GET each `every_s`, and one a minute.

    Args:
        session: of the table.
        format_name: `delta` or `iceberg`.
        first: where a new publication begins.
        every_s: the longest time between two looks for a commit, in seconds.
        **options: of `StandingPublisher`.

    Raises:
        EventLogError: see `eventlog.publishing.follow`.
    """
    clock = session.clock
    retry = retrying(clock, tries=None).copy(before_sleep=_warn)
    if first is not None and retry(published, session, format_name) is not None:
        first = None  # as when it is started again, after a vacuum took back the first versions
    publisher = StandingPublisher(session, format_name, first=first, **options)
    done = _step(publisher, retry, clock)
    yield done
    looks = 0
    while True:
        # against follower-that-spins
        while retry(_newest, session) > done.last + done.behind:
            done, looks = _step(publisher, retry, clock), 0
            yield done
        clock.sleep(min(every_s, _SHORTEST_S * _GROWTH ** min(looks, _MOST_GROWTHS)))
        looks += 1


def _step(publisher: StandingPublisher, retry: Retrying, clock: Clock) -> Publication:
    """Publish for some seconds, and one version at least."""
    until_s = clock.elapsed_s() + _BATCH_S
    return retry(publisher.step, more=lambda: clock.elapsed_s() < until_s)


def published(session: Session, format_name: str) -> tuple[int, int] | None:
    """Return the oldest and the newest published version; None if there is none. LISTs alone.

    Args:
        session: of the table.
        format_name: `delta` or `iceberg`.

    Raises:
        Unavailable: the store does not answer.
    """
    if format_name == "delta":
        listing = list_recent_delta(session.store)
        first = listing.first
        return None if first is None or not listing.commits else (first, listing.commits[-1])
    versions = [parse_metadata_key(row.key) for row in session.store.list(PREFIX)]
    found = [version for version in versions if version is not None]
    return (min(found), max(found)) if found else None


def _newest(session: Session) -> int:
    version = session.refresh().version
    session.verify(within_s=_VERIFY_S)  # against replaced-table-not-noticed
    return version


def _warn(state: RetryCallState) -> None:
    """Warn of an attempt that failed; of the 1st, the 2nd, the 4th, and so on."""
    tries = state.attempt_number
    if tries & (tries - 1) == 0 and state.outcome is not None:
        logger.warning("publishing waits, and tries again: %s", state.outcome.exception())
