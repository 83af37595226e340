"""What a program may hold in a table against others: pins on versions, claims on time ranges.

Shell layer. Everything held is an action of the log; who holds what, and since which version, is
there for all to see (FORMAT.md "Vacuum", "Claims").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from eventlog import claims, holds
from eventlog.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.errors import ClaimLost, CommitConflict, InvalidInput
from eventlog.history import to_ms
from eventlog.leases import Committing, Lease
from eventlog.model import (
    Break,
    Claim,
    ClaimKind,
    Segment,
    SetPin,
    TakeClaim,
    Unpin,
)
from eventlog.writer import writer_name

Moment = datetime | str | int
_POLL_S = 1.0


class Holding:
    """The part of `Table` that holds: `pin`, `unpin`, `break_pin`, `claim`, `break_claim`."""

    def pin(
        self: Committing, name: str, version: int | None = None, *, owner: str | None = None
    ) -> int:
        """Hold a version against vacuum, and return it; the newest if None.

        The same pin again is no second effect. It holds until `unpin` or `break_pin`.

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
        wanted = head.version if version is None else version
        who = writer_name() if owner is None else owner
        holds.check_names(name, who)
        known = head.meta.pins.get(name)
        if known is not None and known.owner == who and version in (None, known.version):
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
    ) -> Lease:
        """Take a lease on the time range [start, end), or on segments.

        Appends need no claim and heed none. A commit that carries the lease's token
        (`transaction(…, claim=lease.token)`) is void once the lease is gone, whatever any clock
        says. Use the lease as a context manager, or release it.

        Args:
            start: begin of the range, see `Table.snapshot` for times; the range of `segments`, or
                all time, if None.
            end: its end (exclusive).
            segments: claim only these live segments; none claims the whole range.
            kind: exclusive stands with no other claim on the same range or segment; shared ones
                stand together.
            priority: a claim of lower priority that stands in the way is revoked.
            group: of one work: asking again for the same keeps the claim that the group has. A
                fresh one if None.
            owner: who, for people; this user on this host if None.

        Raises:
            ClaimLost: it was granted, and revoked again at once.
            CommitConflict: a claim of the same or a higher priority stands in the way; the message
                names it and its owner.
            InvalidInput: an argument is wrong.
        """
        chosen = tuple(segments)
        low, high = _range(start, end, chosen)
        identity = self.clock.token()
        action = TakeClaim(
            id=identity,
            start=low,
            end=high,
            segments=tuple(sorted({segment.id for segment in chosen})),
            kind=kind,
            priority=priority,
            group=identity if group is None else group,
            owner=writer_name() if owner is None else owner,
        )
        problem = claims.malformed(action)
        if problem:
            raise InvalidInput(problem)
        meta = self.refresh().meta
        if claims.found(meta.claims, action) is None:
            self.commit(self.transaction("claim", [action]))
            meta = self.head().meta
        held = claims.found(meta.claims, action)
        if held is None:
            raise ClaimLost("the claim was revoked as soon as it was granted", table=self.uri)
        return Lease(self, held, meta.claims[held])

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
        seen = _claim_of(self.refresh().meta.claims, claim_id)
        waited = 0.0
        while waited < silent_s:
            pause = min(_POLL_S, silent_s - waited)
            self.clock.sleep(pause)
            waited += pause
            now = self.refresh().meta.claims.get(claim_id)
            if now != seen:
                what = "went meanwhile" if now is None else f"was renewed in version {now.renewed}"
                raise CommitConflict(
                    f"claim {claim_id} {what}: its holder is alive", table=self.uri
                )
        broken = Break("claim", claim_id, seen.token, seen.renewed)
        self.commit(self.transaction("break", [broken]))


def _range(
    start: Moment | None, end: Moment | None, segments: tuple[Segment, ...]
) -> tuple[int, int]:
    bounds = [parse_chunk(segment.chunk) for segment in segments]
    low = min((chunk.start for chunk in bounds), default=MIN_MS)
    high = max((chunk.end for chunk in bounds), default=MAX_MS)
    if start is not None:
        low = to_ms(start) if not bounds else min(low, to_ms(start))
    if end is not None:
        high = to_ms(end) if not bounds else max(high, to_ms(end))
    return low, high


def _claim_of(standing: Mapping[str, Claim], claim_id: str) -> Claim:
    if claim_id not in standing:
        known = ", ".join(list(standing)[:10]) or "none"
        raise InvalidInput(f"there is no claim {claim_id!r}; there are: {known}")
    return standing[claim_id]
