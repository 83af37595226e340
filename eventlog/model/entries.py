"""The parts of the log's values: columns and schemas, layout, statistics, segment entries.

Words layer: frozen structs and nothing else. Field order is the canonical JSON order (FORMAT.md
"Canonical JSON"); times are int milliseconds UTC; intervals are half-open.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta as Bounds
from msgspec import Struct

Granularity = Literal["hour", "day", "month", "year", "all"]
ClaimKind = Literal["exclusive", "shared"]
Holder = Literal["pin", "claim", "replica"]
Standing = Literal["stable", "unstable", "deferred"]
GRANULARITIES: tuple[Granularity, ...] = ("hour", "day", "month", "year", "all")

# Every integer of the format fits a signed 64-bit integer (FORMAT.md "Canonical JSON").
Int = Annotated[int, Bounds(ge=-(2**63) + 1, le=2**63 - 1)]
Count = Annotated[int, Bounds(ge=0, le=2**63 - 1)]

# A primitive type by name, or {"list": …}, {"struct": …}, {"map": …}; see `eventlog.model.schema`.
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


# A table has millions of entries and statistics, none of which can be part of a cycle: `gc=False`
# spares the collector the look at them.
class ColumnStats(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Statistics of one column of one segment; `None` bounds mean unknown.

    Bounds are in the encoded domain of `eventlog.model.stats`: order-preserving 64-bit integers, or
    text.
    """

    column: Count
    min: Int | str | None
    max: Int | str | None
    nulls: Count


class Tail(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The last bytes of a large segment's object, from which all others can be checked.

    See `eventlog.format.parts`.
    """

    size: Count
    sha256: str


class Segment(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One immutable Parquet object of rows of exactly one time chunk.

    Attributes:
        id: 128 random bits as 32 hexadecimal digits; unique in the table.
        chunk: name of the time chunk, such as `2013-01-07` (`eventlog.model.chunks`).
        epoch: the head that the writer read before it staged the object.
        version: the commit that added the segment.
        partition: ordinal among the segments which that commit added.
        rows: number of rows.
        bytes: size of the object.
        checksum: sha256 of the object's bytes, hexadecimal.
        schema: id of the schema that the segment was written with.
        stats: statistics of the leading columns, ordered by column id.
        tail: of the object; None where it is so small that readers check all of it at once.
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


class Spill(Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet object under `_frames/` of adds and drops too many for the commit itself."""

    sha256: str
    size: Count
    adds: Count
    drops: Count


class Sweep(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the last vacuum came; the next one starts there.

    Attributes:
        fence: objects of epochs below it have been listed and judged.
        horizon: what was dropped at or below it has been judged.
        version: the commits up to this one have been read for drops.
        pending: segments that were dropped but must stay for now (`eventlog.recovery.sweep`);
            None: none.
    """

    fence: Count
    horizon: Count
    version: Count
    pending: Spill | None = None


class Correction(Struct, frozen=True, forbid_unknown_fields=True):
    """What became known of the times of versions up to `version`, the last of which was `old`.

    Where `new` is less, they were stamped too late, and are of `new` at the latest; where it is
    more, too early, and are of `new` at the earliest. `new` is the time of the next commit.
    """

    version: Count
    old: Int
    new: Int


class ChunkState(Struct, frozen=True, forbid_unknown_fields=True):
    """What compaction found of one time chunk; stale as soon as the chunk has changed.

    Attributes:
        state: stable; unstable: it needs compaction; deferred: its task was shed under load.
        version: the greatest version of a live segment of the chunk when it was analysed.
        segments: how many live segments it had then.
        failures: how often in a row its task failed.
        until: ms UTC; it is not tried again before.
    """

    state: Standing
    version: Count
    segments: Count
    failures: Count = 0
    until: Int = 0


class Analysed(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the last analysis for compaction came.

    Every chunk that has no `ChunkState` and has not changed since `version` is empty or stable
    under the policy whose digest is `policy`.
    """

    version: Count
    policy: str
