"""What becomes of the sequences of apps when two logs are united (R19.10 item 6). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eventlog.merging.log_acts import Act, KnownCommits, kept
from eventlog.merging.planning.by_state.same_states import SameStates
from eventlog.merging.planning.by_state.sides import LogDifference, Side, Take, crossed_unions
from eventlog.merging.planning.carried import MergeConflict
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


class Recounts:
    """What each of two logs did to change which units of work count, unseen by the other log.

    That is a restore that lets units be loaded again, or that brought them back with their rows,
    or a union with a log that did so.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.

    Attributes:
        source_acts: the source's transactions that the target does not have, without unions of
            which it has all that they brought.
        target_acts: the target's transactions that the source does not have, likewise.
    """

    def __init__(self, source: LogDifference, target: LogDifference) -> None:
        self._source, self._target = source, target
        crossed = crossed_unions(source, target)
        self.source_acts, self.target_acts = (
            # against recount-that-both-know-taken-for-two
            [a for a in log.acts if a.commit not in crossed and not _is_known(a, log.other.has)]
            for log in (source, target)
        )

    @property
    def by_source(self) -> set[str]:
        """The apps whose units the source counts in another way."""
        return _recounted(self.source_acts)

    @property
    def by_either(self) -> set[str]:
        """The apps whose units one of the two logs counts in another way."""
        return self.by_source | _recounted(self.target_acts)

    def conflict(self, regions: Iterable[frozenset[str]]) -> MergeConflict | None:
        """Return why one of the two logs must be chosen as a whole; None if there is no reason.

        A log that changed which units of an app count is united with another log only where that
        has neither done one of these units nor restored a version, which may have brought back rows
        of them. If both have the same rows and count alike, it does not matter.

        Args:
            regions: the chunks that the two logs have changed, in sets of those that overlap.
        """
        found = _excluded(self.source_acts, self.target_acts)
        if found is None and (other := _excluded(self.target_acts, self.source_acts)) is not None:
            found = other[::-1]
        if found is None or self._agree(regions):
            return None
        return MergeConflict(
            "by a restore or a choice, one of the two logs changed which units of work count as "
            "done, and the other one has done some of them itself, or restored a version",
            found[0].version,
            found[1].version,
            whole=True,
        )

    def _agree(self, regions: Iterable[frozenset[str]]) -> bool:
        source, target = self._source.side, self._target.side
        counts_alike = all(_mark(source, app) == _mark(target, app) for app in self.by_either)
        return counts_alike and all(map(SameStates(source, target).are_in, regions))


def _recounted(acts: Iterable[Act]) -> set[str]:
    return {app for act in acts for app in act.recounts}


def _is_known(act: Act, known: KnownCommits) -> bool:
    """Return whether a log has everything that a union brought, where nobody had to choose."""
    return act.unites_all and all(map(known.names, act.originals.keys() - {act.commit}))


def _excluded(acts: Sequence[Act], others: Sequence[Act]) -> tuple[Act, Act] | None:
    """Return what changed which units count, and what the other log did that excludes it."""
    for app in sorted(_recounted(acts)):
        first, last = _bounds(app, acts)
        for other in others:
            does = common_runs(other.units.get(app, ()), ((first, last),))
            # against recount-beside-another-doing-of-its-units, recount-beside-a-restore
            if does or other.may_restore:
                return next(act for act in acts if app in act.recounts), other
    return None


def _bounds(app: str, acts: Iterable[Act]) -> tuple[int, int]:
    """Return the first and the last unit of an app that a log counts in another way, or did."""
    bounds = [act.recounts[app] for act in acts if app in act.recounts]
    bounds += [run for act in acts for run in act.units.get(app, ())]
    return min(first for first, _ in bounds), max(last for _, last in bounds)


def app_changes(
    source: LogDifference,
    target: LogDifference,
    recounts: Recounts,
    left: Mapping[str, Runs],
    whole: Take | None,
) -> AppChanges:
    """Return what becomes of the sequences of apps.

    The target counts the units of both logs. Where the source changed which units of an app count,
    the target counts these as the source does. Where somebody chose one of the two logs as a whole,
    the target counts as that log does. Units that were left out as a whole count no longer, so that
    they can be loaded again.

    Args:
        source: what the source did, compared with the target.
        target: what the target did, compared with the source.
        recounts: what changed which units count.
        left: the units that the union leaves out as a whole.
        whole: which of the two logs was chosen as a whole; None: neither.
    """
    theirs, ours = map(_units_of, (recounts.source_acts, recounts.target_acts))
    sequences = _Sequences(target)
    if whole is not None:
        log, other = (source, target) if whole == "source" else (target, source)
        # against published-append-counted-as-an-app
        apps = {*kept(source.units.done), *kept(target.units.done), *recounts.by_either}
        for app in sorted(apps, key=str.encode):
            units, others = (one.units.done.get(app, ()) for one in (log, other))
            # What only one of the two counts is recounted, so that nobody does it unseen.
            apart = (first - 1 for first, _ in runs_without(others, units))
            # against loaded-again-unseen-by-a-choice
            low = min(_mark(other.side, app), *apart, _mark(log.side, app))
            # against whole-choice-that-counts-no-units
            sequences.become(app, units, _mark(log.side, app), low=low)
        return sequences.changes()
    changed = recounts.by_source
    for app in sorted({*theirs, *changed, *left}, key=str.encode):
        their_done, our_done = (log.units.done.get(app, ()) for log in (source, target))
        if app in changed:
            # against units-counted-that-the-source-forgot
            own = common_runs(ours.get(app, ()), our_done)
            sequences.become(app, joined_runs(their_done, own), _mark(source.side, app))
        elif app in left:
            new = common_runs(theirs.get(app, ()), their_done)
            after = runs_without(joined_runs(our_done, new), left[app])
            sequences.become(app, after, min(_mark(target.side, app), left[app][0][0] - 1))
        else:
            sequences.add(app, common_runs(theirs[app], their_done))
    return sequences.changes()


@dataclass(frozen=True, slots=True)
class _Sequences:
    """The changes of the sequences of the target's apps, made app by app.

    The origin, which comes first, only raises a sequence. A first restore lowers it, and a second
    one raises it above what the origin names.

    Attributes:
        target: what the target did, compared with the source.
        rises: by app, what the origin names.
        first: by app, what the first restore sets.
        second: by app, what the second restore sets.
    """

    target: LogDifference
    rises: dict[str, AppRise] = field(default_factory=dict)
    first: dict[str, AppReset] = field(default_factory=dict)
    second: dict[str, AppReset] = field(default_factory=dict)

    def changes(self) -> AppChanges:
        """Return all changes."""
        return AppChanges(self.rises, (self.first, self.second) if self.second else (self.first,))

    def add(self, app: str, units: Runs) -> None:
        """Count these units, too."""
        new = runs_without(units, self.target.units.done.get(app, ()))
        if new:
            self.rises[app] = AppRise(_or_none(_mark(self.target.side, app)), new)

    def become(self, app: str, units: Runs, mark: int, *, low: int | None = None) -> None:
        """Count these units and no others.

        Args:
            app: the app.
            units: the units since the fork point.
            mark: what the sequence is at least.
            low: what the first restore sets at most; None: as needed.
        """
        old, counted = _mark(self.target.side, app), self.target.units.done.get(app, ())
        lost = runs_without(counted, units)
        low = min(old, mark, mark if low is None else low, *(first - 1 for first, _ in lost))
        above = runs_without(units, ((0, low),))
        done = joined_runs(above, runs_without(units, counted))
        if done:
            self.rises[app] = AppRise(_or_none(old), done)
            old = max(old, done[-1][1])
        self.first[app] = AppReset(_or_none(old), _or_none(low))
        last = max([mark, low, *(last for _, last in above)])
        if last != low:
            self.second[app] = AppReset(_or_none(low), _or_none(last))


def units_without(acts: Iterable[Act], others: Mapping[str, Runs]) -> dict[str, Runs]:
    """Return the units of work that transactions did, without others."""
    units = _units_of(acts)
    rest = {app: runs_without(runs, others.get(app, ())) for app, runs in units.items()}
    return {app: runs for app, runs in rest.items() if runs}


def _units_of(acts: Iterable[Act]) -> dict[str, Runs]:
    """Return the units of work that transactions did, by app."""
    done: dict[str, Runs] = {}
    for act in acts:
        for app, runs in kept(act.units).items():
            done[app] = joined_runs(done.get(app, ()), runs)
    return done


def _mark(side: Side, app: str) -> int:
    mark = side.meta.apps.get(app)
    return -1 if mark is None else mark.seq


def _or_none(seq: int) -> int | None:
    return None if seq < 0 else seq
