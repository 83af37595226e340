"""A store in an S3 bucket, or in any S3-compatible store that honours `If-None-Match: *`.

botocore retries reads, listings and deletes. A conditional PUT is sent once: a retry after a lost
response would find its own object and report it as another writer's.
"""

from __future__ import annotations

import functools
import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSystem
from tenacity import retry_if_exception, retry_if_exception_type, retry_if_result

from eventlog.clock import Clock, SystemClock
from eventlog.errors import (
    EventLogError,
    InvalidInput,
    KeyNotFound,
    OutcomeUnknown,
    Unavailable,
)
from eventlog.store.options import StoreOptions, parse_options
from eventlog.store.port import (
    Body,
    ObjectInfo,
    check_hint,
    check_key,
    check_limit,
    check_prefix,
    check_range,
    check_replaceable,
)
from eventlog.store.retry import MAX_TRIES, retrying
from eventlog.store.s3 import bodies
from eventlog.store.s3.answers import (
    UnreadableAnswer,
    date_ms,
    delete_error,
    listed,
    read_error,
    refused_request,
    status_of,
    text_of,
)
from eventlog.store.s3.clients import NO_CREDENTIALS, Clients, clients_for
from eventlog.telemetry.signals import add_to

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", re.ASCII)
_PAGE = 1000
_BODY_TRIES = 4  # of a request whose answer is cut short
EMPTY_PAGES = 1_000  # in a row, of one listing; deleted keys of a versioned bucket make some


class S3Store:
    """Objects under a prefix of one bucket.

    Clients are created at the first request and shared by all stores with the same options. A
    pickled store includes the options; the other process must provide only the environment that
    this one uses.

    Args:
        uri: `s3://bucket` or `s3://bucket/prefix`; `s3a://` is the same.
        options: storage options (`eventlog.store.options`), parsed or not.
        clock: for pauses, and for the local time in `now_ms`.

    Raises:
        InvalidInput: the URI or an option is wrong.
    """

    def __init__(
        self,
        uri: str,
        options: StoreOptions | Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._bucket, self._prefix = _parse(uri)
        self._options = options if isinstance(options, StoreOptions) else parse_options(options)
        self._clock = clock or SystemClock()
        self._clients: tuple[int, Clients] | None = None
        # Bounds of (server time - local time) in ms, from the latest answer.
        self._offset_ms: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": None, "_offset_ms": None}

    def __repr__(self) -> str:
        return f"S3Store({self.uri!r})"

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`."""
        return False

    @property
    def unproven(self) -> str | None:
        """See `ObjectStore.unproven`; Amazon's own S3 is known to create atomically."""
        clients = self._connected()
        return None if clients.amazon else f"{clients.endpoint_url}/{self._bucket}"

    @property
    def forks(self) -> tuple[()]:
        """See `ObjectStore.forks`: none, because this is no branch."""
        return ()

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        return self._tagged(key, start, length)[0]

    def _tagged(self, key: str, start: int, length: int | None) -> tuple[bytes, str]:
        """Return the bytes of an object, see `get`, and its ETag."""
        name = self._name(key)
        check_range(start, length)
        request: dict[str, Any] = {"Key": name}
        if start or length is not None:
            # An empty range cannot be requested; one byte shows whether the key exists.
            end = "" if length is None else start + max(length, 1) - 1
            request["Range"] = f"bytes={start}-{end}"
        answers = [self._read("get_object", key, request)]

        def content() -> tuple[bytes, str]:
            answer = answers.pop() if answers else self._read("get_object", key, request)
            if answer is None:
                return b"", ""
            body: bytes = _readable(lambda: bodies.content(answer, start, length, self._clock))
            return body, str(answer.get("ETag", ""))

        # The connection may break within the body.
        broken = retry_if_exception_type(_failures())
        try:
            return retrying(self._clock, tries=_BODY_TRIES, when=broken)(content)
        except EventLogError as error:
            self._placed(error, key)
            raise
        except _failures() as error:
            raise self._not_answered(error, "read", key) from error

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`.

        A 409 means that the request raced a delete and had no effect; it is retried a bounded
        number of times.

        Raises:
            InvalidInput: the store refused permanently, with no effect: no such bucket, access
                denied, or no support for conditional writes.
        """
        name = self._name(key)
        client = self._connected().write
        policy = retrying(self._clock, when=retry_if_result(lambda created: created is None))
        # After the last 409 return its None instead of raising tenacity's own error.
        policy = policy.copy(retry_error_callback=lambda _: None)
        created: bool | None = policy(self._put_once, client, name, key, body)
        if created is None:
            raise OutcomeUnknown(
                f"S3 answered 409 to {MAX_TRIES} tries: something keeps deleting this key",
                table=self.uri,
                key=key,
            )
        return created

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`; a PUT without a condition, so it may be sent again."""
        request = {"Key": self._name(check_hint(key)), "Body": body}
        self._read("put_object", key, request, _created)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`: a GET, and a PUT with `If-Match` on the ETag of its answer."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        name = self._name(check_replaceable(key))
        try:
            stored, tag = self._tagged(key, 0, None)
        except KeyNotFound:
            return False
        if stored != old or not tag:
            return stored == body
        # against replaced-without-condition
        put = {"Key": name, "Body": body, "IfMatch": tag}
        try:
            _created(self._send(self._connected().write, "put_object", put))
        except ClientError as error:
            if status_of(error.response) in (404, 412):  # somebody has replaced it meanwhile
                return self.get(key) == body
            if status_of(error.response) == 409:  # as another one is doing right now
                raise self._not_answered(error, "replace", key) from error
            wrong = refused_request(error.response, "replace an object", self._bucket)
            if wrong is not None:
                raise self._placed(wrong, key) from error
            raise self._not_answered(error, "replace", key) from error
        except _failures() as error:
            raise self._not_answered(error, "replace", key) from error
        return True

    def copy_if_absent(
        self, source: S3Store, key: str, new_key: str | None = None
    ) -> str | bool | None:
        """Copy an object of another root, or of this one, within S3.

        Args:
            source: where the object is.
            key: of the object, relative to the root of the source.
            new_key: of the copy, relative to this root; the same one if None.

        Returns:
            The sha256 that S3 computed of the new object, hexadecimal. False: the key exists. None:
            this store, or these credentials, do not allow such a copy, or S3 did not return its
            sha256; the object may have been created.

        Raises:
            OutcomeUnknown: no clear answer; the object may exist, or may still arrive.
        """
        from botocore.exceptions import ClientError  # noqa: PLC0415

        own, other = self._options, source._options
        if replace(own, region=None) != replace(other, region=None):
            return None
        new_key = key if new_key is None else new_key
        request = {
            "Key": self._name(new_key),
            "CopySource": {"Bucket": source._bucket, "Key": source._name(key)},
            "ChecksumAlgorithm": "SHA256",
            "IfNoneMatch": "*",
        }
        try:
            answer = self._send(self._connected().write, "copy_object", request)
        except ClientError as error:
            status = status_of(error.response)
            if status == 412:
                return False
            if refused_request(error.response, "copy an object", self._bucket) is not None:
                return None  # reading and writing may be allowed, and show what is wrong
            raise self._unknown(error, new_key) from error
        except _failures() as error:
            raise self._unknown(error, new_key) from error
        return _hex(answer.get("CopyObjectResult", {}).get("ChecksumSHA256"))

    def size_and_sha256(self, key: str) -> tuple[int, str | None]:
        """Return the size of an object and its sha256, hexadecimal, if S3 keeps it. One HEAD.

        It does of objects that it copied (`copy_if_absent`).

        Raises:
            KeyNotFound: there is no such object.
            Unavailable: the store does not answer.
        """
        request = {"Key": self._name(key), "ChecksumMode": "ENABLED"}
        answer = self._read("head_object", key, request)
        digest = answer.get("ChecksumSHA256", "")
        whole = "-" not in digest  # else it is one of the parts' checksums
        return answer.get("ContentLength", 0), _hex(digest) if whole else None

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`.

        Raises:
            InvalidInput: the store lists keys out of order, as directory buckets do, or others than
                those that were asked for.
        """
        check_prefix(prefix)
        check_limit(limit)
        return self._pages(prefix, after, limit) if limit != 0 else iter(())

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`; one request per 1000 keys."""
        names = ({"Key": self._name(key)} for key in keys)
        while batch := _batch(names):
            # Quiet, the answer of a server that is none would look as if all were deleted.
            request = {"Delete": {"Objects": batch, "Quiet": False}}
            answer = self._read("delete_objects", None, request) or {}
            if error := delete_error(answer, (row["Key"] for row in batch), self._bucket):
                raise self._placed(error, None)

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`; pyarrow's own S3 client, configured as boto3 is."""
        try:
            filesystem = self._connected().filesystem(self._bucket)
        except EventLogError:
            raise
        except _failures() as error:
            raise self._not_answered(error, "read", None) from error
        return filesystem, f"{self._bucket}/{self._prefix}".rstrip("/")

    def now_ms(self) -> int | None:
        """See `ObjectStore.now_ms`.

        The Date of an answer gives bounds for the server's clock, a second plus the duration of the
        request apart. The result is the local time if it is within the bounds, else the nearer
        bound.
        """
        if self._offset_ms is None:
            return None
        low, high = self._offset_ms
        return self._clock.now_ms() + min(max(0, low), high)

    def _put_once(self, client: Any, name: str, key: str, body: Body) -> bool | None:
        """Send the PUT once; None stands for a 409, after which it may be sent again."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        # A stream over the caller's buffer avoids a copy of the segment.
        content = body if isinstance(body, bytes) else pa.BufferReader(pa.py_buffer(body))
        try:
            # against put-without-condition
            put = {"Key": name, "Body": content, "IfNoneMatch": "*"}
            _created(self._send(client, "put_object", put))
        except ClientError as error:
            status = status_of(error.response)
            if status == 412:  # against conflict-read-as-exists
                return False
            if status == 409:
                return None
            wrong = refused_request(error.response, "create an object", self._bucket)
            if wrong is not None:
                raise self._placed(wrong, key) from error
            raise self._unknown(error, key) from error
        except _failures() as error:
            wrong = _configuration_error(error)
            raise (self._placed(wrong, key) if wrong else self._unknown(error, key)) from error
        return True

    def _pages(self, prefix: str, after: str, limit: int | None) -> Iterator[ObjectInfo]:
        root = f"{self._prefix}/" if self._prefix else ""
        request: dict[str, Any] = {"Prefix": root + prefix}
        if after:
            request["StartAfter"] = root + after
        left, last, empty = limit, root + after, 0
        while True:
            request["MaxKeys"] = _PAGE if left is None else min(_PAGE, left)
            answer, rows = self._read("list_objects_v2", None, request, _page) or _NO_PAGE
            empty = 0 if rows else empty + 1
            for name, size in rows:
                if name == root:
                    # A folder marker that some tools create for the root itself.
                    continue
                self._check_listed(name, request, last)
                last = name
                yield ObjectInfo(name.removeprefix(root), size)
                if left is not None:
                    left -= 1
                    if not left:
                        return
            if not answer.get("IsTruncated"):
                return
            if empty > EMPTY_PAGES:
                raise Unavailable(
                    f"the store answered with {empty:,} empty pages of its listing of {prefix!r} "
                    "in a row, and reports that there are more: its ListObjectsV2 is broken",
                    table=self.uri,
                )
            request["ContinuationToken"] = self._next(answer, request, prefix)

    def _check_listed(self, name: str, request: Mapping[str, Any], last: str) -> None:
        """Check that a name was asked for, and is above the last one, or where the listing began.

        Raises:
            InvalidInput: it is not.
        """
        if not name.startswith(request["Prefix"]):
            unheeded = "Prefix"
        elif name > last:
            return
        elif last == request.get("StartAfter"):
            unheeded = "StartAfter"
        else:
            raise InvalidInput(
                "this store lists keys out of order (a directory bucket?); "
                "eventlog needs UTF-8 byte order",
                table=self.uri,
            )
        raise InvalidInput(
            f"this store does not support the parameter {unheeded} of ListObjectsV2: it lists "
            f"{name!r}, which was not asked for; use a newer version of its server, or another "
            "S3-compatible store",
            table=self.uri,
        )

    def _next(self, answer: Mapping[str, Any], request: Mapping[str, Any], prefix: str) -> str:
        """Return the token of the page after `answer`.

        Raises:
            Unavailable: there is no token, or the same one again, so the listing would never end.
        """
        token: str = answer.get("NextContinuationToken") or ""
        if token and token != request.get("ContinuationToken"):
            return token
        raise Unavailable(
            f"the store reports that its listing of {prefix!r} is truncated, but returns "
            f"{'the same' if token else 'no'} continuation token: try again; if that does not "
            "help, its ListObjectsV2 is broken",
            table=self.uri,
        )

    def _read(
        self,
        operation: str,
        key: str | None,
        request: dict[str, Any],
        understood: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """Send an idempotent request; None if the range is past the end of the object.

        Args:
            operation: of the client.
            key: of the object, for errors.
            request: its arguments.
            understood: returns what is wanted of the answer.
        """
        from botocore.exceptions import ClientError  # noqa: PLC0415

        verb = _VERBS[operation]
        # The SDK retries failed connections, but not errors whose body is cut short.
        policy = retrying(self._clock, tries=_BODY_TRIES, when=retry_if_exception(_cut_short))
        try:
            client = self._connected().read
            taken = lambda: understood(self._send(client, operation, request))  # noqa: E731
            return policy(_readable, taken)
        except ClientError as error:
            if status_of(error.response) == 416:
                return None
            raise self._placed(read_error(error.response, verb, self._bucket), key) from error
        except EventLogError:
            raise
        except _failures() as error:
            raise self._not_answered(error, verb, key) from error

    def _send(self, client: Any, operation: str, request: dict[str, Any]) -> Any:
        from botocore.exceptions import ClientError  # noqa: PLC0415

        sent_ms = self._clock.now_ms()
        add_to("requests", kind=operation)
        if (body := request.get("Body")) is not None:
            add_to(
                "bytes", len(body) if isinstance(body, bytes) else body.size(), direction="write"
            )
        try:
            call = functools.partial(getattr(client, operation), Bucket=self._bucket, **request)
            answer = _readable(call)
        except ClientError as error:
            self._learn_time(error.response, sent_ms)
            raise
        except InvalidInput as error:  # of a handler of the client
            self._placed(error, None)
            raise
        self._learn_time(answer, sent_ms)
        if operation == "get_object":
            add_to("bytes", answer.get("ContentLength", 0), direction="read")
        return answer

    def _learn_time(self, answer: Mapping[str, Any], sent_ms: int) -> None:
        date = date_ms(answer)
        if date is not None:
            low, high = date - self._clock.now_ms(), date + 1000 - sent_ms
            # If the local clock was set back in between, the bounds would be inverted.
            self._offset_ms = (min(low, high), high)

    def _connected(self) -> Clients:
        if self._clients is None or self._clients[0] != os.getpid():
            self._clients = (os.getpid(), clients_for(self._options))
        return self._clients[1]

    def _name(self, key: str) -> str:
        check_key(key)
        return check_key(f"{self._prefix}/{key}") if self._prefix else key

    def _placed(self, error: EventLogError, key: str | None) -> EventLogError:
        error.table, error.key = self.uri, key
        return error

    def _unknown(self, error: Exception, key: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            "S3 did not report whether the object was created "
            f"({type(error).__name__}: {text_of(error)})",
            table=self.uri,
            key=key,
        )

    def _not_answered(self, error: Exception, verb: str, key: str | None) -> EventLogError:
        wrong = _configuration_error(error)
        return self._placed(
            wrong
            or Unavailable(
                f"S3 did not answer a request to {verb} ({text_of(error)}): try again later"
            ),
            key,
        )


_VERBS = {
    "get_object": "read",
    "head_object": "read",
    "list_objects_v2": "list",
    "delete_objects": "delete",
    "put_object": "write",
}


def _batch(items: Iterator[dict[str, str]]) -> list[dict[str, str]]:
    return list(islice(items, _PAGE))


def _parse(uri: str) -> tuple[str, str]:
    scheme, _, path = uri.partition("://")
    bucket, _, prefix = path.partition("/")
    prefix = prefix.rstrip("/")
    if scheme not in ("s3", "s3a") or not _BUCKET.fullmatch(bucket):
        # The URI is not shown, since it may contain credentials.
        raise InvalidInput(
            "an S3 root must be s3://bucket or s3://bucket/prefix, without credentials"
        )
    return bucket, check_key(prefix) if prefix else ""


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that boto3 raises if the answer of S3 is missing or incomplete."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    return (BotoCoreError, HTTPError, OSError)


def _readable(call: Callable[[], Any]) -> Any:
    """Call a function that takes an answer apart.

    Raises:
        UnreadableAnswer: in place of the errors, of any kind, that the libraries' parsers raise on
            an answer that is none of S3's. Their own errors and those of this package pass.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415

    known: tuple[type[Exception], ...] = (
        EventLogError,
        ClientError,
        MemoryError,
        *_failures(),
    )
    try:
        return call()
    except known:
        raise
    except Exception as error:
        raise UnreadableAnswer(
            f"the answer is none of S3's: {type(error).__name__}: {text_of(error)[:200]}"
        ) from error


_NO_PAGE: tuple[Mapping[str, Any], list[tuple[str, int]]] = ({}, [])


def _page(answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[tuple[str, int]]]:
    return answer, listed(answer)


def _created(answer: Mapping[str, Any]) -> None:
    """Check the answer to a PUT.

    Raises:
        UnreadableAnswer: it is not S3's.
    """
    if not answer.get("ETag"):
        raise UnreadableAnswer(
            f"status {status_of(answer)} without an ETag, which S3 gives for each object"
        )


def _hex(digest: str | None) -> str | None:
    """Return a checksum in base64 as hexadecimal; None if there is none."""
    try:
        return b64decode(digest, validate=True).hex() if digest else None
    except ValueError:
        return None  # the object is read and hashed instead


def _cut_short(error: BaseException) -> bool:
    """Say whether the answer was cut short in a way that the SDK does not retry."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    return isinstance(error, _failures()) and not isinstance(error, BotoCoreError)


def _configuration_error(error: Exception) -> InvalidInput | None:
    """Return the error to raise if the failure happened before anything was sent, or None."""
    from botocore import exceptions  # noqa: PLC0415

    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return InvalidInput(NO_CREDENTIALS)
    before = (
        exceptions.CredentialRetrievalError,
        exceptions.NoRegionError,
        exceptions.ParamValidationError,
        exceptions.SSOError,
        exceptions.TokenRetrievalError,
        exceptions.InvalidEndpointConfigurationError,
    )
    if isinstance(error, before):
        return InvalidInput(f"the S3 configuration is wrong: {text_of(error)}")
    return None
