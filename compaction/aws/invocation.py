"""One invocation of a Lambda function: its event as pieces of work, and the answer for its queue.

No I/O except log lines. The functions that compact and that copy share this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from eventlog.compaction.aws.events import LambdaWork, collapse, parse_event
from eventlog.compaction.aws.work import Context, log_event
from eventlog.errors import EventLogError

_Settings = TypeVar("_Settings")
_Settings_co = TypeVar("_Settings_co", covariant=True)


class _Responding(Protocol[_Settings_co]):
    """The state of a function: it has settings, and handles events."""

    @property
    def settings(self) -> _Settings_co:
        """The settings that the function read."""

    def respond(self, event: Any, context: Context) -> dict[str, Any]:
        """Handle an event, and return the answer of the function."""


class Warm(Generic[_Settings]):
    """What a function keeps from one invocation to the next, while its settings stay the same.

    Args:
        make: makes the state for settings.
    """

    def __init__(self, make: Callable[[_Settings], _Responding[_Settings]]) -> None:
        self._make = make
        self.container: _Responding[_Settings] | None = None

    def respond(self, settings: _Settings, event: Any, context: Context) -> dict[str, Any]:
        """Handle an event with these settings; see `respond`."""
        if self.container is None or self.container.settings != settings:
            self.container = self._make(settings)
        return self.container.respond(event, context)


def respond(event: Any, context: Context, do: Callable[[LambdaWork], bool]) -> dict[str, Any]:
    """Do the work that an event names, table by table.

    Args:
        event: an event of SQS, S3, EventBridge, SNS or a schedule; see
            `eventlog.compaction.aws.events`.
        context: Lambda's context of the invocation.
        do: does a piece of work, and returns whether that succeeded: if it did not, the
            messages that ask for it are to be delivered again.

    Returns:
        `{"batchItemFailures": [{"itemIdentifier": id}, …]}`: the messages of an SQS batch that are
        to be delivered again, and no others.

    Raises:
        EventLogError: an event that is not an SQS batch failed; the service that sent it retries
            it.
    """
    messages = parse_event(event)
    failed: set[Any] = set()
    for message in messages:
        if message.error:
            log_event(
                logging.ERROR, "message not understood", message=message.id, why=message.error
            )
            failed.add(message.id)
    pieces = collapse(messages)
    facts = {"messages": len(messages), "tables": len(pieces), "failed": len(failed)}
    log_event(logging.INFO, "invoked", request=context.aws_request_id, **facts)
    for work in pieces:
        if not do(work):
            failed.update(work.messages or (None,))
    if None in failed:
        raise EventLogError("the event failed: the log lines before this one contain the reason")
    return {"batchItemFailures": [{"itemIdentifier": name} for name in sorted(failed)]}
