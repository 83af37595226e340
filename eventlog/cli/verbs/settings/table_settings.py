"""The verbs properties, granularity and split. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, common, pairs
from eventlog.cli.screen.paging import listing
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import GRANULARITIES
from eventlog.model.properties import AUTO, SETTINGS, TEXT_SETTINGS, setting
from eventlog.table.table import Table


@click.command()
@common
@click.argument("given", metavar="[NAME=VALUE]...", nargs=-1, callback=pairs)
@click.option("--remove", "removed", metavar="NAME", multiple=True, help="Repeatable.")
@listing
def properties(place: Place, *, given: dict[str, str], removed: Sequence[str]) -> None:
    """List the properties, or set and remove some.

    The list has those that are set, and the defaults of the others. Names that begin with user. are
    yours. Those of the merge rule are fixed when a table is created.
    """
    table = place.open()
    changes: dict[str, str | None] = {**given, **dict.fromkeys(removed)}
    if not changes:
        _list_properties(place, table.snapshot())
        return
    twice = sorted(given.keys() & set(removed))
    if twice:
        raise InvalidInput(f"property {twice[0]} is set and removed: give one of them")
    unknown = sorted(set(removed) - table.refresh().properties.keys())
    if unknown:
        raise InvalidInput(
            f"property {unknown[0]} is not set: `eventlog properties` lists those that are"
        )
    before = dict(table.session.head().properties)
    changed = {name for name, value in changes.items() if before.get(name) != value}
    version = table.set_properties(changes) if changed else table.session.head().version
    done = ", ".join(
        f"{name} is removed" if changes[name] is None else f"{name} is {changes[name]}"
        for name in sorted(changed)
    )
    place.answer(
        table, version, done or "nothing to do: they have these values", committed=bool(changed)
    )


@click.command()
@common
@click.argument("name", type=click.Choice((*GRANULARITIES, "auto")), required=False)
def granularity(place: Place, *, name: str | None) -> None:
    """Show the size of time chunks, or set it for the rows to come.

    With auto it follows the data: compaction changes it. Segments that exist keep their chunks
    until `eventlog compact --granularity NAME --run` rewrites them.
    """
    table = place.open()
    before = table.refresh()
    if name is None:
        _show_granularity(place, table, before)
        return
    version = table.set_granularity(name)
    done = f"time chunks by {name}, before by {before.layout.granularity}"
    if name == "auto":
        done = f"time chunks by {before.layout.granularity}, until another granularity fits better"
    elif name == before.layout.granularity:
        done = f"time chunks by {name}, which stays"
    nothing = f"nothing to do: time chunks are by {name}"
    committed = version != before.version
    place.answer(table, version, done if committed else nothing, committed=committed)


def _show_granularity(place: Place, table: Table, head: Snapshot) -> None:
    automatic = bool(setting(head.properties, AUTO))
    place.answer(
        table,
        head.version,
        f"time chunks by {head.layout.granularity}"
        + (", until another granularity fits better" if automatic else ""),
        committed=False,
        granularity=head.layout.granularity,
        automatic=automatic,
    )


@click.command()
@common
@click.argument("buckets", type=click.IntRange(min=1))
def split(place: Place, *, buckets: int) -> None:
    """Split the buckets of a keyed table until there are BUCKETS.

    BUCKETS is twice as many as there are, or 4, 8, … times. Rewrites nothing: compaction divides
    segments when it merges them. Writers and compactions that are under way go on.
    """
    table = place.open()
    keyed = keyed_of(table.refresh().layout)
    changed = keyed is None or keyed.buckets != buckets
    version = table.set_buckets(buckets)
    done = f"{buckets:,} buckets"
    nothing = f"nothing to do: there are {buckets:,} buckets"
    place.answer(
        table, version, done if changed else nothing, committed=changed,
        buckets=buckets, before=None if keyed is None else keyed.buckets,
    )  # fmt: skip


VERBS = (properties, granularity, split)


def _list_properties(place: Place, snapshot: Snapshot) -> None:
    """List the properties that are set, and those that have a default."""
    values = dict(snapshot.properties)
    meanings = {name: setting.meaning for name, setting in SETTINGS.items()} | TEXT_SETTINGS
    names = [*meanings, *sorted(values.keys() - meanings.keys())]
    defaults = {name: str(setting.default) for name, setting in SETTINGS.items()}
    if place.as_json:
        terminal.json_list(
            {
                "name": name,
                "value": values.get(name),
                "default": defaults.get(name),
                "meaning": meanings.get(name),
            }
            for name in names
        )
        return
    terminal.table(
        ("property", "value", "default", "meaning"),
        ((n, values.get(n), defaults.get(n), meanings.get(n)) for n in names),
        right=("default",),
        prose=("meaning",),
    )
