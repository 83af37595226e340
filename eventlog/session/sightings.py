"""How long a session has seen each claim unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from eventlog.model.records import Claim


class ClaimSightings:
    """How long one session has seen each claim unchanged.

    Measured by the elapsed time of this process alone; no two clocks are compared (hazard K3).
    """

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, int, int], float] = {}

    def note(self, claims: Mapping[str, Claim], now_s: float) -> None:
        """Note the current claims as of `now_s`, and forget those that are gone or were renewed."""
        # The dict is replaced in one step. If two threads note claims at once, the last one wins;
        # claims that it lacked only seem younger than they are, which is safe.
        before = self._since_s
        keys = (_last_sign(claim_id, claim) for claim_id, claim in claims.items())
        self._since_s = {key: before.get(key, now_s) for key in keys}

    def silent_s(self, claim_id: str, claim: Claim, now_s: float) -> float:
        """Return how many seconds a claim has been seen unchanged; 0 if it is new."""
        return now_s - self._since_s.get(_last_sign(claim_id, claim), now_s)


def _last_sign(claim_id: str, claim: Claim) -> tuple[str, int, int]:
    return claim_id, claim.token, claim.renewed  # against watch-that-misses-a-renewal
