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
from eventlog.session.branch_pins import OWNER, branch_of
from eventlog.session.session import Session
from eventlog.session.tags import TAG_OWNER, check_tag_name, composed_hint, tag_versions
from eventlog.session.writer_name import writer_name
from eventlog.state.small import claims, holds
from eventlog.store.branching.roots import held_from
from eventlog.table.leases import Lease, is_silent

logger = logging.getLogger(__name__)

_POLL_S = 1.0
_KINDS = ("exclusive", "shared")


def pin(
    session: Session, name: str, version: int | None = None, *, owner: str | None = None
) -> int:
    """See `Table.pin`."""
    pin_owner = writer_name() if owner is None else owner
    holds.check_names(name, pin_owner)
    if pin_owner == TAG_OWNER:
        raise InvalidInput(
            f"the owner {owner!r} is that of tags, which `eventlog tag` sets: give another owner"
        )
    return _pinned(session, name, version, pin_owner)


def _pinned(session: Session, name: str, version: int | None, pin_owner: str) -> int:
    """Set a pin or a tag, and return the version that it protects."""
    head = session.refresh()
    wanted = head.version if version is None else whole(version, "version")
    oldest = held_from(session.store.forks)
    holds.check_kept(head.meta, head.version, wanted, session.uri, held=oldest)
    known = head.meta.pins.get(name)
    # against inherited-pin-taken-for-kept
    mine = known is not None and known.owner == pin_owner and known.version >= oldest
    if known is not None and mine and (version is None or wanted == known.version):
        session.verify(WINDOW_S)
        return known.version
    if known is not None:
        held = (
            f"tag {name!r} names version {known.version}: untag it"
            if known.owner == TAG_OWNER
            else f"pin {name!r} is held by {known.owner} on version {known.version}: unpin it"
        )
        raise CommitConflict(f"{held}, or choose another name", table=session.uri)
    operation = "tag" if pin_owner == TAG_OWNER else "pin"
    try:
        session.commit(session.transaction(operation, [SetPin(name, wanted, pin_owner)]))
    except CommitConflict:
        newest = session.refresh()
        holds.check_kept(newest.meta, newest.version, wanted, session.uri, held=oldest)
        raise
    return wanted


def unpin(session: Session, name: str, *, owner: str | None = None) -> None:
    """See `Table.unpin`."""
    pin = holds.pin_of(session.refresh().meta, name)
    pin_owner = writer_name() if owner is None else owner
    broken = command("unpin", session.uri, name, "--break")
    if pin.owner == OWNER != pin_owner:
        branch = branch_of(session.store, name)
        raise CommitConflict(
            f"pin {name!r} protects what a branch reads: deleting the branch removes it "
            f"({command('branch', session.uri, branch, '--delete')})"
            if branch is not None
            else f"pin {name!r} came with the log of another table, which has or had that branch. "
            f"It protects no branch of this table: break_pin ({broken}) removes it",
            table=session.uri,
        )
    if pin.owner == TAG_OWNER != pin_owner:
        raise CommitConflict(
            f"{name!r} is a tag, which `untag` removes ({command('untag', session.uri, name)})",
            table=session.uri,
        )
    if pin.owner != pin_owner:
        raise CommitConflict(
            f"pin {name!r} belongs to {pin.owner!r}, not to {pin_owner!r}: break_pin "
            f"({broken}) removes it regardless of its owner",
            table=session.uri,
        )
    session.commit(session.transaction("unpin", [Unpin(name, pin_owner, pin.token)]))


def break_pin(session: Session, name: str) -> None:
    """See `Table.break_pin`."""
    pin = holds.pin_of(session.refresh().meta, name)
    session.commit(session.transaction("break", [Break("pin", name, pin.token)]))


def set_tag(session: Session, name: str, version: int | None = None) -> int:
    """See `Table.tag`."""
    check_tag_name(name)
    holds.check_names(name)
    return _pinned(session, name, version, TAG_OWNER)


def remove_tag(session: Session, name: str) -> None:
    """See `Table.untag`."""
    meta = session.refresh().meta
    tags = tag_versions(meta)
    if text(name, "a tag's name") not in tags:
        known = ", ".join(repr(n) for n in list(tags)[:10]) or "none"
        raise InvalidInput(f"there is no tag {name!r}{composed_hint(name)}; tags: {known}")
    unpinned = Unpin(name, TAG_OWNER, meta.pins[name].token)
    session.commit(session.transaction("untag", [unpinned]))


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


def grant(session: Session, action: TakeClaim, *, take_over: bool) -> Lease:
    """Take the claim and return its lease; see `Table.claim`."""
    meta = session.refresh().meta
    if claims.held_already(meta.claims, action) is not None:
        session.verify(WINDOW_S)
    else:
        if take_over:
            _break_silent(session, action, meta.claims)
        session.commit(session.transaction("claim", [action]))
        meta = session.head().meta
    held = claims.held_already(meta.claims, action)
    if held is None:
        raise ClaimLost("the claim was granted and immediately revoked", table=session.uri)
    return Lease(session, held, meta.claims[held], joined=held != action.id)


def break_claim(session: Session, claim_id: str, *, silent_s: float = 0) -> None:
    """See `Table.break_claim`."""
    silent_s = seconds(silent_s, "silent_s")
    seen = _claim_of(session.refresh().meta.claims, text(claim_id, "claim_id"))
    waited = 0.0
    while waited < silent_s:  # against silence-not-waited-for
        pause = min(_POLL_S, silent_s - waited)
        session.clock.sleep(pause)
        waited += pause
        now = session.refresh().meta.claims.get(claim_id)
        if now != seen:  # against renewal-not-seen-while-watching
            change = (
                "was removed in the meantime"
                if now is None
                else f"was renewed in version {now.renewed}: its holder is alive"
            )
            raise CommitConflict(f"claim {claim_id} {change}", table=session.uri)
    # against break-names-the-latest-renewal
    broken = Break("claim", claim_id, seen.token, seen.renewed)
    session.commit(session.transaction("break", [broken]))


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


def _break_silent(session: Session, action: TakeClaim, standing: Mapping[str, Claim]) -> None:
    """Break the stale claims that conflict with `action`."""
    session.sightings.note(standing, session.clock.elapsed_s())
    for claim_id, claim in claims.conflicting(action, standing).items():
        if claim.priority < action.priority or not is_silent(session, claim_id, claim):
            continue
        broken = Break("claim", claim_id, claim.token, claim.renewed)
        try:
            session.commit(session.transaction("break", [broken]))
        except CommitConflict:
            continue  # it was removed, or its holder is alive after all
        logger.warning("broke claim %s of %s: it was stale", claim_id, claim.owner)


def _claim_of(standing: Mapping[str, Claim], claim_id: str) -> Claim:
    if claim_id not in standing:
        known = ", ".join(list(standing)[:10]) or "none"
        raise InvalidInput(f"there is no claim {claim_id!r}; there are: {known}")
    return standing[claim_id]
