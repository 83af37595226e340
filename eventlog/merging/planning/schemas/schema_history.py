"""What a log made of its schema that the other log of a merge does not have. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from eventlog.merging.log_acts import Act
from eventlog.merging.planning.merged_settings import choice_of
from eventlog.model.actions import SetSchema
from eventlog.model.entries import Schema

_UNKNOWN = object()  # equals no part of a schema


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One change of a log's schema.

    Attributes:
        old: the schema before.
        new: the schema after it.
        version: the version that made the change.
        is_shared: whether the other log has it.
        is_choice: whether somebody chose between the schemas of two logs by it.
    """

    old: Schema
    new: Schema
    version: int
    is_shared: bool
    is_choice: bool


@dataclass(frozen=True, slots=True)
class PartChange:
    """A change of one part of a schema: a name, a check, a default, an order.

    Attributes:
        old: the part before; None: there was none.
        new: the part after it.
        version: the version that made the change.
    """

    old: Any
    new: Any
    version: int


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The newest schema of a log, and the changes that led to it.

    Attributes:
        end: the newest schema.
        steps: the changes, in order.
    """

    end: Schema
    steps: Sequence[SchemaStep]

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """Its schemas since the fork point."""
        return (*(step.old for step in self.steps), self.end)

    @property
    def own(self) -> list[SchemaStep]:
        """The changes that the other log does not have."""
        return [step for step in self.steps if not step.is_shared]

    def changes(
        self, part: Callable[[Schema], Any], *, with_choices: bool = False
    ) -> list[PartChange]:
        """Return the changes of a part of the schema since the last one that the other log has.

        Args:
            part: returns the part of a schema.
            with_choices: whether a choice counts as a change also where it left the part as it was.
        """
        found: list[PartChange] = []
        for step in self.steps:
            old, new = part(step.old), part(step.new)
            is_choice = with_choices and step.is_choice
            if old == new and not is_choice:
                continue
            if step.is_shared:
                found.clear()
            else:
                found.append(PartChange(_UNKNOWN if is_choice else old, new, step.version))
        return found


def schema_history(
    start: Schema, end: Schema, acts: Iterable[Act], is_shared: Callable[[Act], bool]
) -> SchemaHistory:
    """Return how a log came to its schema.

    Args:
        start: its schema before the transactions.
        end: its newest schema.
        acts: its transactions.
        is_shared: returns whether the other log has a transaction's changes.
    """
    steps = []
    for act in acts:
        for action in act.transaction.actions:
            if isinstance(action, SetSchema):
                new = action.schema
                steps.append(SchemaStep(start, new, act.version, is_shared(act), act.is_choice))
                start = new
    return SchemaHistory(end, steps)


def winner(
    source: SchemaHistory,
    target: SchemaHistory,
    part: Callable[[Schema], Any],
    *,
    with_choices: bool = False,
) -> Literal["take", "keep", "conflict"]:
    """Return which log's part of the schema counts: "take" the source's, or "keep" the target's.

    Where both logs have all changes of the part, the greater text counts: the two had these changes
    in other orders, by way of third logs.

    Args:
        source: how the source came to its schema.
        target: how the target came to its schema.
        part: returns the part of a schema.
        with_choices: whether a choice counts as a change also where it left the part as it was.
    """
    end, now = part(source.end), part(target.end)
    if end == now:
        return "keep"
    theirs, ours = (log.changes(part, with_choices=with_choices) for log in (source, target))
    if not theirs and not ours:  # against schemas-of-equal-logs-differ
        return "take" if _text(end) > _text(now) else "keep"
    return choice_of(theirs, end, ours, now)


def _text(part: Any) -> bytes:
    return b"" if part is None or part is UNSET else msgspec.json.encode(part, order="sorted")
