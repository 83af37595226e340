"""Every key of a table, built and parsed in one place (FORMAT.md "Keys").

Keys are relative to the root. Values read from a commit become keys only through the functions
here, which check each part against an allow-list.
"""

from __future__ import annotations

import re

from msgspec import UnsetType

from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.actions import Add
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import ColumnStats, Segment, Slice, StoredBitmap, Vector, stored_bitmap
from eventlog.model.records import Piece, Stem

LOG_PREFIX = "_log/"
FRAMES_PREFIX = "_frames/"
SEGMENTS_PREFIX = "data/"
MAX_VERSION = 999_999_999_999

INTENTS_PREFIX = "_intents/"
PROBES_PREFIX = "_probe/"
STARTS_PREFIX = "_starts/"
_INTENT_KEY = re.compile(r"_intents/(\d{12})/([0-9a-f]{32})\.json", re.ASCII)
_LOG_KEY = re.compile(r"_log/(\d{12})(\.keyframe)?\.json", re.ASCII)
PACKS_PREFIX = "_packs/"
_PACK_KEY = re.compile(r"_packs/(\d{12})/([0-9a-f]{64})\.parquet", re.ASCII)
_START_KEY = re.compile(r"_starts/(\d{12})\.json", re.ASCII)
_SEGMENT_KEY = re.compile(r"data/(\d{12})/([0-9A-Za-z-]{3,13})/([0-9a-f]{32})\.parquet", re.ASCII)
_VECTORS_KEY = re.compile(r"data/(\d{12})/vectors/([0-9a-f]{32})\.roaring", re.ASCII)
BRANCHES_PREFIX = "_branches/"
FORK_KEY = "_fork.json"
_BRANCH_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]{0,99}", re.ASCII)
_FORK_KEY = re.compile(
    rf"((?:_branches/{_BRANCH_NAME.pattern}/[0-9a-f]{{32}}/)*_branches/{_BRANCH_NAME.pattern})"
    r"/_fork\.json",
    re.ASCII,
)
_EPOCH = re.compile(r"data/(\d{12})/", re.ASCII)
_HEX32 = re.compile(r"[0-9a-f]{32}", re.ASCII)
_HEX64 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def commit_key(version: int) -> str:
    """Return the key of the commit of `version`; the key of the newest version sorts first."""
    return f"{LOG_PREFIX}{_inverted(version)}.json"


def keyframe_key(version: int) -> str:
    """Return the key of the key frame root of `version`."""
    return f"{LOG_PREFIX}{_inverted(version)}.keyframe.json"


def probe_key(table_id: str) -> str:
    """Return the key of the object with which writers probe the store's preconditions (R2.3)."""
    return f"{PROBES_PREFIX}{table_id}"


def start_key(version: int) -> str:
    """Return the key of the object that records that a replica starts at `version` (R17.4)."""
    return f"{STARTS_PREFIX}{_inverted(version)}.json"


def parse_start_key(key: str) -> int | None:
    """Return the version of the key of a start, or None for other keys."""
    match = _START_KEY.fullmatch(key)
    return MAX_VERSION - int(match[1]) if match else None


def frame_key(sha256: str) -> str:
    """Return the key of the leaf or spill object whose bytes have this sha256.

    Raises:
        Corrupt: the text is not a sha256.
    """
    if not _HEX64.fullmatch(sha256):
        raise Corrupt(f"{sha256[:80]!r} is not a sha256 in lower-case hexadecimal")
    return f"{FRAMES_PREFIX}{sha256}.parquet"


def pack_key(version: int, sha256: str) -> str:
    """Return the key of a pack.

    Args:
        version: the version of the key frame that it was written with.
        sha256: of its bytes.

    Raises:
        Corrupt: a part does not have the form that FORMAT.md requires.
    """
    if not 0 <= version <= MAX_VERSION or not _HEX64.fullmatch(sha256):
        raise Corrupt(f"pack {sha256[:80]!r} of version {version} violates the format")
    return f"{PACKS_PREFIX}{_inverted(version)}/{sha256}.parquet"


def packs_prefix(version: int) -> str:
    """Return what the keys of the packs begin with that a key frame's writer wrote."""
    return f"{PACKS_PREFIX}{_inverted(version)}/"


def parse_pack_key(key: str) -> tuple[int, str] | None:
    """Return (version, sha256) of the key of a pack, or None for other keys."""
    match = _PACK_KEY.fullmatch(key)
    return (MAX_VERSION - int(match[1]), match[2]) if match else None


def stem_key(sha256: str) -> str:
    """Return the key of the stem object whose bytes have this sha256.

    Raises:
        Corrupt: the text is not a sha256.
    """
    return frame_key(sha256).removesuffix(".parquet") + ".json.zst"


def piece_key(piece: Piece) -> str:
    """Return the key of the object of a leaf or a stem.

    Raises:
        Corrupt: its hash is none.
    """
    return (stem_key if isinstance(piece, Stem) else frame_key)(piece.sha256)


def segment_key(epoch: int, chunk: str, segment_id: str) -> str:
    """Return the key of a segment object.

    Raises:
        Corrupt: a part does not have the form that FORMAT.md requires.
    """
    if not 0 <= epoch <= MAX_VERSION or not _HEX32.fullmatch(segment_id):
        raise Corrupt(f"segment id {segment_id[:80]!r} in epoch {epoch} violates the format")
    try:
        parse_chunk(chunk)
    except InvalidInput as error:
        raise Corrupt(f"segment {segment_id} has an invalid time chunk: {error}") from None
    return f"{SEGMENTS_PREFIX}{epoch:012d}/{chunk}/{segment_id}.parquet"


def vectors_key(stored: StoredBitmap) -> str:
    """Return the key of the object that has the bitmap of a deletion vector, perhaps with others.

    Raises:
        Corrupt: a part does not have the form that FORMAT.md requires.
    """
    if not 0 <= stored.epoch <= MAX_VERSION or not _HEX32.fullmatch(stored.object):
        raise Corrupt(f"vectors {stored.object[:80]!r} in epoch {stored.epoch} violate the format")
    return f"{SEGMENTS_PREFIX}{stored.epoch:012d}/vectors/{stored.object}.roaring"


def parse_vectors_key(key: str) -> tuple[int, str] | None:
    """Return (epoch, object id) of a key of deletion vectors, or None for other keys."""
    match = _VECTORS_KEY.fullmatch(key)
    return (int(match[1]), match[2]) if match else None


def parse_data_key(key: str) -> tuple[int, str] | None:
    """Return (epoch, id) of the key of a segment or of deletion vectors, or None for others."""
    segment = parse_segment_key(key)
    return parse_vectors_key(key) if segment is None else (segment[0], segment[2])


def intent_key(until: int, transaction_id: str) -> str:
    """Return the key of a published transaction; the latest window sorts first.

    Raises:
        Corrupt: the id does not have the form that FORMAT.md requires.
    """
    if not _HEX32.fullmatch(transaction_id):
        raise Corrupt(f"{transaction_id[:80]!r} is not a transaction id")
    return f"{INTENTS_PREFIX}{_inverted(until)}/{transaction_id}.json"


def ended_intents(version: int) -> str:
    """Return the key after which a listing has the transactions published until below `version`."""
    return f"{INTENTS_PREFIX}{_inverted(version)}/~"


def parse_intent_key(key: str) -> tuple[int, str] | None:
    """Return (until, transaction id) of a published transaction's key, or None for other keys."""
    match = _INTENT_KEY.fullmatch(key)
    return (MAX_VERSION - int(match[1]), match[2]) if match else None


def is_segment_id(text: str) -> bool:
    """Say whether the text can be the id of a segment."""
    return _HEX32.fullmatch(text) is not None


def is_hash(text: str) -> bool:
    """Say whether the text can be the hash of a commit."""
    return _HEX64.fullmatch(text) is not None


def key_of(segment: Segment) -> str:
    """Return the key of a segment's object."""
    return segment_key(segment.epoch, segment.chunk, segment.id)


def keys_of(segment: Segment) -> tuple[str, ...]:
    """Return the keys of all objects that a segment needs: its own, and one of a stored vector."""
    stored = stored_bitmap(segment.vector)
    own = key_of(segment)
    return (own,) if stored is None else (own, vectors_key(stored))


def check_entry(segment: Segment) -> None:
    """Check an entry by itself: its key, statistics and place in slices (R5.2, R15.3).

    Raises:
        Corrupt: a part does not have the form that FORMAT.md requires.
    """
    key_of(segment)
    check_object(segment)
    columns = [stat.column for stat in segment.stats]
    if columns != sorted(set(columns)):
        raise Corrupt(f"segment {segment.id} has statistics that are not in order of columns")
    # against bytes-in-a-later-commit
    if not isinstance(segment.inline, UnsetType) and segment.inline > segment.version:
        raise Corrupt(f"segment {segment.id} is older than the commit that has its bytes")
    if any(map(is_mixed, segment.stats)):
        raise Corrupt(f"segment {segment.id} has a text and a number as bounds of one column")
    if not isinstance(segment.slice, UnsetType):
        _check_place(segment, segment.slice)
        if not isinstance(segment.vector, UnsetType):
            raise Corrupt(f"segment {segment.id} of a keyed table has a deletion vector")


def is_mixed(stat: ColumnStats) -> bool:
    """Return whether one bound is a text and the other a number."""
    both = stat.min is not None and stat.max is not None
    return both and isinstance(stat.min, str) != isinstance(stat.max, str)


def _check_place(segment: Segment, place: Slice) -> None:
    if place.low is None or place.high is None or place.ordinal is None:
        raise Corrupt(f"segment {segment.id} has a slice without versions or ordinal")
    if place.first > place.last or not place.low <= place.high <= segment.version:
        raise Corrupt(f"segment {segment.id} has its buckets or its versions in the wrong order")


def check_object(entry: Add | Segment) -> None:
    """Check an entry's checksum and tail.

    Raises:
        Corrupt: a hash is malformed, the tail is larger than the object, or the vector is malformed
            or deletes all rows.
    """
    frame_key(entry.checksum)
    if not isinstance(entry.vector, UnsetType):
        check_vector(entry.vector)
        if entry.vector.rows >= entry.rows:
            raise Corrupt(f"segment {entry.id} has a vector that deletes all of its rows")
    if entry.tail is not None:
        frame_key(entry.tail.sha256)
        if entry.tail.size > entry.bytes:
            raise Corrupt(f"segment {entry.id} has a tail larger than its object")


def check_vector(vector: Vector) -> None:
    """Check a deletion vector by itself (R20.2).

    Raises:
        Corrupt: a part does not have the form that FORMAT.md requires.
    """
    stored, bitmap = stored_bitmap(vector), vector.bitmap
    # against vector-of-two-bitmaps
    if isinstance(bitmap, UnsetType) == (stored is None):
        raise Corrupt("a deletion vector has no bitmap, or two")
    if stored is not None:
        vectors_key(stored)
        frame_key(stored.hash)
    size = len(bitmap) if stored is None and not isinstance(bitmap, UnsetType) else 0
    if not vector.rows or not (size if stored is None else stored.size):
        raise Corrupt("a deletion vector has no rows or no bytes")


def parse_log_key(key: str) -> tuple[int, bool] | None:
    """Return (version, is key frame) of a log key, or None for other keys."""
    match = _LOG_KEY.fullmatch(key)
    return (MAX_VERSION - int(match[1]), match[2] is not None) if match else None


def parse_segment_key(key: str) -> tuple[int, str, str] | None:
    """Return (epoch, chunk name, segment id) of a segment key, or None for other keys."""
    match = _SEGMENT_KEY.fullmatch(key)
    if not match:
        return None
    try:
        parse_chunk(match[2])
    except InvalidInput:
        return None
    return int(match[1]), match[2], match[3]


def check_branch(name: object) -> str:
    """Return the name if a branch may have it (R16.1).

    Raises:
        InvalidInput: it may not.
    """
    if not isinstance(name, str) or not is_branch(name):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not a branch's name: write 1 to 100 of the letters A to Z, "
            "digits, '-', '_' and '.', and no '.' at its start"
        )
    return name


def is_branch(name: str) -> bool:
    """Return whether a branch may have this name."""
    return _BRANCH_NAME.fullmatch(name) is not None


def branch_root(name: str) -> str:
    """Return the root of a branch, relative to its parent's, without a trailing slash.

    Raises:
        InvalidInput: no branch may have this name.
    """
    return f"{BRANCHES_PREFIX}{check_branch(name)}"


def branch_place(name: str, branch_id: str) -> str:
    """Return where a branch's own objects lie, relative to its parent's root (R16.3).

    Args:
        name: of the branch.
        branch_id: `id` of its fork. A branch that is made again under the name has another one.

    Raises:
        InvalidInput: no branch may have this name.
    """
    return f"{branch_root(name)}/{branch_id}"


def parse_fork_key(key: str) -> tuple[str, ...] | None:
    """Return the names of the branches on the way to a `_fork.json`, or None for other keys.

    `("audit", "fix")` for that of the branch `fix` of the branch `audit`, whatever their ids are.
    """
    match = _FORK_KEY.fullmatch(key)
    return tuple(match[1].split("/")[1::3]) if match else None


def branch_uri(uri: str, name: str) -> str:
    """Return the root URI of a branch of the table at `uri`.

    Raises:
        InvalidInput: no branch may have this name.
    """
    return f"{uri.rstrip('/')}/{branch_root(name)}"


def split_branches(uri: str) -> tuple[str, tuple[str, ...]]:
    """Return the URI of the table that is no branch, and the names of the branches below it.

    The id of a branch may follow its name, as in the URI of an object of the branch.

    Raises:
        InvalidInput: the URI has a part of a branch, but no branch may have this name.
    """
    names: list[str] = []
    root = uri.rstrip("/") or uri
    while True:
        above, _, name = root.rpartition("/")
        parent, slash, place = above.rpartition("/")
        if _HEX32.fullmatch(name) and parent.endswith(f"/{BRANCHES_PREFIX}"[:-1]):
            root = above
            continue
        if not slash or f"{place}/" != BRANCHES_PREFIX or parent.endswith(":/") or not parent:
            return root if names else uri, tuple(reversed(names))
        names.append(check_branch(name))
        root = parent


def epoch_of(key: str) -> int | None:
    """Return the epoch that a key under `data/` begins with, or None for other keys."""
    match = _EPOCH.match(key)
    return int(match[1]) if match else None


def _inverted(version: int) -> str:
    if not 0 <= version <= MAX_VERSION:
        raise InvalidInput(f"version {version} is not in the range 0 to {MAX_VERSION}")
    return f"{MAX_VERSION - version:012d}"
