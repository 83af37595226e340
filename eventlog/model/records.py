"""The values of the log: what commits, key frames and the small state consist of.

Words layer: frozen structs and nothing else. Field order is the canonical JSON order (FORMAT.md
"Canonical JSON"); times are int milliseconds UTC; intervals are half-open. The parts stand in
`eventlog.model.entries` and `eventlog.model.actions`, and can be imported from here.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from eventlog.model.actions import (
    Ack,
    Action,
    Add,
    Assess,
    Attach,
    Break,
    ChunkChange,
    Detach,
    Drop,
    Fence,
    Horizon,
    PropertyChange,
    Release,
    Renew,
    Replace,
    Restore,
    SameSegments,
    SetClock,
    SetGranularity,
    SetLayout,
    SetPin,
    SetProperties,
    SetSchema,
    Swept,
    TakeClaim,
    Unchanged,
    Unpin,
)
from eventlog.model.entries import (
    GRANULARITIES,
    Analysed,
    ChunkState,
    ClaimKind,
    Column,
    ColumnStats,
    ColumnType,
    Correction,
    Count,
    Granularity,
    Holder,
    Int,
    Layout,
    Schema,
    Segment,
    Spill,
    Standing,
    Sweep,
    Tail,
)

__all__ = [
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "GRANULARITIES",
    "KNOWN_FEATURES",
    "Ack",
    "Action",
    "Add",
    "Analysed",
    "App",
    "AppMark",
    "Assess",
    "Attach",
    "Break",
    "Changes",
    "ChunkChange",
    "ChunkState",
    "Claim",
    "ClaimKind",
    "Column",
    "ColumnStats",
    "ColumnType",
    "Commit",
    "Correction",
    "Count",
    "DeltaRecord",
    "Detach",
    "Drop",
    "Fence",
    "Granularity",
    "Header",
    "Holder",
    "Horizon",
    "Int",
    "KeyFrame",
    "Layout",
    "Leaf",
    "Meta",
    "Pin",
    "PropertyChange",
    "Published",
    "Release",
    "Renew",
    "Replace",
    "Replica",
    "Restore",
    "SameSegments",
    "Schema",
    "Segment",
    "SetClock",
    "SetGranularity",
    "SetLayout",
    "SetPin",
    "SetProperties",
    "SetSchema",
    "Spill",
    "Standing",
    "Sweep",
    "Swept",
    "Tail",
    "TakeClaim",
    "Token",
    "Totals",
    "Transaction",
    "Unchanged",
    "Unpin",
]

FORMAT_NAME = "eventlog"
FORMAT_VERSION = 1
KNOWN_FEATURES: frozenset[str] = frozenset()


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """A claim as its holder knows it: its id and the version at which it was accepted."""

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
        operation: what it is, for people: create, append, replace, overwrite, schema, properties.
        writer: who wrote it, for people; at most 120 characters.
        read_version: the version that the intent was formed on; -1 when creating the table.
        until: set where the transaction was published for others to include: the last version
            at which it may take effect. Only appends and replacements can be published.
        app: idempotence key, if the writer gave one.
        claim: the claim that it runs under: without it the transaction is void.
        actions: what it does and needs, in order.
        spill: adds and drops that come after `actions`, kept in an object of their own.
        info: free text for people and for later releases; no effect on the state.
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


class Totals(Struct, frozen=True, forbid_unknown_fields=True):
    """Sums over the live segments."""

    segments: Count = 0
    rows: Count = 0
    bytes: Count = 0


class Changes(Struct, frozen=True, forbid_unknown_fields=True):
    """What a commit changed, for histories. `rows` and `bytes` are net and may be negative."""

    operation: str
    writer: str
    transactions: Count
    adds: Count
    drops: Count
    rows: Int
    bytes: Int


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """The first field of a commit; lies within its first 2,048 bytes."""

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
    changes: Changes


class AppMark(Struct, frozen=True, forbid_unknown_fields=True):
    """The last unit of work of one app: its sequence, and the version and time of its commit."""

    seq: Count
    version: Count
    time: Int


class Published(Struct, frozen=True, forbid_unknown_fields=True):
    """A published transaction that took effect, kept until its window has ended."""

    version: Count
    until: Count


class Pin(Struct, frozen=True, forbid_unknown_fields=True):
    """A hold on a version: `token` and `time` are of the commit that set it."""

    version: Count
    owner: str
    token: Count
    time: Int


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """A lease (`TakeClaim`); `token` is the version that accepted it, `renewed` its last sign."""

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
    """A table that follows this one: `token` is new at every attach, `acked` is what it has."""

    acked: Count
    owner: str
    token: Count


class Meta(Struct, frozen=True, forbid_unknown_fields=True):
    """The small state: everything that is not a segment."""

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


class DeltaRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Net adds and drops since the key frame, as stored in a commit.

    Adds are ordered by (version, partition), drops by (chunk, id). With a `spill` both lists are
    empty and the object holds them.
    """

    adds: tuple[Segment, ...] = ()
    drops: tuple[Drop, ...] = ()
    spill: Spill | None = None


class Commit(Struct, frozen=True, forbid_unknown_fields=True):
    """The one immutable JSON object of a version.

    `state` holds what differs from the small state of the key frame: for each field of `Meta` its
    new value, for maps by name with null for a removed name.
    """

    header: Header
    state: dict[str, Any]
    transactions: tuple[Transaction, ...]
    delta: DeltaRecord


class Leaf(Struct, frozen=True, forbid_unknown_fields=True):
    """A root's entry for one leaf: a run of segment entries in (chunk start, chunk end, id) order.

    Attributes:
        sha256: of the leaf's bytes; names the object `_frames/<sha256>.parquet`.
        size: of the object in bytes.
        first: `<chunk>/<id>` of its first entry.
        end: the greatest chunk end in the leaf, ms UTC.
        segments: number of entries.
        rows: sum of their rows.
        bytes: sum of their sizes.
        hash_sum: sum of their hashes mod 2^256, hexadecimal.
        stats: bounds over all entries for the first few columns; absent means unknown.
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


class KeyFrame(Struct, frozen=True, forbid_unknown_fields=True):
    """The root of a key frame: the full state at one version.

    `commit` is the sha256 of that version's commit. A small table's entries stand in `segments`, in
    leaf order; else `leaves` names them.
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
