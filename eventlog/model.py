"""The values of the log: what commits, key frames and segment entries consist of.

Words layer: frozen structs and nothing else. Field order is the canonical JSON order (FORMAT.md
"Canonical JSON"); times are int milliseconds UTC; intervals are half-open.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta as Bounds
from msgspec import Struct

FORMAT_NAME = "eventlog"
FORMAT_VERSION = 1
KNOWN_FEATURES: frozenset[str] = frozenset()

Granularity = Literal["hour", "day", "month", "year", "all"]
GRANULARITIES: tuple[Granularity, ...] = ("hour", "day", "month", "year", "all")

# Every integer of the format fits a signed 64-bit integer (FORMAT.md "Canonical JSON").
Int = Annotated[int, Bounds(ge=-(2**63) + 1, le=2**63 - 1)]
Count = Annotated[int, Bounds(ge=0, le=2**63 - 1)]

# A primitive type by name, or {"list": …}, {"struct": …}, {"map": …}; see `eventlog.schema`.
ColumnType = str | dict[str, Any]


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """One column of the table. Its id is never given to another column of the same table."""

    id: Count
    name: str
    type: ColumnType
    nullable: bool = True


class Schema(Struct, frozen=True, forbid_unknown_fields=True):
    """The columns at one point of the table's life. `id` grows by one with every change."""

    id: Count
    last_column_id: Count
    columns: tuple[Column, ...]


class Layout(Struct, frozen=True, forbid_unknown_fields=True):
    """How rows are laid into segments: the event-time column, the chunk size, the sort order."""

    time_column: str
    granularity: Granularity
    order_by: tuple[str, ...] = ()


class ColumnStats(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Statistics of one column of one segment; `None` bounds mean unknown.

    Bounds are in the encoded domain of `eventlog.stats`: order-preserving 64-bit integers, or text.
    """

    column: Count
    min: Int | str | None
    max: Int | str | None
    nulls: Count


class Segment(Struct, frozen=True, forbid_unknown_fields=True):
    """One immutable Parquet object of rows of exactly one time chunk.

    Attributes:
        id: 128 random bits as 32 hexadecimal digits; unique in the table.
        chunk: name of the time chunk, such as `2013-01-07` (`eventlog.chunks`).
        epoch: the head that the writer read before it staged the object.
        version: the commit that added the segment.
        partition: ordinal among the segments which that commit added.
        rows: number of rows.
        bytes: size of the object.
        checksum: sha256 of the object's bytes, hexadecimal.
        schema: id of the schema that the segment was written with.
        stats: statistics of the leading columns, ordered by column id.
    """

    id: str
    chunk: str
    epoch: Count
    version: Count
    partition: Count
    rows: Count
    bytes: Count
    checksum: str
    schema: Count
    stats: tuple[ColumnStats, ...] = ()


class Add(Struct, frozen=True, tag="add", tag_field="action", forbid_unknown_fields=True):
    """Action: make a staged segment live. Version and partition are those of the commit."""

    id: str
    chunk: str
    epoch: Count
    rows: Count
    bytes: Count
    checksum: str
    schema: Count
    stats: tuple[ColumnStats, ...] = ()


class Drop(Struct, frozen=True, tag="drop", tag_field="action", forbid_unknown_fields=True):
    """Action: make a live segment not live. `hash` is the entry's hash (`codec.entry_hash`)."""

    id: str
    chunk: str
    hash: str


class SetLayout(
    Struct, frozen=True, tag="set_layout", tag_field="action", forbid_unknown_fields=True
):
    """Action: state the table's layout. Valid in version 0 only."""

    layout: Layout


class SetSchema(
    Struct, frozen=True, tag="set_schema", tag_field="action", forbid_unknown_fields=True
):
    """Action: replace the schema with its successor: the id must be the current id plus one."""

    schema: Schema


class PropertyChange(Struct, frozen=True, forbid_unknown_fields=True):
    """One property's change. `old` must still be its value; None means that it is unset."""

    name: str
    old: str | None
    new: str | None


class SetProperties(
    Struct, frozen=True, tag="set_properties", tag_field="action", forbid_unknown_fields=True
):
    """Action: change table properties, each compared with what the writer saw."""

    changes: tuple[PropertyChange, ...]


class Unchanged(
    Struct, frozen=True, tag="unchanged", tag_field="action", forbid_unknown_fields=True
):
    """Precondition: nothing was added to [start, end) ms after the read version."""

    start: Int
    end: Int


class Fence(Struct, frozen=True, tag="fence", tag_field="action", forbid_unknown_fields=True):
    """Action: staged segments of an epoch below `epoch` are dead from here on. It only grows."""

    epoch: Count


Action = Add | Drop | SetLayout | SetSchema | SetProperties | Unchanged | Fence


class Spill(Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet object under `_frames/` of adds and drops too many for the commit itself."""

    sha256: str
    size: Count
    adds: Count
    drops: Count


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
            at which it may take effect. Only appends can be published.
        app: idempotence key, if the writer gave one.
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


class Meta(Struct, frozen=True, forbid_unknown_fields=True):
    """The small state: everything that is not a segment."""

    layout: Layout | None = None
    schema: Schema | None = None
    properties: dict[str, str] = {}
    apps: dict[str, AppMark] = {}
    published: dict[str, Published] = {}
    fence: Count = 0


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
