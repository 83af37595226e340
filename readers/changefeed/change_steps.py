"""The changes of versions as steps, which are read one after another. No I/O.

Imports eventlog only. Steps can be pickled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from eventlog.keyed.placement import slice_of, span
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, grouped, readable_runs
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.readers.keyed.cuts import filled, in_parts


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that were added to a table without a key.

    Attributes:
        segments: their segments, in the order of versions.
    """

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Rows of a table without a key that one version exchanged for others.

    A segment on both sides is one of which rows were deleted, or brought back: its entries have
    different vectors, and only these rows are read.

    Attributes:
        version: the version.
        dropped: the segments that were live before it only.
        added: the segments that are live after it only.
    """

    version: int
    dropped: tuple[Segment, ...]
    added: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Updated:
    """Rows of a table without a key that one version updated, with their new forms.

    The new forms stand in the order of the old ones.

    Attributes:
        version: the version.
        old: the entries, before it, of the segments with the old rows, in the order of scans.
        left: the entries, after it, of those of them that are live still.
        new: the segments with the new rows, in the order of scans.
    """

    version: int
    old: tuple[Segment, ...]
    left: tuple[Segment, ...]
    new: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """Upserts and deletes of several versions to a keyed table.

    Attributes:
        after: the version before the first of them.
        runs: the segments that counted at that version, and the logs above it that were committed
            since.
    """

    after: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """Slices of a keyed table that one version replaced: by an overwrite, a drop or a restore.

    Attributes:
        version: the version.
        before: the runs that counted before it.
        after: the runs that count after it, in the same chunks and buckets; they may have no
            segments.
        above: only keys of the logs that lie above this version may differ; None: all may.
    """

    version: int
    before: tuple[Run, ...]
    after: tuple[Run, ...]
    above: int | None = None


Step = Appended | Exchanged | Updated | Written | Replaced


def written(
    after: int, live: Iterable[Segment], logs: Iterable[Segment], rule: MergeRule
) -> Written:
    """Return the step of versions that only upsert and delete by key.

    Args:
        after: the version before the first of them.
        live: the segments that were live at that version in the chunks of `logs`.
        logs: the segments that they added.
        rule: the merge rule of the last of them, or of a later version.

    Raises:
        Corrupt: a segment cannot lie where it does.
    """
    runs = readable_runs([*live, *logs], rule)
    return Written(after, tuple(run for run in runs if any(log.low > after for log in run.logs)))


def replaced(
    version: int, before: Iterable[Segment], after: Iterable[Segment], rule: MergeRule
) -> Replaced:
    """Return the step of a version that replaced slices.

    Args:
        version: the version.
        before: the segments that were live before it in some chunks.
        after: the segments that are live after it in these chunks.
        rule: the merge rule of this version, or of a later one.

    Raises:
        Corrupt: a segment cannot lie where it does.
    """
    old, new = (_by_chunk(readable_runs(live, rule)) for live in (before, after))
    pairs = [
        pair
        for chunk in sorted({*old, *new})
        for pair in _aligned(chunk, old.get(chunk, []), new.get(chunk, []), rule.splits)
        if [s.id for s in pair[0].segments] != [s.id for s in pair[1].segments]
    ]
    return Replaced(version, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def forgotten(
    version: int,
    bases: Iterable[Segment],
    before: Iterable[Segment],
    after: Iterable[Segment],
    rule: MergeRule,
) -> list[Replaced]:
    """Return the steps of a version whose merges may have forgotten tombstones.

    An older value that was committed after the merge was planned lies above it, and counts now
    (FORMAT.md R15.14).

    Args:
        version: the version.
        bases: the bases that it added.
        before: the segments that were live before it in their chunks.
        after: the segments that are live after it in these chunks.
        rule: as in `replaced`.

    Raises:
        Corrupt: a segment cannot lie where it does.
    """
    whole = replaced(version, before, after, rule)
    made = {base.id: span(base)[1] for base in bases}
    pairs: dict[int, list[tuple[Run, Run]]] = {}
    for old, new in zip(whole.before, whole.after, strict=True):
        highs = [made[b.segment.id] for b in new.base if b.segment.id in made]
        if highs and any(log.low > highs[0] for log in new.logs):
            pairs.setdefault(highs[0], []).append((old, new))
    return [
        Replaced(version, tuple(a for a, _ in some), tuple(b for _, b in some), above)
        for above, some in sorted(pairs.items())
    ]


def has_logs_above(base: Segment, live: Iterable[Segment]) -> bool:
    """Return whether logs lie above a base, in its buckets or others of its chunk."""
    high = span(base)[1]
    return any(
        s.chunk == base.chunk and slice_of(s).kind == "log" and span(s)[0] > high for s in live
    )


def appeared(version: int, runs: Sequence[Run]) -> Replaced:
    """Return the step that has all rows of a version as rows that it inserted.

    Args:
        version: the version.
        runs: the runs that count in it.
    """
    nothing = tuple(replace(run, placed=()) for run in runs)
    return Replaced(version, nothing, tuple(runs))


def exchange_steps(
    version: int, dropped: Iterable[Segment], added: Iterable[Segment], *, timed: bool
) -> list[Exchanged]:
    """Return the steps of a version that removed rows, one for each time of these rows.

    Args:
        version: the version.
        dropped: the segments that were live before it only.
        added: the segments that are live after it only.
        timed: whether equal rows have one time; if not, there is one step for all.
    """
    marked = [(parse_chunk(s.chunk), 0, s) for s in dropped]
    marked += [(parse_chunk(s.chunk), 1, s) for s in added]
    marked.sort(key=lambda item: (item[0], item[1], item[2].id))
    steps: list[Exchanged] = []
    end = None
    for chunk, side, segment in marked:
        if end is None or (timed and chunk.start >= end):
            steps.append(Exchanged(version, (), ()))
        end = chunk.end if end is None else max(end, chunk.end)
        last = steps[-1]
        steps[-1] = (
            replace(last, added=(*last.added, segment))
            if side
            else replace(last, dropped=(*last.dropped, segment))
        )
    return steps


def only_deletes(step: Exchanged) -> bool:
    """Return whether no rows were added or brought back, so that none cancel out."""
    known = {segment.id: segment for segment in step.dropped}
    # A segment that a restore brought back has another version, and perhaps fewer deleted rows.
    # against restored-rows-taken-for-deleted
    return all(s.id in known and known[s.id].version == s.version for s in step.added)


def update_steps(
    version: int, old: Iterable[Segment], left: Iterable[Segment], new: Iterable[Segment]
) -> list[Updated]:
    """Return the steps of a paired update, each with all old and new rows of its pairs.

    Args:
        version: the version.
        old: the entries, before it, of the segments of which it updates rows.
        left: the entries, after it, of those of them that are live still.
        new: the segments that it adds.
    """
    remaining = {segment.id: segment for segment in left}
    olds, news = sorted(old, key=scan_key), sorted(new, key=scan_key)
    rows = [s.live_rows - (remaining[s.id].live_rows if s.id in remaining else 0) for s in olds]
    ends = list(accumulate(rows))
    new_ends = list(accumulate(s.live_rows for s in news))
    steps = list[Updated]()
    first = first_new = 0
    for end in sorted({*ends} & {*new_ends}):
        after, after_new = bisect_right(ends, end), bisect_right(new_ends, end)
        some = tuple(olds[first:after])
        of_some = tuple(remaining[s.id] for s in some if s.id in remaining)
        steps.append(Updated(version, some, of_some, tuple(news[first_new:after_new])))
        first, first_new = after, after_new
    return steps


def scan_key(segment: Segment) -> tuple[int, int, int, int]:
    """Return the place of a segment in scans: by time chunk, then in the order of commits."""
    chunk = parse_chunk(segment.chunk)
    return chunk.start, chunk.end, segment.version, segment.partition


def portions(step: Step, most_bytes: int) -> Iterator[Step]:
    """Yield a step in portions whose rows fit into memory, as far as it can be divided.

    Args:
        step: a step.
        most_bytes: stored bytes that a portion may have. A bucket is not divided, nor are rows of
            one time that were exchanged.
    """
    match step:
        case Written(after, runs):
            for group in grouped(runs):
                for part in in_parts(group, most_bytes):
                    yield Written(after, tuple(part))
        case Replaced():
            yield from _portions(step, most_bytes)
        case _:
            yield step


def segments_to_read(step: Step) -> list[Segment]:
    """Return the segments that a step reads, each once."""
    match step:
        case Appended(segments):
            read = list(segments)
        case Exchanged(_, dropped, added):
            read = [*dropped, *added]
        case Updated(_, old, _, new):
            read = [*old, *new]
        case Written(_, together):
            read = [s for run in together for s in run.segments]
        case Replaced(before=before, after=after):
            read = [s for run in (*before, *after) for s in run.segments]
    return list({s.id: s for s in read}.values())


def _portions(step: Replaced, most_bytes: int) -> Iterator[Replaced]:
    both = zip(step.before, step.after, strict=True)
    for _, of_chunk in groupby(both, lambda pair: pair[0].chunk):  # a key is unique in its chunk
        pairs = list(of_chunk)
        sizes = [sum([p.bytes_in(1) for p in (*old.placed, *new.placed)]) for old, new in pairs]
        spans = [(old.first, old.last, size) for (old, _), size in zip(pairs, sizes, strict=True)]
        for part in filled(spans, most_bytes):
            before, after = (
                tuple(pairs[number][side].cut(first, last) for number, first, last in part)
                for side in (0, 1)
            )
            yield replace(step, before=before, after=after)


def _aligned(
    chunk: str, old: Sequence[Run], new: Sequence[Run], splits: int
) -> Iterator[tuple[Run, Run]]:
    """Yield the runs of both in the same buckets."""
    edges = sorted({edge for run in (*old, *new) for edge in (run.first, run.last + 1)})
    for first, after in pairwise(edges):
        last = after - 1
        yield _cut(chunk, old, first, last, splits), _cut(chunk, new, first, last, splits)


def _cut(chunk: str, runs: Sequence[Run], first: int, last: int, splits: int) -> Run:
    within = [run for run in runs if run.first <= first and last <= run.last]
    return Run(chunk, first, last, within[0].placed if within else (), splits)


def _by_chunk(runs: Iterable[Run]) -> Mapping[str, list[Run]]:
    chunks: dict[str, list[Run]] = {}
    for run in runs:
        chunks.setdefault(run.chunk, []).append(run)
    return chunks
