"""Copies of segments within S3: their bytes do not pass through this process.

Also where the source or the target is a branch, whose objects lie at their parent's.
"""

from __future__ import annotations

from eventlog.clock import Clock
from eventlog.store.branching.branch import BranchStore, stored_place
from eventlog.store.branching.roots import is_own
from eventlog.store.port import ObjectStore
from eventlog.store.retry import retrying
from eventlog.store.s3.adapter import S3Store

MOST_BYTES = 5 * 2**30  # of an object that S3 copies in one request


def may_copy(source: ObjectStore, target: ObjectStore) -> bool:
    """Return whether both are in S3, so that `copied` may copy at all. Sends nothing."""
    return all(isinstance(_innermost(store), S3Store) for store in (source, target))


def copied(
    source: ObjectStore, key: str, target: ObjectStore, new_key: str, clock: Clock
) -> str | bool | None:
    """Have S3 copy a segment, unless the new key exists.

    Args:
        source: where the segment is.
        key: of the segment.
        target: where it is copied to.
        new_key: the key there; never one that a branch has from its parent.
        clock: for pauses between tries.

    Returns:
        As `S3Store.copy_if_absent`. The caller compares the sha256.

    Raises:
        OutcomeUnknown: no clear answer; the object may exist, or may still arrive.
        TableNotFound: a branch is not there.
    """
    (old, from_key), (new, to_key) = stored_place(source, key), stored_place(target, new_key)
    if not isinstance(old, S3Store) or not isinstance(new, S3Store) or not is_own(target, new_key):
        return None
    return retrying(clock)(new.copy_if_absent, old, from_key, to_key)


def _innermost(store: ObjectStore) -> ObjectStore:
    while isinstance(store, BranchStore):
        store = store.parent
    return store
