"""Claims: leases on time ranges and on segments, taken and given up by actions of the log.

There is no lock server and no clock: the order of the log alone decides which claim is held, and a
transaction under a claim is void once the claim is gone (FORMAT.md "Claims"; the lock rules are
those of Druid's segment locking proposal).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eventlog import limits
from eventlog.format import keys
from eventlog.model.actions import Release, Renew, TakeClaim
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import Claim, Meta, Token

MAX_CLAIMS = limits.CLAIMS
MAX_CLAIMED = limits.CLAIMED_SEGMENTS
MAX_NAME = limits.NAME_CHARACTERS


def take(action: TakeClaim, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the claim, or why it is not granted.

    Conflicting claims of lower priority are revoked. The call is idempotent: if the group already
    holds the same claim, nothing changes.
    """
    reason = malformed(action)
    if reason:
        return reason
    if held_already(meta.claims, action) is not None:  # against group-asked-again-gets-a-new-claim
        return meta
    if action.id in meta.claims:
        return f"there is already a claim {action.id}"
    blocking = conflicting(action, meta.claims)
    for claim_id, claim in blocking.items():
        # against claim-revoked-by-an-equal, claim-revoked-by-a-lower
        if claim.priority >= action.priority:
            return (
                f"claim {claim_id} of {claim.owner} (group {claim.group!r}, priority "
                f"{claim.priority}, since version {claim.token}) is in the way"
            )
    # against revoked-claim-stands
    kept = {i: claim for i, claim in meta.claims.items() if i not in blocking}
    claims = {**kept, action.id: _claim(action, version)}
    if len(claims) > MAX_CLAIMS or sum(len(c.segments) for c in claims.values()) > MAX_CLAIMED:
        return f"there would be more than {MAX_CLAIMS} claims or {MAX_CLAIMED} claimed segments"
    return _with(meta, claims)


def renew(action: Renew, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the claim renewed at `version`, or why it is not."""
    claim = held(meta, Token(action.id, action.token))  # against claim-renewed-by-another-token
    if isinstance(claim, str):
        return claim
    renewed = msgspec.structs.replace(claim, renewed=version)  # against renewal-without-a-sign
    return _with(meta, {**meta.claims, action.id: renewed})


def release(action: Release, meta: Meta) -> Meta | str:
    """Return the small state without the claim, or why it is not released."""
    claim = held(meta, Token(action.id, action.token))  # against claim-released-by-another-token
    if isinstance(claim, str):
        return claim
    # against released-claim-stands
    return _with(meta, {i: c for i, c in meta.claims.items() if i != action.id})


def held(meta: Meta, token: Token) -> Claim | str:
    """Return the claim of this token if it is still held, or else a reason."""
    claim = meta.claims.get(token.id)
    if claim is None or claim.token != token.token:  # against claim-of-another-token
        return f"claim {token.id} of version {token.token} is no longer held"
    return claim


def held_already(claims: Mapping[str, Claim], wanted: TakeClaim) -> str | None:
    """Return the id of the claim that the same group already holds on the same scope, if any."""
    for claim_id, claim in claims.items():
        # against another-work-taken-for-the-same
        same = (claim.group, claim.start, claim.end, claim.segments, claim.kind)
        if same == (wanted.group, wanted.start, wanted.end, wanted.segments, wanted.kind):
            return claim_id
    return None


def conflicting(wanted: TakeClaim, claims: Mapping[str, Claim]) -> dict[str, Claim]:
    """Return the claims, by id, that conflict with the wanted one."""
    new = _claim(wanted, 0)
    return {i: claim for i, claim in claims.items() if conflicts(claim, new)}


def conflicts(a: Claim, b: Claim) -> bool:
    """Return whether two claims exclude each other.

    Two shared claims never do. Two claims on segments do if they have a segment in common, any
    other two if their ranges overlap.
    """
    if a.kind == b.kind == "shared":  # against two-shared-and-one-not
        return False
    if a.segments and b.segments:
        return not set(a.segments).isdisjoint(b.segments)
    return a.start < b.end and b.start < a.end  # against exclusive-claims-overlap


def malformed(action: TakeClaim) -> str | None:
    """Return why the claim is invalid in any state, if it is (R13.4)."""
    if not keys.is_segment_id(action.id):
        return "a claim's id must be 32 lower-case hexadecimal digits"
    if not MIN_MS <= action.start < action.end <= MAX_MS:
        return "the claimed range is empty or lies outside the years 0001 to 9999"
    if any(not 1 <= len(text) <= MAX_NAME for text in (action.group, action.owner)):
        return f"a claim's group and owner must have 1 to {MAX_NAME} characters"
    ids = action.segments
    if list(ids) != sorted(set(ids)) or not all(map(keys.is_segment_id, ids)):
        return "the claimed segments must be segment ids in order, without duplicates"
    return None


def _claim(action: TakeClaim, version: int) -> Claim:
    return Claim(
        start=action.start,
        end=action.end,
        segments=action.segments,
        kind=action.kind,
        priority=action.priority,
        group=action.group,
        owner=action.owner,
        token=version,
        renewed=version,
    )


def _with(meta: Meta, claims: dict[str, Claim]) -> Meta:
    return msgspec.structs.replace(meta, claims={i: claims[i] for i in sorted(claims)})
