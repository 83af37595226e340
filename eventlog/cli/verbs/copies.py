"""The verbs replicate, replicas, and merge.

Needs the extra `cli`.
"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import Place, common, driver_option, pairs, start_driver, unless_dry
from eventlog.cli.screen.paging import listing
from eventlog.clock import SystemClock
from eventlog.display import command
from eventlog.errors import CommitConflict, Corrupt, EventLogError, InvalidInput, Unavailable
from eventlog.merging.merger import Merged
from eventlog.merging.planning.by_state.sides import Take
from eventlog.quantities import count_text, size_text
from eventlog.replication.attachment import break_replica, detach, newest_news, owner_of
from eventlog.replication.attachment import replicas as attached_to
from eventlog.replication.backfill import Backfilled, backfill
from eventlog.replication.follow import Followed, Follower
from eventlog.replication.merge import merge as merged_into
from eventlog.replication.steps import From
from eventlog.store.branching.branch import BranchStore
from eventlog.store.location import open_store
from eventlog.store.parallel import DriverName, executors_of
from eventlog.store.retry import wait_s
from eventlog.table.table import Table


@click.command()
@common
@click.argument("target")
@click.option("--name", help="Attach the copy under this name: vacuum of URI then waits for it.")
@click.option(
    "--from", "start", type=click.Choice(["oldest", "keyframe"]), default="oldest",
    help="Where a new copy starts: at the oldest version that URI keeps, or at its newest key "
    "frame.",
)  # fmt: skip
@click.option(
    "--backfill",
    "older",
    is_flag=True,
    help="Then copy the versions left out before or lost, even to a copy that has been written to.",
)
@click.option("--follow", "following", is_flag=True, help="Keep going until interrupted.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=10.0, show_default=True,
    help="With --follow: seconds between two checks of URI.",
)  # fmt: skip
@click.option(
    "--target-option", "target_options", metavar="NAME=VALUE", multiple=True, callback=pairs,
    help="Storage option of TARGET; by default those of URI apply to both. Repeatable.",
)  # fmt: skip
@driver_option("Where segments are copied: in this process, or on Spark's executors.")
def replicate(  # noqa: PLR0913 - the options of the verb
    place: Place,
    *,
    target: str,
    name: str | None,
    start: From,
    older: bool,
    following: bool,
    every: float,
    target_options: dict[str, str],
    driver: DriverName,
) -> None:
    """Copy the table, byte for byte, or bring a copy up to date.

    TARGET becomes a copy of the table at URI. It can be interrupted at any time and started again.
    TARGET is a table at every moment. Queries may read it; once it is written to, it can no longer
    follow URI (see `eventlog merge`).
    """
    start_driver(driver)
    executors, clock = executors_of(driver), SystemClock()
    options = target_options or place.storage_options
    table, store = place.open(), open_store(target, options, clock)
    with terminal.progress() as advance:
        follower = Follower(
            table, store, clock, name=name, start=start, executors=executors, progress=advance
        )
        refused = None
        try:
            done = follower.step()
        except (CommitConflict, Corrupt) as error:
            if not older or (following and isinstance(error, CommitConflict)):
                raise
            refused = error  # a copy that took writes of its own can still be filled
        filled = None
        if older:
            filled = backfill(
                table, target, target_options=options, driver=driver, progress=advance
            )
        if isinstance(refused, Corrupt):  # commits that the copy had lost are there again
            done, refused = follower.step(), None
    if refused is not None and filled is not None:
        _tell(place, {"backfilled": msgspec.to_builtins(filled)}, _filled_text(filled))
        terminal.note(f"no newer version was copied: {refused}")
        return
    _say(place, done, filled)
    failures = 0
    while following:
        try:
            clock.sleep(
                every if not failures else max(every, wait_s(failures, clock.random_fraction()))
            )
            done = follower.step()
            failures = 0
        except Unavailable as error:
            failures += 1
            terminal.note(f"eventlog: {error}; trying again")
            continue
        if done.versions:
            _say(place, done)


@click.command()
@common
@click.option(
    "--detach", "detached", metavar="NAME", help="Remove a copy that is to follow no longer."
)
@click.option("--break", "broken", metavar="NAME", help="Remove a copy that is lost.")
@listing
def replicas(place: Place, *, detached: str | None, broken: str | None) -> None:
    """List the copies that vacuum waits for, or remove one."""
    table = place.open()
    if detached is not None and broken is not None:
        raise InvalidInput("give --detach or --break, not both")
    name = detached if detached is not None else broken
    if name is not None:
        version = (detach if detached is not None else break_replica)(table, name)
        removed = f"replica {name} is removed: vacuum waits for it no more"
        place.answer(table, version, removed, name=name)
        return
    attached = sorted(attached_to(table).items())
    newest = newest_news(table.session) if attached else 0
    behind = {key: max(0, newest - replica.acked) for key, replica in attached}
    if place.as_json:
        terminal.json_list(
            {"name": key, **msgspec.to_builtins(replica), "behind": behind[key]}
            for key, replica in attached
        )
        return
    terminal.table(
        ("name", "has version", "behind", "since", "root"),
        ((key, str(r.acked), str(behind[key]), str(r.token), r.owner) for key, r in attached),
        right=("has version", "behind", "since"),
    )
    if attached:
        terminal.note(
            "`since` is the version that attached it; `behind` leaves out the last acknowledgements"
        )
    for key, replica in attached:
        if replica.owner == owner_of(table.store):
            terminal.note(
                f"{key} is this table itself, as a copy: if it has taken over, remove the name "
                f"with {command('replicas', place.uri, '--break', key)}"
            )


@click.command()
@common
@click.argument("target", required=False)
@click.option(
    "--target-option", "target_options", metavar="NAME=VALUE", multiple=True, callback=pairs,
    help="Storage option of TARGET; by default those of URI apply to both. Repeatable.",
)  # fmt: skip
@click.option(
    "--take", type=click.Choice(["source", "target"]),
    help="Whose state counts where both made changes that exclude each other: that of URI (or the "
    "branch), or of TARGET. The changes of the other one are left out there, and listed.",
)  # fmt: skip
@unless_dry
def merge(
    place: Place,
    *,
    target: str | None,
    target_options: dict[str, str],
    take: Take | None,
    dry_run: bool,
) -> None:
    """Merge what only one copy has into another, or a branch.

    TARGET gets the transactions that only URI has, each once. URI and TARGET are copies of one
    table that were both written to. After a merge in each direction, both have the same rows, and a
    further merge finds nothing to do. With --branch NAME, and without TARGET, the branch is
    published: URI gets all its changes in one version.
    """
    source = place.open()
    if target is not None:
        options = target_options or place.storage_options
        done = merged_into(source, target, target_options=options, take=take, dry_run=dry_run)
    elif isinstance(source.store, BranchStore):
        done = Table(source.store.parent).merge(source, take=take, dry_run=dry_run)
    else:
        raise InvalidInput("give a TARGET, or the branch to publish with --branch")
    carried = count_text(done.transactions, "transaction") if done.transactions else "nothing"
    more = f", {done.declined:,} rewrites left out" if done.declined else ""
    commits, size = count_text(done.commits, "version"), size_text(done.bytes)
    how = (
        f"copied {commits} of {done.source} as they are, {size}"
        if done.followed
        else f"{carried} carried in {commits}, {count_text(done.segments, 'segment')}, {size}{more}"
    )
    text = (
        f"{done.target} has version {done.head} now: {how}"
        if done.commits
        else f"{done.target} has everything of {done.source}: nothing to merge"
    )
    if dry_run:
        text = f"{carried} to carry; nothing was committed"
    _tell(place, _merge_json(done, dry_run=dry_run), text)
    for what in done.differing:
        terminal.note(
            f"{what} has another value in {done.target} than in {done.source}, and no merge would "
            "change it: set it in one of them (`eventlog properties`, `eventlog granularity`), "
            "and merge again"
        )
    for left in done.left_out:
        versions = ", ".join(map(str, left.versions))
        rows = f" ({count_text(left.rows, 'row')})" if left.rows else ""
        kept = "would be left out" if dry_run else "left out, and still readable there"
        terminal.note(f"{kept}: {left.what}{rows} that {left.root} set in version {versions}")


VERBS = (replicate, replicas, merge)


def _merge_json(done: Merged, *, dry_run: bool) -> dict[str, Any]:
    values = msgspec.to_builtins(done)
    return {
        "table": done.target,
        "version": values.pop("head"),
        "committed": bool(done.commits) and not dry_run,
        "read_version": values.pop("version"),
        **values,
    }


def _say(place: Place, done: Followed, filled: Backfilled | None = None) -> None:
    facts, more = msgspec.to_builtins(done), ""
    if not done.versions:
        text = f"{done.target} has version {done.version}, the newest: nothing to copy"
    else:
        text = (
            f"{done.target} has version {done.version} now: copied "
            f"{count_text(done.versions, 'version')} from {done.start} on, "
            f"{count_text(done.objects, 'object')}, {size_text(done.bytes)}"
        )
    if filled is not None:
        facts["backfilled"] = msgspec.to_builtins(filled)
        more = _filled_text(filled)
    _tell(place, facts, text)
    if more and not place.as_json:
        terminal.say(more)
    if done.attached is False:
        raise EventLogError(
            "the copy was detached, or attached again, meanwhile: the table does not wait for it; "
            "run the command again",
            table=done.source,
        )


def _filled_text(filled: Backfilled) -> str:
    return (
        f"backfilled {count_text(filled.versions, 'version')}: "
        f"{count_text(filled.objects, 'object')}, {size_text(filled.bytes)}"
    )


def _tell(place: Place, facts: object, text: str) -> None:
    if place.as_json:
        terminal.json_line(facts)
    else:
        terminal.say(text)
