"""The values of the log: what commits, key frames and the small state consist of.

Frozen structs only. Field order is the canonical JSON order (FORMAT.md "Canonical JSON"); times
are int milliseconds UTC; intervals are half-open. `eventlog.model.entries` defines their parts, and
`eventlog.model.actions` the actions of a transaction.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from eventlog.model.actions import Action, Add, Advance, Drop
from eventlog.model.entries import (
    Analysed,
    ChunkState,
    ClaimKind,
    ColumnStats,
    Correction,
    Count,
    Int,
    Layout,
    Schema,
    Segment,
    Spill,
    Sweep,
)

FORMAT_NAME = "eventlog"
FORMAT_VERSION = 1
CUT_FEATURE = "cut"  # the log is cut: below a version it has stubs in place of commits
INLINE_FEATURE = "inline"  # the bytes of live segments stand in commits
KEYED_FEATURE = "keyed"  # the table has slices
MERGED_FEATURE = "merged"  # the small state has origins
SPLIT_FEATURE = "split"  # the buckets of a keyed table were doubled
VECTORS_FEATURE = "vectors"  # live segments have deletion vectors
KNOWN_FEATURES: frozenset[str] = frozenset(
    {CUT_FEATURE, INLINE_FEATURE, KEYED_FEATURE, MERGED_FEATURE, SPLIT_FEATURE, VECTORS_FEATURE}
)
CHECKS_FEATURE = "checks"  # rows are tested before they are written
KNOWN_WRITE_FEATURES: frozenset[str] = frozenset({CHECKS_FEATURE})


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """Identifies a claim to its holder: its id, and the version at which it was accepted."""

    id: str
    token: Count


class App(Struct, frozen=True, forbid_unknown_fields=True):
    """Identity of a job's unit of work: the same (id, sequence) takes effect once."""

    id: str
    seq: Count


class Transaction(Struct, frozen=True, forbid_unknown_fields=True):
    """One writer's atomic intent, judged by the fold against the state before it.

    Attributes:
        id: 32 hexadecimal digits, unique; the same in every retry.
        operation: name for histories: create, append, overwrite, compact, schema, properties, …
        writer: name of the writer, for histories; at most 120 characters.
        read_version: the version that the intent is based on; -1 when creating the table.
        until: the last version at which the transaction may take effect; set if it was published
            for other writers to commit. Only appends and replacements can be published.
        app: idempotence key, if the writer gave one.
        claim: the claim that it runs under; the transaction is void once that is gone.
        actions: the actions and preconditions, in order.
        spill: adds and drops that follow `actions`, stored in an object of their own.
        info: free text, for histories and later releases; has no effect on the state.
    """

    id: str
    operation: str
    writer: str
    read_version: Int
    until: Count | None = None
    app: App | None = None
    claim: Token | None = None
    actions: tuple[Action, ...] = ()
    spill: Spill | None = None
    info: dict[str, str] = {}


def inline_size(transaction: Transaction) -> int:
    """Return how many characters of a transaction's JSON are the bytes of segments, as base64."""
    bodies = (a.parquet for a in transaction.actions if isinstance(a, Add))
    return sum(4 * -(-len(body) // 3) for body in bodies if not isinstance(body, UnsetType))


class Totals(Struct, frozen=True, forbid_unknown_fields=True):
    """Sums over the live segments.

    Attributes:
        segments: their number.
        rows: the rows that readers see: without deleted ones.
        bytes: the sizes of their objects.
        deleted: the rows that vectors delete; absent if there are none.
        inline: the number of segments whose bytes stand in commits; absent if there are none.
    """

    segments: Count = 0
    rows: Count = 0
    bytes: Count = 0
    deleted: Count | UnsetType = UNSET
    inline: Count | UnsetType = UNSET


class CommitChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """The changes of a commit, for histories. `rows` and `bytes` are net and may be negative.

    `vectors` is the number of segments that got one by `DeleteRows`; absent if there are none.
    """

    operation: str
    writer: str
    transactions: Count
    adds: Count
    drops: Count
    rows: Int
    bytes: Int
    vectors: Count | UnsetType = UNSET


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """The first field of a commit; contained in its first 2,048 bytes.

    `features` are what every program must know, and `write_features` what a writer must know
    besides: absent where that is nothing.
    """

    format: str
    min_reader: Count
    min_writer: Count
    features: tuple[str, ...]
    table: str
    version: Count
    prev: str | None
    time: Int
    keyframe: Int | None
    totals: Totals
    state_hash: str
    changes: CommitChanges
    write_features: tuple[str, ...] | UnsetType = UNSET


class AppMark(Struct, frozen=True, forbid_unknown_fields=True):
    """An app's last unit of work: its sequence number, and the version and time of its commit."""

    seq: Count
    version: Count
    time: Int


class Published(Struct, frozen=True, forbid_unknown_fields=True):
    """A published transaction that took effect at `version`, kept until version `until`."""

    version: Count
    until: Count


class Pin(Struct, frozen=True, forbid_unknown_fields=True):
    """A named hold on a version; `token` is the version that set it, and `time` its time."""

    version: Count
    owner: str
    token: Count
    time: Int


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """A claim (`TakeClaim`): `token` is the version that accepted it, `renewed` its last renewal.

    `renewed` is also a version, and at first equals `token`.
    """

    start: Int
    end: Int
    segments: tuple[str, ...]
    kind: ClaimKind
    priority: Int
    group: str
    owner: str
    token: Count
    renewed: Count


class Replica(Struct, frozen=True, forbid_unknown_fields=True):
    """A table that follows this one.

    `token` is the version that attached it, and `acked` the last version that it has received.
    """

    acked: Count
    owner: str
    token: Count


class Origin(Struct, frozen=True, forbid_unknown_fields=True):
    """How far another log of the same table is merged into this one.

    Attributes:
        version: the last version of the other log that is merged here.
        commit: the hash of that version's commit.
        token: the version of this log that recorded it.
    """

    version: Count
    commit: str
    token: Count


class LogCut(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log is cut (`SetCut`); `token` is the version of the commit that cut it there."""

    version: Count
    whole: Count
    seen: Count
    token: Count


class Meta(Struct, frozen=True, forbid_unknown_fields=True):
    """The small state: everything that is not a segment.

    `origins` is absent while it would be empty, see `origins_of`, and `cut` until the log is cut:
    see `cut_of`.
    """

    layout: Layout | None = None
    schema: Schema | None = None
    properties: dict[str, str] = {}
    apps: dict[str, AppMark] = {}
    published: dict[str, Published] = {}
    claims: dict[str, Claim] = {}
    pins: dict[str, Pin] = {}
    replicas: dict[str, Replica] = {}
    fence: Count = 0
    horizon: Count = 0
    swept: Sweep | None = None
    chunks: dict[str, ChunkState] = {}
    analysed: Analysed | None = None
    clock: tuple[Correction, ...] = ()
    origins: dict[str, Origin] | UnsetType = UNSET
    cut: LogCut | UnsetType = UNSET


def cut_of(meta: Meta) -> int:
    """Return the version at which the log is cut: commits below it may be stubs. 0: it is not."""
    return 0 if isinstance(meta.cut, UnsetType) else meta.cut.version


def last_unit_of(transaction: Transaction) -> App | None:
    """Return the unit of work of a transaction, or the last one of a group whose app is one alone.

    For people: of several apps it returns none.
    """
    if transaction.app is not None:
        return transaction.app
    advances = [action for action in transaction.actions if isinstance(action, Advance)]
    return App(advances[0].app, advances[0].new) if len(advances) == 1 else None


def origins_of(meta: Meta) -> dict[str, Origin]:
    """Return how far each other log is merged into this one, by the id of the origin."""
    return {} if isinstance(meta.origins, UnsetType) else meta.origins


class DeltaRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Net adds and drops since the key frame, as stored in a commit.

    Adds are ordered by (version, partition), drops by (chunk, id). With a `spill` both lists are
    empty, and the entries are in its object.
    """

    adds: tuple[Segment, ...] = ()
    drops: tuple[Drop, ...] = ()
    spill: Spill | None = None


class Commit(Struct, frozen=True, forbid_unknown_fields=True):
    """The one immutable JSON object of a version.

    `state` has the fields of `Meta` that differ from the key frame's: for each its new value; for
    a map only the changed names, with null for a removed one.
    """

    header: Header
    state: dict[str, Any]
    transactions: tuple[Transaction, ...]
    delta: DeltaRecord


class Stub(Struct, frozen=True, forbid_unknown_fields=True):
    """What is left of a commit below the cut of the log, under the commit's key.

    Attributes:
        header: the commit's.
        commit: the commit's hash, which `prev` of the next version names.
    """

    header: Header
    commit: str


class Start(Struct, frozen=True, forbid_unknown_fields=True):
    """Records that a replica lacks versions between two of its own: all of them, or some.

    Attributes:
        table: the table's id.
        version: the first version that it has above the gap.
        after: the last one below it; -1: there is none.
    """

    format: str
    min_reader: Count
    features: tuple[str, ...]
    table: str
    version: Count
    after: Int


class Leaf(Struct, frozen=True, forbid_unknown_fields=True):
    """A root's entry for one leaf: a run of segment entries in (chunk start, chunk end, id) order.

    Attributes:
        sha256: of the leaf's bytes; its key is `_frames/<sha256>.parquet`.
        size: of the object in bytes.
        first: `<chunk>/<id>` of its first entry.
        end: the greatest chunk end in the leaf, ms UTC.
        segments: number of entries.
        rows: sum of their rows, deleted ones included.
        bytes: sum of their sizes.
        hash_sum: sum of their hashes mod 2^256, hexadecimal.
        stats: bounds over all entries for the first few columns; absent means unknown.
        deleted: sum of the rows that their vectors delete; absent if there are none.
        inline: number of the entries whose bytes stand in commits; absent if there are none.
    """

    sha256: str
    size: Count
    first: str
    end: Int
    segments: Count
    rows: Count
    bytes: Count
    hash_sum: str
    stats: tuple[ColumnStats, ...] = ()
    deleted: Count | UnsetType = UNSET
    inline: Count | UnsetType = UNSET


class Pack(Struct, frozen=True, forbid_unknown_fields=True):
    """A root's entry for one pack: an object with the rows of segments that stand in commits.

    Attributes:
        first: the lowest version whose commit has bytes of the segments.
        last: the version of the key frame that the pack was written with: the highest.
        sha256: of the object's bytes; with `last` it makes the key.
        size: of the object in bytes.
        segments: number of segments.
        bytes: sum of the sizes of their objects.
    """

    first: Count
    last: Count
    sha256: str
    size: Count
    segments: Count
    bytes: Count


class Stem(Struct, frozen=True, forbid_unknown_fields=True):
    """A root's entry for one stem: a run of neighbouring leaves, described in an object of its own.

    All of it follows from its leaves (FORMAT.md R9.9).

    Attributes:
        sha256: of the stem's bytes; its key is `_frames/<sha256>.json.zst`.
        size: of the object in bytes.
        leaves: number of leaves.
        first: that of its first leaf.
        end: the greatest `end` of its leaves, ms UTC.
        segments: sum of the entries of its leaves.
        rows: sum of their rows, deleted ones included.
        bytes: sum of the sizes of their objects.
        hash_sum: sum of the hashes of the entries mod 2^256, hexadecimal.
        stats: bounds over all entries, for columns of which all leaves have them.
        deleted: sum of the rows that vectors delete; absent if there are none.
        inline: number of the entries whose bytes stand in commits; absent if there are none.
    """

    sha256: str
    size: Count
    leaves: Count
    first: str
    end: Int
    segments: Count
    rows: Count
    bytes: Count
    hash_sum: str
    stats: tuple[ColumnStats, ...] = ()
    deleted: Count | UnsetType = UNSET
    inline: Count | UnsetType = UNSET


Piece: TypeAlias = Leaf | Stem  # what a root names, in the order of the entries below it


class KeyFrame(Struct, frozen=True, forbid_unknown_fields=True):
    """The root of a key frame: the full state at one version.

    `commit` is the sha256 of that version's commit. In a small table the entries are in `segments`,
    in leaf order; in a larger one they are in the objects that `leaves` names; in a very large one
    the leaves are described in the objects that `stems` names, which is absent elsewhere. `packs`
    are in the order of `last`, and absent if there are none.
    """

    format: str
    min_reader: Count
    features: tuple[str, ...]
    table: str
    version: Count
    commit: str
    time: Int
    totals: Totals
    state_hash: str
    state: Meta
    segments: tuple[Segment, ...]
    leaves: tuple[Leaf, ...]
    stems: tuple[Stem, ...] | UnsetType = UNSET
    packs: tuple[Pack, ...] | UnsetType = UNSET


def packs_of(root: KeyFrame | None) -> tuple[Pack, ...]:
    """Return the packs of a key frame; none if there is none."""
    return () if root is None or isinstance(root.packs, UnsetType) else root.packs


def pieces_in(root: KeyFrame | None) -> tuple[Piece, ...]:
    """Return what a root names: its stems, or its leaves; nothing where its entries stand in it."""
    if root is None:
        return ()
    return root.leaves if isinstance(root.stems, UnsetType) else root.stems


class Fork(Struct, frozen=True, forbid_unknown_fields=True):
    """The fork point of a branch. Its parent is the table or branch whose root contains its root.

    Attributes:
        format: as in a commit.
        min_reader: as in a commit.
        table: the id of the table, which all its branches share.
        id: 32 hexadecimal digits, unique: a later branch of the same name has another id.
        name: of the branch; its root is `_branches/<name>` in its parent's.
        version: the last version that the branch has in common with its parent.
        commit: the sha256 of the parent's commit of that version.
        held: the version that the parent's pin of the branch names, at most `version`.
    """

    format: str
    min_reader: Count
    table: str
    id: str
    name: str
    version: Count
    commit: str
    held: Count
