"""Leases: a claim as its holder has it.

Shell layer. A lease is safe without being watched: the fold voids every commit that carries the
token of a claim that is gone (FORMAT.md "Claims", hazard K2).
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

import msgspec

from eventlog.errors import ClaimLost, CommitConflict, EventLogError
from eventlog.model.records import Claim, Release, Renew, Token
from eventlog.state.small import claims
from eventlog.state.small.timing import effective
from eventlog.table.ports import OpenTable

RENEW_S = 60  # a holder renews its lease at least so often
# A lease that was not renewed for so long is stale, measured by a program's own waiting:
SILENT_S = 5 * RENEW_S
# By the times in the log, for programs that do not live so long. Those of commits are far apart
# where nobody commits, and a store's clock may be set.
ABANDONED_S = 60 * RENEW_S

logger = logging.getLogger(__name__)


class Lease:
    """A claim that this program holds. Get one with `Table.claim`.

    As a context manager it releases the claim at the end, unless it is `joined`: whoever took the
    claim may still work under it.

    Attributes:
        id: 32 hexadecimal digits; names the claim.
        claim: its range, kind, priority, group and owner, as it was when it was taken or renewed.
        joined: whether the claim stood already, because others of the group had taken it.
    """

    def __init__(
        self, table: OpenTable, claim_id: str, claim: Claim, *, joined: bool = False
    ) -> None:
        self._table = table
        self.id = claim_id
        self.claim = claim
        self.joined = joined
        self._released = False

    @property
    def token(self) -> Token:
        """What a transaction carries to be void once the claim is gone."""
        return Token(self.id, self.claim.token)

    def held(self) -> bool:
        """Look for news, and say whether the claim still stands."""
        return isinstance(claims.held(self._table.refresh().meta, self.token), Claim)

    def renew(self) -> None:
        """Show the others that its holder is alive. One commit.

        Raises:
            ClaimLost: it was revoked or broken.
        """
        version = self._commit("renew", Renew(self.id, self.claim.token))
        self.claim = msgspec.structs.replace(self.claim, renewed=version)

    def release(self) -> None:
        """Release the lease; idempotent.

        Raises:
            ClaimLost: it was revoked or broken before.
        """
        if not self._released:
            self._commit("release", Release(self.id, self.claim.token))
            self._released = True

    def forget(self) -> None:
        """Note that a committed transaction released it."""
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
            # Lost or not, nothing can be done under it any more; the claim can be broken.
            logger.info("claim %s was not released: %s", self.id, problem)

    def _commit(self, operation: str, action: Renew | Release) -> int:
        try:
            return self._table.commit(
                self._table.transaction(operation, [action], claim=self.token)
            )
        except ClaimLost:
            raise
        except CommitConflict as conflict:
            raise ClaimLost(
                f"claim {self.id} is gone: {conflict.message}", table=self._table.uri
            ) from conflict


def is_silent(table: OpenTable, claim_id: str, claim: Claim) -> bool:
    """Say whether a claim is stale: its holder is presumed dead (FORMAT.md R13.5).

    It is after `SILENT_S` of this handle's own waiting, or once `ABANDONED_S` have passed by the
    times of the log since its last renewal: those of its commits and, where the store tells
    one, the store's. This machine's clock plays no part (hazard K3).

    Raises:
        Unavailable: the store does not answer.
    """
    # against silence-of-no-time
    if table.watch.silent_s(claim_id, claim, table.clock.elapsed_s()) >= SILENT_S:
        return True
    head = table.head()
    now_ms = max(head.header.time, table.store.now_ms() or 0)  # against silence-by-own-clock
    renewed_ms = effective(head.meta.clock, claim.renewed, table.log.header(claim.renewed).time)
    return now_ms - renewed_ms >= ABANDONED_S * 1000
