"""Overshadowing: which segments to read if some have not arrived, or were lost.

No I/O. If all segments exist, the snapshot of a version is enough, and this module is not needed. A
`Member` is a segment with its group and the segments that the group overshadows (FORMAT.md R14.7).
Which members are visible is a function of three sets (R14.8): the members that *arrived*, those of
them that were *lost* since, and those that are *known*. A group whose members all arrived
is *formed* (R14.10). A group that lost a member falls back, if possible, to the newest complete
generation below it (R14.11). The remaining groups are *in force*, and determine the states of all
members (R14.12).

The greatest set of R14.10 is computed by removing groups that cannot be in it until none is left to
remove; the smallest of R14.11 by adding groups that must fall as well. The groups in force are
ordered (R14.9), so a member and one that it overshadows, over any number of hops, are never both
visible.

After Druid's segment locking proposal, "Timeline management". The proposal does not define what is
read in place of a group that lost a member; here the lost members are an input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from eventlog.errors import InvalidInput
from eventlog.recovery.lineage import Member


@dataclass(frozen=True, slots=True)
class MemberStates:
    """The states of the members that arrived (FORMAT.md R14.12), as sets of ids.

    Attributes:
        visible: the ids to read.
        standby: the ids that wait until the other members of their group arrive, or come back.
        overshadowed: the ids that groups in force replace.
        missing: the lost ids whose rows are missing from `visible`, since there is no fallback.
            Members that never arrived are not among them.
    """

    visible: frozenset[str]
    standby: frozenset[str]
    overshadowed: frozenset[str]
    missing: frozenset[str]


def resolve(
    online: Iterable[Member], *, lost: Iterable[Member] = (), known: Iterable[Member] = ()
) -> MemberStates:
    """Return the states of members. The order in which they are given makes no difference.

    The cost is proportional to the number of members and of the ids that they overshadow.

    Args:
        online: the members that exist.
        lost: members that arrived and no longer exist; those that are also in `online` exist.
        known: further members that are known, but have not arrived. Without them an overshadowed
            member stays visible if the generation between it and a newer one never arrives.

    Raises:
        InvalidInput: a member is not in its own group, or is given with two groups; a group
            overlaps another one or its own overshadowed segments; or two groups overshadow one
            segment.
    """
    existing, gone = list(online), list(lost)
    groups = _Groups((*known, *gone, *existing))
    ids = {member.id for member in existing}
    return groups.states(ids, {member.id for member in gone} - ids)


@dataclass(frozen=True, eq=False, slots=True)
class _Group:
    """A group with a known member: the ids of its members, and the ids that they overshadow."""

    ids: frozenset[str]
    overshadows: frozenset[str]


class _Groups:
    """The groups of known members, and how they overshadow each other."""

    def __init__(self, known: Iterable[Member]) -> None:
        self._of: dict[str, _Group] = {}  # by the ids of its members, known or not
        self._over: dict[str, _Group] = {}  # the group that overshadows an id
        for member in known:
            group = self._of.get(member.id)
            if group is None:
                self._enter(member)
            elif (group.ids, group.overshadows) != (member.group, member.overshadows):
                raise InvalidInput(
                    f"segment {member.id} is known with another group or other inputs"
                )

    def states(self, online: set[str], lost: set[str]) -> MemberStates:
        """Return the states of the members with these ids."""
        formed = self._formed(online | lost)
        in_force = formed - self._fallen(formed, online, lost)
        front = {n for group in in_force for n in group.ids if self._over.get(n) not in in_force}
        visible = front & online
        behind = online - front
        overshadowed = {name for name in behind if self._of[name] in in_force}
        return MemberStates(
            visible=frozenset(visible),
            standby=frozenset(behind - overshadowed),
            overshadowed=frozenset(overshadowed),
            missing=frozenset(front - online),
        )

    def _enter(self, member: Member) -> None:
        """Add the group of a member, the first known member of this group."""
        if member.id not in member.group:
            raise InvalidInput(f"segment {member.id} is not in its own group")
        if not member.group.isdisjoint(member.overshadows):
            raise InvalidInput(f"the group of segment {member.id} overshadows a part of itself")
        group = _Group(member.group, member.overshadows)
        for name in group.ids:
            if name in self._of:
                raise InvalidInput(f"segment {name} is in two groups")
            self._of[name] = group
        for name in group.overshadows:
            if name in self._over:
                raise InvalidInput(f"segment {name} is overshadowed by two groups")
            self._over[name] = group

    def _above(self, group: _Group) -> Iterator[_Group]:
        """Yield the groups that overshadow members of this one."""
        return (self._over[name] for name in group.ids if name in self._over)

    def _formed(self, arrived: set[str]) -> set[_Group]:
        """Return the formed groups (R14.10), by removing the others."""
        formed = set(self._of.values())
        queue = [
            group
            for group in formed
            if any(name not in arrived and name not in self._over for name in group.ids)
        ]
        while queue:
            group = queue.pop()
            if group not in formed:
                continue
            formed.remove(group)
            queue.extend(self._above(group))
            # No formed group overshadows these members, which never arrived, any more.
            absent = (name for name in group.overshadows if name not in arrived)
            queue.extend(self._of[name] for name in absent if name in self._of)
        return formed

    def _fallen(self, formed: set[_Group], online: set[str], lost: set[str]) -> set[_Group]:
        """Return the formed groups that fall (R14.11)."""
        broken = {
            group
            for group in formed
            if any(n in lost and self._over.get(n) not in formed for n in group.ids)
        }
        if not broken:
            return set()
        falls_with = {group: self._falls_with(group, formed, online) for group in formed}
        leads_to: dict[_Group, list[_Group]] = {group: [] for group in formed}
        for group, others in falls_with.items():
            for other in others:
                leads_to[other].append(group)
        stuck = _reached({g for g in formed if not self._may_fall(g, online)}, leads_to)
        return _reached(broken - stuck, falls_with)

    def _falls_with(self, group: _Group, formed: set[_Group], online: set[str]) -> list[_Group]:
        """Return the groups that have to fall when this one does."""
        lower = (n for n in group.overshadows if n in self._of and n not in online)
        upper = (above for above in self._above(group) if above in formed)
        return [*upper, *(self._of[name] for name in lower)]

    def _may_fall(self, group: _Group, online: set[str]) -> bool:
        """Return whether the group overshadows something, all of which is known."""
        known = all(name in online or name in self._of for name in group.overshadows)
        return bool(group.overshadows) and known


def _reached(start: set[_Group], edges: Mapping[_Group, list[_Group]]) -> set[_Group]:
    """Return the groups that can be reached from `start`, over any number of edges."""
    reached, queue = set(start), [*start]
    while queue:
        for group in edges[queue.pop()]:
            if group not in reached:
                reached.add(group)
                queue.append(group)
    return reached
