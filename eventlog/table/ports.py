"""What the verbs of this room ask of an open table, its watch over the claims of others included.

Shell layer. Pins, claims, settings and restore are functions over it, which `Table` calls: they
need no import of `Table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from eventlog.clock import Clock
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Action, Claim, Token, Transaction
from eventlog.store.port import ObjectStore


class Watch:
    """Since when each claim has given no sign of life, as far as one handle has seen.

    By the elapsed time of this process alone; no two clocks are compared (hazard K3).
    """

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, int, int], float] = {}

    def look(self, standing: Mapping[str, Claim], now_s: float) -> None:
        """Note the claims that stand at `now_s`; what is gone or was renewed is forgotten."""
        # Replaced as a whole: of two threads that look at once the last one counts, and what it
        # does not know seems younger than it is.
        known = self._since_s
        keys = (_last_sign(claim_id, claim) for claim_id, claim in standing.items())
        self._since_s = {key: known.get(key, now_s) for key in keys}

    def silent_s(self, claim_id: str, claim: Claim, now_s: float) -> float:
        """Return for how many seconds a claim has been seen unchanged; 0 if it is new."""
        return now_s - self._since_s.get(_last_sign(claim_id, claim), now_s)


class OpenTable(Protocol):
    """What pins, claims, leases, settings and restore ask of a table; `Table` is one."""

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
