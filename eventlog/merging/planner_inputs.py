"""Reads the two logs as the planners of a merge look at them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from msgspec import UnsetType
from pyroaring import BitMap64

from eventlog.format import keys
from eventlog.lineage.fork_point import ForkPoint
from eventlog.log.snapshot import Snapshot
from eventlog.merging import log_acts
from eventlog.merging.commits import CommitReader
from eventlog.merging.log_acts import AppliedStep
from eventlog.merging.marks import OriginMarks
from eventlog.merging.planning.by_state.sides import Side
from eventlog.merging.planning.carried import Divergence
from eventlog.merging.planning.forms import (
    SegmentParts,
    divide,
    form_of,
    object_place,
    segment_id,
    segment_of_form,
)
from eventlog.merging.planning.merged_settings import differing, settings_of
from eventlog.merging.segment_copies import is_there, read_vector
from eventlog.model.actions import Drop
from eventlog.model.entries import Segment
from eventlog.session.session import Session
from eventlog.store.parallel import read_ahead, threads

_THREADS = 8


class PlannerInputs:
    """Reads what both logs did since the fork point, and their live segments.

    Args:
        source: the table to merge from.
        target: the table to merge into.
        fork: the fork point of the two logs.
        source_commits: reads the source's commits.
        target_commits: reads the target's commits.
        marks: how far the two logs have merged each other.
    """

    def __init__(
        self,
        source: Session,
        target: Session,
        fork: ForkPoint,
        *,
        source_commits: CommitReader,
        target_commits: CommitReader,
        marks: OriginMarks,
    ) -> None:
        self._source, self._target, self._fork, self._marks = source, target, fork, marks
        self._source_commits, self._target_commits = source_commits, target_commits
        self._deleted: dict[str, BitMap64 | None] = {}  # by form; None: its vector is gone

    def parts(self, source: Snapshot, target: Snapshot) -> SegmentParts:
        """Return the parts of the segments of which both logs deleted rows since the fork point.

        Costs one GET for each vector. A segment of which one that matters is gone is not divided.

        Args:
            source: the source's head.
            target: the target's head.

        Raises:
            DataLoss: a vector is damaged.
        """
        steps = self._steps(source, target)
        theirs, ours = ([act for step in log for act in step.acts] for log in steps)
        divided = log_acts.divided_segments(*steps)
        entries: dict[str, Segment] = {}
        forms: dict[str, list[tuple[Session, Segment]]] = {}  # those with vectors, where they are
        for log, act in (*((self._source, a) for a in theirs), *((self._target, a) for a in ours)):
            for name in (*(s.id for s in act.adds), *(drop.id for drop in act.drops)):
                if segment_id(name) in divided:
                    forms.setdefault(name, [])
            for form in (*act.adds, *act.before):
                if form.id in forms:
                    entries.setdefault(segment_id(form.id), form)
                    if not isinstance(form.vector, UnsetType):
                        forms[form.id].append((log, form))
        with threads(_THREADS) as pool:
            names = sorted(forms)
            found = read_ahead(pool, names, lambda name: self._lacking(name, forms[name]))
            deleted = dict(zip(names, found, strict=True))
        return divide(entries, deleted, log_acts.passed_forms(*steps))

    def _lacking(self, name: str, places: Sequence[tuple[Session, Segment]]) -> BitMap64 | None:
        """Return the positions that a form lacks; None: its vector is gone."""
        for log, form in places:
            if self._deleted.get(name) is None:
                found = read_vector(log, form)
                self._deleted[name] = None if found is None else found[1]
        return self._deleted.get(name) if places else BitMap64()

    def _steps(
        self, source: Snapshot, target: Snapshot
    ) -> tuple[list[AppliedStep], list[AppliedStep]]:
        """Return the commits of both logs since the fork point."""
        first = self._fork.common + 1
        return (
            self._source_commits.steps(first, source.version),
            self._target_commits.steps(first, target.version),
        )

    def divergence(
        self, source: Snapshot, target: Snapshot, steps: Sequence[AppliedStep], parts: SegmentParts
    ) -> Divergence:
        """Return what both logs did since the fork point.

        Args:
            source: the source's head.
            target: the target's head.
            steps: the commits of the source that are to be merged, in parts.
            parts: of the segments of which both logs deleted rows.
        """
        first = self._fork.common + 1
        return Divergence(
            log_acts.steps_in_parts(self._source_commits.steps(first, steps[0].version - 1), parts),
            log_acts.steps_in_parts(self._target_commits.steps(first, target.version), parts),
            steps,
            self._marks.seen(target, source),
        )

    def left_differing(self, source: Snapshot, target: Snapshot) -> tuple[str, ...]:
        """Return the settings that no further merge makes equal, after one with nothing to merge.

        The target has not set them in a way that the source lacks. Two choices that exclude each
        other, by way of a third log, end so. Where a setting differs, the commits of both logs
        since the fork point are read.
        """
        found = differing(source.meta, target.meta)
        if not found:
            return ()
        first = self._fork.common + 1
        known = log_acts.KnownCommits(self._source_commits.steps(first, source.version))
        seen = self._marks.seen(target, source)
        steps = self._target_commits.steps(first, target.version)
        own = settings_of(
            (act for step in steps for act in step.acts),
            lambda act: act.version <= seen or known.has(act),
        )
        return tuple(setting.what for setting in found if not own.get(setting.name))

    def sides(self, source: Snapshot, target: Snapshot, parts: SegmentParts) -> tuple[Side, Side]:
        """Return the source and the target, at these heads, as a union compares them."""
        source_steps, target_steps = (
            log_acts.steps_in_parts(steps, parts) for steps in self._steps(source, target)
        )
        acts = (act for step in (*source_steps, *target_steps) for act in step.acts)
        chunks = sorted(log_acts.chunks_of(acts))
        source_side = _side(self._source, source, source_steps, chunks, parts)
        target_side = _side(self._target, target, target_steps, chunks, parts)
        return (
            replace(source_side, seen=self._marks.seen(target, source)),
            replace(target_side, seen=self._marks.of(target, self._fork.origin or "").upto),
        )


def live_segments(
    head: Snapshot, steps: Sequence[AppliedStep], past: Divergence | None, parts: SegmentParts
) -> Collection[str]:
    """Return the ids of the parts of the target's live segments, as far as commits bear on them.

    Args:
        head: the target's head.
        steps: the commits of the source that are to be merged, in parts.
        past: what both logs did before; None if it has not been read.
        parts: of the segments of which both logs deleted rows.
    """
    asked: dict[str, str] = {}  # chunks, by id
    for act in (act for step in steps for act in step.acts):
        asked.update((drop.id, drop.chunk) for drop in act.drops)
        if act.restores or past is not None:
            asked.update((s.id, s.chunk) for s in act.adds)
    both = () if past is None else (*past.source, *past.target)
    for act in (act for step in both for act in step.acts):
        asked.update((s.id, s.chunk) for s in act.adds)
        asked.update((drop.id, drop.chunk) for drop in act.drops)
    live = head.live([Drop(segment_id(i), chunk, "") for i, chunk in asked.items()])
    return {name for entry in live.values() for name in parts.ids(form_of(entry).id)}


def overwritten_chunks(head: Snapshot, steps: Sequence[AppliedStep]) -> dict[str, list[Segment]]:
    """Return the live segments of the chunks in which commits drop segments.

    Args:
        head: the target's head.
        steps: the commits of the source. Merges of slices do not count.
    """
    overwrites = (a for s in steps for a in s.acts if not a.merges_slices)
    names = {drop.chunk for act in overwrites for drop in act.drops}
    chunks: dict[str, list[Segment]] = {name: [] for name in names}
    for entry in head.segments(chunks=sorted(names)) if names else ():
        if entry.chunk in names:  # larger chunks overlap these
            chunks[entry.chunk].append(entry)
    return chunks


def _side(
    log: Session,
    head: Snapshot,
    steps: Sequence[AppliedStep],
    chunks: Sequence[str],
    parts: SegmentParts,
) -> Side:
    names = set(chunks)
    live = head.segments(chunks=chunks) if chunks else ()
    # Larger chunks overlap these.
    forms = (form_of(entry) for entry in live if entry.chunk in names)
    return Side(
        log.uri,
        head.version,
        head.commit_hash,
        head.meta,
        [act for step in steps for act in step.acts],
        log_acts.KnownCommits(steps),
        -1,
        {part.id: part for form in forms for part in parts.of(form)},
        lambda form: all(is_there(log, key) for key in _needed(segment_of_form(form))),
    )


def _needed(segment: Segment) -> tuple[str, ...]:
    """Return the keys of all objects that have something of a segment."""
    return (object_place(segment).needed, *keys.keys_of(segment)[1:])
