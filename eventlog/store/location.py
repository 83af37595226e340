"""From a location to its store, and the probe of what the store promises.

Shell layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eventlog.clock import Clock
from eventlog.errors import AlreadyExists, InvalidInput, KeyNotFound
from eventlog.format.keys import commit_key, probe_key
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.options import parse_options
from eventlog.store.port import ObjectStore
from eventlog.store.s3.adapter import S3Store

_proven: set[str] = set()  # places (`ObjectStore.unproven`) that were seen to refuse
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
        storage_options: see `eventlog.store.options`; checked for every store, used by S3.
        clock: for pauses and local time; the machine's if None.

    Raises:
        InvalidInput: the location has none of these forms, or an option is wrong.
    """
    options = parse_options(storage_options)
    location = os.fspath(uri) if isinstance(uri, str | os.PathLike) else ""
    if not isinstance(location, str) or not location or not _is_path(location):
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


def _is_path(location: str) -> bool:
    try:
        return b"\0" not in os.fsencode(location)
    except UnicodeEncodeError:
        return False


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


def probe(store: ObjectStore, table_id: str) -> None:
    """Check that the store refuses to create a key twice, before a table is put there.

    Leaves one small object `_probe/<table id>`, which readers ignore: writers hold no permission to
    delete. Later writers put it again (`check_promise`).

    Args:
        store: the store to check.
        table_id: of the table that is to be created, a fresh id (`Clock.token`).

    Raises:
        InvalidInput: the store overwrote the object, or said that it did.
        Unavailable: the store did not answer clearly; nothing is known.
    """
    key = probe_key(table_id)
    first, second = f"first {table_id}".encode(), f"second {table_id}".encode()
    # The first may be refused: an earlier answer was lost, or the id is not fresh.
    created = store.put_if_absent(key, first)
    kept = first if created else store.get(key)
    _check_refused(store, key, second, kept)
    if (place := store.unproven) is not None:
        _proven.add(place)


def check_promise(store: ObjectStore, table_id: str, token: Callable[[], str]) -> None:
    """Check that a store refuses to create a key twice, before the first commit to it (R2.3).

    No request where that is known: of this kind of store, or of its place since an earlier probe by
    this process. Else one put of the key that the creation of the table left; where a copy of the
    table came without it, a second one and a read.

    Args:
        store: the store of an existing table.
        table_id: of that table.
        token: returns a fresh id.

    Raises:
        InvalidInput: the store overwrote the object, or said that it did.
        Unavailable: the store did not answer clearly; nothing is known.
    """
    place = store.unproven
    if place is None or place in _proven:
        return
    key, body = probe_key(table_id), f"again {token()}".encode()
    if store.put_if_absent(key, body):
        _check_refused(store, key, f"again {token()}".encode(), body)
    _proven.add(place)


def _check_refused(store: ObjectStore, key: str, body: bytes, kept: bytes) -> None:
    if not store.put_if_absent(key, body) and store.get(key) == kept:
        return
    raise InvalidInput(
        "this store ignores preconditions: it let an object be overwritten, so that tables on "
        "it would lose commits; nothing was written. Use Amazon S3, a store that honours "
        "If-None-Match: * on PutObject (MinIO, Ceph, R2, LocalStack), or a local directory",
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
