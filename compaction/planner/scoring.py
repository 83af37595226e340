"""The score of a time chunk: whether to compact it, how urgently, and why.

No I/O. Imports eventlog only. The rules follow the compaction notes for Druid, with a threshold
below which a segment is small and a minimum gain, so that good segments are not rewritten
repeatedly.

Rules, of which the first that applies decides:

- `empty`: no rows.
- `rewritten`: stable; a task under this policy made exactly these segments, whatever their sizes,
  and few of their rows were deleted since.
- `granularity`: compact; the policy names a granularity, and segments have another one.
- `oversize`: compact; a segment is above the target and can be divided.
- `deleted`: compact; of a segment more rows are deleted than the policy lets stay.
- `one`: stable; one segment, not above the target.
- `exact`: stable; n segments, none above the target, and n = ceil(bytes / target).
- `good`: stable; the number could fall only by rewriting segments that are already good.
- `gain`: stable; the number would fall, but by too little for the bytes.
- `uneven`: stable; the small segments could be merged only into one that is many times larger. That
  one is also left out when the others are rewritten; otherwise each late segment would cause it to
  be rewritten.
- `small`: compact; fewer segments suffice.

A chunk that overlaps its neighbours through a coarser segment and would be stable is `no opinion`
(rule `overlap`): it is included if the coarser segment is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from msgspec import Struct, structs

from eventlog.compaction.planner.spans import Sums, TargetChunk
from eventlog.compaction.policy import MIB, Policy
from eventlog.model.entries import ChunkState
from eventlog.quantities import size_text
from eventlog.state.small.assessment import is_current

Act = Literal["empty", "stable", "compact", "no opinion"]
Rule = Literal[
    "empty", "rewritten", "granularity", "oversize", "deleted", "one", "exact", "good", "gain",
    "uneven", "small", "overlap",
]  # fmt: skip

# The cost of one more file for a query (a request, a footer), as the number of bytes read in the
# same time; Spark's own file source uses this value.
FILE_COST = 4 * MIB

# A small segment of at least this share of the target, and this many times larger than all others
# in a merge together, is left out: rewriting it would cost more than it saves.
UNEVEN_SHARE = 1 / 8
UNEVEN_TIMES = 8


class ChunkVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on one time chunk, with all numbers that the rules used.

    Attributes:
        chunk: the chunk's name.
        act: empty, stable, compact or no opinion.
        rule: the rule that decided.
        priority: 0 to 1, for `compact` only: the savings of queries against the cost, before
            ageing.
        segments, rows, bytes: live segments in it, without a coarser segment that covers it; of
            their rows those that are not deleted.
        small, good, large: number of segments below the good size, up to the target, above it.
        sparse: number of other segments, of which too many rows are deleted.
        deleted: number of deleted rows.
        largest: size of the largest segment.
        foreign: number of segments of another granularity than the target.
        newest: the version that last added a segment to it; -1 if it is empty.
        earlier, later: whether a coarser segment binds it to the chunk before or after it.
        inputs, input_bytes: number and size of the segments to rewrite.
        outputs: expected number of new segments; more if they are cut finer.
        saved: number of segments that queries no longer read.
        freed: about how many bytes of deleted rows queries no longer read.
        left: size of a small segment that is left out because it is many times larger than the
            others; 0 if none is.
        state: the chunk's state as recorded in the log.
        sentence: the verdict as text.
    """

    chunk: str
    act: Act
    rule: Rule
    priority: float
    segments: int
    rows: int
    bytes: int
    small: int
    good: int
    large: int
    sparse: int
    deleted: int
    largest: int
    foreign: int
    newest: int
    earlier: bool
    later: bool
    inputs: int
    input_bytes: int
    outputs: int
    saved: int
    freed: int
    left: int
    state: ChunkState | None
    sentence: str


def score(
    target: TargetChunk,
    policy: Policy,
    state: ChunkState | None = None,
    *,
    trusted: bool = True,
) -> ChunkVerdict:
    """Return the verdict on a chunk.

    Args:
        target: the chunk and its sums.
        policy: the settings.
        state: the chunk's state recorded in the log.
        trusted: whether it was recorded under a policy with the same stable chunks.
    """
    sums, chosen = target.sums, rewritten_of(target, policy)
    outputs = parts(chosen, policy)
    # A large segment counts by its missing cuts, the rest by the files that a merge avoids.
    saved = chosen.splits + max(0, chosen.segments + chosen.splits - outputs)
    rule = _rule(target, chosen, saved, policy)
    noted = trusted and state is not None and state.state == "stable"
    current = state is not None and is_current(state, sums.newest, sums.segments)
    # against rewritten-chunk-forgotten, note-believed-for-ever, note-believed-beside-deletes
    if noted and current and not sums.sparse:
        rule = "empty" if rule == "empty" else "rewritten"
    act = _ACTS[rule]
    if act == "stable" and (target.earlier or target.later):
        act, rule = "no opinion", "overlap"
    if rule == "granularity":
        saved = max(saved, 1)  # a query of one of the new chunks does not read the others
    compact = act == "compact"
    verdict = ChunkVerdict(
        chunk=target.chunk.name,
        act=act,
        rule=rule,
        priority=worth(saved, chosen.bytes, chosen.deleted_bytes) if compact else 0.0,
        segments=sums.segments,
        rows=sums.rows,
        bytes=sums.bytes,
        small=sums.small,
        good=sums.segments - sums.small - sums.large - sums.sparse,
        large=sums.large,
        sparse=sums.sparse,
        deleted=sums.deleted,
        largest=sums.largest,
        foreign=target.foreign,
        newest=sums.newest,
        earlier=target.earlier,
        later=target.later,
        inputs=chosen.segments if compact else 0,
        input_bytes=chosen.bytes if compact else 0,
        outputs=outputs if compact else 0,
        saved=saved if compact else 0,
        freed=chosen.deleted_bytes if compact else 0,
        left=left_out_bytes(target, policy),
        state=state,
        sentence="",
    )
    return structs.replace(verdict, sentence=_SENTENCES[rule](verdict, policy))


def rewritten_of(target: TargetChunk, policy: Policy) -> Sums:
    """Return the sums over the segments that a rewrite of the chunk takes, without good ones.

    If the policy names a granularity, all segments of another one are taken too.
    """
    if policy.granularity is not None and target.foreign:
        return target.exact if target.coarser else target.exact.odd().plus(target.finer)
    # against good-segments-rewritten
    chosen, left = target.sums.odd(), left_out_bytes(target, policy)
    if not left:
        return chosen
    return replace(chosen, segments=chosen.segments - 1, bytes=chosen.bytes - left)


def left_out_bytes(target: TargetChunk, policy: Policy) -> int:
    """Return the size of the one small segment that a merge leaves out as too large, or 0.

    It is 0 if the policy merges whenever the number of segments falls (`min_gain` 0).
    """
    sums = target.sums
    foreign = policy.granularity is not None and target.foreign
    if foreign or sums.large or not policy.min_gain:
        return 0
    others = sums.odd_bytes - sums.top
    uneven = sums.top >= UNEVEN_SHARE * policy.target_bytes and sums.top > UNEVEN_TIMES * others
    return sums.top if uneven and sums.small + sums.sparse > 1 else 0


def parts(sums: Sums, policy: Policy) -> int:
    """Return the fewest segments for these rows: ceil(bytes / target), at most one per row."""
    left = max(1, sums.bytes - sums.deleted_bytes)
    return min(sums.rows, -(-left // policy.target_bytes))


def worth(saved: int, input_bytes: int, freed: int = 0) -> float:
    """Return the priority of a rewrite, 0 to 1: gain / (gain + cost), both in bytes.

    Args:
        saved: segments that a query of the chunk no longer reads, `FILE_COST` bytes each.
        input_bytes: the bytes that the rewrite reads, and about those that it writes.
        freed: the bytes of deleted rows among them.
    """
    gain = saved * FILE_COST + freed
    return gain / (gain + input_bytes) if gain else 0.0


def aged(priority: float, age_versions: int, policy: Policy) -> float:
    """Return a priority raised towards 1 with the versions since the chunk last changed.

    The priority reaches 1 at `policy.ageing_versions`. From then on only older chunks come first,
    so no chunk starves, however urgent the new ones are.
    """
    share = min(1.0, max(0, age_versions) / policy.ageing_versions)
    return priority + (1.0 - priority) * share  # against old-chunks-wait-for-ever


_ACTS: dict[Rule, Act] = {
    "empty": "empty",
    "rewritten": "stable",
    "granularity": "compact",
    "oversize": "compact",
    "deleted": "compact",
    "one": "stable",
    "exact": "stable",
    "good": "stable",
    "gain": "stable",
    "uneven": "stable",
    "small": "compact",
    "overlap": "no opinion",
}


def _rule(target: TargetChunk, chosen: Sums, saved: int, policy: Policy) -> Rule:
    sums = target.sums
    if not sums.rows:
        return "empty"
    if policy.granularity is not None and target.foreign:
        return "granularity"
    if sums.large:
        return "oversize"
    if sums.sparse:
        return "deleted"
    if sums.segments == 1:
        return "one"
    if sums.segments == parts(sums, policy) and sums.largest <= policy.target_bytes:
        return "exact"
    if not saved:
        return "uneven" if left_out_bytes(target, policy) else "good"
    # against rewritten-for-no-gain
    if saved * policy.target_bytes < policy.min_gain * chosen.bytes:
        return "gain"
    return "small"


def _held(v: ChunkVerdict) -> str:
    noun = "segment" if v.segments == 1 else "segments"
    return f"{v.segments:,} {noun} of {size_text(v.bytes)} in all"


def _neighbours(v: ChunkVerdict) -> str:
    sides = [name for name, bound in (("before", v.earlier), ("after", v.later)) if bound]
    return f"chunk {' and the one '.join(sides)} it"


def _rewrite(v: ChunkVerdict, policy: Policy) -> str:
    return (
        f"rewriting {v.inputs:,} of {size_text(v.input_bytes)} into {v.outputs:,} or more"
        if v.rule == "granularity"
        else f"rewriting {v.inputs:,} of {size_text(v.input_bytes)} into {v.outputs:,} of at most "
        f"{size_text(policy.target_bytes)}"
    ) + f" saves queries {v.saved:,}"


_SENTENCES: dict[Rule, Callable[[ChunkVerdict, Policy], str]] = {
    "empty": lambda _v, _p: "no live rows",
    "rewritten": lambda v, _p: (
        f"{_held(v)}: a task under this policy made it so, and nothing has changed since"
    ),
    "granularity": lambda v, p: (
        f"{_held(v)}, {v.foreign:,} of them not cut by {p.granularity}: {_rewrite(v, p)}"
    ),
    "oversize": lambda v, p: (
        f"{_held(v)}, {v.large:,} above {size_text(p.target_bytes)} (the largest "
        f"{size_text(v.largest)}): {_rewrite(v, p)}"
    ),
    "deleted": lambda v, p: (
        f"{_held(v)}, {v.sparse:,} with more than {p.deleted_ratio:.0%} of their rows deleted "
        f"({v.deleted:,} in all): {_rewrite(v, p)}"
    ),
    "one": lambda v, p: (
        f"{_held(v)}, not above {size_text(p.target_bytes)}"
        if v.largest <= p.target_bytes
        else f"{_held(v)}: a single row cannot be divided"
    ),
    "exact": lambda v, p: (
        f"{_held(v)}, none above {size_text(p.target_bytes)}: no fewer can hold them"
    ),
    "good": lambda v, p: (
        f"{_held(v)}: {v.good:,} of at least {size_text(p.good_bytes)} are good"
        + (f", and the {v.small:,} smaller cannot be merged without them" if v.small else "")
    ),
    "gain": lambda v, p: (
        f"{_held(v)}: the {v.small:,} below {size_text(p.good_bytes)} could be merged, but save "
        f"less than {p.min_gain:g} per {size_text(p.target_bytes)} rewritten"
    ),
    "uneven": lambda v, p: (
        f"{_held(v)}: the {v.small:,} below {size_text(p.good_bytes)} could be merged only by "
        f"rewriting one of {size_text(v.left)}, over {UNEVEN_TIMES} times the size of the others"
    ),
    "small": lambda v, p: (
        f"{_held(v)}, {v.small:,} below {size_text(p.good_bytes)}: {_rewrite(v, p)}"
    ),
    "overlap": lambda v, _p: (
        f"{_held(v)}, stable by their sizes; a coarser segment binds it to the {_neighbours(v)}"
    ),
}
