"""The actions of transactions: everything that can change the state of a table, or guard a change.

Words layer: frozen structs and nothing else, tagged by their first field `action` (FORMAT.md
"Actions"). What they mean is decided by the fold.
"""

from __future__ import annotations

from msgspec import Struct

from eventlog.model.entries import (
    Analysed,
    ChunkState,
    ClaimKind,
    ColumnStats,
    Count,
    Granularity,
    Holder,
    Int,
    Layout,
    Schema,
    Sweep,
    Tail,
)


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
    tail: Tail | None = None


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


class Horizon(Struct, frozen=True, tag="horizon", tag_field="action", forbid_unknown_fields=True):
    """Action: versions below `version` are given up; their segments may go. It only grows."""

    version: Count


class Swept(Struct, frozen=True, tag="swept", tag_field="action", forbid_unknown_fields=True):
    """Action: note how far a vacuum came."""

    sweep: Sweep


class SetPin(Struct, frozen=True, tag="pin", tag_field="action", forbid_unknown_fields=True):
    """Action: hold a version against vacuum under a name."""

    name: str
    version: Count
    owner: str


class Unpin(Struct, frozen=True, tag="unpin", tag_field="action", forbid_unknown_fields=True):
    """Action: give up one's own pin. The owner and the token must be the pin's."""

    name: str
    owner: str
    token: Count


class TakeClaim(Struct, frozen=True, tag="claim", tag_field="action", forbid_unknown_fields=True):
    """Action: take a lease on a time range, or on segments in it.

    Attributes:
        id: 32 hexadecimal digits, fresh; names the claim.
        start: begin of the range, ms UTC.
        end: end of the range (exclusive).
        segments: ids in order; empty claims the whole range.
        kind: exclusive, or shared.
        priority: a greater one revokes what stands in its way.
        group: the work it is for; a second request of the same group keeps the claim.
        owner: who, for people.
    """

    id: str
    start: Int
    end: Int
    segments: tuple[str, ...]
    kind: ClaimKind
    priority: Int
    group: str
    owner: str


class Renew(Struct, frozen=True, tag="renew", tag_field="action", forbid_unknown_fields=True):
    """Action: show that the holder of a claim is alive."""

    id: str
    token: Count


class Release(Struct, frozen=True, tag="release", tag_field="action", forbid_unknown_fields=True):
    """Action: give up one's own claim."""

    id: str
    token: Count


class Break(Struct, frozen=True, tag="break", tag_field="action", forbid_unknown_fields=True):
    """Action: remove somebody else's pin, claim or replica, as it was seen.

    Attributes:
        kind: what it is.
        name: the pin's or replica's name, the claim's id.
        token: the version at which it was accepted: another of the same name is left alone.
        renewed: of a claim: its last renewal seen; one renewed since is left alone. Else 0.
    """

    kind: Holder
    name: str
    token: Count
    renewed: Count = 0


class Attach(Struct, frozen=True, tag="attach", tag_field="action", forbid_unknown_fields=True):
    """Action: let a replica follow; vacuum waits for it. Its token is the commit's version."""

    name: str
    acked: Count
    owner: str


class Ack(Struct, frozen=True, tag="ack", tag_field="action", forbid_unknown_fields=True):
    """Action: the replica of this token has everything up to `version`."""

    name: str
    token: Count
    version: Count


class Detach(Struct, frozen=True, tag="detach", tag_field="action", forbid_unknown_fields=True):
    """Action: the replica of this token follows no more."""

    name: str
    token: Count


class Restore(Struct, frozen=True, tag="restore", tag_field="action", forbid_unknown_fields=True):
    """Precondition: `version` is not below the horizon. Adds are of segments that were live then.

    They keep their epoch, which may lie below the fence: no vacuum takes what is live at a version
    that is not given up.
    """

    version: Count


class SameSegments(
    Struct, frozen=True, tag="same_segments", tag_field="action", forbid_unknown_fields=True
):
    """Precondition: the live segments are those whose entry hashes add up to `hash_sum`."""

    hash_sum: str


class Replace(Struct, frozen=True, tag="replace", tag_field="action", forbid_unknown_fields=True):
    """Precondition: the adds hold the rows of the drops, less those that are deleted.

    The adds of the transaction are one atomic group and overshadow its drops
    (`eventlog.recovery.timeline`).

    Attributes:
        version: the version that the replacement was planned at; what came later is not in it.
        deletes: rows of the drops that the adds leave out.
    """

    version: Count
    deletes: Count


class SetGranularity(
    Struct, frozen=True, tag="set_granularity", tag_field="action", forbid_unknown_fields=True
):
    """Action: cut new rows into other time chunks. `old` must still be the table's granularity."""

    old: Granularity
    new: Granularity


class SetClock(
    Struct, frozen=True, tag="set_clock", tag_field="action", forbid_unknown_fields=True
):
    """Action: this commit comes after `version`, whose time `old` was wrong; it is `new` now."""

    version: Count
    old: Int
    new: Int


class ChunkChange(Struct, frozen=True, forbid_unknown_fields=True):
    """One chunk's new state; None: nothing is noted of it any more."""

    chunk: str
    state: ChunkState | None


class Assess(Struct, frozen=True, tag="assess", tag_field="action", forbid_unknown_fields=True):
    """Action: note what an analysis for compaction found. `old` must still be the last one's."""

    old: Analysed | None
    analysed: Analysed | None
    chunks: tuple[ChunkChange, ...]


Action = (
    Add
    | Drop
    | SetLayout
    | SetSchema
    | SetProperties
    | Unchanged
    | Fence
    | Horizon
    | Swept
    | SetPin
    | Unpin
    | TakeClaim
    | Renew
    | Release
    | Break
    | Attach
    | Ack
    | Detach
    | Restore
    | SameSegments
    | Replace
    | SetGranularity
    | Assess
    | SetClock
)
