"""The shell of a merge: reads both logs, has a planner decide, copies segments, commits, repeats.

A merge stores no progress except in the target's log. It can stop at any call and be started
again, and several merges may run at once (MERGING.md "Merging histories").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from eventlog.errors import (
    CommitConflict,
    DataLoss,
    InvalidInput,
    VersionVacuumed,
)
from eventlog.keyed.repetition import again
from eventlog.lineage.fork_point import ForkPoint
from eventlog.log import chain
from eventlog.log.snapshot import Snapshot
from eventlog.merging import log_acts
from eventlog.merging.advice import Advice
from eventlog.merging.commits import CommitReader
from eventlog.merging.log_acts import AppliedStep
from eventlog.merging.marks import OriginMark, OriginMarks
from eventlog.merging.planner_inputs import PlannerInputs, live_segments, overwritten_chunks
from eventlog.merging.planning.by_state.one_by_one import objection
from eventlog.merging.planning.by_state.sides import LeftOut, Side, Take
from eventlog.merging.planning.by_state.union import Union, unite
from eventlog.merging.planning.carried import Carried, Divergence, MergeConflict, Pair
from eventlog.merging.planning.forms import ObjectPlace, SegmentParts, object_place
from eventlog.merging.planning.keyed.ties import Ties, ties_of
from eventlog.merging.planning.keyed.upserts import KeyedPlanner
from eventlog.merging.planning.past_needed import needs_past
from eventlog.merging.planning.plan import MergePlan, Planner, TablePlanner, plan_merge
from eventlog.merging.segment_copies import SegmentCopies
from eventlog.merging.target_commits import TargetCommits
from eventlog.model.entries import Segment
from eventlog.session.session import Session
from eventlog.store.branching.branch import BranchStore

TRIES = 20  # to commit one transaction, if others overtake each


# Why transactions cannot be carried one by one: a rule forbids it, or segments are gone.
_Why = MergeConflict | DataLoss | VersionVacuumed


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did.

    Attributes:
        source: root URI of the table whose commits were carried.
        target: root URI of the table that has them now.
        common: the last version that both share.
        version: the source's version up to which the target has everything.
        head: the target's newest version.
        commits: number of versions that this merge committed.
        transactions: number of transactions that it carried. A transaction in which the source has
            carried several counts as that many.
        skipped: number of the source's transactions that the target had already.
        declined: number of rewrites that change no rows, and that were left out.
        segments: number of segments that were copied.
        bytes: the size of these segments.
        left_out: the changes of one of the two that were left out, where `take` was needed.
        followed: whether the target just followed the source, since it had no commits that the
            source lacks; then no transaction and no segment is counted.
        differing: properties, or the granularity, of which both have different values although
            nothing is left to merge: choices by way of a third copy excluded each other. Set them
            on one of the two, and merge again.
    """

    source: str
    target: str
    common: int
    version: int
    head: int
    commits: int = 0
    transactions: int = 0
    skipped: int = 0
    declined: int = 0
    segments: int = 0
    bytes: int = 0
    left_out: tuple[LeftOut, ...] = ()
    followed: bool = False
    differing: tuple[str, ...] = ()


@dataclass
class _Done:
    transactions: int = 0  # of a dry run
    skipped: dict[int, int] = field(default_factory=dict)
    declined: dict[int, int] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()


def publish(
    branch: Session, parent: Session, *, take: Take | None = None, dry_run: bool = False
) -> Merged:
    """Commit the changes of a branch since its fork on its parent, in one version.

    Args:
        branch: the branch.
        parent: the table or branch that it forked from.
        take: see `eventlog.replication.merge`.
        dry_run: commit nothing.

    Raises:
        CommitConflict: both changed the same thing in different ways; nothing was committed.
        Corrupt: the parent lacks the version at which the branch forked.
        DataLoss: a segment of the branch is missing or damaged; nothing was committed.
        InvalidInput: it is not a branch of this parent.
        Unavailable: a store does not answer.
    """
    store = branch.store
    if not isinstance(store, BranchStore) or store.parent.uri != parent.uri:
        raise InvalidInput(
            f"{branch.uri} is no branch of {parent.uri}: `eventlog.replication.merge` joins copies "
            "of a table",
            table=parent.uri,
        )
    branch.refresh()
    branch.log.check_fork()
    return Merger(
        branch,
        parent,
        ForkPoint(store.forks[0].version),
        at_once=True,
        take=take,
        dry_run=dry_run,
    ).run()


class _Overtaken(Exception):
    """A concurrent commit invalidated the planned transaction; plan again."""

    def __init__(self, conflict: CommitConflict) -> None:
        super().__init__(conflict)
        self.conflict = conflict


class Merger:
    """Commits the source's changes on the target.

    Nothing is committed before everything is planned. If transactions cannot be carried one by
    one, all of them come in one commit: after a part of them, rows would be live that their log has
    replaced, and would count as rows of the target where somebody chooses a side.

    Args:
        source: the table whose commits are carried.
        target: the table that gets them.
        fork: the fork point of the two logs.
        at_once: merge in one commit, so that no reader sees a part.
        take: whose state counts where the changes of both exclude each other; None: a conflict.
        dry_run: commit nothing.
    """

    def __init__(
        self,
        source: Session,
        target: Session,
        fork: ForkPoint,
        *,
        at_once: bool = False,
        take: Take | None = None,
        dry_run: bool = False,
    ) -> None:
        self._source, self._target, self._fork = source, target, fork
        self._at_once = at_once
        self._take, self._dry_run = take, dry_run
        self._source_head = source.head()
        self._source_commits = CommitReader(source.log)
        self._target_commits = CommitReader(target.log)
        self._done = _Done()
        self._copies = SegmentCopies(source, target)
        self._commits = TargetCommits(source, self._source_head, target, fork.common, self._copies)
        self._advice = Advice(source, target, fork, at_once=at_once)
        self._marks = OriginMarks(
            source,
            self._source_head,
            target,
            fork,
            source_commits=self._source_commits,
            target_commits=self._target_commits,
        )
        self._inputs = PlannerInputs(
            source,
            target,
            fork,
            source_commits=self._source_commits,
            target_commits=self._target_commits,
            marks=self._marks,
        )
        self._again: dict[str, str] = {}  # by segment id: the id of the segment that repeats it
        self._ties: Ties | None = None  # None: the table is not keyed
        self._in_one = at_once
        self._looked = fork.common  # no version up to here has anything left to carry

    def run(self) -> Merged:
        """Carry everything up to the head of the source, as it was when the merge began.

        Raises:
            CommitConflict: both changed the same thing, and `take` is None. Nothing was committed,
                unless the conflicting commit came to the target during the merge.
            InvalidInput: rows of one break a check of the other.
            DataLoss: a segment of the source is missing or damaged.
            VersionVacuumed: segments that have to be carried were deleted by a vacuum.
            Unavailable: a store does not answer.
        """
        tries = 0
        while True:
            head = self._target.refresh()
            if self._fork.advance(self._source.log, self._source_head, self._target.log, head):
                self._looked = max(self._looked, self._fork.common)
                self._check_parted()  # against commit-of-another-log-taken-for-followed
            origin = self._fork.origin
            if origin is None:
                return self._merged(head)
            mark = self._marks.of(head, origin)
            first = max(self._looked, self._fork.common, mark.upto) + 1
            if first > self._source_head.version:
                return self._merged(head)
            if not self._at_once:  # a branch records its fork point
                self._check_parted()
            commits = self._commits.commits
            try:
                self._round(head, origin, mark, first)
                tries = 0
            except _Overtaken as overtaken:
                began = self._commits.commits > commits
                # against refusal-taken-for-a-race
                if not began and self._target.refresh().version == head.version:
                    raise overtaken.conflict from None
                tries = 1 if began else tries + 1
                if tries > TRIES:
                    raise CommitConflict(
                        f"{self._target.uri} was changed by others at each of {TRIES} tries to "
                        "merge into it: merge again when fewer write to it",
                        table=self._target.uri,
                        version=overtaken.conflict.version,
                    ) from overtaken.conflict
                self._target.clock.sleep(0.01 * tries * self._target.clock.random_fraction())

    def _check_parted(self) -> None:
        """Check that the target's first own commit is the one that its next commit names.

        With a commit of another log in its place, the fork point would be found too late. The
        source's commits are all compared when they are read.

        Raises:
            Corrupt: it is another commit.
        """
        own = self._fork.common + 1
        # against commit-of-another-log-where-they-parted
        if (
            self._fork.own is not None
            and self._target_commits.steps(own, own)[0].commit != self._fork.own
        ):
            raise chain.forked(own + 1, self._target.uri)

    def _round(self, head: Snapshot, origin: str, mark: OriginMark, first: int) -> None:
        """Carry the source's commits from the version `first` on to this head of the target.

        Raises:
            CommitConflict: both changed the same thing, and `take` is None.
            DataLoss: a segment of the source is missing.
            VersionVacuumed: segments that are needed were deleted by a vacuum.
            _Overtaken: a concurrent commit invalidated the plan: plan again.
        """
        rule = head.merge_rule
        self._ties = None if rule is None else ties_of(rule)
        steps = self._source_commits.steps(first, self._source_head.version)
        pair = self._marks.pair(head, mark, steps, keyed=self._ties is not None)
        self._forked = pair.forked
        above = self._ties == "repeat" and pair.is_upper
        # Rows that were corrected before a check was added need not meet it, nor any a dropped one.
        tested = self._commits.tests.are_needed(head, steps)  # against corrected-rows-stop-a-merge
        self._in_one = self._at_once or self._ties == "refuse" or above or tested
        needed = self._needs_past(pair, head, steps)
        compares = needed or not pair.alone or _brings_back(steps)
        parts = self._inputs.parts(self._source_head, head) if compares else SegmentParts()
        self._copies.parts = parts
        steps = log_acts.steps_in_parts(steps, parts)
        plan = self._plan(pair, head, steps, needs_past=needed)
        planned = plan.transactions
        why: _Why | None = plan.conflict
        if why is None and compares:
            sides = self._sides(head)
            keyed = self._ties is not None
            why = objection(*sides, planned, alone=pair.alone, keyed=keyed)
        if why is None and not self._has_all(planned, steps):
            why = self._loss()
        union = None if why is None else self._union(head, why)
        if union is not None:
            planned = []  # against part-carried-before-a-choice
        if self._dry_run:
            self._note_only(planned, union)
            return
        if planned:
            if self._in_one:
                planned = [reduce(Carried.then, planned)]
            alone = pair.own is None
            self._try(lambda: self._commits.commit_all(planned, head, mark, alone=alone))
            if why is None and self._copies.gone is not None:
                why = self._loss()
            union = None if why is None else self._union(self._target.refresh(), why)
        if why is not None and union is not None:
            self._unite(union, origin, why)
        self._looked = self._source_head.version

    def _sides(self, head: Snapshot) -> tuple[Side, Side]:
        """Return the source and this head of the target, as a union compares them."""
        source, target = self._inputs.sides(self._source_head, head, self._copies.parts)
        return replace(source, forked=self._forked), target

    def _has_all(self, planned: Sequence[Carried], steps: Sequence[AppliedStep]) -> bool:
        """Return whether the segments that the target needs in the end exist; copy these first.

        Segments that the source has dropped may be gone. The target still needs them if it cannot
        drop them as well.
        """
        gone: set[str] = set()
        for act in (act for step in steps for act in step.acts):
            gone.update(drop.id for drop in act.drops)
            gone.difference_update(s.id for s in act.adds)
        doubtful: dict[str, tuple[Segment, tuple[ObjectPlace, ...]]] = {}
        for carried in planned:
            for name, _ in carried.drops:
                doubtful.pop(name, None)
            for entry in carried.adds:
                if entry.id in gone or entry.id in carried.copies:
                    places = carried.copies.get(entry.id) or (object_place(entry),)
                    doubtful[entry.id] = entry, places
        self._copies.gone = None
        if self._dry_run:
            for entry, places in doubtful.values():
                if not any(map(self._copies.is_there, places)):
                    self._copies.gone = (entry, places[0].key)
        elif not self._in_one:  # else all segments are copied before the one commit
            forms = [entry for entry, _ in doubtful.values()]
            return self._copies.copy_early(forms, [i for c in planned for i, _ in c.drops])
        return self._copies.gone is None

    @staticmethod
    def _try(commit: Callable[[], object]) -> None:
        try:
            commit()
        except CommitConflict as conflicting:
            raise _Overtaken(conflicting) from None

    def _note_only(self, planned: Sequence[Carried], union: Union | None) -> None:
        """Note what a merge would commit, without committing it."""
        if union is not None:
            self._done.left_out = union.left_out
            planned = [] if union.carried is None else [union.carried]
        self._done.transactions += sum(carried.transactions for carried in planned)
        self._looked = self._source_head.version

    def _unite(self, union: Union, origin: str, why: _Why) -> None:
        """Unite the target with the source by their states.

        Args:
            union: the planned union, on the head of the target's session.
            origin: the hash of the source's first commit after the fork point.
            why: why transactions cannot be carried one by one.

        Raises:
            CommitConflict: both changed the same thing, and `take` is None.
            DataLoss: a segment of the source is missing.
            VersionVacuumed: segments that are needed were deleted by a vacuum.
            _Overtaken: a concurrent commit invalidated the plan: plan again.
        """
        while union.room > 0:  # the slices need as many versions as they span at the source
            for _ in range(union.room):
                self._try(self._commits.make_room)
            union = self._union(self._target.refresh(), why)
        self._done.left_out = union.left_out
        carried, head = union.carried, self._target.head()
        if carried is None:
            return
        if not self._copies.copy(carried):
            raise self._loss()
        mark = self._marks.of(head, origin)
        self._try(lambda: self._commits.commit_union(carried, head, mark))

    def _union(self, head: Snapshot, why: _Why) -> Union:
        self._copies.parts = self._inputs.parts(self._source_head, head)
        source, target = self._sides(head)
        try:
            return unite(
                source,
                target,
                common=self._fork.common,
                upper=self._fork.own is not None and self._fork.own > (self._fork.origin or ""),
                take=self._take,
                ties=self._ties,
                renamed=lambda name, why: self._moved(name, head.version, why),
            )
        except MergeConflict as found:
            if isinstance(why, MergeConflict):
                raise self._advice.refusal(
                    _told(why, found), began=self._commits.commits > 0
                ) from None
            raise why from None

    def _needs_past(self, pair: Pair, head: Snapshot, steps: Sequence[AppliedStep]) -> bool:
        """Return whether the planner needs what both logs did before."""
        live = live_segments(head, steps, None, SegmentParts()) if self._ties is None else ()
        return needs_past(pair, head.meta, steps, live=live, ties=self._ties)

    def _plan(
        self, pair: Pair, head: Snapshot, steps: Sequence[AppliedStep], *, needs_past: bool
    ) -> MergePlan:
        """Return what to commit for these commits of the source, in parts, up to a conflict."""
        ties, parts = self._ties, self._copies.parts
        past = None
        if needs_past:
            past = self._inputs.divergence(self._source_head, head, steps, parts)
        live = live_segments(head, steps, past, parts) if ties is None else ()
        past = Divergence.unread(steps) if past is None else past
        planner: TablePlanner
        if ties is None:
            planner = Planner(pair, head.meta, live, past)
        else:
            chunks = overwritten_chunks(head, steps)
            planner = KeyedPlanner(pair, head.meta, chunks, past, ties=ties, renamed=self._renamed)
        plan = plan_merge(planner, steps)
        self._done.skipped.update(plan.skipped)
        self._done.declined.update(plan.declined)
        return plan

    def _renamed(self, segment_id: str) -> str:
        """Return the id of the segment that repeats another segment, the same at each try."""
        if segment_id not in self._again:
            self._again[segment_id] = again(self._target.clock.random_id(), segment_id)
        return self._again[segment_id]

    def _moved(self, segment_id: str, version: int, why: str) -> str:
        """Return the id of a segment that is added at another place, the same at each try."""
        name = f"{segment_id} {why} after {version}"
        return self._again.setdefault(name, again(self._target.clock.random_id(), segment_id))

    def _loss(self) -> DataLoss | VersionVacuumed:
        gone = self._copies.gone
        assert gone is not None  # noqa: S101 - only then
        return self._advice.loss(gone, repeated=gone[0].id in self._again.values())

    def _merged(self, head: Snapshot) -> Merged:
        done, nothing = self._done, not (self._commits.commits or self._dry_run)
        differing: tuple[str, ...] = ()
        if nothing and self._fork.origin is not None:
            differing = self._inputs.left_differing(self._source_head, head)
        return Merged(
            self._source.uri,
            self._target.uri,
            self._fork.common,
            self._source_head.version,
            head.version,
            self._commits.commits,
            self._commits.transactions + done.transactions,
            sum(done.skipped.values()),
            sum(done.declined.values()),
            self._copies.segments,
            self._copies.bytes,
            done.left_out,
            differing=differing,
        )


def _brings_back(steps: Sequence[AppliedStep]) -> bool:
    """Return whether commits have rows of other logs, or of earlier versions."""
    return any(act.carried or act.restores for step in steps for act in step.acts)


def _told(replayed: MergeConflict, united: MergeConflict) -> MergeConflict:
    """Return the conflict to report: that of the commits, if it names a version of the target.

    One that not every choice resolves comes first.
    """
    decided = united.changes or united.whole  # against choice-named-that-does-not-resolve-it
    if decided or replayed.ours is None:
        return united
    replayed.chunks = united.chunks
    return replayed
