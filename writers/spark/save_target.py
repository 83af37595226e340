"""The table that a save writes to: the one that is there, or a new one.

Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from eventlog import Table
from eventlog.errors import AlreadyExists, InvalidInput, TableNotFound
from eventlog.keyed.rule import OP, keyed_of, splits_of
from eventlog.model.columns.named_layout import NamedKey
from eventlog.model.properties import MERGE
from eventlog.staging.fitting import follows_data
from eventlog.store.branching.branch import BranchStore
from eventlog.store.location import open_store

# Further advice where the table lacks the merge rule that was asked for.
_WITHOUT = {"partial": " and give all columns"}


@dataclass(frozen=True, slots=True)
class Creation:
    """How to create the table if it is absent; an existing one must agree with what is given.

    Attributes:
        time_column: the event-time column; None: none is asked for, and an absent table is an error
            unless it is to have a key or the granularity `all`.
        granularity: of the time chunks; None: see `Table.create`. An existing table
            of which it follows the data agrees with any.
        order_by: columns by which rows are sorted inside a segment; in a keyed table the one that
            orders the rows of a key.
        properties: table properties, for a new table only.
        key: the columns that identify a row.
        buckets: of a keyed table: into how many parts keys are divided.
        merge: of a keyed table: what becomes of the rows of a key.
        keyed: the table must be a keyed one.
    """

    time_column: str | None = None
    granularity: str | None = None
    order_by: str | Sequence[str] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    key: str | Sequence[str] | None = None
    buckets: int | None = None
    merge: str | None = None
    keyed: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether it is enough to create a table with."""
        return self.time_column is not None or self.granularity == "all" or bool(self.key)


def open_or_create(
    uri: str,
    storage_options: Mapping[str, str] | None,
    incoming: pa.Schema,
    creation: Creation,
) -> Table:
    """Return the table; create it if it is absent, and `creation` is that of a new one.

    Args:
        uri: the table's root.
        storage_options: see `eventlog.store.options`.
        incoming: the columns of a new table.
        creation: how to create it.

    Raises:
        InvalidInput: the existing table contradicts `creation`, or a new one cannot be made so.
        TableNotFound: the table is absent, and neither a time column nor a key nor the granularity
            `all` is given.
    """
    store = open_store(uri, storage_options)
    try:
        return check_agrees(Table.open(uri, store=store), creation)
    except TableNotFound as error:
        if isinstance(store, BranchStore):  # only `Table.branch` makes one
            raise
        if not creation.is_complete:
            raise TableNotFound(
                "there is no table here: give option timeColumn, or argument time_column (and "
                "granularity), to create one; for a table without a time column give granularity "
                "all, or a key",
                table=error.table or store.uri,
            ) from None
    if creation.keyed and not creation.key:
        raise InvalidInput("there is no table here: give key, to create a keyed one")
    columns = [column for column in incoming if column.name != OP or not creation.key]
    try:
        return Table.create(
            uri,
            pa.schema(columns),
            time_column=creation.time_column,
            granularity=creation.granularity,
            key=creation.key or (),
            buckets=creation.buckets,
            order_by=creation.order_by,
            properties=_properties(creation),
            store=store,
        )
    except AlreadyExists:  # another job created it meanwhile
        return check_agrees(Table.open(uri, store=store), creation)


def check_agrees(table: Table, creation: Creation) -> Table:
    """Return the table, if it is as `creation` would have made it.

    Raises:
        InvalidInput: it has another time column, granularity, order, key or merge rule.
    """
    head = table.session.head()
    layout, keyed = head.layout, keyed_of(head.layout)
    if creation.keyed and keyed is None:
        raise InvalidInput(
            "the table has no key: append and overwrite write rows, and rows are deleted by "
            'delete(uri, spark, where=...) or merge(uri, df, on, when_matched="delete"). For a '
            "keyed table choose another path, and give key",
            table=table.uri,
        )
    rule = head.merge_rule
    fixed = None if follows_data(head) else creation.granularity
    for name, wanted, actual in (
        ("timeColumn", creation.time_column, layout.time_column),
        ("granularity", fixed, layout.granularity),
        ("key", _listed(creation.key), list(keyed.key) if keyed else None),
        ("buckets", creation.buckets, keyed and _buckets(keyed, creation.buckets)),
        ("orderBy", _listed(creation.order_by), list(layout.order_by)),
        ("merge", creation.merge, rule and rule.kind),
    ):
        if wanted is not None and wanted != actual:
            has = "none" if actual is None else repr(actual)
            raise InvalidInput(
                f"option {name} is {wanted!r}, but the existing table has {has}: "
                f"leave it out{_WITHOUT.get(str(wanted), '')}, or choose another path",
                table=table.uri,
            )
    return table


def _buckets(keyed: NamedKey, wanted: int | None) -> int:
    """Return how many buckets a table has, or what is wanted if it had as many before a split."""
    splits = splits_of(keyed)
    before = {keyed.buckets >> n for n in range(splits + 1)}
    return wanted if wanted in before else keyed.buckets


def _listed(names: str | Sequence[str] | None) -> list[str] | None:
    return [names] if isinstance(names, str) else None if names is None else list(names)


def _properties(creation: Creation) -> Mapping[str, str]:
    """Return the properties of a new table.

    Raises:
        InvalidInput: they name another merge rule than `creation` does.
    """
    if creation.merge is None:
        return creation.properties
    if creation.properties.get(MERGE, creation.merge) != creation.merge:
        raise InvalidInput(
            f"option merge is {creation.merge!r}, and property {MERGE} is "
            f"{creation.properties[MERGE]!r}: give one of them"
        )
    return {**creation.properties, MERGE: creation.merge}
