"""How a bucket is reached, as boto3 works it out, in the terms of pyarrow's own S3 client.

Shell layer. Small objects are read by boto3 and large ones by pyarrow: a setting that only one of
them knows would show in the middle of a job. So the way is not worked out a second time: boto3 is
asked where it would send a request, and what pyarrow cannot do is refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

from eventlog.errors import InvalidInput

_KEY = "key"
# The hosts that pyarrow's client finds by the region alone.
_USUAL = re.compile(r"s3(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?")


@dataclass(frozen=True, slots=True)
class Way:
    """How one bucket is reached.

    Attributes:
        scheme: http or https.
        host: with the port, without the bucket; None where it follows from the region.
        virtual: whether the bucket's name stands before the host, instead of in the path.
        ca_path: of the certificates to trust, or None for the usual ones.
        proxy: in the form of pyarrow's `proxy_options`, or None.
    """

    scheme: str
    host: str | None
    virtual: bool
    ca_path: str | None = None
    proxy: dict[str, Any] | None = None


def find(client: Any, bucket: str, ca_path: str | None) -> Way:
    """Return the way that a client goes to a bucket. No request.

    Args:
        client: of boto3, by which nobody else asks for the head of an object.
        bucket: its name.
        ca_path: see `Way`.
    """
    url = urlsplit(_url(client, bucket))
    virtual = url.path == f"/{_KEY}"
    host = url.netloc.removeprefix(f"{bucket}.") if virtual else url.netloc
    usual = virtual and url.scheme == "https" and _USUAL.fullmatch(host)
    proxy = _proxy(client.meta.endpoint_url)
    return Way(url.scheme, None if usual else host, virtual and not usual, ca_path, proxy)


def check(endpoint_url: str, path: str | None) -> None:
    """Check before the first request that pyarrow's client can go the way that boto3 goes.

    Args:
        endpoint_url: of the store.
        path: of the certificates to trust, or None.

    Raises:
        InvalidInput: the endpoint has a path, the proxy is of another kind than HTTP, or the
            certificates are no file.
    """
    _proxy(endpoint_url)
    before = urlsplit(endpoint_url).path.rstrip("/")
    if before:
        raise InvalidInput(
            f"the S3 endpoint ends with the path {before!r}, which the client that reads large "
            "objects does not know: give the store a host of its own"
        )
    if path is not None and not os.path.isfile(path):  # noqa: PTH113 - the path is text
        raise InvalidInput(
            f"the certificates at {path!r} (AWS_CA_BUNDLE, ca_bundle of the profile, or "
            "REQUESTS_CA_BUNDLE) are no file: name one file in PEM format"
        )


class _NoBody(BytesIO):
    """The body of an answer that nobody gave."""

    def stream(self, **_: object) -> Any:
        """Yield nothing."""
        return iter(())


def _url(client: Any, bucket: str) -> str:
    """Return where the client sends a request for a key: it is caught before it leaves."""
    from botocore.awsrequest import AWSResponse  # noqa: PLC0415
    from botocore.compat import HTTPHeaders  # noqa: PLC0415

    seen: list[str] = []

    def caught(request: Any, **_: object) -> Any:
        seen.append(request.url)
        return AWSResponse(request.url, 200, HTTPHeaders(), _NoBody())

    event, name = "before-send.s3.HeadObject", "eventlog-way"
    client.meta.events.register_first(event, caught, unique_id=name)
    try:
        client.head_object(Bucket=bucket, Key=_KEY)
    finally:
        client.meta.events.unregister(event, unique_id=name)
    return seen[-1]


def _proxy(endpoint_url: str) -> dict[str, Any] | None:
    """Return the proxy that boto3 takes from the environment for an endpoint."""
    from botocore.utils import get_environ_proxies  # noqa: PLC0415

    found = get_environ_proxies(endpoint_url).get(urlsplit(endpoint_url).scheme)
    if not found:
        return None
    url = urlsplit(found if "//" in found else f"http://{found}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidInput(
            f"the proxy of scheme {url.scheme[:20]!r} in the environment is not supported: S3 is "
            "reached through http:// or https:// proxies, or past them (NO_PROXY)"
        )
    proxy: dict[str, Any] = {
        "scheme": url.scheme,
        "host": url.hostname,
        "port": url.port or (443 if url.scheme == "https" else 80),
    }
    if url.username:
        proxy |= {"username": unquote(url.username), "password": unquote(url.password or "")}
    return proxy
