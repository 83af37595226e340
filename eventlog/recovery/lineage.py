"""Lineage: which segments replaced which, according to the transactions of the log.

No I/O. Segments do not record which others they overshadow; that follows from the transactions
(FORMAT.md R14.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventlog.model.actions import Add, DeleteRows, Drop, Replace
from eventlog.model.records import Transaction


@dataclass(frozen=True, slots=True)
class Member:
    """A segment, its group, and the segments that the group overshadows.

    Attributes:
        id: the id of the segment.
        overshadows: ids of the segments that its transaction replaced; the same for its group.
        group: ids of the segments that its transaction added, including its own; by default only
            its own.
    """

    id: str
    overshadows: frozenset[str] = frozenset()
    group: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Make a member without a group a group of one."""
        if not self.group:
            object.__setattr__(self, "group", frozenset((self.id,)))


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of an accepted transaction on the live segments.

    Attributes:
        adds: ids of the added segments, in order.
        drops: ids of the dropped segments, and of those of which rows were deleted, in order.
        exact: whether the adds have the same rows as the drops: a `replace` that deleted none.
    """

    adds: tuple[str, ...]
    drops: tuple[str, ...] = ()
    exact: bool = False


def change_of(transaction: Transaction) -> Change:
    """Return the effect of an accepted transaction, whose spill is unpacked.

    After a delete of rows a segment has other rows: what had the rows before is dropped.
    """
    actions = transaction.actions
    return Change(
        tuple(action.id for action in actions if isinstance(action, Add)),
        # against rows-deleted-of-a-member-not-seen
        tuple(action.id for action in actions if isinstance(action, Drop | DeleteRows)),
        exact=any(isinstance(action, Replace) and not action.deletes for action in actions),
    )


def members(changes: Iterable[Change]) -> dict[str, Member]:
    """Return the members that result from the transactions, by id.

    Segments dropped by anything but an exact replacement are not members, nor are the segments
    that they had replaced: to read those again would bring back deleted rows. The remaining members
    of their groups become groups of one.

    Args:
        changes: the effects of the transactions, in the order of the log. Segments that these drop
            but do not add count as appended before.
    """
    known: dict[str, Member] = {}
    for change in changes:
        if change.exact and change.adds:
            group, dropped = frozenset(change.adds), frozenset(change.drops)
            for name in change.drops:
                known.setdefault(name, Member(name))
            known.update((name, Member(name, dropped, group)) for name in change.adds)
        else:
            for name in change.drops:
                _forget(known, name)
            known.update((name, Member(name)) for name in change.adds)
    return known


def _forget(known: dict[str, Member], name: str) -> None:
    """Remove a segment and all that it had replaced; its group no longer overshadows anything."""
    queue = [name]
    while queue:
        removed = known.pop(queue.pop(), None)
        if removed is not None:
            for other in removed.group:
                if other in known:
                    known[other] = Member(other)
            queue.extend(removed.overshadows)
