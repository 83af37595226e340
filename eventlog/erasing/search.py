"""The search of an erasure: every object under a root is listed, read, hashed and decoded.

It asks the log for nothing but the columns of the table, so it finds what the log does not name,
too. One LIST, and one GET for each object (of more than 64 MiB one for each part of that size); in
a keyed table one more for each that has rows, where the predicate reads other columns than the key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec
import pyarrow as pa

from eventlog.erasing.file_search import FAILURES, sought_in
from eventlog.erasing.log_objects import (
    Contents,
    Decoder,
    avro_contents,
    commit_contents,
    delta_checkpoint_contents,
    delta_commit_contents,
    frame_contents,
    intent_contents,
    keyframe_contents,
    pack_contents,
    plain_contents,
    positions_contents,
    stem_contents,
    text_contents,
    vectors_contents,
)
from eventlog.erasing.report import TEMPORARY_KIND, SearchedObject
from eventlog.erasing.sought import Sought
from eventlog.errors import Corrupt, EventLogError, InvalidInput, KeyNotFound, UnsupportedFormat
from eventlog.format import keys
from eventlog.store.branching.roots import is_own
from eventlog.store.local import LocalStore, TemporaryFile
from eventlog.store.parallel import each
from eventlog.store.port import ObjectInfo, ObjectStore

Progress = Callable[[str, int, int], None]

_PART = 64 * 2**20  # bytes that are held at once of a large object
_BRANCH = re.compile(r"_branches/([^/]+)/(?:([0-9a-f]{32})/)?", re.ASCII)
_UNREADABLE = (
    *FAILURES, Corrupt, UnsupportedFormat, InvalidInput, msgspec.MsgspecError, KeyError,
    TypeError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(slots=True)
class Searched:
    """What a search has read.

    Attributes:
        objects: all objects, in the order of their keys.
        segments: by the key of an object, the ids of the segments of which it has sought rows.
        keys: the keys of the sought rows of a keyed table.
    """

    objects: list[SearchedObject] = field(default_factory=list)
    segments: dict[str, frozenset[str]] = field(default_factory=dict)
    keys: list[pa.Table] = field(default_factory=list)


def search(store: ObjectStore, sought: Sought, progress: Progress | None = None) -> Searched:
    """Read every object under a root, and return what each has of the sought rows.

    Args:
        store: of the table, or of a branch.
        sought: the rows.
        progress: called with ("objects", number of objects read, their number).

    Raises:
        Unavailable: the store does not answer.
    """
    listed = [row for row in store.list("") if is_own(store, row.key)]
    contents = list[tuple[ObjectInfo, str, Contents]]()
    found = Searched()
    for row, answer in zip(
        listed, each(lambda row: _looked_at(store, row, sought), listed), strict=True
    ):
        if answer is not None:  # else deleted meanwhile
            contents.append((row, *answer))
            found.keys += answer[1].found.keys
        if progress is not None:
            progress("objects", len(contents), len(listed))
    clean = set[str]().union(*(one.clean for _, _, one in contents))
    found.segments = {row.key: frozenset(one.dirty) for row, _, one in contents if one.dirty}
    # against bounds-of-a-clean-segment-count
    proven = clean - set[str]().union(*found.segments.values())
    # A leaf is as clean as the segments whose entries it has.
    proven |= {_hash_of(row.key) for row, _, one in contents if one.kind == "leaf"
               and one.bounds <= proven}  # fmt: skip
    proven |= {_hash_of(row.key) for row, _, one in contents if one.kind == "stem"
               and one.bounds <= proven}  # fmt: skip
    found.objects = [_record(row, digest, one, proven) for row, digest, one in contents]
    found.objects += map(_temporary_record, _temporary_files(store))
    return found


def _temporary_files(store: ObjectStore) -> Sequence[TemporaryFile]:
    """Return the files under a root that are no objects; those of a branch lie with its table's."""
    return store.temporary_files() if isinstance(store, LocalStore) else []


def _temporary_record(file: TemporaryFile) -> SearchedObject:
    # What they are of, their names do not say.
    problem = "it is a temporary file"  # against temporary-file-not-searched
    return SearchedObject(
        key=file.key, kind=TEMPORARY_KIND, bytes=file.size, sha256=file.sha256, problem=problem
    )


def _record(row: ObjectInfo, digest: str, contents: Contents, proven: set[str]) -> SearchedObject:
    found = contents.found
    return SearchedObject(
        key=row.key,
        kind=contents.kind,
        bytes=row.size,
        sha256=digest,
        rows=found.rows,
        tombstones=found.tombstones,
        values=found.values + len(contents.bounds - proven),
        names=contents.names,
        problem=contents.problem,
    )


def _looked_at(store: ObjectStore, row: ObjectInfo, sought: Sought) -> tuple[str, Contents] | None:
    """Return the sha256 and the contents of an object; None: it is gone."""
    kind, decode = decoder_of(local_key(row.key)[1])
    try:
        with _fetched(store, row) as (digest, source):
            try:
                if decode is None:
                    found = Contents(kind)
                    if kind == "segment":
                        rows = sought_in(_as_file(source), sought)
                        found.add_rows(rows, [_id_of(row.key)])
                    else:
                        found.problem = "it is none of this format"
                    return digest, found
                # against large-object-taken-for-empty
                body = source if isinstance(source, bytes) else Path(source).read_bytes()
                return digest, decode(body, sought)
            except _UNREADABLE as error:
                text = error.message if isinstance(error, EventLogError) else str(error)
                return digest, Contents(kind, problem=text.split("\n")[0][:200] or repr(error))
    except KeyNotFound:
        return None


def has_traces(store: ObjectStore, row: ObjectInfo, sought: Sought) -> bool:
    """Return whether one object may have sought rows, or values of them; one GET."""
    looked = _looked_at(store, row, sought)
    if looked is None:
        return False
    _, contents = looked
    return bool(contents.found.rows or contents.bounds or contents.names or contents.problem)


def _as_file(source: bytes | str) -> Any:
    return pa.BufferReader(source) if isinstance(source, bytes) else source


@contextmanager
def _fetched(store: ObjectStore, row: ObjectInfo) -> Iterator[tuple[str, bytes | str]]:
    """Yield the sha256 of an object, and its bytes or, of a large one, the path of a copy."""
    if row.size <= _PART:
        body = store.get(row.key)
        yield hashlib.sha256(body).hexdigest(), body
        return
    digest = hashlib.sha256()
    with NamedTemporaryFile(prefix="eventlog-erase-") as file:
        at = 0
        while body := store.get(row.key, start=at, length=_PART):
            digest.update(body)
            file.write(body)
            at += len(body)
        file.flush()
        yield digest.hexdigest(), file.name


def local_key(key: str) -> tuple[tuple[str, ...], str]:
    """Return the branches below which an object lies, and its key under the root of the last one.

    Of `_fork.json`, the object that makes a branch, the branches are those that it makes.
    """
    branches = list[str]()
    while match := _BRANCH.match(key):
        branches.append(match[1])
        key = key[match.end() :]
    return tuple(branches), key


def decoder_of(key: str) -> tuple[str, Decoder | None]:
    """Return the kind of an object by its key, and what decodes it.

    None: it has rows alone, if it is a segment, or is not known.
    """
    if (log := keys.parse_log_key(key)) is not None:
        version, framed = log
        if framed:
            return "key frame", lambda body, sought: keyframe_contents(body, sought, version)
        return "commit", commit_contents
    if keys.parse_segment_key(key) is not None:
        return "segment", None
    if keys.parse_vectors_key(key) is not None:
        return "vectors", vectors_contents
    if keys.parse_pack_key(key) is not None:
        return "pack", pack_contents
    if keys.parse_intent_key(key) is not None:
        return "intent", intent_contents
    if keys.parse_start_key(key) is not None:
        return "start", plain_contents("start")
    for pattern, kind, decode in _PATTERNS:
        if pattern.fullmatch(key):
            return kind, decode
    return "unknown", None


def _patterns(given: Mapping[str, tuple[str, Decoder]]) -> Sequence[tuple[Any, str, Decoder]]:
    return [(re.compile(text, re.ASCII), kind, decode) for text, (kind, decode) in given.items()]


def _positions_only(_body: bytes, _sought: Sought) -> Contents:
    return Contents("positions")


_PATTERNS = _patterns(
    {
        r"_frames/[0-9a-f]{64}\.parquet": ("frame", frame_contents),
        r"_frames/[0-9a-f]{64}\.json\.zst": ("stem", stem_contents),
        r"_fork\.json": ("fork", plain_contents("fork")),
        r"_probe/[0-9a-f]{32}": ("probe", text_contents("probe")),
        r"_delta_log/\d{20}\.json": ("delta", delta_commit_contents),
        r"_delta_log/\d{20}\.checkpoint\.parquet": ("delta", delta_checkpoint_contents),
        r"_delta_log/_last_checkpoint": ("delta", plain_contents("delta")),
        r"_delta_vectors/.*\.bin": ("positions", _positions_only),
        r"metadata/.*\.metadata\.json": ("iceberg", text_contents("iceberg")),
        r"metadata/version-hint\.text": ("iceberg", text_contents("iceberg")),
        r"metadata/deletes-.*\.parquet": ("iceberg", positions_contents),
        r"metadata/deletes-.*\.puffin": ("positions", _positions_only),
        r"metadata/.*\.avro": ("iceberg", avro_contents),
    }
)


def _id_of(key: str) -> str:
    """Return the id in the key of a segment; the key where it is none."""
    parsed = keys.parse_segment_key(local_key(key)[1])
    return key if parsed is None else parsed[2]


def _hash_of(key: str) -> str:
    """Return the hash in the key of a leaf or stem."""
    return key.rpartition("/")[2].partition(".")[0]
