"""The S3 clients of this process: one session, two clients and one file system per configuration.

The only module that imports boto3. It does so at the first request, since the import alone takes a
third of a second.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from eventlog.errors import InvalidInput
from eventlog.store.options import StoreOptions
from eventlog.store.s3 import endpoints
from eventlog.store.s3.answers import status_of, text_of

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
POOL_CONNECTIONS = 32
READ_ATTEMPTS = 5

_SMALL = 2**20  # bytes of a body that is sent without asking first
_USER_AGENT = "eventlog"
_DEFAULT_REGION = "us-east-1"
_AWS_ENDPOINT = re.compile(
    r"https://s3(-fips)?(\.dualstack)?(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?/?"
)
# Variables that affect the connection, besides those that start with AWS_.
_OTHER_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE")
# The host names of S3 itself; customers' machines also have names under amazonaws.com.
_AMAZON = re.compile(
    r"https?://([a-z0-9.-]+\.)?s3(-[a-z0-9-]+)?(\.dualstack)?(\.[a-z]{2,3}(-[a-z]+)+-\d+)?(\.vpce)?"
    r"\.amazonaws\.com(\.cn)?(:\d+)?/?",
    re.IGNORECASE,
)
_MAX_CONFIGURATIONS = 16


@dataclass(eq=False)
class Clients:
    """The clients of one configuration. Thread-safe.

    Attributes:
        session: of boto3; provides the credentials.
        read: retries requests; for reads, listings and deletes, which are idempotent.
        write: sends each request once; for conditional PUTs, which are not.
        endpoint_url: of the store, or None for AWS itself.
        region: the region, or None if it has to be read from the bucket.
        ca_path: path of the certificates to trust, or None for the default ones.
    """

    session: Any = field(repr=False)
    read: Any = field(repr=False)
    write: Any = field(repr=False)
    endpoint_url: str | None
    region: str | None
    ca_path: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _filesystem: tuple[object, S3FileSystem] | None = field(default=None, repr=False)

    @property
    def amazon(self) -> bool:
        """Whether the endpoint is Amazon's own S3, which never creates a key twice."""
        return self.endpoint_url is None or bool(_AMAZON.fullmatch(self.endpoint_url))

    def filesystem(self, bucket: str) -> S3FileSystem:
        """Return pyarrow's S3 file system, configured as the other clients.

        It has the same credentials, host, addressing style, region, certificates and proxy.

        Raises:
            InvalidInput: there are no credentials, or pyarrow does not support the proxy.
        """
        credentials = self.session.get_credentials()
        if credentials is None:
            raise InvalidInput(NO_CREDENTIALS)
        # pyarrow takes fixed credentials: a new file system is created when temporary ones change.
        frozen = credentials.get_frozen_credentials()
        region = self.region or self.read.head_bucket(Bucket=bucket)["BucketRegion"]
        identity = (frozen, region, bucket)
        with self._lock:
            if self._filesystem is None or self._filesystem[0] != identity:
                way = endpoints.find_endpoint(self.read, bucket, self.ca_path)
                self._filesystem = (identity, _filesystem(frozen, region, way))
            return self._filesystem[1]


NO_CREDENTIALS = (
    "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the "
    "storage options access_key_id and secret_access_key"
)


def clients_for(options: StoreOptions) -> Clients:
    """Return this process's clients for the options and the current AWS environment variables.

    Raises:
        InvalidInput: the configuration is wrong, such as an unknown profile or a malformed
            endpoint.
        Unavailable: no server listens at an endpoint that is not Amazon's.
    """
    # Clients are shared by the stores of many tables, since creating them takes 0.2 s. A forked
    # child must not share sockets with its parent, hence the process id.
    environment = tuple(sorted(item for item in os.environ.items() if _is_relevant(item[0])))
    configuration = (os.getpid(), options, environment)
    with _state.lock:
        clients = _state.clients.get(configuration)
        if clients is None:
            if len(_state.clients) >= _MAX_CONFIGURATIONS:
                _state.clients.clear()
            clients = _state.clients[configuration] = _connect(options)
        return clients


def _is_relevant(variable: str) -> bool:
    return variable.startswith("AWS_") or variable.upper() in _OTHER_VARIABLES


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[object, Clients] = {}


_state = _State()


def _forget() -> None:
    global _state  # noqa: PLW0603 - after a fork the lock may be held, and must be replaced
    _state = _State()


os.register_at_fork(after_in_child=_forget)


def _connect(options: StoreOptions) -> Clients:
    import boto3  # noqa: PLC0415
    import botocore.session  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    try:
        core = botocore.session.get_session()
        parsers = core.get_component("response_parser_factory")
        parsers.set_parser_defaults(timestamp_parser=parse_timestamp)
        session = boto3.Session(
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            aws_session_token=options.session_token,
            region_name=options.region,
            profile_name=options.profile,
            botocore_session=core,
        )
        region = session.region_name
        resolved = _resolved(session, options, region)
        custom = None if _AWS_ENDPOINT.fullmatch(resolved) else resolved
        if custom and not region:
            region = _DEFAULT_REGION
        style = (core.get_config_variable("s3") or {}).get("addressing_style")
        # S3-compatible stores rarely serve bucket.host.
        style = style or ("path" if custom else None)
        ca_path = core.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        endpoints.check_reachable(resolved, ca_path)
        if custom:
            endpoints.check_listening(custom)
        read, write = (
            _client(session, options.endpoint_url, region, style, attempts)
            for attempts in (READ_ATTEMPTS, 1)
        )
    except (BotoCoreError, ValueError) as error:
        raise InvalidInput(f"the S3 configuration is wrong: {text_of(error)}") from None
    return Clients(session, read, write, custom, region, ca_path)


def _resolved(session: Any, options: StoreOptions, region: str | None) -> str:
    """Return the endpoint by the options, the environment, the profile or AWS's defaults."""
    if options.endpoint_url:
        return options.endpoint_url
    url: str = session.client("s3", region_name=region or _DEFAULT_REGION).meta.endpoint_url
    return url


def _client(
    session: Any, endpoint: str | None, region: str | None, style: str | None, attempts: int
) -> Any:
    from botocore.config import Config  # noqa: PLC0415

    s3: Any = {"addressing_style": style} if style else None
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=POOL_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        s3=s3,
        # botocore composes its default name again for every request: a tenth of the request's CPU.
        user_agent=_USER_AGENT,
    )
    client = session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
    client.meta.events.register_last("before-call.s3", _announce_large_bodies_only)
    client.meta.events.register_first("needs-retry.s3.HeadBucket", _follow_to_a_region_only)
    return client


def _announce_large_bodies_only(params: dict[str, Any], **_: object) -> None:
    """Remove the header with which botocore asks the server first whether it accepts a body.

    That costs a round trip. It is kept for large bodies: a server that refuses one without having
    been asked may close the connection before it has answered.
    """
    from botocore.utils import determine_content_length  # noqa: PLC0415

    if (determine_content_length(params.get("body")) or 0) <= _SMALL:
        params["headers"].pop("Expect", None)


def _follow_to_a_region_only(response: tuple[Any, Mapping[str, Any]] | None, **_: object) -> None:
    """Refuse a redirection that names no region, before botocore follows it.

    It follows each one by a HeadBucket within the call, to learn the region of the bucket. If that
    is redirected as well, it sends the same again, until Python's stack is full.

    Raises:
        InvalidInput: the answer to a HeadBucket is such a redirection.
    """
    if response is None:
        return
    answer = response[1]
    named = "x-amz-bucket-region" in answer["ResponseMetadata"]["HTTPHeaders"]
    if 300 <= status_of(answer) < 400 and not named:
        raise InvalidInput(
            "the endpoint redirects every request: set the storage option endpoint_url to the "
            "address that it redirects to, with https:// if it asks for that"
        )


def parse_timestamp(value: Any) -> datetime:
    """Return a timestamp of an answer, in any form that botocore accepts.

    botocore's own parser takes a millisecond for each row of a listing, most of a request's CPU.

    Raises:
        ValueError: the value is not a timestamp.
    """
    if isinstance(value, str) and not value.isdigit():  # digits alone are seconds
        for parse in (datetime.fromisoformat, parsedate_to_datetime):
            try:
                moment: datetime = parse(value)
            except (TypeError, ValueError):
                continue
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    from botocore import utils  # noqa: PLC0415

    other: datetime = utils.parse_timestamp(value)
    return other


def _filesystem(credentials: Any, region: str, way: endpoints.Way) -> S3FileSystem:
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415

    tls: dict[str, Any] = {}
    if way.ca_path:
        tls["tls_ca_file_path"] = way.ca_path
    return S3FileSystem(
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        session_token=credentials.token,
        region=region,
        scheme=way.scheme,
        endpoint_override=way.host,
        force_virtual_addressing=way.virtual,
        proxy_options=way.proxy,
        request_timeout=READ_TIMEOUT_S,
        connect_timeout=CONNECT_TIMEOUT_S,
        **tls,
    )
