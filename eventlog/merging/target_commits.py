"""Commits on the target what a merge has planned, with the guards that keep the plan true."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from eventlog.errors import CommitConflict
from eventlog.log.snapshot import Snapshot
from eventlog.merging import log_acts
from eventlog.merging.marks import OriginMark
from eventlog.merging.planning.carried import Carried
from eventlog.merging.planning.forms import form_of, segment_id
from eventlog.merging.segment_copies import SegmentCopies
from eventlog.model.actions import (
    Action,
    Drop,
    Replace,
    Restore,
    SameSegments,
    SetOrigin,
    Unchanged,
)
from eventlog.model.chunks import parse_chunk
from eventlog.session.session import Session
from eventlog.state.delta import drop_of


class TargetCommits:
    """Commits planned transactions on the target of a merge.

    Args:
        source: root URI of the source.
        target: the table to merge into.
        copies: copies the segments that are added.

    Attributes:
        commits: number of versions that were committed.
        transactions: number of the source's transactions in them.
    """

    def __init__(self, source: str, target: Session, copies: SegmentCopies) -> None:
        self._source, self._target, self._copies = source, target, copies
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
        live = head.live([Drop(segment_id(i), chunk, "") for i, chunk in carried.drops])
        # against rows-deleted-meanwhile-brought-back
        if not {i for i, _ in carried.drops} <= {form_of(s).id for s in live.values()}:
            raise CommitConflict("segments were dropped meanwhile", table=self._target.uri)
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
        adds = [self._copies.add_of(f, live.get(segment_id(f.id))) for f in carried.adds]
        rewrite = [] if carried.deletes is None else [Replace(head.version, carried.deletes)]
        actions: list[Action] = [
            *guards,
            origin,  # first: the others raise what it is compared with
            *(Restore(carried.version, dict(r) or UNSET, name) for r in carried.resets),
            *carried.changes,
            *rewrite,
            *map(drop_of, live.values()),
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
        self.commits += 1
        self.transactions += carried.transactions


def _guards(carried: Carried, head: Snapshot) -> list[Action]:
    """Return the guards that keep others from changing segments after an order was decided.

    A transaction that only drops may drop a segment that is repeated: `unchanged` does not notice.
    """
    # against rows-repeated-that-were-dropped
    return [SameSegments(head.hash_sum())] if carried.still else []
