"""The actions that create a table, and those that change its properties.

No I/O: arguments are checked here, before any request is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from eventlog import arguments
from eventlog.errors import AlreadyExists, InvalidInput
from eventlog.keyed.rule import (
    DEFAULT_BUCKETS,
    MergeRule,
    NamedMerge,
    check_keyed,
    check_values,
    keyed_of,
    rule_of,
    splits_of,
    stored_rule,
    undecided_problem,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, PropertyChange, SetLayout, SetProperties, SetSchema
from eventlog.model.chunks import check_granularity
from eventlog.model.columns.named_checks import checks_of, checks_problem, with_checks
from eventlog.model.columns.named_layout import (
    NamedKey,
    NamedLayout,
    columns_text,
    layout_by_id,
    named_layout,
    naming,
)
from eventlog.model.entries import Check, Granularity, Schema
from eventlog.model.properties import (
    AUTO,
    INLINE,
    INLINE_BYTES,
    check_property,
    is_merge,
    setting,
)
from eventlog.model.schema import (
    check_order,
    check_time_column,
    check_timeless,
    from_arrow,
    list_names,
)
from eventlog.model.schema_text import given_schema, type_text
from eventlog.model.stats import PROPERTY, stored_setting
from eventlog.query.row_checks import new_check


def creation(
    given: Any,
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

    The columns of a key, and the column that orders its rows, cannot be null. See `Table.create`
    for the arguments.

    Raises:
        InvalidInput: an argument is wrong.
    """
    listed = [order_by] if isinstance(order_by, str) else order_by
    order = tuple([] if listed is None else arguments.name_list(listed, "order_by"))
    keyed = _keyed(key, buckets)
    schema = given_schema(given)
    if keyed is not None:
        schema = _required(schema, (*keyed.key, *order))
    stored = from_arrow(schema)
    if time_column is not None:
        check_time_column(stored, time_column)
    check_order(stored, order, "order_by")
    wanted = arguments.mapping(properties, "properties")
    first = _first_granularity(granularity, keyed, time_column)
    if granularity in (None, "auto") and first == "day":
        wanted = {AUTO: "1", **wanted}
    wanted = {INLINE: str(INLINE_BYTES) if INLINE_BYTES else None, **wanted}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    changes = property_changes(wanted, {}, stored)
    layout = NamedLayout(time_column, first, order, keyed or UNSET)
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


def check_fits(
    there: Snapshot,
    actions: Sequence[Action],
    granularity: str | None,
    buckets: int | None,
    uri: str,
) -> None:
    """Check that a table is as good as the one that some actions would create.

    Args:
        there: the table.
        actions: what `creation` returned.
        granularity: as it was given; None: any will do.
        buckets: as they were given; None: any will do.
        uri: the table's root, for the error.

    Raises:
        AlreadyExists: it is not; the message names the difference.
    """
    schema = next(a.schema for a in actions if isinstance(a, SetSchema))
    stored = next(a.layout for a in actions if isinstance(a, SetLayout))
    named = named_layout(stored, schema)
    if granularity == "auto" or setting(there.properties, AUTO):
        granularity = None  # it may have changed since somebody created the table so
    problem = _other_layout(named, there.layout, granularity, buckets)
    problem = problem or _other_columns(schema, there.stored_schema)
    if problem is None and _merging(stored_rule(stored, schema)) != _merging(there.merge_rule):
        problem = "it merges the rows of a key by another rule (properties `merge…`)"
    known = {check.name: check.expression for check in checks_of(there.stored_schema)}
    for check in () if problem else checks_of(schema):
        found = known.get(check.name)
        if found is None:
            problem = f"it has no check {check.name!r}"
        elif found != check.expression:
            problem = f"check {check.name!r} is {found} there, and {check.expression} here"
    if problem is not None:
        raise AlreadyExists(
            f"there is another table here: {problem}. Open it as it is (Table.open), or choose "
            "another path",
            table=uri,
        )


def _other_columns(wanted: Schema, there: Schema) -> str | None:
    """Return why rows of a schema do not fit into a table's columns, or None."""
    known, given = ({c.name: c for c in schema.columns} for schema in (there, wanted))
    for name, column in given.items():
        if name not in known:
            return f"it has no column {name!r}; columns: {list_names(there)}"
        kinds = [type_text(one.type) for one in (column, known[name])]
        if kinds[0] != kinds[1]:
            return f"column {name!r} has type {kinds[1]} there, and {kinds[0]} here"
        if column.nullable and not known[name].nullable:
            return f"column {name!r} is `not null` there"
    missing = [name for name, c in known.items() if name not in given and not c.nullable]
    return f"it has a column {missing[0]!r}, which is `not null`" if missing else None


def _other_layout(
    wanted: NamedLayout, there: NamedLayout, granularity: str | None, buckets: int | None
) -> str | None:
    """Return what of a layout differs from a table's, or None; see `check_fits`."""
    ours, theirs = keyed_of(wanted), keyed_of(there)
    pairs: list[tuple[str, str | None, str | None]] = [
        ("the time column", wanted.time_column, there.time_column),
        (
            "the key",
            columns_text(ours.key if ours else ()),
            columns_text(theirs.key if theirs else ()),
        ),
        ("order_by", columns_text(wanted.order_by), columns_text(there.order_by)),
    ]
    if granularity is not None:
        pairs.append(("the granularity", wanted.granularity, there.granularity))
    if buckets is not None and theirs is not None:
        known = [theirs.buckets >> n for n in range(splits_of(theirs) + 1)]  # before each split
        here = buckets if buckets not in known else theirs.buckets
        pairs.append(("the number of buckets", str(here), str(theirs.buckets)))
    for what, mine, found in pairs:
        if mine != found:
            return f"{what} is {found or 'none'} there, and {mine or 'none'} here"
    return None


def _merging(rule: MergeRule | None) -> tuple[object, ...] | None:
    return None if rule is None else (rule.kind, rule.functions, rule.orders)


def several_rows_of_a_key(actions: Sequence[Action]) -> str | None:
    """Return why a new table may return several rows of one key, with the remedy, or None.

    Args:
        actions: what `creation` returned.
    """
    schema = next(a.schema for a in actions if isinstance(a, SetSchema))
    layout = next(a.layout for a in actions if isinstance(a, SetLayout))
    if keyed_of(layout) is None or layout.granularity == "all":
        return None
    if layout.order_by != (layout.time_column,):
        return None
    time = naming(schema)(layout.order_by[0])
    unit = layout.granularity
    return (
        f"a key is unique in its {unit}, and {time!r}, which orders the rows of a key, is also the "
        f"time column: a key that is upserted with times in two {unit}s is returned twice, once "
        f"from each {unit}. Create the table with granularity='all', or with a time column whose "
        "value for a key never changes, such as the time at which it was created"
    )


def check_wish(text: str) -> Granularity | Literal["auto"]:
    """Return how a user wants time to be cut: by a granularity, or `auto`, as the data suggests.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(text, str) and text == "auto":
        return "auto"
    try:
        return check_granularity(text)
    except InvalidInput as error:
        raise InvalidInput(f"{error.message}, auto") from None


def _first_granularity(
    given: str | None, keyed: NamedKey | None, time_column: str | None
) -> Granularity:
    """Return how the first rows of a new table are cut.

    Raises:
        InvalidInput: there is no such granularity, or `auto` is given and it must stay.
    """
    wish = "auto" if given is None else check_wish(given)
    if wish != "auto":
        return wish
    if keyed is None and time_column is not None:
        return "day"
    if given is not None:
        raise InvalidInput(
            "auto is for tables with a time column and without a key, whose granularity stays, "
            "because a key is unique within its time chunk: leave it out, which is all"
        )
    return "all"


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
