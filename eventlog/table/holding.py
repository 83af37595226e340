"""Pins on versions and claims on time ranges: the methods of `Table` that take and remove them.

Each is recorded in the log with its owner and the version that set it (FORMAT.md "Pins, replicas,
restore", "Claims").
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from eventlog.arguments import MAX_VERSION, choice, seconds, shown, text, whole
from eventlog.commit.identity import WINDOW_S
from eventlog.display import command
from eventlog.errors import ClaimLost, CommitConflict, InvalidInput
from eventlog.model.actions import Break, SetPin, TakeClaim, Unpin
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.entries import ClaimKind, Segment
from eventlog.model.records import Claim
from eventlog.query.moments import Moment, to_ms
from eventlog.state.small import claims, holds
from eventlog.store.branching.roots import held_from
from eventlog.table.branching.names import OWNER, branch_of
from eventlog.table.leases import Lease, is_silent
from eventlog.table.ports import OpenTable
from eventlog.table.writer import writer_name

logger = logging.getLogger(__name__)

_POLL_S = 1.0
_KINDS = ("exclusive", "shared")


def pin(
    table: OpenTable, name: str, version: int | None = None, *, owner: str | None = None
) -> int:
    """See `Table.pin`."""
    head = table.refresh()
    wanted = head.version if version is None else whole(version, "version")
    pin_owner = writer_name() if owner is None else owner
    holds.check_names(name, pin_owner)
    held = held_from(table.store.forks)
    holds.check_kept(head.meta, head.version, wanted, table.uri, held=held)
    known = head.meta.pins.get(name)
    # against inherited-pin-taken-for-kept
    mine = known is not None and known.owner == pin_owner and known.version >= held
    if known is not None and mine and (version is None or wanted == known.version):
        table.verify(WINDOW_S)
        return known.version
    if known is not None:
        raise CommitConflict(
            f"pin {name!r} is held by {known.owner} on version {known.version}: unpin it, "
            "or choose another name",
            table=table.uri,
        )
    try:
        table.commit(table.transaction("pin", [SetPin(name, wanted, pin_owner)]))
    except CommitConflict:
        newest = table.refresh()
        holds.check_kept(newest.meta, newest.version, wanted, table.uri, held=held)
        raise
    return wanted


def unpin(table: OpenTable, name: str, *, owner: str | None = None) -> None:
    """See `Table.unpin`."""
    pin = holds.pin_of(table.refresh().meta, name)
    pin_owner = writer_name() if owner is None else owner
    broken = command("unpin", table.uri, name, "--break")
    if pin.owner == OWNER != pin_owner:
        branch = branch_of(table.store, name)
        raise CommitConflict(
            f"pin {name!r} keeps what a branch reads: deleting the branch removes it "
            f"({command('branch', table.uri, branch, '--delete')})"
            if branch is not None
            else f"pin {name!r} came with the log of a table that has, or had, such a branch, and "
            f"keeps nothing that a branch of this one reads: break_pin ({broken}) removes it",
            table=table.uri,
        )
    if pin.owner != pin_owner:
        raise CommitConflict(
            f"pin {name!r} belongs to {pin.owner!r}, not to {pin_owner!r}: break_pin "
            f"({broken}) removes it regardless of its owner",
            table=table.uri,
        )
    table.commit(table.transaction("unpin", [Unpin(name, pin_owner, pin.token)]))


def break_pin(table: OpenTable, name: str) -> None:
    """See `Table.break_pin`."""
    pin = holds.pin_of(table.refresh().meta, name)
    table.commit(table.transaction("break", [Break("pin", name, pin.token)]))


def claim_action(
    claim_id: str,
    start: Moment | None,
    end: Moment | None,
    segments: Iterable[Segment],
    *,
    kind: ClaimKind,
    priority: int,
    group: str | None,
    owner: str | None,
) -> TakeClaim:
    """Return the action that takes a claim; see `Table.claim` for the arguments.

    Raises:
        InvalidInput: an argument is wrong.
    """
    chosen = _segments(segments)
    low, high = _range(start, end, chosen)
    action = TakeClaim(
        id=claim_id,
        start=low,
        end=high,
        segments=tuple(sorted({segment.id for segment in chosen})),
        kind="shared" if choice(kind, "kind", _KINDS) == "shared" else "exclusive",
        priority=whole(priority, "priority", -MAX_VERSION),
        group=claim_id if group is None else text(group, "group"),
        owner=writer_name() if owner is None else text(owner, "owner"),
    )
    problem = claims.malformed(action)
    if problem:
        raise InvalidInput(problem)
    return action


def grant(table: OpenTable, action: TakeClaim, *, take_over: bool) -> Lease:
    """Take the claim and return its lease; see `Table.claim`."""
    meta = table.refresh().meta
    if claims.held_already(meta.claims, action) is not None:
        table.verify(WINDOW_S)
    else:
        if take_over:
            _break_silent(table, action, meta.claims)
        table.commit(table.transaction("claim", [action]))
        meta = table.head().meta
    held = claims.held_already(meta.claims, action)
    if held is None:
        raise ClaimLost("the claim was granted and immediately revoked", table=table.uri)
    return Lease(table, held, meta.claims[held], joined=held != action.id)


def break_claim(table: OpenTable, claim_id: str, *, silent_s: float = 0) -> None:
    """See `Table.break_claim`."""
    silent_s = seconds(silent_s, "silent_s")
    seen = _claim_of(table.refresh().meta.claims, text(claim_id, "claim_id"))
    waited = 0.0
    while waited < silent_s:  # against silence-not-waited-for
        pause = min(_POLL_S, silent_s - waited)
        table.clock.sleep(pause)
        waited += pause
        now = table.refresh().meta.claims.get(claim_id)
        if now != seen:  # against renewal-not-seen-while-watching
            change = (
                "was removed in the meantime"
                if now is None
                else f"was renewed in version {now.renewed}: its holder is alive"
            )
            raise CommitConflict(f"claim {claim_id} {change}", table=table.uri)
    # against break-names-the-latest-renewal
    broken = Break("claim", claim_id, seen.token, seen.renewed)
    table.commit(table.transaction("break", [broken]))


def _segments(segments: Any) -> tuple[Segment, ...]:
    if isinstance(segments, Iterable) and not isinstance(segments, str):
        chosen = tuple(segments)
        if all(isinstance(segment, Segment) for segment in chosen):
            return chosen
    raise InvalidInput(
        f"segments must be segments of a snapshot (Snapshot.segments), not {shown(segments)}"
    )


def _range(
    start: Moment | None, end: Moment | None, segments: tuple[Segment, ...]
) -> tuple[int, int]:
    bounds = [parse_chunk(segment.chunk) for segment in segments]
    low = min((chunk.start for chunk in bounds), default=MIN_MS)
    high = max((chunk.end for chunk in bounds), default=MAX_MS)
    if start is not None:
        first = to_ms(start, whole=True)
        low = min(low, first) if bounds else first
    if end is not None:
        last = to_ms(end, whole=True)
        high = max(high, last) if bounds else last
    return low, high


def _break_silent(table: OpenTable, action: TakeClaim, standing: Mapping[str, Claim]) -> None:
    """Break the stale claims that conflict with `action`."""
    table.watch.look(standing, table.clock.elapsed_s())
    for claim_id, claim in claims.conflicting(action, standing).items():
        if claim.priority < action.priority or not is_silent(table, claim_id, claim):
            continue
        broken = Break("claim", claim_id, claim.token, claim.renewed)
        try:
            table.commit(table.transaction("break", [broken]))
        except CommitConflict:
            continue  # it was removed, or its holder is alive after all
        logger.warning("broke claim %s of %s: it was stale", claim_id, claim.owner)


def _claim_of(standing: Mapping[str, Claim], claim_id: str) -> Claim:
    if claim_id not in standing:
        known = ", ".join(list(standing)[:10]) or "none"
        raise InvalidInput(f"there is no claim {claim_id!r}; there are: {known}")
    return standing[claim_id]
