"""The verbs tag, untag and tags: names of versions.

Needs the extra `cli`.
"""

from __future__ import annotations

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, at_version, common
from eventlog.cli.screen.paging import listing
from eventlog.session.tags import VersionOrName, tag_versions


@click.command()
@common
@click.argument("name")
@at_version
def tag(place: Place, *, name: str, version: VersionOrName | None) -> None:
    """Name a version NAME, which is accepted wherever a version is.

    Vacuum keeps it and all later versions, until `eventlog untag`.
    """
    table = place.open()
    tagged = table.tag(name, version)
    if place.as_json:
        place.answer(table, table.session.head().version, "", name=name, tagged=tagged)
    else:
        terminal.say(f"tag {name} names version {tagged}")


@click.command()
@common
@click.argument("name")
def untag(place: Place, *, name: str) -> None:
    """Remove the tag NAME, whoever set it."""
    table = place.open()
    table.untag(name)
    if place.as_json:
        place.answer(table, table.session.head().version, "", name=name)
    else:
        terminal.say(f"tag {name} is removed")


@click.command()
@common
@listing
def tags(place: Place) -> None:
    """List the tags, oldest version first."""
    meta = place.unread().snapshot().meta
    ordered = sorted(tag_versions(meta).items(), key=lambda item: (item[1], item[0]))
    rows = [(name, version, meta.pins[name].time) for name, version in ordered]
    if place.as_json:
        terminal.json_list(
            {"name": name, "tagged": version, "time": terminal.iso(since)}
            for name, version, since in rows
        )
        return
    terminal.table(
        ("tag", "version", "since"),
        ((name, version, terminal.time_text(since)) for name, version, since in rows),
        right=("version",),
        whole=("since",),
    )


VERBS = (tag, untag, tags)
