"""Merge: what one copy of a table did on its own is committed on another one.

Where the target is a copy that did nothing of its own it simply follows. The decisions are in
`eventlog.merging`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from eventlog.clock import Clock, SystemClock
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.merging.carry import Carrier, Merged
from eventlog.replication.follow import Follower, Gap
from eventlog.replication.relation import relation, same_root
from eventlog.store.branching.branch import BranchStore
from eventlog.table.table import Table


def merge(
    source: Table | str | os.PathLike[str],
    target: Table | str | os.PathLike[str],
    *,
    source_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Merged:
    """Commit on the target what the source did since the two parted, each transaction once.

    Idempotent and resumable: after an error or a death call it again. Any number of merges may run
    at once, in both directions. After merging both ways both have the same rows. One commit of the
    target is made for each of the source; its segments are copied as they are.

    Args:
        source: the table to merge from, or its root. Nothing is written there.
        target: the table to merge into, or its root.
        source_options: override the AWS environment; see `eventlog.store.options`.
        target_options: likewise, of the target.
        clock: use this clock instead of the machine's.

    Returns:
        What was done.

    Raises:
        CommitConflict: both changed the same in different ways: a column, a property, rows that
            the source drops and the target has rewritten. All before that is merged.
        DataLoss: a segment of the source is missing or damaged.
        InvalidInput: they are different tables, or have nothing in common, or are one and the same.
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
    return _joined(theirs, ours, clock)


def _joined(theirs: Table, ours: Table, clock: Clock) -> Merged:
    while True:
        head, their_head = ours.refresh(), theirs.refresh()
        found = relation(theirs.log, their_head, ours.log, head)
        # A branch that followed another one would have its history, and be taken for it later.
        if found.kind != "ahead" or isinstance(ours.store, BranchStore):
            return Carrier(theirs, ours, found.common).run()
        try:
            done = Follower(theirs, ours.store, clock, gaps=False).step()
        except Gap:
            return Carrier(theirs, ours, found.common).run()
        except CommitConflict:
            if ours.refresh().version == head.version:
                raise
            continue  # the target has taken a write of its own meanwhile
        return Merged(
            theirs.uri,
            ours.uri,
            found.common,
            done.version,
            done.version,
            commits=done.versions,
            bytes=done.bytes,
        )


def _check_two(source: Table, target: Table) -> None:
    if same_root(source.store, target.store):
        raise InvalidInput(
            f"{target.uri} cannot be merged into itself: give two copies of a table, or a branch "
            "and its parent"
        )
