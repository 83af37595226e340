"""Under which root an object of a branch lies: no I/O beyond the forks that the store has read.

A version up to the fork is the parent's, and so is a segment of an epoch below the fork: a writer
of the branch has read a head at or above it, and segments that the parent had added by then were
staged before it (FORMAT.md R16.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from eventlog.errors import Corrupt, KeyNotFound, TableNotFound
from eventlog.format import codec, keys
from eventlog.model.records import Fork
from eventlog.store.port import ObjectStore


def is_inherited(key: str, fork: int) -> bool:
    """Return whether a branch that forks at version `fork` has this object from its parent.

    Not of `_frames/`, where an object is found by its hash, wherever it lies.
    """
    if key.startswith(keys.LOG_PREFIX):
        parsed = keys.parse_log_key(key)
        return parsed is not None and parsed[0] <= fork  # against branch-sees-the-parents-future
    if key.startswith(keys.STARTS_PREFIX):
        start = keys.parse_start_key(key)
        return start is not None and start <= fork
    if key.startswith(keys.PACKS_PREFIX):
        pack = keys.parse_pack_key(key)
        return pack is not None and pack[0] <= fork
    epoch = keys.epoch_of(key)
    return epoch is not None and epoch < fork  # against segment-sought-in-the-wrong-root


def is_own(store: ObjectStore, key: str) -> bool:
    """Return whether an object lies under the root of the store, and not of a branch's parent."""
    forks = store.forks
    return not forks or not is_inherited(key, forks[0].version)


def root_of(store: ObjectStore, key: str) -> str:
    """Return the URI below which an object lies: of the table, or of a branch and its id.

    For programs that hand files to an engine. For keys that are not under `_frames/`.
    """
    uri, above = store.uri, list[str]()
    for fork in store.forks:
        uri = uri.removesuffix(f"/{keys.branch_root(fork.name)}")
        if above or not is_inherited(key, fork.version):
            above.append(keys.branch_place(fork.name, fork.id))
    return "/".join([uri, *reversed(above)])


def committing_root(store: ObjectStore, version: int) -> str:
    """Return the root URI of the table, or of the branch, that committed a version.

    Args:
        store: of that table, or of a branch that has the version from it.
        version: the version.
    """
    uri = store.uri
    for fork in store.forks:
        if version > fork.version:
            break
        uri = uri.removesuffix(f"/{keys.branch_root(fork.name)}")
    return uri


def check_there(store: ObjectStore) -> None:
    """Check that the branch that was opened is still there: one small GET, in a branch only.

    Raises:
        TableNotFound: it was deleted, and perhaps made again.
        Unavailable: the store does not answer.
    """
    if not (forks := store.forks):
        return
    fork = forks[0]
    try:
        body = store.get(keys.FORK_KEY, length=codec.MAX_FORK_BYTES + 1)
        if body == codec.encode_fork(fork):
            return
    except KeyNotFound:
        pass
    raise TableNotFound(
        f"the opened branch {fork.name!r} was deleted, with all its commits: open its parent, or "
        "create the branch again",
        table=store.uri,
    )


@contextmanager
def unless_deleted(store: ObjectStore) -> Iterator[None]:
    """A context in which only damage of a branch that exists is reported; costs nothing else.

    Objects that writers stored late under a branch that was deleted look like a log that was
    forked.

    Raises:
        TableNotFound: the block raised `Corrupt`, and the branch was deleted.
    """
    try:
        yield
    except Corrupt:
        check_there(store)  # against deleted-branch-called-forked
        raise


def held_from(forks: Sequence[Fork]) -> int:
    """Return the oldest version whose segments a branch's parent keeps for it; 0 if it is none.

    Older versions can be read as long as the parent has their segments.
    """
    return forks[0].held if forks else 0
