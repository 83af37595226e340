"""Leases: a claim as its holder has it.

Shell layer. A lease is safe without being watched: the fold voids every commit that carries the
token of a claim that is gone (FORMAT.md "Claims", hazard K2).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self

import msgspec

from eventlog import claims
from eventlog.clock import Clock
from eventlog.errors import ClaimLost, CommitConflict, EventLogError
from eventlog.model import Action, Claim, Release, Renew, Token, Transaction
from eventlog.snapshot import Snapshot

logger = logging.getLogger(__name__)


class Committing(Protocol):
    """What holding something asks of the table: `Table` is one."""

    clock: Clock

    @property
    def uri(self) -> str:
        """See `Table.uri`."""
        ...

    def head(self) -> Snapshot:
        """See `Table.head`."""
        ...

    def refresh(self) -> Snapshot:
        """See `Table.refresh`."""
        ...

    def commit(self, transaction: Transaction) -> int:
        """See `Table.commit`."""
        ...

    def transaction(
        self, operation: str, actions: Iterable[Action], *, claim: Token | None = None
    ) -> Transaction:
        """See `Table.transaction`."""
        ...


class Lease:
    """A claim that this program holds. Get one with `Table.claim`.

    Attributes:
        id: 32 hexadecimal digits; names the claim.
        claim: its range, kind, priority, group and owner, as it was when it was taken or renewed.
    """

    def __init__(self, table: Committing, claim_id: str, claim: Claim) -> None:
        self._table = table
        self.id = claim_id
        self.claim = claim
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
        """Give it up; again is no second effect.

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
        try:
            self.release()
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
