"""Plans which changes of the small state a merge takes over from the source. No I/O."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from eventlog.keyed.rule import keyed_of
from eventlog.merging import log_acts
from eventlog.merging.log_acts import Act
from eventlog.merging.planning.carried import Carried, Divergence, MergeConflict, Pair
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
from eventlog.merging.planning.schemas.merged_schema import merge_schemas, translated
from eventlog.merging.planning.schemas.schema_history import SchemaHistory, schema_history
from eventlog.model.actions import (
    Action,
    SetBuckets,
    SetGranularity,
    SetProperties,
    SetSchema,
)
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Meta


class SmallStatePlan:
    """The target's small state while a merge is planned, transaction by transaction.

    Args:
        pair: the two logs.
        meta: the target's small state.
        past: what both logs did since the fork point.
    """

    def __init__(self, pair: Pair, meta: Meta, past: Divergence) -> None:
        self._pair, self._meta = pair, meta
        self._schemas = _schema_histories(pair, meta, past)
        self._is_schema_merged, self._later = False, past.later
        self._steps: tuple[Schema, ...] = ()
        self._decisions = _decisions(pair, meta, past)

    @property
    def schema(self) -> Schema:
        """The target's schema, with the columns of the transactions planned so far."""
        schema = self._meta.schema
        assert schema is not None  # noqa: S101 - every table has one
        return schema

    def translated(self, segment: Segment) -> Segment:
        """Return an entry of the source with the number that its schema has at the target."""
        source, target = self._schemas
        return translated(segment, source, (*target.schemas, *self._steps))

    def changes(self, act: Act) -> list[Action]:
        """Return the changes that the target makes for a transaction of the source, and note them.

        Raises:
            MergeConflict: both logs changed the same property or column in different ways.
        """
        changes: list[Action] = []
        for action in act.transaction.actions:
            change: Action | None = None
            if isinstance(action, SetSchema):
                changes += self._schema_changes()
            elif isinstance(action, SetProperties | SetGranularity):
                changes += self._setting_changes(action, act.version)
            elif isinstance(action, SetBuckets):
                change = self._split(action)
            if change is not None:
                changes.append(change)
        return changes

    def _schema_changes(self) -> list[SetSchema]:
        """Return what all commits of the source change together; nothing if they were asked before.

        One that a later one takes back is no change.
        """
        if self._is_schema_merged:
            return []
        self._is_schema_merged = True
        steps = merge_schemas(*self._schemas).steps
        self._steps = steps
        if steps:
            self._meta = msgspec.structs.replace(self._meta, schema=steps[-1])
        return [SetSchema(schema) for schema in steps]

    def rest(self) -> Carried | None:
        """Return what makes the two schemas one where both logs have all changes; None if they are.

        They had the changes in other orders, by way of third logs.
        """
        known = [act for step in self._later for act in step.acts if act.changes_schema]
        source, target = self._schemas
        if self._is_schema_merged or not known or source.own or target.own:
            return None
        changes = self._schema_changes()
        if not changes:
            return None
        originals = {name: n for act in known for name, n in act.originals.items()}
        last = self._later[-1]
        names = tuple(name for act in known for name in act.operations)
        return Carried(
            last.version, last.commit, changes=tuple(changes), commits=originals, operations=names
        )

    def _split(self, action: SetBuckets) -> SetBuckets | None:
        layout = self._meta.layout
        keyed = None if layout is None else keyed_of(layout)
        if layout is None or keyed is None or keyed.buckets >= action.new:
            return None  # the target has split its buckets as well
        keyed = msgspec.structs.replace(keyed, buckets=action.new)
        self._meta = msgspec.structs.replace(
            self._meta, layout=msgspec.structs.replace(layout, keyed=keyed)
        )
        return action

    def _setting_changes(self, action: Action, version: int) -> list[Action]:
        """Return the changes of properties or of the granularity that the target makes."""
        made = []
        for change in settings(action, version):
            now, end = (value_of(meta, change.name) for meta in (self._meta, self._pair.meta))
            if now == end:
                continue  # values that the source had in between are left out
            new = self._decided(change, now, end)
            if new != now:
                made.append(replace(change, old=now, new=new))
        self._meta = with_settings(self._meta, made)
        return actions_for(made)

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


def _schema_histories(
    pair: Pair, meta: Meta, past: Divergence
) -> tuple[SchemaHistory, SchemaHistory]:
    """Return how the source and the target came to their schemas."""
    assert meta.schema is not None  # noqa: S101 - every table has one
    target_commits = log_acts.KnownCommits(past.target)
    source_commits = log_acts.KnownCommits((*past.source, *past.later))
    theirs = (act for step in (*past.source, *past.later) for act in step.acts)
    ours = (act for step in past.target for act in step.acts)
    forked = pair.forked or meta.schema
    return (
        schema_history(forked, pair.schema, theirs, target_commits.has),
        schema_history(
            forked,
            meta.schema,
            ours,
            lambda act: act.version <= past.seen or source_commits.has(act),
        ),
    )


def _decisions(pair: Pair, meta: Meta, past: Divergence) -> dict[str, Decision]:
    """Return which log's value counts, for each setting that the source changed."""
    target_commits = log_acts.KnownCommits(past.target)
    source_commits = log_acts.KnownCommits((*past.source, *past.later))
    later = (act for step in past.later for act in step.acts)
    ours = (act for step in past.target for act in step.acts)
    return decisions(
        settings_of(later, target_commits.has),
        settings_of(ours, lambda act: act.version <= past.seen or source_commits.has(act)),
        pair.meta,
        meta,
    )
