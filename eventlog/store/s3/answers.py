"""Interprets answers of S3: refused, transient or wrong; and the server's time.

No I/O: takes the plain dicts of boto3's answers and errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from eventlog.errors import EventLogError, InvalidInput, KeyNotFound, Unavailable

# Worth a retry, although these statuses are client errors.
_TRANSIENT_STATUS = frozenset({408, 425, 429})
# Credentials before the host of a URL.
_CREDENTIALS = re.compile(r"//[^'\"]*@")
_OF_A_PAGE = ("IsTruncated", "KeyCount", "Name", "Contents")
_TRANSIENT_CODES = frozenset({"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException"})
_CREDENTIAL_CODES = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)


class UnreadableAnswer(OSError):
    """The answer is none that S3 gives: of a proxy, a portal, or a server with a fault."""


def listed(answer: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the keys and sizes in a page of a listing.

    Raises:
        UnreadableAnswer: it is no page of a listing. Taken for an empty one it would hide a table.
    """
    if not any(name in answer for name in _OF_A_PAGE):
        raise UnreadableAnswer("the answer is no listing")
    return [(str(row["Key"]), int(row["Size"])) for row in answer.get("Contents", ())]


def text_of(error: Exception) -> str:
    """Return the text of a library's error, without the credentials of a URL, as of a proxy."""
    return _CREDENTIALS.sub("//***@", str(error))


def status_of(answer: Mapping[str, Any]) -> int:
    """Return the HTTP status, or 0 if there is none."""
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def date_ms(answer: Mapping[str, Any]) -> int | None:
    """Return the server's Date in ms UTC, truncated to a second, or None if there is none."""
    text = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        moment: datetime = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 1000


def refused_request(answer: Mapping[str, Any], verb: str, bucket: str) -> InvalidInput | None:
    """Return the error if the store refused the request permanently, or None if a retry may help.

    A refused request had no effect.
    """
    status, code = status_of(answer), _code(answer)
    if code in _TRANSIENT_CODES or status in _TRANSIENT_STATUS:
        return None
    detail = f"{code or status}: {answer.get('Error', {}).get('Message', '')}".rstrip(": ")
    text: str | None = None
    if code == "NoSuchBucket":
        text = f"bucket {bucket!r} does not exist: create it, or correct the URI"
    elif code == "RequestTimeTooSkewed":
        text = f"S3 refused to {verb}: this machine's clock is wrong; set it ({detail})"
    elif status in (401, 403) or code in _CREDENTIAL_CODES:
        text = (
            f"S3 denied permission to {verb} in bucket {bucket!r} ({detail}): check the "
            "credentials (AWS_ACCESS_KEY_ID, AWS_PROFILE or the storage options) and their "
            "permissions"
        )
    elif status == 501:
        needs = (
            ": conditional writes (PutObject with If-None-Match: *) are required"
            if verb == "create an object"
            else "; docs/stores.md lists stores that do"
        )
        text = f"this store does not support what eventlog needs to {verb} ({detail}){needs}"
    elif 300 <= status < 400:
        text = (
            f"bucket {bucket!r} is in another region or at another endpoint ({detail}): "
            "set the storage option region or endpoint_url"
        )
    elif 400 <= status < 500:
        text = f"S3 refused to {verb} in bucket {bucket!r} ({detail})"
    return InvalidInput(text) if text else None


def read_error(answer: Mapping[str, Any], verb: str, bucket: str) -> EventLogError:
    """Return the error to raise for a read, listing or delete that failed."""
    if status_of(answer) == 404 and _code(answer) != "NoSuchBucket":
        return KeyNotFound("no such object")
    detail = f"status {status_of(answer)} {_code(answer)}".rstrip()
    return refused_request(answer, verb, bucket) or Unavailable(
        f"S3 could not {verb} in bucket {bucket!r} ({detail}): try again later"
    )


def delete_error(
    answer: Mapping[str, Any], names: Iterable[str], bucket: str
) -> EventLogError | None:
    """Return the error of the first name that a batch failed to delete; ignores missing ones.

    Args:
        answer: the answer, which has each name as deleted, or with an error.
        names: those that were to be deleted.
        bucket: of the store.
    """
    errors = answer.get("Errors", [])
    for error in errors:
        code = error.get("Code", "")
        if code == "NoSuchKey":
            continue
        key = str(error.get("Key"))
        if code == "AccessDenied":
            return InvalidInput(
                f"S3 denied permission to delete {key!r} in bucket {bucket!r}: "
                "the credentials need s3:DeleteObject there"
            )
        return Unavailable(f"S3 could not delete {key!r} in bucket {bucket!r} ({code}): try again")
    answered = {str(row.get("Key")) for row in (*answer.get("Deleted", []), *errors)}
    left = next((name for name in names if name not in answered), None)
    if left is not None:  # a proxy or a portal answers so
        return Unavailable(
            f"S3 did not answer whether {left!r} in bucket {bucket!r} was deleted: try again"
        )
    return None


def _code(answer: Mapping[str, Any]) -> str:
    return str(answer.get("Error", {}).get("Code", ""))
