"""Decides which schema the target of a merge gets: columns by id, checks by name. No I/O.

Each part is decided by itself, as settings are: by what each log made of it that the other one does
not have. A log that made nothing of its schema gets the other one's as a whole, so merges in both
directions leave both logs with one schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.merging.planning.carried import Choice, MergeConflict
from eventlog.merging.planning.schemas.added_columns import with_added_columns
from eventlog.merging.planning.schemas.merged_columns import merge_columns
from eventlog.merging.planning.schemas.schema_history import SchemaHistory, winner
from eventlog.merging.planning.schemas.schema_parts import LeftPart
from eventlog.model.columns.column_types import ascii_lower
from eventlog.model.columns.evolution import check_successor, needs_ids
from eventlog.model.columns.ids import all_ids, ids_in
from eventlog.model.columns.named_checks import checks_of, renumbered_checks, with_checks
from eventlog.model.entries import Check, Column, Schema, Segment
from eventlog.model.schema import retired_ids


@dataclass(frozen=True, slots=True)
class MergedSchema:
    """The schema that the target of a merge gets.

    Attributes:
        steps: the schemas that the target takes one after another; none if it stays as it is. There
            are several where the ids of added columns follow from names that they had before.
        left_out: the parts that are left out, since somebody chose the other log's.
    """

    steps: tuple[Schema, ...] = ()
    left_out: tuple[LeftPart, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the target's schema is to be; its number and those of checks follow."""

    columns: tuple[Column, ...]
    checks: tuple[Check, ...]
    retired: frozenset[int]
    by_id: bool

    def after(self, old: Schema) -> Schema | str:
        """Return the schema after another one, or what is wrong with it."""
        live = {number for column in self.columns for number in ids_in(column)}
        gone = {*all_ids(old)} - live
        retired = tuple(sorted(({*retired_ids(old), *gone} | self.retired) - live))
        by_id = True if self.by_id else old.by_id
        new = Schema(old.id + 1, self.columns, retired or UNSET, by_id)
        if needs_ids(old, new):
            new = msgspec.structs.replace(new, by_id=True)
        new = with_checks(new, renumbered_checks(self.checks, old, new))
        return check_successor(old, new) or new

    def is_met(self, known: Schema) -> bool:
        """Return whether a schema is this one."""
        return (
            self.columns == known.columns
            and _plain(self.checks) == _plain(checks_of(known))
            and self.retired <= {*retired_ids(known)}
            and (not self.by_id or not isinstance(known.by_id, UnsetType))
        )


def merge_schemas(
    source: SchemaHistory,
    target: SchemaHistory,
    take: Choice | None = None,
) -> MergedSchema:
    """Return which schema the target gets.

    Args:
        source: how the source came to its schema.
        target: how the target came to its schema.
        take: whose part counts where both logs changed one in different ways; None: a conflict.

    Raises:
        MergeConflict: both logs changed one check or one column in different ways, and nobody has
            chosen, or the choice does not resolve it.
    """
    if target.own and not source.own:
        return MergedSchema()
    theirs, ours = source.end, target.end
    left_out: tuple[LeftPart, ...] = ()
    if source.own and not target.own and _follows(theirs, ours):
        columns, checks = theirs.columns, checks_of(theirs)
    else:
        columns, left_out = merge_columns(source, target, take)
        checks, more = _checks(source, target, take)
        checks, unreadable = _readable(source, target, checks, columns, take)
        left_out += more + unreadable
    live = {number for column in columns for number in ids_in(column)}
    wanted = _Wanted(
        columns,
        checks,
        frozenset(retired_ids(theirs)) - live,
        not isinstance(theirs.by_id, UnsetType),
    )
    steps = _steps(source, target, wanted)
    if left_out and not steps:  # against choice-of-a-part-forgotten
        steps = (msgspec.structs.replace(ours, id=ours.id + 1),)
    return MergedSchema(steps, left_out)


def translated(entry: Segment, source: SchemaHistory, target: Sequence[Schema]) -> Segment:
    """Return an entry of the source with the number that its schema has at the target (R19.7).

    Readers by name go by the schema that a segment was written with. So it gets no other number
    than that of a schema with the same columns, and 0 if the target has none.

    Args:
        entry: the entry.
        source: how the source came to its schema.
        target: the schemas of the target since the fork point, those of the merge included.
    """
    shared = source.steps[0].old if source.steps else source.end
    if entry.schema <= shared.id:
        return entry
    written = next((step.new for step in source.steps if step.new.id == entry.schema), None)
    alike = (
        schema.id
        for schema in reversed(target)
        if written is not None and _in_files(schema) == _in_files(written)
    )
    # against written-schema-of-another-log
    return msgspec.structs.replace(entry, schema=next(alike, 0))


def _in_files(schema: Schema) -> dict[int, tuple[Any, ...]]:
    """Return what decides how readers by name read files of a schema: its columns by their ids."""
    return {column.id: (column.name, column.type, column.initial) for column in schema.columns}


def _follows(theirs: Schema, ours: Schema) -> bool:
    """Return whether a schema may take the place of the target's: no column of that is lost."""
    known = {*all_ids(theirs), *retired_ids(theirs)}
    return known.issuperset(all_ids(ours)) and not {*all_ids(theirs)} & {*retired_ids(ours)}


def _checks(
    source: SchemaHistory, target: SchemaHistory, take: Choice | None
) -> tuple[tuple[Check, ...], tuple[LeftPart, ...]]:
    """Return the checks that both logs lead to, and what a choice leaves out."""
    ends = (*checks_of(source.end), *checks_of(target.end))
    found, left_out = [], []
    for name in sorted({ascii_lower(check.name) for check in ends}):
        part = _check_named(name)
        choice = winner(source, target, part, with_choices=True)
        if choice == "conflict":
            left_out.append(_left_check(source, target, name, take))
            choice = "take" if take == "source" else "keep"
        check = part((source if choice == "take" else target).end)
        found += [] if check is None else [check]
    return tuple(found), tuple(left_out)


def _left_check(
    source: SchemaHistory,
    target: SchemaHistory,
    name: str,
    take: Choice | None,
) -> LeftPart:
    """Return what a choice leaves out of a check that both logs changed in different ways."""
    part = _check_named(name)
    versions = [
        tuple(change.version for change in log.changes(part, with_choices=True))
        for log in (source, target)
    ]
    end, now = part(source.end), part(target.end)
    if take is None:
        raise MergeConflict(
            f"it {_made_of(end, now)}, and the target {_made_of(now, end)}",
            versions[0][-1],
            versions[1][-1],
        )
    is_theirs = take == "target"
    value, other = (end, now) if is_theirs else (now, end)
    changed = versions[0] if is_theirs else versions[1]
    return LeftPart("source" if is_theirs else "target", _left_text(value, other), changed)


def _left_text(check: Check | None, other: Check | None) -> str:
    """Return what is left out of a check, of which another log has another value."""
    if check is not None:
        return f"check {check.name!r}: {check.expression}"
    return f"the drop of check {other.name!r}" if other is not None else "no check"


def _made_of(check: Check | None, other: Check | None) -> str:
    """Return in words what a log made of a check, of which another log has another value."""
    if check is not None:
        return f"adds check {check.name!r}: {check.expression}"
    return f"drops check {other.name!r}" if other is not None else "has no check"


def _readable(
    source: SchemaHistory,
    target: SchemaHistory,
    checks: tuple[Check, ...],
    columns: Sequence[Column],
    take: Choice | None,
) -> tuple[tuple[Check, ...], tuple[LeftPart, ...]]:
    """Return the checks whose columns are there, and those of columns that one log has dropped.

    Raises:
        MergeConflict: there is one of these, and nobody has chosen a side.
    """
    live = {column.id for column in columns}
    left_out = []
    for check in checks:
        gone = [column.name for column in check.columns if column.id not in live]
        if not gone:
            continue
        is_theirs = _check_named(ascii_lower(check.name))(source.end) is not None
        if take is None:
            one, other = ("it has", "the target") if is_theirs else ("the target has", "it")
            raise MergeConflict(
                f"{one} the check {check.name!r} of column {gone[0]!r}, which {other} has dropped: "
                "either choice drops the check",
                source.own[-1].version,
            )
        log = source if is_theirs else target
        versions = tuple(step.version for step in log.own)
        loser: Choice = "source" if is_theirs else "target"
        left_out.append(LeftPart(loser, _left_text(check, None), versions))
    kept = tuple(check for check in checks if live.issuperset(c.id for c in check.columns))
    return kept, tuple(left_out)


def _check_named(name: str) -> Callable[[Schema], Check | None]:
    """Return what finds a check by its name in small letters, without the number of its schema."""

    def find(schema: Schema) -> Check | None:
        found = (check for check in checks_of(schema) if ascii_lower(check.name) == name)
        return next((msgspec.structs.replace(check, schema=0) for check in found), None)

    return find


def _plain(checks: Iterable[Check]) -> list[Check]:
    plain = [msgspec.structs.replace(check, schema=0) for check in checks]
    return sorted(plain, key=lambda check: check.name.encode())


def _steps(source: SchemaHistory, target: SchemaHistory, wanted: _Wanted) -> tuple[Schema, ...]:
    """Return the schemas that lead the target to the wanted one.

    Raises:
        MergeConflict: none do, since an added column would get another id.
    """
    now = target.end
    if wanted.is_met(now):
        return ()
    last = wanted.after(now)
    if isinstance(last, Schema):
        return (last,)
    # A column that the source added under another name has its id from that name (R7.11).
    steps = []
    for step in source.steps:
        following = with_added_columns(now, step.old, step.new)
        if following is not None:
            steps.append(following)
            now = following
    last = wanted.after(now)
    if isinstance(last, str):
        raise MergeConflict(
            f"the two schemas cannot be joined: {last}", source.steps[-1].version, choices=()
        )
    return (*steps, last)
