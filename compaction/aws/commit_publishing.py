"""Publishes tables for other engines when their commits are announced.

A publication that fails holds up nothing else, and the next commit, delivery or schedule publishes
what is left: every one publishes up to the newest version.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from eventlog import Table
from eventlog.cache import Cache
from eventlog.compaction.aws.events import LambdaWork
from eventlog.compaction.aws.work import Budget, log_event
from eventlog.errors import InvalidInput
from eventlog.format.keys import split_branches
from eventlog.publishing.following import StandingPublisher

logger = logging.getLogger(__name__)


class PublishingProgress(NamedTuple):
    """How far the publications of a table came in one invocation.

    Attributes:
        failed: whether one failed, so that the message is to be delivered again.
        behind: whether the time ran out before the newest version was published.
    """

    failed: bool = False
    behind: bool = False


class TablePublishers:
    """The publishers of the tables of a function, in each format that it is asked for.

    Args:
        formats: `delta`, `iceberg`, both or none.
        most: number of tables that are kept open.
    """

    def __init__(self, formats: tuple[str, ...], most: int) -> None:
        self._formats = formats
        self._publishers: Cache[tuple[str, str], StandingPublisher] = Cache(
            most * max(1, len(formats)), dropped=lambda place: self._last.pop(place, None)
        )
        # The newest version that is published, or passed over since it cannot be.
        self._last: dict[tuple[str, str], int] = {}

    def publish(self, table: Table, work: LambdaWork, budget: Budget) -> PublishingProgress:
        """Publish a table up to its newest version, within the time that is left.

        Branches are left out. Nothing is sent for announcements of what is published already.

        Args:
            table: the table.
            work: what an event asks for.
            budget: of the invocation.
        """
        failed = behind = False
        for name in () if split_branches(work.table)[1] else self._formats:
            place = work.table, name
            if work.versions and max(work.versions) <= self._last.get(place, -1):
                continue
            try:
                behind |= not self._publish(table, place, budget)
            except InvalidInput as error:
                # The format cannot describe a version: a delivery of the message would not help.
                log_event(
                    logging.ERROR, "not published", table=work.table, format=name, why=str(error)
                )
            except Exception as error:
                failed = True
                why = f"{type(error).__name__}: {error}"
                facts = {"table": work.table, "format": name, "why": why}
                logger.exception("publication failed", extra={"facts": facts})
                self._publishers.forget(place)  # its state may be the cause
                self._last.pop(place, None)
        return PublishingProgress(failed, behind)

    def _publish(self, table: Table, place: tuple[str, str], budget: Budget) -> bool:
        """Publish in one format; return whether the newest version was reached."""
        publisher = self._publishers.get(place)
        if publisher is None or publisher.session is not table.session:
            publisher = StandingPublisher(table.session, place[1])
            self._publishers.put(place, publisher)
        done = publisher.step(more=lambda: budget.seconds() > 0)
        # Versions that cannot be said are passed over, and wait for no other turn.
        reached = self._last[place] = done.last + done.behind  # against function-that-calls-itself
        budget.begun |= done.put > 0
        facts = {"first": done.first, "last": done.last, "put": done.put}
        log_event(logging.INFO, "published", table=place[0], format=place[1], **facts)
        return reached >= table.session.head().version
