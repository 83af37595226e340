"""An S3 server that enforces policies: the subset of IAM that `localstack/policies` uses.

moto's own enforcement ignores conditions such as those in these files. Here an HTTP layer in front
of the embedded server checks each request against the policies of its access key and of the bucket.
Signatures are not checked: authentication is not tested.
"""

import io
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from eventlog.store.testing import local_server

POLICIES = Path(__file__).parents[2] / "localstack" / "policies"
ROLES = (
    "reader",
    "writer",
    "compactor",
    "vacuum",
    "vacuum-published",
    "replica-source",
    "replica-target",
    "publisher",
)
ADMIN = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]},
]}  # fmt: skip
NOBODY = {"Version": "2012-10-17", "Statement": []}

_KNOWN = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")
_SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_XML = f"{{{_SPACE}}}"


@dataclass(frozen=True)
class Asked:
    """A permission that a request needs."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


def load(name: str, bucket: str, prefix: str) -> dict:
    """A policy of the folder with its placeholders filled in."""
    text = (POLICIES / f"{name}.json").read_text()
    text = text.replace("PUBLISHER-ARN", arn_of("publisher"))
    text = text.replace("VACUUM-ARN", arn_of("vacuum-published"))
    return json.loads(text.replace("BUCKET", bucket).replace("PREFIX", prefix))


def arn_of(who: str) -> str:
    """The ARN of a role of the tests."""
    return f"arn:aws:iam::123456789012:role/{who}"


def is_allowed(asked: Asked, identity: dict, bucket: dict = NOBODY) -> bool:
    """Return whether the policies allow it: an Allow in either, and no Deny in any."""
    effects = {
        statement["Effect"]
        for policy in (identity, bucket)
        for statement in policy["Statement"]
        if _applies(statement, asked)
    }
    return effects == {"Allow"}


def _applies(statement: dict, asked: Asked) -> bool:
    unknown = set(statement) - _KNOWN
    if unknown or statement["Effect"] not in ("Allow", "Deny"):
        raise ValueError(f"not supported here: {unknown or statement['Effect']}")
    if statement.get("Principal", "*") != "*":
        raise ValueError("only the principal * is supported here")
    return (
        any(like(pattern.lower(), asked.action.lower()) for pattern in statement["Action"])
        and any(like(pattern, asked.resource) for pattern in statement["Resource"])
        and all(
            _holds(operator, name, wanted, asked.context)
            for operator, tests in statement.get("Condition", {}).items()
            for name, wanted in tests.items()
        )
    )


def _holds(operator: str, name: str, wanted: str | list[str], context: Mapping[str, str]) -> bool:
    if operator == "Null":
        return (name not in context) == {"true": True, "false": False}[wanted]
    if operator == "StringLike":
        return name in context and any(like(pattern, context[name]) for pattern in wanted)
    if operator == "ArnNotLike":
        return name not in context or not any(like(pattern, context[name]) for pattern in wanted)
    raise ValueError(f"the operator {operator} is not supported here")


def like(pattern: str, text: str) -> bool:
    """Return whether the text matches; `*` matches any characters, `?` one."""
    parts = (
        ".*" if part == "*" else "." if part == "?" else re.escape(part)
        for part in re.split(r"([*?])", pattern)
    )
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


class Gate:
    """An HTTP server on 127.0.0.1 in front of moto's buckets in this process.

    Attributes:
        identities: access key -> its policy; other access keys may do nothing.
        buckets: name -> the bucket's policy.
        asked: every requested permission, the identity, and whether it was granted.
    """

    def __init__(self) -> None:
        self.identities: dict[str, dict] = {}
        self.buckets: dict[str, dict] = {}
        self.asked: list[tuple[str, Asked, bool]] = []
        self.server = local_server._make_server(0, self._guard)

    def options(self, who: str) -> dict[str, str]:
        """The storage options of an identity."""
        return {
            "endpoint_url": f"http://127.0.0.1:{self.server.server_port}",
            "access_key_id": who,
            "secret_access_key": "dummy",
            "region": "us-east-1",
        }

    def _guard(self, app):
        def answer(environ, start_response):
            found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
            who = found[1] if found else ""
            bucket, _, key = environ.get("PATH_INFO", "").lstrip("/").partition("/")
            key = key.encode("latin-1").decode()
            query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
            if environ["REQUEST_METHOD"] == "POST" and "delete" in query:
                return self._delete(app, environ, start_response, who, bucket)
            asked = _asked(environ, bucket, key, query)
            if not self._allows(who, bucket, asked):
                return _denied(start_response)
            if asked.action != "s3:GetObject":
                return app(environ, start_response)
            return self._read(app, environ, start_response, who, asked)

        return answer

    def _allows(self, who: str, bucket: str, asked: Asked) -> bool:
        asked = replace(asked, context={**asked.context, "aws:PrincipalArn": arn_of(who)})
        granted = is_allowed(
            asked, self.identities.get(who, NOBODY), self.buckets.get(bucket, NOBODY)
        )
        self.asked.append((who, asked, granted))
        return granted

    def _read(self, app, environ, start_response, who, asked):
        """As on S3, a missing key gives 404 only to identities that may list it."""
        said: list = []
        content = list(app(environ, lambda *answer: said.append(answer)))
        arn, _, key = asked.resource.partition("/")
        bucket = arn.rpartition(":")[2]
        hidden = Asked("s3:ListBucket", arn, {"s3:prefix": key})
        if said[0][0].startswith("404") and not self._allows(who, bucket, hidden):
            return _denied(start_response)
        start_response(*said[0])
        return content

    def _delete(self, app, environ, start_response, who, bucket):
        """A batch delete: denied keys are reported one by one, the rest are deleted."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        root = ET.fromstring(body)
        denied = []
        for entry in list(root.iter(f"{_XML}Object")):
            key = entry.findtext(f"{_XML}Key")
            if not self._allows(who, bucket, Asked("s3:DeleteObject", _arn(bucket, key))):
                denied.append(key)
                root.remove(entry)
        if not denied:
            environ["wsgi.input"] = io.BytesIO(body)
            return app(environ, start_response)
        if root.find(f"{_XML}Object") is not None:
            left = ET.tostring(root, default_namespace=_SPACE)
            environ |= {"wsgi.input": io.BytesIO(left), "CONTENT_LENGTH": str(len(left))}
            list(app(environ, lambda *_: None))
        errors = "".join(
            f"<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code></Error>" for key in denied
        )
        return _answer(start_response, "200 OK", f"<DeleteResult>{errors}</DeleteResult>")


@contextmanager
def gate() -> Iterator[Gate]:
    """A `Gate` that serves within the context; the embedded server must be running."""
    made = Gate()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join(240)
        made.server.server_close()


def _asked(environ, bucket: str, key: str, query: Mapping[str, list[str]]) -> Asked:
    method = environ["REQUEST_METHOD"]
    if not key:
        context = {"s3:prefix": query["prefix"][0]} if "prefix" in query else {}
        action = "s3:ListBucket" if method in ("GET", "HEAD") else "s3:OfABucket"
        return Asked(action, f"arn:aws:s3:::{bucket}", context)
    if method in ("GET", "HEAD"):
        return Asked("s3:GetObject", _arn(bucket, key))
    if method == "DELETE":
        return Asked("s3:DeleteObject", _arn(bucket, key))
    headers = {"s3:if-none-match": "HTTP_IF_NONE_MATCH", "s3:if-match": "HTTP_IF_MATCH"}
    given = {name: environ[header] for name, header in headers.items() if header in environ}
    return Asked("s3:PutObject", _arn(bucket, key), given)


def _arn(bucket: str, key: str) -> str:
    return f"arn:aws:s3:::{bucket}/{key}"


def _denied(start_response) -> Iterable[bytes]:
    body = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    return _answer(start_response, "403 Forbidden", body)


def _answer(start_response, status: str, body: str) -> Iterable[bytes]:
    content = body.encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(content)))]
    start_response(status, headers)
    return [content]
