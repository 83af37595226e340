"""The verbs that maintain a table: pin, unpin, pins, claims, restore, drop, clock.

Needs the extra `cli`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, common, only_with_run, unless_dry
from eventlog.cli.screen.paging import listing
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add, Drop
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.entries import Segment
from eventlog.model.records import Claim, Pin, Totals
from eventlog.quantities import count_text, size_text
from eventlog.recovery.fallback import is_whole
from eventlog.session.tags import VersionOrName
from eventlog.state.small import timing
from eventlog.store.parallel import each
from eventlog.store.port import store_time_ms
from eventlog.table.leases import SILENT_S
from eventlog.table.restoration import units_text

_owner = click.option("--owner", help="Owner of the pin; by default this user on this host.")


@click.command()
@common
@click.argument("name")
@click.argument("version", type=VersionType(), required=False)
@_owner
def pin(place: Place, *, name: str, version: VersionOrName | None, owner: str | None) -> None:
    """Protect a version from vacuum with a pin called NAME.

    The default of VERSION is the newest one.
    """
    table = place.open()
    pinned = table.pin(name, version, owner=owner)
    if place.as_json:
        place.answer(table, table.session.head().version, "", name=name, pinned=pinned)
    else:
        terminal.say(
            f"pin {name} protects version {pinned} and all later versions until `eventlog unpin`"
        )


@click.command()
@common
@click.argument("name")
@_owner
@click.option("--break", "breaking", is_flag=True, help="Remove it even if another owner set it.")
def unpin(place: Place, *, name: str, owner: str | None, breaking: bool) -> None:
    """Remove the pin NAME."""
    if breaking and owner is not None:
        raise InvalidInput("give --owner or --break, not both")
    table = place.open()
    if breaking:
        table.break_pin(name)
    else:
        table.unpin(name, owner=owner)
    if place.as_json:
        place.answer(table, table.session.head().version, "", name=name, broken=breaking)
    else:
        terminal.say(f"pin {name} is {'broken' if breaking else 'removed'}")


@click.command()
@common
@listing
def pins(place: Place) -> None:
    """List the pins, oldest version first."""
    held = place.unread().snapshot().meta.pins
    ordered = sorted(held.items(), key=lambda item: (item[1].version, item[0]))
    if place.as_json:
        terminal.json_list(_pin_json(name, each) for name, each in ordered)
        return
    terminal.table(
        ("name", "version", "owner", "since"),
        ((name, p.version, p.owner, terminal.time_text(p.time)) for name, p in ordered),
        right=("version",),
        whole=("since",),
    )


@click.command()
@common
@click.option("--break", "broken", metavar="ID", help="Remove this claim, whoever owns it.")
@click.option(
    "--silent",
    type=click.FloatRange(min=0, max=86_400),
    default=SILENT_S,
    show_default=True,
    help="Seconds to watch the claim first; it is not broken if its holder renews it.",
)
@listing
def claims(place: Place, *, broken: str | None, silent: float) -> None:
    """List the current claims, or break one whose holder is dead.

    Later commits under a broken claim are void: its holder may lose work, but the table is safe.
    """
    table = place.open()
    if broken is not None:
        table.break_claim(broken, silent_s=silent)
        if place.as_json:
            place.answer(table, table.session.head().version, "", id=broken, broken=True)
        else:
            terminal.say(f"claim {broken} is broken")
        return
    ordered = sorted(table.claims().items(), key=lambda item: (item[1].token, item[0]))
    if place.as_json:
        terminal.json_list(_claim_json(name, each) for name, each in ordered)
        return
    terminal.table(
        ("id", "kind", "of", "priority", "owner", "group", "since", "renewed"),
        (
            (
                name,
                c.kind,
                _scope(c),
                str(c.priority),
                c.owner,
                c.group,
                str(c.token),
                str(c.renewed),
            )
            for name, c in ordered
        ),
        right=("priority", "since", "renewed"),
    )
    if ordered:
        terminal.note("since and renewed are versions (`eventlog log` shows their times)")


@click.command()
@common
@click.argument("version", type=VersionType())
@unless_dry
@click.option(
    "--forget-units",
    is_flag=True,
    help="Let the units of work (app ids and sequences) that are undone be loaded again.",
)
def restore(place: Place, *, version: VersionOrName, dry_run: bool, forget_units: bool) -> None:
    """Make the segments of VERSION live again; nothing is copied.

    All rows of later versions go, right ones too; those versions stay readable. To undo one load
    alone: eventlog drop --version. Schema and properties stay as they are. A commit that changes
    rows while this command runs is a conflict, and nothing is restored.
    """
    table = place.open()
    plan = table.restore(version, forget_units=forget_units, dry_run=True)
    head, target, actions, units = plan.head, plan.target, plan.actions, plan.undone
    dropped = {action.id for action in actions if isinstance(action, Drop)}
    added = [action for action in actions if isinstance(action, Add)]
    # Of these only the deleted rows change.
    again = [action for action in added if action.id in dropped]
    adds = [action for action in added if action.id not in dropped]
    drops = len(dropped) - len(again)
    committed = None if dry_run else plan.commit()
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "version": head.version if committed is None else committed,
                "committed": committed is not None,
                "restored": target.version,
                "from": head.version,
                "adds": len(adds),
                "drops": drops,
                "vectors": len(again),
                "rows": target.totals.rows - head.totals.rows,
                "bytes": target.totals.bytes - head.totals.bytes,
                "undone_units": [
                    {"app_id": u.app_id, "kept": u.kept, "last": u.last} for u in units
                ],
                "units_forgotten": forget_units and committed is not None,
            }
        )
        return
    back = Totals(len(adds), sum(add.live_rows for add in adds), sum(add.bytes for add in adds))
    terminal.say(f"from version {head.version}: {terminal.totals_text(head.totals)}")
    terminal.say(f"back to version {target.version}: {terminal.totals_text(target.totals)}")
    if actions:
        one = head.version == target.version + 1
        later = (
            f"version {head.version}" if one else f"versions {target.version + 1} to {head.version}"
        )
        terminal.say(f"takes back what {later} did to rows, right loads included")
    terminal.say(f"drops {count_text(drops, 'segment')}, brings back {terminal.totals_text(back)}")
    if again:
        terminal.say(f"exchanges the deleted rows of {count_text(len(again), 'segment')}")
    if units:
        rest = (
            "they can be loaded again"
            if forget_units
            else "they still count as done: --forget-units lets them be loaded again"
        )
        terminal.say(f"undoes units of work of apps: {units_text(units)}; {rest}")
    terminal.say(_verdict(committed, head.version, changed=bool(actions)))


@click.command()
@common
@click.argument("names", metavar="[SEGMENT]...", nargs=-1)
@click.option(
    "--version", type=VersionType(), help="Drop all segments that this version added: one load."
)
@click.option("--reason", help="The reason, for the history. Required with --run.")
@only_with_run
@listing
def drop(
    place: Place,
    *,
    names: Sequence[str],
    version: VersionOrName | None,
    reason: str | None,
    run: bool,
) -> None:
    """Drop the segments of a wrong load, or lost ones.

    --version undoes one load and keeps what came later. SEGMENT is a key as fsck names it, or an
    id. The rows disappear from the new version on. Older versions still need the segments. To drop
    lost ones lets the rest be read: try the other steps of docs/guides/data-loss.md first.
    """
    if bool(names) == (version is not None):
        raise InvalidInput("give either SEGMENTs or --version: of a wrong load, or of lost rows")
    if run and reason is None:
        raise InvalidInput("--run needs --reason, which the history shows")
    table = place.open()
    segments = _live(table.snapshot(), names) if version is None else table.added_by(version)
    wholes = each(lambda segment: is_whole(table.store, segment), segments)
    shown = [(keys.key_of(s), s, whole) for s, whole in zip(segments, wholes, strict=True)]
    committed = table.drop_segments(segments, reason=reason or "") if run else None
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "version": table.session.head().version if committed is None else committed,
                "committed": committed is not None,
                "dropped": [
                    {
                        "key": key,
                        "id": s.id,
                        "rows": s.live_rows,
                        "bytes": s.bytes,
                        "intact": intact,
                    }
                    for key, s, intact in shown
                ],
            }
        )
        return
    _say_drops(shown, committed)


@click.command()
@common
@click.option("--set", "setting", is_flag=True, help="Correct the table's time.")
@click.option(
    "--time", "text", metavar="TIME", help="With --set: the true time, if no clock is right."
)
def clock(place: Place, *, setting: bool, text: str | None) -> None:
    """Show the table's time and the clocks, or correct the time.

    The time of a commit is never before that of the previous one. After a commit by a clock that
    was years off, the table may refuse further commits, or keep old versions for years. --set
    corrects its time to that of the store, or of this machine if the store reports none.
    """
    if text is not None and not setting:
        raise InvalidInput("--time is the time for --set: give both, or neither")
    table = place.open()
    head = table.snapshot()
    store_ms, here_ms = table.store.now_ms(), table.clock.now_ms()
    now_ms = store_time_ms(table.store, table.clock)
    odd = timing.time_problem(head.header, now_ms, table.uri)
    committed = table.set_clock(text) if setting else None
    after = table.session.head()
    corrections = [(c.version, c.old, c.new) for c in after.meta.clock]
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "version": after.version,
                "committed": committed is not None,
                "table_time": terminal.iso(after.header.time),
                "machine_time": terminal.iso(here_ms),
                "store_time": None if store_ms is None else terminal.iso(store_ms),
                "odd": odd,
                "corrections": [
                    {"version": v, "old": terminal.iso(old), "new": terminal.iso(new)}
                    for v, old, new in corrections
                ],
            }
        )
        return
    terminal.facts(
        [
            ("table", f"{terminal.time_text(after.header.time)}, version {after.version}"),
            ("this machine", terminal.time_text(here_ms)),
            ("store", "reports no time" if store_ms is None else terminal.time_text(store_ms)),
            *(
                (
                    "corrected",
                    f"{terminal.time_text(old)}, version {v}, to {terminal.time_text(new)}",
                )
                for v, old, new in corrections
            ),
        ]
    )
    if odd is not None and committed is None:
        terminal.note(odd)


def _live(snapshot: Snapshot, names: Sequence[str]) -> list[Segment]:
    """Return the live segments of these keys or ids.

    Raises:
        InvalidInput: one of them is not live.
    """
    live = {segment.id: segment for segment in snapshot.segments()}
    parsed = ((name, keys.parse_segment_key(name)) for name in names)
    wanted = {name: key[2] if key else name for name, key in parsed}
    for name, segment_id in wanted.items():
        if segment_id not in live:
            raise InvalidInput(
                f"{name} is not a live segment of version {snapshot.version}: `eventlog fsck` "
                "lists the missing ones, `eventlog ls` all of them"
            )
    return [live[segment_id] for segment_id in dict.fromkeys(wanted.values())]


def _say_drops(shown: Sequence[tuple[str, Segment, bool]], committed: int | None) -> None:
    """Show the segments that are dropped, or would be, with their rows."""
    terminal.table(
        ("key", "rows", "bytes", "object"),
        (
            (
                key,
                terminal.with_thousands(s.live_rows),
                size_text(s.bytes),
                "intact" if intact else "lost",
            )
            for key, s, intact in shown
        ),
        right=("rows", "bytes"),
    )
    rows = sum(s.live_rows for _, s, _ in shown)
    changed = sum(s.rows for _, s, _ in shown) - rows
    what = f"{count_text(len(shown), 'segment')} with {count_text(rows, 'row')}"
    terminal.note(
        f"nothing was changed: --run drops {what}"
        if committed is None
        else f"version {committed}: dropped {what}"
    )
    if changed:
        terminal.note(
            f"{count_text(changed, 'row')} more deleted or updated before: new forms of updated "
            "rows are in segments of the updates, and stay"
        )


def _pin_json(name: str, held: Pin) -> dict[str, Any]:
    since = terminal.iso(held.time)
    return {"name": name, "pinned": held.version, "owner": held.owner, "token": held.token,
            "time": since}  # fmt: skip


def _claim_json(name: str, held: Claim) -> dict[str, Any]:
    """Return a claim for programs; an end that it does not have is null."""
    values = msgspec.to_builtins(held)
    start, end = values.pop("start"), values.pop("end")
    return {
        "id": name,
        "start_time": None if start == MIN_MS else terminal.iso(start),
        "end_time": None if end == MAX_MS else terminal.iso(end),
        "segment_ids": values.pop("segments"),
        **values,
    }


def _scope(held: Claim) -> str:
    """Return the scope of a claim as text: number of segments, the whole table, or the range."""
    if held.segments:
        return count_text(len(held.segments), "segment")
    if (held.start, held.end) == (MIN_MS, MAX_MS):
        return "the whole table"
    start = "the beginning" if held.start == MIN_MS else terminal.time_text(held.start)
    end = "the end" if held.end == MAX_MS else terminal.time_text(held.end)
    return f"{start} to {end}"


def _verdict(committed: int | None, head: int, *, changed: bool) -> str:
    if not changed:
        return f"nothing to do: version {head} has these segments"
    return (
        "nothing was committed (--dry-run)" if committed is None else f"version {committed}: done"
    )
