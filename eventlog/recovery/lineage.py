"""Lineage: which segments stand in the place of which, as the transactions of the log say.

Pure layer. What overshadows what is not stored with the segments: it follows from the transactions
(FORMAT.md R14.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventlog.model.records import Add, Drop, Replace, Transaction


@dataclass(frozen=True, slots=True)
class Member:
    """A segment as the timeline sees it.

    Attributes:
        id: the segment's.
        overshadows: ids of the segments that its transaction replaced; the same for the group.
        group: ids of the segments that its transaction put in their place, with its own; not
            given: the segment alone.
    """

    id: str
    overshadows: frozenset[str] = frozenset()
    group: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """A member alone is a group of one."""
        if not self.group:
            object.__setattr__(self, "group", frozenset((self.id,)))


@dataclass(frozen=True, slots=True)
class Change:
    """What an accepted transaction did to the live segments.

    Attributes:
        adds: ids in order.
        drops: ids in order.
        exact: the adds hold the same rows as the drops: a `replace` that deleted none.
    """

    adds: tuple[str, ...]
    drops: tuple[str, ...] = ()
    exact: bool = False


def change_of(transaction: Transaction) -> Change:
    """Return what an accepted transaction, whose spill is unpacked, did to the live segments."""
    actions = transaction.actions
    return Change(
        tuple(action.id for action in actions if isinstance(action, Add)),
        tuple(action.id for action in actions if isinstance(action, Drop)),
        exact=any(isinstance(action, Replace) and not action.deletes for action in actions),
    )


def members(changes: Iterable[Change]) -> dict[str, Member]:
    """Return the members that the transactions made, by id.

    Segments that went by anything but an exact replacement are no members, nor is what they had
    replaced: to bring it back would bring back rows that were deleted. What is left of their groups
    stands for itself.

    Args:
        changes: in the order of the log. Segments that they only drop are taken as appended before.
    """
    found: dict[str, Member] = {}
    for change in changes:
        if change.exact and change.adds:
            group, dropped = frozenset(change.adds), frozenset(change.drops)
            for name in change.drops:
                found.setdefault(name, Member(name))
            found.update((name, Member(name, dropped, group)) for name in change.adds)
        else:
            for name in change.drops:
                _forget(found, name)
            found.update((name, Member(name)) for name in change.adds)
    return found


def _forget(found: dict[str, Member], name: str) -> None:
    """Take out a segment and all that it had replaced; its group overshadows nothing any more."""
    queue = [name]
    while queue:
        gone = found.pop(queue.pop(), None)
        if gone is not None:
            for mate in gone.group:
                if mate in found:
                    found[mate] = Member(mate)
            queue.extend(gone.overshadows)
