"""Commits on the target what a merge has planned, with the guards that keep the plan true."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from eventlog.errors import VersionNotFound, VersionVacuumed
from eventlog.inline.inline_objects import remember_objects
from eventlog.log.snapshot import Snapshot
from eventlog.merging import log_acts
from eventlog.merging.log_acts import AppliedStep
from eventlog.merging.marks import OriginMark
from eventlog.merging.planning.carried import Carried
from eventlog.merging.segment_copies import SegmentCopies
from eventlog.model.actions import (
    Action,
    Add,
    Replace,
    Restore,
    SameSegments,
    SetOrigin,
    SetSchema,
    Unchanged,
)
from eventlog.model.chunks import parse_chunk
from eventlog.model.columns.named_checks import checks_of, same_check, untested
from eventlog.model.entries import Check, Schema, Segment
from eventlog.model.stats import live_stats
from eventlog.segments.checked_rows import stored_rows_tested
from eventlog.session.session import Session
from eventlog.state.delta import drop_of
from eventlog.state.fold import segment_of


class TargetCommits:
    """Commits planned transactions on the target of a merge.

    Args:
        source: the table to merge from.
        source_head: its version that is merged.
        target: the table to merge into.
        common: the last version that both share.
        copies: copies the segments that are added.

    Attributes:
        commits: number of versions that were committed.
        transactions: number of the source's transactions in them.
        tests: tests rows against checks that only one of the two has.
    """

    def __init__(
        self,
        source: Session,
        source_head: Snapshot,
        target: Session,
        common: int,
        copies: SegmentCopies,
    ) -> None:
        self._source, self._target, self._copies = source.uri, target, copies
        self.tests = RowTests(source, source_head, target, common)
        self.commits = self.transactions = 0

    def commit_all(
        self, planned: Sequence[Carried], head: Snapshot, mark: OriginMark, *, alone: bool
    ) -> None:
        """Commit what was planned on this head, in order, and note what is gone.

        If a vacuum of the source has deleted a segment, the transaction that adds it is committed
        together with the later one that replaced it, so that the segment is not needed.

        Args:
            planned: the transactions.
            head: the target's head on which they were planned.
            mark: how far the target has merged the source.
            alone: whether the target has no commits that the source lacks. Then it may follow the
                source during the merge, has everything, and records no origin.

        Raises:
            CommitConflict: others have changed what the plan depends on.
            DataLoss: a segment of the source is damaged.
        """
        pending: Carried | None = None
        old, self._copies.gone = mark.old, None
        unfollowed = [SameSegments(head.hash_sum())] if alone else []
        for carried in planned:
            pending = carried if pending is None else pending.then(carried)
            if self._copies.copy(pending):
                # against planned-on-another-head
                guards = [*(unfollowed if old is None else []), *_guards(pending, head)]
                self._commit(mark.name, pending, head.version, old, guards)
                old, pending = pending.version, None

    def commit_union(self, carried: Carried, head: Snapshot, mark: OriginMark) -> None:
        """Commit a union that was planned on this head.

        Raises:
            CommitConflict: others have changed what the plan depends on.
        """
        chunks = map(parse_chunk, sorted(carried.still))
        guards = [Unchanged(chunk.start, chunk.end) for chunk in chunks]
        self._commit(mark.name, carried, head.version, mark.old, guards)

    def make_room(self) -> None:
        """Commit a version that changes nothing.

        Raises:
            CommitConflict: the table was deleted, or another one is in its place.
        """
        self._target.commit(self._target.transaction("merge", [], info={"for": "slices"}))

    def _commit(
        self,
        name: str,
        carried: Carried,
        checked: int,
        old: int | None,
        guards: Sequence[Action],
    ) -> None:
        head = self._target.head()
        drops, forms = self._copies.new_forms(carried, head)
        named = {} if carried.commits.keys() == {carried.commit} else carried.commits
        origin = SetOrigin(
            name,
            old,
            carried.version,
            carried.commit,
            dict(carried.apps),
            checked,
            tuple(sorted((v, c) for c, v in named.items())) or UNSET,
        )
        adds = [self._copies.add_of(form) for form, _ in forms.values()]
        changes = (a.schema for a in carried.changes if isinstance(a, SetSchema))
        *_, schema = head.stored_schema, *changes
        # against statistics-of-columns-dropped-by-a-merge
        adds = [msgspec.structs.replace(add, stats=live_stats(add.stats, schema)) for add in adds]
        added = untested(schema, head.stored_schema)
        if checks_of(schema):
            gone = {segment.id for segment in drops}
            self.tests.check(head, schema, adds, gone)
            adds = [msgspec.structs.replace(add, tested=schema.id) for add in adds]
        rewrite = [] if carried.deletes is None else [Replace(head.version, carried.deletes)]
        actions: list[Action] = [
            *guards,
            *([SameSegments(head.hash_sum())] if added else []),
            origin,  # first: the others raise what it is compared with
            *(Restore(carried.version, dict(r) or UNSET, name) for r in carried.resets),
            *carried.changes,
            *rewrite,
            *map(drop_of, drops),
            *adds,
        ]
        info = {
            "from": self._source[:1000],
            log_acts.OPERATIONS: ", ".join(dict.fromkeys(carried.operations))[:200],
            log_acts.COUNT: str(carried.transactions),
            "version": str(carried.version),
        }
        if carried.united:
            info[log_acts.UNITED] = carried.united
        read = checked if carried.still else head.version
        read = read if carried.seen is None else carried.seen
        self._target.commit(
            self._target.transaction("merge", actions, read_version=read, info=info)
        )
        self._copies.note(forms)
        self.commits += 1
        self.transactions += carried.transactions


def _guards(carried: Carried, head: Snapshot) -> list[Action]:
    """Return the guards that keep others from changing segments after an order was decided.

    A transaction that only drops may drop a segment that is repeated: `unchanged` does not notice.
    """
    # against rows-repeated-that-were-dropped
    return [SameSegments(head.hash_sum())] if carried.still else []


class RowTests:
    """Tests rows against checks that one of two logs has, and the other one did not (R19.13).

    Args:
        source: the table to merge from.
        source_head: its version that is merged, whose rows meet its checks.
        target: the table to merge into.
        common: the last version that both share.
    """

    def __init__(
        self, source: Session, source_head: Snapshot, target: Session, common: int
    ) -> None:
        self._source, self._head, self._target = source, source_head, target
        self._common = common
        self._live: dict[str, Segment] | None = None

    def are_needed(self, head: Snapshot, steps: Sequence[AppliedStep]) -> bool:
        """Return whether a check came or went since the fork point, at the source or the target.

        Args:
            head: the target's head.
            steps: the commits of the source that are to be merged. One may bring a check which a
                later one drops.
        """
        actions = (a for step in steps for act in step.acts for a in act.transaction.actions)
        brought = any(isinstance(a, SetSchema) and checks_of(a.schema) for a in actions)
        ours, theirs = checks_of(head.stored_schema), checks_of(self._head.stored_schema)
        return brought or {*ours} != {*theirs} or bool(self._since_fork(head.stored_schema))

    def check(
        self, head: Snapshot, schema: Schema, adds: Sequence[Add], gone: Collection[str]
    ) -> None:
        """Check that the rows of the target meet its checks after a commit.

        Args:
            head: the target's head.
            schema: its schema after the commit.
            adds: the segments of the source that the commit adds, copied to the target.
            gone: the ids of the segments that it drops.

        Raises:
            DataLoss: a segment is missing or damaged.
            InvalidInput: a row breaks a check.
        """
        remember_objects(adds)  # of those that no commit of the target has yet
        new = [segment_of(add, head.version, 0) for add in adds]
        both = self._source.uri, self._target.uri
        self._check(head, schema, new, self._since_fork(schema), both)
        if added := untested(schema, head.stored_schema):
            kept = [segment for segment in head.segments() if segment.id not in gone]
            self._check(head, schema, kept, added, both[::-1])

    def _since_fork(self, schema: Schema) -> Sequence[Check]:
        """Return the checks that the source did not have all the time since the fork point."""
        checks = untested(schema, self._head.stored_schema)
        if len(checks) == len(checks_of(schema)):
            return checks
        try:
            before = self._source.snapshot(self._common).stored_schema
        except (VersionNotFound, VersionVacuumed):
            return checks_of(schema)
        return tuple(c for c in checks_of(schema) if c in checks or c not in checks_of(before))

    def _check(
        self,
        head: Snapshot,
        schema: Schema,
        segments: Sequence[Segment],
        checks: Sequence[Check],
        uris: tuple[str, str],
    ) -> None:
        """Check rows of the first root against checks of the second one."""
        if not (segments and checks):
            return
        met = [check for check in checks if self._meets(check, schema)]
        seen = [segment for segment in segments if self._was_tested(segment)] if met else []
        known = {segment.id for segment in seen}
        others = [segment for segment in segments if segment.id not in known]
        rest = [check for check in checks if check not in met]
        for some, by in ((others, checks), (seen, rest)):
            tested = stored_rows_tested(
                self._target.store,
                some,
                schema,
                by,
                version=head.version,
                keyed=head.merge_rule is not None,
            )
            uri, name = shlex.quote(uris[1]), shlex.quote(by[0].name) if by else ""
            # against merged-rows-never-tested
            tested.refuse(
                f"these are rows of {uris[0]}, and nothing of them was merged: correct them there, "
                f"or drop the check, `eventlog columns {uri} uncheck {name}`, and merge again"
            )

    def _meets(self, check: Check, schema: Schema) -> bool:
        """Return whether the rows of the source's head meet a check with their types there."""
        kinds, there = (
            {column.id: column.type for column in one.columns}
            for one in (schema, self._head.stored_schema)
        )
        same = all(there.get(column.id) == kinds[column.id] for column in check.columns)
        return same and any(same_check(check, one) for one in checks_of(self._head.stored_schema))

    def _was_tested(self, segment: Segment) -> bool:
        """Return whether all rows of a segment are rows of the source's head."""
        if self._live is None:
            self._live = {one.id: one for one in self._head.segments()}
        there = self._live.get(segment.id)
        return there is not None and isinstance(there.vector, UnsetType)
