"""Reads the content of an answer to a GET: not more than was asked for, and for a limited time.

botocore and urllib3 limit the time between two bytes only, and accept any length that an answer
announces.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from eventlog.clock import Clock
from eventlog.errors import Unavailable
from eventlog.store.s3.answers import status_of

PATIENCE_S = 60  # for an answer of any size
SLOWEST = 16_000  # bytes a second of a larger one
_PIECE = 256 * 1024


def content(answer: Mapping[str, Any], start: int, length: int | None, clock: Clock) -> bytes:
    """Return the bytes of an object that an answer has, from `start` and at most `length`.

    A store may ignore ranges: of the whole object no more is read than is needed.

    Args:
        answer: of boto3.
        start: as asked for.
        length: as asked for; None: to the end.
        clock: measures how long the answer takes.

    Raises:
        Unavailable: the answer is larger than asked for, or takes longer than `PATIENCE_S` and a
            second for each `SLOWEST` bytes that have arrived.
    """
    whole = status_of(answer) == 200
    skipped = start if whole else 0
    most = None if length is None else skipped + max(length, 1)
    announced: int | None = answer.get("ContentLength")
    with answer["Body"] as raw:  # closed at the end: what is left of it is not read
        if not whole and most is not None and (announced or 0) > most:
            raise _too_much(f"{announced:,}", most)
        # One byte more than asked for shows that there is more.
        body = _read(raw, most if most is None or whole else most + 1, announced, clock)
    if not whole and most is not None and len(body) > most:
        raise _too_much("more", most)
    return body[skipped:] if length is None else body[skipped : skipped + length]


def _read(raw: Any, most: int | None, announced: int | None, clock: Clock) -> bytes:
    """Return the bytes of a stream of urllib3, up to a bound.

    Raises:
        OSError: it ends before it has as many as were announced.
    """
    began_s = clock.elapsed_s()
    taken = BytesIO()
    # One system call, where `read` waits for all of the bytes; urllib3 1 has that alone.
    read = getattr(raw, "read1", raw.read)
    while piece := read(_PIECE if most is None else min(_PIECE, most - taken.tell())):
        taken.write(piece)
        # Not by the length asked for, which is 8 MiB of a small commit, or by the announced one.
        patience_s = PATIENCE_S + taken.tell() / SLOWEST
        if clock.elapsed_s() - began_s > patience_s:
            raise Unavailable(
                f"an answer of S3 was not complete after {patience_s:,.0f} s, with "
                f"{taken.tell():,} bytes: slower than {SLOWEST // 1000} kB a second; try again"
            )
    if announced is not None and taken.tell() < min(announced, most or announced):
        raise OSError(f"the answer has {taken.tell():,} bytes of {announced:,}")
    return taken.getvalue()


def _too_much(sent: str, most: int) -> Unavailable:
    return Unavailable(
        f"the store sent {sent} bytes in answer to a request for {most:,}: it, or a proxy in front "
        "of it, is broken"
    )
