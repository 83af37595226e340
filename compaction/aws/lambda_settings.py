"""The settings of the Lambda function, from environment variables.

No I/O: the environment is an argument.

    EVENTLOG_TABLES      a URI, or several as a JSON list: only tables at or below them are opened,
                         whatever an event names. Needed.
    EVENTLOG_POLICY      the policy as JSON, by the names of `eventlog.compaction.policy.Policy`
    EVENTLOG_MAX_BYTES   largest size of a task's inputs (512 MiB); larger ones are for the local
                         or the Spark driver. At least four times the policy's target_bytes
    EVENTLOG_RESERVE_MS  time kept for the end: no task starts within it (20,000 ms)
    EVENTLOG_QUEUE_URL   the queue to which work that is left over goes
    EVENTLOG_PUBLISH     `delta` or `iceberg`, or both as a JSON list: each commit is published for
                         other engines (`eventlog.publishing`). None if it is not set
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from eventlog.compaction.policy import MIB, Policy
from eventlog.errors import InvalidInput
from eventlog.publishing.following import FORMATS


class Settings(Struct, frozen=True, kw_only=True):
    """The values of the environment variables; see the module.

    Attributes:
        allowed: `EVENTLOG_TABLES`.
        policy: `EVENTLOG_POLICY`.
        max_bytes: `EVENTLOG_MAX_BYTES`.
        reserve_ms: `EVENTLOG_RESERVE_MS`.
        queue_url: `EVENTLOG_QUEUE_URL`; if None, remaining work waits for the schedule.
        publish: `EVENTLOG_PUBLISH`, the formats.
    """

    allowed: tuple[str, ...]
    policy: Policy = Policy()
    max_bytes: int = 512 * MIB
    reserve_ms: int = 20_000
    queue_url: str | None = None
    publish: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings in an environment.

        Raises:
            InvalidInput: a variable is missing or wrong.
        """
        policy = _policy(environ.get("EVENTLOG_POLICY") or "{}")
        max_bytes = _number(environ, "EVENTLOG_MAX_BYTES", 512 * MIB)
        if max_bytes < 4 * policy.target_bytes:
            # Smaller tasks would make segments that are not good yet.
            raise InvalidInput(
                f"EVENTLOG_MAX_BYTES is {max_bytes}: it must be at least four times the policy's "
                f"target_bytes, {policy.target_bytes}"
            )
        return cls(
            allowed=_allowed(environ.get("EVENTLOG_TABLES", "").strip()),
            policy=policy,
            max_bytes=max_bytes,
            reserve_ms=_number(environ, "EVENTLOG_RESERVE_MS", 20_000),
            queue_url=environ.get("EVENTLOG_QUEUE_URL") or None,
            publish=_formats(environ.get("EVENTLOG_PUBLISH", "").strip()),
        )

    def policy_within(self, memory_bytes: int) -> Policy:
        """Return the policy with tasks and memory limited to those of the function."""
        policy = self.policy
        return msgspec.structs.replace(
            policy,
            max_task_bytes=min(policy.max_task_bytes, self.max_bytes),
            # The rest is for the interpreter, its libraries, and intermediate copies.
            memory_bytes=max(MIB, min(policy.memory_bytes, memory_bytes // 2)),
        )


def _allowed(text: str) -> tuple[str, ...]:
    # JSON, as there is no safe separator: keys may have spaces, commas and semicolons.
    try:
        uris = msgspec.json.decode(text, type=list[str]) if text.startswith("[") else [text]
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"EVENTLOG_TABLES is not a list of URIs in JSON: {error}") from None
    if not uris or not all("://" in uri for uri in uris):
        raise InvalidInput("EVENTLOG_TABLES must list the URIs of the tables that events may open")
    return tuple(uris)


def _formats(text: str) -> tuple[str, ...]:
    try:
        named = msgspec.json.decode(text, type=list[str]) if text.startswith("[") else [text]
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"EVENTLOG_PUBLISH is not a list of formats in JSON: {error}") from None
    formats = [name for name in named if name]
    if not set(formats) <= set(FORMATS):
        raise InvalidInput(
            f"EVENTLOG_PUBLISH is {text[:80]!r}: give {', '.join(FORMATS)}, or a JSON list of them"
        )
    return tuple(dict.fromkeys(formats))


def _policy(text: str) -> Policy:
    try:
        return msgspec.json.decode(text, type=Policy).check()
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"EVENTLOG_POLICY is not a policy in JSON: {error}") from None


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise InvalidInput(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)
