"""Members of overshadowing that arrive and are lost one by one, resolved after each step."""

from typing import NamedTuple

from eventlog.recovery.overshadowing import resolve


class Swap(NamedTuple):
    """The ids that became visible in a step, and those that are no longer visible."""

    shown: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()


class Arrivals:
    """A replica that receives segments, or a cache that loses them."""

    def __init__(self, online=(), *, lost=(), known=()):
        self.known = list(known)
        self.online = {member.id: member for member in online}
        self.lost = {member.id: member for member in lost}
        self.states = self._resolved()

    def _resolved(self):
        online, lost = self.online.values(), self.lost.values()
        return resolve(online, lost=lost, known=self.known)

    def _step(self):
        before, self.states = self.states.visible, self._resolved()
        return Swap(self.states.visible - before, before - self.states.visible)

    def add(self, member):
        self.lost.pop(member.id, None)
        self.online[member.id] = member
        return self._step()

    def remove(self, name):
        if name in self.online:
            self.lost[name] = self.online.pop(name)
        return self._step()

    @property
    def visible(self):
        return self.states.visible

    @property
    def standby(self):
        return self.states.standby

    @property
    def overshadowed(self):
        return self.states.overshadowed

    @property
    def missing(self):
        return self.states.missing
