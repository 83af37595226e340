"""Whether a merge has to read what both logs did since the fork point. No I/O.

Most merges apply new rows alone. For these the commits that are new at the source are enough, and
the older ones of the source, and all those of the target, need not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eventlog.keyed.placement import span
from eventlog.keyed.repetition import repeats
from eventlog.merging.log_acts import Act, AppliedStep, kept
from eventlog.merging.planning.already_applied import came_from_target, may_be_done
from eventlog.merging.planning.carried import Pair
from eventlog.merging.planning.keyed.ties import Ties
from eventlog.merging.planning.merged_settings import settings, value_of
from eventlog.model.columns.named_checks import same_checks
from eventlog.model.records import Meta


def needs_past(
    pair: Pair,
    meta: Meta,
    steps: Sequence[AppliedStep],
    *,
    live: Collection[str],
    ties: Ties | None,
) -> bool:
    """Return whether a planner needs what both logs did since the fork point.

    If not, it decides alike with `Divergence.unread`.

    Args:
        pair: the two logs.
        meta: the target's small state.
        steps: the commits of the source that are to be merged.
        live: in a table without a key, the ids of the target's live segments, of those that the
            source drops.
        ties: how rows of one key that both wrote are ordered; None: the table is not keyed.
    """
    repeats_own = ties == "repeat" and pair.is_upper
    seqs = {app: mark.seq for app, mark in meta.apps.items()}
    live_now = set(live)
    # against schema-of-the-target-not-looked-at
    if _schemas_differ(pair, meta, steps):
        return True
    for act in (act for step in steps for act in step.acts):
        if not act.does_anything or came_from_target(pair, act):
            if repeats_own:
                return True  # rows that the target has already may have to come later there
            continue
        may_be_there = not pair.alone or may_be_done(act, seqs)
        if may_be_there or _sets_anything(pair, meta, act):
            return True
        needs_rows = _needs_rows(pair, act, live_now) if ties is None else False
        if needs_rows or (ties and _needs_order(pair, act, steps[0].version, ties)):
            return True
        for app, runs in kept(act.units).items():
            seqs[app] = max(seqs.get(app, -1), runs[-1][1])
    return False


def _schemas_differ(pair: Pair, meta: Meta, steps: Sequence[AppliedStep]) -> bool:
    """Return whether both logs may have made something of their schemas, which differ."""
    if pair.own is None or not any(act.changes_schema for step in steps for act in step.acts):
        return False
    ours, theirs = meta.schema, pair.schema
    is_same = ours is not None and ours.columns == theirs.columns and same_checks(ours, theirs)
    return not is_same and meta.schema != pair.forked


def _needs_rows(pair: Pair, act: Act, live: set[str]) -> bool:
    """Return whether the target may have the rows that an act drops in other segments.

    Args:
        pair: the two logs.
        act: a transaction of the source.
        live: the ids of the target's live segments, kept up to date.
    """
    dropped = {drop.id for drop in act.drops}
    if act.restores and pair.own is not None:
        return True
    if not dropped <= live:
        return not act.rewrites  # a rewrite of what is not there is left out
    live -= dropped
    live.update(segment.id for segment in act.adds)
    return False


def _needs_order(pair: Pair, act: Act, first: int, ties: Ties) -> bool:
    """Return whether an act's rows need a place among those of the target.

    Args:
        pair: the two logs.
        act: a transaction of the source.
        first: the first version of the source that is to be merged.
        ties: how rows of one key that both wrote are ordered.
    """
    if act.merges_slices or act.restores:
        return False  # left out, or a conflict
    overwrites = bool(act.drops) or any(span(s)[0] < first - 1 for s in act.adds)
    repeated = any(repeats(segment.id) for segment in act.adds)
    ordered = (ties == "refuse" and pair.own is not None) or (ties == "repeat" and pair.is_upper)
    return overwrites or repeated or (bool(act.adds) and ordered)


def _sets_anything(pair: Pair, meta: Meta, act: Act) -> bool:
    """Return whether an act changes a setting that has other values in the two logs."""
    if pair.own is None:
        return False  # the target had each value that the source changes
    names = {c.name for action in act.transaction.actions for c in settings(action, act.version)}
    return any(value_of(meta, name) != value_of(pair.meta, name) for name in names)
