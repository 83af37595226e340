"""The columns that two schemas are compared with when they are joined. No I/O.

A join of two schemas takes what differs from their base. Here the base of two logs is put together
part by part: where the source's part counts, the base has the target's, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from eventlog.merging.planning.carried import Choice
from eventlog.merging.planning.schemas.schema_history import SchemaHistory, winner
from eventlog.merging.planning.schemas.schema_parts import part_of, part_text
from eventlog.model.columns.column_types import InnerField, inner_fields, with_fields
from eventlog.model.columns.evolution import is_widening
from eventlog.model.columns.ids import all_ids
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.schema import retired_ids

_Part = TypeVar("_Part", Column, InnerField)


@dataclass(frozen=True, slots=True)
class ColumnConflict:
    """A part of the columns of which both logs made something, and nothing tells what counts.

    Attributes:
        kind: "form" if either log's form can count, "dropped" if one log has dropped the column
            or field, and "types" if values of both logs exclude each other in one column.
        what: in words, for each log what is left out if the other log is chosen.
        versions: for each log the versions in which it changed this part.
        number: the id of the column or field; 0 for an order.
        dropped_by: the log that has dropped it; None: neither has.
    """

    kind: Literal["form", "dropped", "types"]
    what: dict[Choice, str]
    versions: dict[Choice, tuple[int, ...]]
    number: int = 0
    dropped_by: Choice | None = None


class SchemaBase:
    """Puts the base of two schemas together.

    Args:
        source: how the source came to its schema.
        target: how the target came to its schema.
        take: whose form counts where both logs changed one in different ways; None: the target's.

    Attributes:
        conflicts: where nothing but the choice tells which log's form counts, or not even that.
    """

    def __init__(
        self, source: SchemaHistory, target: SchemaHistory, take: Choice | None = None
    ) -> None:
        self._source, self._target, self._take = source, target, take
        self._dropped_here, self._dropped_there = (
            {*retired_ids(log.end)} for log in (target, source)
        )
        self.conflicts: list[ColumnConflict] = []

    def columns(self) -> list[Column]:
        """Return the columns of the base, and note the conflicts."""
        return self._parts(self._source.end.columns, self._target.end.columns, self._column)

    def _parts(
        self,
        theirs: Sequence[_Part],
        ours: Sequence[_Part],
        join: Callable[[_Part, _Part], _Part],
    ) -> list[_Part]:
        of_theirs: dict[int, _Part] = {part.id: part for part in theirs}
        of_ours: dict[int, _Part] = {part.id: part for part in ours}
        order = self._order([*of_theirs], [*of_ours])
        found = [join(of_theirs[number], of_ours[number]) for number in order]
        for number, part in of_theirs.items():
            if number not in of_ours and number in self._dropped_here:
                self._check_unchanged("source", number)
                found.append(part)
        for number, part in of_ours.items():
            if number not in of_theirs and number in self._dropped_there:
                self._check_unchanged("target", number)
                found.append(part)
        return found

    def _check_unchanged(self, side: Choice, number: int) -> None:
        """Note a conflict if a log made something of a column that the other log dropped."""
        log = self._source if side == "source" else self._target
        changes = log.changes(lambda schema: part_of(schema, number))
        # against column-of-both-dropped-by-one
        if changes and changes[0].old != part_of(log.end, number):
            other: Choice = "target" if side == "source" else "source"
            text = self._shown(number)
            what: dict[Choice, str] = {side: text, other: f"the drop of {text}"}
            self._note("dropped", lambda s: part_of(s, number), what, number, other)

    def _column(self, theirs: Column, ours: Column) -> Column:
        if theirs.initial != ours.initial:
            self._note_types(ours.id)
        return msgspec.structs.replace(
            ours,
            name=self._loser(ours.id, "name"),
            type=self._type(ours.id, theirs.type, ours.type),
            write=self._loser(ours.id, "write"),
        )

    def _field(self, theirs: InnerField, ours: InnerField) -> InnerField:
        name = self._loser(ours.id, "name")
        return InnerField(ours.id, name, self._type(ours.id, theirs.type, ours.type))

    def _type(self, number: int, theirs: ColumnType, ours: ColumnType) -> ColumnType:
        if theirs == ours or is_widening(ours, theirs):
            return ours
        if is_widening(theirs, ours):
            return theirs
        if isinstance(theirs, str) or isinstance(ours, str) or [*theirs] != [*ours]:
            self._note_types(number)
            return ours
        return with_fields(ours, self._parts(inner_fields(theirs), inner_fields(ours), self._field))

    def _note_types(self, number: int) -> None:
        what: dict[Choice, str] = {
            "source": self._shown(number),
            "target": self._shown(number, "target"),
        }
        self._note("types", lambda schema: part_of(schema, number), what, number)

    def _loser(self, number: int, name: str) -> Any:
        """Return the value of the log that does not count."""
        word = "name" if name == "name" else "default"
        what: dict[Choice, str] = {
            "source": f"the {word} of {self._shown(number)}",
            "target": f"the {word} of {self._shown(number, 'target')}",
        }
        return self._other(lambda schema: getattr(part_of(schema, number), name, None), what)

    def _other(self, part: Callable[[Schema], Any], what: dict[Choice, str]) -> Any:
        # against choice-of-a-column-forgotten
        choice = winner(self._source, self._target, part, with_choices=True)
        if choice == "conflict":
            self._note("form", part, what)
            choice = "take" if self._take == "source" else "keep"
        return part((self._target if choice == "take" else self._source).end)

    def _order(self, theirs: Sequence[int], ours: Sequence[int]) -> list[int]:
        """Return the ids of both, in the order of the log whose order does not count."""
        here, there = [n for n in ours if n in theirs], [n for n in theirs if n in ours]
        if here == there:
            return here
        logs = (self._source, self._target)
        schemas = (one for log in logs for step in log.steps for one in (step.old, step.new))
        # Where both have all changes, no order of an earlier schema is compared.
        always = {*here}
        if self._source.own or self._target.own:
            always = always.intersection(*({*all_ids(schema)} for schema in schemas))
        known = [[n for n in side if n in always] for side in (here, there)]
        if known[0] == known[1]:
            return here
        text = "the order of columns"
        kept = self._other(
            lambda schema: [n for n in all_ids(schema) if n in always],
            {"source": text, "target": text},
        )
        return here if kept == known[0] else there

    def _note(
        self,
        kind: Literal["form", "dropped", "types"],
        part: Callable[[Schema], Any],
        what: dict[Choice, str],
        number: int = 0,
        dropped_by: Choice | None = None,
    ) -> None:
        logs: dict[Choice, SchemaHistory] = {"source": self._source, "target": self._target}
        versions = {
            side: tuple(change.version for change in log.changes(part, with_choices=True))
            for side, log in logs.items()
        }
        self.conflicts.append(ColumnConflict(kind, what, versions, number, dropped_by))

    def _shown(self, number: int, side: Choice = "source") -> str:
        """Return a column or field in words, with the name that it has in a log, if it is there."""
        ends = (self._source.end, self._target.end)
        return part_text(ends if side == "source" else ends[::-1], number)
