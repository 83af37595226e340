"""The layout with the names that its columns have in a schema.

The log names columns by id, because columns can be renamed. Code that arranges rows goes by names:
those of the schema that it writes or reads with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType

from eventlog.arguments import parse_names
from eventlog.errors import Corrupt
from eventlog.model.entries import Granularity, Keyed, Layout, Schema, Splits

_ids = msgspec.json.Decoder(list[int])


class NamedKey(Struct, frozen=True):
    """The part of a layout that makes a table keyed; see `eventlog.model.entries.Keyed`."""

    key: tuple[str, ...]
    buckets: int
    splits: Splits | UnsetType = UNSET


class NamedLayout(Struct, frozen=True):
    """How rows are arranged in segments; see `eventlog.model.entries.Layout`.

    The time column is None in a table without one.
    """

    time_column: str | None
    granularity: Granularity
    order_by: tuple[str, ...] = ()
    keyed: NamedKey | UnsetType = UNSET


def named_layout(layout: Layout, schema: Schema) -> NamedLayout:
    """Return a layout of the log with names.

    Raises:
        Corrupt: it names a column that the schema does not have.
    """
    name = naming(schema)
    keyed: NamedKey | UnsetType = UNSET
    if not isinstance(layout.keyed, UnsetType):
        stored = layout.keyed
        keyed = NamedKey(tuple(map(name, stored.key)), stored.buckets, stored.splits)
    order = tuple(map(name, layout.order_by))
    time = layout.time_column
    time_column = None if isinstance(time, UnsetType) else name(time)
    return NamedLayout(time_column, layout.granularity, order, keyed)


def layout_by_id(layout: NamedLayout, schema: Schema) -> Layout:
    """Return a layout as it is stored; its columns are those of the schema."""
    number = numbering(schema)
    keyed: Keyed | UnsetType = UNSET
    if not isinstance(layout.keyed, UnsetType):
        named = layout.keyed
        keyed = Keyed(number(named.key), named.buckets, named.splits)
    time = layout.time_column
    return Layout(
        time_column=UNSET if time is None else number([time])[0],
        granularity=layout.granularity,
        order_by=number(layout.order_by),
        keyed=keyed,
    )


def naming(schema: Schema) -> Callable[[int], str]:
    """Return a function from the id of a column to its name.

    The function raises:
        Corrupt: the schema does not have the column.
    """
    names = {column.id: column.name for column in schema.columns}

    def name(number: int) -> str:
        if number not in names:
            raise Corrupt(
                f"the table's layout and schema do not fit together: no column has id {number}"
            )
        return names[number]

    return name


def numbering(schema: Schema) -> Callable[[Iterable[str]], tuple[int, ...]]:
    """Return a function from names of columns, which the schema has, to their ids."""
    ids = {column.name: column.id for column in schema.columns}
    return lambda names: tuple(ids[name] for name in names)


def columns_text(names: Iterable[str]) -> str:
    """Return names of columns as text that `eventlog.arguments.parse_names` reads."""
    listed = [*names]
    text = ",".join(listed)
    # A text that begins so is read as a list of JSON.
    is_read = not text.lstrip().startswith("[") and parse_names(text, "") == listed
    return text if is_read else msgspec.json.encode(listed).decode()


def listed_ids(text: str) -> list[int] | None:
    """Return the ids in the stored form of a list of columns; None: it is no such list."""
    try:
        return _ids.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def ids_text(numbers: Iterable[int]) -> str:
    """Return ids of columns as text that `listed_ids` reads."""
    return msgspec.json.encode([*numbers]).decode()


def names_of(numbers: Iterable[int], schema: Schema) -> list[str]:
    """Return the names of those of the columns that the schema has, in the given order."""
    names: Mapping[int, str] = {column.id: column.name for column in schema.columns}
    return [names[number] for number in numbers if number in names]
