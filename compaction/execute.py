"""Performs one task of compaction, from claim to commit. Idempotent.

Imports eventlog and rewriting only. The commit's transaction has the task's id, so a task that is
delivered twice, to any processes, finds the earlier commit (hazard I4). Nothing is ever deleted
here: vacuum removes the segments that a failed attempt staged (hazard C7).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from math import inf
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from eventlog import Ms, Table
from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import ClaimLost, CommitConflict, EventLogError
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed.rule import buckets_split
from eventlog.keyed.slice_changes import inputs_problem
from eventlog.keyed.slices import ineffective
from eventlog.log.history import find_transaction
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, Drop, Merge, Release, Replace
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.model.records import Transaction
from eventlog.rewriting.rewrite import Progress, Pulse, Rewritten, rewrite
from eventlog.rewriting.slice_merge import (
    Buckets,
    MergedSlices,
    SliceMerge,
    droppable,
    merge_slices,
)
from eventlog.rewriting.translation import Rewriting, translate
from eventlog.session.writer_name import writer_name
from eventlog.state.delta import drop_of
from eventlog.store.parallel import each
from eventlog.table.leases import RENEW_S, Lease
from eventlog.table.stage_again import commit_staged
from eventlog.telemetry.signals import traced

Status = Literal["done", "superseded", "claimed", "failed", "out of time"]
_MAX_REASON = 500
_MOST_TRANSLATIONS = 100  # each follows a delete that others committed meanwhile

logger = logging.getLogger(__name__)


class Outcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a task. Passed between processes as JSON.

    Attributes:
        task: the task's id.
        status: `done`: the replacement is in the log. `superseded`: its inputs were already
            replaced, so there is nothing to do. `claimed`: a conflicting claim is held by a process
            that may be alive. `failed`: see `error`. `out of time`: it stopped at its deadline.
            Unless it is done, nothing of this attempt is visible; after a CommitUnknown (`failed`)
            the commit may still land, and the next attempt then reports it done.
        version: the version that contains the replacement, if it is done.
        passed: number of other commits between this attempt's last read of the head and its own
            commit; None if this attempt committed nothing.
        rows: number of rows rewritten by this attempt; 0 if another attempt had done it.
        bytes_in: size of the inputs.
        bytes_out: size of the segments that this attempt made.
        segments_in: number of inputs.
        made: ids of the segments that this attempt made.
        seconds: how long it took.
        error: why it is not done, as text.
    """

    task: str
    status: Status
    version: int | None = None
    passed: int | None = None
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    segments_in: int = 0
    made: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str | None = None

    @property
    def segments_out(self) -> int:
        """Number of segments that this attempt made."""
        return len(self.made)

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do for this task."""
        return self.status in ("done", "superseded")


class _OutOfTime(Exception):
    """The deadline has passed."""


def _facts(outcome: Outcome) -> dict[str, int | str | None]:
    """Return the attributes of a task's span."""
    names = ("task", "status", "version", "rows", "bytes_in", "bytes_out", "segments_in")
    return {name: getattr(outcome, name) for name in (*names, "segments_out")}


@traced("eventlog.compaction.task", _facts)
def perform(
    t: Table,
    task: Task,
    policy: Policy,
    *,
    progress: Progress | None = None,
    deadline_s: float | None = None,
) -> Outcome:
    """Rewrite a task's inputs and commit the replacement. Takes effect once, even if repeated.

    A task with inputs of at least `policy.claim_bytes` takes an exclusive claim on them; a task
    that changes the granularity takes one on the whole range of its chunks. All attempts at one
    task share the claim. It ends with the attempt that took it, or with the one that commits. A
    conflicting claim whose holder is presumed dead is broken first
    (`eventlog.table.leases.is_silent`); what this handle observed in earlier calls counts as well.
    Segments added to the chunks meanwhile stay beside the new ones. Rows of the inputs that are
    deleted meanwhile are deleted in the new segments, too, which then have deletion vectors.

    Args:
        t: the table.
        task: a task made by `eventlog.compaction.plan`.
        policy: sizes, sort order, memory, and which tasks need a claim.
        progress: see `eventlog.rewriting.rewrite.rewrite`.
        deadline_s: seconds from now after which it stops, unless it is committing.

    Returns:
        The outcome. Errors of any kind are part of it, not raised.
    """
    attempt = _Attempt(t, task, policy, deadline_s)
    try:
        outcome = attempt.run(lambda now, pulse: _work(t, now, policy, progress, pulse))
    except _OutOfTime:
        outcome = attempt.outcome("out of time", error=f"it was given {deadline_s} s")
    # against outcome-of-foreseen-errors-only
    except Exception as error:  # no error of one task may stop the others
        outcome = attempt.judged(error)
        if outcome.status == "failed" and not isinstance(error, EventLogError):
            logger.exception("task %s", task.id)
    if not outcome.ok:
        logger.warning("task %s: %s: %s", task.id, outcome.status, outcome.error)
    return outcome


def _work(
    t: Table, task: Task, policy: Policy, progress: Progress | None, pulse: Pulse
) -> Rewritten | MergedSlices:
    """Stage the segments that replace the task's inputs."""
    if task.buckets is not None:
        merge = SliceMerge(task.version, task.chunks[0], task.inputs, task.buckets)
        return merge_slices(t, merge, policy.sizes, pulse, progress)
    return rewrite(
        t,
        task.inputs,
        task.granularity,
        policy.sizes,
        sort_by=policy.sort_by,
        progress=progress,
        pulse=pulse,
    )


def needs_claim(task: Task, policy: Policy) -> bool:
    """Return whether a task is large enough to need a claim, or changes the granularity."""
    return task.bytes >= policy.claim_bytes or cuts_anew(task)


def cuts_anew(task: Task) -> bool:
    """Return whether a task makes segments of another granularity than some of its inputs."""
    cuts = {parse_chunk(name).granularity for name in {s.chunk for s in task.inputs}}
    return cuts != {task.granularity}


def replacement(
    t: Table, task: Task, made: Rewritten | MergedSlices, lease: Lease | None
) -> Transaction:
    """Return the transaction that replaces the inputs with the new segments.

    The transaction releases the claim that it runs under.
    """
    actions: list[Action]
    if isinstance(made, MergedSlices):
        # Inputs that other slices still need stay; the merge of the last such slice drops them.
        drops = droppable(made, _live_in(t, task.chunks[0]), t.session.head())
        actions = [made.merge, *(drop_of(s) for s in drops), *made.adds]
    else:
        # against rewrite-that-does-not-say-so
        actions = [Replace(version=task.version, deletes=0)]
        # against drops-read-again-at-the-commit
        actions += [drop_of(segment) for segment in task.inputs]
        actions += made.adds
    if lease is not None:  # against claim-not-given-up
        actions.append(Release(lease.token.id, lease.token.token))
    formed = t.transaction(
        "compact",
        actions,
        read_version=task.version,
        claim=None if lease is None else lease.token,  # against claim-not-carried
        info={"reason": task.reason[:_MAX_REASON]},
    )
    return replace(formed, id=task.id)  # against task-under-a-fresh-id


def _live_in(t: Table, chunk: str) -> list[Segment]:
    """Return the live segments of a chunk at the newest version that the handle has read."""
    bounds = parse_chunk(chunk)
    entries = to_segments(t.session.head().entries(bounds.start, bounds.end))
    return [segment for segment in entries if segment.chunk == chunk]


def _drop_taken_in(t: Table, chunk: str) -> None:
    """Drop segments that count in no slice any more: each of two concurrent merges left them."""
    left = ineffective(_live_in(t, chunk), buckets_split(t.session.head().layout))
    if left:
        with suppress(CommitConflict):  # another did it
            t.commit(t.transaction("compact", [drop_of(segment) for segment in left]))


class _Attempt:
    """One attempt at one task."""

    def __init__(self, t: Table, task: Task, policy: Policy, deadline_s: float | None) -> None:
        self._t, self._task, self._policy = t, task, policy
        self._started_s = t.clock.elapsed_s()
        self._renewed_s = self._started_s
        self._deadline_s = inf if deadline_s is None else self._started_s + deadline_s
        self._lease: Lease | None = None
        # Segments that rewrites dropped since the inputs were read, up to a version.
        self._rewritten, self._looked_at = set[str](), task.version
        self._drops = [drop_of(segment) for segment in task.inputs]
        self._answered: tuple[Snapshot, Mapping[str, Segment]] | None = None

    def run(self, work: Callable[[Task, Pulse], Rewritten | MergedSlices]) -> Outcome:
        """Do the rest of the task."""
        t, task = self._t, self._task
        if not task.inputs:
            return self.outcome("superseded", error="it has no inputs")
        known = self._already_ended(t.refresh())
        if known is not None:
            return known
        with ExitStack() as stack:
            if needs_claim(task, self._policy):  # against costly-task-without-a-claim
                claimed = self._claim()
                if isinstance(claimed, Outcome):
                    return claimed
                self._lease = stack.enter_context(claimed)
                # An earlier holder of the claim may have done the work.
                known = self._already_ended(t.refresh())
                if known is not None:
                    return known
                # against taken-over-without-a-sign
                if claimed.joined:  # its first holder may be dead
                    self._renew()
            self._looked_at = t.session.head().version
            task = self._with_vectors(t.session.head())
            made = work(task, self._pulse)
            self._pulse()
            head = t.refresh()
            # against fenced-outputs-given-up
            t.session.log.staged.vouch(made.adds)
            version, made = self._commit(task, made)
            if self._lease is not None:
                self._lease.forget()
        if task.buckets is not None:
            _drop_taken_in(t, task.chunks[0])
        return self.outcome(
            "done",
            version=version,
            passed=max(0, version - head.version - 1),
            rows=made.rows,
            bytes_out=made.bytes,
            made=tuple(add.id for add in made.adds),
        )

    def _with_vectors(self, head: Snapshot) -> Task:
        """Return the task with its inputs as they are in `head`: rows of theirs may be deleted.

        Inputs that are not live are left out. The task of a keyed table stays as it is: its
        segments have no deletion vectors.
        """
        if self._task.buckets is not None:
            return self._task
        live = self._live(head)
        gone = {segment.id for segment in self._gone(head)}
        inputs = tuple(live[s.id] for s in self._task.inputs if s.id not in gone)
        return replace(self._task, inputs=inputs)

    def _commit(
        self, read: Task, made: Rewritten | MergedSlices
    ) -> tuple[int, Rewritten | MergedSlices]:
        """Commit the outputs; with deletes that landed while they were made, or are committed.

        Args:
            read: the task with its inputs as they were read.
            made: the outputs.

        Returns:
            The version, and the outputs that it has.

        Raises:
            CommitConflict: no input is left, one was replaced, or rows are deleted all the time.
        """
        t = self._t
        if isinstance(made, MergedSlices):
            return commit_staged(t.session, replacement(t, read, made, self._lease)), made
        rewriting = Rewriting(
            inputs=read.inputs,
            schema=made.schema,
            layout=made.layout,
            by=made.by,
            adds=made.adds,
            memory_bytes=self._policy.memory_bytes,
        )
        for attempt in range(_MOST_TRANSLATIONS):
            now = self._left(read, t.session.head())
            if now.inputs != read.inputs:  # against deletes-while-compacting-lost
                adds = translate(t, rewriting, now.inputs)
                made = dataclasses.replace(made, adds=adds, bytes=sum(add.bytes for add in adds))
                t.session.log.staged.vouch(made.adds)
            try:
                return commit_staged(t.session, replacement(t, now, made, self._lease)), made
            except CommitConflict:
                if self._left(read, t.session.head()) == now or attempt == _MOST_TRANSLATIONS - 1:
                    raise
        raise AssertionError("unreachable")  # the last attempt returns or raises

    def _left(self, read: Task, head: Snapshot) -> Task:
        """Return the task with the inputs that are left of those that were read.

        Where a delete or an overwrite dropped an input, its rows are gone as others are. It is the
        task as it was read, whose commit is void, if none is left or if another rewrite took one:
        then the rows are elsewhere, and so is the gain.
        """
        now = self._with_vectors(head)
        gone = {segment.id for segment in self._gone(head)}
        if gone and (not now.inputs or self._any_rewritten(gone, head)):
            return read
        return now

    def _any_rewritten(self, gone: set[str], head: Snapshot) -> bool:
        """Return whether a rewrite dropped one of these segments since the inputs were read.

        Each commit is read once, since others land while this reads.
        """
        log = self._t.session.log
        for commit, _ in each(log.read, range(self._looked_at + 1, head.version + 1)):
            for transaction in log.taken(commit):
                if any(isinstance(a, Replace) for a in transaction.actions):
                    dropped = (a.id for a in transaction.actions if isinstance(a, Drop))
                    self._rewritten.update(dropped)
        self._looked_at = max(head.version, self._looked_at)  # against commits-read-in-each-round
        # against inputs-of-another-rewrite-taken-for-deleted
        return not gone.isdisjoint(self._rewritten)

    def _gone(self, head: Snapshot) -> list[Segment]:
        """Return the inputs that are no longer live.

        A segment that a restore brought back has the same id but another version, and counts as
        another segment. One of which rows were deleted is still the same.
        """
        versions = {name: segment.version for name, segment in self._live(head).items()}
        # against segment-that-came-back-taken-for-the-old
        return [s for s in self._task.inputs if versions.get(s.id) != s.version]

    def _live(self, head: Snapshot) -> Mapping[str, Segment]:
        """Return the inputs that are live in `head`, by id; asked once for each snapshot."""
        if self._answered is None or self._answered[0] is not head:
            self._answered = head, head.live(self._drops)
        return self._answered[1]

    def judged(self, error: Exception) -> Outcome:
        """Return the outcome of a failure; another attempt or task may have done the work."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, EventLogError):
            try:
                known = self._already_ended(self._t.refresh())
            except EventLogError as problem:
                text += f"; and the table could not be read: {problem}"
            else:
                if known is not None:
                    return known
        return self.outcome("failed", error=text)

    def outcome(self, status: Status, **facts: object) -> Outcome:
        """Return an outcome with the common fields filled in."""
        task = self._task
        outcome = Outcome(
            task=task.id,
            status=status,
            bytes_in=task.bytes,
            segments_in=len(task.inputs),
            seconds=round(self._t.clock.elapsed_s() - self._started_s, 3),
        )
        return replace(outcome, **facts)

    def _already_ended(self, head: Snapshot) -> Outcome | None:
        """Return the outcome if inputs are no longer live; None if all are live."""
        task = self._task
        if task.buckets is not None:
            return self._already_merged(head, task.buckets)
        gone = self._gone(head)
        if not gone:  # against done-task-not-found
            return None
        version = find_transaction(self._t.session.log, task.id, task.version + 1, head.version)
        if version is not None:
            return self.outcome("done", version=version)
        why = f"{len(gone)} of {len(task.inputs)} inputs are no longer live, such as {gone[0].id}"
        return self.outcome("superseded", error=f"{why} of chunk {gone[0].chunk}")

    def _already_merged(self, head: Snapshot, at: Buckets) -> Outcome | None:
        """Return the outcome if the inputs no longer count in their slices; None if they do."""
        task, chunk = self._task, self._task.chunks[0]
        bounds = parse_chunk(chunk)
        entries = to_segments(head.entries(bounds.start, bounds.end))
        live = {s.id: s for s in entries if s.chunk == chunk}
        inputs = tuple(sorted(s.id for s in task.inputs))
        merge = Merge(
            task.version, chunk, at.first, at.last, at.low, at.high, inputs, 0, 0,
            at.splits or UNSET,
        )  # fmt: skip
        why = inputs_problem(merge, list(live.values()), buckets_split(head.layout))
        # against restored-slice-taken-for-the-old
        if why is None and all(live.get(s.id) == s for s in task.inputs):
            return None
        version = find_transaction(self._t.session.log, task.id, task.version + 1, head.version)
        if version is not None:
            return self.outcome("done", version=version)
        return self.outcome("superseded", error=why or "its inputs were restored meanwhile")

    def _claim(self) -> Lease | Outcome:
        task = self._task
        chunks = [parse_chunk(name) for name in task.chunks]
        try:
            return self._t.claim(
                Ms(min(chunk.start for chunk in chunks)),
                Ms(max(chunk.end for chunk in chunks)),
                # Parts of one large chunk may be rewritten concurrently.
                segments=() if cuts_anew(task) else task.inputs,
                group=task.id,  # against each-delivery-a-claim-of-its-own
                owner=writer_name(),
                take_over=True,  # against dead-holder-not-broken
            )
        except CommitConflict as conflict:
            return self.outcome("claimed", error=conflict.message)
        except ClaimLost as lost:
            return self.outcome("claimed", error=lost.message)

    def _pulse(self) -> None:
        """Stop at the deadline; renew the claim now and then.

        Raises:
            ClaimLost: the claim was revoked or broken.
        """
        now_s = self._t.clock.elapsed_s()
        if now_s >= self._deadline_s:
            raise _OutOfTime
        if now_s - self._renewed_s >= RENEW_S:  # against claim-not-renewed
            self._renew()

    def _renew(self) -> None:
        if self._lease is not None:
            self._lease.renew()
            self._renewed_s = self._t.clock.elapsed_s()
