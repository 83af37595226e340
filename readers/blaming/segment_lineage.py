"""Through which commits the rows of segments came: appends, rewrites, restores, merges of logs.

Reads the log, no segment. Imports eventlog only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
from msgspec import UnsetType

from eventlog.cache import Cache
from eventlog.errors import VersionNotFound
from eventlog.keyed.placement import finer, reach, slice_of
from eventlog.keyed.rule import splits_of
from eventlog.log.log import Log
from eventlog.model.actions import Add, Drop, Merge, Replace, Restore, SetOrigin
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Correction, Segment
from eventlog.model.records import Commit, Transaction, last_unit_of
from eventlog.state.small.timing import effective_time
from eventlog.store.parallel import each

StepKind: TypeAlias = Literal["written", "rewritten", "restored", "merged"]
# The id of a segment and the version that added it: a restore adds a segment again.
Occurrence: TypeAlias = "tuple[str, int]"
Choose: TypeAlias = "Callable[[Sequence[Segment]], Sequence[Segment]]"
_COMMITS = 256  # that are remembered


@dataclass(frozen=True, slots=True)
class LineageStep:
    """How a segment came into the log at one version.

    Attributes:
        entry: the entry of the segment.
        kind: `written`: with new rows. `rewritten`: with the rows of its inputs. `restored`: the
            input is the same segment, at the version that was restored. `merged`: another log has
            the commits that wrote the rows. None: this copy lacks the commit.
        time_ms: the time of the commit, in ms UTC.
        transaction: that which added the segment, without its actions, and with its unit of work.
        inputs: the entries that its rows were in before, as far as they were chosen.
        unknown: the ids of inputs whose entries this copy lacks.
    """

    entry: Segment
    kind: StepKind | None = None
    time_ms: int | None = None
    transaction: Transaction | None = None
    inputs: tuple[Segment, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def begins(self) -> bool:
        """Whether the log has nothing from before about the rows."""
        return self.kind not in ("rewritten", "restored")


def occurrence(entry: Segment) -> Occurrence:
    """Return the name of a segment as one version added it."""
    return entry.id, entry.version


class LineageReader:
    """Reads the lineage of segments. Each commit that added one is read once.

    Args:
        log: the log.
        clock: the newest known corrections of the clock.
        choose: returns those of some inputs whose lineage is wanted; by default all.
    """

    def __init__(
        self,
        log: Log,
        clock: Sequence[Correction],
        choose: Choose = lambda inputs: inputs,
    ) -> None:
        self._log, self._clock, self._choose = log, clock, choose
        self._commits: Cache[int, tuple[Commit, bytes]] = Cache(_COMMITS)

    def steps(self, segments: Iterable[Segment]) -> dict[Occurrence, LineageStep]:
        """Return how segments, and all that their rows were in before, came into the log.

        A GET for each commit that added one of them, and for each that rewrote or restored some,
        the snapshot that has the inputs: its commit, its key frame, and the leaves that have them.

        Args:
            segments: the segments, as entries of one version.

        Returns:
            The steps, those of `segments` first, and each before those of its inputs.

        Raises:
            Corrupt: the log does not add up.
            Unavailable: the store does not answer.
        """
        known: dict[Occurrence, LineageStep] = {}
        wave = {occurrence(entry): entry for entry in segments}
        while wave:
            of_version: dict[int, list[Segment]] = {}
            for entry in wave.values():
                of_version.setdefault(entry.version, []).append(entry)
            wave = {}
            for found in each(self._steps_of, list(of_version.items())):
                known.update((occurrence(step.entry), step) for step in found)
                wave.update((occurrence(one), one) for step in found for one in step.inputs)
            wave = {name: entry for name, entry in wave.items() if name not in known}
        return known

    def _steps_of(self, added: tuple[int, list[Segment]]) -> list[LineageStep]:
        """Return the steps of segments that one version added."""
        version, entries = added
        try:
            commit, _ = self._read(version)
            taken = self._log.taken(commit)
        except VersionNotFound:  # of a copy that begins later
            return [LineageStep(entry) for entry in entries]
        adders = {a.id: t for t in taken for a in t.actions if isinstance(a, Add)}
        time_ms = effective_time(self._clock, version, commit.header.time)
        sought = {entry.id: _inputs_of(entry, adders.get(entry.id)) for entry in entries}
        live = self._live(sought.values())
        steps = []
        for entry in entries:
            before, drops = sought[entry.id]
            there = [live[before][d.id] for d in drops if d.id in live.get(before, {})]
            unknown = [d.id for d in drops if d.id not in live.get(before, {})]
            adder = adders.get(entry.id)
            kind = None if adder is None else _kind(adder)
            plain = None if adder is None else _plain(adder)
            inputs = tuple(self._choose(there))
            steps.append(LineageStep(entry, kind, time_ms, plain, inputs, tuple(unknown)))
        return steps

    def _live(
        self, sought: Iterable[tuple[int, Sequence[Drop]]]
    ) -> dict[int, Mapping[str, Segment]]:
        """Return the entries of inputs, by version and id; of a version that is absent none."""
        wanted: dict[int, dict[str, Drop]] = {}
        for version, drops in sought:
            if drops:
                wanted.setdefault(version, {}).update((drop.id, drop) for drop in drops)
        live = {}
        for version, named in wanted.items():
            try:
                snapshot = self._log.resolve(*self._read(version))
            except VersionNotFound:
                continue
            live[version] = snapshot.live(list(named.values()))
        return live

    def _read(self, version: int) -> tuple[Commit, bytes]:
        found = self._commits.get(version)
        if found is None:
            found = self._log.read_below(version)
            self._commits.put(version, found)
        return found


def _plain(adder: Transaction) -> Transaction:
    """Return a transaction without its actions; as its app with what people are shown."""
    return msgspec.structs.replace(adder, actions=(), app=last_unit_of(adder))


def _kind(transaction: Transaction) -> StepKind:
    """Return how the segments that a transaction adds came into the log."""
    if any(isinstance(action, Replace | Merge) for action in transaction.actions):
        return "rewritten"
    if _restored(transaction) is not None:
        return "restored"
    merged = any(isinstance(action, SetOrigin) for action in transaction.actions)
    return "merged" if merged else "written"


def _restored(transaction: Transaction) -> Restore | None:
    """Return the restore of a version of this log; None if it is none, or one of another log."""
    restores = (action for action in transaction.actions if isinstance(action, Restore))
    return next((one for one in restores if isinstance(one.origin, UnsetType)), None)


def _inputs_of(entry: Segment, adder: Transaction | None) -> tuple[int, Sequence[Drop]]:
    """Return what has the rows of an added segment before, and at which version that is live."""
    if adder is None:
        return -1, ()
    before = entry.version - 1
    restore = _restored(adder)
    if restore is not None:
        return restore.version, (Drop(entry.id, entry.chunk, ""),)
    merges = [action for action in adder.actions if isinstance(action, Merge)]
    if merges:
        taken_in = (one for merge in merges if _meets(merge, entry) for one in merge.inputs)
        return before, [Drop(one, entry.chunk, "") for one in dict.fromkeys(taken_in)]
    if not any(isinstance(action, Replace) for action in adder.actions):
        return before, ()
    chunk = parse_chunk(entry.chunk)
    drops = (action for action in adder.actions if isinstance(action, Drop))
    return before, [d for d in drops if parse_chunk(d.chunk).overlaps(chunk.start, chunk.end)]


def _meets(merge: Merge, entry: Segment) -> bool:
    """Return whether a segment that a transaction adds may have rows of one of its merges."""
    if merge.chunk != entry.chunk:
        return False
    splits = max(splits_of(merge), splits_of(slice_of(entry)))
    first, last = finer(merge.first, merge.last, splits - splits_of(merge))
    low, high = reach(entry, splits)
    return first <= high and low <= last
