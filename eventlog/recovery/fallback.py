"""Fallback: segments to read in place of lost ones that a version needs.

The outputs of a rewrite contain the rows of its inputs, so a version whose compacted segment is
lost can still be read exactly while the inputs exist. `eventlog.recovery.overshadowing` decides
which segments to read instead. This module reads the log for it: which transactions created the
lost segments, generation by generation, and which segments replaced the rest of their groups. It is
used only after a loss (FORMAT.md R14.3).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec import UnsetType

from eventlog.errors import DataLoss, KeyNotFound
from eventlog.format import codec, keys
from eventlog.inline import inline_objects
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.merging.planning.forms import form_of
from eventlog.model.actions import Drop
from eventlog.model.entries import Segment
from eventlog.model.records import Transaction
from eventlog.recovery.lineage import Change, change_of, members
from eventlog.recovery.overshadowing import resolve
from eventlog.segments.vectors import fetch_positions
from eventlog.store.checksum import object_checksum
from eventlog.store.port import ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fallback:
    """What to read in place of lost segments.

    Attributes:
        out: live segments of the version that must not be read: lost ones that others replace, the
            rest of their groups, and segments that were rewritten from those.
        back: segments that contain exactly the rows of `out`, to be read instead.
        missing: lost segments without a replacement; their rows cannot be read.
    """

    out: tuple[Segment, ...] = ()
    back: tuple[Segment, ...] = ()
    missing: tuple[Segment, ...] = ()

    def __str__(self) -> str:
        """Return a warning for readers that names the segments."""
        out = ", ".join(keys.key_of(segment) for segment in self.out)
        back = ", ".join(keys.key_of(segment) for segment in self.back)
        return f"in place of {out} these are read: {back or 'none, since there are no rows'}"


def find_fallback(
    log: Log,
    snapshot: Snapshot,
    lost: Iterable[Segment],
    whole: Callable[[Segment], bool] | None = None,
) -> Fallback:
    """Return the segments to read in place of lost ones.

    Reads the commits that added the lost segments. If a `replace` added one of them, it also reads
    the commits of the inputs that are lost as well, and those that replaced the other outputs, and
    so on.

    Args:
        log: the log of the table.
        snapshot: the version that is read.
        lost: live segments of this version that are missing or damaged.
        whole: returns whether the object of a segment exists and is undamaged; `is_whole` if None.

    Raises:
        Corrupt: a commit or a spill cannot be read.
        Unavailable: the store does not answer.
    """
    gone = {form_of(segment).id: segment for segment in lost}
    search = _Search(log, snapshot, gone, whole or (lambda segment: is_whole(log.store, segment)))
    search.run()
    return search.result()


def is_whole(store: ObjectStore, segment: Segment) -> bool:
    """Return whether a segment's object has the bytes that were committed; reads all of it.

    So must its deletion vector: without it nothing tells which rows are deleted.

    Raises:
        Unavailable: the store does not answer.
    """
    try:
        if not isinstance(segment.vector, UnsetType):  # against lost-vector-taken-for-whole
            fetch_positions(store, segment.vector, segment.rows)
        if not isinstance(segment.inline, UnsetType):  # against inline-segment-taken-for-lost
            return codec.sha256(inline_objects.get_object(store, segment)) == segment.checksum
        # One byte more than expected, to detect a longer object.
        return object_checksum(store, keys.key_of(segment), segment.bytes + 1) == segment.checksum
    except (KeyNotFound, DataLoss):
        return False


@dataclass(frozen=True, slots=True)
class _Step:
    """The effect of one accepted transaction, and its place in the log (version, index)."""

    place: tuple[int, int]
    adds: tuple[Segment, ...]
    drops: tuple[Segment, ...]
    exact: bool

    def change(self) -> Change:
        """Return the change as lineage needs it; for an inexact one without the adds.

        The adds of inexact transactions are not replaced by others, and those of a restore have ids
        that occurred before.
        """
        adds = self.adds if self.exact else ()
        # Names are those of forms: segments with other deleted rows have other rows.
        dropped = tuple(form_of(segment).id for segment in self.drops)
        return Change(tuple(form_of(s).id for s in adds), dropped, exact=self.exact)


class _Search:
    """One search: the transactions around the lost segments, and which objects exist."""

    def __init__(
        self,
        log: Log,
        snapshot: Snapshot,
        lost: dict[str, Segment],
        whole: Callable[[Segment], bool],
    ) -> None:
        self._log, self._snapshot, self._lost, self._whole = log, snapshot, lost, whole
        self._snapshots = {snapshot.version: snapshot}
        self._commits: dict[int, list[_Step]] = {}
        self._steps: dict[tuple[int, int], _Step] = {}  # the relevant steps, by place
        self._entries: dict[str, Segment] = dict(lost)  # by the name of the form, as all below
        self._there: dict[str, bool] = dict.fromkeys(lost, False)
        self._live: set[str] = set(lost)

    def run(self) -> None:
        """Collect all transactions whose groups depend on those of the lost segments."""
        queue = deque(self._creator(segment) for segment in self._lost.values())
        while queue:
            step = queue.popleft()
            if step is None or step.place in self._steps:
                continue
            self._steps[step.place] = step
            if not step.exact:
                continue
            self._entries.update((form_of(s).id, s) for s in (*step.adds, *step.drops))
            queue.extend(self._creator(s) for s in step.drops if not self._exists(s))
            queue.extend(self._droppers(step.adds))

    def result(self) -> Fallback:
        """Return the fallback that follows from the states of the collected members."""
        known = members(step.change() for _, step in sorted(self._steps.items()))
        there = {name for name in known if self._there.get(name, name in self._live)}
        states = resolve(
            (member for name, member in known.items() if name in there),
            lost=(member for name, member in known.items() if name not in there),
        )
        missing = states.missing | (self._lost.keys() - known.keys())
        out = [s for name, s in self._entries.items() if name in self._live]
        return Fallback(
            out=tuple(s for s in out if form_of(s).id not in states.visible | missing),
            back=tuple(self._entries[n] for n in sorted(states.visible - self._live)),
            missing=tuple(self._lost[name] for name in sorted(missing & self._lost.keys())),
        )

    def _creator(self, segment: Segment) -> _Step | None:
        """Return the transaction that added a segment, if it was an exact replacement."""
        for step in self._steps_of(segment.version):
            if step.exact and segment in step.adds:
                return step
        return None

    def _droppers(self, adds: tuple[Segment, ...]) -> list[_Step]:
        """Return the transactions that dropped the members of a group that are no longer live."""
        live = self._live_at(self._snapshot.version, adds)
        self._live |= live
        rest = {name: s for s in adds if (name := form_of(s).id) not in live}
        steps = []
        while rest:
            step = self._dropper(next(iter(rest.values())))
            steps.append(step)
            for segment in step.drops:
                rest.pop(form_of(segment).id, None)
        return steps

    def _dropper(self, segment: Segment) -> _Step:
        """Return the transaction that dropped a segment, by bisection over the versions."""
        low, high = segment.version - 1, self._snapshot.version  # live after low, not at high
        while high - low > 1:
            middle = (low + high) // 2
            if self._live_at(middle, (segment,)):
                low = middle
            else:
                high = middle
        return next(step for step in self._steps_of(high) if segment in step.drops)

    def _live_at(self, version: int, wanted: tuple[Segment, ...]) -> set[str]:
        """Return the names of the given entries that are live at a version."""
        if version not in self._snapshots:
            self._snapshots[version] = self._log.snapshot(version)
        live = self._snapshots[version].live([Drop(s.id, s.chunk, "") for s in wanted])
        # against deleted-rows-brought-back-by-a-stand-in
        return {form_of(segment).id for segment in wanted if live.get(segment.id) == segment}

    def _exists(self, segment: Segment) -> bool:
        name = form_of(segment).id
        if name not in self._there:
            self._there[name] = self._whole(segment)
        return self._there[name]

    def _steps_of(self, version: int) -> list[_Step]:
        """Return the effects of the accepted transactions of a commit, in order."""
        if version not in self._commits:
            commit = spills.unpack(self._log.read(version)[0], self._log.spill)
            effect = self._log.effect(commit)
            adds = {segment.id: segment for segment in effect.adds}
            gone = (*effect.drops, *(before for before, _ in effect.deletes))
            drops = {segment.id: segment for segment in gone}
            self._commits[version] = [
                _step((version, index), transaction, adds, drops)
                for index, transaction in enumerate(effect.taken)
            ]
        return self._commits[version]


def _step(
    place: tuple[int, int],
    transaction: Transaction,
    adds: dict[str, Segment],
    drops: dict[str, Segment],
) -> _Step:
    """Return what a transaction did, of which a delete of rows drops the entry before it."""
    change = change_of(transaction)
    return _Step(
        place,
        adds=tuple(adds[name] for name in change.adds),
        drops=tuple(drops[name] for name in change.drops),
        exact=change.exact,
    )
