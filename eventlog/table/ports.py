"""`OpenTable`, the part of `Table` that the other modules of this package use, and its `Watch`.

Pins, claims, settings and restore are functions that take an `OpenTable`; `Table` calls them, so
they cannot import `Table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from eventlog.clock import Clock
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action
from eventlog.model.records import Claim, Token, Transaction
from eventlog.store.port import ObjectStore


class Watch:
    """How long one handle has seen each claim unchanged.

    Measured by the elapsed time of this process alone; no two clocks are compared (hazard K3).
    """

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, int, int], float] = {}

    def look(self, standing: Mapping[str, Claim], now_s: float) -> None:
        """Note the current claims as of `now_s`, and forget those that are gone or were renewed."""
        # The dict is replaced in one step. If two threads look at once, the last one wins; claims
        # that it did not know of only seem younger than they are, which is safe.
        known = self._since_s
        keys = (_last_sign(claim_id, claim) for claim_id, claim in standing.items())
        self._since_s = {key: known.get(key, now_s) for key in keys}

    def silent_s(self, claim_id: str, claim: Claim, now_s: float) -> float:
        """Return how many seconds a claim has been seen unchanged; 0 if it is new."""
        return now_s - self._since_s.get(_last_sign(claim_id, claim), now_s)


class OpenTable(Protocol):
    """The methods of `Table` that pins, claims, leases, settings and restore need."""

    store: ObjectStore
    clock: Clock
    watch: Watch

    @property
    def log(self) -> Log:
        """See `Table.log`."""
        ...

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

    def verify(self, within_s: float = 0.0) -> None:
        """See `Table.verify`."""
        ...

    def commit(self, transaction: Transaction) -> int:
        """See `Table.commit`."""
        ...

    def transaction(
        self,
        operation: str,
        actions: Iterable[Action],
        *,
        read_version: int | None = None,
        claim: Token | None = None,
        info: Mapping[str, str] | None = None,
    ) -> Transaction:
        """See `Table.transaction`."""
        ...


def _last_sign(claim_id: str, claim: Claim) -> tuple[str, int, int]:
    return claim_id, claim.token, claim.renewed  # against watch-that-misses-a-renewal
