"""Model 4: published appends, leaders that include them, windows (section 9.6, P4).

`objects` is the set of intents: the numbers of published transactions.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from model.terms import Txn
from model.world import CRASH, World


class Combining(World):
    """Publishers of appends, and commits of others that advance the version.

    Args:
        actors: "publish", "once" (a publisher of one window only) or "pass" (others' commits).
        window: versions for which a publication waits.
        tries: the most publications of a publisher, under the same id.
        passing: how many commits each "pass" makes.
        options: see `World`.
    """

    GUARDS: ClassVar = {
        "window_over": "R11.3: published again only after the window has passed",
        "commits_of_window": "R11.3: after the window the commits decide, not the marks",
        "one_form": "R11.3: a published transaction is not also committed in another form",
        "void_left_out": "R11.2: a leader leaves out void transactions",
        "listed_is_not_enough": "R11.3: being listed is not an acknowledgement",
    }

    def __init__(
        self,
        actors=("publish", "publish"),
        name="combining",
        window=2,
        tries=2,
        passing=2,
        **options,
    ) -> None:
        super().__init__(**options)
        self.name, self.actors, self.window, self.tries = name, list(actors), window, tries
        self.passing = passing
        roles = ("publish", "once")
        groups = [tuple(i for i, r in enumerate(actors) if r == role) for role in roles]
        self.symmetric = tuple(group for group in groups if len(group) > 1)
        self.effects = cache(self._effects)
        self.late = cache(self._late)

    def first(self, i):
        if self.actors[i] == "pass":
            return ("start", 0, (), (self.passing, 0, ()))
        return ("start", 0, (), (1 if self.actors[i] == "once" else self.tries, 0, ()))

    def rename(self, txn, names):
        i = names.get(txn.id % 10, txn.id % 10)
        return Txn(txn.id - txn.id % 10 + i, until=txn.until)

    def rename_actor(self, actor, perm, names):
        at, base, commit, (tries, until, others) = actor
        memo = (tries, until, tuple(sorted(self._commit(others, perm))))
        return (at, self._node(base, perm), self._commit(commit, perm), memo)

    def _permuted(self, state, perm):
        head, flying, actors, objects, faults = super()._permuted(state, perm)
        return (head, flying, actors, tuple(sorted(self._commit(objects, perm))), faults)

    def act(self, state, i, actor):
        at = actor[0]
        if at in ("acked", "dead", "failed", "end"):
            return
        if self.actors[i] == "pass":
            yield from self._pass(state, i, actor)
            return
        yield from self._publish(state, i, actor)
        if state[4][CRASH] and at != "start":
            after = ("dead", 0, (), (0, 0, ()))
            yield f"{self.who(i)}: crashes", self.moved(state, i, after, fault=CRASH)

    def _pass(self, state, i, actor):
        at, head, (left, _, _) = actor[0], state[0], actor[3]
        if at == "start" and left:
            number = self.log.number(Txn(100 * left + i))
            after = ("put", head, (number,), (left - 1, 0, ()))
            yield f"{self.who(i)}: reads the head", self.moved(state, i, after)
        elif at == "read":
            after = ("put", head, actor[2], actor[3])
            yield f"{self.who(i)}: reads the head", self.moved(state, i, after)
        elif at == "unknown":
            yield f"{self.who(i)}: is asked again", self.moved(state, i, ("look", *actor[1:]))

    def committed(self, state, i, actor, node):
        if self.actors[i] == "pass":
            return ("start", 0, (), actor[3])
        return ("acked", 0, (), (0, 0, ()))

    def _form(self, i, until) -> int:
        return self.log.number(Txn(i, until=until))

    def _publish(self, state, i, actor):
        """memo: (tries left, until, the others' publications seen)."""
        at, base, _, (tries, until, _) = actor
        head, name, intents = state[0], self.who(i), state[3]
        version = self.log.versions[head]
        if at == "start":
            memo = (tries - 1, version + self.window, ())
            yield (
                f"{name}: reads the head at {version}, publishes until {memo[1]} next",
                self.moved(state, i, ("publish", head, (), memo)),
            )
        elif at == "publish":
            more = tuple(sorted({*intents, self._form(i, until)}))
            yield (
                f"{name}: PUT intent until {until}",
                self.moved(state, i, ("list", base, (), actor[3]), objects=more),
            )
        elif at == "list":
            known = self.log.states[base]
            marks = {mark[0] for mark in known.published}
            found = tuple(
                n
                for n in intents
                if (t := self.log.txns[n]).id not in {i, *marks} and t.until > known.version
            )
            yield (
                f"{name}: LIST intents: {found}",
                self.moved(state, i, ("read", base, (), (tries, until, found))),
            )
        elif at == "read":
            yield from self._follow(state, i, actor)
        elif at == "unknown":
            yield f"{name}: is asked again", self.moved(state, i, ("look", *actor[1:]))

    def _follow(self, state, i, actor):
        """Search later commits for the own id; lead if it is absent and the window is open."""
        tries, until, _ = actor[3]
        head, name = state[0], self.who(i)
        version = self.log.versions[head]
        label = f"{name}: reads up to version {version}: "
        if self._found(i, head, until):
            yield label + "it is in", self.moved(state, i, ("acked", 0, (), (0, 0, ())))
            return
        early = "window_over" in self.off and tries > 0
        if version >= until or early:
            if tries:
                yield (
                    label + "publishes again",
                    self.moved(state, i, ("start", 0, (), (tries, 0, ()))),
                )
            if version >= until:
                yield (
                    label + "its window is over",
                    self.moved(state, i, ("failed", 0, (), (0, 0, ()))),
                )
        if version < until and not early:
            yield label + "leads", self.moved(state, i, self._lead(i, actor, head))

    def _lead(self, i, actor, head):
        _, _, _, (_, until, others) = actor
        own = self._form(i, None if "one_form" in self.off else until)
        taken = [own]
        for number in others:
            node = self.log.after(head, (*taken, number))
            fits = self.log.txns[number].id in self.log.accepted[node]
            if fits or "void_left_out" in self.off:
                taken.append(number)
        return ("put", head, tuple(taken), actor[3])

    def _found(self, i, head, until) -> bool:
        """Return whether the publisher considers its transaction committed."""
        if "listed_is_not_enough" in self.off and any(
            self.log.txns[n].id == i
            for step in self.log.paths[head]
            for n in self.log.commits[step]
        ):
            return True
        if "commits_of_window" in self.off:
            return any(mark[0] == i for mark in self.log.states[head].published)
        return self.effects(head)[i] > 0

    def _effects(self, node) -> tuple[int, ...]:
        """How often each publisher's transaction took effect."""
        ids = [t for n in self.log.paths[node] for t in self.log.accepted[n]]
        return tuple(ids.count(i) for i in range(len(self.actors)))

    def _late(self, node) -> str | None:
        for txn in (self.log.txns[number] for number in self.log.numbers[node]):
            if txn.until is not None and txn.until < self.log.versions[node]:
                return f"the append of {self.who(txn.id)} took effect after its window"
        return None

    def problem(self, state):
        head, _, actors, _, _ = state
        counts = self.effects(head)
        for i, role in enumerate(self.actors):
            if role == "pass":
                continue
            if counts[i] > 1:
                return f"the append of {self.who(i)} took effect {counts[i]} times"
            if actors[i][0] == "acked" and not counts[i]:
                return f"{self.who(i)} was acknowledged and is not in the log"
            if actors[i][0] == "failed" and counts[i]:
                return f"{self.who(i)} was told that its window passed, and it is in the log"
        return self.late(head)
