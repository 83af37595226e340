"""Plans the transactions that a merge commits on the target. No I/O.

A planner goes through the source's commits in order. For each commit that has something new for the
target there is a `Carried`: one transaction of the target. Left out is what the target has already:
the target's own changes that came back, units of work that both logs did, and rewrites of segments
that the target does not have live, since these change no rows (MERGING.md R19.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

from eventlog.merging.log_acts import Act, AppliedStep, KnownCommits
from eventlog.merging.planning.already_applied import Already, AlreadyApplied
from eventlog.merging.planning.carried import Carried, Divergence, MergeConflict, Pair
from eventlog.merging.planning.same_rows import Differs, RowGroups
from eventlog.merging.planning.small_state import SmallStatePlan
from eventlog.model.actions import Replace
from eventlog.model.entries import Segment
from eventlog.model.records import Meta
from eventlog.quantities import count_text


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge commits for commits of the source.

    Attributes:
        transactions: the transactions of the target, in order.
        conflict: why nothing after them can be applied; None if everything is.
        skipped: for each version, the number of transactions that the target has already.
        declined: for each version, the number of rewrites left out, since they change no rows.
    """

    transactions: Sequence[Carried]
    conflict: MergeConflict | None
    skipped: Mapping[int, int]
    declined: Mapping[int, int]


class TablePlanner(Protocol):
    """What a planner does for one kind of table.

    Attributes:
        skipped: see `MergePlan`.
        declined: see `MergePlan`.
    """

    skipped: dict[int, int]
    declined: dict[int, int]

    def carry(self, step: AppliedStep) -> Carried | None:
        """Return the transaction to commit for a commit of the source; None if there is none.

        Raises:
            MergeConflict: the commit cannot be merged.
        """

    def rest(self) -> Carried | None:
        """Return the transaction to commit after the last commit; None if there is none.

        Raises:
            MergeConflict: the commits before it cannot be merged either.
        """


def plan_merge(planner: TablePlanner, steps: Sequence[AppliedStep]) -> MergePlan:
    """Return what a merge commits for these commits of the source, up to a conflict."""
    transactions: list[Carried] = []
    conflict: MergeConflict | None = None
    try:
        for step in steps:
            carried = planner.carry(step)
            if carried is not None:
                transactions.append(carried)
    except MergeConflict as found:
        conflict = found
    try:
        rest = planner.rest()
        transactions += [] if rest is None else [rest]
    except MergeConflict as found:  # without the rest, the order of the others would be wrong
        transactions, conflict = [], found
    return MergePlan(transactions, conflict, planner.skipped, planner.declined)


class Planner:
    """Decides which changes of the source's commits are merged into a table without a key.

    The planner keeps track of the target's state after the transactions that it has planned.

    Args:
        pair: the two logs.
        meta: the target's small state.
        live: the ids of the target's live segments, as far as the source's commits bear on them.
        past: what both logs did since the fork point.

    Attributes:
        skipped: see `MergePlan`.
        declined: see `MergePlan`.
    """

    def __init__(self, pair: Pair, meta: Meta, live: Collection[str], past: Divergence) -> None:
        self.skipped: dict[int, int] = {}
        self.declined: dict[int, int] = {}
        self._pair, self._live = pair, set(live)
        self._applied = AlreadyApplied(pair, meta, past)
        # What the source drops later, by what the target has already.
        self._gone = Counter(self._applied.dropped(a for step in past.later for a in step.acts))
        self._small_state = SmallStatePlan(pair, meta, past)
        self._rows = RowGroups(
            past.source, past.target, KnownCommits(past.target), KnownCommits(past.source)
        )

    def carry(self, step: AppliedStep) -> Carried | None:
        """Return the transaction to commit for a commit of the source; None if there is none.

        Raises:
            MergeConflict: the commit cannot be merged.
        """
        parts: list[Carried | None] = []
        for act in step.acts:
            # against row-restored-since-dropped
            self._gone -= Counter(self._applied.dropped([act]))
            already = self._applied.find(act)
            if already is None:
                parts.append(self._apply(act))
            else:
                add_count(self.skipped, act, act.does_anything)
                if already.among is not None:
                    self._check_apart(act, already.among)
                self._check_deletes(act, already)
                parts.append(None if already.unit is None else self._drop(act, already.unit))
            self._rows.at_source(act)
        return joined(step, parts)

    def rest(self) -> Carried | None:
        """Return the transaction that makes the schemas of both logs one; None if they are."""
        return self._small_state.rest()

    def _apply(self, act: Act) -> Carried | None:
        """Return the transaction to commit for one transaction of the source, and note it."""
        if act.resets:  # against units-forgotten-elsewhere-skipped
            raise MergeConflict(
                "it restores a version and lets units of work be loaded again", act.version
            )
        if act.restores and (ours := self._own_write()) is not None:
            # The target may have rewritten the restored or dropped segments with its own rows.
            raise MergeConflict(
                "it restores a version, and the target has taken writes of its own",
                act.version,
                ours.version,
            )
        changes = self._small_state.changes(act)
        if act.rewrites and not self._applies(act):  # against rewrite-of-what-is-not-there
            add_count(self.declined, act, 1)
            self._rows.relate([*(d.id for d in act.drops), *(s.id for s in act.adds)])
            adds: tuple[Segment, ...] = ()
            drops: tuple[tuple[str, str], ...] = ()
            exact = False
        else:
            drops, exact = self._drops(act)
            moves = act.restores or act.rewrites  # these rows were there before
            # against rows-that-the-source-dropped-added
            gone: Collection[str] = () if moves else self._gone
            adds = tuple(s for s in act.adds if s.id not in self._live and s.id not in gone)
            self._live.difference_update(i for i, _ in drops)
            self._live.update(s.id for s in adds)
        rises = self._applied.rises(act)
        if not (adds or drops or changes or rises or act.is_recorded):
            return None
        replaces = [a for a in act.transaction.actions if isinstance(a, Replace)]
        whole = exact and not changes and len(adds) == len(act.adds)
        return Carried(
            act.version,
            "",
            tuple(map(self._small_state.translated, adds)),
            drops,
            tuple(changes),
            act.originals,
            rises,
            replaces[0].deletes if replaces and whole else None,
            act.operations,
            act.count,
        )

    def _own_write(self) -> Act | None:
        """Return the target's first own transaction that added or dropped segments, if any."""
        return next((act for act in self._applied.own if act.adds or act.drops), None)

    def _applies(self, act: Act) -> bool:
        return all(drop.id in self._live for drop in act.drops)

    def _drops(self, act: Act) -> tuple[tuple[tuple[str, str], ...], bool]:
        """Return the target's drops, and whether they are the same segments as the source's."""
        live = [(d.id, d.chunk) for d in act.drops if d.id in self._live]
        missing = [d.id for d in act.drops if d.id not in self._live]
        if not missing:
            return tuple(live), True
        try:
            forms = self._rows.counterpart(act, missing, self._live)
        except Differs as differs:
            dropped = count_text(len(act.drops), "segment")
            raise MergeConflict(
                f"it drops {dropped}, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        return (*live, *((i, self._rows.chunks[i]) for i in dict.fromkeys(forms))), False

    def _check_apart(self, act: Act, among: Act) -> None:
        """Refuse to keep rows that the source dropped by a unit of work which the target did, too.

        The target did it at once with others, which may have restored the rows.
        """
        # against rows-kept-from-a-unit-done-at-once
        if not act.rewrites and any(drop.id in self._live for drop in act.drops):
            raise MergeConflict(
                "it drops rows by a unit of work that the target has done at once with other "
                "transactions, which may have restored the rows",
                act.version,
                among.version,
            )

    def _check_deletes(self, act: Act, already: Already) -> None:
        """Refuse deletes of rows by a unit of work that the target did, too, with other results.

        Nothing tells which rows the target's unit would have deleted, or added in their place.
        """
        done = already.unit or already.among
        if done is None:
            return
        lacking = act.deletes - self._live - {s.id for s in done.adds}
        # against updates-of-a-unit-that-both-did-united
        if lacking or act.updated != done.updated:
            raise MergeConflict(
                "it deletes rows by a unit of work that both did", act.version, done.version
            )

    def _drop(self, act: Act, unit: Act) -> Carried | None:
        """Return the drop of the rows that a unit of work dropped at the source alone.

        Args:
            act: the source's transaction that did the unit.
            unit: the target's transaction that did the unit.
        """
        self._rows.same_unit(act, unit)
        if not act.drops:
            return None
        try:
            # against rows-before-a-unit-kept
            gone = self._rows.remaining(act, unit, self._live)
        except Differs as differs:
            raise MergeConflict(
                f"it drops rows by a unit of work that both did, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        chunks = {drop.id: drop.chunk for drop in act.drops}
        drops = tuple((i, chunks.get(i) or self._rows.chunks[i]) for i in gone)
        self._applied.check_not_undone(act, unit, {chunk for _, chunk in drops})
        self._live.difference_update(gone)
        commits = act.originals  # against unit-undone-at-once-forgotten
        return Carried(act.version, "", drops=drops, commits=commits) if drops else None


def joined(step: AppliedStep, parts: Sequence[Carried | None]) -> Carried | None:
    """Return the one transaction for what a commit did; None if that is nothing.

    Args:
        step: the commit of the source.
        parts: what is to be committed for each transaction of the commit.
    """
    planned = [part for part in parts if part is not None]
    carried = reduce(Carried.then, planned, Carried(step.version, step.commit))
    if carried.is_empty:
        return None
    deletes = planned[0].deletes if len(step.acts) == 1 else None
    return replace(carried, version=step.version, commit=step.commit, deletes=deletes)


def add_count(counts: dict[int, int], act: Act, number: int) -> None:
    """Add a number to the count of a transaction's version."""
    counts[act.version] = counts.get(act.version, 0) + number
