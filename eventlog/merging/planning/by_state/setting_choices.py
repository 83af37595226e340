"""Which schema, properties, granularity and buckets two united logs have. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from eventlog.keyed.rule import keyed_of
from eventlog.merging.planning.by_state.sides import LeftOut, LogDifference, Side, Take
from eventlog.merging.planning.carried import MergeConflict
from eventlog.merging.planning.columns import join_columns
from eventlog.merging.planning.merged_settings import (
    SettingChange,
    actions_for,
    settings_of,
    value_of,
)
from eventlog.model.actions import Action, SetBuckets, SetSchema
from eventlog.model.columns.named_checks import checks_of, with_checks
from eventlog.model.entries import Schema


@dataclass(frozen=True, slots=True)
class SettingChoices:
    """The changes of the small state that a union commits.

    Attributes:
        changes: the actions.
        schema: the target's schema after them.
        left_out: the values that are left out, since somebody chose the other log's.
    """

    changes: tuple[Action, ...]
    schema: Schema
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
        MergeConflict: both set one setting, and `take` is None; or one column has two types.
    """
    schema = _joined_schema(source, target)
    actions: list[Action] = [] if schema == target.side.schema else [SetSchema(schema)]
    theirs, ours = settings_of(source.acts), settings_of(target.acts)
    changes, left_out = [], []
    for name in sorted(theirs):
        old, new = value_of(target.side.meta, name), value_of(source.side.meta, name)
        change = SettingChange(name, old, new)
        if old == new:
            continue
        if name in ours:
            left_out.append(_left_out(source, target, change, take))
        if name not in ours or take == "source":
            changes.append(change)
    actions += actions_for(changes)
    return SettingChoices((*actions, *_splits(source.side, target.side)), schema, tuple(left_out))


def _joined_schema(source: LogDifference, target: LogDifference) -> Schema:
    """Return the target's schema with the changes of the source that the target does not have."""
    before = source.side.schema if source.side.before is None else source.side.before
    lacking = {id(act) for act in source.acts}
    joined = target.side.schema
    changes = [
        (id(act) in lacking, act.version, action.schema)
        for act in source.side.acts
        for action in act.transaction.actions
        if isinstance(action, SetSchema)
    ]
    # What the source changed in a row counts as one change: it may have taken something back.
    for is_lacking, group in groupby(changes, key=lambda change: change[0]):
        *_, (_, version, after) = group
        if is_lacking:
            schema = join_columns(before, after, joined)
            if isinstance(schema, str):
                raise MergeConflict(f"the columns differ: {schema}", version, lasting=True)
            joined = schema
        before = after
    known = target.side.schema
    next_id = known.id + 1
    checks = [
        check if check in checks_of(known) else msgspec.structs.replace(check, schema=next_id)
        for check in checks_of(joined)
    ]
    if (joined.columns, tuple(checks)) == (known.columns, checks_of(known)):
        return known
    return with_checks(msgspec.structs.replace(joined, id=next_id), checks)


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
