"""How far two logs have merged each other: the commits that each has of the other, by origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.lineage.fork_point import ForkPoint
from eventlog.log.snapshot import Snapshot
from eventlog.merging import log_acts
from eventlog.merging.commits import CommitReader
from eventlog.merging.log_acts import AppliedStep
from eventlog.merging.planning.carried import Pair
from eventlog.model.entries import Schema
from eventlog.model.records import origins_of
from eventlog.session.session import Session


@dataclass(frozen=True, slots=True)
class OriginMark:
    """How far the target has merged the source.

    Attributes:
        name: the name of the origin.
        old: the source's version that the target's state records; None if it records none.
        upto: the source's version up to which the target has everything.
    """

    name: str
    old: int | None
    upto: int


class OriginMarks:
    """How far a source and a target have merged each other (R19.3).

    Args:
        source: the table to merge from.
        source_head: the source's head.
        target: the table to merge into.
        fork: the fork point of the two logs.
        source_commits: reads the source's commits.
        target_commits: reads the target's commits.
    """

    def __init__(
        self,
        source: Session,
        source_head: Snapshot,
        target: Session,
        fork: ForkPoint,
        *,
        source_commits: CommitReader,
        target_commits: CommitReader,
    ) -> None:
        self._source, self._from, self._target, self._fork = source, source_head, target, fork
        self._there, self._here = source_commits, target_commits
        self._hashes: dict[int, str | None] = {}  # of the target's commits, by version

    def of(self, head: Snapshot, origin: str) -> OriginMark:
        """Return the origin's name at the target, and how far the target has merged it (R19.3)."""
        marks = origins_of(head.meta)
        applied = [
            (mark.version, name)
            for name, mark in marks.items()
            if self._fork.common < mark.version <= self._from.version
            and self._source.log.hash_at(self._from, mark.version) == mark.commit
        ]
        if applied:
            version, name = max(applied)
            return OriginMark(name, version, version)
        if origin not in marks:
            return OriginMark(origin, None, self._fork.common)
        # The target has merged another log that begins with the same commit, so that the hash of
        # this commit is taken: the first commit that the target lacks gives the name.
        known = log_acts.KnownCommits(self._here.steps(self._fork.common + 1, head.version))
        for step in self._there.steps(self._fork.common + 1, self._from.version):
            if not known.names(step.commit) and step.commit not in marks:
                return OriginMark(step.commit, None, self._fork.common)
        return OriginMark(origin, None, self._from.version)

    def seen(self, head: Snapshot, at: Snapshot) -> int:
        """Return the newest version of the target that a version of the source has merged.

        Args:
            head: the head of the target.
            at: the version of the source.

        Returns:
            The version; -1 if the source has merged none.
        """
        marks = origins_of(at.meta).values()
        versions = (m.version for m in marks if self._is_ours(head, m.version, m.commit))
        return max(versions, default=-1)

    def pair(
        self, head: Snapshot, mark: OriginMark, steps: Sequence[AppliedStep], *, keyed: bool
    ) -> Pair:
        """Return the two logs as a planner's input.

        Args:
            head: the head of the target.
            mark: how far the target has merged the source.
            steps: the commits of the source that are to be merged.
            keyed: whether the table is keyed.
        """
        own = {
            name
            for name, m in origins_of(self._from.meta).items()
            if self._is_ours(head, m.version, m.commit)
        }
        ours: set[str] = set()
        for act in (act for step in steps for act in step.acts if act.carried is not None):
            assert act.carried is not None  # noqa: S101 - only those
            if act.carried.id in own:
                ours.add(act.carried.commit)
            else:
                names = {act.carried.commit: act.carried.version} | act.originals
                ours.update(c for c, v in names.items() if self._is_ours(head, v, c))
        seen = -1
        if steps and steps[0].version - 1 > self._fork.common and keyed:
            seen = self.seen(head, self._source.log.snapshot(steps[0].version - 1))
        return Pair(
            self._source.uri,
            self._target.uri,
            self._fork.common,
            self._fork.origin or "",
            self._fork.own,
            self._from.stored_schema,
            self._from.meta,
            seen,
            frozenset(ours),
            origins_of(head.meta).keys() <= {mark.name},
            self._schema_forked(steps),
        )

    def _schema_forked(self, steps: Sequence[AppliedStep]) -> Schema:
        """Return the schema at the fork point.

        Where none of the source's commits changes it nobody needs it, and it is not read.
        """
        if not any(act.changes_schema for step in steps for act in step.acts):
            return self._from.stored_schema
        # Also where both logs have one schema now: what each made of it is compared with this one.
        # against columns-of-later-commits-dropped
        return self._source.log.snapshot(self._fork.common).stored_schema

    def _is_ours(self, head: Snapshot, version: int, commit: str) -> bool:
        """Return whether a commit is one of the target's since the fork point."""
        if not self._fork.common < version <= head.version:
            return False
        if version == head.version:
            return head.commit_hash == commit
        if version not in self._hashes:
            self._hashes[version] = self._target.log.hash_at(head, version)
        return self._hashes[version] == commit
