"""The verb columns. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import pyarrow as pa

from eventlog.arguments import parse_names, shown
from eventlog.cli import terminal
from eventlog.cli.place import Place, common
from eventlog.cli.screen.paging import listing
from eventlog.display import command
from eventlog.errors import InvalidInput
from eventlog.log.snapshot import Snapshot
from eventlog.model.columns.words import schema_changes
from eventlog.model.schema_text import parse_schema, type_text
from eventlog.publishing.delta.translation.delta_commits import LOG_PREFIX
from eventlog.table.table import Table

_ACT_NAMES = ("add", "drop", "rename", "widen", "reorder", "relax", "check", "uncheck")


@click.command()
@common
@click.argument("act", type=click.Choice(_ACT_NAMES), required=False)
@click.argument("words", nargs=-1)
@click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="NAME=VALUE",
    help="With add: the value of rows that lack the column, those that exist and those to come.",
)
@click.option("--within", help="With add and reorder: the struct whose fields they are.")
@listing
def columns(
    place: Place,
    *,
    act: str | None,
    words: Sequence[str],
    defaults: Sequence[str],
    within: str | None,
) -> None:
    """List the columns and checks, or change them.

    \b
    add NAME:TYPE ...        drop NAME ...        rename NAME NEW
    widen NAME:TYPE          reorder NAME ...     relax NAME ...
    check NAME EXPRESSION    uncheck NAME

    check adds a condition that no row may break, uncheck drops it. A field inside of a column is a
    JSON list of names: '["place","x"]'; element, key and value are those of lists and maps. relax
    lets columns be null.
    """  # noqa: D301 - click wants the character
    table = place.open()
    if act is None:
        if words or defaults or within:
            raise InvalidInput(f"give an ACT: {', '.join(_ACT_NAMES)}")
        _list_columns(place, table, table.snapshot())
        return
    if (defaults and act != "add") or (within and act not in ("add", "reorder")):
        raise InvalidInput(f"{act} takes no --default, and --within is for add and reorder")
    head = table.refresh()
    version = _ACTS[act](table, words, defaults, () if within is None else _path(within))
    changed = schema_changes(head.stored_schema, table.snapshot(version).stored_schema)
    if place.as_json:
        committed = version > head.version
        place.answer(table, version, "", committed=committed, schema_changes=changed)
    else:
        for text in changed or ["nothing changes"]:
            terminal.say(text)
        terminal.note(f"version {version}")
    if changed and (defaults or act in ("rename", "widen")):
        _warn_delta(table)


VERBS = (columns,)


def list_checks(snapshot: Snapshot) -> None:
    """Show the conditions that no row may break, if there are any."""
    if snapshot.checks:
        terminal.say()
        terminal.table(("check", "expression"), snapshot.checks.items())


def _warn_delta(table: Table) -> None:
    """Say what a change of columns means where the table is published as Delta. One LIST."""
    if any(True for _ in table.store.list(LOG_PREFIX, limit=1)):
        terminal.note(
            "the table is published as Delta, whose readers find columns by name: they stay at the "
            f"versions before, and {command('publish', 'delta', table.uri)} is refused until no "
            'older segment is live (docs/guides/engines.md, "After a rename")'
        )


def _path(text: str) -> str | list[str]:
    """Return a column's name, or the path to a field: a JSON list of names."""
    return text if not text.lstrip().startswith("[") else parse_names(text, "a field")


def _fields_of(words: Sequence[str]) -> list[pa.Field]:
    return [*parse_schema(", ".join(words))]


def _check_no_path(table: Table, names: Iterable[str]) -> None:
    """Refuse names of columns to add that begin with a struct, as a path with dots does."""
    structs = {
        field.name for field in table.session.head().schema if pa.types.is_struct(field.type)
    }
    for name in names:
        struct, dot, field = name.partition(".")
        if dot and struct in structs:
            raise InvalidInput(
                f"{shown(name)} would be a column with a dot in its name: a field of the struct "
                f"is added by its own name {shown(field)} and --within {shown(struct)}"
            )


def _add(
    table: Table, words: Sequence[str], defaults: Sequence[str], within: str | Sequence[str]
) -> int:
    fields = {field.name: field for field in _fields_of(words)}
    _check_no_path(table, fields)
    given = {}
    for text in defaults:
        name, separator, value = text.partition("=")
        if not separator or name not in fields:
            raise InvalidInput(f"--default {text[:80]!r} is not NAME=VALUE of an added column")
        given[name] = _value(value, fields[name])
    return table.add_columns([*fields.values()], given, within=within)


def _value(text: str, field: pa.Field) -> Any:
    """Return a value of a type that is written as text."""
    if pa.types.is_string(field.type):
        return text
    try:
        return pa.array([text]).cast(field.type)[0].as_py()
    except pa.ArrowException:
        raise InvalidInput(
            f"{text[:80]!r} is no default of column {field.name!r} of type {field.type}"
        ) from None


def _rename(table: Table, words: Sequence[str], *_: Any) -> int:
    if len(words) != 2:
        raise InvalidInput("rename takes a name and the new one")
    return table.rename_column(_path(words[0]), words[1])


def _widen(table: Table, words: Sequence[str], *_: Any) -> int:
    if len(words) != 1 or ":" not in words[0]:
        raise InvalidInput("widen takes NAME:TYPE, such as n:int64")
    name, _separator, kind = words[0].rpartition(":")
    return table.widen_column(_path(name), _fields_of([f"x:{kind}"])[0].type)


def _check(table: Table, words: Sequence[str], *_: Any) -> int:
    if len(words) != 2:
        raise InvalidInput("check takes a name and an expression: check positive 'price > 0'")
    return table.add_check(words[0], words[1])


def _uncheck(table: Table, words: Sequence[str], *_: Any) -> int:
    if len(words) != 1:
        raise InvalidInput("uncheck takes the name of a check")
    return table.drop_check(words[0])


_ACTS: dict[str, Callable[..., int]] = {
    "add": _add,
    "drop": lambda table, words, *_: table.drop_columns([_path(word) for word in words]),
    "rename": _rename,
    "widen": _widen,
    "reorder": lambda table, words, _, within: table.reorder_columns(words, within=within),
    "relax": lambda table, words, *_: table.relax_columns(words),
    "check": _check,
    "uncheck": _uncheck,
}


def columns_json(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the columns, for programs."""
    return [
        {"name": c.name, "type": type_text(c.type), "nullable": c.nullable, "column_id": c.id}
        for c in snapshot.stored_schema.columns
    ]


def _list_columns(place: Place, table: Table, snapshot: Snapshot) -> None:
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "version": snapshot.version,
                "columns": columns_json(snapshot),
                "checks": snapshot.checks,
            }
        )
        return
    terminal.table(
        ("id", "column", "type", ""),
        (
            (c.id, c.name, type_text(c.type), "" if c.nullable else "not null")
            for c in snapshot.stored_schema.columns
        ),
        right=("id",),
    )
    list_checks(snapshot)
