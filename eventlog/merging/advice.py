"""The errors of a merge, with the commands that resolve them."""

from __future__ import annotations

import shlex

from eventlog.errors import CommitConflict, DataLoss, VersionVacuumed
from eventlog.lineage.fork_point import ForkPoint
from eventlog.merging.planning.carried import ColumnChange, MergeConflict
from eventlog.model.entries import Segment
from eventlog.session.session import Session
from eventlog.store.branching.branch import BranchStore

_SHOWN = 40  # chunks in a message


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
            f"{self._way_on(conflict)}",
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

    def _way_on(self, conflict: MergeConflict) -> str:
        """Return the commands that resolve a conflict."""
        if not conflict.changes:
            change = "Change the columns or checks of one of the two, and merge again"
            ways = self._ways_out(whole=conflict.whole) + _covered(conflict)
            return ways if conflict.choices else change
        commands = " and ".join(f"`{self._change(change)}`" for change in conflict.changes)
        again = f"run {commands}, and merge again"
        drops = any(words[0] == "drop" for _, words in conflict.changes)
        kept = (
            ". Its values stay readable in older versions; to keep them, copy them into another "
            "column first"
        )
        again += kept if drops else ""
        if not conflict.choices:
            return again[0].upper() + again[1:]
        (choice,) = conflict.choices
        return (
            "A column that one of the two has dropped does not come back. To drop it in both, "
            f"choose that state: `{self._merge()} --take {choice}`; --dry-run lists what is left "
            f"out. Or {again}"
        )

    def _change(self, change: ColumnChange) -> str:
        """Return the command for a change of columns."""
        side, words = change
        table = self._source if side == "source" else self._target
        place, store = shlex.quote(table.uri), table.store
        if isinstance(store, BranchStore):
            name, parent = store.forks[0].name, store.parent.uri
            place = f"--branch {shlex.quote(name)} {shlex.quote(parent)}"
        act, *names = words
        ends = ("--",) if any(name.startswith("-") for name in names) else ()  # no options follow
        return f"eventlog columns {place} {shlex.join((act, *ends, *names))}"

    def _merge(self) -> str:
        """Return the command of this merge."""
        store = self._source.store
        if self._at_once and isinstance(store, BranchStore):
            name, parent = store.forks[0].name, store.parent.uri
            return f"eventlog merge --branch {shlex.quote(name)} {shlex.quote(parent)}"
        places = shlex.join((self._source.uri, self._target.uri))
        return f"eventlog merge {places}"

    def _ways_out(self, *, whole: bool = False) -> str:
        """Return the commands that resolve a conflict by choosing a side.

        Args:
            whole: whether everything that the other side did is left out.
        """
        choice = (
            "Choose which of the two counts, and all rows that only the other one wrote or removed "
            "are left out"
            if whole
            else "Choose whose state counts where both changed the same, and what the other one "
            "did there is left out"
        )
        return (
            f"{choice}: `{self._merge()} --take source` or `--take target`; "
            "--dry-run lists it before"
        )


def _covered(conflict: MergeConflict) -> str:
    """Return the time chunks that a choice covers, where these are several."""
    if len(conflict.chunks) < 2:
        return ""
    more = len(conflict.chunks) - _SHOWN
    names = ", ".join(conflict.chunks[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f". The choice covers {names}: those in conflict, and those with which a transaction may "
        "have exchanged rows"
    )
