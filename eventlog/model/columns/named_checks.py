"""Checks of a table's rows as they stand in its schema (FORMAT.md R7.13).

No I/O, and no expressions: a fold looks at names and ids alone. What a check says is computed by
`eventlog.query.row_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec import UNSET, UnsetType

from eventlog import limits
from eventlog.model.columns.column_types import ascii_lower
from eventlog.model.entries import Check, Schema

# Types that do not get wider under a check.
_FIXED = ("float32", "date")


def checks_of(schema: Schema | None) -> tuple[Check, ...]:
    """Return the checks of a schema, by name."""
    return () if schema is None or isinstance(schema.checks, UnsetType) else schema.checks


def newest_check(schema: Schema | None) -> int:
    """Return the id of the schema that added the newest of the checks; 0 if there are none."""
    return max((check.schema for check in checks_of(schema)), default=0)


def with_checks(schema: Schema, checks: Sequence[Check]) -> Schema:
    """Return a schema with other checks, in the order in which they are stored."""
    ordered = tuple(sorted(checks, key=lambda check: check.name.encode()))
    return msgspec.structs.replace(schema, checks=ordered or UNSET)


def untested(schema: Schema, known: Schema) -> tuple[Check, ...]:
    """Return the checks of a schema that rows may break which meet those of another schema.

    A check that was dropped and added again is another one: rows came between.

    Args:
        schema: the schema.
        known: the schema whose checks the rows are known to meet, of the same log.
    """
    met = checks_of(known)
    return tuple(check for check in checks_of(schema) if check not in met)


def same_check(one: Check, other: Check) -> bool:
    """Return whether two checks say the same, whenever they were added."""
    return msgspec.structs.replace(one, schema=other.schema) == other


def same_checks(one: Schema, other: Schema) -> bool:
    """Return whether two schemas have the same checks, whenever these were added."""
    mine, others = checks_of(one), checks_of(other)
    return len(mine) == len(others) and all(map(same_check, mine, others))


def checks_problem(schema: Schema) -> str | None:
    """Return what is wrong with the checks of a schema, whatever schema came before it, or None."""
    if isinstance(schema.checks, UnsetType):
        return None
    if not 0 < len(schema.checks) <= limits.CHECKS:
        return f"{len(schema.checks)} checks, where 1 to {limits.CHECKS} can be"
    names = [check.name for check in schema.checks]
    if len({ascii_lower(name) for name in names}) < len(names):
        return "two checks of one name"
    if names != sorted(names, key=str.encode):
        return "checks that are not in the order of their names"
    known = {column.id for column in schema.columns}
    for check in schema.checks:
        if problem := _problem(check, known, schema.id):
            return f"a check {check.name[:80]!r} {problem}"
    return None


def _problem(check: Check, known: set[int], schema: int) -> str | None:
    if not 0 < len(check.name) <= limits.NAME_CHARACTERS:
        return f"whose name has not 1 to {limits.NAME_CHARACTERS} characters"
    if not 0 < len(check.expression) <= limits.CHECK_CHARACTERS:
        return f"whose expression has not 1 to {limits.CHECK_CHARACTERS} characters"
    if not 1 <= check.schema <= schema:
        return f"of schema {check.schema}, which is none of the schemas so far"
    numbers = [column.id for column in check.columns]
    if not numbers or any(a >= b for a, b in pairwise(numbers)):
        return "that lists no columns, or not in the order of their ids"
    lower = [ascii_lower(column.name) for column in check.columns]
    if len({*lower}) < len(lower):
        return "that has one name for two columns"
    if gone := [column for column in check.columns if column.id not in known]:
        return f"that reads column {gone[0].name[:80]!r}, which is not there: drop the check first"
    return None


def successor_check_problem(old: Schema, new: Schema) -> str | None:
    """Return which check of a schema cannot follow those of the schema before it, or None.

    A check stays as it is, or goes. Rows that meet it might break it once floats of 32 bits have
    64 bits (`x = 0.1`), or a date is a timestamp (`CAST(d AS STRING) = '2013-01-07'`).
    """
    before = {check.name: check for check in checks_of(old)}
    kinds = {column.id: column.type for column in old.columns}
    after = {column.id: column for column in new.columns}
    for check in checks_of(new):
        known = before.get(check.name)
        if known is None or known != check:
            if check.schema != new.id:  # against check-older-than-it-is
                return f"it has a new check {check.name!r} of schema {check.schema}"
            continue
        for column in check.columns:
            # against widened-under-a-check
            if kinds[column.id] in _FIXED and after[column.id].type != kinds[column.id]:
                return (
                    f"column {after[column.id].name!r} is read by check {check.name!r}, which "
                    "values of another type may break: drop the check, and add it after the change"
                )
    return None


def renumbered_checks(checks: Sequence[Check], old: Schema, new: Schema) -> list[Check]:
    """Return checks as they stand in a schema after another one, with the numbers of schemas.

    A check is a new one if the schema before does not have it, and if a column that it reads gets a
    type whose values may break it.
    """
    known = {check.name: check for check in checks_of(old)}
    types = [{column.id: column.type for column in schema.columns} for schema in (old, new)]
    numbered = []
    for check in checks:
        before = known.get(check.name)
        stays = before is not None and same_check(before, check)
        stays = stays and not any(
            types[0][column.id] in _FIXED and types[0][column.id] != types[1].get(column.id)
            for column in check.columns
        )
        number = before.schema if before is not None and stays else new.id
        numbered.append(msgspec.structs.replace(check, schema=number))
    return numbered


def united_checks(base: Schema, ours: Schema, theirs: Schema) -> list[Check] | str:
    """Return the checks after two changes of a schema, or the name of one that is in conflict.

    Args:
        base: the schema that both started from.
        ours: after one change of it; the checks that it adds get the id after that of `theirs`.
        theirs: after other changes of it.
    """
    of_base, of_ours, of_theirs = (
        {check.name: check for check in checks_of(schema)} for schema in (base, ours, theirs)
    )
    found = []
    for name in sorted({*of_ours, *of_theirs}, key=str.encode):
        before, mine, other = of_base.get(name), of_ours.get(name), of_theirs.get(name)
        if _same(mine, other) or _same(mine, before):
            chosen = other
        elif _same(other, before):  # against check-of-the-other-lost
            chosen = mine and msgspec.structs.replace(mine, schema=theirs.id + 1)
        else:
            return name
        found += [] if chosen is None else [chosen]
    return found


def _same(one: Check | None, other: Check | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_check(one, other)
