"""Lists a Delta log: which versions are published, and where its readers begin.

A long publication is listed from the checkpoint that the hint names, so that continuing it costs
the same however many versions there are. `fsck` compares what lies below.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from eventlog.errors import KeyNotFound
from eventlog.log.snapshot import Snapshot
from eventlog.publishing.delta.translation import checkpoints, delta_commits
from eventlog.publishing.delta.translation.delta_commits import parse_delta_key
from eventlog.store.port import ObjectStore

PAGE = 1000  # keys of one LIST


@dataclass(frozen=True, slots=True)
class DeltaListing:
    """What lies in a Delta log.

    Attributes:
        commits: the published versions that are listed, ascending.
        checkpoints: the versions that have a checkpoint.
        others: the keys of objects that are no part of a publication.
        hinted: the version that the hint names; -1 if it names none, None if there is no hint.
        resumed: the version of the checkpoint from which on a long log is listed, after its
            oldest versions; None if all is listed.
    """

    commits: tuple[int, ...]
    checkpoints: frozenset[int]
    others: tuple[str, ...] = ()
    hinted: int | None = None
    resumed: int | None = None

    def gap(self, horizon: int) -> int | None:
        """Return the first version that is missing between the published ones; None if none is.

        A publication that a vacuum overtook goes on with a checkpoint: at the horizon, or at the
        next version if vectors that the horizon names are gone.

        Args:
            horizon: of the table.
        """
        for last, version in self._jumps():
            if version > horizon + 1 or version not in self.checkpoints:
                return last + 1
        return None

    def lacks_beginning(self, horizon: int) -> bool:
        """Return whether readers find nothing to begin with at versions that vacuum keeps.

        They begin at version 0, or at a checkpoint. An interrupted vacuum leaves commits below the
        horizon without theirs.

        Args:
            horizon: of the table.
        """
        if not self.commits or self.is_behind(horizon):
            return False
        first = max((version for _, version in self._jumps()), default=self.commits[0])
        highest = max(first, horizon)
        return first > 0 and not any(first - 1 <= v <= highest for v in self.checkpoints)

    def spans(self, head: Snapshot) -> list[tuple[int, int]]:
        """Return the first and the last version that can be published again; none if none can.

        Args:
            head: the newest version of the table.
        """
        if not self.commits:
            return []
        horizon = head.meta.horizon
        if self.gap(horizon) is not None:
            first = self.commits[0]
        elif self.commits[0] == 1 and self.lacks_beginning(horizon):
            first = 0  # nothing else can be lost below
        else:
            first = self.first or 0
        first, last = max(first, horizon), min(self.commits[-1], head.version)
        return [(first, last)] if first <= last else []

    @property
    def first(self) -> int | None:
        """Where the publication begins, also if it was interrupted there; None if there is none."""
        if not self.commits:
            return min(self.checkpoints, default=None)
        begins = [version for _, version in self._jumps()]
        return begins[-1] if begins else min([self.commits[0], *self.checkpoints])

    def is_behind(self, horizon: int) -> bool:
        """Return whether all that is published is of versions below a horizon."""
        return self.first is not None and max([*self.commits[-1:], self.first]) < horizon

    @property
    def is_hint_lost(self) -> bool:
        """Whether the hint names a checkpoint that is not there, or is missing beside one.

        Readers cannot pass the former. Without a hint they list the whole Delta log.
        """
        if self.hinted is None:
            return bool(self.checkpoints)
        return self.hinted not in self.checkpoints

    def _jumps(self) -> list[tuple[int, int]]:
        """Return the pairs of successive versions with others between that are not there."""
        return [
            (last, version)
            for last, version in pairwise(self.commits)
            if version != last + 1 and version != self.resumed
        ]


def list_delta(store: ObjectStore) -> DeltaListing:
    """Return all that lies in a Delta log. One LIST for each 1,000 objects, and a GET of the hint.

    Raises:
        Unavailable: the store does not answer.
    """
    return _listing(store, [row.key for row in store.list(delta_commits.LOG_PREFIX)])


def list_recent_delta(store: ObjectStore) -> DeltaListing:
    """Return what lies in a Delta log: of a long one the oldest and the newest versions.

    Two LISTs and a GET of the hint, and more only for what lies above the hint's checkpoint.

    Raises:
        Unavailable: the store does not answer.
    """
    page = [row.key for row in store.list(delta_commits.LOG_PREFIX, limit=PAGE)]
    if len(page) < PAGE:
        return _listing(store, page)
    hinted = read_hint(store) or -1
    listed = max((parsed[0] for parsed in map(parse_delta_key, page) if parsed), default=0)
    if hinted > listed:
        # Its keys follow this one: what is no version is greater still.
        after = f"{delta_commits.LOG_PREFIX}{hinted:020d}"
        above = [row.key for row in store.list(delta_commits.LOG_PREFIX, after=after)]
        if delta_commits.checkpoint_key(hinted) in above:  # against listing-from-a-lost-checkpoint
            return _listing(store, [*page, *above], resumed=hinted, hinted=hinted)
    rest = store.list(delta_commits.LOG_PREFIX, after=page[-1])
    return _listing(store, [*page, *(row.key for row in rest)])


def read_hint(store: ObjectStore) -> int | None:
    """Return the version that the hint names; -1 if it names none, None if there is no hint."""
    try:
        return checkpoints.hinted_version(store.get(checkpoints.HINT_KEY))
    except KeyNotFound:
        return None


def named_checkpoint(store: ObjectStore) -> int:
    """Return the version of the checkpoint that the hint names; -1 if that is not there."""
    hinted = read_hint(store)
    if hinted is None or hinted < 0 or not has_checkpoint(store, hinted):
        return -1
    return hinted


def has_checkpoint(store: ObjectStore, version: int) -> bool:
    """Return whether a version has a checkpoint. One GET of a byte."""
    try:
        store.get(delta_commits.checkpoint_key(version), length=1)
    except KeyNotFound:
        return False
    return True


def _listing(
    store: ObjectStore,
    listed: Iterable[str],
    *,
    resumed: int | None = None,
    hinted: int | None = None,
) -> DeltaListing:
    found: list[int] = []
    framed, others = set[int](), list[str]()
    for key in listed:
        parsed = parse_delta_key(key)
        if parsed is not None:
            framed.add(parsed[0]) if parsed[1] else found.append(parsed[0])
        elif key != checkpoints.HINT_KEY:
            others.append(key)
        elif hinted is None:
            hinted = read_hint(store)
    return DeltaListing(tuple(found), frozenset(framed), tuple(others), hinted, resumed)
