"""The fold: what the transactions of a commit do to the state before it.

`judge` is the one place that applies the rules (FORMAT.md "The fold"); writers, readers and
checkers all use it. A transaction whose preconditions fail is void: it stays in the log, has no
effect, and the fold returns the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt, InvalidInput
from eventlog.format import codec
from eventlog.keyed import placement, slice_changes
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.model.actions import Add, DeleteRows, Drop, Restore, SameSegments, Unchanged
from eventlog.model.chunks import parse_chunk
from eventlog.model.columns.named_checks import newest_check
from eventlog.model.entries import Segment, deleted_rows, inline_among
from eventlog.model.records import (
    CHECKS_FEATURE,
    CUT_FEATURE,
    INLINE_FEATURE,
    KEYED_FEATURE,
    MERGED_FEATURE,
    SPLIT_FEATURE,
    VECTORS_FEATURE,
    Commit,
    CommitChanges,
    Header,
    Meta,
    Published,
    Totals,
    Transaction,
    cut_of,
    origins_of,
)
from eventlog.state.delta import drop_of
from eventlog.state.small import claims, rules, timing


class FoldView(Protocol):
    """What the fold needs from the state before a commit.

    `FullState` and `EmptyState` are views of whole states, `judging.KnownState` of a fetched part.
    """

    @property
    def version(self) -> int:
        """The version of this state; -1 before the first commit."""
        ...

    @property
    def meta(self) -> Meta:
        """The small state."""
        ...

    def live(self, named: Sequence[Drop | DeleteRows]) -> Mapping[str, Segment]:
        """Return the segments that these actions name and that are live, by id."""
        ...

    def arrived(self, start: int, end: int, after: int) -> Segment | None:
        """Return a live segment that overlaps [start, end) ms and was added after `after`.

        Args:
            start: ms UTC.
            end: ms UTC, exclusive.
            after: a version.
        """
        ...

    def present(self, adds: Sequence[Add]) -> set[str]:
        """Return the ids of the adds whose segments are already live."""
        ...

    def hash_sum(self) -> str:
        """Return the sum of the entry hashes of the live segments, as 64 hexadecimal digits."""
        ...

    def chunk(self, name: str) -> Sequence[Segment]:
        """Return the live segments of a time chunk of a keyed table."""
        ...


@dataclass(frozen=True, slots=True)
class Effect:
    """The effects of a commit's transactions.

    Attributes:
        meta: the small state afterwards.
        adds: segments added, in order; their version and partition are set.
        drops: segments dropped.
        deletes: segments of which rows were deleted: the entry before, and the one after.
        accepted: ids of the transactions that took effect.
        void: the reason, by id, of each transaction that did not.
        taken: the transactions that took effect, in order. A void one may have the same id.
    """

    meta: Meta
    adds: tuple[Segment, ...] = ()
    drops: tuple[Segment, ...] = ()
    deletes: tuple[tuple[Segment, Segment], ...] = ()
    accepted: tuple[str, ...] = ()
    void: Mapping[str, str] = field(default_factory=dict)
    taken: tuple[Transaction, ...] = ()


@dataclass(frozen=True, slots=True)
class FullState:
    """The full state at one version, in memory: what an audit of the log folds."""

    header: Header
    commit_hash: str
    meta: Meta
    segments: Mapping[str, Segment]

    @property
    def version(self) -> int:
        """See `FoldView.version`."""
        return self.header.version

    def live(self, named: Sequence[Drop | DeleteRows]) -> Mapping[str, Segment]:
        """See `FoldView.live`."""
        return {d.id: self.segments[d.id] for d in named if d.id in self.segments}

    def arrived(self, start: int, end: int, after: int) -> Segment | None:
        """See `FoldView.arrived`."""
        arrivals = (
            s for s in self.segments.values() if s.version > after and _overlaps(s, start, end)
        )
        return next(arrivals, None)

    def present(self, adds: Sequence[Add]) -> set[str]:
        """See `FoldView.present`."""
        return {a.id for a in adds if a.id in self.segments}

    def hash_sum(self) -> str:
        """See `FoldView.hash_sum`."""
        return segments_sum(self.header, self.meta)

    def chunk(self, name: str) -> Sequence[Segment]:
        """See `FoldView.chunk`."""
        return [s for s in self.segments.values() if s.chunk == name]


@dataclass(frozen=True, slots=True)
class EmptyState:
    """The view before version 0."""

    version: int = -1
    meta: Meta = field(default_factory=Meta)

    def live(self, named: Sequence[Drop | DeleteRows]) -> Mapping[str, Segment]:  # noqa: ARG002
        """See `FoldView.live`."""
        return {}

    def arrived(self, start: int, end: int, after: int) -> None:
        """See `FoldView.arrived`."""

    def present(self, adds: Sequence[Add]) -> set[str]:  # noqa: ARG002
        """See `FoldView.present`."""
        return set()

    def hash_sum(self) -> str:
        """See `FoldView.hash_sum`."""
        return codec.hex_hash(0)

    def chunk(self, name: str) -> Sequence[Segment]:  # noqa: ARG002
        """See `FoldView.chunk`."""
        return []


def segments_sum(header: Header, meta: Meta) -> str:
    """Return the sum of the entry hashes of a version's live segments, from its state hash.

    Args:
        header: the header of the version's commit.
        meta: the small state at that version.
    """
    return codec.hex_hash(codec.parse_hash(header.state_hash) - codec.meta_hash(meta))


def judge(transactions: Iterable[Transaction], view: FoldView, time_ms: int) -> Effect:
    """Return the effect of the transactions, in order, as the commit after `view`.

    Args:
        transactions: with all actions in `actions`, none spilled.
        view: the state before the commit.
        time_ms: the time in the commit's header, in ms UTC.
    """
    effect = Effect(rules.forget_published(view.meta, view.version + 1))
    for transaction in transactions:
        step = _judge_one(transaction, view, effect, time_ms)
        if isinstance(step, str):
            effect = replace(effect, void={**effect.void, transaction.id: step})
        else:
            accepted, taken = (*effect.accepted, transaction.id), (*effect.taken, transaction)
            effect = replace(step, accepted=accepted, taken=taken)
    return effect


def effect_of(state: FullState | None, commit: Commit) -> Effect:
    """Return the effect of the commit after `state`.

    Args:
        state: the state before the commit; None before version 0.
        commit: the commit, with all actions in its transactions, none spilled.

    Raises:
        Corrupt: the commit does not follow `state`, or its header differs from the fold's result.
    """
    check_next_commit(state, commit.header)
    view: FoldView = EmptyState() if state is None else state
    effect = judge(commit.transactions, view, commit.header.time)
    if state is not None:
        timing.check_time(state.header, commit.header, effect.meta)
    _check_fresh(state, commit.header, effect)
    _check_header(state, commit, effect)
    return effect


def apply(effect: Effect, live: dict[str, Segment]) -> None:
    """Apply an effect to the live segments.

    Args:
        effect: the effect of a commit.
        live: the live segments before the commit, by id; changed in place.
    """
    live.update((segment.id, segment) for segment in effect.adds)
    live.update((after.id, after) for _, after in effect.deletes)
    for segment in effect.drops:
        if live[segment.id] == segment:  # else it is live again with another vector
            del live[segment.id]


def check_next_commit(state: FullState | None, header: Header) -> None:
    """Check that a commit is the next one of the same log (FORMAT.md R6.2).

    Raises:
        Corrupt: it belongs to another table, or there is a gap or a fork.
    """
    if state is None:
        if header.version != 0:
            raise Corrupt(f"the log starts at version {header.version}", version=header.version)
        return
    before = state.header
    if header.version != before.version + 1 or header.table != before.table:
        raise Corrupt(
            f"version {header.version} of table {header.table} does not follow "
            f"version {before.version} of table {before.table}",
            version=header.version,
        )
    if header.prev != state.commit_hash:  # against chain-not-folded
        raise Corrupt(
            f"the chain is broken: version {header.version} does not follow the stored version "
            f"{before.version} (a fork, or the bytes were changed)",
            version=header.version,
        )


def add_effect(header: Header | None, meta: Meta, effect: Effect) -> tuple[Totals, str]:
    """Return the totals and the state hash after an effect.

    Args:
        header: the header of the version before; None before version 0.
        meta: the small state of the version before.
        effect: the effect of the commit.
    """
    before = header.totals if header else Totals()
    total_hash = codec.parse_hash(header.state_hash) if header else 0
    total_hash += sum(codec.entry_hash(s) for s in _made(effect))
    total_hash -= sum(codec.entry_hash(s) for s in _gone(effect))
    total_hash += codec.meta_hash_change(meta, effect.meta)
    deleted = sum(deleted_rows(s.vector) for s in _made(effect))
    deleted -= sum(deleted_rows(s.vector) for s in _gone(effect))
    deleted += 0 if isinstance(before.deleted, UnsetType) else before.deleted
    inline = inline_among(_made(effect)) - inline_among(_gone(effect))
    inline += 0 if isinstance(before.inline, UnsetType) else before.inline
    totals = Totals(
        segments=before.segments + len(effect.adds) - len(effect.drops),
        rows=before.rows + _net(effect, "live_rows"),
        bytes=before.bytes + _net(effect, "bytes"),
        deleted=deleted or UNSET,
        inline=inline or UNSET,
    )
    return totals, codec.hex_hash(total_hash)


def features(meta: Meta, totals: Totals) -> tuple[str, ...]:
    """Return the features that readers of a version need.

    Args:
        meta: the small state of the version.
        totals: the totals of the version.
    """
    keyed = None if meta.layout is None else keyed_of(meta.layout)
    needs = {
        CUT_FEATURE: cut_of(meta) > 0,  # against cut-unannounced
        INLINE_FEATURE: not isinstance(totals.inline, UnsetType),  # against inline-unannounced
        KEYED_FEATURE: keyed is not None,
        MERGED_FEATURE: bool(origins_of(meta)),
        SPLIT_FEATURE: keyed is not None and splits_of(keyed) > 0,
        VECTORS_FEATURE: not isinstance(totals.deleted, UnsetType),  # against vectors-unannounced
    }
    return tuple(feature for feature, needed in needs.items() if needed)


def write_features(meta: Meta) -> tuple[str, ...] | UnsetType:
    """Return the features that a writer to a version needs besides; absent if there are none."""
    return (CHECKS_FEATURE,) if newest_check(meta.schema) else UNSET


def summarize_changes(transactions: Sequence[Transaction], effect: Effect) -> CommitChanges:
    """Return the header's summary of the changes of a commit.

    The operation and the writer are those of the first accepted transaction, or of the first one
    where none was accepted.
    """
    first = next(iter(effect.taken), transactions[0])  # against named-after-a-void-one
    return CommitChanges(
        operation=first.operation,
        writer=first.writer,
        transactions=len(effect.accepted),
        adds=len(effect.adds),
        drops=len(effect.drops),
        rows=_net(effect, "live_rows"),
        bytes=_net(effect, "bytes"),
        vectors=len(effect.deletes) or UNSET,
    )


def segment_of(add: Add, version: int, partition: int) -> Segment:
    """Return the entry that an add makes live.

    Args:
        add: the action.
        version: the version of its commit.
        partition: its number among the adds that take effect in the commit.
    """
    return Segment(
        id=add.id,
        chunk=add.chunk,
        epoch=add.epoch,
        version=version,
        partition=partition,
        rows=add.rows,
        bytes=add.bytes,
        checksum=add.checksum,
        schema=add.schema,
        stats=add.stats,
        tail=add.tail,
        slice=placement.slice_in(add, version, partition),
        vector=add.vector,
        inline=add.inline if isinstance(add.parquet, UnsetType) else version,
    )


def _judge_one(txn: Transaction, view: FoldView, so_far: Effect, time_ms: int) -> Effect | str:
    """Return `so_far` extended by the transaction's effect, or the reason why it is void."""
    if txn.id in so_far.accepted:  # against same-id-twice-in-a-commit
        return "the commit contains this transaction twice"
    meta = _small_state(txn, so_far.meta, view.version + 1, time_ms)
    if isinstance(meta, str):
        return meta
    drops = _judge_drops([a for a in txn.actions if isinstance(a, Drop)], view, so_far)
    if isinstance(drops, str):
        return drops
    deletes = [a for a in txn.actions if isinstance(a, DeleteRows)]
    changed = _judge_deletes(deletes, drops, meta, view, so_far)
    if isinstance(changed, str):
        return changed
    added = [a for a in txn.actions if isinstance(a, Add)]
    again = {s.id: s for s in drops} if rules.may_exchange(txn) else {}
    reason = _unmet(txn, meta, view, again) or _moved(txn, view, so_far)
    reason = reason or rules.tested_problem(txn, added, so_far.meta, meta)
    reason = reason or rules.replace_problem(txn, drops, added)  # against replacement-never-judged
    reason = reason or rules.update_problem(txn, drops, changed, added)
    reason = reason or rules.stats_problem(added, meta)
    reason = reason or _added_before(added, view, so_far, again)
    if reason:
        return reason
    version, first = view.version + 1, len(so_far.adds)
    adds = tuple(segment_of(add, version, first + k) for k, add in enumerate(added))
    reason = slice_changes.slices_problem(
        txn, meta, adds, drops, lambda name: _live_chunk(name, view, so_far)
    )
    if reason:  # against slices-never-judged
        return reason
    return replace(
        so_far,
        meta=meta,
        adds=so_far.adds + adds,
        drops=so_far.drops + tuple(drops),
        deletes=so_far.deletes + tuple(changed),
    )


def _live_chunk(name: str, view: FoldView, so_far: Effect) -> list[Segment]:
    """Return the live segments of a chunk after the transactions before."""
    gone = {s.id for s in so_far.drops}
    live = [*view.chunk(name), *(s for s in so_far.adds if s.chunk == name)]
    return [s for s in live if s.id not in gone]


def _small_state(txn: Transaction, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state after the transaction, or the reason why the transaction is void."""
    if txn.until is not None:
        reason = rules.published_problem(txn, meta, version)
        if reason:
            return reason
        meta = rules.mark_published(meta, txn.id, Published(version, txn.until))
    if txn.app is not None:
        mark = rules.done(meta, txn.app)
        if mark is not None:  # against app-goes-backwards
            return f"app {txn.app.id!r} is already at sequence {mark.seq} (version {mark.version})"
        meta = rules.mark_app(meta, txn.app, version, time_ms)
    if txn.claim is not None:
        claim = claims.held(meta, txn.claim)
        if isinstance(claim, str):  # against claim-lost-and-committed
            return claim
    for action in txn.actions:
        changed = rules.small_change(action, meta, version, time_ms)
        if isinstance(changed, str):
            return changed
        meta = changed
    return meta


def _unmet(
    txn: Transaction, meta: Meta, view: FoldView, again: Mapping[str, Segment]
) -> str | None:
    """Return why the precondition of an add or an `unchanged` fails, if one does."""
    restores = [action for action in txn.actions if isinstance(action, Restore)]
    restored = any(isinstance(action.origin, UnsetType) for action in restores)
    for action in txn.actions:
        reason = None
        if isinstance(action, Add):
            before = again.get(action.id)
            reason = rules.add_problem(
                action,
                meta,
                view.version + 1,
                restored=restored,
                before=before,
                again=bool(restores),
            )
        elif isinstance(action, Unchanged):
            reason = _arrived(view.arrived(action.start, action.end, txn.read_version))
        if reason:
            return reason
    return None


def _moved(txn: Transaction, view: FoldView, so_far: Effect) -> str | None:
    """Return a reason if the live segments are not those that the transaction requires."""
    wanted = {action.hash_sum for action in txn.actions if isinstance(action, SameSegments)}
    changed = so_far.adds or so_far.drops or so_far.deletes
    if wanted and (changed or wanted != {view.hash_sum()}):
        return "segments were added or dropped meanwhile"
    return None


def _arrived(arrival: Segment | None) -> str | None:
    if arrival is None:  # against unchanged-always-holds
        return None
    return (
        f"version {arrival.version} added segment {arrival.id} to chunk {arrival.chunk} meanwhile"
    )


def _added_before(
    added: list[Add], view: FoldView, so_far: Effect, again: Mapping[str, Segment]
) -> str | None:
    """Return why the adds would make a segment live twice, if they would.

    Those that the transaction drops and adds with another vector are in `again`.
    """
    seen = {s.id for s in so_far.adds}
    for add in added:
        if add.id in seen:  # against id-added-twice-in-a-commit
            return f"segment {add.id} is added twice"
        seen.add(add.id)
    present = view.present(added) - again.keys()
    # against live-id-added-again
    return f"segment {min(present)} is already live" if present else None


def _judge_drops(drops: list[Drop], view: FoldView, so_far: Effect) -> list[Segment] | str:
    """Return the entries of the dropped segments, or why the transaction is void."""
    if not drops:
        return []
    live = {**view.live(drops), **{s.id: s for s in so_far.adds}}
    gone = (*so_far.drops, *(before for before, _ in so_far.deletes))
    for segment in gone:
        live.pop(segment.id, None)  # against dropped-before-in-the-same-commit
    entries = []
    for drop in drops:
        entry = live.pop(drop.id, None)
        if entry is None or drop_of(entry) != drop:  # against drop-of-another-entry
            # against drop-of-what-is-not-live
            return f"segment {drop.id} of chunk {drop.chunk} is no longer live"
        entries.append(entry)
    return entries


def _judge_deletes(
    deletes: list[DeleteRows], drops: list[Segment], meta: Meta, view: FoldView, so_far: Effect
) -> list[tuple[Segment, Segment]] | str:
    """Return the entries before and after rows of theirs are deleted, or why the deletes are void.

    A segment that the same commit adds, drops or deletes rows of is not looked at again: no writer
    can have known its entry (FORMAT.md R20.3).
    """
    if not deletes:
        return []
    live = dict(view.live(deletes))
    touched = (*so_far.drops, *drops, *(before for before, _ in so_far.deletes))
    for segment in touched:
        live.pop(segment.id, None)  # against deleted-from-twice-in-a-commit
    changed = []
    for action in deletes:
        entry = live.pop(action.id, None)
        reason = rules.delete_problem(action, entry, meta, view.version + 1)
        if reason is not None or entry is None:
            return reason or ""
        changed.append((entry, msgspec.structs.replace(entry, vector=action.vector)))
    return changed


def _check_fresh(state: FullState | None, header: Header, effect: Effect) -> None:
    seen: set[str] = set()
    dropped = {segment.id for segment in effect.drops}
    for segment in effect.adds:
        there = state is not None and segment.id in state.segments and segment.id not in dropped
        if segment.id in seen or there:
            raise Corrupt(f"segment id {segment.id} is added twice", version=header.version)
        seen.add(segment.id)


def _check_header(state: FullState | None, commit: Commit, effect: Effect) -> None:
    header = commit.header
    before, meta = (state.header, state.meta) if state else (None, Meta())
    totals, state_hash = add_effect(before, meta, effect)
    needed = (features(effect.meta, totals), write_features(effect.meta))
    if (header.features, header.write_features) != needed:  # against checks-unannounced
        raise Corrupt("the header's features are not those of the table", version=header.version)
    folded = {
        "totals": (header.totals, totals),
        "state hash": (header.state_hash, state_hash),
        "changes": (header.changes, summarize_changes(commit.transactions, effect)),
    }
    wrong = [name for name, (stored, expected) in folded.items() if stored != expected]
    if wrong:
        raise Corrupt(
            f"the header's {', '.join(wrong)} differ from the fold of the transactions",
            version=header.version,
        )


def _net(effect: Effect, name: str) -> int:
    gained = sum(int(getattr(s, name)) for s in _made(effect))
    return gained - sum(int(getattr(s, name)) for s in _gone(effect))


def _made(effect: Effect) -> Iterator[Segment]:
    """Return the entries that are live after the effect, and were not before."""
    return chain(effect.adds, (after for _, after in effect.deletes))


def _gone(effect: Effect) -> Iterator[Segment]:
    """Return the entries that were live before the effect, or in it, and are not after it."""
    return chain(effect.drops, (before for before, _ in effect.deletes))


def _overlaps(segment: Segment, start: int, end: int) -> bool:
    try:
        return parse_chunk(segment.chunk).overlaps(start, end)
    except InvalidInput as error:
        raise Corrupt(str(error)) from None
