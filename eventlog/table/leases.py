"""Leases: claims from the holder's side.

A holder need not watch its lease: the fold voids every commit that carries the token of a claim
that is gone (FORMAT.md "Claims", hazard K2).
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

import msgspec

from eventlog.errors import ClaimLost, CommitConflict, EventLogError
from eventlog.model.actions import Release, Renew
from eventlog.model.records import Claim, Token
from eventlog.session.session import Session
from eventlog.state.small import claims
from eventlog.state.small.timing import effective_time

RENEW_S = 60  # a holder renews its lease at least this often
# A lease that was not renewed for this long is stale, measured by the elapsed time of one process:
SILENT_S = 5 * RENEW_S
# The same by the times in the log, for processes that do not run that long. It is much longer,
# because commits may be far apart and a store's clock may be reset.
ABANDONED_S = 60 * RENEW_S

logger = logging.getLogger(__name__)


class Lease:
    """A claim that this program holds. Get one with `Table.claim`.

    As a context manager it releases the claim at the end, unless it is `joined`: the process that
    took the claim may still be working under it.

    Attributes:
        id: the id of the claim, 32 hexadecimal digits.
        claim: range, kind, priority, group and owner, as of when it was last taken or renewed.
        joined: whether another process of the same group had already taken the claim.
    """

    def __init__(
        self, session: Session, claim_id: str, claim: Claim, *, joined: bool = False
    ) -> None:
        self._session = session
        self.id = claim_id
        self.claim = claim
        self.joined = joined
        self._released = False

    @property
    def token(self) -> Token:
        """The token that makes a transaction void once the claim is gone."""
        return Token(self.id, self.claim.token)

    def held(self) -> bool:
        """Refresh the table, and return whether the claim is still held."""
        return isinstance(claims.held(self._session.refresh().meta, self.token), Claim)

    def renew(self) -> None:
        """Renew the lease, so that other writers do not break it as stale. Costs one commit.

        Raises:
            ClaimLost: the claim was revoked or broken.
        """
        version = self._commit("renew", Renew(self.id, self.claim.token))
        self.claim = msgspec.structs.replace(self.claim, renewed=version)

    def release(self) -> None:
        """Release the lease; idempotent.

        Raises:
            ClaimLost: the claim was revoked or broken before.
        """
        if not self._released:
            self._commit("release", Release(self.id, self.claim.token))
            self._released = True

    def forget(self) -> None:
        """Mark the lease as released, after a committed transaction released the claim."""
        self._released = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.joined:  # against who-joined-releases
            return
        try:
            self.release()  # against lease-forgets-to-release
        except EventLogError as problem:
            # Best effort: the block has ended, and a claim that remains goes stale.
            logger.info("claim %s was not released: %s", self.id, problem)

    def _commit(self, operation: str, action: Renew | Release) -> int:
        try:
            return self._session.commit(
                self._session.transaction(operation, [action], claim=self.token)
            )
        except ClaimLost:
            raise
        except CommitConflict as conflict:
            raise ClaimLost(
                f"claim {self.id} is gone: {conflict.message}", table=self._session.uri
            ) from conflict


def is_silent(session: Session, claim_id: str, claim: Claim) -> bool:
    """Say whether a claim is stale: its holder is presumed dead (FORMAT.md R13.5).

    A claim is stale once this handle has seen it unchanged for `SILENT_S` of elapsed time, or once
    `ABANDONED_S` have passed since its last renewal by the times of the commits and, if the store
    reports one, the store's time. This machine's clock is not used (hazard K3).

    Raises:
        Unavailable: the store does not answer.
    """
    # against silence-of-no-time
    if session.sightings.silent_s(claim_id, claim, session.clock.elapsed_s()) >= SILENT_S:
        return True
    head = session.head()
    now_ms = max(head.header.time, session.store.now_ms() or 0)  # against silence-by-own-clock
    renewed_ms = effective_time(
        head.meta.clock, claim.renewed, session.log.header(claim.renewed).time
    )
    return now_ms - renewed_ms >= ABANDONED_S * 1000
