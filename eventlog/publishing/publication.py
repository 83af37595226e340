"""What lies in a table's root for the engines of another format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple
from urllib.parse import unquote

from eventlog.display import command
from eventlog.errors import EventLogError, KeyNotFound, VersionVacuumed
from eventlog.session.session import Session
from eventlog.store.branching.roots import root_of
from eventlog.store.port import ObjectStore


@dataclass(frozen=True, slots=True)
class Publication:
    """The versions of a table that engines read in another format.

    Attributes:
        table: the table's root URI.
        format: `delta` or `iceberg`.
        first: the oldest published version.
        last: the newest one.
        put: how many versions this call published; 0 if all were.
        location: the URI that engines open: `metadata/` of Iceberg lies there. That of a branch is
            below its id, so that a branch of the same name that is made later is another table.
        behind: how many of the versions that were asked for come after the newest published one:
            their rows are merged of several stored ones, which no other format can say.
        spans: the first and the last of successive published versions, ascending. Only versions
            that Iceberg cannot say, or that `first` passed over, are between them.
    """

    table: str
    format: str
    first: int
    last: int
    put: int
    location: str
    behind: int = 0
    spans: tuple[tuple[int, int], ...] = ()


class PublicationProblem(NamedTuple):
    """What is wrong with an object of a publication."""

    message: str
    key: str
    version: int | None
    severity: Literal["error", "warning"] = "error"


def engine_root(store: ObjectStore, prefix: str) -> str:
    """Return the URI of a table's own root as other engines take it: they decode no path.

    Args:
        store: of the table.
        prefix: of the table's own objects.
    """
    kind, _, rest = root_of(store, prefix).partition("://")
    return f"{kind}://{unquote(rest) if kind == 'file' else rest}"


def made_again(format_name: str, uri: str, spans: Iterable[tuple[int, int]], *options: str) -> str:
    """Return the commands that take a publication back, and publish the same versions again.

    Args:
        format_name: `delta` or `iceberg`.
        uri: of the table.
        spans: the first and the last of successive versions that are published; none: the newest.
        options: of `eventlog publish`, so that it has the same form.
    """
    ranges = [["--from", str(first), "--version", str(last)] for first, last in spans]
    publishing = [command("publish", format_name, uri, *r, *options) for r in ranges or [[]]]
    return ", then ".join([command("unpublish", format_name, uri, "--run"), *publishing])


def unread(format_name: str, uri: str, prefix: str) -> PublicationProblem:
    """Return the problem of a publication of which only objects without a version are left.

    Args:
        format_name: `delta` or `iceberg`.
        uri: of the table.
        prefix: of the keys of the publication.
    """
    return PublicationProblem(
        "no version is published, though objects of a publication are there: it is under way, was "
        f"interrupted, or lost its versions. {command('publish', format_name, uri)} publishes "
        f"them, or {command('unpublish', format_name, uri, '--run')} deletes the objects",
        prefix,
        None,
        "warning",
    )


def audited(
    session: Session,
    prefixes: Iterable[str],
    audit: Callable[[Session], Iterator[PublicationProblem]],
) -> tuple[PublicationProblem, ...]:
    """Return what an audit of a publication finds, which begins again where a vacuum overtook it.

    A vacuum takes what is published of old versions, and their segments: an audit that looked at
    them before finds them missing. Without a publication this costs one LIST a prefix.

    Args:
        session: of the table.
        prefixes: of the keys of the publication.
        audit: yields the problems.

    Raises:
        EventLogError: as the audit.
    """
    if not any([*session.store.list(prefix, limit=1)] for prefix in prefixes):
        return ()
    while True:
        horizon = session.refresh().meta.horizon
        found: tuple[PublicationProblem, ...] | None = None
        try:
            found = (*audit(session),)
        except (KeyNotFound, VersionVacuumed):
            if session.refresh().meta.horizon <= horizon:
                raise
        # against audit-overtaken-by-a-vacuum
        if found is not None and (not found or session.refresh().meta.horizon <= horizon):
            return found


def another_table(format_name: str, uri: str, key: str, kind: type[EventLogError]) -> EventLogError:
    """Return the error for a table of another format in the root of a table.

    Args:
        format_name: its name.
        uri: of the root.
        key: of an object of that table.
        kind: of the error.
    """
    return kind(
        f"`{key.partition('/')[0]}/` is of a table of {format_name} that eventlog did not publish, "
        "and whose programs may delete the files of this one: give this table a root of its own, "
        "by a copy of its rows, or remove that table yourself, without its vacuum or purge",
        table=uri,
        key=key,
    )


def overtaken(newest: int, name: str, advice: str) -> str:
    """Return the warning of a publication that ends below the horizon of a vacuum.

    Args:
        newest: the newest published version.
        name: of the format.
        advice: what to do.
    """
    return (
        f"versions above {newest} are not published as {name}, and readers of the older ones may "
        f"miss files that a vacuum deletes: {advice}"
    )


def successive(versions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of successive ones of some versions."""
    for _, run in groupby(enumerate(sorted(versions)), lambda pair: pair[1] - pair[0]):
        members = [version for _, version in run]
        yield members[0], members[-1]


def always() -> bool:
    """Return True: versions are published without a limit."""
    return True
