"""A Lambda function that keeps copies of tables up to date, for each commit that S3 announces.

AWS calls `handler`, with the same events as the function that compacts
(`eventlog.compaction.aws.events`). Deliveries may be late, out of order, repeated and concurrent:
each pass copies up to the newest version, and two at once do no harm. A function that is ended at
its time limit has copied a part, and the next delivery goes on there.

Settings are environment variables:

    EVENTLOG_REPLICAS      JSON: {"root or folder of tables": "root or folder of their copies"}.
                           A table below a folder is copied to the same path below the other.
                           Needed
    EVENTLOG_REPLICA_NAME  attach each copy under this name, so that vacuum of the table waits for
                           it. Needs the permission to commit to the table
    EVENTLOG_REPLICA_OPTIONS
                           JSON: storage options of the copies, such as {"region": "us-east-1"}
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from eventlog import Table
from eventlog.cache import Cache
from eventlog.clock import SystemClock
from eventlog.compaction.aws.events import LambdaWork, is_within
from eventlog.compaction.aws.invocation import Warm, respond
from eventlog.compaction.aws.json_lines import write_lines
from eventlog.compaction.aws.work import Context, log_event
from eventlog.errors import InvalidInput
from eventlog.format.keys import split_branches
from eventlog.replication import Follower
from eventlog.store.location import open_store

MAX_OPEN = 64  # number of pairs of tables that a container keeps open

logger = logging.getLogger(__name__)


class ReplicatorSettings(Struct, frozen=True, kw_only=True):
    """The values of the environment variables; see the module.

    Attributes:
        places: `EVENTLOG_REPLICAS`.
        name: `EVENTLOG_REPLICA_NAME`.
        options: `EVENTLOG_REPLICA_OPTIONS`.
    """

    places: dict[str, str]
    name: str | None = None
    options: dict[str, str] = {}

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ReplicatorSettings:
        """Return the settings in an environment.

        Raises:
            InvalidInput: a variable is missing or wrong.
        """
        places = _texts(environ, "EVENTLOG_REPLICAS")
        if not places:
            raise InvalidInput(
                "EVENTLOG_REPLICAS is not set: give the tables and their copies as JSON, such as "
                '{"s3://bucket/flights": "s3://other/flights"}'
            )
        options = _texts(environ, "EVENTLOG_REPLICA_OPTIONS")
        for source, target in places.items():
            open_store(source), open_store(target, options)  # refuses credentials, unshown
            if is_within(target, [source]) or is_within(source, [target]):
                raise InvalidInput(
                    f"EVENTLOG_REPLICAS: {target!r} and {source!r} lie in each other: every copy "
                    "would be copied again"
                )
        return cls(
            places=places,
            name=environ.get("EVENTLOG_REPLICA_NAME") or None,
            options=options,
        )

    def __repr__(self) -> str:
        # The values of the options may be secret.
        return f"Settings(places={self.places!r}, name={self.name!r}, options={[*self.options]!r})"

    def target_of(self, table: str) -> str | None:
        """Return the root of a table's copy; None if it is not to be copied."""
        for source, target in sorted(self.places.items(), key=lambda item: -len(item[0])):
            if is_within(table, [source]):
                return target.rstrip("/") + table.removeprefix(source.rstrip("/"))
        return None


class ReplicatorContainer:
    """The state kept between invocations: settings, and followers with their state.

    Args:
        settings: the settings of the function.
    """

    def __init__(self, settings: ReplicatorSettings) -> None:
        self.settings = settings
        self._followers: Cache[str, Follower] = Cache(MAX_OPEN)
        self._copied: dict[str, int] = {}  # table -> newest version of the copy

    def respond(self, event: Any, context: Context) -> dict[str, Any]:
        """Handle an event with these settings; see `handler`."""
        return respond(event, context, self._follow)

    def _follow(self, work: LambdaWork) -> bool:
        """Bring one copy up to date; return whether that succeeded."""
        if split_branches(work.table)[1]:
            return True  # a branch is not replicated: it is published, or thrown away
        target = self.settings.target_of(work.table)
        if target is None:
            log_event(logging.WARNING, "table not copied", table=work.table)
            return True
        if work.versions and max(work.versions) <= self._copied.get(work.table, -1):
            return True  # an announcement of versions that an earlier pass copied
        try:
            follower = self._followers.get(work.table) or self._opened(work.table, target)
            done = follower.step()
        except Exception as error:
            # A failure of one table must not block the others of the batch.
            facts = {"table": work.table, "why": f"{type(error).__name__}: {error}"}
            logger.exception("table failed", extra={"facts": facts})
            self._followers.forget(work.table)
            self._copied.pop(work.table, None)
            return False
        self._copied[work.table] = done.version
        log_event(logging.INFO, "followed", **msgspec.to_builtins(done))
        return True

    def _opened(self, table: str, target: str) -> Follower:
        clock = SystemClock()
        store = open_store(target, self.settings.options, clock)
        follower = Follower(Table.open(table), store, clock, name=self.settings.name)
        self._followers.put(table, follower)
        return follower


_warm = Warm(ReplicatorContainer)


def handler(event: Any, context: Context) -> dict[str, Any]:
    """Bring the copies of the tables that an event names up to date.

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
    return _warm.respond(ReplicatorSettings.of(os.environ), event, context)


def _texts(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Return a variable that is a JSON object of texts; {} if it is not set."""
    text = environ.get(name, "").strip()
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{name} is not a JSON object of texts: {error}") from None
