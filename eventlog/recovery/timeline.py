"""The timeline: which of the segments that have arrived somewhere are to be read.

No I/O. Used where segments arrive and disappear one by one: a reader that lost a compacted segment
whose inputs still exist, a replica that is still receiving, a cache. Where all segments exist, the
snapshot of a version is enough, and no timeline is needed.

A `Member` is a segment with its group and the segments that the group overshadows (FORMAT.md
R14.7). What is visible is a function of three sets, whatever the order of events: the members that
*arrived*, those of them that were *lost* since, and those that are *known* (R14.8). A group whose
members all arrived is *formed* (R14.10). A group that lost a member falls back, if possible, to the
newest complete generation below it (R14.11). The remaining groups are *in force*, and determine the
states of all members (R14.12).

The greatest set of R14.10 is computed by removing groups that cannot be in it until none is left to
remove; the smallest of R14.11 by adding groups that must fall as well. Only groups connected by
overshadowing, over any number of hops, affect each other. The groups in force are ordered (R14.9),
so a member and one that it overshadows, over any number of hops, are never both visible.

After Druid's segment locking proposal, "Timeline management". The proposal does not define what a
rebuilt timeline returns for a group that lost a member; here the lost members are an input, so that
a rebuilt timeline is equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from eventlog.errors import InvalidInput
from eventlog.recovery.lineage import Member

State = Literal["standby", "visible", "overshadowed"]


@dataclass(frozen=True, slots=True)
class Swap:
    """The result of one step: ids that became visible, and ids that are no longer visible."""

    shown: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class _Group:
    """A group with a known member.

    Attributes:
        ids: of its members.
        overshadows: the ids that they overshadow.
        absent: the number of members that never arrived and that no known group overshadows.
    """

    ids: frozenset[str]
    overshadows: frozenset[str]
    absent: int = 0


class Timeline:
    """The states of the members that arrived (FORMAT.md R14.12).

    Built at once or member by member, in any order: equal sets give equal timelines. The cost of a
    step is proportional to the number of groups connected to the member by overshadowing, over any
    number of hops. Segments without such connections have a constant cost each.

    Args:
        online: the members that exist.
        lost: members that arrived and no longer exist.
        known: further members that are known, but have not arrived. Without them an overshadowed
            member stays visible where the generation between it and a newer one never arrives.

    Raises:
        InvalidInput: the members do not fit together; see `add`.
    """

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __init__(
        self,
        online: Iterable[Member] = (),
        *,
        lost: Iterable[Member] = (),
        known: Iterable[Member] = (),
    ) -> None:
        self._known: dict[str, Member] = {}
        self._group: dict[str, _Group] = {}  # by the ids of its members, known or not
        self._over: dict[str, _Group] = {}  # the group that overshadows an id
        self._online: set[str] = set()
        self._lost: set[str] = set()
        self._states: dict[str, State] = {}
        self._visible: set[str] = set()
        self._missing: set[str] = set()
        for member in known:
            self._learn(member)
        for member in lost:
            self._arrive(member)
            self._lost.add(member.id)
        for member in online:
            self._arrive(member)
            self._lost.discard(member.id)
            self._online.add(member.id)
        updated: set[_Group] = set()
        for group in self._group.values():
            if group not in updated:
                component = self._component(group)
                self._update(component)
                updated |= component

    @property
    def visible(self) -> frozenset[str]:
        """The ids to read."""
        return frozenset(self._visible)

    @property
    def standby(self) -> frozenset[str]:
        """The ids that wait until the other members of their group arrive, or come back."""
        return frozenset(name for name, state in self._states.items() if state == "standby")

    @property
    def overshadowed(self) -> frozenset[str]:
        """The ids that are replaced by groups in force."""
        return frozenset(name for name, state in self._states.items() if state == "overshadowed")

    @property
    def missing(self) -> frozenset[str]:
        """The lost ids whose rows are missing from `visible`, since there is no fallback.

        Does not include members that never arrived.
        """
        return frozenset(self._missing)

    def add(self, member: Member) -> Swap:
        """Add a member that arrived, or came back. Idempotent.

        Returns:
            The ids that became visible, and those that they replace.

        Raises:
            InvalidInput: the member is not in its own group, differs from the known one, its group
                overlaps another group or its own overshadowed segments, or overshadows a segment
                that another group overshadows. Nothing is changed.
        """
        new = self._arrive(member)
        if member.id in self._online:
            return Swap()
        self._lost.discard(member.id)
        self._online.add(member.id)
        group = self._group[member.id]
        if group.absent and not (new and any(True for _ in self._above(group))):
            self._states[member.id] = "standby"  # no other state changes: the group is not formed
            return Swap()
        return self._step(member.id)

    def remove(self, member_id: str) -> Swap:
        """Remove a member that was lost; ignored if it is not online.

        Returns:
            The ids that became visible in its place, and all that are no longer visible.
        """
        if member_id not in self._online:
            return Swap()
        self._online.remove(member_id)
        self._lost.add(member_id)
        was_visible = self._states.pop(member_id) == "visible"
        self._visible.discard(member_id)
        swap = self._step(member_id)
        return Swap(swap.shown, swap.hidden | {member_id}) if was_visible else swap

    def __eq__(self, other: object) -> bool:
        """Two timelines are equal if the same members are known, online and lost."""
        if not isinstance(other, Timeline):
            return NotImplemented
        return (self._known, self._online, self._lost) == (other._known, other._online, other._lost)

    def __repr__(self) -> str:
        """Return the numbers of members in each state."""
        return (
            f"Timeline(visible={len(self._visible)}, standby={len(self.standby)}, "
            f"overshadowed={len(self.overshadowed)}, missing={len(self._missing)})"
        )

    def _arrive(self, member: Member) -> bool:
        """Note that the member has arrived, now or earlier; return whether its group is new."""
        new = self._learn(member)
        if not self._arrived(member.id) and member.id not in self._over:
            self._group[member.id].absent -= 1
        return new

    def _learn(self, member: Member) -> bool:
        """Check a member and add it to the known ones; return whether its group is new."""
        group = self._group.get(member.id)
        if group is None:
            self._check_new(member)
            self._enter(member)
        elif (group.ids, group.overshadows) != (member.group, member.overshadows):
            raise InvalidInput(f"segment {member.id} is known with another group or other inputs")
        self._known.setdefault(member.id, member)
        return group is None

    def _check_new(self, member: Member) -> None:
        if member.id not in member.group:
            raise InvalidInput(f"segment {member.id} is not in its own group")
        if not member.group.isdisjoint(member.overshadows):
            raise InvalidInput(f"the group of segment {member.id} overshadows a part of itself")
        for name in member.group:
            if name in self._group:
                raise InvalidInput(f"segment {name} is in two groups")
        for name in member.overshadows:
            if name in self._over:
                raise InvalidInput(f"segment {name} is overshadowed by two groups")

    def _enter(self, member: Member) -> None:
        """Add the group of a member that is the first one known of it."""
        group = _Group(member.group, member.overshadows)
        group.absent = sum(name not in self._over for name in group.ids)
        for name in group.ids:
            self._group[name] = group
        for name in group.overshadows:
            self._over[name] = group
            below = self._group.get(name)
            if below is not None and not self._arrived(name):
                below.absent -= 1

    def _arrived(self, name: str) -> bool:
        return name in self._online or name in self._lost

    def _step(self, member_id: str) -> Swap:
        """Update the states of all members connected with a member."""
        return self._update(self._component(self._group[member_id]))

    def _update(self, component: set[_Group]) -> Swap:
        """Update the states of all members of connected groups; return what changed."""
        formed = self._formed(component)
        in_force = formed - self._fallen(formed)
        names = {name for group in component for name in group.ids}
        front = {n for group in in_force for n in group.ids if self._over.get(n) not in in_force}
        for name in names & self._online:
            behind: State = "overshadowed" if self._group[name] in in_force else "standby"
            self._states[name] = "visible" if name in front else behind
        before, after = names & self._visible, front & self._online
        self._visible.difference_update(before)
        self._visible.update(after)
        self._missing.difference_update(names)
        self._missing.update(front - after)
        return Swap(frozenset(after - before), frozenset(before - after))

    def _component(self, start: _Group) -> set[_Group]:
        """Return the groups connected by overshadowing, over any number of hops."""
        component, queue = {start}, [start]
        while queue:
            group = queue.pop()
            for neighbour in (*self._above(group), *self._below(group)):
                if neighbour not in component:
                    component.add(neighbour)
                    queue.append(neighbour)
        return component

    def _above(self, group: _Group) -> Iterator[_Group]:
        """Yield the groups that overshadow members of this one."""
        return (self._over[name] for name in group.ids if name in self._over)

    def _below(self, group: _Group) -> Iterator[_Group]:
        """Yield the known groups that have members overshadowed by this one."""
        return (self._group[name] for name in group.overshadows if name in self._group)

    def _formed(self, groups: set[_Group]) -> set[_Group]:
        """Return the formed groups among connected ones (R14.10), by removing the others."""
        formed = set(groups)
        queue = [group for group in groups if group.absent]
        while queue:
            group = queue.pop()
            if group not in formed:
                continue
            formed.remove(group)
            queue.extend(self._above(group))
            queue.extend(
                self._group[name]
                for name in group.overshadows
                if name in self._group and not self._arrived(name)
            )
        return formed

    def _fallen(self, formed: set[_Group]) -> set[_Group]:
        """Return the formed groups that fall (R14.11)."""
        broken = {
            group
            for group in formed
            if any(n in self._lost and self._over.get(n) not in formed for n in group.ids)
        }
        if not broken:
            return set()
        falls_with = {group: self._falls_with(group, formed) for group in formed}
        leads_to: dict[_Group, list[_Group]] = {group: [] for group in formed}
        for group, others in falls_with.items():
            for other in others:
                leads_to[other].append(group)
        stuck = _reached({group for group in formed if not self._may_fall(group)}, leads_to)
        return _reached(broken - stuck, falls_with)

    def _falls_with(self, group: _Group, formed: set[_Group]) -> list[_Group]:
        """Return the groups that have to fall when this one does."""
        lower = (n for n in group.overshadows if n in self._group and n not in self._online)
        upper = (above for above in self._above(group) if above in formed)
        return [*upper, *(self._group[name] for name in lower)]

    def _may_fall(self, group: _Group) -> bool:
        """Say whether the group overshadows something, all of which is known."""
        known = all(n in self._online or n in self._group for n in group.overshadows)
        return bool(group.overshadows) and known


def _reached(start: set[_Group], edges: dict[_Group, list[_Group]]) -> set[_Group]:
    reached, queue = set(start), [*start]
    while queue:
        for group in edges[queue.pop()]:
            if group not in reached:
                reached.add(group)
                queue.append(group)
    return reached
