"""Model 5: replicators, and branches, beside a vacuum (hazard G5).

A copy is attached: the vacuum of its table keeps every version that it has not acknowledged. Who
empties the copy ends the attachment, and attaches it anew: the token of the new one is another, so
what the replicator of before acknowledges is void.

A branch reads what its parent had at the fork, as long as the object is there that says where it
forks. A pin keeps that from vacuum: it is set before the object is written, and removed after the
object was deleted.
"""

from __future__ import annotations

from typing import ClassVar

from model.programs import DELETED
from model.terms import Ack, Attach, Break, Detach, SetPin, Txn, Unpin, named
from model.vacuums import Vacuums

COPY, BRANCH = "copy", "branch"
FORK = -1  # the last object; no epoch is as great as what it holds
FORKED_AT = 1000


class Copies(Vacuums):
    """As `Vacuums`, and "follow" and "empty" of one copy, "branch" and "delete" of one branch."""

    GUARDS: ClassVar = {
        "copied_first": "R12.2: a version is acknowledged once all that it needs is copied",
        "pin_first": "R16.6: a branch is pinned before it is there",
        "unpin_last": "R16.7: a branch is unpinned once it is gone",
    }

    def __init__(self, actors, name="copies", **options) -> None:
        super().__init__(actors, name=name, **options)
        self.objects = (*self.objects, DELETED)

    # ------------------------------------------------------------------------------------- copies

    def _follow(self, state, i, actor):
        """memo: ("attach", version), ("get", token, last, segments), ("ack", …), ("leave", token).

        An acknowledgement has the memo of the copying that it follows, or that follows it.
        """
        at, base, _, memo = actor
        head, who = state[0], self.who(i)
        if at == "start":
            oldest = self._oldest(head)
            after = ("read", 0, (), ("attach", oldest))
            yield f"{who}: a copy is to begin at {oldest}", self.moved(state, i, after)
        elif at == "read":
            yield from self._put_or(state, i, actor, self._of_copy(i, memo), ("end", 0, (), ()))
        elif at == "get":
            yield from self._get(state, i, actor)
        elif at == "acked" and memo[0] == "attach":
            todo = self._todo(head, self.log.versions[base], memo[1])
            ready = "get" if "copied_first" not in self.off else "read"
            after = (ready, 0, (), todo)
            yield f"{who}: opens version {self.log.versions[head]}", self.moved(state, i, after)
        elif at == "acked" and memo[0] == "ack":
            after = ("get" if memo[3] else "read", 0, (), memo if memo[3] else ("leave", memo[1]))
            yield f"{who}: has acknowledged {memo[2]}", self.moved(state, i, after)

    def _of_copy(self, i, memo) -> Txn:
        match memo:
            case ("attach", version):
                return Txn(10 + i, (Attach(COPY, version, "me"),))
            case ("ack", token, version, _):
                return Txn(30 + i, (Ack(COPY, token, version),))
            case ("leave", token):
                return Txn(70 + i, (Detach(COPY, token),))
            case _:
                return Txn(90 + i, (Break("replica", COPY, memo[1]),))

    def _todo(self, head, token, first):
        """What to copy of the versions from `first` to that of `head`, and to acknowledge."""
        last = self.log.versions[head]
        versions = range(max(first, self.log.versions[0]), last + 1)
        live = (self._state(self.log.at(head, version)).live for version in versions)
        return "ack", token, last, tuple(sorted({one for some in live for one in named(some)}))

    def _get(self, state, i, actor):
        _, token, last, wanted = actor[3]
        if not wanted:
            ready = ("read", 0, (), ("ack", token, last, ()))
            if "copied_first" in self.off:
                ready = ("read", 0, (), ("leave", token))
            yield f"{self.who(i)}: has copied all", self.moved(state, i, ready)
            return
        after = ("get", 0, (), ("ack", token, last, wanted[1:]))
        if state[3][wanted[0]] < 0:  # nobody keeps it for a copy that is not attached any more
            held = any(r.token == token for r in self._state(state[0]).replicas)
            after = ("lost" if held else "end", 0, (), ())
        yield f"{self.who(i)}: GET object {wanted[0]}", self.moved(state, i, after)

    def _empty(self, state, i, actor):
        """Empties the copy and attaches it anew. memo: ("break", token), then as `_follow`."""
        at, _, _, memo = actor
        if at == "start":
            for seen in sorted(self._state(state[0]).replicas):
                after = ("read", 0, (), ("break", seen.token))
                yield f"{self.who(i)}: sees attachment {seen.token}", self.moved(state, i, after)
        elif at == "acked" and memo[0] == "break":
            after = ("read", 0, (), ("attach", self._oldest(state[0])))
            yield f"{self.who(i)}: empties the copy", self.moved(state, i, after)
        else:
            yield from self._follow(state, i, actor)

    # ----------------------------------------------------------------------------------- branches

    def _branch(self, state, i, actor):
        """Makes the branch, and once more. memo: (turn, version)."""
        at, _, _, memo = actor
        head, who = state[0], self.who(i)
        if at == "start":
            yield f"{who}: forks at {self.log.versions[head]}", self._forking(state, i, 0)
        elif at == "fork":
            objects = (*state[3][:FORK], FORKED_AT + memo[1])
            after = ("read" if "pin_first" in self.off else "made", 0, (), memo)
            yield f"{who}: PUT of the fork", self.moved(state, i, after, objects=objects)
        elif at == "read":
            turn, version = memo
            txn = Txn(10 + i + 20 * turn, (SetPin(BRANCH, version, "me"),))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))
        elif at == "acked" and "pin_first" not in self.off:
            yield f"{who}: is pinned", self.moved(state, i, ("fork", 0, (), memo))
        elif at in ("made", "acked") and memo[0] == 0 and state[3][FORK] == DELETED:
            yield f"{who}: forks again", self._forking(state, i, 1)

    def _forking(self, state, i, turn):
        ready = "fork" if "pin_first" in self.off else "read"
        return self.moved(state, i, (ready, 0, (), (turn, self.log.versions[state[0]])))

    def _delete(self, state, i, actor):
        """Deletes the branch; of a vacuum, its DELETEs. memo: the token of the pin."""
        if self.actors[i] == "vacuum":
            yield from super()._delete(state, i, actor)
            return
        at, _, _, memo = actor
        who = self.who(i)
        if at == "start" and state[3][FORK] >= 0:
            first = "read" if "unpin_last" in self.off else "gone"
            for pin in sorted(self._state(state[0]).pins):
                yield (
                    f"{who}: sees pin {pin.token}",
                    self.moved(state, i, (first, 0, (), (pin.token,))),
                )
        elif at == "gone" or (at == "acked" and "unpin_last" in self.off):
            after = ("end" if at == "acked" else "read", 0, (), memo)
            objects = (*state[3][:FORK], DELETED)
            yield f"{who}: DELETE of the fork", self.moved(state, i, after, objects=objects)
        elif at == "read":
            txn = Txn(70 + i, (Unpin(BRANCH, "me", memo[0]),))
            yield from self._put_or(state, i, actor, txn, ("end", 0, (), ()))

    def problem(self, state):
        """See `checker.Model`."""
        fork, head = state[3][FORK], state[0]
        if fork >= FORKED_AT:
            live = self._state(self.log.at(head, fork - FORKED_AT)).live
            gone = [one for one in named(live) if state[3][one] < 0]
            if gone:
                return f"a branch reads object {gone[0]}, which is gone"
        return super().problem(state)
