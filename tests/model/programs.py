"""The actors other than vacuum: appenders, replacers, restores, pins and readers.

Objects are numbered: 0 and 1 are live from the first version on, actor i stages 2 + 2i, and copies
it to 3 + 2i if it was fenced. `objects` has the epoch of each, -1 before it exists, -2 once it is
deleted.
"""

from __future__ import annotations

from model.terms import (
    Add,
    Break,
    DeleteRows,
    Drop,
    Replace,
    Restore,
    SetPin,
    Txn,
    Unpin,
    Vector,
    named,
)
from model.world import World

NEVER, DELETED = -1, -2


class Programs(World):
    """The actors that no vacuum may harm; each is a method."""

    def _state(self, node):
        return self.log.states[node]

    def _oldest(self, node) -> int:
        """The oldest version of the model at or above the horizon."""
        return max(self.log.versions[0], self._state(node).horizon)

    def _put_or(self, state, i, actor, txn: Txn, otherwise: tuple):
        """Rebase on the head just read: the next step is the PUT, or `otherwise` if it is void."""
        number, head = self.log.number(txn), state[0]
        label = f"{self.who(i)}: reads the head at {self.log.versions[head]}: "
        if self.log.void(head, number):
            yield label + "void", self.moved(state, i, otherwise)
        else:
            yield label + "ready", self.moved(state, i, ("put", head, (number,), actor[3]))

    def _stage(self, state, i, seg, epoch, memo, *, txt="stages"):
        objects = tuple(epoch if s == seg else e for s, e in enumerate(state[3]))
        after = ("read", 0, (), memo)
        return (
            f"{self.who(i)}: {txt} object {seg} in epoch {epoch}",
            self.moved(state, i, after, objects=objects),
        )

    def _append(self, state, i, actor):
        """memo: (segment, epoch)."""
        at, base, commit, memo = actor
        head, objects, name = state[0], state[3], self.who(i)
        if at == "start":
            epoch = self.log.versions[head]
            yield (
                f"{name}: reads epoch {epoch}",
                self.moved(state, i, ("stage", 0, (), (2 + 2 * i, epoch))),
            )
        elif at == "stage":
            yield self._stage(state, i, *memo, memo)
        elif at == "read":
            seg, epoch = memo
            # Check first whether it is already live (committed by a twin): a copy would duplicate
            # it.
            twice = any(entry.seg == seg for entry in self._state(head).live)
            twice = twice and "live_is_done" not in self.off
            late = epoch < self._state(head).fence and not seg % 2 and not twice
            fenced = ("fenced", 0, (), memo) if late else ("end", 0, (), ())
            txn = Txn(10 + i, (Add(seg, 0, epoch),))
            yield from self._put_or(state, i, actor, txn, fenced)
        elif at == "fenced":
            epoch, gone = self.log.versions[head], objects[memo[0]] == DELETED
            if "restage_id" in self.off:
                yield (
                    f"{name}: says that it staged in epoch {epoch}",
                    self.moved(state, i, ("read", 0, (), (memo[0], epoch))),
                )
            elif gone:
                yield f"{name}: its object is gone", self.moved(state, i, ("end", 0, (), ()))
            else:
                yield (
                    f"{name}: reads its object and epoch {epoch}",
                    self.moved(state, i, ("stage", 0, (), (memo[0] + 1, epoch))),
                )
        elif at == "unknown":
            yield f"{name}: is asked again", self.moved(state, i, ("look", base, commit, memo))

    def _twin(self, state, i, actor):
        """Another program with the same transaction as actor 0."""
        at = actor[0]
        if at in ("start", "read"):
            memo = actor[3] or state[2][0][3]
            if memo and state[3][memo[0]] != NEVER:
                txn = Txn(10, (Add(memo[0], 0, memo[1]),))
                yield from self._put_or(state, i, (*actor[:3], memo), txn, ("end", 0, (), ()))

    def _overwrite(self, state, i, actor):
        yield from self._replace(state, i, actor)

    def _replace(self, state, i, actor):
        """memo: (segment, epoch, the dropped entry)."""
        at, head = actor[0], state[0]
        if at == "start" and self._state(head).live:
            choose = min if self.actors[i] == "replace" else max
            entry, epoch = choose(self._state(head).live), self.log.versions[head]
            yield (
                f"{self.who(i)}: plans on version {epoch} to drop {entry.seg}",
                self.moved(state, i, ("stage", 0, (), (2 + 2 * i, epoch, entry))),
            )
        elif at == "stage":
            seg, epoch, _ = actor[3]
            yield self._stage(state, i, seg, epoch, actor[3])
        elif at == "read":
            seg, epoch, entry = actor[3]
            # A rewrite; an overwrite drops its inputs in the same way, but has other rows.
            planned = (Replace(epoch, 0),) if self.actors[i] == "replace" else ()
            new = Add(seg, 0, epoch, entry.left)
            txn = Txn(10 + i, (*planned, Drop(entry), new), read=epoch)
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))

    def _shrink(self, state, i, actor):
        """Deletes a row of the first live segment by its position; memo: (vector, epoch, entry)."""
        at, head = actor[0], state[0]
        if at == "start" and self._state(head).live:
            entry, epoch = min(self._state(head).live), self.log.versions[head]
            yield (
                f"{self.who(i)}: reads {entry.seg} of version {epoch}",
                self.moved(state, i, ("stage", 0, (), (2 + 2 * i, epoch, entry))),
            )
        elif at == "stage":
            yield self._stage(state, i, *actor[3][:2], actor[3])
        elif at == "read":
            made, epoch, entry = actor[3]
            vector = Vector(epoch, entry.rows - entry.left + 1, made)
            txn = Txn(10 + i, (DeleteRows(entry, vector),))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))

    def _restore(self, state, i, actor):
        """memo: (version, entries)."""
        at, head = actor[0], state[0]
        if at == "start":
            live = {entry.seg for entry in self._state(head).live}
            for version in range(self._oldest(head), self.log.versions[head]):
                then = self._state(self.log.at(head, version)).live
                missing = tuple(sorted(e for e in then if e.seg not in live))
                if missing:
                    yield (
                        f"{self.who(i)}: reads what was live at {version}",
                        self.moved(state, i, ("read", 0, (), (version, missing))),
                    )
        elif at == "read":
            version, missing = actor[3]
            adds = (Add(e.seg, 0, e.epoch, e.rows, e.vector) for e in missing)
            txn = Txn(10 + i, (Restore(version), *adds))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))

    def _pin(self, state, i, actor):
        """memo: the version to pin."""
        at, base, _, memo = actor
        head, name = state[0], f"pin{i}"
        if at == "start":
            for version in sorted({self.log.versions[head], self._oldest(head)}):
                yield (
                    f"{self.who(i)}: wants to pin version {version}",
                    self.moved(state, i, ("read", 0, (), (version,))),
                )
        elif at == "read" and len(memo) == 1:
            txn = Txn(10 + i, (SetPin(name, *memo, "me"),))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))
        elif at == "acked" and len(memo) == 1:
            token = self.log.versions[base]
            yield (
                f"{self.who(i)}: has read enough",
                self.moved(state, i, ("read", 0, (), (*memo, token))),
            )
        elif at == "read":
            txn = Txn(30 + i, (Unpin(name, "me", memo[1]),))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))

    def _break(self, state, i, actor):
        """memo: the pin that it saw."""
        at = actor[0]
        if at == "start":
            for pin in sorted(self._state(state[0]).pins):
                yield (
                    f"{self.who(i)}: sees pin {pin.name} of {pin.token}",
                    self.moved(state, i, ("read", 0, (), pin)),
                )
        elif at == "read":
            pin = actor[3]
            txn = Txn(10 + i, (Break("pin", pin.name, pin.token),))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))

    def _read(self, state, i, actor):
        """A reader without a pin; memo: the objects of its version not read yet."""
        at, base, _, memo = actor
        head, objects, name = state[0], state[3], self.who(i)
        if at == "start":
            segs = tuple(sorted(named(self._state(head).live)))
            yield (
                f"{name}: opens version {self.log.versions[head]}",
                self.moved(state, i, ("get", head, (), segs)),
            )
        elif at == "get" and memo:
            if objects[memo[0]] >= 0:
                after = ("get", base, (), memo[1:]) if memo[1:] else ("end", 0, (), ())
                yield f"{name}: GET object {memo[0]}", self.moved(state, i, after)
            else:
                yield (
                    f"{name}: GET object {memo[0]}: missing",
                    self.moved(state, i, ("missing", base, (), ())),
                )
        elif at == "missing":
            told = self.log.versions[base] < self._state(head).horizon
            yield (
                f"{name}: the horizon is {self._state(head).horizon}",
                self.moved(state, i, ("end" if told else "lost", 0, (), ())),
            )
