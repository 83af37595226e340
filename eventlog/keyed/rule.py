"""The merge rule of a keyed table, for the rows of one key, from its layout.

No I/O. The rule is set when the table is created and never changes, because it gives every version
its answer (FORMAT.md "Keyed tables"). The log has it by the ids of columns; to a user it is a part
of the table's properties, by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast, overload

from msgspec import UNSET, UnsetType

from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.actions import Merge
from eventlog.model.columns.named_layout import (
    NamedKey,
    NamedLayout,
    layout_by_id,
    named_layout,
    naming,
    numbering,
)
from eventlog.model.entries import (
    Keyed,
    Layout,
    MergeFunction,
    MergeGroup,
    MergeSetting,
    Schema,
    Slice,
)
from eventlog.model.properties import MERGE, MERGE_COLUMN, MERGE_GROUP
from eventlog.model.records import Meta
from eventlog.model.stats import PROPERTY, has_text_bounds, shown_setting

Kind = Literal["last", "first", "partial", "aggregate"]
Function = Literal["sum", "min", "max", "count", "last", "first"]
# What a reader gets where a sum does not fit its column: an error, or a null.
Overflow = Literal["error", "null"]
OVERFLOWS: tuple[Overflow, ...] = ("error", "null")
KINDS: tuple[Kind, ...] = ("last", "first", "partial", "aggregate")
FUNCTIONS: tuple[Function, ...] = ("sum", "min", "max", "count", "last", "first")
DEFAULT_BUCKETS = 16
MAX_BUCKETS = 4096
MAX_KEY = 16

# Columns of log segments beside the table's: the operation of a row, and the version of a kept
# delete.
OP, VERSION = "_op", "_version"
UPSERT, DELETE = "u", "d"
RESERVED = (OP, VERSION)

_INTEGERS = ("int8", "int16", "int32", "int64")
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the rows of one key become one.

    Attributes:
        key: the key columns.
        buckets: number of buckets.
        order: the column that orders the rows of a key; None: the order of commits alone.
        kind: what becomes of them.
        functions: for `aggregate`, the function of each column that is not in the key.
        orders: for `partial`, the order column of each column that has one of its own.
        splits: how many times the number of buckets was doubled.
        overflow: what a reader gets where a sum does not fit its column. Not a part of the table.
    """

    key: tuple[str, ...]
    buckets: int
    order: str | None
    kind: Kind
    functions: Mapping[str, Function]
    orders: Mapping[str, str]
    splits: int = 0
    overflow: Overflow = "error"

    @property
    def ordered_deletes(self) -> bool:
        """Whether a delete may have an order value, and so a place among the rows of its key.

        Under `first`, and where groups of columns have orders of their own, such a delete could
        bring back rows that a merge has left out: there every delete is a barrier.
        """
        return self.order is not None and self.kind in ("last", "partial") and not self.orders

    @property
    def merged_by(self) -> frozenset[str]:
        """The columns that each segment has, and each upsert has a value of."""
        return frozenset(self.key if self.order is None else (*self.key, self.order))

    def order_of(self, column: str) -> str | None:
        """Return the column whose values order the values of a column; None: commits do."""
        return self.orders.get(column, self.order)

    def needed(self, columns: Sequence[str]) -> list[str]:
        """Return these columns and those without which their values cannot be merged."""
        more = [self.order, *(self.order_of(name) for name in columns)]
        wanted = dict.fromkeys([*columns, *self.key, *(name for name in more if name is not None)])
        return list(wanted)


def undecided_problem(rule: MergeRule | None, reads: Iterable[str]) -> str | None:
    """Return why written rows cannot show whether merged ones meet a condition; None: they can.

    A merged row has its key and the value of one written row, so a condition of one more column
    holds of it if it holds of that row. Under `last` and `first` it is one of the written rows.

    Args:
        rule: the merge rule; None for a table without a key.
        reads: the columns that the condition reads.
    """
    if rule is None or rule.kind in ("last", "first"):
        return None
    others = sorted({*reads} - {*rule.key})
    if len(others) > 1:  # against check-of-values-from-two-rows
        return (
            f"it reads columns {', '.join(others)}, and under {MERGE}={rule.kind} their values may "
            "come from different rows: beside the key it can read one column"
        )
    computed = [name for name in others if rule.functions.get(name) in ("sum", "count")]
    if computed:  # against check-of-a-sum
        function = rule.functions[computed[0]]
        return f"column {computed[0]!r} is a {function} of values, which no written row shows"
    return None


def reader_rule(rule: MergeRule | None, overflow: str) -> MergeRule | None:
    """Return the rule of a reader that gets an error or a null where a sum does not fit.

    Raises:
        InvalidInput: `overflow` is neither.
    """
    if overflow not in OVERFLOWS:
        raise InvalidInput(f"overflow must be {' or '.join(OVERFLOWS)}, not {overflow!r}")
    return None if rule is None else replace(rule, overflow=overflow)


@overload
def keyed_of(layout: Layout) -> Keyed | None: ...
@overload
def keyed_of(layout: NamedLayout) -> NamedKey | None: ...
def keyed_of(layout: Layout | NamedLayout) -> Keyed | NamedKey | None:
    """Return the part of a layout that makes a table keyed, or None."""
    return None if isinstance(layout.keyed, UnsetType) else layout.keyed


def splits_of(place: Keyed | NamedKey | Slice | Merge) -> int:
    """Return how many times the buckets of a table had been doubled when these were numbered."""
    return 0 if isinstance(place.splits, UnsetType) else place.splits


def buckets_split(layout: NamedLayout) -> int:
    """Return how many times the buckets of a table were split; 0 if it has no key."""
    keyed = keyed_of(layout)
    return 0 if keyed is None else splits_of(keyed)


@dataclass(frozen=True, slots=True)
class NamedMerge:
    """What becomes of the rows of a key, as a user says it.

    Attributes:
        kind: the rule.
        functions: by the name of a column.
        groups: by the name of an order column, the columns that it orders beside itself.
    """

    kind: str = "last"
    functions: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> NamedMerge:
        """Return the one in the properties `merge` and `merge.*`."""
        functions, groups = {}, {}
        for name, value in sorted(properties.items()):
            if name.startswith(MERGE_GROUP):
                columns = [part.strip() for part in value.split(",")]
                groups[name.removeprefix(MERGE_GROUP)] = columns
            elif name.startswith(MERGE_COLUMN):
                functions[name.removeprefix(MERGE_COLUMN)] = value
        return cls(properties.get(MERGE, "last"), functions, groups)

    @classmethod
    def of_layout(cls, keyed: Keyed, schema: Schema) -> NamedMerge:
        """Return the one of a table that is in the log.

        Raises:
            Corrupt: it names a column that the schema does not have, or gives one two functions.
        """
        setting, name = keyed.merge, naming(schema)
        if isinstance(setting, UnsetType):
            return cls()
        functions = () if isinstance(setting.functions, UnsetType) else setting.functions
        groups = () if isinstance(setting.groups, UnsetType) else setting.groups
        orders = [group.order for group in groups]
        for listed in ([one.column for one in functions], orders):
            if len({*listed}) < len(listed):  # against two-functions-of-one-column
                raise Corrupt("the table's merge rule names a column twice")
        return cls(
            setting.rule,
            {name(one.column): one.function for one in functions},
            {name(group.order): [name(n) for n in group.columns] for group in groups},
        )

    def properties(self) -> dict[str, str]:
        """Return the properties that say it."""
        found = {} if self.kind == "last" else {MERGE: self.kind}
        found |= {f"{MERGE_COLUMN}{name}": value for name, value in self.functions.items()}
        groups = self.groups.items()
        return found | {f"{MERGE_GROUP}{name}": ",".join(columns) for name, columns in groups}

    def setting(self, schema: Schema) -> MergeSetting | UnsetType:
        """Return its stored form; its columns are those of the schema."""
        if self == NamedMerge():
            return UNSET
        number = numbering(schema)
        functions = [
            MergeFunction(number([name])[0], value) for name, value in self.functions.items()
        ]
        groups = [MergeGroup(number([name])[0], number(of)) for name, of in self.groups.items()]
        return MergeSetting(
            self.kind,
            tuple(sorted(functions, key=lambda one: one.column)) or UNSET,
            tuple(sorted(groups, key=lambda group: group.order)) or UNSET,
        )


def shown_properties(meta: Meta) -> dict[str, str]:
    """Return the properties of a table as a user sets them, by name: columns have their names.

    Raises:
        Corrupt: the merge rule names a column that the schema does not have.
    """
    properties = dict(meta.properties)
    if meta.schema is not None and PROPERTY in properties:
        properties[PROPERTY] = shown_setting(meta.schema, properties[PROPERTY])
    keyed = None if meta.layout is None else keyed_of(meta.layout)
    if meta.schema is not None and keyed is not None:
        properties |= NamedMerge.of_layout(keyed, meta.schema).properties()
    return {name: properties[name] for name in sorted(properties, key=str.encode)}


def rule_of(layout: NamedLayout, schema: Schema, merge: NamedMerge) -> MergeRule | None:
    """Return the merge rule of a table; None if it has no key.

    Args:
        layout: the table's.
        schema: the table's.
        merge: what becomes of the rows of a key.

    Raises:
        InvalidInput: they do not fit together; the message names the property.
    """
    keyed = keyed_of(layout)
    if keyed is None:
        return None
    kind = merge.kind
    if kind not in KINDS:
        raise InvalidInput(f"property {MERGE} must be one of {', '.join(KINDS)}, not {kind!r}")
    order = layout.order_by[0] if layout.order_by else None
    rule = MergeRule(keyed.key, keyed.buckets, order, kind, {}, {})
    functions, orders = (
        _functions(rule, schema, merge.functions),
        _orders(rule, schema, merge.groups),
    )
    return replace(rule, functions=functions, orders=orders, splits=splits_of(keyed))


def stored_rule(layout: Layout, schema: Schema) -> MergeRule | None:
    """Return the merge rule of a table that is in the log; None if it has no key.

    Raises:
        Corrupt: its layout and schema do not fit together (FORMAT.md R15.2).
    """
    stored = keyed_of(layout)
    if stored is None:
        return None
    named = named_layout(layout, schema)
    try:
        check_keyed(named, schema)
        rule = rule_of(named, schema, NamedMerge.of_layout(stored, schema))
        check_values(rule, schema, named.time_column)
    except InvalidInput as error:
        raise Corrupt(f"the table's key and merge rule do not fit it: {error}") from None
    return rule


def successor_problem(
    layout: Layout | None, schema: Schema, before: Schema | None = None
) -> str | None:
    """Return why a table of this layout cannot get this schema, if it cannot (FORMAT.md R15.2).

    Args:
        layout: the table's.
        schema: the new schema.
        before: the schema that it follows; None: it is the first.
    """
    if layout is None:
        return None
    keyed, known = keyed_of(layout), {column.id for column in schema.columns}
    for number, role in roles_of(layout).items():
        if number not in known:  # against layout-without-its-column
            return f"it drops the column of id {number}, which is {role} of the table"
    if keyed is None:
        return None
    if problem := _default_problem(keyed, schema) or _hash_problem(keyed, schema, before):
        return problem
    names = {column.name for column in schema.columns}
    reserved = [name for name in RESERVED if name in names]
    if reserved:
        return f"a keyed table cannot have a column {reserved[0]!r}: rename it"
    merged_by = {*keyed.key, *layout.order_by}
    for column in schema.columns:
        if column.id in merged_by and column.nullable:
            return f"column {column.name!r} must stay required: rows are merged by it"
    return None


def roles_of(layout: Layout) -> dict[int, str]:
    """Return for each column that a table cannot be without what it is."""
    roles = dict.fromkeys(layout.order_by, "in the order")
    keyed = keyed_of(layout)
    if keyed is not None:
        setting = keyed.merge
        if not isinstance(setting, UnsetType):
            functions = () if isinstance(setting.functions, UnsetType) else setting.functions
            groups = () if isinstance(setting.groups, UnsetType) else setting.groups
            named = {one.column for one in functions}
            named |= {number for group in groups for number in (group.order, *group.columns)}
            roles |= dict.fromkeys(sorted(named), "in the merge rule")
        roles |= dict.fromkeys(keyed.key, "in the key")
    time = layout.time_column
    return roles if isinstance(time, UnsetType) else roles | {time: "the time column"}


def _default_problem(keyed: Keyed, schema: Schema) -> str | None:
    """Return which default a merge rule does not permit, or None."""
    merge = "last" if isinstance(keyed.merge, UnsetType) else keyed.merge.rule
    for column in schema.columns if merge in ("partial", "aggregate") else ():
        has_none = isinstance(column.initial, UnsetType) and isinstance(column.write, UnsetType)
        if not has_none:  # against default-that-is-merged
            return (
                f"column {column.name!r} cannot have a default under {MERGE}={merge}: it would "
                "count as a value of each row"
            )
    return None


def _hash_problem(keyed: Keyed, schema: Schema, before: Schema | None) -> str | None:
    """Return which column of the key gets a type by which its rows lie in other buckets, or None.

    The hash of a date is that of its days, and of a timestamp that of its microseconds. The other
    types that can become wider ones are hashed alike in both.
    """
    dates = {c.id for c in (() if before is None else before.columns) if c.type == "date"}
    for column in schema.columns:
        if column.id in {*keyed.key} & dates and column.type != "date":  # against buckets-of-dates
            return (
                f"column {column.name!r} must stay a date: it is in the key, whose buckets go by "
                "the hash of its days"
            )
    return None


def check_keyed(layout: NamedLayout, schema: Schema) -> None:
    """Check the key, the buckets and the order of a keyed table that is to be created.

    Raises:
        InvalidInput: one of them is wrong.
    """
    keyed = keyed_of(layout)
    if keyed is None:
        return
    if not keyed.key or len(keyed.key) > MAX_KEY or len(set(keyed.key)) != len(keyed.key):
        raise InvalidInput(f"key must name 1 to {MAX_KEY} different columns")
    if not 1 <= keyed.buckets <= MAX_BUCKETS:
        raise InvalidInput(f"buckets must be from 1 to {MAX_BUCKETS}, not {keyed.buckets}")
    if keyed.buckets % 2 ** splits_of(keyed):
        raise InvalidInput(f"{keyed.buckets} buckets cannot have been split {keyed.splits} times")
    kinds = {column.name: column.type for column in schema.columns}
    for name in keyed.key:
        _check_key_column(name, kinds)
    if len(layout.order_by) > 1:
        raise InvalidInput("order_by of a keyed table is one column: it orders the rows of a key")
    for name in layout.order_by:
        _check_order_column(name, kinds.get(name), keyed.key, "order_by")
    required = successor_problem(layout_by_id(layout, schema), schema)
    if required:
        raise InvalidInput(required)


def _check_key_column(name: str, kinds: Mapping[str, object]) -> None:
    if name not in kinds:
        raise InvalidInput(f"key: the table has no column {name!r}")
    kind = kinds[name]
    if not isinstance(kind, str) or kind in ("bool", "float32", "float64"):
        raise InvalidInput(
            f"key: column {name!r} has type {kind}; a key has integers, text, binary, decimals, "
            "dates or times"
        )


def check_values(rule: MergeRule | None, schema: Schema, time_column: str | None) -> None:
    """Check that rows may lack the columns that the merge rule fills from other rows.

    Raises:
        InvalidInput: a column cannot be null.
    """
    if rule is None or rule.kind not in ("partial", "aggregate"):
        return
    fixed = {*rule.key, rule.order, time_column}
    for column in schema.columns:
        if not column.nullable and column.name not in fixed:
            raise InvalidInput(
                f"column {column.name!r} must be nullable: under {MERGE}={rule.kind} a row need "
                "not have it"
            )


def _check_order_column(name: str, kind: object, key: Sequence[str], what: str) -> None:
    ordered = (*_INTEGERS, *_TIMES, "string")
    if kind not in ordered and not (isinstance(kind, str) and kind.startswith("decimal")):
        raise InvalidInput(
            f"{what}: column {name!r} of type {kind} cannot order rows; use an integer, a decimal, "
            "a time, a date or text"
        )
    if name in key:
        raise InvalidInput(f"{what}: column {name!r} is in the key: it is the same in all its rows")


def _functions(rule: MergeRule, schema: Schema, named: Mapping[str, str]) -> dict[str, Function]:
    kinds = {column.name: column for column in schema.columns}
    for name, function in named.items():
        column = kinds.get(name)
        if rule.kind != "aggregate":
            raise InvalidInput(f"property {MERGE_COLUMN}{name} needs {MERGE}=aggregate")
        if column is None or name in rule.key:
            raise InvalidInput(f"property {MERGE_COLUMN}{name}: no column {name!r} beside the key")
        if function not in FUNCTIONS:
            raise InvalidInput(
                f"property {MERGE_COLUMN}{name} must be one of {', '.join(FUNCTIONS)}, "
                f"not {function!r}"
            )
        if name == rule.order and function not in ("last", "max"):
            raise InvalidInput(
                f"property {MERGE_COLUMN}{name}: {name!r} orders the rows of a key, so it keeps "
                "the last of its values"
            )
        _check_function(name, function, column.type)
    if rule.kind != "aggregate":
        return {}
    others = [column.name for column in schema.columns if column.name not in rule.key]
    return {name: cast(Function, named.get(name, "last")) for name in others}


def _check_function(name: str, function: Function, kind: object) -> None:
    decimal = isinstance(kind, str) and kind.startswith("decimal")
    if function == "sum" and kind not in _INTEGERS and not decimal:
        raise InvalidInput(
            f"property {MERGE_COLUMN}{name}: sums are of integers and decimals, not of {kind}: a "
            "sum of floats depends on the order in which they are added"
        )
    if function == "count" and kind != "int64":
        raise InvalidInput(f"property {MERGE_COLUMN}{name}: a count needs type int64, not {kind}")
    if function in ("min", "max"):
        comparable = kind in (*_INTEGERS, *_TIMES, "float32", "float64") or decimal
        if not comparable and not (isinstance(kind, str) and has_text_bounds(kind)):
            raise InvalidInput(f"property {MERGE_COLUMN}{name}: {kind} has no {function}")


def _orders(rule: MergeRule, schema: Schema, groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    orders: dict[str, str] = {}
    kinds = {column.name: column.type for column in schema.columns}
    for order, columns in sorted(groups.items()):
        name = f"{MERGE_GROUP}{order}"
        if rule.kind != "partial":
            raise InvalidInput(f"property {name} needs {MERGE}=partial")
        if order not in kinds:
            raise InvalidInput(f"property {name}: the table has no column {order!r}")
        _check_order_column(order, kinds[order], rule.key, f"property {name}")
        for column in (order, *columns):
            if column not in kinds or column in rule.key:
                raise InvalidInput(f"property {name}: no column {column!r} beside the key")
            if orders.setdefault(column, order) != order:
                raise InvalidInput(f"property {name}: column {column!r} is in two groups")
            if column == rule.order:
                raise InvalidInput(f"property {name}: {column!r} already orders whole rows")
    return orders
