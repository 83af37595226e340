"""The question that collects everything the fold needs to judge given transactions.

Its answer is a view that contains exactly what the fold may look up for those transactions, so
`fold.judge` and its callers read nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.format.entry_order import first_key
from eventlog.format.frames import entry_columns
from eventlog.keyed.placement import set_back
from eventlog.keyed.rule import keyed_of
from eventlog.model.actions import Add, DeleteRows, Drop, Merge, SameSegments, Unchanged
from eventlog.model.chunks import TimeChunk, parse_chunk
from eventlog.model.entries import Segment
from eventlog.model.records import Meta, Piece, Transaction
from eventlog.state.questions import WholeLeaves, overlapping
from eventlog.state.small import claims, rules
from eventlog.state.version import VersionState


@dataclass(frozen=True, slots=True)
class KnownState:
    """A `fold.FoldView` of the parts of the state that were looked up for given transactions.

    Asking it about anything else is a programming error and raises LookupError.

    Attributes:
        version: see `fold.FoldView`.
        meta: see `fold.FoldView`.
        hashes: the sum of the entry hashes of the live segments; None unless a transaction needs
            it.
        segments: the segments that were looked up, by id; None for one that is not live.
        arrivals: the results of `arrived`, by (start, end, after).
        chunks: the live segments of the chunks of a keyed table that were looked up, by name.
    """

    version: int
    meta: Meta
    hashes: str | None
    segments: Mapping[str, Segment | None]
    arrivals: Mapping[tuple[int, int, int], Segment | None]
    chunks: Mapping[str, Sequence[Segment]] = field(default_factory=dict)

    def live(self, named: Sequence[Drop | DeleteRows]) -> Mapping[str, Segment]:
        """See `fold.FoldView.live`."""
        looked_up = ((action.id, self.segments[action.id]) for action in named)
        return {i: segment for i, segment in looked_up if segment is not None}

    def arrived(self, start: int, end: int, after: int) -> Segment | None:
        """See `fold.FoldView.arrived`."""
        return self.arrivals[start, end, after]

    def present(self, adds: Sequence[Add]) -> set[str]:
        """See `fold.FoldView.present`."""
        return {add.id for add in adds if self.segments[add.id] is not None}

    def hash_sum(self) -> str:
        """See `fold.FoldView.hash_sum`."""
        if self.hashes is None:
            raise LookupError("none of these transactions needs the sum of the entry hashes")
        return self.hashes

    def chunk(self, name: str) -> Sequence[Segment]:
        """See `fold.FoldView.chunk`."""
        return self.chunks.get(name, ())  # a name that is no chunk has no segments


@dataclass(frozen=True, slots=True)
class Judging(WholeLeaves):
    """The question whose answer is the view for judging these transactions.

    Attributes:
        transactions: with all actions in `actions`, none spilled, in the order of the commit.
        fresh: (id, epoch, chunk) of uploads whose ids this process generated itself.
        checked: see `Question.checked`.
        own_chunks: look for the ids of adds in their own chunks only. That is not the rule (F6):
            the caller has to compare the result with the commit.
    """

    transactions: Sequence[Transaction]
    fresh: Collection[tuple[str, int, str]] = ()
    checked: bool = True
    own_chunks: bool = False

    def needs(self, state: VersionState) -> Sequence[Piece]:
        """Return the leaves that may contain dropped, already live or newly arrived segments.

        See `Question.needs` for stems.
        """
        judged = self._judged(state)
        foreign = any(self._is_foreign(add) for add in self._unknown(judged, state))
        if foreign and not self.own_chunks:
            # Its id must not be live in any chunk (F6), and leaves are ordered by chunk.
            return state.pieces()  # against live-id-in-another-chunk
        wanted = {piece.sha256: piece for piece in state.pieces_of(self._sought(judged, state))}
        if state.base is not None:
            for start, end, after in _ranges(judged):
                if state.base.version > after:
                    wanted.update((piece.sha256, piece) for piece in state.pieces(start, end))
            for chunk in _changed_slices(judged, state.meta):
                found = state.pieces(chunk.start, chunk.end)
                wanted.update((piece.sha256, piece) for piece in found)
        return sorted(wanted.values(), key=first_key)

    def answer(self, state: VersionState, leaves: Mapping[str, pa.Table]) -> KnownState:
        """Return the view."""
        judged = self._judged(state)
        actions = [action for txn in judged for action in txn.actions]
        known: dict[str, Segment | None] = {
            action.id: state.delta.adds.get(action.id)
            for action in actions
            if isinstance(action, Add | Drop | DeleteRows)
        }
        known |= state.find((drop.id for drop in self._sought(judged, state)), leaves)
        compared = any(isinstance(action, SameSegments) for action in actions)
        return KnownState(
            version=state.header.version,
            meta=state.meta,
            hashes=state.hash_sum() if compared else None,
            segments=known,
            arrivals=_arrivals(_ranges(judged), state, leaves),
            chunks={
                chunk.name: _live_in(chunk, state, leaves)
                for chunk in _changed_slices(judged, state.meta)
            },
        )

    def _judged(self, state: VersionState) -> Sequence[Transaction]:
        """Return the transactions, without the first if the small state alone makes it void.

        Later ones are always kept: the small state before them is not known yet.
        """
        if self.transactions and _void(self.transactions[0], state.meta, state.header.version + 1):
            return self.transactions[1:]
        return self.transactions

    def _sought(self, judged: Sequence[Transaction], state: VersionState) -> list[Drop]:
        """Return the segments whose liveness only the key frame can decide."""
        drops = [
            Drop(a.id, a.chunk, a.hash)
            for txn in judged
            for a in txn.actions
            if isinstance(a, Drop | DeleteRows)
        ]
        return drops + [Drop(add.id, add.chunk, "") for add in self._unknown(judged, state)]

    def _unknown(self, judged: Sequence[Transaction], state: VersionState) -> list[Add]:
        """Return the adds whose ids could be in the key frame.

        A fresh id whose epoch is the key frame's version or later cannot be in it, so a warm append
        reads no leaf. With an earlier epoch it can, if it took effect before.
        """
        start = -1 if state.base is None else state.base.version
        unknown = []
        for add in (a for txn in judged for a in txn.actions if isinstance(a, Add)):
            known_new = add.epoch >= start and not self._is_foreign(add)
            if not known_new:  # against used-id-taken-for-fresh
                unknown.append(add)
        return unknown

    def _is_foreign(self, add: Add) -> bool:
        """Return whether this program did not make the id for exactly this upload."""
        return (add.id, add.epoch, add.chunk) not in self.fresh


def _changed_slices(transactions: Iterable[Transaction], meta: Meta) -> list[TimeChunk]:
    """Return the chunks whose segments the fold looks at, because slices of theirs would change."""
    if meta.layout is None or keyed_of(meta.layout) is None:
        return []
    names = {
        action.chunk
        for txn in transactions
        for action in txn.actions
        if isinstance(action, Merge | Drop)
    } | {add.chunk for txn in transactions for add in set_back(txn)}
    chunks = []
    for name in sorted(names):
        with suppress(InvalidInput):  # such a chunk has no segments
            chunks.append(parse_chunk(name))
    return chunks


def _live_in(
    chunk: TimeChunk, state: VersionState, leaves: Mapping[str, pa.Table]
) -> Sequence[Segment]:
    """Return the live segments of exactly this chunk."""
    entries = entry_columns.concat([state.below(leaves), state.added])
    starts = pc.equal(entries.column("chunk_start"), chunk.start)
    ends = pc.equal(entries.column("chunk_end"), chunk.end)
    return entry_columns.to_segments(entries.filter(pc.and_(starts, ends)))


def _ranges(transactions: Iterable[Transaction]) -> list[tuple[int, int, int]]:
    return [
        (action.start, action.end, txn.read_version)
        for txn in transactions
        for action in txn.actions
        if isinstance(action, Unchanged)
    ]


def _arrivals(
    ranges: Sequence[tuple[int, int, int]], state: VersionState, leaves: Mapping[str, pa.Table]
) -> dict[tuple[int, int, int], Segment | None]:
    """Return, for each (start, end, after), a live segment in the range newer than `after`."""
    start = -1 if state.base is None else state.base.version
    late = any(after < start for _, _, after in ranges)  # against arrivals-below-unseen
    older = state.below(leaves) if late else entry_columns.EMPTY
    arrivals = {}
    for low, high, after in ranges:
        tables = [older, state.added] if after < start else [state.added]
        entries = entry_columns.concat([overlapping(table, low, high) for table in tables])
        newer = entries.filter(pc.greater(entries.column("version"), after))
        first = entry_columns.to_segments(newer.slice(0, 1))
        arrivals[low, high, after] = first[0] if first else None
    return arrivals


def _void(txn: Transaction, meta: Meta, version: int) -> bool:
    """Return whether the first transaction of a commit is void whatever segments are live."""
    mark = meta.published.get(txn.id)
    if txn.until is not None and mark is not None and mark.until >= version:
        return True
    if rules.done(meta, txn.app) is not None:
        return True
    return txn.claim is not None and isinstance(claims.held(meta, txn.claim), str)
