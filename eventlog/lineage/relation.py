"""How two logs of one table relate: equal, ahead, behind, or diverged after a common version.

The chain of hashes decides (MERGING.md R17.1). Two logs agree at a version if the hashes of its
commits are equal, and then they agree at all versions below. So a bisection finds the newest common
version: it reads a few headers, however long the history is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from eventlog.display import command
from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.store.location import real_root
from eventlog.store.port import ObjectStore

Kind = Literal["equal", "ahead", "behind", "diverged"]


@dataclass(frozen=True, slots=True)
class Relation:
    """How a log relates to another one.

    Attributes:
        kind: `equal`: both heads are the same commit. `ahead`: the other log's head is one of this
            log's versions. `behind`: this log's head is one of the other log's versions.
            `diverged`: each has versions that the other does not have.
        common: the newest version that both logs share.
        version: the newest version of the log.
        other: the newest version of the other log.
        own: the hash of the log's commit after `common`, if both logs go on after it; else None.
        origin: the hash of the other log's commit after `common`; None likewise.
    """

    kind: Kind
    common: int
    version: int
    other: int
    own: str | None = None
    origin: str | None = None


def same_root(one: ObjectStore, other: ObjectStore) -> bool:
    """Return whether two stores are at the same place.

    The same root may lie at two endpoints, as when a table moves between two stores of one kind.
    """
    root, other_root = real_root(one.uri), real_root(other.uri)
    return (root, one.unproven) == (other_root, other.unproven)


def relation(log: Log, head: Snapshot, other: Log, other_head: Snapshot) -> Relation:
    """Return how a log relates to another log of the same table.

    If the relation cannot be found, the error names the commands by which the log gets the other
    log's rows.

    Costs one GET of 2 KB if one log contains the other's newest version, and two for each step of
    the bisection if the logs have diverged.

    Args:
        log: the log.
        head: the log's newest snapshot.
        other: the other log.
        other_head: the other log's newest snapshot.

    Raises:
        InvalidInput: the logs are of different tables, or share no version that both still have.
    """
    if head.header.table != other_head.header.table:
        raise InvalidInput(
            f"{other.store.uri} (id {other_head.header.table}) and {log.store.uri} (id "
            f"{head.header.table}) are different tables: only copies and branches of one table "
            "have a common history. Check both roots; a new copy needs an empty one"
        )
    shorter = min(head.version, other_head.version)
    young: list[str] = []  # roots of the copies that lack a version
    hashes: dict[int, tuple[str | None, str | None]] = {}  # of both logs, by version

    def agree(version: int) -> bool | None:
        both = []
        for one, newest in ((log, head), (other, other_head)):
            try:
                both.append(one.hash_at(newest, version))
            except VersionNotFound:
                young.append(one.store.uri)
                return None
        hashes[version] = both[0], both[1]
        return both[0] == both[1]

    agreed = agree(shorter)
    common = shorter if agreed else last_common(agree, shorter)
    if common is None or (agreed is None and not shorter):  # not known to differ
        raise InvalidInput(_nothing_known(other.store.uri, log.store.uri, young[-1]))
    if common < 0:
        raise InvalidInput(
            f"{other.store.uri} and {log.store.uri} differ from version 0 on: they have the same "
            "id but no common history"
        )
    kind: Kind = "diverged"
    if common == shorter:
        kind = "equal"
        if head.version != other_head.version:
            kind = "behind" if head.version == shorter else "ahead"
    own, origin = hashes.get(common + 1, (None, None))  # the search has read them
    return Relation(kind, common, head.version, other_head.version, own, origin)


def _nothing_known(source: str, target: str, young: str) -> str:
    """Return the message for two logs whose common versions are unknown, with what to do.

    Args:
        source: root URI of the log whose rows are wanted.
        target: root URI of the log that is to get them.
        young: root URI of the log that lacks the versions.
    """
    return (
        f"{source} and {target} have nothing in common in the versions that both have: {young} "
        "begins above the versions that they share. Copy the missing ones from the table that it "
        f"is a copy of, TABLE: {command('replicate', 'TABLE', young, '--backfill')}. If that one "
        "does not have them, or is a branch, merge by way of it: "
        f"{command('merge', source, 'TABLE')} (with --target-option for its storage), then "
        f"{command('merge', 'TABLE', target)}"
    )


def last_common(agree: Callable[[int], bool | None], different: int) -> int | None:
    """Return the greatest version at which two logs agree; -1 if there is none.

    Searches backwards in growing steps first: most logs have diverged a short time ago.

    Args:
        agree: whether the logs agree at a version. If so, they agree at all lower versions. None if
            one of them lacks the version: that log begins above it, and the search goes on there.
        different: a version at which the logs do not agree.

    Returns:
        The version; None if the logs differ at all versions that both have, and one of them lacks
        versions below.
    """
    high, step, known = different, 1, True
    low = high - step
    while low >= 0 and (agrees := agree(low)) is not True:
        if agrees is None:  # against step-over-the-start-of-a-copy
            known = False
            break
        high, step = low, step * 2
        low = high - step
    low = max(low, -1)
    while high - low > 1:
        middle = (low + high) // 2
        agrees = agree(middle)
        if agrees is False:
            high = middle
        else:
            low, known = middle, agrees is True
    return low if known else None
