"""What the commits of a log did, transaction by transaction, as far as a merge needs it.

No I/O. Void transactions are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.keyed.repetition import repeated, repeats
from eventlog.merging.planning.forms import SegmentParts, form_of, is_part, segment_id
from eventlog.merging.sequences import Runs, common_runs, joined_runs
from eventlog.model.actions import (
    Add,
    Advance,
    AppReset,
    DeleteRows,
    Drop,
    Merge,
    Replace,
    Restore,
    SetBuckets,
    SetGranularity,
    SetOrigin,
    SetProperties,
    SetSchema,
    Unchanged,
    Update,
)
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Header, Transaction
from eventlog.state import fold

COUNT = "transactions"  # in the `info` of what a merge commits: how many it carries
OPERATIONS = "of"  # there: the names of the operations that it carried
UNITED = "united"  # in the `info` of a union of two logs
PURE = "source"  # its value if each chunk that was changed became what it is at the source
BOTH = "both"  # its value if rows of both logs were kept
CHOSEN = "chosen"  # its value if somebody chose a side, so that changes of the other are left out
# Operations that only add rows, only remove some, or leave all where they are.
_UNCOUPLED = frozenset(
    {"append", "compact", "delete", "drop", "granularity", "properties", "schema"}
)
_PUBLISHED = "\0"  # begins the name of the app that stands for a published append
_MANY = 2  # if a writer has not recorded how many
_NONE = -1  # below all sequences


@dataclass(frozen=True)
class Act:
    """One transaction that took effect. What follows from its actions is looked up once.

    Attributes:
        version: the version of its commit.
        commit: the hash of its commit.
        transaction: the transaction, with all its actions.
        adds: the forms of segments that it made live.
        drops: the forms that it dropped.
        deletes: the ids of those among `adds` of whose segments it dropped another form.
        before: the forms with vectors that it dropped.
        exchanged: the ids of segments of which it only exchanged the form.
    """

    version: int
    commit: str
    transaction: Transaction
    adds: tuple[Segment, ...]
    drops: tuple[Drop, ...]
    deletes: frozenset[str] = frozenset()
    before: tuple[Segment, ...] = ()
    exchanged: frozenset[str] = frozenset()

    def in_parts(self, parts: SegmentParts) -> Act:
        """Return the same transaction with parts in the place of the forms of divided segments."""
        if not any(map(parts.divides, (*(s.id for s in self.adds), *(d.id for d in self.drops)))):
            return self
        came = {part.id for form in self.adds for part in parts.of(form)}
        gone = {part for drop in self.drops for part in parts.ids(drop.id)}
        adds = [p for form in self.adds for p in parts.of(form) if p.id not in gone]
        drops = [
            Drop(part, drop.chunk, "")
            for drop in self.drops
            for part in sorted(parts.ids(drop.id))
            if part not in came
        ]
        again = frozenset(s.id for s in adds if segment_id(s.id) in self.exchanged)
        return replace(self, adds=tuple(adds), drops=tuple(drops), deletes=again)

    @cached_property
    def carried(self) -> SetOrigin | None:
        """The origin that a merge carried it from; None if it was written to this log."""
        found = (a for a in self.transaction.actions if isinstance(a, SetOrigin))
        return next(found, None)

    @cached_property
    def originals(self) -> dict[str, int]:
        """The commits in which its changes were first committed: hashes, with their versions.

        These stay the same, however many logs the changes are carried through.
        """
        carried = self.carried
        if carried is None:
            return {self.commit: self.version}
        more = () if isinstance(carried.commits, UnsetType) else carried.commits
        named = {name: version for version, name in more} or {carried.commit: carried.version}
        return named | {self.commit: self.version} if self.unites else named

    @cached_property
    def is_state(self) -> bool:
        """Whether it is a union: it united two logs by their states (MERGING.md R19.10)."""
        actions = self.transaction.actions
        return any(isinstance(a, Restore) and not isinstance(a.origin, UnsetType) for a in actions)

    @cached_property
    def unites(self) -> bool:
        """Whether it is a union that did more than copy chunks."""
        return self.is_state and self.transaction.info.get(UNITED) != PURE

    @cached_property
    def unites_all(self) -> bool:
        """Whether it is a union that left nothing out."""
        return self.is_state and self.transaction.info.get(UNITED) == BOTH

    @cached_property
    def is_choice(self) -> bool:
        """Whether it is a union in which somebody chose a side."""
        return self.is_state and self.transaction.info.get(UNITED) == CHOSEN

    def chose(self, chunks: Iterable[str]) -> bool:
        """Return whether it is a union in which somebody chose the state of one of these chunks."""
        return bool(self.chosen_among(chunks))

    def chosen_among(self, chunks: Iterable[str]) -> set[str]:
        """Return those of these chunks in which it is a choice of one state."""
        return self._spanned(chunks) if self.is_choice else set()

    def met(self, chunks: Iterable[str]) -> set[str]:
        """Return those of these chunks in which several transactions that it carried did anything.

        They may have undone each other there. A union names the chunks in its `unchanged`.
        """
        if self.is_state and any(isinstance(a, Unchanged) for a in self.transaction.actions):
            return self._spanned(chunks)
        return set(chunks)

    def _spanned(self, chunks: Iterable[str]) -> set[str]:
        spans = [a for a in self.transaction.actions if isinstance(a, Unchanged)]
        parsed = ((name, parse_chunk(name)) for name in chunks)
        return {
            name
            for name, chunk in parsed
            if any(chunk.start < span.end and span.start < chunk.end for span in spans)
        }

    @cached_property
    def does_anything(self) -> bool:
        """Whether it changed anything that a merge has to consider.

        That is: segments, those parts of the small state that a merge carries, which units of work
        count as done, or which transactions of other logs the log has. Several of these may undo
        each other, and another log may have some of them.
        """
        kinds = (SetSchema, SetProperties, SetGranularity, SetBuckets)
        changes = any(isinstance(action, kinds) for action in self.transaction.actions)
        done = kept(self.units)  # against unit-that-changed-nothing-left-out
        merged = self.carried is not None  # against what-was-undone-at-once-forgotten
        return bool(
            self.adds or self.drops or changes or done or merged or self.resets or self.is_state
        )

    @cached_property
    def is_recorded(self) -> bool:
        """Whether a merge records it also where it changes nothing at the target.

        Else it would stay new there, and a later merge would undo with it what the target has
        restored since.
        """
        is_record = self.carried is not None and not (self.adds or self.drops)
        # against drops-of-what-is-gone-not-recorded
        drops_rows = bool(self.drops) and not (self.rewrites or self.merges_slices)
        # against schema-change-of-both-not-recorded
        return is_record or drops_rows or self.changes_schema or len(self.originals) > 1

    @cached_property
    def changes_schema(self) -> bool:
        """Whether it changed the schema."""
        return any(isinstance(action, SetSchema) for action in self.transaction.actions)

    @cached_property
    def rewrites(self) -> bool:
        """Whether its new segments have the same rows as the segments that it dropped."""
        return any(isinstance(a, Replace) and not a.deletes for a in self.transaction.actions)

    def replaces(self, name: str) -> bool:
        """Return whether it put other rows in the place of a form or a part that it dropped.

        What is left of a segment that is not divided are other rows than before.
        """
        # against rest-of-a-segment-taken-for-no-other-rows
        is_rest = not is_part(name) and segment_id(name) in self.exchanged
        return is_rest or any(segment.id not in self.deletes for segment in self.adds)

    @cached_property
    def updated(self) -> frozenset[str]:
        """The ids of the drops if these were rows in whose place it added new forms of them."""
        is_update = any(isinstance(a, Update) for a in self.transaction.actions)
        # A merge applies an update without its action.
        is_update = is_update or (self.carried is not None and self.operations != ("overwrite",))
        adds_rows = any(segment.id not in self.deletes for segment in self.adds)
        return frozenset(drop.id for drop in self.drops if is_update and adds_rows)

    @cached_property
    def coupled_chunks(self) -> frozenset[str]:
        """The chunks among which it may have moved rows; none if these are not several.

        It removed rows from one chunk and added rows to another one. Of a merge of several
        transactions nothing tells which of these did what.
        """
        if self.rewrites or self.merges_slices:
            return frozenset()
        # against rows-moved-by-a-merge-not-coupled
        if self.carried is not None and _UNCOUPLED.issuperset(self.operations):
            return frozenset()
        # A restore may bring rows back by another form of their segment.
        # against restored-rows-not-coupled
        new = [s for s in self.adds if self.may_restore or s.id not in self.deletes]
        chunks = frozenset((*(s.chunk for s in new), *(d.chunk for d in self.drops)))
        return chunks if new and self.drops and len(chunks) > 1 else frozenset()

    @cached_property
    def merges_slices(self) -> bool:
        """Whether it is a merge of slices, which changes no answer of a keyed table."""
        return any(isinstance(a, Merge) for a in self.transaction.actions)

    @cached_property
    def restores(self) -> bool:
        """Whether it made segments of an earlier version live again."""
        return any(isinstance(a, Restore) for a in self.transaction.actions)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """The names of what was done, also of what a merge carried it for."""
        told = self.transaction.info.get(OPERATIONS, "")
        if self.carried is not None and told:
            return tuple(told.split(", "))
        # A merge of rows by their values is none of logs.
        name = self.transaction.operation
        return ("merge-rows" if name == "merge" and self.carried is None else name,)

    @cached_property
    def may_restore(self) -> bool:
        """Whether it may have made rows of earlier versions live again."""
        # against carried-restore-taken-for-new-rows
        return self.restores or not {"restore", "merge"}.isdisjoint(self.operations)

    @cached_property
    def resets(self) -> bool:
        """Whether a restore changed which units of work count as done."""
        return bool(self.recounts)

    @cached_property
    def forgets(self) -> dict[str, int]:
        """For each app, the sequence above which earlier units no longer count as done (R12.3)."""
        lows: dict[str, int] = {}
        for restore, app, reset in self._resets():
            new = _NONE if reset.new is None else reset.new
            if restore.origin is not UNSET or (reset.old is not None and new < reset.old):
                lows[app] = min(new, lows.get(app, new))
        return lows

    @cached_property
    def recounts(self) -> dict[str, tuple[int, int]]:
        """For each app of which a restore changed which units count, the first and the last such.

        A union that keeps the units of one of two logs counts as a change of none: the last is
        below the first.
        """
        bounds: dict[str, tuple[int, int]] = {}
        for restore, app, reset in self._resets():
            marks = [_NONE if mark is None else mark for mark in (reset.old, reset.new)]
            if restore.origin is not UNSET or reset.old != reset.new:
                first, last = bounds.get(app, (max(marks) + 1, max(marks)))
                bounds[app] = min(first, *(mark + 1 for mark in marks)), max(last, *marks)
        return bounds

    @cached_property
    def recalls(self) -> dict[str, tuple[int, int]]:
        """For each app whose units a restore brings back: the last sequence, and the version."""
        return {
            app: (reset.new, restore.version)
            for restore, app, reset in self._resets()
            if restore.origin is UNSET
            and reset.new is not None
            and (reset.old is None or reset.old < reset.new)
        }

    def _resets(self) -> Iterator[tuple[Restore, str, AppReset]]:
        for action in self.transaction.actions:
            if isinstance(action, Restore) and not isinstance(action.apps, UnsetType):
                yield from ((action, app, reset) for app, reset in action.apps.items())

    @cached_property
    def units(self) -> dict[str, Runs]:
        """The units of work that it did: the sequences of each app.

        A published append is a unit as well: writers of two logs may both have committed it. Its
        app is named after the transaction, and no table keeps the sequences of that; see `kept`.
        """
        app = self.transaction.app
        done: dict[str, Runs] = {} if app is None else {app.id: ((app.seq, app.seq),)}
        for action in self.transaction.actions:
            if isinstance(action, Advance):  # against advanced-units-forgotten-by-a-merge
                first = 0 if action.old is None else action.old + 1
                done[action.app] = joined_runs(done.get(action.app, ()), ((first, action.new),))
        carried = {} if self.carried is None else self.carried.apps
        for name, rise in carried.items():
            done[name] = joined_runs(done.get(name, ()), rise.done)
        if not done and self.transaction.until is not None and not self.drops:
            done[_PUBLISHED + self.transaction.id] = ((0, 0),)
        return done

    @cached_property
    def count(self) -> int:
        """The number of transactions that it carried, through however many logs they came."""
        told = self.transaction.info.get(COUNT, "") if self.carried else "1"
        return int(told) if told.isdecimal() else _MANY

    @cached_property
    def unit(self) -> tuple[str, int] | None:
        """The app and the sequence if it is exactly one unit of work, else None."""
        several = self.count != 1 or self.unites  # against choice-taken-for-the-unit-in-it
        runs = [run for runs in self.units.values() for run in runs]
        # against units-of-a-group-taken-for-one
        several = several or any(first < last for first, last in runs)
        # against forgetting-union-taken-for-the-unit-that-counts-still
        several = several or (self.is_state and self.resets)
        if len(self.units) != 1 or several:
            return None
        [app] = self.units
        return app, runs[0][0]

    @cached_property
    def unit_segments(self) -> tuple[Segment, ...]:
        """The segments that a unit of work added, without other rows that it repeats (R19.8)."""
        # against rows-repeated-beside-a-unit-taken-for-its-own
        # against rest-of-a-segment-taken-for-rows-of-a-unit
        new = [segment for segment in self.adds if segment.id not in self.deletes]
        return tuple(segment for segment in new if not repeats(segment.id))


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """What one commit did.

    Attributes:
        version: the version of the commit.
        commit: the hash of the commit.
        acts: the transactions that took effect, in order.
        prev: the hash of the commit before this one.
    """

    version: int
    commit: str
    acts: tuple[Act, ...]
    prev: str | None


def kept(units: dict[str, Runs]) -> dict[str, Runs]:
    """Return the units of work without published appends, whose sequences no table keeps."""
    return {app: runs for app, runs in units.items() if not app.startswith(_PUBLISHED)}


class KnownCommits:
    """The transactions that a log has, by the hashes of the commits that first had them.

    Args:
        steps: the commits of the log since the fork point.
    """

    def __init__(self, steps: Iterable[AppliedStep]) -> None:
        self._commits: set[str] = set()
        for step in steps:
            self._commits.add(step.commit)
            self._commits.update(name for act in step.acts for name in act.originals)

    def has(self, act: Act) -> bool:
        """Return whether the log has all changes of a transaction."""
        return act.commit in self._commits or self._commits.issuperset(act.originals)

    def has_part(self, act: Act) -> bool:
        """Return whether the log has some changes of a transaction."""
        return not self._commits.isdisjoint(act.originals)

    def names(self, commit: str) -> bool:
        """Return whether the log has this commit, itself or from another log."""
        return commit in self._commits


class Units:
    """The units of work that a log has done and no restore has forgotten, with their transactions.

    Args:
        acts: the transactions of the log since the fork point.

    Attributes:
        done: for each app, the sequences that count as done.
    """

    def __init__(self, acts: Iterable[Act]) -> None:
        counting: dict[str, list[tuple[int, int, Act]]] = {}
        ever: dict[str, list[tuple[int, int, Act]]] = {}
        for act in acts:
            for app, seq in act.forgets.items():
                # against forgotten-units-skipped
                counting[app] = list(_upto(counting.get(app, ()), seq))
            for app, (seq, version) in act.recalls.items():
                back = (run for run in ever.get(app, ()) if run[2].version <= version)
                counting.setdefault(app, []).extend(_upto(back, seq))
            for app, runs in act.units.items():
                done = [(first, last, act) for first, last in runs]
                ever.setdefault(app, []).extend(done)
                counting.setdefault(app, []).extend(done)
        self.done: dict[str, Runs] = {
            app: joined_runs((), tuple((first, last) for first, last, _ in runs))
            for app, runs in counting.items()
        }
        self._runs = {app: sorted(runs, key=_first) for app, runs in counting.items()}
        self._longest = {
            app: max((last - first + 1 for first, last, _ in runs), default=0)
            for app, runs in counting.items()
        }

    def shared(self, act: Act) -> list[Act]:
        """Return the transactions of this log that did some of the units of another transaction."""
        shared: dict[int, Act] = {}
        for app, runs in act.units.items():
            done, longest = self._runs.get(app, []), self._longest.get(app, 0)
            for first, last in runs:
                low = bisect_left(done, first - longest + 1, key=_first)
                high = bisect_right(done, last, key=_first)
                shared.update((id(ours), ours) for _, end, ours in done[low:high] if end >= first)
        return [*shared.values()]


class Forgetting:
    """Which units of work transactions of a log did, and no later restore has forgotten.

    Args:
        acts: the transactions of the log, in order.
    """

    def __init__(self, acts: Iterable[Act]) -> None:
        self._places: dict[int, int] = {}
        self._resets: list[tuple[int, Act]] = []
        for n, act in enumerate(acts):
            self._places[id(act)] = n
            if act.resets:
                self._resets.append((n, act))

    def rest(self, act: Act) -> dict[str, Runs]:
        """Return the units of a transaction that still count by what it did."""
        place, rest = self._places[id(act)], dict(act.units)
        for _, later in (reset for reset in self._resets if reset[0] > place):
            for app in rest.keys() & later.forgets.keys():
                # A union names those above that count still.
                # against unit-that-a-union-kept-not-carried
                above = later.units.get(app, ())
                rest[app] = common_runs(rest[app], joined_runs(((0, later.forgets[app]),), above))
            for app in rest.keys() & later.recalls.keys():
                last, version = later.recalls[app]
                if act.version <= version:
                    rest[app] = common_runs(act.units[app], ((0, last),))
        return {app: runs for app, runs in rest.items() if runs}


def _upto(runs: Iterable[tuple[int, int, Act]], seq: int) -> Iterator[tuple[int, int, Act]]:
    """Yield the runs up to this sequence."""
    return ((first, min(last, seq), act) for first, last, act in runs if first <= seq)


def _first(run: tuple[int, int, Act]) -> int:
    return run[0]


def passed_forms(
    source: Sequence[AppliedStep], target: Sequence[AppliedStep]
) -> dict[str, set[str]]:
    """Return the forms that both logs know to be replaced, by id, with those that came after each.

    Every transaction that added or dropped such a form is in both logs. So it does not matter which
    of these deleted which rows.

    Args:
        source: the commits of one log.
        target: those of the other log.
    """
    later: dict[str, set[str]] = {}
    unpassed: set[str] = set()
    for steps, other in ((source, KnownCommits(target)), (target, KnownCommits(source))):
        live: dict[str, str] = {}
        for act in (act for step in steps for act in step.acts):
            added = {segment_id(form.id): form.id for form in act.adds}
            for name in (drop.id for drop in act.drops):
                next_form = added.get(segment_id(name))
                later.setdefault(name, set()).update([next_form] if next_form else ())
                live.pop(segment_id(name), None)
            live |= added
            if not other.has(act):  # against vector-of-an-unknown-delete-not-needed
                unpassed.update((*added.values(), *(drop.id for drop in act.drops)))
        unpassed.update(live.values())
    return {name: forms for name, forms in later.items() if name not in unpassed}


def steps_in_parts(steps: Iterable[AppliedStep], parts: SegmentParts) -> list[AppliedStep]:
    """Return commits with parts in the place of the forms of divided segments."""
    return [replace(s, acts=tuple(act.in_parts(parts) for act in s.acts)) for s in steps]


def taken(commit: Commit, before: Header | None) -> tuple[Transaction, ...] | None:
    """Return the transactions that took effect, if headers are enough to decide that.

    Args:
        commit: the commit.
        before: the header of the version below; None: unknown, which matters if `maybe_none`.

    Returns:
        The transactions; None: fold the commit to find out.
    """
    if commit.header.changes.transactions == len(commit.transactions):
        return commit.transactions
    if maybe_none(commit) and before and before.state_hash == commit.header.state_hash:
        return ()
    return None


def maybe_none(commit: Commit) -> bool:
    """Return whether a commit has transactions, and its header counts none that took effect."""
    return bool(commit.transactions) and not commit.header.changes.transactions


def divided_segments(source: Sequence[AppliedStep], target: Sequence[AppliedStep]) -> set[str]:
    """Return the ids of the segments that both logs changed, and of whose rows one deleted some.

    And of those of which a unit of work deleted rows, since the other log may have done it, too.
    One that came with deleted rows counts as changed: its deletes came with it. Left out are
    segments with rows of a unit that each log did by itself, if only one log changed them: the
    other log has these rows elsewhere.

    Args:
        source: the commits of one log.
        target: those of the other log.
    """
    theirs, ours = ([act for step in steps for act in step.acts] for steps in (source, target))
    acts = (*theirs, *ours)
    forms = (form for act in acts for form in (*act.adds, *act.before))
    shrunk = {segment_id(f.id) for f in forms if not isinstance(f.vector, UnsetType)}
    changed = (
        {segment_id(s.id) for act in log for s in act.adds}
        | {segment_id(d.id) for act in log for d in act.drops}
        for log in (theirs, ours)
    )
    by_both = shrunk.intersection(*changed)
    by_units = set[str]().union(*(act.exchanged for act in acts if kept(act.units)))
    # against segments-of-a-unit-that-both-did-divided
    apart = _own_doings(theirs, target) | _own_doings(ours, source)
    # Of a segment that both logs have, the positions are the same.
    # against segments-that-both-have-not-divided
    return by_both | (by_units - apart)


def _own_doings(acts: Sequence[Act], other: Sequence[AppliedStep]) -> set[str]:
    """Return the ids of the segments with rows of units of work that each log did by itself.

    Args:
        acts: the transactions of one log.
        other: the commits of the other log.
    """
    known, units = KnownCommits(other), Units(act for step in other for act in step.acts)
    own = (act for act in acts if units.shared(act) and not known.has(act))
    return {segment_id(segment.id) for act in own for segment in act.unit_segments}


def may_touch_vectors(commit: Commit, before: Header | None) -> bool:
    """Return whether a commit may have dropped or changed segments with deletion vectors.

    Args:
        commit: the commit.
        before: the header of the version below; None: there is none.
    """
    changes = commit.header.changes
    had = before is not None and not isinstance(before.totals.deleted, UnsetType)
    return bool(changes.vectors) or (had and bool(changes.drops))


def step_of(
    commit: Commit,
    commit_hash: str,
    transactions: Sequence[Transaction],
    effect: fold.Effect | None = None,
) -> AppliedStep:
    """Return what a commit did.

    Args:
        commit: the commit.
        commit_hash: the commit's hash.
        transactions: the transactions that took effect, none spilled.
        effect: of the commit; None: it touches no deletion vectors.
    """
    acts = tuple(_acts(commit, commit_hash, transactions, effect))
    return AppliedStep(commit.header.version, commit_hash, acts, commit.header.prev)


def _acts(
    commit: Commit,
    commit_hash: str,
    transactions: Sequence[Transaction],
    effect: fold.Effect | None,
) -> Iterator[Act]:
    version, partition = commit.header.version, 0
    gone = {} if effect is None else {s.id: form_of(s).id for s in effect.drops}
    pairs = () if effect is None else effect.deletes
    before = (*(() if effect is None else effect.drops), *(entry for entry, _ in pairs))
    vectors = {f.id: f for f in map(form_of, before) if not isinstance(f.vector, UnsetType)}
    changed = {before.id: (before, after) for before, after in pairs}
    for transaction in transactions:
        adds = [action for action in transaction.actions if isinstance(action, Add)]
        entries = [fold.segment_of(a, version, partition + n) for n, a in enumerate(adds)]
        partition += len(adds)
        drops = [
            msgspec.structs.replace(action, id=gone.get(action.id, action.id))
            for action in transaction.actions
            if isinstance(action, Drop)
        ]
        deletes = [changed[a.id] for a in transaction.actions if isinstance(a, DeleteRows)]
        drops += (Drop(form_of(before).id, before.chunk, "") for before, _ in deletes)
        forms = tuple(map(form_of, (*entries, *(after for _, after in deletes))))
        dropped = {segment_id(drop.id) for drop in drops}
        again = frozenset(form.id for form in forms if segment_id(form.id) in dropped)
        had = tuple(vectors[drop.id] for drop in drops if drop.id in vectors)
        same = frozenset(map(segment_id, again))
        yield Act(version, commit_hash, transaction, forms, tuple(drops), again, had, same)


def chunks_of(acts: Iterable[Act]) -> set[str]:
    """Return the chunks in which transactions added or dropped segments."""
    return {c for a in acts for c in (*(s.chunk for s in a.adds), *(d.chunk for d in a.drops))}


def dropped_segments(acts: Iterable[Act]) -> dict[str, Act]:
    """Return the segments whose rows a log has dropped, each with the transaction that did so.

    A rewrite does not drop rows. What a union of two states drops is left out, since it does not
    show which rows it dropped. Of a rewritten segment all rows are dropped once all segments with
    some of them are (`shrunk_segments` has those of which others are left).

    Args:
        acts: the transactions of the log, in order.
    """
    return _DroppedRows(acts).gone


def shrunk_segments(acts: Iterable[Act]) -> dict[str, Act]:
    """Return the rewritten segments of whose rows a log may have dropped some, and not all.

    Each has the last transaction that did so. Nothing tells which of several segments that a
    rewrite made has which rows, nor which rows are those that a vector of one of them deletes.

    Args:
        acts: the transactions of the log, in order.
    """
    return _DroppedRows(acts).shrunk


class _DroppedRows:
    """The segments whose rows a log has dropped, through rewrites.

    Args:
        acts: the transactions of the log, in order.

    Attributes:
        gone: the segments of which all rows are dropped, each with the last transaction of these.
        shrunk: the rewritten segments of which some rows may be dropped, and others are left.
    """

    def __init__(self, acts: Iterable[Act]) -> None:
        self.gone: dict[str, Act] = {}
        self.shrunk: dict[str, Act] = {}
        self._inputs: dict[str, list[str]] = {}  # by segment: those that were rewritten into it
        self._outputs: dict[str, set[str]] = {}  # by segment: those that may have its rows
        for act in acts:
            if act.merges_slices or act.rewrites:
                for segment in act.adds:
                    inputs = [drop.id for drop in act.drops if drop.chunk == segment.chunk]
                    self._relate(segment.id, inputs)
            else:
                self._relate_forms(act)
                self._bring_back(act)  # so that forms which are left count as live
                if not act.is_state:
                    self._drop(act)
                self._bring_back(act)

    def _relate(self, output: str, inputs: list[str]) -> None:
        self._inputs[output] = inputs
        for name in inputs:
            self._outputs.setdefault(name, set()).add(output)

    def _relate_forms(self, act: Act) -> None:
        """Note that another form of a segment has the rows of it that are left."""
        # against form-of-rewritten-rows-taken-for-all-of-them
        before = {segment_id(drop.id): drop.id for drop in act.drops if not is_part(drop.id)}
        for name in act.deletes:
            was = before.get(segment_id(name))
            if was in self._inputs:
                self._relate(name, self._inputs[was])

    def _drop(self, act: Act) -> None:
        pending = [drop.id for drop in act.drops]
        while pending:
            name = pending.pop()
            inputs = self._inputs.get(name, ())
            # against rewritten-rows-dropped-with-some-of-them
            if all(output in self.gone for output in self._outputs.get(name, ())):
                self.gone[name] = act
                self.shrunk.pop(name, None)
                pending += inputs
            else:
                self.shrunk[name] = act
                pending += (i for i in inputs if i not in self.shrunk)

    def _bring_back(self, act: Act) -> None:
        """Note that segments are live again, with the rows of those that became part of them."""
        pending = [segment.id for segment in act.adds]
        while pending:
            name = pending.pop()
            dropped = self.gone.pop(name, None)
            if dropped is not None:
                pending += self._inputs.get(name, ())
                if any(output in self.gone for output in self._outputs.get(name, ())):
                    self.shrunk[name] = dropped


def old_rows(acts: Iterable[Act], new: Iterable[Act]) -> set[str]:
    """Return the segments that transactions added to repeat rows that the other log had.

    Args:
        acts: transactions of one log.
        new: all transactions of that log that the other log does not have.
    """
    added = {s.id for act in new if not act.merges_slices for s in act.adds}
    plain = (act for act in acts if not (act.merges_slices or act.is_state))
    ids = {s.id for act in plain for s in act.adds if repeats(s.id)}
    own = {i for i in added if not repeats(i)}
    return ids - repeated(ids | added, own)
