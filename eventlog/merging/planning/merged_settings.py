"""Merges the properties and the granularity of two logs that have diverged. No I/O.

For each log the first and the last value of a setting count: a log that tried a value and set the
old one again has decided nothing (MERGING.md R19.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from eventlog.merging.log_acts import Act
from eventlog.model.actions import Action, PropertyChange, SetGranularity, SetProperties
from eventlog.model.entries import GRANULARITIES
from eventlog.model.properties import AUTO, setting
from eventlog.model.records import Meta

_GRANULARITY = "\0granularity"  # no property has this name


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change of one property, or of the granularity.

    Attributes:
        name: the property's name; for the granularity a text that is no property's name.
        old: the value before the change; None: there was none.
        new: the value after the change; None: the property was removed.
        version: the version that made the change.
    """

    name: str
    old: str | None
    new: str | None
    version: int = -1

    @property
    def what(self) -> str:
        """The property, or the granularity, for a message."""
        return "the granularity" if self.name == _GRANULARITY else f"property {self.name!r}"


def settings(action: Action, version: int) -> list[SettingChange]:
    """Return the settings that an action changes; none if it changes no setting."""
    if isinstance(action, SetProperties):
        return [SettingChange(c.name, c.old, c.new, version) for c in action.changes]
    if isinstance(action, SetGranularity):
        return [SettingChange(_GRANULARITY, action.old, action.new, version)]
    return []


def settings_of(
    acts: Iterable[Act], shared: Callable[[Act], bool] = lambda _: False
) -> dict[str, list[SettingChange]]:
    """Return the changes of each setting by name, in the order of the acts.

    Args:
        acts: the transactions of a log.
        shared: whether the other log has a transaction's changes. Such a change replaces all
            changes before it: whoever merged it has decided about these.
    """
    by_name: dict[str, list[SettingChange]] = {}
    for act in acts:
        for action in act.transaction.actions:
            for change in settings(action, act.version):
                changes = by_name.setdefault(change.name, [])
                if shared(act):
                    changes.clear()
                else:
                    changes.append(change)
    return by_name


def value_of(meta: Meta, name: str) -> str | None:
    """Return the value of a setting; None if it has none."""
    if name == _GRANULARITY:
        return None if meta.layout is None else meta.layout.granularity
    return meta.properties.get(name)


def differing(theirs: Meta, ours: Meta) -> list[SettingChange]:
    """Return the settings of which two logs have different values, by name: ours and theirs."""
    names = sorted({_GRANULARITY, *theirs.properties, *ours.properties})
    values = [(name, value_of(ours, name), value_of(theirs, name)) for name in names]
    return [SettingChange(name, old, new) for name, old, new in values if old != new]


def with_settings(meta: Meta, changes: Iterable[SettingChange]) -> Meta:
    """Return the small state after changes of settings."""
    layout, values = meta.layout, dict(meta.properties)
    for change in changes:
        if change.name == _GRANULARITY and layout is not None:
            layout = msgspec.structs.replace(layout, granularity=change.new)
        elif change.name != _GRANULARITY:
            values.pop(change.name, None)
            if change.new is not None:
                values[change.name] = change.new
    return msgspec.structs.replace(meta, layout=layout, properties=values)


def actions_for(changes: Sequence[SettingChange]) -> list[Action]:
    """Return the actions that make these changes, which all have different names."""
    actions: list[Action] = [
        SetGranularity(c.old, c.new)  # type: ignore[arg-type]
        for c in changes
        if c.name == _GRANULARITY
    ]
    others = [PropertyChange(c.name, c.old, c.new) for c in changes if c.name != _GRANULARITY]
    return [*actions, SetProperties(tuple(others))] if others else actions


@dataclass(frozen=True, slots=True)
class Decision:
    """Which log's value of a setting counts.

    Attributes:
        choice: "take" the source's value, "keep" the target's value, or "conflict".
        against: the newest version of the target that changed the setting and that the source
            lacks; None if there is none.
    """

    choice: Literal["take", "keep", "conflict"]
    against: int | None


def decisions(
    source: Mapping[str, Sequence[SettingChange]],
    target: Mapping[str, Sequence[SettingChange]],
    theirs: Meta,
    ours: Meta,
) -> dict[str, Decision]:
    """Return which log's value counts, for each setting that the source changed.

    Args:
        source: the changes of the source that the target lacks.
        target: the changes of the target that the source lacks.
        theirs: the source's small state.
        ours: the target's small state.
    """
    decided = {}
    for name, changes in source.items():
        own = target.get(name, [])
        choice = choice_of(changes, value_of(theirs, name), own, value_of(ours, name))
        if choice == "conflict":
            choice = choice_of_granularity(name, theirs, ours) or choice
        decided[name] = Decision(choice, own[-1].version if own else None)
    return decided


def choice_of_granularity(name: str, theirs: Meta, ours: Meta) -> Literal["take", "keep"] | None:
    """Return which log's granularity counts where both have set one; None: it is a conflict.

    One that follows the data of a log does not count against one that somebody has set in the
    other log, and of two that follow it the coarser counts (MERGING.md R19.6).

    Args:
        name: the setting: None is returned for properties.
        theirs: the source's small state.
        ours: the target's small state.
    """
    follow = [bool(setting(meta.properties, AUTO)) for meta in (theirs, ours)]
    if name != _GRANULARITY or not any(follow):  # against moved-granularity-is-a-conflict
        return None
    if not all(follow):
        return "keep" if follow[0] else "take"
    coarser = max(
        (value_of(meta, name) for meta in (theirs, ours)), key=(None, *GRANULARITIES).index
    )
    return "take" if coarser != value_of(ours, name) else "keep"


class ValueChange(Protocol):
    """A change of a value that two logs may set."""

    @property
    def old(self) -> Any:
        """The value before the change."""

    @property
    def new(self) -> Any:
        """The value after the change."""


def choice_of(
    source: Sequence[ValueChange], end: Any, target: Sequence[ValueChange], now: Any
) -> Literal["take", "keep", "conflict"]:
    """Return which log's value counts, of one that two logs have differently.

    Args:
        source: the changes of the source that the target lacks.
        end: the source's last value, which differs from the target's.
        target: the changes of the target that the source lacks.
        now: the target's value.
    """
    if not source or not target:
        return "take" if source else "keep"
    source_went_on = any(change.new == now for change in source)
    target_went_on = any(change.new == end for change in target)
    if source_went_on != target_went_on:  # against settings-swapped
        return "take" if source_went_on else "keep"
    if source_went_on:
        return "conflict"
    if source[0].old == now or target[0].old == target[-1].new:
        return "take"
    return "keep" if target[0].old == end else "conflict"
