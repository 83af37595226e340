"""The parts of the log's values: columns, checks and schemas, layout, statistics, entries.

Frozen structs only. Field order is the canonical JSON order (FORMAT.md "Canonical JSON"); times
are int milliseconds UTC; intervals are half-open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec import Meta as Bounds

Granularity = Literal["hour", "day", "month", "year", "all"]
ClaimKind = Literal["exclusive", "shared"]
Holder = Literal["pin", "claim", "replica"]
Standing = Literal["stable", "unstable", "deferred"]
SliceKind = Literal["base", "late", "log"]
GRANULARITIES: tuple[Granularity, ...] = ("hour", "day", "month", "year", "all")

# Every integer of the format fits a signed 64-bit integer (FORMAT.md "Canonical JSON").
Int = Annotated[int, Bounds(ge=-(2**63) + 1, le=2**63 - 1)]
Count = Annotated[int, Bounds(ge=0, le=2**63 - 1)]
Splits = Annotated[int, Bounds(ge=1, le=12)]  # of 1 bucket to 4,096
Base64 = bytes  # in JSON; a name of its own beside fields that are called `bytes`

# A primitive type by name, or {"list": …}, {"struct": …}, {"map": …} with fields that have ids; see
# `eventlog.model.columns.column_types`.
ColumnType = str | dict[str, Any]


# A value of a column, encoded as in `eventlog.model.columns.defaults`.
Default = Int | str | bool


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """One column of the table. Its id is never reused in the same table.

    Attributes:
        id: its id.
        name: its name.
        type: its type.
        nullable: whether a row may lack a value.
        initial: the value of rows in segments that lack the column; absent for null.
        write: the value that writers store for rows that lack the column; absent for null.
    """

    id: Count
    name: str
    type: ColumnType
    nullable: bool = True
    initial: Default | UnsetType = UNSET
    write: Default | UnsetType = UNSET


class CheckColumn(Struct, frozen=True, forbid_unknown_fields=True):
    """A column that a check reads, and the name that it has in the check's expression."""

    id: Count
    name: str


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """A named condition that every row of a table meets: it is false for none.

    Attributes:
        name: its name.
        expression: in the table's language of expressions (docs/expressions.md).
        columns: the columns that it reads, by id: columns may have other names by now.
        schema: the id of the schema that first had it.
    """

    name: str
    expression: str
    columns: tuple[CheckColumn, ...]
    schema: Count


class Schema(Struct, frozen=True, forbid_unknown_fields=True):
    """The columns of a table. `id` increases by one with every change.

    Attributes:
        id: its number.
        columns: the columns, in their order.
        retired: the ids of columns and fields that were dropped, ascending; absent while there are
            none.
        by_id: whether only their field ids show which columns of older segments are which, and
            what they stand for: names, types or what is absent do not. Absent while they do.
        checks: the checks, by name; absent while there are none.
    """

    id: Count
    columns: tuple[Column, ...]
    retired: tuple[Count, ...] | UnsetType = UNSET
    by_id: Literal[True] | UnsetType = UNSET
    checks: tuple[Check, ...] | UnsetType = UNSET


class MergeFunction(Struct, frozen=True, forbid_unknown_fields=True):
    """The function by which the values of a column become one (FORMAT.md "Merge rule")."""

    column: Count
    function: str


class MergeGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """Columns whose values are ordered by a column of their own, by id."""

    order: Count
    columns: tuple[Count, ...]


class MergeSetting(Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of the rows of a key; see `eventlog.keyed.rule`.

    Attributes:
        rule: its name.
        functions: with `aggregate`, those of columns that have another one than `last`.
        groups: with `partial`, the groups of columns.
    """

    rule: str
    functions: tuple[MergeFunction, ...] | UnsetType = UNSET
    groups: tuple[MergeGroup, ...] | UnsetType = UNSET


class Keyed(Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a layout that makes a table keyed: rows are found by key, in buckets.

    Attributes:
        key: ids of the key columns.
        buckets: number of buckets that keys are hashed to (`eventlog.format.buckets`).
        splits: how many times that number was doubled; absent if never.
        merge: the merge rule; absent for `last`.
    """

    key: tuple[Count, ...]
    buckets: Count
    splits: Splits | UnsetType = UNSET
    merge: MergeSetting | UnsetType = UNSET


class Layout(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How rows are arranged in segments, with columns by id.

    See `eventlog.model.columns.named_layout` for the same with the names that columns have.

    Attributes:
        time_column: the event-time column; absent in a table without one.
        granularity: the size of time chunks; `all` in a table without a time column.
        order_by: the columns that rows of a segment are sorted by; in a keyed table at most one,
            which orders the rows of a key.
        keyed: absent in a table without a key.
    """

    time_column: Count | UnsetType = UNSET
    granularity: Granularity
    order_by: tuple[Count, ...] = ()
    keyed: Keyed | UnsetType = UNSET


# A table has millions of entries and statistics, and none can be part of a reference cycle:
# `gc=False` keeps the garbage collector from visiting them.
class ColumnStats(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Statistics of one column of one segment; bounds of None mean unknown.

    Bounds are encoded as in `eventlog.model.stats`: order-preserving 64-bit integers, or text.
    """

    column: Count
    min: Int | str | None
    max: Int | str | None
    nulls: Count


class Tail(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The tail of a large segment's object, with which the rest of the object can be checked.

    See `eventlog.format.parts`.
    """

    size: Count
    sha256: str


class Slice(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The place of a segment in the slices of a keyed table (FORMAT.md "Keyed tables").

    A slice is one bucket of one time chunk.

    Attributes:
        kind: `log`: rows as they were written, with deletes. `base`: the result of merging all that
            came before, one row a key. `late`: rows that a base does not show and later rows may
            depend on.
        first: the first bucket that it has rows of.
        last: the last one.
        low: the version of the first commit whose rows it has; in an `add` null, for its own.
        high: the version of the last one; null as `low`.
        level: how many merges its rows went through.
        ordinal: orders segments of one span; null in an `add`, for its ordinal among the segments
            that its commit adds. A restore keeps it.
        splits: how many times the table's buckets had been doubled when `first` and `last` were
            numbered; absent if never.
    """

    kind: SliceKind
    first: Count
    last: Count
    low: Count | None
    high: Count | None
    level: Count
    ordinal: Count | None = None
    splits: Splits | UnsetType = UNSET


class StoredBitmap(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Where the bitmap of a deletion vector is that does not stand in the entry.

    Attributes:
        epoch: the head version that the writer read before it staged the object.
        object: id of the object that has the bitmap, 32 hexadecimal digits; it may have those of
            many segments.
        offset: where the bitmap's bytes begin in the object.
        size: their number.
        hash: sha256 of these bytes, hexadecimal.
    """

    epoch: Count
    object: str
    offset: Count
    size: Count
    hash: str


class Vector(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The deletion vector of a segment: which of its rows are deleted (FORMAT.md section 2.11).

    Either its bitmap is here, or where it is stored.

    Attributes:
        rows: the number of deleted rows; at least 1, and less than the segment has.
        bitmap: the positions of the rows, as a 64-bit Roaring bitmap; in JSON as base64.
        stored: where the bitmap is.
    """

    rows: Count
    bitmap: bytes | UnsetType = UNSET
    stored: StoredBitmap | UnsetType = UNSET


class Segment(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One immutable Parquet object of rows of exactly one time chunk.

    Attributes:
        id: 128 random bits as 32 hexadecimal digits; unique in the table.
        chunk: name of the time chunk, such as `2013-01-07` (`eventlog.model.chunks`).
        epoch: the head version that the writer read before it staged the object.
        version: the commit that added the segment.
        partition: ordinal among the segments that this commit added.
        rows: number of rows in the object, deleted ones included.
        bytes: size of the object.
        checksum: sha256 of the object's bytes, hexadecimal.
        schema: id of the schema that the segment was written with; 0: of one that this log does not
            have (MERGING.md R19.7).
        stats: statistics of the leading columns, ordered by column id.
        tail: the tail of the object; None if it is small enough to be checked in one piece.
        slice: its place in the slices of a keyed table; absent in other tables.
        vector: which of its rows are deleted; absent if none are.
        inline: the version of the commit in which the bytes of the object stand; absent if the
            object is at its key.
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
    tail: Tail | None = None
    slice: Slice | UnsetType = UNSET
    vector: Vector | UnsetType = UNSET
    inline: Count | UnsetType = UNSET

    @property
    def live_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.rows - deleted_rows(self.vector)


def deleted_rows(vector: Vector | UnsetType) -> int:
    """Return the number of rows that a vector deletes; 0 without one."""
    return 0 if isinstance(vector, UnsetType) else vector.rows


def inline_among(segments: Iterable[Segment]) -> int:
    """Return how many of the segments have their bytes in commits."""
    return sum(not isinstance(segment.inline, UnsetType) for segment in segments)


def stored_bitmap(vector: Vector | UnsetType) -> StoredBitmap | None:
    """Return where the bitmap of a vector is; None if it stands in the entry, or without one."""
    stored = UNSET if isinstance(vector, UnsetType) else vector.stored
    return None if isinstance(stored, UnsetType) else stored


class Spill(Struct, frozen=True, forbid_unknown_fields=True):
    """Names a Parquet object under `_frames/` with actions or entries that do not fit the commit.

    Attributes:
        sha256: of the object's bytes.
        size: of the object in bytes.
        adds: number of adds.
        drops: number of drops.
        vectors: number of `delete_rows`; absent if there are none.
    """

    sha256: str
    size: Count
    adds: Count
    drops: Count
    vectors: Count | UnsetType = UNSET


class Sweep(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the last vacuum progressed; the next one starts there.

    Attributes:
        fence: objects of epochs below it have been listed and processed.
        horizon: segments dropped at or below it have been processed.
        version: the commits up to this one have been read for drops.
        pending: names the record of segments that were dropped but must be kept for now
            (`eventlog.recovery.garbage`); None if there are none.
        place: names the place of the root that was vacuumed: a copy has the record, and its own
            objects.
    """

    fence: Count
    horizon: Count
    version: Count
    pending: Spill | None = None
    place: str | UnsetType = UNSET


class Correction(Struct, frozen=True, forbid_unknown_fields=True):
    """A correction of the times of the versions up to `version`, whose own time was `old`.

    `new` is the time of the next commit. If it is less than `old`, these versions count as
    committed at `new` at the latest; if it is greater, at `new` at the earliest.
    """

    version: Count
    old: Int
    new: Int


class ChunkState(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of compaction's analysis of one time chunk; stale once its segments are others.

    Attributes:
        state: stable; unstable (it needs compaction); deferred (its task was shed under load).
        version: the greatest version of a live segment of the chunk when it was analysed.
        segments: the number of live segments it had then.
        failures: the number of consecutive failures of its task.
        until: ms UTC; the task is not retried before.
    """

    state: Standing
    version: Count
    segments: Count
    failures: Count = 0
    until: Int = 0


class Analysed(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the last analysis for compaction progressed.

    Every chunk without a `ChunkState` that has not changed since `version` is empty, or stable
    under the policy whose digest is `policy`.
    """

    version: Count
    policy: str
