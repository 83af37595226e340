"""What becomes of the sequences of apps when two logs are united (R19.10 item 6). No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eventlog.keyed.repetition import Firsts
from eventlog.merging.log_acts import Act, kept
from eventlog.merging.planning.by_state.sides import LogDifference, Side
from eventlog.merging.sequences import Runs, common_runs, joined_runs, runs_without
from eventlog.model.actions import AppReset, AppRise


@dataclass(frozen=True, slots=True)
class AppChanges:
    """The changes of the sequences of apps that a union commits.

    Attributes:
        rises: by app, what the `origin` records as done.
        resets: for each `restore` that is needed, by app, how it sets the sequence.
    """

    rises: dict[str, AppRise]
    resets: tuple[dict[str, AppReset], ...]


def app_changes(
    source: LogDifference,
    target: LogDifference,
    lost: Collection[Act],
    shown: Collection[str],
) -> AppChanges:
    """Return what becomes of the sequences of apps.

    A unit counts as done if the target shows its rows. Others that a restore of the source forgot,
    or that were left out with all of their chunks, no longer do: a first restore lowers the
    sequence, so that they can be loaded again. The origin names the units above that which count as
    done, and a second restore raises the sequence to the last of them.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        lost: the transactions that the union leaves out as a whole.
        shown: the ids of the segments that the target has live after the union.
    """
    # against unit-brought-and-not-counted
    brought = _doers(source.side.acts, shown)
    theirs = _units_of([*source.acts, *brought])
    left = _left_out(source, target, lost)
    # against unit-forgotten-whose-rows-are-there
    stay = _doers(target.side.acts, shown)
    ours = _units_of([*(act for act in target.acts if act not in lost), *stay])
    their_done, our_done = source.units.done, target.units.done
    # against units-forgotten-here-done-again
    ours = {app: common_runs(runs, our_done.get(app, ())) for app, runs in ours.items()}
    their_done = {a: runs_without(runs, left.get(a, ())) for a, runs in their_done.items()}
    # against recalled-with-rows-that-were-left-out
    applied = [act for act in source.acts if act not in lost]
    lows = _forgotten(applied, left)
    back = {app for act in applied for app in (*act.forgets, *act.recalls)}
    stays = _least_marks(source, target, lost, shown)
    rises: dict[str, AppRise] = {}
    first: dict[str, AppReset] = {}
    second: dict[str, AppReset] = {}
    for app in sorted({*theirs, *lows, *back, *stays}, key=str.encode):
        done = common_runs(theirs.get(app, ()), their_done.get(app, ()))
        done = runs_without(done, our_done.get(app, ()))
        if app in lows:
            every = joined_runs(their_done.get(app, ()), ours.get(app, ()))
            below = done  # against units-below-a-forgotten-one-brought-twice
            done = joined_runs(below, runs_without(every, ((0, lows[app]),)))
        mark = _mark(target.side, app)
        if done:
            rises[app] = AppRise(_or_none(mark), done)
            mark = max(mark, done[-1][1])
        low = min(mark, lows.get(app, mark))
        last = max(done[-1][1], low) if done else low
        if app in back and app not in left:
            last = max(last, _mark(source.side, app))
        last = max(last, stays.get(app, last))
        if app in lows or last != mark:
            first[app] = AppReset(_or_none(mark), _or_none(low))
        if last != low:
            second[app] = AppReset(_or_none(low), _or_none(last))
    return AppChanges(rises, (first, second) if second else (first,))


def _left_out(
    source: LogDifference, target: LogDifference, lost: Collection[Act]
) -> dict[str, Runs]:
    """Return the units of work that are left out, and that the other log has not done itself."""
    left: dict[str, Runs] = {}
    for log in (source, target):
        for app, runs in _units_of(act for act in log.acts if act in lost).items():
            # against unit-of-the-chosen-log-left-out
            rest = runs_without(runs, log.other_units.done.get(app, ()))
            if rest:
                left[app] = joined_runs(left.get(app, ()), rest)
    return left


def _doers(acts: Sequence[Act], shown: Collection[str]) -> list[Act]:
    """Return the transactions of single units of work of which segments have rows.

    Args:
        acts: what one log did, in order.
        shown: the ids of the segments.
    """
    firsts = Firsts()
    for name in (*shown, *(segment.id for act in acts for segment in act.adds)):
        firsts.note(name)
    doers: dict[str, list[Act]] = {}
    for act in acts:
        moved = act.drops if act.rewrites or act.merges_slices else ()
        those = [doer for drop in moved for doer in doers.get(firsts.of(drop.id), ())]
        those += [act] if act.unit is not None else []
        for segment in act.adds if those else ():
            doers.setdefault(firsts.of(segment.id), []).extend(those)
    names = map(firsts.of, shown)
    return list({id(doer): doer for name in names for doer in doers.get(name, ())}.values())


def _least_marks(
    source: LogDifference, target: LogDifference, lost: Collection[Act], shown: Collection[str]
) -> dict[str, int]:
    """Return by app the last unit that counts as done in any case, by restores of the two logs."""
    lasts = _counted_still(source, target, lost)
    # against restored-unit-loaded-again
    restored = _restored([*source.side.acts, *target.side.acts], shown)
    return {app: max(d.get(app, -1) for d in (lasts, restored)) for app in {**lasts, **restored}}


def _counted_still(
    source: LogDifference, target: LogDifference, lost: Collection[Act]
) -> dict[str, int]:
    """Return by app the last unit that the target has forgotten and the source counts as done.

    The source knows of the forgetting, or is chosen, with what the target did left out.
    """
    lasts: dict[str, int] = {}
    for act in (act for act in target.side.acts if act.forgotten and not act.is_state):
        seen = act.version <= source.side.seen or source.side.has.has(act) or act in lost
        for app, last in act.forgotten.items():
            if seen:  # against forgotten-by-what-a-choice-left-out
                lasts[app] = min(last, _mark(source.side, app))
            else:
                lasts.pop(app, None)
    return {app: last for app, last in lasts.items() if last >= 0}


def _restored(acts: Sequence[Act], shown: Collection[str]) -> dict[str, int]:
    """Return by app the last unit of work of which the target may show rows, by its restores.

    Either a restore of one log brought back rows with their units, or it forgot units and not all
    rows that it dropped are gone from the union.

    Args:
        acts: what both logs did.
        shown: the ids of the segments that the target has live after the union.
    """
    names, lasts = set(shown), dict[str, int]()
    # Whose rows a segment has that was added since the fork point; of others nothing tells it.
    apps = {s.id: {*act.units} for act in acts if not act.restores for s in act.adds}
    for act in (act for act in acts if act.restores and not act.is_state):
        came = names.intersection(segment.id for segment in act.adds)
        stay = names.intersection(drop.id for drop in act.drops)
        marks = {app: last for app, (last, _) in act.recalls.items()} if came else {}
        for app, last in act.forgotten.items():
            # against units-not-forgotten-for-other-rows
            may_stay = any(app in apps.get(name, {app}) for name in stay)
            marks |= {app: last} if may_stay else {}
        for app, last in marks.items():
            lasts[app] = max(last, lasts.get(app, last))
    return lasts


def _units_of(acts: Iterable[Act]) -> dict[str, Runs]:
    """Return the units of work that transactions did, by app."""
    done: dict[str, Runs] = {}
    for act in acts:
        for app, runs in kept(act.units).items():
            done[app] = joined_runs(done.get(app, ()), runs)
    return done


def _forgotten(acts: Iterable[Act], left: Mapping[str, Runs]) -> dict[str, int]:
    """Return by app the sequence above which units no longer count as done.

    Args:
        acts: what the source did.
        left: the units that are left out.
    """
    lows = {app: runs[0][0] - 1 for app, runs in left.items()}
    for act in acts:
        for app, seq in act.forgets.items():
            lows[app] = min(seq, lows.get(app, seq))
    return lows


def _mark(side: Side, app: str) -> int:
    mark = side.meta.apps.get(app)
    return -1 if mark is None else mark.seq


def _or_none(seq: int) -> int | None:
    return None if seq < 0 else seq
