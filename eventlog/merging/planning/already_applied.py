"""The changes of the source that the target has already, by itself or from any log. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from eventlog.merging import log_acts
from eventlog.merging.log_acts import Act
from eventlog.merging.planning.carried import Divergence, MergeConflict, Pair
from eventlog.model.actions import AppRise
from eventlog.model.records import Meta


def came_from_target(pair: Pair, act: Act) -> bool:
    """Return whether the source merged a transaction's changes from the target."""
    direct = act.carried is not None and not act.unites and act.carried.commit in pair.ours
    return direct or pair.ours.issuperset(act.originals)


def may_be_done(act: Act, seqs: Mapping[str, int]) -> bool:
    """Return whether a log may have done one of the units of work of a transaction.

    Args:
        act: the transaction.
        seqs: for each app, the last sequence that is done in that log.
    """
    kept = log_acts.kept(act.units)
    published = len(kept) < len(act.units)  # against published-append-carried-again
    # against first-of-several-units-not-looked-up
    above = all(seqs.get(app, -1) < runs[0][0] for app, runs in kept.items())
    return published or not above


@dataclass(frozen=True, slots=True)
class Already:
    """Why the target needs nothing of a transaction of the source.

    Attributes:
        unit: the target's transaction that did the same unit of work, and nothing else; None if the
            target has the transaction itself, or if nothing tells which rows are the same.
        among: the target's transaction that did the unit at once with others; None: there is none.
    """

    unit: Act | None = None
    among: Act | None = None


class AlreadyApplied:
    """Decides which changes of the source the target has already.

    Args:
        pair: the two logs.
        meta: the target's small state.
        past: what both logs did since the fork point.

    Attributes:
        units: the units of work that the target has done.
        own: the target's own transactions that the source does not have.
        own_ids: the ids of these transactions.
    """

    def __init__(self, pair: Pair, meta: Meta, past: Divergence) -> None:
        self._pair = pair
        self._target_commits = log_acts.KnownCommits(past.target)
        self._seqs = {name: mark.seq for name, mark in meta.apps.items()}
        source_commits = log_acts.KnownCommits(past.source)
        acts = [act for step in past.target for act in step.acts]
        self.units = log_acts.Units(acts)
        steps = (*past.source, *past.later)
        self._forgetting = log_acts.Forgetting(act for step in steps for act in step.acts)
        self.own = [act for act in acts if not source_commits.has(act)]
        self.own_ids = {act.transaction.id for act in self.own}

    def has(self, act: Act) -> bool:
        """Return whether the target has all changes of a transaction, from whatever log."""
        return self._target_commits.has(act)

    def dropped(self, acts: Iterable[Act]) -> list[str]:
        """Return the ids of segments that the source dropped by what the target has already.

        Args:
            acts: transactions of the source.
        """
        return [
            drop.id
            for act in acts
            if act.drops
            and not (act.rewrites or act.merges_slices)  # these drop no rows
            and (came_from_target(self._pair, act) or self.has(act))
            for drop in act.drops
        ]

    def find(self, act: Act) -> Already | None:
        """Return why the target needs nothing of a transaction; None if the transaction is new.

        Raises:
            MergeConflict: the target has a part of its changes, or the transaction united two
                states.
        """
        if not act.does_anything:
            return Already()
        if came_from_target(self._pair, act) or self.has(act):
            return Already()  # against own-rows-carried-back
        part = not self._pair.ours.isdisjoint(act.originals) or self._target_commits.has_part(act)
        if part:  # against rest-of-several-transactions-left-out
            raise MergeConflict(
                "it carries several transactions of another log, and the target has some of them",
                act.version,
            )
        if act.is_state:
            raise MergeConflict("it united two logs", act.version)
        return self._done(act)

    def _done(self, act: Act) -> Already | None:
        """Return that the target has done a transaction's unit of work itself; None: it has not."""
        shared = self.units.shared(act) if may_be_done(act, self._seqs) else []
        if not shared:  # against unit-of-work-done-on-both-sides
            return None
        done = shared[-1]
        if act.unit is None:
            raise MergeConflict(
                "it carries several transactions of another log, and the target has done one of "
                "them itself",
                act.version,
                done.version,
            )
        return Already(among=done) if done.unit is None else Already(done)

    def check_not_undone(self, act: Act, unit: Act, chunks: Collection[str]) -> None:
        """Refuse to drop rows by a unit of work that both did, where the target has undone it.

        Of the rows that the unit replaced, those of the source would be dropped, and nothing would
        be there in place of them.

        Args:
            act: the source's transaction that did the unit.
            unit: the target's transaction that did the unit.
            chunks: the chunks of the rows that would be dropped.

        Raises:
            MergeConflict: the target has brought back rows of these chunks that its unit dropped.
        """
        replaced = {drop.id for drop in unit.drops if drop.chunk in chunks}
        for ours in self.own if replaced else ():
            later = ours.version > unit.version and not (ours.rewrites or ours.merges_slices)
            # against rows-dropped-by-a-unit-that-is-undone
            if later and any(segment.id in replaced for segment in ours.adds):
                raise MergeConflict(
                    "it drops rows by a unit of work that both did, and the target has restored "
                    "rows that the unit dropped there",
                    act.version,
                    ours.version,
                )

    def rises(self, act: Act) -> dict[str, AppRise]:
        """Return the new sequences of the apps whose units of work are applied, and note them.

        Those that the source has forgotten since are not.
        """
        rises = {}
        # against unit-carried-that-the-source-forgot
        rest = self._forgetting.rest(act)
        for app, done in log_acts.kept(rest).items():
            old, last = self._seqs.get(app), done[-1][1]
            rises[app] = AppRise(old, done)
            self._seqs[app] = last if old is None else max(old, last)
        return dict(sorted(rises.items(), key=lambda item: item[0].encode()))
