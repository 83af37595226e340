"""The errors of a merge, with the commands that resolve them."""

from __future__ import annotations

import shlex

from eventlog.errors import CommitConflict, DataLoss, VersionVacuumed
from eventlog.lineage.fork_point import ForkPoint
from eventlog.merging.planning.carried import MergeConflict
from eventlog.model.entries import Segment
from eventlog.session.session import Session
from eventlog.store.branching.branch import BranchStore


class Advice:
    """Makes the errors of one merge, with the commands that resolve them.

    Args:
        source: the table to merge from.
        target: the table to merge into.
        fork: the fork point of the two logs.
        at_once: whether the source is a branch that is being published.
    """

    def __init__(self, source: Session, target: Session, fork: ForkPoint, *, at_once: bool) -> None:
        self._source, self._target, self._fork = source, target, fork
        self._at_once = at_once

    def refusal(self, conflict: MergeConflict, *, began: bool) -> CommitConflict:
        """Return the error for a conflict.

        Args:
            conflict: the conflict.
            began: whether this merge has committed a part before the conflict.
        """
        ours = "" if conflict.ours is None else f" (version {conflict.ours})"
        carried = "a part before it is merged" if began else "nothing was committed"
        return CommitConflict(
            f"version {conflict.version} of {self._source.uri} cannot be merged into "
            f"{self._target.uri}: {conflict.reason}{ours}; {carried}. "
            f"{self._apart() if conflict.lasting else self._ways_out(whole=conflict.whole)}",
            table=self._target.uri,
            version=conflict.ours,
        )

    def loss(self, gone: tuple[Segment, str], *, repeated: bool) -> DataLoss | VersionVacuumed:
        """Return the error for segments that no longer exist.

        Args:
            gone: one of these segments, and its key.
            repeated: whether this is a segment of the target that must be added once more.
        """
        entry, key = gone
        if repeated:
            return VersionVacuumed(
                f"rows of version {entry.version} must be added once more after those of "
                f"{self._source.uri}, so that both have the same order, but a vacuum has deleted "
                "them. Merge in the other direction. From then on merge more often than the "
                f"retention period, or pin the last version that was merged. {self._ways_out()}",
                table=self._target.uri,
                version=entry.version,
            )
        horizon = self._source.refresh().meta.horizon
        if entry.version < horizon:
            return VersionVacuumed(
                f"rows of version {entry.version} cannot be merged: a vacuum has deleted a "
                "segment that the target needs, because the target itself has rewritten what "
                "replaces it, or because the drop of its rows conflicts. Restore the object "
                "from a backup; pin the source at the version up to which it is merged, so that "
                f"vacuums wait for the next merge. {self._ways_out()}",
                table=self._source.uri,
                key=key,
                version=entry.version,
            )
        return DataLoss(
            f"a segment is missing: run `eventlog fsck {shlex.quote(self._source.uri)}`",
            table=self._source.uri,
            key=key,
            version=entry.version,
        )

    def _ways_out(self, *, whole: bool = False) -> str:
        """Return the commands that resolve a conflict by choosing a side.

        Args:
            whole: whether everything that the other side did is left out.
        """
        store = self._source.store
        if self._at_once and isinstance(store, BranchStore):
            places = f"--branch {shlex.quote(store.forks[0].name)} {shlex.quote(store.parent.uri)}"
        else:
            places = f"{shlex.quote(self._source.uri)} {shlex.quote(self._target.uri)}"
        choice = (
            "Choose which of the two counts, and all rows that only the other one wrote or removed "
            "are left out"
            if whole
            else "Choose whose state counts where both changed the same, and what the other one "
            "did there is left out"
        )
        return (
            f"{choice}: `eventlog merge {places} --take source` or `--take target`; "
            "--dry-run lists it before"
        )

    def _apart(self) -> str:
        """Return the commands to use where the two logs cannot be merged at all."""
        store, source = self._source.store, shlex.quote(self._source.uri)
        target, common = shlex.quote(self._target.uri), self._fork.common
        if self._at_once and isinstance(store, BranchStore):
            target = shlex.quote(store.parent.uri)
            branch = shlex.quote(store.forks[0].name)
            return (
                f"`eventlog changes {target} {common} --branch {branch}` shows what only the "
                "branch did: load that into the table with the column under a new name, and delete "
                f"the branch: `eventlog branch {target} {branch} --delete`"
            )
        return (
            f"Keep one of the two, and have a new copy follow it: `eventlog replicate {source} "
            f"COPY` or `eventlog replicate {target} COPY`. `eventlog changes {target} "
            f"{common}` or `eventlog changes {source} {common}` shows what only the "
            "other one did: load that with the column under a new name"
        )
