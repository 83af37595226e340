"""The storage options of a table: the endpoint, region and credentials of its S3 store.

Options that are not given are left to boto3: the standard AWS environment variables, profiles, and
the role of the machine. So are certificates (AWS_CA_BUNDLE, `ca_bundle` of the profile), proxies
(HTTPS_PROXY, NO_PROXY), and AWS's kinds of endpoints. Large reads, which pyarrow does, use the same
configuration (`eventlog.store.s3.endpoints`). Secrets never appear in `repr` or in an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from eventlog.arguments import is_unicode, mapping
from eventlog.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Parsed storage options; None leaves the choice to boto3.

    Attributes:
        endpoint_url: of an S3-compatible store, with http:// or https://.
        access_key_id: static credentials, with `secret_access_key`.
        secret_access_key: see `access_key_id`.
        session_token: of temporary credentials.
        region: of the bucket; us-east-1 if an endpoint is set and no region is known.
        profile: name of a section of the AWS configuration files.
    """

    endpoint_url: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        """Refuse an endpoint with credentials in it."""
        if self.endpoint_url is not None:
            check_endpoint(self.endpoint_url, "storage option endpoint_url")


def check_endpoint(url: str, what: str) -> None:
    """Refuse a user name, a password or a query in the URL of an endpoint.

    The URL names the place of a store: in the log, if a copy is attached under a name, in errors,
    and in lists of replicas. So no part of it may be secret.

    Args:
        url: of the endpoint.
        what: where it is set, for the error, which does not show the URL.

    Raises:
        InvalidInput: it has one.
    """
    if not {"@", "?", "#"}.isdisjoint(url):  # against secret-in-an-endpoint
        raise InvalidInput(
            f"{what} must be only a scheme, a host and a port, without a user name, a password or "
            "a query: it is shown, and written into logs. Give credentials as storage options "
            "access_key_id and secret_access_key, or in the AWS environment variables"
        )


NAMES = tuple(option.name for option in fields(StoreOptions))


def parse_options(storage_options: Mapping[str, str] | None) -> StoreOptions:
    """Return the options; each name may be in any case and carry the prefix `aws_`.

    Raises:
        InvalidInput: a name is unknown or given twice, a value is empty, only one half of the
            credentials is given, or the endpoint is not a URL.
    """
    values: dict[str, str] = {}
    for given, value in mapping(storage_options, "storage_options").items():
        name = given.lower().removeprefix("aws_")
        if name not in NAMES:
            raise InvalidInput(
                f"storage option {given[:40]!r} is unknown: the options are {', '.join(NAMES)}, "
                "each also with the prefix aws_"
            )
        if not isinstance(value, str) or not value or not is_unicode(value):
            raise InvalidInput(f"storage option {name} must be a non-empty string")
        if values.setdefault(name, value) != value:
            raise InvalidInput(f"storage option {name} is given twice with different values")
    _check(values)
    return StoreOptions(**values)


def _check(values: Mapping[str, str]) -> None:
    if ("access_key_id" in values) != ("secret_access_key" in values):
        raise InvalidInput(
            "storage options access_key_id and secret_access_key must be given together"
        )
    if "session_token" in values and "access_key_id" not in values:
        raise InvalidInput("storage option session_token needs access_key_id")
    endpoint = values.get("endpoint_url", "https://")
    if not endpoint.lower().startswith(("http://", "https://")):
        raise InvalidInput("storage option endpoint_url must start with http:// or https://")
