"""The verbs publish and unpublish. Needs the extra `cli`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import (
    Place,
    VersionType,
    common,
    driver_option,
    only_with_run,
    start_driver,
)
from eventlog.errors import InvalidInput
from eventlog.publishing import Publication, follow, publish, unpublish
from eventlog.publishing.following import published
from eventlog.quantities import count_text

_format = click.argument("format_name", metavar="FORMAT", type=click.Choice(["delta", "iceberg"]))


_MOST_SPANS = 6  # of successive versions that are listed


@click.command("publish")
@_format
@common
@click.option("--version", type=VersionType(), help="The last version; by default the newest.")
@click.option(
    "--from",
    "first",
    type=VersionType(),
    help="Where a new publication begins; by default at the oldest version that vacuum keeps. "
    "To Iceberg, older versions can be published later.",
)
@click.option(
    "--format-version",
    type=click.IntRange(2, 3),
    help="Of Iceberg; by default that of the publication so far, else 2.",
)
@click.option(
    "--scheme",
    type=click.Choice(["s3", "s3a", "s3n"]),
    help="Of Iceberg's URIs; by default that of the publication so far, else of the table.",
)
@click.option(
    "--follow", "following", is_flag=True, help="Go on with each commit, until interrupted."
)
@click.option(
    "--every", type=click.FloatRange(min=0.1, max=86_400), default=1.5, show_default=True,
    help="With --follow: the longest time between two looks for a commit, in seconds.",
)  # fmt: skip
@driver_option(
    "Where the keys of a keyed table are merged: in this process, or on Spark's executors."
)
def publish_(
    place: Place, *, format_name: str, following: bool, every: float, **options: Any
) -> None:
    """Let other engines read the table, as Delta or Iceberg.

    FORMAT is delta or iceberg. Nothing is copied: `_delta_log/` or `metadata/` describes the same
    segments, and version 7 is version 7 there. Run it again after commits; it continues from what
    is published. With --follow it does so by itself; SIGINT and SIGTERM end it.
    """
    start_driver(options["driver"])
    if not following:
        _say(place, publish(place.open(), format_name, **options))
        return
    if options.pop("version") is not None:
        raise InvalidInput("--follow goes on with every version: leave --version out")
    table = place.open()
    try:
        with _interrupted_by_sigterm():
            for done in follow(table, format_name, every_s=every, **options):
                _say(place, done)
    except KeyboardInterrupt:
        there = published(table.session, format_name)
        done_now = (
            f"published as {format_name}, {there[0]} to {there[1]}" if there else "unpublished"
        )
        terminal.note(f"stopped: {table.uri} is {done_now}")


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what SIGINT does. Whatever it interrupts, what was published stays whole."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(place: Place, done: Publication) -> None:
    if place.as_json:
        terminal.json_line(msgspec.to_builtins(done))
        return
    now = f"published {count_text(done.put, 'version')}" if done.put else "nothing new"
    terminal.say(f"{done.table} is published as {done.format}, {_spans_text(done)}: {now}")
    if done.behind:
        later = count_text(done.behind, "later version")
        terminal.note(
            f"{later} cannot be published: their rows are merged of several stored ones until the "
            "table is compacted"
        )


def _spans_text(done: Publication) -> str:
    """Return which versions are published: 0 to 6, and 9."""
    if len(done.spans) > _MOST_SPANS:
        return f"{done.first} to {done.last} with {count_text(len(done.spans) - 1, 'gap')}"
    texts = [f"{a} to {b}" if a != b or len(done.spans) == 1 else str(a) for a, b in done.spans]
    return " and ".join([", ".join(texts[:-1]) + ",", texts[-1]] if texts[1:] else texts)


@click.command("unpublish")
@_format
@common
@only_with_run
def unpublish_(place: Place, *, format_name: str, run: bool) -> None:
    """Delete what is published; the table itself is not touched."""
    table = place.open()
    gone = unpublish(table, format_name, dry_run=not run)
    if place.as_json:
        terminal.json_document({"table": table.uri, "dry_run": not run, "keys": gone})
        return
    terminal.say(f"{count_text(len(gone), 'object')} {'deleted' if run else 'would be deleted'}")
    if gone and not run:
        terminal.note("nothing was changed: --run deletes these objects")


VERBS = (publish_, unpublish_)
