"""The verbs of branches: branch, branches.

Needs the extra `cli`.
"""

from __future__ import annotations

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, common
from eventlog.cli.screen.paging import listing
from eventlog.errors import InvalidInput
from eventlog.session.tags import VersionOrName
from eventlog.table.branching.names import Branch


@click.command()
@common
@click.argument("name")
@click.option(
    "--at",
    type=VersionType(),
    help="The version to start from; by default the newest.",
)
@click.option("--delete", "deleting", is_flag=True, help="Delete the branch and its rows.")
def branch(place: Place, *, name: str, at: VersionOrName | None, deleting: bool) -> None:
    """Create the branch NAME, or delete it.

    A branch is a table with its own commits that starts as this one; nothing is copied. Other
    commands use it with --branch NAME. A pin protects its rows from vacuum, until --delete.
    """
    if deleting and at is not None:
        raise InvalidInput("give --at or --delete, not both")
    table = place.open()
    if deleting:
        table.delete_branch(name)
        if place.as_json:
            place.answer(table, table.refresh().version, "", name=name)
        else:
            terminal.say(f"branch {name} is deleted")
        return
    made = table.branch(name, at)
    version = made.session.head().version
    if place.as_json:
        place.answer(
            table, table.session.head().version, "", name=name, branch=made.uri, fork=version
        )
    else:
        terminal.say(f"branch {name} begins with version {version}: {made.uri}")


@click.command()
@common
@listing
def branches(place: Place) -> None:
    """List the branches of the table.

    So are the remains that interrupted programs left of others.
    """
    rows = place.open().branches()
    if place.as_json:
        names = ("name", "fork", "head", "held", "unfinished", "pin_only", "damage")
        terminal.json_list({name: getattr(each, name) for name in names} for each in rows)
        return
    terminal.table(
        ("name", "fork", "head", "state"),
        ((b.name, _shown(b.fork), _shown(b.head), _state(b)) for b in rows),
        right=("fork", "head"),
    )
    for each in (b for b in rows if b.damage is not None):
        terminal.note(f"{each.name} is damaged: {each.damage}")
    if any(b.unfinished and not b.pin_only for b in rows):
        terminal.note(
            "unfinished: `eventlog branch URI NAME` goes on, or removes it with --delete. If "
            "no program was making it, its `_fork.json` may be lost: `eventlog fsck` shows whether "
            "it has commits"
        )
    if any(b.pin_only for b in rows):
        terminal.note(
            "only a pin: if the table is a copy, its source has the branch, and the pin goes when "
            "the branch is deleted there; leave it alone. Else a program died while it made the "
            "branch: `eventlog branch URI NAME` goes on, or removes the pin with --delete"
        )


VERBS = (branch, branches)


def _shown(version: int | None) -> str:
    return "" if version is None else str(version)


def _state(branch: Branch) -> str:
    if branch.damage is not None:
        return "damaged"
    if branch.pin_only:
        return "only a pin"
    if branch.unfinished:
        return "unfinished"
    return "" if branch.held else "not held: the next vacuum pins it again (eventlog fsck)"
