"""The actions that create a table, and those that change its properties.

No I/O: arguments are checked here, before any request is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from eventlog import arguments
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import DEFAULT_BUCKETS, check_keyed, check_values, rule_of
from eventlog.model.actions import Action, PropertyChange, SetLayout, SetProperties, SetSchema
from eventlog.model.chunks import check_granularity
from eventlog.model.entries import Keyed, Layout
from eventlog.model.properties import check_property
from eventlog.model.schema import check_order, check_time_column, from_arrow
from eventlog.model.stats import PROPERTY, stats_columns


def creation(
    schema: pa.Schema,
    time_column: str,
    granularity: str | None,
    order_by: str | Iterable[str] | None,
    properties: Mapping[str, str] | None,
    *,
    key: str | Iterable[str] = (),
    buckets: int | None = None,
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
    check_time_column(stored, time_column)
    check_order(stored, order, "order_by")
    wanted = arguments.mapping(properties, "properties")
    changes = property_changes(wanted, {})
    stats_columns(stored, wanted.get(PROPERTY), time_column)
    if granularity is None:
        granularity = "day" if keyed is None else "all"
    layout = Layout(time_column, check_granularity(granularity), order)
    if keyed is not None:
        layout = msgspec.structs.replace(layout, keyed=keyed)
        check_keyed(layout, stored)
        check_values(rule_of(layout, stored, wanted), stored, time_column)
    else:
        rule_of(layout, stored, wanted)
    actions: list[Action] = [SetLayout(layout), SetSchema(stored)]
    return [*actions, SetProperties(changes)] if changes else actions


def _keyed(key: str | Iterable[str], buckets: int | None) -> Keyed | None:
    """Return the part of the layout that makes the table keyed; None without a key."""
    columns = tuple(arguments.name_list([key] if isinstance(key, str) else key, "key"))
    if not columns:
        if buckets is not None:
            raise InvalidInput("buckets are for keyed tables: give `key` too")
        return None
    count = DEFAULT_BUCKETS if buckets is None else arguments.whole(buckets, "buckets", 1)
    return Keyed(columns, count)


def _required(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the schema with these columns not nullable."""
    wanted = set(names)
    return pa.schema([f.with_nullable(f.nullable and f.name not in wanted) for f in schema])


def property_changes(
    wanted: Mapping[str, str | None], current: Mapping[str, str]
) -> tuple[PropertyChange, ...]:
    """Return the changes from the current values to the wanted ones (None removes a property).

    Raises:
        InvalidInput: a name or a value is wrong.
    """
    for name, value in wanted.items():
        check_property(name, value)
    return tuple(
        PropertyChange(name, current.get(name), value) for name, value in sorted(wanted.items())
    )
