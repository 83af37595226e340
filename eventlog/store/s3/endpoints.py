"""How boto3 reaches a bucket, translated for pyarrow's own S3 client.

boto3 reads small objects and pyarrow large ones: a setting that only one of them supports would
fail in the middle of a job. So the endpoint is not derived a second time. Instead boto3 prepares a
request, its URL is captured, and settings that pyarrow does not support are refused.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

from eventlog.errors import InvalidInput, Unavailable
from eventlog.store.options import check_endpoint

_KEY = "key"
_PATIENCE_S = 1.0
# The hosts that pyarrow's client derives from the region.
_USUAL = re.compile(r"s3(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?")


@dataclass(frozen=True, slots=True)
class Way:
    """How one bucket is reached.

    Attributes:
        scheme: http or https.
        host: with the port, without the bucket; None if it follows from the region.
        virtual: whether the bucket's name is part of the host instead of the path.
        ca_path: path of the certificates to trust, or None for the default ones.
        proxy: in the form of pyarrow's `proxy_options`, or None.
    """

    scheme: str
    host: str | None
    virtual: bool
    ca_path: str | None = None
    proxy: dict[str, Any] | None = field(default=None, repr=False)


def find_endpoint(client: Any, bucket: str, ca_path: str | None) -> Way:
    """Return how a client reaches a bucket. Sends no request.

    Args:
        client: of boto3; no other thread may send HeadObject with it meanwhile.
        bucket: its name.
        ca_path: see `Way`.
    """
    url = urlsplit(_url(client, bucket))
    virtual = url.path == f"/{_KEY}"
    host = url.netloc.removeprefix(f"{bucket}.") if virtual else url.netloc
    usual = virtual and url.scheme == "https" and _USUAL.fullmatch(host)
    proxy = _proxy(client.meta.endpoint_url)
    return Way(url.scheme, None if usual else host, virtual and not usual, ca_path, proxy)


def check_reachable(endpoint_url: str, path: str | None) -> None:
    """Check before the first request that pyarrow's client can reach the store as boto3 does.

    Args:
        endpoint_url: of the store.
        path: path of the certificates to trust, or None.

    Raises:
        InvalidInput: the endpoint has a path or credentials, the proxy is not an HTTP proxy, or the
            certificates are not a file.
    """
    check_endpoint(endpoint_url, "the S3 endpoint (AWS_ENDPOINT_URL, or endpoint_url of a profile)")
    _proxy(endpoint_url)
    endpoint_path = urlsplit(endpoint_url).path.rstrip("/")
    if endpoint_path:
        raise InvalidInput(
            f"the S3 endpoint ends with the path {endpoint_path!r}, which the client that reads "
            "large objects does not support: put the store on its own host"
        )
    if path is not None and not os.path.isfile(path):  # noqa: PTH113 - the path is text
        raise InvalidInput(
            f"the certificates at {path!r} (AWS_CA_BUNDLE, ca_bundle of the profile, or "
            "REQUESTS_CA_BUNDLE) are not a file: name a file in PEM format"
        )


def check_listening(endpoint_url: str) -> None:
    """Check that something listens at the endpoint, unless requests to it go through a proxy.

    boto3 would try for seconds, which a server that was not started does not need.

    Raises:
        Unavailable: the port is closed.
    """
    if _proxy(endpoint_url):
        return
    url = urlsplit(endpoint_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((str(url.hostname), port), _PATIENCE_S).close()
    except ConnectionRefusedError:
        raise Unavailable(
            f"no server at {url.hostname}:{port}: start it, or correct the endpoint "
            "(AWS_ENDPOINT_URL, endpoint_url of a profile or of the storage options)"
        ) from None
    except OSError:  # boto3 tries longer, and its error says more
        return


class _NoBody(BytesIO):
    """The empty body of a made-up answer."""

    def stream(self, **_: object) -> Any:
        """Yield nothing."""
        return iter(())


def _url(client: Any, bucket: str) -> str:
    """Return the URL to which the client would send a request for a key.

    The request is intercepted before it is sent.
    """
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
    """Return the proxy that the environment sets for an endpoint, as boto3 reads it."""
    from botocore.utils import get_environ_proxies  # noqa: PLC0415

    setting = get_environ_proxies(endpoint_url).get(urlsplit(endpoint_url).scheme)
    if not setting:
        return None
    url = urlsplit(setting if "//" in setting else f"http://{setting}")
    try:
        port = url.port
    except ValueError:  # its text may be a part of the password
        raise InvalidInput(
            "the environment sets a proxy (HTTP_PROXY, HTTPS_PROXY) that is not a URL: its "
            "port is not a number, or its password has a character such as / that must be "
            "percent-encoded"
        ) from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidInput(
            f"the environment sets a proxy of scheme {url.scheme[:20]!r}, which is not supported: "
            "use an http:// or https:// proxy, or none (NO_PROXY)"
        )
    proxy: dict[str, Any] = {
        "scheme": url.scheme,
        "host": url.hostname,
        "port": port or (443 if url.scheme == "https" else 80),
    }
    if url.username:
        proxy |= {"username": unquote(url.username), "password": unquote(url.password or "")}
    return proxy
