"""The bytes of segments that stand in commits.

They are cached by their sha256 for the whole process, so what is found can never be another
segment's. A commit that does not have them any more, or that this copy of the log lacks, is no
loss by itself: then the object is at its key (FORMAT.md R21.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.cache import Cache
from eventlog.errors import Corrupt, KeyNotFound
from eventlog.format import codec, keys
from eventlog.model.actions import Add
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Pack
from eventlog.store.branching.branch import stored_place
from eventlog.store.parallel import each
from eventlog.store.port import Body, ObjectStore

CACHE_BYTES = 32 * 2**20

_known: Cache[str, bytes] = Cache(CACHE_BYTES, weigh=len)


class _Action(msgspec.Struct):
    """What is needed of an action: the bytes, if it is an add that has them."""

    parquet: bytes | UnsetType = UNSET


class _Transaction(msgspec.Struct):
    actions: list[_Action]


class _Bodies(msgspec.Struct):
    transactions: list[_Transaction]


def remember_objects(adds: Iterable[Add]) -> None:
    """Keep the bytes that adds have, for a reader or a key frame of this process."""
    for add in adds:
        if not isinstance(add.parquet, UnsetType):
            _known.put(add.checksum, add.parquet)


def remember_read(commit: Commit) -> None:
    """Keep the bytes that a commit has, whatever became of its adds: by the sha256 that they have.

    Who reads many commits reads their rows next.
    """
    actions = (action for t in commit.transactions for action in t.actions)
    for action in actions:
        if isinstance(action, Add) and not isinstance(action.parquet, UnsetType):
            _known.put(codec.sha256(action.parquet), action.parquet)


def is_remembered(sha256: str) -> bool:
    """Return whether bytes of this sha256 are kept: of a segment or of a pack."""
    return sha256 in _known


def forget_objects() -> None:
    """Keep no bytes any more, as in a process that has read nothing yet."""
    _known.clear()


def remember_committed(commit: Commit, live: Iterable[Segment]) -> None:
    """Keep the bytes that a commit has of segments which it made live: the fold compared them.

    Args:
        commit: the commit.
        live: the segments.
    """
    version = commit.header.version
    ids = {segment.id for segment in live if segment.inline == version}
    actions = (action for t in commit.transactions for action in t.actions if ids)
    remember_objects(a for a in actions if isinstance(a, Add) and a.id in ids)


def fetch_objects(
    store: ObjectStore, segments: Iterable[Segment], *, cached: bool = True
) -> dict[str, bytes]:
    """Return the bytes of segments by checksum: of all whose commit has them. One GET a commit.

    Args:
        store: of the table.
        segments: those whose bytes do not stand in a commit are passed over.
        cached: whether bytes count that this process has read before.

    Raises:
        Unavailable: the store does not answer.
    """
    found: dict[str, bytes] = {}
    sought: dict[int, list[Segment]] = {}
    for segment in segments:
        if isinstance(segment.inline, UnsetType) or segment.checksum in found:
            continue
        body = _known.get(segment.checksum) if cached else None
        if body is None:
            sought.setdefault(segment.inline, []).append(segment)
        else:
            found[segment.checksum] = body
    versions = sorted(sought)
    for version, bodies in zip(
        versions, each(lambda v: objects_in(store.get, v), versions), strict=True
    ):
        wanted = {segment.checksum for segment in sought[version]}
        for checksum, body in bodies.items():
            _known.put(checksum, body)
            if checksum in wanted:
                found[checksum] = body
    return found


def get_object(store: ObjectStore, segment: Segment) -> bytes:
    """Return the bytes of a segment's object, wherever they are. They are not compared with it.

    Args:
        store: of the table.
        segment: its entry.

    Raises:
        KeyNotFound: neither a commit nor the key has them.
        Unavailable: the store does not answer.
    """
    body = fetch_objects(store, [segment]).get(segment.checksum)
    if body is not None:
        return body
    # One byte more than expected, to notice an object that is too long.
    return store.get(keys.key_of(segment), length=segment.bytes + 1)


def get_pack(store: ObjectStore, pack: Pack) -> bytes | None:
    """Return the bytes of a pack, checked; None if it is missing or damaged. At most one GET.

    Raises:
        Unavailable: the store does not answer.
    """
    body = _known.get(pack.sha256)
    if body is not None:
        return body
    try:
        body = store.get(keys.pack_key(pack.last, pack.sha256), length=pack.size + 1)
    except KeyNotFound:
        return None
    # against pack-bytes-not-compared
    if len(body) != pack.size or codec.sha256(body) != pack.sha256:
        return None
    _known.put(pack.sha256, body)
    return body


def remember_pack(sha256: str, body: Body) -> None:
    """Keep the bytes of a pack that was written."""
    _known.put(sha256, bytes(body))


def put_at_keys(store: ObjectStore, segments: Iterable[Segment]) -> None:
    """Store the objects of segments at their keys, for programs that read files.

    Those that are there already stay. One PUT for each segment whose bytes stand in a commit. What
    a branch has from its parent is put below the parent's root, where its key lies.

    Args:
        store: of the table.
        segments: those whose bytes do not stand in a commit are passed over.

    Raises:
        Corrupt: another object is at a key.
        KeyNotFound: the bytes of one are nowhere.
        Unavailable: the store does not answer.
        InvalidInput: the store refuses.
    """
    wanted = [s for s in segments if not isinstance(s.inline, UnsetType)]
    found = fetch_objects(store, wanted)
    for _ in each(lambda s: _put_at_key(store, s, found.get(s.checksum)), wanted):
        pass


def _put_at_key(store: ObjectStore, segment: Segment, body: bytes | None) -> None:
    key = keys.key_of(segment)
    if body is None:
        store.get(key, length=1)  # it must be there
        return
    if codec.sha256(body) != segment.checksum:
        raise Corrupt("a commit has other bytes of a segment", table=store.uri, key=key)
    owner, name = stored_place(store, key)
    if owner.put_if_absent(name, body):
        return
    if store.get(key, length=segment.bytes + 1) != body:  # against another-object-published
        raise Corrupt(
            "another object is at the key of a segment whose bytes stand in commit "
            f"{segment.inline}: remove it by hand",
            table=store.uri,
            key=key,
        )


def objects_in(get: Callable[..., bytes], version: int) -> dict[str, bytes]:
    """Return the bytes of objects that a commit has, by their sha256; none if it cannot be read.

    Args:
        get: `ObjectStore.get` of the table's store, with or without retries.
        version: the version of the commit.

    Raises:
        Unavailable: the store does not answer.
    """
    try:
        body = get(keys.commit_key(version), length=codec.MAX_COMMIT_BYTES + 1)
        commit = msgspec.json.decode(body, type=_Bodies)
    except (KeyNotFound, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    bodies = (a.parquet for t in commit.transactions for a in t.actions)
    return {codec.sha256(b): b for b in bodies if not isinstance(b, UnsetType)}
