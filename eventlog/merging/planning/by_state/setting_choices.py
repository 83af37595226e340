"""Which schema, properties, granularity and buckets two united logs have. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.keyed.rule import keyed_of
from eventlog.merging.planning.by_state.sides import LeftOut, LogDifference, Side, Take
from eventlog.merging.planning.carried import MergeConflict
from eventlog.merging.planning.merged_settings import (
    SettingChange,
    actions_for,
    choice_of_granularity,
    settings_of,
    value_of,
)
from eventlog.merging.planning.schemas.merged_schema import merge_schemas
from eventlog.merging.planning.schemas.schema_history import SchemaHistory, schema_history
from eventlog.merging.planning.schemas.schema_parts import LeftPart
from eventlog.model.actions import Action, SetBuckets, SetSchema
from eventlog.model.entries import Schema


@dataclass(frozen=True, slots=True)
class SettingChoices:
    """The changes of the small state that a union commits.

    Attributes:
        changes: the actions.
        theirs: how the source came to its schema.
        ours: the schemas of the target since the fork point, the new ones included.
        left_out: the values that are left out, since somebody chose the other log's.
    """

    changes: tuple[Action, ...]
    theirs: SchemaHistory
    ours: tuple[Schema, ...]
    left_out: tuple[LeftOut, ...]


def choose_settings(
    source: LogDifference, target: LogDifference, take: Take | None
) -> SettingChoices:
    """Return the changes of the small state that make the target what both logs are.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        take: whose value counts where both set one; None: that is a conflict.

    Raises:
        MergeConflict: both set one setting, and `take` is None; or no choice makes the columns one.
    """
    forked = source.side.forked or source.side.schema
    theirs_schemas, our_schemas = (_schema_history(log, forked) for log in (source, target))
    merged = merge_schemas(theirs_schemas, our_schemas, take)
    actions: list[Action] = [SetSchema(schema) for schema in merged.steps]
    schemas = (*our_schemas.schemas, *merged.steps)
    theirs, ours = settings_of(source.acts), settings_of(target.acts)
    changes, left_out = [], [_left_part(source, target, part) for part in merged.left_out]
    for name in sorted(theirs):
        old, new = value_of(target.side.meta, name), value_of(source.side.meta, name)
        change = SettingChange(name, old, new)
        if old == new:
            continue
        chosen = choice_of_granularity(name, source.side.meta, target.side.meta)
        if name in ours and chosen is not None:
            changes += [change] if chosen == "take" else []
            continue
        if name in ours:
            left_out.append(_left_out(source, target, change, take))
        if name not in ours or take == "source":
            changes.append(change)
    actions += actions_for(changes)
    actions += _splits(source.side, target.side)
    return SettingChoices(tuple(actions), theirs_schemas, schemas, tuple(left_out))


def _schema_history(log: LogDifference, forked: Schema) -> SchemaHistory:
    """Return how a log came to its schema from that of the fork point."""
    other = log.other
    return schema_history(
        forked,
        log.side.schema,
        log.side.acts,
        lambda act: act.version <= other.seen or other.has.has(act),
    )


def _left_part(source: LogDifference, target: LogDifference, left: LeftPart) -> LeftOut:
    """Return what is left out of a part of the schema that both changed."""
    loser = target if left.loser == "target" else source
    return LeftOut(loser.side.uri, left.what, left.versions)


def _left_out(
    source: LogDifference, target: LogDifference, change: SettingChange, take: Take | None
) -> LeftOut:
    """Return which of two values of a setting is left out."""
    theirs, ours = (settings_of(log.acts)[change.name] for log in (source, target))
    if take is None:
        raise MergeConflict(
            f"it sets {change.what} to {change.new!r}, and the target has set it to {change.old!r}",
            theirs[-1].version,
            ours[-1].version,
        )
    loser, value, changes = (
        (target, change.old, ours) if take == "source" else (source, change.new, theirs)
    )
    versions = tuple(setting.version for setting in changes)
    return LeftOut(loser.side.uri, f"{change.what} {value!r}", versions)


def _splits(source: Side, target: Side) -> Sequence[Action]:
    """Return the splits of buckets that the target lacks."""
    theirs, ours = (
        keyed.buckets if side.meta.layout and (keyed := keyed_of(side.meta.layout)) else 0
        for side in (source, target)
    )
    splits = []
    while 0 < ours < theirs:
        splits.append(SetBuckets(ours, 2 * ours))
        ours *= 2
    return splits
