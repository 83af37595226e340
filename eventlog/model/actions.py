"""The actions of transactions: everything that can change the state of a table, or guard a change.

Frozen structs only, tagged by their first field `action` (FORMAT.md "Actions"). The fold defines
what they do.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from eventlog.model.entries import (
    Analysed,
    Base64,
    ChunkState,
    ClaimKind,
    ColumnStats,
    Count,
    Granularity,
    Holder,
    Int,
    Layout,
    Schema,
    Slice,
    Splits,
    Sweep,
    Tail,
    Vector,
    deleted_rows,
)


class Add(Struct, frozen=True, tag="add", tag_field="action", forbid_unknown_fields=True):
    """Action: make a staged segment live. The commit determines its version and partition.

    Attributes:
        schema: id of the schema that the segment was written with, as in its entry.
        tested: id of a later schema whose checks its rows meet (FORMAT.md R7.13); absent if they
            were tested against none.
        parquet: the bytes of the segment's object, in JSON as base64; absent if the object is
            stored elsewhere.
        inline: the version of an earlier commit in which these bytes stand; absent if there is
            none.
    """

    id: str
    chunk: str
    epoch: Count
    rows: Count
    bytes: Count
    checksum: str
    schema: Count
    stats: tuple[ColumnStats, ...] = ()
    tail: Tail | None = None
    slice: Slice | UnsetType = UNSET
    vector: Vector | UnsetType = UNSET
    tested: Count | UnsetType = UNSET
    parquet: Base64 | UnsetType = UNSET
    inline: Count | UnsetType = UNSET

    @property
    def live_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.rows - deleted_rows(self.vector)

    @property
    def checked(self) -> int:
        """Id of the schema whose checks its rows meet."""
        return self.schema if isinstance(self.tested, UnsetType) else self.tested


class DeleteRows(
    Struct, frozen=True, tag="delete_rows", tag_field="action", forbid_unknown_fields=True
):
    """Action: delete rows of a live segment, whose entry gets a vector in the place of its own.

    Attributes:
        id: the id of the segment.
        chunk: its time chunk.
        hash: the hash of its entry (`codec.entry_hash`), with the vector that it has so far.
        vector: deletes all rows that the vector so far deletes, and at least one more.
    """

    id: str
    chunk: str
    hash: str
    vector: Vector


class Drop(Struct, frozen=True, tag="drop", tag_field="action", forbid_unknown_fields=True):
    """Action: remove a live segment. `hash` is the hash of its entry (`codec.entry_hash`)."""

    id: str
    chunk: str
    hash: str


class SetLayout(
    Struct, frozen=True, tag="set_layout", tag_field="action", forbid_unknown_fields=True
):
    """Action: set the table's layout. Valid in version 0 only."""

    layout: Layout


class SetSchema(
    Struct, frozen=True, tag="set_schema", tag_field="action", forbid_unknown_fields=True
):
    """Action: replace the schema. Its id must be the current schema's id plus one."""

    schema: Schema


class PropertyChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The change of one property. `old` must be its current value; None means not set."""

    name: str
    old: str | None
    new: str | None


class SetProperties(
    Struct, frozen=True, tag="set_properties", tag_field="action", forbid_unknown_fields=True
):
    """Action: change table properties, each compared with the value that the writer read."""

    changes: tuple[PropertyChange, ...]


class Unchanged(
    Struct, frozen=True, tag="unchanged", tag_field="action", forbid_unknown_fields=True
):
    """Precondition: no segment was added to [start, end) (ms UTC) after the read version."""

    start: Int
    end: Int


class Fence(Struct, frozen=True, tag="fence", tag_field="action", forbid_unknown_fields=True):
    """Action: raise the fence. Staged segments of epochs below `epoch` can never be committed."""

    epoch: Count


class Horizon(Struct, frozen=True, tag="horizon", tag_field="action", forbid_unknown_fields=True):
    """Action: raise the horizon. Versions below `version` expire; their segments may be deleted."""

    version: Count


class SetCut(Struct, frozen=True, tag="cut", tag_field="action", forbid_unknown_fields=True):
    """Action: cut the log. Versions below the cut can be opened no more.

    Attributes:
        version: of the cut.
        whole: the version below which commits become stubs, and key frames go: the lowest key frame
            that versions from the cut up to `seen` start from.
        seen: the newest version whose header was looked at for that.
    """

    version: Count
    whole: Count
    seen: Count


class Swept(Struct, frozen=True, tag="swept", tag_field="action", forbid_unknown_fields=True):
    """Action: record how far a vacuum has progressed."""

    sweep: Sweep


class SetPin(Struct, frozen=True, tag="pin", tag_field="action", forbid_unknown_fields=True):
    """Action: protect a version from vacuum, under a name."""

    name: str
    version: Count
    owner: str


class Unpin(Struct, frozen=True, tag="unpin", tag_field="action", forbid_unknown_fields=True):
    """Action: remove a pin. The owner and the token must be the pin's."""

    name: str
    owner: str
    token: Count


class TakeClaim(Struct, frozen=True, tag="claim", tag_field="action", forbid_unknown_fields=True):
    """Action: take a lease on a time range, or on segments in it.

    Attributes:
        id: fresh id of the claim, 32 hexadecimal digits.
        start: start of the range, ms UTC.
        end: end of the range (exclusive).
        segments: ids in ascending order; empty claims the whole range.
        kind: exclusive, or shared.
        priority: conflicting claims of lower priority are revoked.
        group: the unit of work that it is for; a second request of the group keeps its claim.
        owner: the owner, for display.
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
    """Action: renew a claim, which shows that its holder is alive."""

    id: str
    token: Count


class Release(Struct, frozen=True, tag="release", tag_field="action", forbid_unknown_fields=True):
    """Action: release a claim."""

    id: str
    token: Count


class Break(Struct, frozen=True, tag="break", tag_field="action", forbid_unknown_fields=True):
    """Action: remove a pin, claim or replica of another owner, if it has not changed.

    Attributes:
        kind: pin, claim or replica.
        name: the name of the pin or replica, or the id of the claim.
        token: the version at which it was accepted; one set later under the same name is kept.
        renewed: for a claim, its last known renewal; if it was renewed since, it is kept. Else 0.
    """

    kind: Holder
    name: str
    token: Count
    renewed: Count = 0


class Attach(Struct, frozen=True, tag="attach", tag_field="action", forbid_unknown_fields=True):
    """Action: register a replica, for which vacuum waits. The commit's version is its token."""

    name: str
    acked: Count
    owner: str


class Ack(Struct, frozen=True, tag="ack", tag_field="action", forbid_unknown_fields=True):
    """Action: record that the replica of this token has received everything up to `version`."""

    name: str
    token: Count
    version: Count


class Detach(Struct, frozen=True, tag="detach", tag_field="action", forbid_unknown_fields=True):
    """Action: remove the replica of this token."""

    name: str
    token: Count


class AppReset(Struct, frozen=True, forbid_unknown_fields=True):
    """The change of the sequence of an app whose units of work a restore undoes or brings back.

    Attributes:
        old: the sequence before; None: it had none.
        new: the sequence after. None: the app has none, so that all its units can be loaded again.
    """

    old: Count | None
    new: Count | None


class Restore(Struct, frozen=True, tag="restore", tag_field="action", forbid_unknown_fields=True):
    """Precondition: `version` is not below the horizon. Action: note the units of work concerned.

    The adds of the transaction are segments that were live at `version`. They keep their epoch,
    which may be below the fence: a vacuum does not delete segments that were live at a version
    above the horizon.

    With an `origin` the transaction is a union of two logs: they were live here, or at that version
    of the other log, up to which the union merges it.

    Attributes:
        version: the version that is restored.
        apps: by app id, the changes of the sequences of apps that have done units of work since;
            absent if there are none.
        origin: the other log; absent for this one.
    """

    version: Count
    apps: dict[str, AppReset] | UnsetType = UNSET
    origin: str | UnsetType = UNSET


class SameSegments(
    Struct, frozen=True, tag="same_segments", tag_field="action", forbid_unknown_fields=True
):
    """Precondition: the entry hashes of the live segments add up to `hash_sum`."""

    hash_sum: str


class Replace(Struct, frozen=True, tag="replace", tag_field="action", forbid_unknown_fields=True):
    """Precondition: the adds contain the rows of the drops, less the deleted ones.

    The fold checks the number of rows. The adds of the transaction are one atomic group and
    overshadow its drops (`eventlog.recovery.overshadowing`).

    Attributes:
        version: the version that the replacement was planned at; it contains no later rows.
        deletes: number of rows of the drops that the adds leave out.
    """

    version: Count
    deletes: Count


class Update(Struct, frozen=True, tag="update", tag_field="action", forbid_unknown_fields=True):
    """Precondition: adds of the transaction have new forms of rows that it deletes.

    The fold checks the numbers of rows.

    Attributes:
        rows: the number of updated rows.
        paired: all rows that the transaction deletes are updated, it adds no others, and the new
            rows stand in the order of the old ones: that of a scan.
    """

    rows: Count
    paired: bool


class Merge(Struct, frozen=True, tag="merge", tag_field="action", forbid_unknown_fields=True):
    """Precondition: adds of the transaction are the merged rows of a run of slices.

    The slices are the buckets from `first` to `last` of a chunk, the run is everything in them
    that lies between the versions `low` and `high`. The adds of this chunk, these buckets and these
    versions take its place.

    Attributes:
        version: the version that the merge was planned at.
        chunk: the time chunk.
        first: the first bucket.
        last: the last bucket.
        low: the first version of the run.
        high: the last version of the run.
        inputs: ids of the segments that were merged, in ascending order.
        rows: number of their rows in these buckets.
        superseded: number of those that are not in an added base or log.
        splits: how many times the table's buckets had been doubled when `first` and `last` were
            numbered; absent if never.
    """

    version: Count
    chunk: str
    first: Count
    last: Count
    low: Count
    high: Count
    inputs: tuple[str, ...]
    rows: Count
    superseded: Count
    splits: Splits | UnsetType = UNSET


class SetBuckets(
    Struct, frozen=True, tag="set_buckets", tag_field="action", forbid_unknown_fields=True
):
    """Action: double the number of buckets of a keyed table. `old` must be the current number."""

    old: Count
    new: Count


class SetGranularity(
    Struct, frozen=True, tag="set_granularity", tag_field="action", forbid_unknown_fields=True
):
    """Action: set the size of time chunks for new rows. `old` must be the current granularity."""

    old: Granularity
    new: Granularity


class SetClock(
    Struct, frozen=True, tag="set_clock", tag_field="action", forbid_unknown_fields=True
):
    """Action: correct the table's time. `version`, the one before, had the time `old`.

    `new` becomes the time of this commit.
    """

    version: Count
    old: Int
    new: Int


class ChunkChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The new state of one chunk; None removes it."""

    chunk: str
    state: ChunkState | None


class Assess(Struct, frozen=True, tag="assess", tag_field="action", forbid_unknown_fields=True):
    """Action: record the result of an analysis for compaction. `old` must be the previous one's."""

    old: Analysed | None
    analysed: Analysed | None
    chunks: tuple[ChunkChange, ...]


class Advance(Struct, frozen=True, tag="advance", tag_field="action", forbid_unknown_fields=True):
    """Action: the transaction does the units of work of an app that follow `old`, up to `new`.

    Void unless the last sequence of the app is `old`: then another writer has done some of them.
    A transaction may advance several apps.

    Attributes:
        app: the app id.
        old: the last sequence of the app before; None: it had none.
        new: the last sequence of the app from here on.
    """

    app: str
    old: Count | None
    new: Count


class AppRise(Struct, frozen=True, forbid_unknown_fields=True):
    """The change of the sequence of an app whose transactions are carried from another log.

    Attributes:
        old: the sequence before; None: it had none.
        done: the sequences that are carried, as the first and the last of each run, in order.
    """

    old: Count | None
    done: tuple[tuple[Count, Count], ...]

    @property
    def first(self) -> int:
        """The least sequence that is carried."""
        return self.done[0][0]

    @property
    def new(self) -> int:
        """The greatest sequence that is carried; that of the app from here on if `old` is less."""
        return self.done[-1][1]


class SetOrigin(Struct, frozen=True, tag="origin", tag_field="action", forbid_unknown_fields=True):
    """Action: record up to which version this log has the transactions of another log of the table.

    Void unless `old` is the version that was recorded before: so each commit of the other log is
    carried once, by any writer.

    Attributes:
        id: names the other log: the hash of its first commit that this log does not share.
        old: the last of its versions that this log had before; None if it had none.
        version: the last of its versions that this log has now.
        commit: the hash of that version's commit.
        apps: the changes of the sequences of apps whose transactions are carried, by app id.
        checked: the version of this log up to which it was searched for transactions of these apps
            that are done already; None if each of `apps` starts above `old`.
        commits: versions and hashes of the other commits, of whatever logs, whose transactions are
            carried with this one; absent if there are none.
    """

    id: str
    old: Count | None
    version: Count
    commit: str
    apps: dict[str, AppRise] = {}
    checked: Count | None = None
    commits: tuple[tuple[Count, str], ...] | UnsetType = UNSET


Action = (
    Add
    | Drop
    | DeleteRows
    | SetLayout
    | SetSchema
    | SetProperties
    | Unchanged
    | Fence
    | Horizon
    | SetCut
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
    | Update
    | Merge
    | SetGranularity
    | SetBuckets
    | Assess
    | Advance
    | SetClock
    | SetOrigin
)
