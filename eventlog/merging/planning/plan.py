"""Plans the transactions that a merge commits on the target. No I/O.

The planner goes through the source's commits in order. For each commit that has something new for
the target it returns a `Carried`: one transaction of the target. It leaves out what the target has
already: the target's own changes that came back, units of work that both logs did, and rewrites of
segments that the target does not have live, since these change no rows (MERGING.md R19.5).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import msgspec

from eventlog.keyed.rule import keyed_of
from eventlog.merging import log_acts
from eventlog.merging.log_acts import Act, AppliedStep
from eventlog.merging.planning.already_applied import AlreadyApplied
from eventlog.merging.planning.carried import Carried, Divergence, MergeConflict, Pair, PastNeeded
from eventlog.merging.planning.columns import join_columns, translated
from eventlog.merging.planning.merged_settings import (
    Decision,
    SettingChange,
    actions_for,
    decisions,
    settings,
    settings_of,
    value_of,
    with_settings,
)
from eventlog.merging.planning.same_rows import Differs
from eventlog.model.actions import (
    Action,
    AppRise,
    Replace,
    SetBuckets,
    SetGranularity,
    SetProperties,
    SetSchema,
)
from eventlog.model.entries import Segment
from eventlog.model.records import Meta
from eventlog.quantities import count_text


class Planner:
    """Decides which changes of the source's commits are merged, commit by commit, in order.

    The planner keeps track of the target's state after the transactions that it has planned.

    Args:
        pair: the two logs.
        meta: the target's small state.
        live: the ids of the target's live segments, as far as the source's commits bear on them.
        past: what both logs did since the fork point; None if no decision has needed it so far.

    Attributes:
        skipped: for each version, the number of transactions that the target has already.
        declined: for each version, the number of rewrites left out, since they change no rows.
    """

    def __init__(
        self, pair: Pair, meta: Meta, live: Collection[str], past: Divergence | None
    ) -> None:
        self.skipped: dict[int, int] = {}
        self.declined: dict[int, int] = {}
        self._pair, self._meta, self._live = pair, meta, set(live)
        self._past = past
        self._applied = AlreadyApplied(pair, meta, past)
        self._decisions: dict[str, Decision] = {} if past is None else self._decide(past)

    def carry(self, step: AppliedStep) -> Carried | None:
        """Return the transaction to commit for a commit of the source; None if there is none.

        Raises:
            MergeConflict: the commit cannot be merged.
            PastNeeded: the decision needs what both logs did since the fork point.
        """
        carried = Carried(step.version, step.commit)
        for act in step.acts:
            if self._applied.is_new(act):
                part = self._act(act)
            else:
                self._count(self.skipped, act, act.does_anything)
                part = self._known(act)
            if part is not None:
                carried = carried.then(part)
                if len(step.acts) == 1:
                    carried = replace(carried, deletes=part.deletes)
            if self._applied.rows is not None:
                self._applied.rows.at_source(act)
        if carried.is_empty:
            return None
        return replace(carried, version=step.version, commit=step.commit)

    def rest(self) -> Carried | None:
        """Return the transaction to commit after the last commit; None if there is none."""
        return None

    def _known(self, act: Act) -> Carried | None:
        """Return the transaction to commit for changes that the target has; None: there is none."""
        if self._applied.unit is None or self._applied.rows is None or not act.drops:
            return None
        try:
            # against rows-before-a-unit-kept
            gone = self._applied.rows.remaining(act, self._applied.unit, self._live)
        except Differs as differs:
            raise MergeConflict(
                f"it drops rows by a unit of work that both did, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        self._live.difference_update(gone)
        drops = tuple((i, self._applied.rows.chunks[i]) for i in gone)
        return Carried(act.version, "", drops=drops) if drops else None

    @staticmethod
    def _count(counts: dict[int, int], act: Act, number: int) -> None:
        counts[act.version] = counts.get(act.version, 0) + number

    def _act(self, act: Act) -> Carried | None:
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
        changes = self._changes(act)
        if act.rewrites and not self._applies(act):  # against rewrite-of-what-is-not-there
            self._count(self.declined, act, 1)
            if self._applied.rows is not None:
                self._applied.rows.relate([*(d.id for d in act.drops), *(s.id for s in act.adds)])
            adds: tuple[Segment, ...] = ()
            drops: tuple[tuple[str, str], ...] = ()
            exact = False
        else:
            drops, exact = self._drops(act)
            adds = tuple(s for s in act.adds if s.id not in self._live)
            self._live.difference_update(i for i, _ in drops)
            self._live.update(s.id for s in adds)
        if not (adds or drops or changes):
            return None
        schema = self._meta.schema
        assert schema is not None  # noqa: S101 - every table has one
        replaces = [a for a in act.transaction.actions if isinstance(a, Replace)]
        whole = exact and not changes and len(adds) == len(act.adds)
        return Carried(
            act.version,
            "",
            tuple(translated(s, self._pair.schema, schema) for s in adds),
            drops,
            tuple(changes),
            act.originals,
            self._rises(act),
            replaces[0].deletes if replaces and whole else None,
            (act.transaction.operation,),
            act.count,
        )

    def _own_write(self) -> Act | None:
        """Return the target's first own transaction that added or dropped segments, if any."""
        if self._pair.own is None:
            return None
        if self._past is None:
            raise PastNeeded
        own = self._applied.own
        return next((act for act in own if act.adds or act.drops), None)

    def _applies(self, act: Act) -> bool:
        return all(drop.id in self._live for drop in act.drops)

    def _drops(self, act: Act) -> tuple[tuple[tuple[str, str], ...], bool]:
        """Return the target's drops, and whether they are the same segments as the source's."""
        here = [(d.id, d.chunk) for d in act.drops if d.id in self._live]
        missing = [d.id for d in act.drops if d.id not in self._live]
        if not missing:
            return tuple(here), True
        if self._applied.rows is None:
            raise PastNeeded
        try:
            more = self._applied.rows.counterpart(act, missing, self._live)
        except Differs as differs:
            dropped = count_text(len(act.drops), "segment")
            raise MergeConflict(
                f"it drops {dropped}, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        return (*here, *((i, self._applied.rows.chunks[i]) for i in dict.fromkeys(more))), False

    def _rises(self, act: Act) -> dict[str, AppRise]:
        """Return the new sequences of the apps whose units of work are merged, and note them."""
        rises = {}
        for app, done in log_acts.kept(act.units).items():
            old, last = self._applied.seqs.get(app), done[-1][1]
            rises[app] = AppRise(old, done)
            self._applied.seqs[app] = last if old is None else max(old, last)
        return dict(sorted(rises.items(), key=lambda item: item[0].encode()))

    def _changes(self, act: Act) -> list[Action]:
        """Return the changes of the small state that the target makes, and note them."""
        found: list[Action] = []
        for action in act.transaction.actions:
            made: Action | None = None
            if isinstance(action, SetSchema):
                made = self._schema(action, act.version)
            elif isinstance(action, SetProperties | SetGranularity):
                found += self._settings(action, act.version)
            elif isinstance(action, SetBuckets):
                made = self._buckets(action)
            if made is not None:
                found.append(made)
        return found

    def _buckets(self, action: SetBuckets) -> SetBuckets | None:
        layout = self._meta.layout
        keyed = None if layout is None else keyed_of(layout)
        if layout is None or keyed is None or keyed.buckets >= action.new:
            return None  # the target has split its buckets as well
        keyed = msgspec.structs.replace(keyed, buckets=action.new)
        self._meta = msgspec.structs.replace(
            self._meta, layout=msgspec.structs.replace(layout, keyed=keyed)
        )
        return action

    def _schema(self, action: SetSchema, version: int) -> SetSchema | None:
        assert self._meta.schema is not None  # noqa: S101 - every table has one
        schema = join_columns(action.schema, self._meta.schema)
        if isinstance(schema, str):
            raise MergeConflict(f"it has {schema}", version)
        if schema is self._meta.schema:
            return None
        self._meta = msgspec.structs.replace(self._meta, schema=schema)
        return SetSchema(schema)

    def _settings(self, action: Action, version: int) -> list[Action]:
        """Return the changes of properties or of the granularity that the target makes."""
        made = []
        for change in settings(action, version):
            now, end = (value_of(meta, change.name) for meta in (self._meta, self._pair.meta))
            if now == end:
                continue  # values that the source had in between are left out
            if self._past is None and self._pair.own is not None:
                raise PastNeeded
            new = change.new if self._past is None else self._decided(change, now, end)
            if new != now:
                made.append(replace(change, old=now, new=new))
        self._meta = with_settings(self._meta, made)
        return actions_for(made)

    def _decide(self, past: Divergence) -> dict[str, Decision]:
        """Return which log's value counts, for each setting that the source changed."""
        known, theirs = (
            log_acts.KnownCommits(past.target),
            log_acts.KnownCommits((*past.source, *past.later)),
        )
        later = (act for step in past.later for act in step.acts)
        ours = (act for step in past.target for act in step.acts)
        return decisions(
            settings_of(later, known.has),
            settings_of(ours, lambda act: act.version <= past.seen or theirs.has(act)),
            self._pair.meta,
            self._meta,
        )

    def _decided(self, change: SettingChange, now: str | None, end: str | None) -> str | None:
        """Return the value that the target has after a change of the source."""
        decision = self._decisions[change.name]
        if decision.choice == "conflict":
            raise MergeConflict(
                f"it sets {change.what} to {change.new!r}, and the target has set it to {now!r}",
                change.version,
                decision.against,
            )
        if decision.choice == "keep":
            return now
        return change.new if now == change.old else end
