"""The state after a commit, from the commit and a key frame.

No I/O. Every result is checked against the commit's state hash (FORMAT.md R9.6).
"""

from __future__ import annotations

from eventlog.format import codec
from eventlog.model.records import Commit, KeyFrame, Meta
from eventlog.state import verification
from eventlog.state.delta import Delta
from eventlog.state.version import VersionState


def from_commit(commit: Commit, body: bytes, base: KeyFrame | None, delta: Delta) -> VersionState:
    """Return the state after a commit over the key frame that it names.

    Args:
        commit: the commit.
        body: its bytes.
        base: the key frame of version `commit.header.keyframe`; None if that is None.
        delta: the commit's delta, read from its spill if it has one.

    Raises:
        Corrupt: key frame and delta do not add up to the commit's state hash.
    """
    meta = codec.meta_patch(base.state if base else Meta(), commit.state)
    return _checked(commit, body, meta, base, delta)


def at_keyframe(commit: Commit, body: bytes, root: KeyFrame) -> VersionState:
    """Return the state after a commit over the key frame of its own version.

    Args:
        commit: the commit.
        body: its bytes.
        root: the key frame of the same version.

    Raises:
        Corrupt: the key frame does not belong to this commit.
    """
    digest = codec.sha256(body)
    size = commit_size(commit, body)
    return VersionState(commit.header, digest, root.state, root, Delta(), size).on_keyframe(root)


def over(base: VersionState, commit: Commit, body: bytes, delta: Delta, meta: Meta) -> VersionState:
    """Return the state after a commit whose delta starts from the state `base`.

    Args:
        base: the state at the version of the key frame that the commit names.
        commit: the commit.
        body: its bytes.
        delta: the commit's delta.
        meta: the small state after the commit.

    Raises:
        Corrupt: they do not add up to the commit's state hash.
    """
    delta = base.delta.compose(delta)
    return _checked(commit, body, meta, base.base, delta)


def took_effect(commit: Commit, after: VersionState, transaction_id: str) -> bool | None:
    """Return whether a transaction took effect in a commit; being listed is not enough.

    None if the commit contains void transactions, so that only folding it can decide.

    Args:
        commit: the commit.
        after: the state after it.
        transaction_id: the id of the transaction.
    """
    listed = next((t for t in commit.transactions if t.id == transaction_id), None)
    if listed is None:
        return False
    if listed.until is not None:
        mark = after.meta.published.get(transaction_id)
        # against listed-taken-for-accepted
        return mark is not None and mark.version == after.version
    all_accepted = commit.header.changes.transactions == len(commit.transactions)
    return True if all_accepted else None  # against void-taken-for-accepted


def commit_size(commit: Commit, body: bytes) -> int:
    """Return how many bytes opening this version reads: the commit and its delta's spill."""
    return len(body) + (commit.delta.spill.size if commit.delta.spill else 0)


def _checked(
    commit: Commit, body: bytes, meta: Meta, base: KeyFrame | None, delta: Delta
) -> VersionState:
    size = commit_size(commit, body)
    verification.check_sums(commit.header, meta, base, delta)
    return VersionState(commit.header, codec.sha256(body), meta, base, delta, size)
