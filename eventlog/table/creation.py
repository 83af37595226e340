"""The actions that create a table, and those that change its properties.

No I/O: arguments are checked here, before any request is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from eventlog import arguments
from eventlog.model.chunks import check_granularity
from eventlog.model.properties import check_property
from eventlog.model.records import (
    Action,
    Layout,
    PropertyChange,
    SetLayout,
    SetProperties,
    SetSchema,
)
from eventlog.model.schema import check_order, check_time_column, from_arrow
from eventlog.model.stats import PROPERTY, stats_columns


def creation(
    schema: pa.Schema,
    time_column: str,
    granularity: str,
    order_by: str | Iterable[str] | None,
    properties: Mapping[str, str] | None,
) -> list[Action]:
    """Return the actions of version 0.

    Raises:
        InvalidInput: an argument is wrong.
    """
    stored = from_arrow(arguments.schema(schema))
    check_time_column(stored, time_column)
    listed = [order_by] if isinstance(order_by, str) else order_by
    order = tuple([] if listed is None else arguments.name_list(listed, "order_by"))
    check_order(stored, order, "order_by")
    wanted = arguments.mapping(properties, "properties")
    changes = property_changes(wanted, {})
    stats_columns(stored, wanted.get(PROPERTY), time_column)
    layout = Layout(time_column, check_granularity(granularity), order)
    actions: list[Action] = [SetLayout(layout), SetSchema(stored)]
    return [*actions, SetProperties(changes)] if changes else actions


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
