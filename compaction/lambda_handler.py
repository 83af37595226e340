"""A Lambda function that compacts the tables whose commits S3 announces.

AWS calls `handler`. An event names tables (`eventlog.compaction.aws.events`). Each is planned and
rewritten, task by task, within limits of size and time. For remaining work the function sends a
message to its own queue, or leaves it to the schedule. Before that it publishes the table for other
engines, if it is asked to (`eventlog.compaction.aws.commit_publishing`).

Events are delivered at least once, late, out of order and concurrently (hazard I4). This is safe: a
task has the same id wherever it is planned, and takes effect once.

Settings are environment variables (`eventlog.compaction.aws.lambda_settings`). It needs no extra:
a bundle of the base dependencies can run it (`eventlog.compaction.aws.bundle`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from eventlog import Table
from eventlog.cache import Cache
from eventlog.compaction.aws.commit_publishing import PublishingProgress, TablePublishers
from eventlog.compaction.aws.events import LambdaWork, continuation, is_within
from eventlog.compaction.aws.invocation import Warm, respond
from eventlog.compaction.aws.json_lines import write_lines
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.aws.work import Budget, Context, Progress, compact_table, log_event
from eventlog.errors import VersionNotFound

MAX_TURNS = 500  # continuations in a row; remaining work is then left to the schedule
MAX_OPEN = 64  # number of table handles that a container keeps
RESUME_DELAY_S = 5

logger = logging.getLogger(__name__)


def handler(event: Any, context: Context) -> dict[str, Any]:
    """Compact the tables that an event names.

    Args:
        event: an event of SQS, S3, EventBridge, SNS or a schedule; see
            `eventlog.compaction.aws.events`.
        context: Lambda's context of the invocation.

    Returns:
        `{"batchItemFailures": [{"itemIdentifier": id}, …]}`: the messages of an SQS batch that are
        to be delivered again, and no others.

    Raises:
        InvalidInput: a setting is wrong.
        EventLogError: an event that is not an SQS batch failed; the service that sent it retries
            it.
    """
    write_lines("eventlog")
    return _warm.respond(Settings.of(os.environ), event, context)


class Container:
    """The state kept between invocations: settings, and table handles with their caches.

    Args:
        settings: the settings of the function.
        send: sends a message, given (queue URL, body, delay in seconds); with boto3 if None.
    """

    def __init__(
        self, settings: Settings, send: Callable[[str, str, int], None] | None = None
    ) -> None:
        self.settings = settings
        self._send = send or _send
        self._settled: dict[str, int] = {}  # table -> newest version at which no work remained
        self._tables: Cache[str, Table] = Cache(
            MAX_OPEN, dropped=lambda uri: self._settled.pop(uri, None)
        )
        self._publishers = TablePublishers(settings.publish, MAX_OPEN)

    def respond(self, event: Any, context: Context) -> dict[str, Any]:
        """Handle an event with these settings; see `handler`."""
        budget = Budget(context, self.settings.reserve_ms)
        return respond(event, context, lambda work: self._done(work, budget))

    def _done(self, work: LambdaWork, budget: Budget) -> bool:
        """Do a piece of work; return whether its messages need not be delivered again."""
        if not is_within(work.table, self.settings.allowed):
            # Well-formed, but not allowed here: delivering it again would not change that.
            log_event(logging.WARNING, "table not allowed", table=work.table)
            return True
        try:
            published = self._publish(work, budget)
            progress = self._compact(work, budget) if self._is_news(work) else Progress()
            if progress.unfinished or published.behind:
                self._resume(work, progress)
        except Exception as error:
            # A failure of one table must not block the others of the batch.
            facts = {"table": work.table, "why": f"{type(error).__name__}: {error}"}
            logger.exception("table failed", extra={"facts": facts})
            self._tables.forget(work.table)  # its cached state may be the cause
            self._settled.pop(work.table, None)
            return False
        return not (progress.errors or published.failed)  # against failed-publication-forgotten

    def _publish(self, work: LambdaWork, budget: Budget) -> PublishingProgress:
        if not self.settings.publish:
            return PublishingProgress()
        return self._publishers.publish(self._table(work.table), work, budget)

    def _is_news(self, work: LambdaWork) -> bool:
        """Return whether any of the commits added rows, by their headers.

        Commits of compaction itself, or of claims and properties, are ignored; otherwise each would
        trigger the next one.
        """
        if not work.versions:
            return True
        known = self._settled.get(work.table, -1)
        log = self._table(work.table).session.log
        for version in (v for v in reversed(work.versions) if v > known):
            try:
                changes = log.header(version).changes
            except VersionNotFound:
                log_event(logging.WARNING, "no such commit", table=work.table, version=version)
                continue
            # A commit of compaction may carry transactions of other writers.
            own = changes.operation == "compact" and changes.transactions == 1
            if changes.adds and not own:
                return True
        log_event(logging.INFO, "nothing to do", table=work.table, versions=work.versions)
        return False

    def _compact(self, work: LambdaWork, budget: Budget) -> Progress:
        table = self._table(work.table)
        progress = compact_table(table, self.settings, budget, work.skip)
        if progress.settled:
            self._settled[work.table] = max(progress.version, self._settled.get(work.table, -1))
        log_event(logging.INFO, "table done", table=work.table, turn=work.turn, **progress.facts())
        return progress

    def _resume(self, work: LambdaWork, progress: Progress) -> None:
        """Send a message that requests the rest of the work."""
        if self.settings.queue_url is None or work.turn >= MAX_TURNS:
            log_event(logging.WARNING, "left to the schedule", table=work.table, turn=work.turn)
            return
        body = continuation(work.table, work.turn + 1, progress.slow)
        self._send(self.settings.queue_url, body, RESUME_DELAY_S)

    def _table(self, uri: str) -> Table:
        table = self._tables.get(uri)
        if table is None:
            table = Table.open(uri)
            table.session.head()  # raises if there is none
            self._tables.put(uri, table)
        return table


_warm = Warm(Container)


def _send(queue_url: str, body: str, delay_s: int) -> None:
    import boto3  # noqa: PLC0415 - a third of a second, and most invocations send nothing

    client: Any = boto3.Session().client("sqs")
    client.send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=delay_s)
