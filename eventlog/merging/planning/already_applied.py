"""The changes of the source that the target has already, by itself or from any log. No I/O."""

from __future__ import annotations

from eventlog.merging import log_acts
from eventlog.merging.log_acts import Act
from eventlog.merging.planning.carried import Divergence, MergeConflict, Pair, PastNeeded
from eventlog.merging.planning.same_rows import RowGroups
from eventlog.model.records import Meta


class AlreadyApplied:
    """Decides which changes of the source the target has already.

    Args:
        pair: the two logs.
        meta: the target's small state.
        past: what both logs did since the fork point; None if no decision has needed it so far.

    Attributes:
        known: the transactions that the target has, from all logs; None without the past.
        units: the units of work that the target has done.
        rows: the segments of the two logs that have the same rows; None without the past.
        own: the target's own transactions that the source does not have.
        own_ids: the ids of these transactions.
        unit: the target's transaction that did the same unit of work as the transaction that
            `is_new` was last asked about; None if there is none.
        seqs: for each app, the last sequence that is done; planners raise it as they go on.
    """

    def __init__(self, pair: Pair, meta: Meta, past: Divergence | None) -> None:
        self._pair, self._past = pair, past
        self.known: log_acts.KnownCommits | None = None
        self.units = log_acts.Units(())
        self.rows: RowGroups | None = None
        self.own: list[Act] = []
        self.own_ids: set[str] = set()
        self.unit: Act | None = None
        self.seqs = {name: mark.seq for name, mark in meta.apps.items()}
        if past is not None:
            source = log_acts.KnownCommits(past.source)
            self.known = log_acts.KnownCommits(past.target)
            self.rows = RowGroups(past.source, past.target, self.known, source)
            acts = [act for step in past.target for act in step.acts]
            self.units = log_acts.Units(acts)
            self.own = [act for act in acts if not source.has(act)]
            self.own_ids = {act.transaction.id for act in self.own}

    def is_new(self, act: Act) -> bool:
        """Return whether the target lacks the changes of a transaction of the source.

        Raises:
            MergeConflict: the target has a part of them, or the transaction united two states.
            PastNeeded: the decision needs what both did since the fork point.
        """
        self.unit = None
        if not act.does_anything and (act.carried is not None or not act.units):
            return False
        if self._has_it(act):
            return False
        if act.is_state:
            raise MergeConflict("it made two logs one by their states", act.version)
        return not self._is_done(act)

    def _has_it(self, act: Act) -> bool:
        """Return whether the target has a transaction's changes, by itself or from another log."""
        ours, named = self._pair.ours, act.originals
        direct = act.carried is not None and not act.unites and act.carried.commit in ours
        if direct or ours.issuperset(named):
            return True  # against own-rows-carried-back
        part = not ours.isdisjoint(named)
        if self.known is None:
            if not self._pair.alone:
                raise PastNeeded
        elif self.known.has(act):
            return True
        else:
            part |= self.known.has_part(act)
        if part:  # against rest-of-several-transactions-left-out
            raise MergeConflict(
                "it carries several transactions of another log, and the target has some of them",
                act.version,
            )
        return False

    def _is_done(self, act: Act) -> bool:
        """Return whether the target has done a transaction's unit of work itself."""
        kept = log_acts.kept(act.units)
        published = len(kept) < len(act.units)  # against published-append-carried-again
        # against first-of-several-units-not-looked-up
        if not published and all(self.seqs.get(a, -1) < done[0][0] for a, done in kept.items()):
            return False
        if self._past is None or self.rows is None:
            raise PastNeeded
        shared = self.units.shared(act)
        if not shared:  # against unit-of-work-done-on-both-sides
            return False
        done = shared[-1]
        if act.unit is None:
            raise MergeConflict(
                "it carries several transactions of another log, and the target has done one of "
                "them itself",
                act.version,
                done.version,
            )
        if done.unit is not None:  # else nothing tells which rows are the same
            self.rows.same_unit(act, done)
            self.unit = done
        return True
