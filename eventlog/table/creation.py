"""The actions that create a table, and those that change its properties.

No I/O: arguments are checked here, before any request is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from eventlog import arguments
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import (
    DEFAULT_BUCKETS,
    MergeRule,
    NamedMerge,
    check_keyed,
    check_values,
    rule_of,
    undecided_problem,
)
from eventlog.model.actions import Action, PropertyChange, SetLayout, SetProperties, SetSchema
from eventlog.model.chunks import check_granularity
from eventlog.model.columns.named_checks import checks_problem, with_checks
from eventlog.model.columns.named_layout import NamedKey, NamedLayout, layout_by_id
from eventlog.model.entries import Check, Schema
from eventlog.model.properties import check_property, is_merge
from eventlog.model.schema import check_order, check_time_column, check_timeless, from_arrow
from eventlog.model.stats import PROPERTY, stored_setting
from eventlog.query.row_checks import new_check


def creation(
    schema: pa.Schema,
    time_column: str | None,
    granularity: str | None,
    order_by: str | Iterable[str] | None,
    properties: Mapping[str, str] | None,
    *,
    key: str | Iterable[str] = (),
    buckets: int | None = None,
    checks: Mapping[str, str] | None = None,
) -> list[Action]:
    """Return the actions of version 0.

    The columns of a key, and the column that orders its rows, cannot be null.

    Raises:
        InvalidInput: an argument is wrong.
    """
    listed = [order_by] if isinstance(order_by, str) else order_by
    order = tuple([] if listed is None else arguments.name_list(listed, "order_by"))
    keyed = _keyed(key, buckets)
    schema = arguments.schema(schema)
    if keyed is not None:
        schema = _required(schema, (*keyed.key, *order))
    stored = from_arrow(schema)
    if time_column is not None:
        check_time_column(stored, time_column)
    check_order(stored, order, "order_by")
    wanted = arguments.mapping(properties, "properties")
    changes = property_changes(wanted, {}, stored)
    if granularity is None:
        granularity = "all" if time_column is None or keyed is not None else "day"
    layout = NamedLayout(time_column, check_granularity(granularity), order, keyed or UNSET)
    if time_column is None:
        check_timeless(layout.granularity)
    merge = NamedMerge.of_properties(wanted)
    if keyed is None and (named := sorted(filter(is_merge, wanted))):
        raise InvalidInput(f"property {named[0]} is for keyed tables: give `key` too")
    check_keyed(layout, stored)
    rule = rule_of(layout, stored, merge)
    check_values(rule, stored, time_column)
    stored = _checked(stored, arguments.mapping(checks, "checks"), rule)
    by_id = layout_by_id(layout, stored)
    if not isinstance(by_id.keyed, UnsetType):
        with_merge = msgspec.structs.replace(by_id.keyed, merge=merge.setting(stored))
        by_id = msgspec.structs.replace(by_id, keyed=with_merge)
    actions: list[Action] = [SetLayout(by_id), SetSchema(stored)]
    return [*actions, SetProperties(changes)] if changes else actions


def _checked(schema: Schema, checks: Mapping[str, str], rule: MergeRule | None) -> Schema:
    """Return the first schema with checks.

    Raises:
        InvalidInput: a check is not possible.
    """
    made = [
        checked_by(new_check(name, text, schema), schema, rule) for name, text in checks.items()
    ]
    first = [msgspec.structs.replace(check, schema=schema.id) for check in made]
    new = with_checks(schema, first)
    if problem := checks_problem(new):
        raise InvalidInput(f"the table would have {problem}")
    return new


def checked_by(check: Check, schema: Schema, rule: MergeRule | None) -> Check:
    """Return a check that a table can have.

    Args:
        check: the check.
        schema: the table's columns.
        rule: its merge rule; None without a key.

    Raises:
        InvalidInput: written rows cannot show whether merged ones meet it.
    """
    names = {column.id: column.name for column in schema.columns}
    if problem := undecided_problem(rule, [names[column.id] for column in check.columns]):
        raise InvalidInput(f"the table cannot have check {check.name!r}: {problem}")
    return check


def _keyed(key: str | Iterable[str], buckets: int | None) -> NamedKey | None:
    """Return the part of the layout that makes the table keyed; None without a key."""
    columns = tuple(arguments.name_list([key] if isinstance(key, str) else key, "key"))
    if not columns:
        if buckets is not None:
            raise InvalidInput("buckets are for keyed tables: give `key` too")
        return None
    count = DEFAULT_BUCKETS if buckets is None else arguments.whole(buckets, "buckets", 1)
    return NamedKey(columns, count)


def _required(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the schema with these columns not nullable."""
    wanted = set(names)
    return pa.schema([f.with_nullable(f.nullable and f.name not in wanted) for f in schema])


def property_changes(
    wanted: Mapping[str, str | None], current: Mapping[str, str], schema: Schema
) -> tuple[PropertyChange, ...]:
    """Return the changes from the current values to the wanted ones (None removes a property).

    Args:
        wanted: as a user gives them. Those of the merge rule, which the layout has, are left out.
        current: as they are stored.
        schema: of the table.

    Raises:
        InvalidInput: a name or a value is wrong.
    """
    changes = []
    for name, value in sorted(wanted.items()):
        check_property(name, value)
        if is_merge(name):
            continue
        stored = value
        if name == PROPERTY and value is not None:
            stored = stored_setting(schema, value)
        changes.append(PropertyChange(name, current.get(name), stored))
    return tuple(changes)
