"""The chain of commits: what must hold between two of them, and among those that a LIST shows.

Pure layer (FORMAT.md R6.2, R6.3). Every check is of bytes that were read anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from eventlog.errors import Corrupt
from eventlog.format.codec import sha256
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Commit


def check_follows(known: Snapshot, commit: Commit, table: str) -> None:
    """Check that a commit is the one after a known snapshot.

    Args:
        known: the snapshot.
        commit: of the version after it.
        table: root URI, for the message.

    Raises:
        Corrupt: it does not follow the known one.
    """
    # against chain-not-checked
    if commit.header.prev != known.commit_hash or commit.header.table != known.header.table:
        raise _forked(commit, table)


def check_later(before: Commit, before_body: bytes, commit: Commit, table: str) -> None:
    """Check a commit against an earlier one, and its `prev` where that is the one before it.

    Over a longer way the chain is not read here (FORMAT.md R6.2).

    Raises:
        Corrupt: they are not of one log.
    """
    known, later = before.header, commit.header
    next_one = later.version == known.version + 1
    if later.table != known.table or (next_one and later.prev != sha256(before_body)):
        raise _forked(commit, table)


def check_contiguous(versions: Sequence[int], table: str) -> None:
    """Check that versions, newest first, have no gap.

    Raises:
        Corrupt: they have one.
    """
    for newer, older in pairwise(versions):
        if newer - older != 1:  # against gap-not-checked
            raise Corrupt(
                f"the log has version {newer} but not {newer - 1}: a stranger wrote into it, "
                "or commits were deleted; run `eventlog fsck`",
                table=table,
                version=newer,
            )


def _forked(commit: Commit, table: str) -> Corrupt:
    return Corrupt(
        "the next version does not follow the one known: the log was forked or changed",
        table=table,
        version=commit.header.version,
    )
