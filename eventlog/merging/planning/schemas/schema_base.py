"""The columns that two schemas are compared with when they are joined. No I/O.

A join of two schemas takes what differs from their base. Here the base of two logs is put together
part by part: where the source's part counts, the base has the target's, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from eventlog.merging.planning.schemas.schema_history import SchemaHistory, winner
from eventlog.model.columns.column_types import (
    InnerField,
    all_fields,
    inner_fields,
    type_problem,
    with_fields,
)
from eventlog.model.columns.evolution import is_widening
from eventlog.model.columns.ids import all_ids
from eventlog.model.entries import Column, ColumnType, Schema
from eventlog.model.schema import retired_ids

_Part = TypeVar("_Part", Column, InnerField)


class ColumnsDiffer(Exception):
    """Both logs changed one column, and nothing tells which of the changes counts."""


class SchemaBase:
    """Puts the base of two schemas together.

    Args:
        source: how the source came to its schema.
        target: how the target came to its schema.
    """

    def __init__(self, source: SchemaHistory, target: SchemaHistory) -> None:
        self._source, self._target = source, target
        self._dropped_here, self._dropped_there = (
            {*retired_ids(log.end)} for log in (target, source)
        )

    def columns(self) -> list[Column]:
        """Return the columns of the base.

        Raises:
            ColumnsDiffer: both logs changed one column, and nothing tells which change counts.
        """
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
        for log, parts, others, dropped in (
            (self._source, of_theirs, of_ours, self._dropped_here),
            (self._target, of_ours, of_theirs, self._dropped_there),
        ):
            gone = [number for number in parts if number not in others and number in dropped]
            for number in gone:
                self._check_unchanged(log, number)
                found.append(parts[number])
        return found

    def _check_unchanged(self, log: SchemaHistory, number: int) -> None:
        """Check that a log made nothing of a column that the other log dropped."""
        changes = log.changes(lambda schema: _part_of(schema, number))
        # against column-of-both-dropped-by-one
        if changes and changes[0].old != _part_of(log.end, number):
            raise ColumnsDiffer

    def _column(self, theirs: Column, ours: Column) -> Column:
        if theirs.initial != ours.initial:
            raise ColumnsDiffer
        return msgspec.structs.replace(
            ours,
            name=self._loser(ours.id, "name"),
            type=self._type(theirs.type, ours.type),
            write=self._loser(ours.id, "write"),
        )

    def _field(self, theirs: InnerField, ours: InnerField) -> InnerField:
        name = self._loser(ours.id, "name")
        return InnerField(ours.id, name, self._type(theirs.type, ours.type))

    def _type(self, theirs: ColumnType, ours: ColumnType) -> ColumnType:
        if theirs == ours or is_widening(ours, theirs):
            return ours
        if is_widening(theirs, ours):
            return theirs
        if isinstance(theirs, str) or isinstance(ours, str) or [*theirs] != [*ours]:
            raise ColumnsDiffer
        return with_fields(ours, self._parts(inner_fields(theirs), inner_fields(ours), self._field))

    def _loser(self, number: int, name: str) -> Any:
        """Return the value of the log that does not count."""
        return self._other(lambda schema: getattr(_part_of(schema, number), name, None))

    def _other(self, part: Callable[[Schema], Any]) -> Any:
        choice = winner(self._source, self._target, part)
        if choice == "conflict":
            raise ColumnsDiffer
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
        kept = self._other(lambda schema: [n for n in all_ids(schema) if n in always])
        return here if kept == known[0] else there


def _part_of(schema: Schema, number: int) -> Column | InnerField | None:
    """Return the column or field with an id; None if the schema has none."""
    for column in schema.columns:
        if column.id == number:
            return column
        inner = () if type_problem(column.type) else all_fields(column.type)
        for one in inner:
            if one.id == number:
                return one
    return None
