"""Opens the store at a location, and probes whether it honours preconditions."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eventlog.clock import Clock
from eventlog.errors import AlreadyExists, InvalidInput, KeyNotFound
from eventlog.format.keys import commit_key, probe_key, split_branches
from eventlog.store.branching.branch import BranchStore
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.options import StoreOptions, parse_options
from eventlog.store.port import ObjectStore
from eventlog.store.s3.adapter import S3Store

_proven: set[str] = set()  # places (`ObjectStore.unproven`) that have passed a probe
_FORMS = "s3://bucket/prefix, file:///path, a local path, or memory://name"
# Of other formats: the prefix of the metadata, a file of it that each table has, and the text in
# those that eventlog published. Its barrier against catalogs of directories is none.
_OTHER_TABLES = (
    ("a Delta", "_delta_log/", re.compile(r".*\.json"), b'"eventlog.table"'),
    ("an Iceberg", "metadata/", re.compile(r"(?!.*/v9{9}\.gz).*\.metadata\.json.*"),
     b'"eventlog.version"'),
)  # fmt: skip


def open_store(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ObjectStore:
    """Return the store at a location, without sending a request.

    Args:
        uri: `s3://bucket/prefix` (also `s3a://`), `file:///path` (percent-encoded), a local path
            (made absolute, `~` expanded), or `memory://name`. With `/_branches/name` at its end
            that branch of the table there, which may be a branch of a branch.
        storage_options: see `eventlog.store.options`; checked for every store, used only by S3.
        clock: for pauses and local time; the machine's if None.

    Raises:
        InvalidInput: the location does not have one of these forms, or an option is wrong.
    """
    options = parse_options(storage_options)
    location = os.fspath(uri) if isinstance(uri, str | os.PathLike) else ""
    if not isinstance(location, str) or not location or not _is_path(location):
        raise InvalidInput(f"a table's location must be {_FORMS}")
    scheme, separator, _ = location.partition(":/")
    if not separator or "/" in scheme:
        location, scheme = str(_absolute(location)), ""
    location, branches = split_branches(location)
    store = _store_at(location, scheme, options, clock)
    for name in branches:
        store = BranchStore(store, name)
    return store


def _store_at(
    location: str, scheme: str, options: StoreOptions, clock: Clock | None
) -> ObjectStore:
    if not scheme:
        return LocalStore(location, clock)
    if scheme in ("s3", "s3a"):
        return S3Store(location, options, clock)
    if scheme == "memory":
        return MemoryStore(location)
    if scheme == "file":
        return LocalStore(_file_path(location), clock)
    shown = repr(scheme[:40]) if "@" not in scheme else "of this URI"  # not a password
    raise InvalidInput(f"scheme {shown} is not supported: write {_FORMS}")


def _is_path(location: str) -> bool:
    try:
        return b"\0" not in os.fsencode(location)
    except UnicodeEncodeError:
        return False


def check_absent(store: ObjectStore) -> None:
    """Check that there is no table at the root of the store, nor one of another format.

    Raises:
        AlreadyExists: there is a table.
        InvalidInput: there is one of another format.
    """
    try:
        store.get(commit_key(0), length=1)
    except KeyNotFound:
        _check_own_root(store)
        return
    raise AlreadyExists(
        "there is already a table here: open it, or choose another path", table=store.uri
    )


def probe(store: ObjectStore, table_id: str) -> None:
    """Check that the store refuses to create a key twice, before a table is created there.

    Leaves one small object `_probe/<table id>`, which readers ignore, since writers need no
    permission to delete. Later writers try to create it again (`check_promise`).

    Args:
        store: the store to check.
        table_id: a fresh id (`Clock.random_id`) for the table that is to be created.

    Raises:
        InvalidInput: the store overwrote the object, or reported that it did.
        Unavailable: the store did not answer clearly; the result is unknown.
    """
    key = probe_key(table_id)
    first, second = f"first {table_id}".encode(), f"second {table_id}".encode()
    # The first put may be refused: an earlier response was lost, or the id is not fresh.
    created = store.put_if_absent(key, first)
    kept = first if created else store.get(key, length=len(first) + 1)
    _check_refused(store, key, second, kept)
    if (place := store.unproven) is not None:
        _proven.add(place)


def check_promise(store: ObjectStore, table_id: str, token: Callable[[], str]) -> None:
    """Check that a store refuses to create a key twice, before the first commit to it (R2.3).

    Sends no request if this is known for the kind of store, or from an earlier probe of the same
    place by this process. Otherwise it puts the probe object that the creation of the table left.
    If that is missing, as in a copy of the table, it sends a second put and a read.

    Args:
        store: the store of an existing table.
        table_id: of that table.
        token: returns a fresh id.

    Raises:
        InvalidInput: the store overwrote the object, or reported that it did.
        Unavailable: the store did not answer clearly; the result is unknown.
    """
    place = store.unproven
    if place is None or place in _proven:
        return
    key, body = probe_key(table_id), f"again {token()}".encode()
    if store.put_if_absent(key, body):
        _check_refused(store, key, f"again {token()}".encode(), body)
    _proven.add(place)


def _check_own_root(store: ObjectStore) -> None:
    """Check that no table of another format lies at the root of the store. Two LISTs.

    Programs of Delta and Iceberg delete the files of their directory that they do not know. What
    eventlog itself published there, of a table that is no more, is no obstacle.

    Raises:
        InvalidInput: there is one.
    """
    for kind, prefix, form, mark in _OTHER_TABLES:
        key = next((row.key for row in store.list(prefix) if form.fullmatch(row.key)), None)
        # against table-inside-of-another
        if key is not None and mark not in store.get(key):
            raise InvalidInput(
                f"there is {kind} table here, whose programs delete all files that it does not "
                "name, as in a vacuum: choose another path for this table, outside of that one",
                table=store.uri,
                key=key,
            )


def _check_refused(store: ObjectStore, key: str, body: bytes, kept: bytes) -> None:
    if not store.put_if_absent(key, body) and store.get(key, length=len(kept) + 1) == kept:
        return
    raise InvalidInput(
        "this store ignores preconditions: it allowed an object to be overwritten, so tables on "
        "it would lose commits; nothing was committed. Use Amazon S3, a store that honours "
        "If-None-Match: * on PutObject (MinIO, Ceph, R2, LocalStack), or a local directory",
        table=store.uri,
        key=key,
    )


def place_of(store: ObjectStore) -> str:
    """Return the name of the place of a store in the log of a table (FORMAT.md R12.9).

    It depends on the root and its endpoint, and reveals neither. Another one of the same place, as
    after a directory was mounted elsewhere, costs the next vacuum a listing.
    """
    place = f"{real_root(store.uri)} {store.unproven or ''}"
    return hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def real_root(uri: str) -> str:
    """Return a root URI; of a directory without symbolic links."""
    if not uri.startswith("file:"):
        return uri
    return Path(os.path.realpath(_file_path(uri))).as_uri()


def _absolute(path: str) -> Path:
    try:
        return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - also removes ..
    except RuntimeError as error:
        raise InvalidInput(f"cannot expand {path[:80]!r}: {error}") from None


def _file_path(uri: str) -> str:
    # Hadoop writes file:/path.
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidInput("a file: URI must be file:///path, without a host, a query or #")
    return os.path.abspath(unquote(parts.path))  # noqa: PTH100
