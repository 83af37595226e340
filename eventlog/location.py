"""From a location to its store, and the probe of what the store promises.

Shell layer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eventlog.clock import Clock
from eventlog.errors import AlreadyExists, InvalidInput, KeyNotFound
from eventlog.keys import commit_key
from eventlog.local import LocalStore
from eventlog.memory import MemoryStore
from eventlog.options import parse_options
from eventlog.s3 import S3Store
from eventlog.store import ObjectStore

PROBE_PREFIX = "_probe/"

_FORMS = "s3://bucket/prefix, file:///path, a local path, or memory://name"


def open_store(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ObjectStore:
    """Return the store at a location, without any request to it.

    Args:
        uri: `s3://bucket/prefix` (also `s3a://`), `file:///path` (percent-encoded), a local path
            (made absolute, `~` expanded), or `memory://name`.
        storage_options: see `eventlog.options`; checked for every store, used by S3.
        clock: for pauses and local time; the machine's if None.

    Raises:
        InvalidInput: the location has none of these forms, or an option is wrong.
    """
    options = parse_options(storage_options)
    location = os.fspath(uri)
    if not isinstance(location, str) or not location or "\0" in location:
        raise InvalidInput(f"a table's location is {_FORMS}")
    scheme, separator, _ = location.partition(":/")
    if not separator or "/" in scheme:
        return LocalStore(_absolute(location), clock)
    if scheme in ("s3", "s3a"):
        return S3Store(location, options, clock)
    if scheme == "memory":
        return MemoryStore(location)
    if scheme == "file":
        return LocalStore(_file_path(location), clock)
    raise InvalidInput(f"scheme {scheme[:40]!r} is not supported: write {_FORMS}")


def check_absent(store: ObjectStore) -> None:
    """Check that no table lies at the root of the store.

    Raises:
        AlreadyExists: one does.
    """
    try:
        store.get(commit_key(0), length=1)
    except KeyNotFound:
        return
    raise AlreadyExists(
        "a table lies here already: open it, or choose another path", table=store.uri
    )


def probe(store: ObjectStore, token: str) -> None:
    """Check that the store refuses to create a key twice, before a table is put there.

    Leaves one small object `_probe/<token>`, which readers ignore: writers hold no permission to
    delete.

    Args:
        store: the store to check.
        token: a fresh id (`Clock.token`).

    Raises:
        InvalidInput: the store overwrote the object, or said that it did.
        Unavailable: the store did not answer clearly; nothing is known.
    """
    key = f"{PROBE_PREFIX}{token}"
    first, second = f"first {token}".encode(), f"second {token}".encode()
    # The first may be refused: an earlier answer was lost, or the token is not fresh.
    created = store.put_if_absent(key, first)
    kept = first if created else store.get(key)
    if store.put_if_absent(key, second) or store.get(key) != kept:
        raise InvalidInput(
            "this store ignores preconditions: it let an object be overwritten, so that tables on "
            "it would lose commits. Use Amazon S3, a store that honours If-None-Match: * on "
            "PutObject (MinIO, Ceph, R2, LocalStack), or a local directory",
            table=store.uri,
            key=key,
        )


def _absolute(path: str) -> Path:
    try:
        return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - also takes out ..
    except RuntimeError as error:
        raise InvalidInput(f"cannot expand {path[:80]!r}: {error}") from None


def _file_path(uri: str) -> str:
    # Hadoop writes file:/path.
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidInput(f"{uri[:80]!r} is not of the form file:///path")
    return os.path.abspath(unquote(parts.path))  # noqa: PTH100
