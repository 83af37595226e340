"""Which steps lead from one version of a table to another: reads the log, no segment.

Imports eventlog and readers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.errors import InvalidInput
from eventlog.inline.inline_objects import remember_read
from eventlog.keyed.rule import MergeRule, reader_rule
from eventlog.keyed.slice_pruning import prune_runs
from eventlog.log import chain
from eventlog.log.diff import Diff, diff
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.entries import Correction, Schema, Segment
from eventlog.model.records import Commit
from eventlog.query.predicate import Predicate, Where
from eventlog.readers.changefeed import change_steps
from eventlog.readers.changefeed.change_steps import Appended, Exchanged, Step, Written
from eventlog.readers.changefeed.images import COLUMNS
from eventlog.state import scan
from eventlog.state.appends import Appends, PairedUpdate
from eventlog.state.small.timing import effective_time
from eventlog.state.version import VersionState
from eventlog.store.parallel import each


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The plan of a read of the changes between two versions.

    Attributes:
        start: the version before the first change.
        end: the last version.
        columns: the Arrow schema of the table's columns in the result.
        table: the table's columns at `end`.
        table_schema: the Arrow schema of the table at `end`, which the filter refers to.
        predicate: the row filter, or None.
        rule: the merge rule of a keyed table; None for others.
        steps: the parts to read, in order.
        times: the time of each version in which rows changed, in ms UTC.
    """

    start: int
    end: int
    columns: pa.Schema
    table: Schema
    table_schema: pa.Schema
    predicate: Predicate | None
    rule: MergeRule | None
    steps: tuple[Step, ...]
    times: Mapping[int, int]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return pa.schema([*self.columns, *COLUMNS])

    def segments(self) -> list[Segment]:
        """Return the segments to read, each once."""
        every = (s for step in self.steps for s in change_steps.segments_to_read(step))
        return list({s.id: s for s in every}.values())


def read_versions(t: Table, start: Snapshot, end: int) -> Iterator[Appends]:
    """Yield the changes of the versions after `start`, up to `end`. One GET for each of them.

    The rows that stand in these commits are kept for who reads them next.

    Raises:
        Corrupt: a commit breaks the format, or does not follow the one before it.
        Unavailable: the store does not answer.
    """
    last: tuple[Commit, bytes] | None = None
    for commit, body in each(t.session.log.read_below, range(start.version + 1, end + 1)):
        if last is None:
            chain.check_follows(start, commit, t.uri)
        else:
            chain.check_later(*last, commit, t.uri)
        last = commit, body
        remember_read(commit)
        yield t.session.log.appends(commit)


def change_question(
    state: VersionState,
    columns: Sequence[str] | None,
    where: Where | None,
    overflow: str = "error",
) -> scan.ScanQuestion:
    """Return which columns and rows are wanted, by the schema of a version.

    Args:
        state: the version.
        columns: see `changes`.
        where: likewise.
        overflow: likewise.

    Raises:
        InvalidInput: a column is unknown, named twice or has a name of the result's own; or the
            predicate is invalid.
        Corrupt: the table has no schema or no layout, or a merge rule that does not fit them.
    """
    asked = scan.question(state, columns, where)
    # Spark takes names for the same that differ in capitals only.
    taken = [name for name in asked.schema.names if name.lower() in COLUMNS.names]
    if taken:
        raise InvalidInput(
            f"changes add a column {taken[0].lower()!r}, and the table already has "
            f"{taken[0]!r}: leave it out with `columns`"
        )
    return replace(asked, rule=reader_rule(asked.rule, overflow))


def plan_changes(  # noqa: PLR0917 - what a range of versions is read from
    start: int,
    end: int,
    versions: Iterable[Appends],
    at: Callable[[int], Snapshot],
    asked: scan.ScanQuestion,
    clock: Sequence[Correction],
) -> ChangePlan:
    """Return the plan of a read of the changes after `start` up to `end`.

    Args:
        start: the version before the first change; -1: the table did not exist.
        end: the last version.
        versions: the changes of the versions after `start`, up to `end`.
        at: returns the snapshot of a version. Asked for where keys were written, where rows were
            taken away or brought back, and where slices were merged.
        asked: what `change_question` returned.
        clock: the newest known corrections of the clock.

    Raises:
        Corrupt: neither a key frame nor the commits before it give the entries.
    """
    work = _Planner(start, at, asked)
    times = {}
    for version in versions:
        work.take(version)
        if version.segments or version.rebased or version.change is not None:
            times[version.version] = effective_time(clock, version.version, version.time)
    work.finish()
    return ChangePlan(
        start=start,
        end=end,
        columns=asked.schema,
        table=asked.columns,
        table_schema=asked.table_schema,
        predicate=asked.predicate,
        rule=asked.rule,
        steps=tuple(work.found),
        times=times,
    )


def plan_of_snapshot(
    snapshot: Snapshot, asked: scan.ScanQuestion, clock: Sequence[Correction]
) -> ChangePlan:
    """Return the plan of a read of all rows of a version, as rows that it inserted.

    Args:
        snapshot: the version.
        asked: what `change_question` returned.
        clock: the newest known corrections of the clock.

    Raises:
        Corrupt: neither a key frame nor the commits before it give the entries.
    """
    planned = snapshot.log.answer(snapshot.state, asked)[1]
    if asked.rule is None:
        return plan_of_segments(snapshot, planned.in_scan_order(), asked, clock)
    return _appeared(snapshot, change_steps.appeared(snapshot.version, planned.runs), asked, clock)


def plan_of_segments(
    snapshot: Snapshot,
    segments: Sequence[Segment],
    asked: scan.ScanQuestion,
    clock: Sequence[Correction],
) -> ChangePlan:
    """Return the same of some segments of a table without a key.

    Args:
        snapshot: the version.
        segments: the segments.
        asked: what `change_question` returned.
        clock: the newest known corrections of the clock.
    """
    return _appeared(snapshot, Exchanged(snapshot.version, (), tuple(segments)), asked, clock)


def _appeared(
    snapshot: Snapshot, step: Step, asked: scan.ScanQuestion, clock: Sequence[Correction]
) -> ChangePlan:
    return ChangePlan(
        start=snapshot.version,
        end=snapshot.version,
        columns=asked.schema,
        table=asked.columns,
        table_schema=asked.table_schema,
        predicate=asked.predicate,
        rule=asked.rule,
        steps=(step,),
        times={snapshot.version: effective_time(clock, snapshot.version, snapshot.header.time)},
    )


@dataclass
class _Planner:
    """Makes steps of versions.

    Attributes:
        base: the version that the waiting segments come after; -1: an empty table.
        at: returns the snapshot of a version.
        question: which columns and rows are wanted.
        waiting: segments that were added since `base`.
        found: the steps.
    """

    base: int
    at: Callable[[int], Snapshot]
    question: scan.ScanQuestion
    waiting: list[Segment] = field(default_factory=list)
    found: list[Step] = field(default_factory=list)

    def take(self, version: Appends) -> None:
        """Take in the next version."""
        if version.change is not None:
            self.finish()
            before, after = self.at(version.version - 1), self.at(version.version)
            self._replaced(before, after, version.updates)
            self.base = version.version
            return
        self.waiting += [s for s in version.segments if self._in_time(s)]
        rule = self.question.rule
        if version.rebased and rule is not None and rule.ordered_deletes:
            # Bases may have forgotten tombstones: later rows are merged with these bases.
            self.finish()
            self._forgotten(version)
        if not self.waiting:  # its rows are those of the version before, which may be vacuumed
            self.base = version.version

    def finish(self) -> None:
        """Make a step of the waiting segments."""
        logs, self.waiting = self.waiting, []
        if not logs:
            return
        rule, predicate = self.question.rule, self.question.predicate
        if rule is None:
            kept = {s.id for s in self.question.of(logs, self.base).segments()}
            self.found.append(Appended(tuple(s for s in logs if s.id in kept)))
            return
        chunks = sorted({s.chunk for s in logs})
        live = self.at(self.base).segments(chunks=chunks) if self.base >= 0 else []
        step = change_steps.written(self.base, live, logs, rule)
        kept_runs = prune_runs(step.runs, predicate, rule, self.question.time_column)
        self.found.append(Written(step.after, tuple(run for run in kept_runs if run.segments)))

    def _forgotten(self, version: Appends) -> None:
        bases = [base for base in version.rebased if self._in_time(base)]
        if not bases:
            return
        chunks = sorted({base.chunk for base in bases})
        after = self.at(version.version).segments(chunks=chunks)
        bases = [base for base in bases if change_steps.has_logs_above(base, after)]
        rule = self.question.rule
        if bases and rule is not None:
            before = self.at(version.version - 1).segments(chunks=chunks)
            # Segments that others added in the same commit are in a step already.
            before += [s for s in version.segments if s.chunk in chunks]
            self.found += change_steps.forgotten(version.version, bases, before, after, rule)

    def _replaced(self, before: Snapshot, after: Snapshot, updates: Iterable[PairedUpdate]) -> None:
        between = diff(before, after)
        rule = self.question.rule
        if rule is None:
            for update in updates:
                between = self._updated(after.version, between, update)
        dropped = [s for s in between.dropped if self._in_time(s)]
        added = [s for s in between.added if self._in_time(s)]
        if rule is None:
            time = self.question.time_column
            timed = time is not None and time.name in self.question.schema.names
            self.found += change_steps.exchange_steps(after.version, dropped, added, timed=timed)
        elif chunks := sorted({s.chunk for s in (*dropped, *added)}):
            old, new = before.segments(chunks=chunks), after.segments(chunks=chunks)
            self.found.append(change_steps.replaced(after.version, old, new, rule))

    def _updated(self, version: int, between: Diff, update: PairedUpdate) -> Diff:
        """Make steps of a paired update, and return what else the version changed."""
        made = {segment.id for segment in update.segments}
        old = [s for s in between.dropped if s.id in update.touched]
        left = [s for s in between.added if s.id in update.touched]
        new = [s for s in between.added if s.id in made]
        for step in change_steps.update_steps(version, old, left, new):
            # against pairs-cut-by-time
            if any(self._in_time(segment) for segment in (*step.old, *step.new)):
                self.found.append(step)
        return Diff(
            added=[s for s in between.added if s.id not in made | update.touched],
            dropped=[s for s in between.dropped if s.id not in update.touched],
        )

    def _in_time(self, segment: Segment) -> bool:
        start, end = self.question.start, self.question.end
        return parse_chunk(segment.chunk).overlaps(
            MIN_MS if start is None else start, MAX_MS if end is None else end
        )
