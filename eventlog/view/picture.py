"""The model behind the picture of a history: versions, transactions, blocks and lanes. No I/O.

A block is one span of versions during which a segment is live: a segment that a restore adds again
has two. `PictureBuilder` folds nothing itself: it takes each commit with its effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UnsetType

from eventlog.format import keys
from eventlog.model.actions import Add, Advance, Drop, Merge, Replace
from eventlog.model.chunks import utc
from eventlog.model.entries import ColumnStats, Segment, deleted_rows
from eventlog.model.records import Commit, Meta, Pin, Transaction, origins_of
from eventlog.session.branch_pins import OWNER, PREFIX
from eventlog.session.tags import TAG_OWNER
from eventlog.state.fold import Effect

LaneKind = Literal["pin", "branch", "claim", "copy"]
BEFORE = -1  # the transaction of blocks that were there before the first version


@dataclass(frozen=True, slots=True)
class PictureTransaction:
    """One transaction that took effect.

    Attributes:
        version: the version of its commit.
        operation: its operation.
        writer: its writer.
        app: its unit of work, such as `load 7`; empty if it has none.
        rewrite: whether its adds have the rows of its drops: it overshadows them.
    """

    version: int
    operation: str
    writer: str
    app: str
    rewrite: bool


@dataclass(slots=True)
class Block:
    """One span of versions during which a segment is live.

    Attributes:
        entry: the entry of the segment, as it was added.
        made: the number of the transaction that added it; `BEFORE`: it was there already.
        ended: the number of the transaction that dropped it; None: it is live.
        masks: the versions that deleted rows of it, each with the number of all its deleted rows;
            first the one that added it, if rows of it were deleted already.
    """

    entry: Segment
    made: int
    ended: int | None = None
    masks: list[tuple[int, int]] = field(default_factory=list)

    def masked_rows(self, version: int) -> int:
        """Return the number of its rows that are deleted at a version."""
        return next((rows for at, rows in reversed(self.masks) if at <= version), 0)


@dataclass(slots=True)
class PictureLane:
    """A pin, a branch, a claim or a named copy, from the version that sets it to its removal.

    Attributes:
        kind: which of the four; a branch is there as the pin that holds it.
        name: its name; of a claim its id.
        owner: its owner.
        text: what it is about, for people.
        begin: the version that set it.
        held: the versions from which on it holds another version, each with that version.
        end: the version that removed it; None: it is there.
    """

    kind: LaneKind
    name: str
    owner: str
    text: str
    begin: int
    held: list[tuple[int, int]] = field(default_factory=list)
    end: int | None = None


@dataclass(frozen=True, slots=True)
class BranchHead:
    """The newest version of a branch.

    Attributes:
        name: of the branch, as its lane has it.
        fork: the last version that it has in common with the table.
        version: its newest version.
        time_ms: the time of that version, in ms UTC.
        origin: the id by which merges name the log of the branch; None: it has no own commits.
    """

    name: str
    fork: int
    version: int
    time_ms: int
    origin: str | None


@dataclass(frozen=True, slots=True)
class PictureMerge:
    """A version that merged another log.

    Attributes:
        version: the version.
        origin: the id of the other log.
        last: the last version of that log that is merged.
    """

    version: int
    origin: str
    last: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The history of a table from one version to another.

    Attributes:
        table: its URI.
        first: the first version.
        times: the time of each version, as in its header, in ms UTC.
        transactions: those that took effect, in order.
        blocks: in the order in which they were added.
        lanes: pins, branches, claims and copies, in the order in which they were set.
        horizons: the versions that raised the horizon, each with the new one; first the one at the
            first version.
        merges: the merges of other logs.
        meta: the small state at the last version.
        heads: the newest versions of the table's branches.
        fork: of a branch the last version that is its parent's; None of a table.
    """

    table: str
    first: int
    times: Sequence[int]
    transactions: Sequence[PictureTransaction]
    blocks: Sequence[Block]
    lanes: Sequence[PictureLane]
    horizons: Sequence[tuple[int, int]]
    merges: Sequence[PictureMerge]
    meta: Meta
    heads: Sequence[BranchHead] = ()
    fork: int | None = None

    @property
    def last(self) -> int:
        """The last version."""
        return self.first + len(self.times) - 1

    @property
    def name(self) -> str:
        """The URI of the table; of a directory its name alone: a picture is for others, too."""
        if "://" in self.table and not self.table.startswith("file:"):
            return self.table
        parts = self.table.rstrip("/").split("/")
        branches = keys.BRANCHES_PREFIX.rstrip("/")
        root = parts.index(branches) if branches in parts else len(parts)
        return "/".join(parts[max(0, root - 1) :])  # against path-of-the-machine-in-a-page


class PictureBuilder:
    """Makes a picture, version by version.

    Args:
        table: the URI of the table.
        first: the first version of the picture.
    """

    def __init__(self, table: str, first: int) -> None:
        self._table, self._first = table, first
        self._times: list[int] = []
        self._transactions: list[PictureTransaction] = []
        self._blocks: list[Block] = []
        self._live: dict[str, Block] = {}
        self._lanes: list[PictureLane] = []
        self._open: dict[tuple[LaneKind, str], PictureLane] = {}
        self._horizons: list[tuple[int, int]] = []
        self._merges: list[PictureMerge] = []
        self._meta = Meta()

    def begin(self, time_ms: int, meta: Meta, segments: Iterable[Segment]) -> None:
        """Take the state at the first version, where the picture does not begin with a table.

        Args:
            time_ms: the time of that version.
            meta: its small state.
            segments: its live segments.
        """
        for entry in sorted(segments, key=lambda s: (s.version, s.partition)):
            self._add(entry, BEFORE, self._first)
        self._note(self._first, time_ms, meta)

    def add(self, commit: Commit, effect: Effect) -> None:
        """Take the next version.

        Args:
            commit: with the actions of every transaction, none spilled.
            effect: its effect.
        """
        version = commit.header.version
        entries = iter(effect.adds)
        for transaction in effect.taken:
            number = len(self._transactions)
            self._transactions.append(_pictured(version, transaction))
            for action in transaction.actions:
                if isinstance(action, Drop):
                    self._live.pop(action.id).ended = number
            for action in transaction.actions:  # later: it may add what it drops (FORMAT.md R20.6)
                if isinstance(action, Add):
                    self._add(next(entries), number, version)
        for _, entry in effect.deletes:
            self._live[entry.id].masks.append((version, deleted_rows(entry.vector)))
        self._note(version, commit.header.time, effect.meta)

    def picture(self) -> Picture:
        """Return the picture of the versions so far."""
        return Picture(
            self._table,
            self._first,
            tuple(self._times),
            tuple(self._transactions),
            tuple(self._blocks),
            tuple(self._lanes),
            tuple(self._horizons),
            tuple(self._merges),
            self._meta,
        )

    def _add(self, entry: Segment, made: int, version: int) -> None:
        block = Block(entry, made)
        if gone := deleted_rows(entry.vector):
            block.masks.append((version, gone))  # against added-with-deleted-rows-that-show
        self._blocks.append(block)
        self._live[entry.id] = block

    def _note(self, version: int, time_ms: int, meta: Meta) -> None:
        """Take the small state of a version."""
        before, self._meta = self._meta, meta
        self._times.append(time_ms)
        if not self._horizons or meta.horizon != before.horizon:
            self._horizons.append((version, meta.horizon))
        if version > self._first:
            known = origins_of(before)
            self._merges += (
                PictureMerge(version, name, origin.version)
                for name, origin in origins_of(meta).items()
                if known.get(name) != origin
            )
        if _holds(meta) != _holds(before):
            self._move_lanes({(lane.kind, lane.name): lane for lane in _lanes(meta)}, version)

    def _move_lanes(self, there: Mapping[tuple[LaneKind, str], PictureLane], version: int) -> None:
        for key, known in list(self._open.items()):
            if key not in there or there[key].begin != known.begin:
                self._open.pop(key).end = version
        for key, lane in there.items():
            known = self._open.setdefault(key, lane)
            if known is lane:
                self._lanes.append(lane)
            elif lane.held and known.held[-1][1] != lane.held[-1][1]:
                known.held.append((version, lane.held[-1][1]))


def time_bounds(meta: Meta, entry: Segment) -> ColumnStats | None:
    """Return the statistics of a segment's event times, in microseconds; None without them."""
    layout = meta.layout
    if layout is None or isinstance(layout.time_column, UnsetType):
        return None
    return next((s for s in entry.stats if s.column == layout.time_column), None)


def _pictured(version: int, transaction: Transaction) -> PictureTransaction:
    app = transaction.app
    units = [f"{app.id} {app.seq}"] if app else []
    units += (f"{a.app} {a.new}" for a in transaction.actions if isinstance(a, Advance))
    return PictureTransaction(
        version,
        transaction.operation,
        transaction.writer,
        ", ".join(units),
        any(isinstance(action, Replace | Merge) for action in transaction.actions),
    )


def _holds(meta: Meta) -> tuple[object, ...]:
    return meta.pins, meta.claims, meta.replicas


def _lanes(meta: Meta) -> list[PictureLane]:
    """Return the lanes of a small state, as they begin."""
    pins = (_pin_lane(name, pin) for name, pin in meta.pins.items())
    claims = (
        PictureLane("claim", name, c.owner, f"{c.kind}, {_range_text(c.start, c.end)}", c.token)
        for name, c in meta.claims.items()
    )
    copies = (
        PictureLane(
            "copy", name, r.owner, "a copy that vacuum waits for", r.token, [(r.token, r.acked)]
        )
        for name, r in meta.replicas.items()
    )
    return [*pins, *claims, *copies]


def _pin_lane(name: str, pin: Pin) -> PictureLane:
    held = [(pin.token, pin.version)]
    if name.startswith(PREFIX) and pin.owner == OWNER:
        text = f"forked from version {pin.version}, or above it"
        return PictureLane("branch", name.removeprefix(PREFIX), pin.owner, text, pin.token, held)
    what = "tag of" if pin.owner == TAG_OWNER else "holds"
    return PictureLane("pin", name, pin.owner, f"{what} version {pin.version}", pin.token, held)


def _range_text(start_ms: int, end_ms: int) -> str:
    start, end = utc(start_ms), utc(end_ms)
    return f"{start:%Y-%m-%dT%H:%MZ} to {end:%Y-%m-%dT%H:%MZ}"
