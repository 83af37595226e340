"""The shared part of the models: the log as a tree of all possible histories, and one slot.

A state is `(head, flying, actors, objects, faults)`: a node of the tree, the delayed requests, the
actors' own states, the epochs of the data objects, and what may still go wrong. An actor's state is
`(at, base, commit, memo)`: the position in its program, the last node that it read, the
transactions for the slot after that, and other variables. Every step is one request to the store,
or something between two requests.
"""

from __future__ import annotations

from itertools import permutations
from typing import ClassVar

from model.rules import Rules
from model.terms import State, Txn

LOST, DELAYED, CRASH = range(3)  # faults, as indexes into `faults`


class Log:
    """All histories of one table: a node is a version of one of them, with its history."""

    def __init__(self, rules: Rules, start: State) -> None:
        self.rules = rules
        self.states = [start]
        self.versions = [start.version]
        self.paths: list[tuple[int, ...]] = [(0,)]
        self.commits: list[tuple[int, ...]] = [()]
        self.accepted: list[frozenset[int]] = [frozenset()]  # ids accepted in this very commit
        self.numbers: list[frozenset[int]] = [frozenset()]  # and the numbers of those transactions
        self.txns: list[Txn] = []
        self._numbers: dict[Txn, int] = {}
        self._nodes: dict[tuple[int, tuple[int, ...]], int] = {}

    def number(self, txn: Txn) -> int:
        """A small number for a transaction."""
        if txn not in self._numbers:
            self._numbers[txn] = len(self.txns)
            self.txns.append(txn)
        return self._numbers[txn]

    def after(self, base: int, commit: tuple[int, ...]) -> int:
        """The node of `commit` in the slot after `base`."""
        key = (base, commit)
        node = self._nodes.get(key)
        if node is None:
            txns = [self.txns[number] for number in commit]
            state, verdicts = self.rules.fold(self.states[base], txns)
            node = self._nodes[key] = len(self.states)
            self.states.append(state)
            self.versions.append(state.version)
            self.paths.append((*self.paths[base], node))
            self.commits.append(commit)
            took = frozenset(n for n, void in zip(commit, verdicts, strict=True) if not void)
            self.numbers.append(took)
            self.accepted.append(frozenset(self.txns[n].id for n in took))
        return node

    def at(self, node: int, version: int) -> int:
        """The node of an earlier (or the same) version in the history of `node`."""
        return self.paths[node][max(0, version - self.versions[0])]

    def void(self, base: int, txn: int) -> bool:
        """Return whether a transaction alone would be void in the slot after `base`."""
        node = self.after(base, (txn,))
        return self.txns[txn].id not in self.accepted[node]


class World:
    """A model of several actors that commit to one log.

    Args:
        faults: the number of answers that may be lost, requests delayed, and actors crashed.
        off: disabled guards, of the rules or of the actors.
    """

    name = "world"
    GUARDS: ClassVar[dict[str, str]] = {}  # the actors' own guards

    def __init__(self, faults=(1, 1, 1), off=(), start: State | None = None, frames=0) -> None:
        self.off = frozenset(off)
        self.log = Log(Rules(self.off - set(self.GUARDS), frames), start or State())
        self.faults = faults
        self.actors: list = []
        self.objects: tuple = ()
        self.symmetric: tuple[tuple[int, ...], ...] = ()  # groups of interchangeable actors
        self._perms: list[dict[int, int]] | None = None
        self._renamed: dict[tuple[int, int], int] = {}
        self._renumbered: dict[tuple[int, int], int] = {}

    def initial(self):
        """See `checker.Model`."""
        return (
            0,
            (),
            tuple(self.first(i) for i in range(len(self.actors))),
            self.objects,
            self.faults,
        )

    def first(self, i: int) -> tuple:
        """The state in which actor `i` starts."""
        return ("start", 0, (), ())

    def act(self, state, i: int, actor: tuple):
        """The steps of actor `i` that are its model's own."""
        raise NotImplementedError

    def committed(self, state, i: int, actor: tuple, node: int) -> tuple:
        """The actor's state after its commit was confirmed at `node`."""
        return ("acked", node, actor[2], actor[3])

    def steps(self, state):
        """See `checker.Model`."""
        _, flying, actors, _, _ = state
        for n, request in enumerate(flying):
            yield self._land(state, request, (*flying[:n], *flying[n + 1 :]))
        for i, actor in enumerate(actors):
            if actor[0] == "put":
                yield from self._put(state, i, actor)
            elif actor[0] == "look":
                yield from self._look(state, i, actor)
            yield from self.act(state, i, actor)

    def who(self, i: int) -> str:
        """An actor's name in a counterexample."""
        return f"{self.actors[i]} {i}"

    def _land(self, state, request, flying):
        """A delayed request reaches the store; it has no effect if its slot is taken."""
        head, _, actors, objects, faults = state
        base, commit = request
        if base < 0:
            gone = tuple(-2 if s == commit[0] else e for s, e in enumerate(objects))
            return f"the delayed DELETE of object {commit[0]} lands", (
                head,
                flying,
                actors,
                gone,
                faults,
            )
        node = self.log.after(base, commit)
        label = f"the delayed PUT of slot {self.log.versions[node]} lands: {self.say(commit)}"
        return label, self.settled((node, flying, actors, objects, faults))

    def settled(self, state):
        """Remove delayed PUTs of taken slots: they will be refused."""
        head, flying, actors, objects, faults = state
        if not flying:
            return state
        kept = tuple(request for request in flying if request[0] < 0 or request[0] == head)
        return (head, kept, actors, objects, faults)

    def say(self, commit) -> str:
        """A commit as text."""
        return "; ".join(
            f"txn {t.id} " + (", ".join(map(str, t.actions)) or f"app {t.app}")
            for t in (self.log.txns[number] for number in commit)
        )

    def moved(
        self, state, i: int, actor: tuple, *, head=None, objects=None, fault=None, flying=None
    ):
        """The state after an actor's step."""
        faults = state[4]
        if fault is not None:
            faults = tuple(n - (k == fault) for k, n in enumerate(faults))
        actors = (*state[2][:i], actor, *state[2][i + 1 :])
        flying = state[1] if flying is None else flying
        objects = state[3] if objects is None else objects
        if head is None:
            return (state[0], flying, actors, objects, faults)
        return self.settled((head, flying, actors, objects, faults))

    def _put(self, state, i: int, actor: tuple):
        """PUT of a commit slot. (After a definite failure it is retried: the state is the same.)"""
        head, flying, _, _, faults = state
        _, base, commit, _ = actor
        slot = self.log.versions[base] + 1
        label = f"{self.who(i)}: PUT slot {slot} ({self.say(commit)}): "
        look = self.unclear(actor)
        if base == head:
            node = self.log.after(base, commit)
            done = self.committed(state, i, actor, node)
            yield label + "created", self.moved(state, i, done, head=node)
            if faults[LOST]:
                yield (
                    label + "created, the answer is lost",
                    self.moved(state, i, look, head=node, fault=LOST),
                )
            if faults[DELAYED]:
                later = tuple(sorted((*flying, (base, commit))))
                yield (
                    label + "no answer, it is under way still",
                    self.moved(state, i, look, fault=DELAYED, flying=later),
                )
        else:
            yield label + "refused", self.moved(state, i, self.refused(actor))
        if faults[LOST]:
            yield label + "no answer, not stored", self.moved(state, i, look, fault=LOST)

    def unclear(self, actor: tuple) -> tuple:
        """The actor's state after an unclear answer: it reads the slot."""
        return ("look", *actor[1:])

    def refused(self, actor: tuple) -> tuple:
        """The actor's state if the slot is taken: it reads the slot."""
        return ("look", *actor[1:])

    def _look(self, state, i: int, actor: tuple):
        """GET of the slot: its own commit, another one, or empty."""
        head = state[0]
        _, base, commit, memo = actor
        slot = self.log.versions[base] + 1
        label = f"{self.who(i)}: GET slot {slot}: "
        if base == head:
            yield label + "absent, the same again", self.moved(state, i, ("put", *actor[1:]))
            yield label + "absent, gives up", self.moved(state, i, ("unknown", *actor[1:]))
            return
        node = self.log.at(head, slot)
        if self.stands(node, commit):
            yield label + "ours", self.moved(state, i, self.committed(state, i, actor, node))
        else:
            yield label + "another's", self.moved(state, i, ("read", base, commit, memo))

    def stands(self, node: int, commit: tuple[int, ...]) -> bool:
        """Return whether the first transaction of `commit` took effect at `node`."""
        return self.log.txns[commit[0]].id in self.log.accepted[node]

    def rename(self, txn: Txn, names: dict[int, int]) -> Txn:
        """The same transaction with the actors renamed: for models with `symmetric` actors."""
        raise NotImplementedError

    def rename_actor(self, actor: tuple, perm: int, names: dict[int, int]) -> tuple:
        """The same local state with the actors renamed."""
        at, base, commit, memo = actor
        return (at, self._node(base, perm), self._commit(commit, perm), memo)

    def canonical(self, state):
        """The smallest of the states that differ only in the names of interchangeable actors."""
        if not self.symmetric:
            return state
        if self._perms is None:
            self._perms = self._all_perms()
        return min([state, *(self._permuted(state, p) for p in range(len(self._perms)))])

    def _all_perms(self) -> list[dict[int, int]]:
        perms = [dict[int, int]()]
        for group in self.symmetric:
            perms = [
                {**perm, **dict(zip(group, other, strict=True))}
                for perm in perms
                for other in permutations(group)
            ]
        return perms[1:]  # the first one changes nothing

    def _permuted(self, state, perm: int):
        head, flying, actors, objects, faults = state
        names = self._perms[perm]
        renamed = list(actors)
        for i, actor in enumerate(actors):
            renamed[names.get(i, i)] = self.rename_actor(actor, perm, names)
        late = sorted((self._node(b, perm), self._commit(c, perm)) for b, c in flying)
        return (self._node(head, perm), tuple(late), tuple(renamed), objects, faults)

    def _commit(self, commit, perm: int):
        return tuple(self._number(number, perm) for number in commit)

    def _number(self, number: int, perm: int) -> int:
        key = (number, perm)
        found = self._renumbered.get(key)
        if found is None:
            txn = self.rename(self.log.txns[number], self._perms[perm])
            found = self._renumbered[key] = self.log.number(txn)
        return found

    def _node(self, node: int, perm: int) -> int:
        key = (node, perm)
        found = self._renamed.get(key)
        if found is None:
            found = 0
            for step in self.log.paths[node][1:]:
                found = self.log.after(found, self._commit(self.log.commits[step], perm))
            self._renamed[key] = found
        return found
