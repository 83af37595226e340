"""From a commit to the state after it: over the key frame that it names, its own, or an older one.

Pure layer. Whatever was read is checked against the commit's state hash (FORMAT.md R9.6).
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
        base: the key frame of `commit.header.keyframe`; None where that is None.
        delta: the commit's delta, read from its spill if it has one.

    Raises:
        Corrupt: key frame and delta do not add up to the commit's state hash.
    """
    meta = codec.meta_patch(base.state if base else Meta(), commit.state)
    return _checked(commit, body, meta, base, delta)


def at_keyframe(commit: Commit, body: bytes, root: KeyFrame) -> VersionState:
    """Return the state after a commit over the key frame of its own version.

    Raises:
        Corrupt: the key frame is not of this commit.
    """
    digest = codec.sha256(body)
    size = commit_size(commit, body)
    return VersionState(commit.header, digest, root.state, root, Delta(), size).on_keyframe(root)


def over(base: VersionState, commit: Commit, body: bytes, delta: Delta, meta: Meta) -> VersionState:
    """Return the state after a commit whose `delta` starts from the state `base`.

    Raises:
        Corrupt: they do not add up to the commit's state hash.
    """
    delta = base.delta.compose(delta)
    return _checked(commit, body, meta, base.base, delta)


def holds(commit: Commit, after: VersionState, transaction_id: str) -> bool | None:
    """Say whether a transaction took effect in a commit; being listed is not enough.

    None where the commit holds void ones, and only the fold of the state before it can tell.

    Args:
        commit: the commit.
        after: the state that it makes.
        transaction_id: the transaction.
    """
    listed = next((t for t in commit.transactions if t.id == transaction_id), None)
    if listed is None:
        return False
    if listed.until is not None:
        mark = after.meta.published.get(transaction_id)
        # against listed-taken-for-accepted
        return mark is not None and mark.version == after.version
    whole = commit.header.changes.transactions == len(commit.transactions)
    return True if whole else None  # against void-taken-for-accepted


def commit_size(commit: Commit, body: bytes) -> int:
    """Return the bytes that opening this version reads: the commit and its delta's spill."""
    return len(body) + (commit.delta.spill.size if commit.delta.spill else 0)


def _checked(
    commit: Commit, body: bytes, meta: Meta, base: KeyFrame | None, delta: Delta
) -> VersionState:
    size = commit_size(commit, body)
    verification.check_sums(commit.header, meta, base, delta)
    return VersionState(commit.header, codec.sha256(body), meta, base, delta, size)
