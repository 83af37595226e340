"""Performing one task of compaction, from claim to commit: one effect, however often it comes.

Imports eventlog and readers only. The commit's transaction has the task's id, so that a task that
is delivered twice, to whatever processes, finds its own trace (hazard I4). Nothing is ever deleted
here: what a failed attempt staged is vacuum's (hazard C7).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from eventlog import Ms, Table
from eventlog.compaction.policy import Policy
from eventlog.compaction.rewriting.rewrite import Progress, Rewritten, rewrite
from eventlog.compaction.tasks import Task
from eventlog.errors import ClaimLost, CommitConflict, EventLogError
from eventlog.log.history import find_transaction
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import Action, Release, Replace, Transaction
from eventlog.state.delta import drop_of
from eventlog.table.leases import RENEW_S, Lease
from eventlog.table.restage import commit_staged
from eventlog.table.writer import writer_name

Status = Literal["done", "superseded", "claimed", "failed", "out of time"]
_MAX_REASON = 500

logger = logging.getLogger(__name__)


class Outcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a task. Travels as JSON.

    Attributes:
        task: its id.
        status: `done`: the replacement is in the log. `superseded`: others replaced what it was to
            replace, so that there is nothing to do. `claimed`: a claim stands in the way whose
            holder may be alive. `failed`: see `error`. `out of time`: it stopped at its
            deadline. Unless it is done, nothing of this attempt is visible; after a CommitUnknown
            (`failed`) it may still land, and the next attempt then finds it done.
        version: the version that holds the replacement, if it is done.
        passed: commits of others that got in between this attempt's last look at the table and its
            own commit; None where this attempt committed nothing.
        rows: rewritten by this attempt; 0 where another had done it.
        bytes_in: size of the inputs.
        bytes_out: size of what this attempt made of them.
        segments_in: number of inputs.
        made: ids of the segments that this attempt made of them.
        seconds: what it took.
        error: why not, for people.
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
    """The deadline came."""


def perform(
    t: Table,
    task: Task,
    policy: Policy,
    *,
    progress: Progress | None = None,
    deadline_s: float | None = None,
) -> Outcome:
    """Rewrite a task's inputs and commit the replacement, once whoever else does the same.

    A task whose inputs are at least `policy.claim_bytes` takes an exclusive claim on them, one that
    changes the granularity on the whole range of its chunks. All attempts at one task share it, and
    it ends with the one that took it, or with the one that commits. A claim in the way whose holder
    is presumed dead is broken first (`eventlog.table.leases.is_silent`); what this handle saw in
    earlier calls counts for that. What arrives in the chunks meanwhile stays beside the new
    segments.

    Args:
        t: the table.
        task: what `eventlog.compaction.plan` made.
        policy: sizes, sort order, memory, what needs a claim.
        progress: see `eventlog.compaction.rewriting.rewrite.rewrite`.
        deadline_s: seconds from now after which it stops before its commit.

    Returns:
        What became of it. Errors of whatever kind are in there.
    """
    attempt = _Attempt(t, task, policy, deadline_s)
    try:
        outcome = attempt.run(
            lambda pulse: rewrite(t, task, policy, progress=progress, pulse=pulse)
        )
    except _OutOfTime:
        outcome = attempt.outcome("out of time", error=f"it was given {deadline_s} s")
    # against outcome-of-foreseen-errors-only
    except Exception as error:  # whatever one task meets, others must go on
        outcome = attempt.judged(error)
        if outcome.status == "failed" and not isinstance(error, EventLogError):
            logger.exception("task %s", task.id)
    if not outcome.ok:
        logger.warning("task %s: %s: %s", task.id, outcome.status, outcome.error)
    return outcome


def needs_claim(task: Task, policy: Policy) -> bool:
    """Say whether a task costs so much, or reaches so far, that it takes a claim."""
    return task.bytes >= policy.claim_bytes or cuts_anew(task)


def cuts_anew(task: Task) -> bool:
    """Say whether a task makes segments of another granularity than some of its inputs."""
    cuts = {parse_chunk(name).granularity for name in {s.chunk for s in task.inputs}}
    return cuts != {task.granularity}


def replacement(t: Table, task: Task, made: Rewritten, lease: Lease | None) -> Transaction:
    """Return the transaction that puts what was made in the place of the inputs.

    It releases the claim that it runs under.
    """
    # against rewrite-that-does-not-say-so
    actions: list[Action] = [Replace(version=task.version, deletes=0)]
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


class _Attempt:
    """One attempt at one task."""

    def __init__(self, t: Table, task: Task, policy: Policy, deadline_s: float | None) -> None:
        self._t, self._task, self._policy = t, task, policy
        self._started_s = t.clock.elapsed_s()
        self._renewed_s = self._started_s
        self._deadline_s = inf if deadline_s is None else self._started_s + deadline_s
        self._lease: Lease | None = None

    def run(self, work: Callable[[Callable[[], None]], Rewritten]) -> Outcome:
        """Do what is left to do of the task."""
        t, task = self._t, self._task
        if not task.inputs:
            return self.outcome("superseded", error="it has no inputs")
        known = self._settled(t.refresh())
        if known is not None:
            return known
        with ExitStack() as stack:
            if needs_claim(task, self._policy):  # against costly-task-without-a-claim
                claimed = self._claim()
                if isinstance(claimed, Outcome):
                    return claimed
                self._lease = stack.enter_context(claimed)
                # Whoever had it before may have done the work.
                known = self._settled(t.refresh())
                if known is not None:
                    return known
                # against taken-over-without-a-sign
                if claimed.joined:  # whoever took it may have been dead for long
                    self._renew()
            made = work(self._pulse)
            self._pulse()
            head = t.refresh()
            # against fenced-outputs-given-up
            version = commit_staged(t, replacement(t, task, made, self._lease))
            if self._lease is not None:
                self._lease.forget()
        return self.outcome(
            "done",
            version=version,
            passed=max(0, version - head.version - 1),
            rows=made.rows,
            bytes_out=made.bytes,
            made=tuple(add.id for add in made.adds),
        )

    def judged(self, error: Exception) -> Outcome:
        """Return what a failure means: also that another attempt, or another task, was faster."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, EventLogError):
            try:
                known = self._settled(self._t.refresh())
            except EventLogError as problem:
                text += f"; and the table could not be looked at: {problem}"
            else:
                if known is not None:
                    return known
        return self.outcome("failed", error=text)

    def outcome(self, status: Status, **facts: object) -> Outcome:
        """Return an outcome with what is the same in all of them."""
        task = self._task
        found = Outcome(
            task=task.id,
            status=status,
            bytes_in=task.bytes,
            segments_in=len(task.inputs),
            seconds=round(self._t.clock.elapsed_s() - self._started_s, 3),
        )
        return replace(found, **facts)

    def _settled(self, head: Snapshot) -> Outcome | None:
        """Return the outcome where the inputs are gone; None where all of them are live.

        A segment of the same id that came back in another version is another one (a restore).
        """
        task = self._task
        live = head.live([drop_of(segment) for segment in task.inputs])
        # against segment-that-came-back-taken-for-the-old
        gone = [s for s in task.inputs if live.get(s.id) != s]
        if not gone:  # against done-task-not-found
            return None
        version = find_transaction(self._t.log, task.id, task.version + 1, head.version)
        if version is not None:
            return self.outcome("done", version=version)
        why = f"{len(gone)} of {len(task.inputs)} inputs are no longer live, such as {gone[0].id}"
        return self.outcome("superseded", error=f"{why} of chunk {gone[0].chunk}")

    def _claim(self) -> Lease | Outcome:
        task = self._task
        chunks = [parse_chunk(name) for name in task.chunks]
        try:
            return self._t.claim(
                Ms(min(chunk.start for chunk in chunks)),
                Ms(max(chunk.end for chunk in chunks)),
                # Parts of one large chunk may be rewritten side by side.
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
        """Stop at the deadline; show now and then that the claim's holder is alive.

        Raises:
            ClaimLost: it was revoked or broken.
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
