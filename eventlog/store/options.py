"""The storage options of a table: where its S3 store is and who asks.

Pure layer. What is not given here is left to boto3: the standard AWS environment variables,
profiles, and the role of the machine; so are certificates (AWS_CA_BUNDLE, `ca_bundle` of the
profile), proxies (HTTPS_PROXY, NO_PROXY), and the kinds of endpoints that AWS has. Whatever boto3
takes from there holds for large reads, which pyarrow does, too (`eventlog.store.s3.endpoints`).
Secrets never show in `repr` or in an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from eventlog.arguments import is_unicode, mapping
from eventlog.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Parsed storage options; None leaves the choice to boto3's own chain.

    Attributes:
        endpoint_url: of an S3-compatible store, with http:// or https://.
        access_key_id: with `secret_access_key`, static credentials.
        secret_access_key: see `access_key_id`.
        session_token: of temporary credentials.
        region: of the bucket; us-east-1 when an endpoint is set and none is known.
        profile: name of a section of the AWS configuration files.
    """

    endpoint_url: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    profile: str | None = None


NAMES = tuple(option.name for option in fields(StoreOptions))


def parse_options(storage_options: Mapping[str, str] | None) -> StoreOptions:
    """Return the options; each name may be in any case and carry the prefix `aws_`.

    Raises:
        InvalidInput: a name that is unknown or given twice, an empty value, half a credential, or
            an endpoint that is no URL.
    """
    values: dict[str, str] = {}
    for given, value in mapping(storage_options, "storage_options").items():
        name = given.lower().removeprefix("aws_")
        if name not in NAMES:
            raise InvalidInput(
                f"storage option {given[:40]!r} is unknown; known are {', '.join(NAMES)}, "
                "each also with the prefix aws_"
            )
        if not isinstance(value, str) or not value or not is_unicode(value):
            raise InvalidInput(f"storage option {name} must be a text that is not empty")
        if values.setdefault(name, value) != value:
            raise InvalidInput(f"storage option {name} is given twice with different values")
    _check(values)
    return StoreOptions(**values)


def _check(values: Mapping[str, str]) -> None:
    if ("access_key_id" in values) != ("secret_access_key" in values):
        raise InvalidInput("storage options access_key_id and secret_access_key go together")
    if "session_token" in values and "access_key_id" not in values:
        raise InvalidInput("storage option session_token needs access_key_id")
    endpoint = values.get("endpoint_url", "https://")
    if not endpoint.lower().startswith(("http://", "https://")):
        raise InvalidInput("storage option endpoint_url must start with http:// or https://")
