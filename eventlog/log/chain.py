"""The chain of commits: checks between two commits, and of the versions that a LIST shows.

FORMAT.md R6.2 and R6.3. The checks send no requests; they use bytes that were read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from eventlog.display import command
from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.format.codec import sha256
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Commit, Header, Start, Stub


def check_follows(known: Snapshot, commit: Commit | Stub, table: str) -> None:
    """Check that a commit directly follows a known snapshot.

    Args:
        known: the snapshot.
        commit: the commit of the version after it, or its stub.
        table: the root URI, for the error.

    Raises:
        Corrupt: it does not follow the known snapshot.
    """
    # against chain-not-checked
    if commit.header.prev != known.commit_hash or commit.header.table != known.header.table:
        raise forked(commit.header.version, table)


def check_later(before: Commit | Stub, before_body: bytes, commit: Commit, table: str) -> None:
    """Check that a commit belongs to the same log as an earlier one.

    `prev` is compared only if the two versions are adjacent. Over a longer distance the chain is
    not read here (FORMAT.md R6.2).

    Args:
        before: the earlier commit, or its stub.
        before_body: its bytes.
        commit: the later commit.
        table: the root URI, for the error.

    Raises:
        Corrupt: they do not belong to one log.
    """
    known, later = before.header, commit.header
    adjacent = later.version == known.version + 1
    named = before.commit if isinstance(before, Stub) else sha256(before_body)
    if later.table != known.table or (adjacent and later.prev != named):
        raise forked(commit.header.version, table)


def check_named(header: Header, commit_hash: str, above: Header, table: str) -> None:
    """Check that a commit is the one that the header of the next version names.

    Args:
        header: of the commit.
        commit_hash: of the commit.
        above: the header of the version after it.
        table: the root URI, for the error.

    Raises:
        Corrupt: it is not, so its contents, such as its time, prove nothing.
    """
    if above.prev != commit_hash or above.table != header.table:
        raise Corrupt(
            f"version {header.version} is not the one that version {above.version} follows, so "
            "that one of the two is of another log, or damaged: run "
            f"{command('fsck', table)}, and put the right one back from a copy",
            table=table,
            version=header.version,
        )


def gaps(versions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the neighbours between which versions are missing: the newer and the older one.

    Args:
        versions: the versions, newest first.
    """
    return [(newer, older) for newer, older in pairwise(versions) if newer - older != 1]


def is_explained(newer: int, older: int, starts: Sequence[Start]) -> bool:
    """Return whether a start explains that the versions between two others are missing (R17.4).

    Args:
        newer: the version above the gap.
        older: the version below it; -1: there is none.
        starts: the starts of the replica.
    """
    return any(start.after <= older and newer <= start.version for start in starts)


def check_explained(
    ends: Sequence[tuple[int, int]],
    starts: Sequence[Start],
    table: str,
    owner: Callable[[int], str],
) -> None:
    """Check that the versions that are missing were never copied to this replica (R17.4).

    Args:
        ends: the gaps, each as the version above it and the one below it.
        starts: the starts of the replica.
        table: the root URI, for the error.
        owner: returns the root URI of the table, or of the branch, that committed a version.

    Raises:
        Corrupt: there is a gap for another reason.
    """
    for newer, older in ends:
        if not is_explained(newer, older, starts):  # against gap-taken-for-a-start
            raise Corrupt(
                f"the log has version {newer} but not {newer - 1}: another program wrote to it, "
                f"or objects were deleted; run {command('fsck', table)}. "
                f"{put_back(owner(newer - 1))}",
                table=table,
                key=keys.commit_key(newer),
                version=newer,
            )


def put_back(table: str) -> str:
    """Return the sentence that names the command that gets missing commits from another root.

    Args:
        table: the root URI of the log that lacks them.
    """
    return (
        "A copy gets missing commits from the table SOURCE that it follows, and a table from its "
        f"copy: {command('replicate', 'SOURCE', table, '--backfill')}"
    )


def forked(version: int, table: str) -> Corrupt:
    """Return the error for a version that does not follow the one below."""
    return Corrupt(
        f"version {version} does not follow the version read before: the log was forked or "
        f"changed; run {command('fsck', table)}",
        table=table,
        version=version,
    )
