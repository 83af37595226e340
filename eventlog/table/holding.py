"""What a program may hold in a table against others: pins on versions, claims on time ranges.

Shell layer. Everything held is an action of the log; who holds what, and since which version, is
there for all to see (FORMAT.md "Vacuum, pins, replicas, restore", "Claims").
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from eventlog.arguments import MAX_VERSION, choice, seconds, shown, text, whole
from eventlog.commit.identity import WINDOW_S
from eventlog.errors import ClaimLost, CommitConflict, InvalidInput
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.records import (
    Break,
    Claim,
    ClaimKind,
    Segment,
    SetPin,
    TakeClaim,
    Unpin,
)
from eventlog.query.moments import Moment, to_ms
from eventlog.state import claims, holds
from eventlog.table.leases import Committing, Lease, is_silent
from eventlog.table.writer import writer_name

logger = logging.getLogger(__name__)

_POLL_S = 1.0
_KINDS = ("exclusive", "shared")


class Holding:
    """The part of `Table` that holds: `pin`, `unpin`, `break_pin`, `claim`, `break_claim`."""

    def pin(
        self: Committing, name: str, version: int | None = None, *, owner: str | None = None
    ) -> int:
        """Hold a version against vacuum, and return it; the newest if None.

        Idempotent: the same pin again changes nothing. It holds until `unpin` or `break_pin`.

        Args:
            name: unique in the table, 1 to 255 characters.
            version: at or above the horizon.
            owner: who may unpin it; this user on this host if None.

        Raises:
            CommitConflict: the name is taken.
            VersionNotFound: there is no such version.
            VersionVacuumed: it lies below the horizon.
        """
        head = self.refresh()
        wanted = head.version if version is None else whole(version, "version")
        who = writer_name() if owner is None else owner
        holds.check_names(name, who)
        known = head.meta.pins.get(name)
        if (
            known is not None
            and known.owner == who
            and (version is None or wanted == known.version)
        ):
            self.verify(WINDOW_S)
            return known.version
        if known is not None:
            raise CommitConflict(
                f"pin {name!r} is held by {known.owner} on version {known.version}: unpin it, "
                "or choose another name",
                table=self.uri,
            )
        holds.check_kept(head.meta, head.version, wanted, self.uri)
        try:
            self.commit(self.transaction("pin", [SetPin(name, wanted, who)]))
        except CommitConflict:
            newest = self.refresh()
            holds.check_kept(newest.meta, newest.version, wanted, self.uri)
            raise
        return wanted

    def unpin(self: Committing, name: str, *, owner: str | None = None) -> None:
        """Give up one's own pin.

        Raises:
            CommitConflict: it belongs to somebody else (see `break_pin`), or went meanwhile.
            InvalidInput: there is no such pin.
        """
        pin = holds.pin_of(self.refresh().meta, name)
        who = writer_name() if owner is None else owner
        if pin.owner != who:
            raise CommitConflict(
                f"pin {name!r} belongs to {pin.owner}, not to {who}: break_pin (`eventlog unpin "
                "--break`) removes it whoever's it is",
                table=self.uri,
            )
        self.commit(self.transaction("unpin", [Unpin(name, who, pin.token)]))

    def break_pin(self: Committing, name: str) -> None:
        """Remove a pin whoever's it is; the history shows who did.

        Raises:
            CommitConflict: it went meanwhile, or another took its name.
            InvalidInput: there is no such pin.
        """
        pin = holds.pin_of(self.refresh().meta, name)
        self.commit(self.transaction("break", [Break("pin", name, pin.token)]))

    def claims(self: Committing) -> Mapping[str, Claim]:
        """Return the claims that stand, by id."""
        return self.refresh().meta.claims

    def claim(
        self: Committing,
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        segments: Iterable[Segment] = (),
        kind: ClaimKind = "exclusive",
        priority: int = 0,
        group: str | None = None,
        owner: str | None = None,
        take_over: bool = False,
    ) -> Lease:
        """Take a lease on the time range [start, end), or on segments.

        Appends need no claim and heed none. A commit that carries the lease's token
        (`transaction(…, claim=lease.token)`) is void once the lease is gone, whatever any clock
        says. Use the lease as a context manager, or release it; and renew it at least every
        `leases.RENEW_S` seconds, or others may break it as stale.

        Args:
            start: begin of the range, see `eventlog.query.moments.to_ms`; the range of
                `segments`, or all time, if None.
            end: its end (exclusive).
            segments: claim only these live segments; none claims the whole range.
            kind: exclusive stands with no other claim on the same range or segment; shared ones
                stand together.
            priority: a claim of lower priority that stands in the way is revoked.
            group: the work it is for: a second request of the same group for the same range keeps
                the claim that the group has. A fresh one if None.
            owner: who, for people; this user on this host if None.
            take_over: break a claim in the way that is stale
                (`leases.is_silent`). What this handle waited between calls counts.

        Raises:
            ClaimLost: it was granted, and revoked again at once.
            CommitConflict: a claim of the same or a higher priority stands in the way; the message
                names it and its owner.
            InvalidInput: an argument is wrong.
        """
        chosen = _segments(segments)
        low, high = _range(start, end, chosen)
        identity = self.clock.token()
        action = TakeClaim(
            id=identity,
            start=low,
            end=high,
            segments=tuple(sorted({segment.id for segment in chosen})),
            kind="shared" if choice(kind, "kind", _KINDS) == "shared" else "exclusive",
            priority=whole(priority, "priority", -MAX_VERSION),
            group=identity if group is None else text(group, "group"),
            owner=writer_name() if owner is None else text(owner, "owner"),
        )
        return _grant(self, action, take_over=take_over)

    def break_claim(self: Committing, claim_id: str, *, silent_s: float = 0) -> None:
        """Remove somebody else's claim; the history shows who did. Its holder's commits are void.

        Args:
            claim_id: see `claims`.
            silent_s: watch for so many seconds first; a claim that its holder renews is not broken.
                Measured by this program's own waiting, never by comparing clocks (hazard K3).

        Raises:
            CommitConflict: its holder is alive, or it went meanwhile.
            InvalidInput: there is no such claim.
        """
        silent_s = seconds(silent_s, "silent_s")
        seen = _claim_of(self.refresh().meta.claims, text(claim_id, "claim_id"))
        waited = 0.0
        while waited < silent_s:  # against silence-not-waited-for
            pause = min(_POLL_S, silent_s - waited)
            self.clock.sleep(pause)
            waited += pause
            now = self.refresh().meta.claims.get(claim_id)
            if now != seen:  # against renewal-not-seen-while-watching
                what = "went meanwhile" if now is None else f"was renewed in version {now.renewed}"
                raise CommitConflict(
                    f"claim {claim_id} {what}: its holder is alive", table=self.uri
                )
        # against break-names-the-latest-renewal
        broken = Break("claim", claim_id, seen.token, seen.renewed)
        self.commit(self.transaction("break", [broken]))


def _segments(segments: Any) -> tuple[Segment, ...]:
    if isinstance(segments, Iterable) and not isinstance(segments, str):
        chosen = tuple(segments)
        if all(isinstance(segment, Segment) for segment in chosen):
            return chosen
    raise InvalidInput(f"segments are those of a snapshot, not {shown(segments)}")


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


def _grant(table: Committing, action: TakeClaim, *, take_over: bool) -> Lease:
    problem = claims.malformed(action)
    if problem:
        raise InvalidInput(problem)
    meta = table.refresh().meta
    if claims.found(meta.claims, action) is not None:
        table.verify(WINDOW_S)
    else:
        if take_over:
            _break_silent(table, action, meta.claims)
        table.commit(table.transaction("claim", [action]))
        meta = table.head().meta
    held = claims.found(meta.claims, action)
    if held is None:
        raise ClaimLost("the claim was revoked as soon as it was granted", table=table.uri)
    return Lease(table, held, meta.claims[held], joined=held != action.id)


def _break_silent(table: Committing, action: TakeClaim, standing: Mapping[str, Claim]) -> None:
    """Break the claims in the way of `action` that are stale."""
    table.watch.look(standing, table.clock.elapsed_s())
    for claim_id, claim in claims.in_the_way(action, standing).items():
        if claim.priority < action.priority or not is_silent(table, claim_id, claim):
            continue
        broken = Break("claim", claim_id, claim.token, claim.renewed)
        try:
            table.commit(table.transaction("break", [broken]))
        except CommitConflict:
            continue  # it went, or its holder is alive after all
        logger.warning("broke claim %s of %s: no sign of life", claim_id, claim.owner)


def _claim_of(standing: Mapping[str, Claim], claim_id: str) -> Claim:
    if claim_id not in standing:
        known = ", ".join(list(standing)[:10]) or "none"
        raise InvalidInput(f"there is no claim {claim_id!r}; there are: {known}")
    return standing[claim_id]
