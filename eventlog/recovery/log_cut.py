"""Decisions about the cut of a log: how far it may rise, and which objects nobody needs below it.

No I/O (FORMAT.md section 10.7). What follows from the log alone is decided here; clocks only
propose how far the cut goes. Whatever is dead here stays dead at every later version, so that a
vacuum that was suspended may go on deleting it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import UnsetType

from eventlog.format import codec, keys
from eventlog.model.actions import Add, Drop
from eventlog.model.entries import Segment
from eventlog.model.records import Commit

_SHARE = 8  # a cut ends an eighth of what it keeps, at least: it reads the headers of what it keeps


@dataclass(frozen=True, slots=True)
class CutLimits:
    """What keeps the log, each as the version from which it needs commits; None: nothing does.

    Attributes:
        horizon: that of the table, which pins and replicas hold.
        aged: the version that was the head when the retention of the log began.
        branches: the oldest version that a branch under the root reads, by the branch's name.
    """

    horizon: int
    aged: int
    branches: Mapping[str, int]

    @property
    def version(self) -> int:
        """How far the log may be cut."""
        return min([self.horizon, self.aged, *self.branches.values()])

    @property
    def reason(self) -> str:
        """Return what keeps the log from this version on: `retention`, `horizon`, or a branch."""
        for name, held in sorted(self.branches.items()):
            if held == self.version:
                return f"branch {name!r}"
        return "retention of the log" if self.aged == self.version else "horizon"


def is_worth_cutting(cut: int, limit: int, head: int) -> bool:
    """Return whether the log is to be cut, if nobody has asked for a certain retention.

    Args:
        cut: where the log is cut already.
        limit: where it may be cut.
        head: the newest version.
    """
    # against headers-read-for-every-version
    return limit > cut and (limit - cut) * _SHARE >= head - limit


def whole_from(limit: int, frames: Mapping[int, int | None], usable: Callable[[int], bool]) -> int:
    """Return the version from which commits and key frames stay as they are; 0 if all of them do.

    Each version from the limit on starts from its own key frame, if it is the one that is returned,
    or from one at or above that (R22.4).

    Args:
        limit: the version below which nobody opens a version any more.
        frames: the key frames that the versions from the limit up to the head name.
        usable: whether the key frame of a version is there, with all that it names.
    """
    named = {version: -1 if frame is None else frame for version, frame in frames.items()}
    above = [frame for version, frame in named.items() if version > limit]
    if above and min(above) >= limit and usable(limit):
        return limit
    lowest = min([limit, *named.values()])  # against key-frame-in-use-deleted
    return lowest if lowest > 0 and usable(lowest) else 0


def is_dead_leaf(entries: Iterable[Segment], live: Mapping[str, Segment]) -> bool:
    """Return whether no key frame has, or ever gets, a leaf of one that goes with the log.

    An entry that is not live where the log stays whole never becomes live again: what brings a
    segment back gives its entry a new version. A leaf of entries that are all live could be written
    once more, as when what came beside them is dropped.

    Args:
        entries: those of the leaf.
        live: those of them that are live at the version from which the log stays whole, by id.
    """
    # against leaf-that-comes-again-deleted
    return any(live.get(entry.id) != entry for entry in entries)


def is_dead_spill(
    adds: Iterable[Add],
    drops: Iterable[Drop],
    live: Mapping[str, Segment],
    gone: Callable[[Add], bool],
) -> bool:
    """Return whether no transaction can take effect any more that has this spill.

    A drop of what is not live is void for ever, and so is an add whose object a vacuum deleted:
    it was below the fence and the horizon.

    Args:
        adds: of a transaction below the cut.
        drops: of it.
        live: the segments that they name and that are live where commits stay whole, by id.
        gone: whether the object of an add is deleted.
    """
    for drop in drops:
        known = live.get(drop.id)
        if known is None or codec.hex_hash(codec.entry_hash(known)) != drop.hash:
            return True
    # against spill-that-comes-again-deleted
    return any(gone(add) for add in adds if add.id not in live)


class SpilledAdd(NamedTuple):
    """An add in a spill.

    Attributes:
        id: of the segment.
        version: of its entry; None where that is the version of the commit.
        key: of its object.
        inline: the version in whose commit its bytes stand; None if in none.
    """

    id: str
    version: int | None
    key: str
    inline: int | None = None


def is_ended_leaf(entries: Iterable[Segment], live: Mapping[str, Segment], whole: int) -> bool:
    """Return whether no key frame of a kept version has a leaf, or ever gets it, whoever wrote it.

    Its entries may be newer than where the log stays whole, and then say nothing.

    Args:
        entries: those of the leaf.
        live: those of them that are live at `whole`, by id.
        whole: the version from which the log stays whole.
    """
    old = (entry for entry in entries if entry.version <= whole)
    # against leaf-of-a-kept-version-deleted
    return any((known := live.get(e.id)) is None or known.version != e.version for e in old)


def is_ended_spill(
    adds: Iterable[SpilledAdd],
    drops: Iterable[str],
    known: Container[str],
    versions: range,
    gone: Callable[[str], bool],
) -> bool:
    """Return whether no commit names a spill any more that none of the versions names now.

    What was dropped below `whole` is dropped by no later transaction, and stands in no delta over a
    key frame at or above it. An add without its object is void, and an entry that is as old is in
    no such delta. An add without a version, whose bytes stand in the commit of a version, is that
    commit's own unless the segment is known: another commit took the version.

    Args:
        adds: the adds.
        drops: the ids of what is dropped, each of them live once.
        known: the ids that are live at one of the versions.
        versions: from the one from which the log stays whole up to the newest.
        gone: whether the object with a key is deleted.
    """
    if any(name not in known for name in drops):  # against spill-of-a-kept-version-deleted
        return True
    return any(_is_void(add, known, versions, gone) for add in adds)


def _is_void(
    add: SpilledAdd, known: Container[str], versions: range, gone: Callable[[str], bool]
) -> bool:
    """Return whether an add takes no effect after these versions. See `is_ended_spill`."""
    if add.version is not None:
        return add.version <= versions.start
    if add.id in known:
        return False
    # against spill-of-the-next-commit-deleted
    if add.inline is not None and add.inline >= versions.start:
        return add.inline in versions
    return gone(add.key)


def kept_of(commit: Commit, needed: Mapping[str, str]) -> dict[str, bytes]:
    """Return what must be stored elsewhere before a commit becomes a stub: bodies by their keys.

    Whatever only the commit has and a kept version needs: the bytes of segments that stand in it
    (R21.2). They are put if absent.

    Args:
        commit: the commit.
        needed: the checksums, by id, of the segments that kept versions have live.
    """
    adds = (a for t in commit.transactions for a in t.actions if isinstance(a, Add))
    return {
        keys.segment_key(add.epoch, add.chunk, add.id): add.parquet
        for add in adds
        # against bytes-of-a-void-add-stored
        if not isinstance(add.parquet, UnsetType) and needed.get(add.id) == add.checksum
    }
