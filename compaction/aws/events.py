"""Parses events into the tables to look at, with the commits that they announce.

No I/O; imports eventlog's keys, errors and store only. An event is untrusted: any sender to the
queue chooses its bytes. Parsing is bounded and typed, and its result only names a table; the caller
decides whether that table may be opened.

Accepted, alone or inside the records of an SQS batch: notifications of S3, directly or through
EventBridge or SNS, a schedule's `{"tables": ["s3://..."]}`, and `continuation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any
from urllib.parse import unquote, unquote_plus

import msgspec
from msgspec import Meta, Struct, field

from eventlog.errors import InvalidInput
from eventlog.format.keys import LOG_PREFIX, branch_uri, parse_log_key, split_branches
from eventlog.store.port import check_key

MAX_BODY_CHARS = 1024 * 1024  # the limit of SQS, in bytes
MAX_TABLES = 1000  # in one message
MAX_SKIPPED = 100  # task ids in a continuation


class Ask(Struct, frozen=True):
    """A table to look at.

    Attributes:
        table: its root URI.
        version: the version of the announced commit; None to look unconditionally.
        turn: number of continuations before this one.
        skip: ids of tasks that this function must not run.
    """

    table: str
    version: int | None = None
    turn: int = 0
    skip: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Message:
    """One delivered message.

    Attributes:
        id: id of the SQS message, to report it as failed; None for an event that invoked the
            function directly.
        asks: the tables to look at; empty if it concerns no commit.
        error: why it could not be parsed, or None.
    """

    id: str | None
    asks: tuple[Ask, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LambdaWork:
    """The combined asks of one batch for one table.

    Attributes:
        table: its root URI.
        versions: versions of the announced commits, ascending; empty to look unconditionally.
        turn: the greatest turn of the asks.
        skip: ids of tasks that this function must not run.
        messages: ids of the messages with these asks.
    """

    table: str
    versions: tuple[int, ...]
    turn: int
    skip: frozenset[str]
    messages: tuple[str, ...]


def parse_event(event: Any) -> tuple[Message, ...]:
    """Return the messages of an event, as passed by Lambda.

    Raises:
        InvalidInput: an SQS batch has records without ids, so failed messages cannot be reported.
    """
    if _is_batch(event):
        return tuple(_delivered(record) for record in event["Records"])
    return (_message(None, event),)


def collapse(messages: Iterable[Message]) -> tuple[LambdaWork, ...]:
    """Return one piece of work per table, in the order in which the tables first occur."""
    asked: dict[str, list[tuple[str | None, Ask]]] = {}
    for message in messages:
        for ask in message.asks:
            asked.setdefault(ask.table, []).append((message.id, ask))
    return tuple(_work(table, asks) for table, asks in asked.items())


def continuation(table: str, turn: int, skip: Iterable[str] = ()) -> str:
    """Return the body of the message that continues the work on a table."""
    resume = _Resume(table, turn, tuple(sorted(skip)[:MAX_SKIPPED]))
    return msgspec.json.encode(_Continuation(resume)).decode()


def table_of(bucket: str, key: str) -> tuple[str, int] | None:
    """Return (root URI, version) of the commit with a key, or None for any other key.

    The root is that of the table or branch, without the branch's id.
    Keys of key frames, leaves, segments and foreign objects give None.
    """
    root, boundary, name = key.rpartition(LOG_PREFIX)
    parsed = parse_log_key(f"{boundary}{name}")
    if not parsed or parsed[1] or not _BUCKET.fullmatch(bucket):
        return None
    if not root:
        return f"s3://{bucket}", parsed[0]
    # The prefix must be a whole path: `x_log/` is another folder.
    if not root.endswith("/"):
        return None
    try:
        above, branches = split_branches(f"s3://{bucket}/{check_key(root[:-1])}")
        return reduce(branch_uri, branches, above), parsed[0]
    except InvalidInput:
        return None


def is_within(uri: str, allowed: Iterable[str]) -> bool:
    """Return whether a table is at or below one of the URIs, by whole path segments."""
    if "%" in uri:  # a file URI is unquoted when it is opened, and could escape
        return False
    # The path of a file URI itself starts with a slash.
    if not _is_path(uri.partition("://")[2].removeprefix("/") + "/"):
        return False
    return any(f"{uri}/".startswith(f"{prefix.rstrip('/')}/") for prefix in allowed)


# ------------------------------------------------------------------------------------- the shapes

_Text = Annotated[str, Meta(max_length=2048)]
_Uri = Annotated[str, Meta(min_length=1, max_length=2048, pattern=r"^(s3|file|memory)://[^\x00]+$")]
_Id = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
# S3's rules for names of buckets, including older ones.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", re.ASCII)


class _Bucket(Struct):
    name: _Text


class _Object(Struct):
    key: _Text


class _Entity(Struct):
    bucket: _Bucket
    object: _Object


class _S3Record(Struct, rename={"event_name": "eventName"}):
    event_name: _Text
    s3: _Entity


class _SnsRecord(Struct, rename={"sns": "Sns"}):
    sns: _Envelope


class _Envelope(Struct, rename="pascal"):
    message: Annotated[str, Meta(max_length=MAX_BODY_CHARS)]


class _Bridged(Struct, rename={"kind": "detail-type"}):
    kind: _Text
    detail: _Entity


class _Scheduled(Struct):
    tables: Annotated[tuple[_Uri, ...], Meta(min_length=1, max_length=MAX_TABLES)]


class _Resume(Struct, rename={"table": "resume"}):
    table: _Uri
    turn: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    skip: Annotated[tuple[_Id, ...], Meta(max_length=MAX_SKIPPED)] = ()


class _Continuation(Struct):
    resume: _Resume = field(name="eventlog")


class _Delivery(Struct, rename={"id": "messageId"}):
    id: Annotated[str, Meta(min_length=1, max_length=256)]
    body: str


# ------------------------------------------------------------------------------------ the reading


def _is_batch(event: Any) -> bool:
    records = event.get("Records") if isinstance(event, Mapping) else None
    return (
        isinstance(records, list)
        and bool(records)
        and all(isinstance(r, Mapping) and r.get("eventSource") == "aws:sqs" for r in records)
    )


def _delivered(record: Mapping[str, Any]) -> Message:
    try:
        delivery = msgspec.convert(record, _Delivery)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"a record of the SQS batch is malformed: {error}") from None
    try:
        return _message(delivery.id, _decoded(delivery.body))
    except _Unknown as error:
        return Message(delivery.id, error=str(error))


class _Unknown(Exception):
    """A message of an unknown kind."""


def _message(message_id: str | None, body: Any) -> Message:
    try:
        asks = _asks(body, nested=False)
    except (_Unknown, msgspec.ValidationError) as error:
        return Message(message_id, error=str(error))
    return Message(message_id, tuple(dict.fromkeys(asks)))


def _decoded(text: str) -> Any:
    if len(text) > MAX_BODY_CHARS:
        raise _Unknown(f"a body of {len(text):,} characters, more than SQS allows")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _Unknown(f"the body is not JSON: {error}") from None


def _asks(body: Any, *, nested: bool) -> list[Ask]:
    if not isinstance(body, Mapping):
        raise _Unknown("the message is not a JSON object")
    if body.get("Event") == "s3:TestEvent":  # sent once, when notifications are set up
        return []
    if "Records" in body:
        return _of_records(body["Records"], nested=nested)
    if body.get("source") == "aws.s3":
        return _of_bridge(msgspec.convert(body, _Bridged))
    if body.get("Type") == "Notification" and not nested:
        envelope = msgspec.convert(body, _Envelope)
        return _asks(_decoded(envelope.message), nested=True)
    if "tables" in body:
        return [Ask(_plain(uri)) for uri in msgspec.convert(body, _Scheduled).tables]
    if "eventlog" in body:
        resume = msgspec.convert(body, _Continuation).resume
        return [Ask(_plain(resume.table), None, resume.turn, frozenset(resume.skip))]
    raise _Unknown("the message is of an unknown kind")


def _of_records(records: Any, *, nested: bool) -> list[Ask]:
    if not isinstance(records, list):
        raise _Unknown("its Records are not a list")
    asks: list[Ask] = []
    for record in records:
        source = record.get("eventSource", record.get("EventSource")) if _is_map(record) else None
        if source == "aws:sns" and not nested:
            inner = msgspec.convert(record, _SnsRecord).sns.message
            asks += _asks(_decoded(inner), nested=True)
        elif source == "aws:s3":
            asks += _of_s3(msgspec.convert(record, _S3Record))
        else:
            raise _Unknown(f"a record comes from {str(source)[:80]!r}, not from S3")
    return asks


def _of_s3(record: _S3Record) -> list[Ask]:
    if not record.event_name.removeprefix("s3:").startswith("ObjectCreated:"):
        return []
    # "The object key name value is URL encoded", as in a form: a space is a plus sign.
    return _of_key(record.s3.bucket.name, unquote_plus(record.s3.object.key))


def _of_bridge(event: _Bridged) -> list[Ask]:
    if event.kind != "Object Created":
        return []
    # EventBridge does not encode the key, but LocalStack does. This is unambiguous: no table root
    # has a percent sign (`eventlog.store.port.check_key`).
    key = event.detail.object.key
    return _of_key(event.detail.bucket.name, unquote(key) if "%" in key else key)


def _of_key(bucket: str, key: str) -> list[Ask]:
    place = table_of(bucket, key)
    return [Ask(*place)] if place else []


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _plain(uri: str) -> str:
    """Normalize a URI, so that a table that is named twice is one piece of work."""
    return uri.rstrip("/")


def _is_path(folder: str) -> bool:
    """Return whether a text consists of names, each followed by a slash: no `//`, `.` or `..`."""
    names = folder.split("/")
    return names.pop() == "" and not {"", ".", ".."} & set(names)


def _work(table: str, named_asks: list[tuple[str | None, Ask]]) -> LambdaWork:
    asks = [ask for _, ask in named_asks]
    anyway = any(ask.version is None for ask in asks)
    versions = {ask.version for ask in asks if ask.version is not None}
    return LambdaWork(
        table=table,
        versions=() if anyway else tuple(sorted(versions)),
        turn=max(ask.turn for ask in asks),
        skip=frozenset().union(*(ask.skip for ask in asks)),
        messages=tuple(dict.fromkeys(name for name, _ in named_asks if name is not None)),
    )


# Resolved once, here: msgspec crashes if several threads first use a type at the same time.
for _shape in (_Bridged, _Continuation, _Delivery, _Envelope, _S3Record, _Scheduled, _SnsRecord):
    msgspec.json.Decoder(_shape)
