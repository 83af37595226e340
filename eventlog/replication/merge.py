"""Merge: commit the changes of one copy of a table on another copy.

A target that has no commits of its own follows instead, unless one of the two is a branch. The
decisions are in `eventlog.merging`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from eventlog.arguments import shown
from eventlog.clock import Clock, SystemClock
from eventlog.commit.proposal import check_writable
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.lineage.fork_point import ForkPoint
from eventlog.lineage.relation import relation, same_root
from eventlog.merging.merger import Merged, Merger
from eventlog.merging.planning.by_state.sides import Take
from eventlog.replication.follow import Follower, Gap
from eventlog.table.table import Table


def merge(
    source: Table | str | os.PathLike[str],
    target: Table | str | os.PathLike[str],
    *,
    source_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    take: Take | None = None,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Merged:
    """Commit the source's changes since the fork point on the target, each transaction once.

    Idempotent and resumable: after an error or a crash call it again. Any number of merges may run
    at once, in both directions. After merging both ways both tables have the same rows. The target
    gets one commit for each commit of the source; the segments are copied unchanged. Where that is
    not possible, the rest comes in one commit: a chunk that only one of the two has changed gets
    the state that it has there, and rows that only one has added stay.

    Args:
        source: the table to merge from, or its root. A merge writes nothing there.
        target: the table to merge into, or its root.
        source_options: override the AWS environment; see `eventlog.store.options`.
        target_options: likewise, of the target.
        take: whose state counts where both changed the same thing in ways that exclude each other:
            "source" or "target". The other one's changes there are left out of the target, and of
            the source once the two are merged in the other direction; `Merged.left_out` lists them.
            Old versions still have them. Then the whole merge is one commit. None: raise
            `CommitConflict`.
        dry_run: commit nothing; return what would be merged, and left out.
        clock: use this clock instead of the machine's.

    Returns:
        The result of the merge.

    Raises:
        CommitConflict: both changed the same thing in different ways: a column, a property, rows of
            one chunk; and `take` is None, or does not resolve it, as where a column has two types.
            Nothing was committed. The message names the commands that resolve it.
        DataLoss: a segment of the source is missing or damaged.
        InvalidInput: the two are different tables, share no version, or are the same table; or
            `take` has another value.
        TableNotFound: there is no table at one of them.
        Unavailable: a store does not answer.
        VersionVacuumed: a vacuum of the source has deleted segments that the target needs.
    """
    clock = clock or SystemClock()
    ours = target if isinstance(target, Table) else Table.open(target, target_options, clock=clock)
    theirs = (
        source if isinstance(source, Table) else Table.open(source, source_options, clock=clock)
    )
    _check_two(theirs, ours)
    if take not in ("source", "target", None):
        raise InvalidInput(f"take is {shown(take)}: give 'source' or 'target'")
    return _joined(theirs, ours, clock, take, dry_run=dry_run)


def _joined(
    theirs: Table, ours: Table, clock: Clock, take: Take | None, *, dry_run: bool
) -> Merged:
    while True:
        head, their_head = ours.refresh(), theirs.refresh()
        check_writable(head.header)
        found = relation(ours.session.log, head, theirs.session.log, their_head)
        # A branch that followed another one would get its history, and be taken for that branch
        # later. A table that followed a branch would keep the branch's holds.
        branched = ours.store.forks or theirs.store.forks  # against hold-of-a-branch-left-behind
        fork = ForkPoint(found.common, found.origin, found.own)
        merger = Merger(theirs.session, ours.session, fork, take=take, dry_run=dry_run)
        if found.kind != "behind" or dry_run or branched:
            return merger.run()
        try:
            done = Follower(theirs, ours.store, clock, gaps=False).step()
        except Gap:
            return merger.run()
        except CommitConflict:
            if ours.refresh().version == head.version:
                raise
            continue  # meanwhile somebody has written to the target
        return Merged(
            theirs.uri,
            ours.uri,
            found.common,
            done.version,
            done.version,
            commits=done.versions,
            bytes=done.bytes,
            followed=done.versions > 0,
        )


def _check_two(source: Table, target: Table) -> None:
    if same_root(source.store, target.store):
        raise InvalidInput(
            f"{target.uri} cannot be merged into itself: give two copies of a table, or a branch "
            "and its parent"
        )
