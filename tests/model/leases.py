"""Model 3: claims taken, renewed, revoked, broken and worked under (hazards K2, K3)."""

from __future__ import annotations

from functools import cache
from typing import ClassVar, NamedTuple

from model.rules import conflicting
from model.terms import Break, Release, Renew, TakeClaim, Txn
from model.world import CRASH, World


class Worker(NamedTuple):
    """A worker's claim, or a breaker's (empty) one."""

    role: str
    priority: int = 1
    kind: str = "exclusive"
    segments: tuple[int, ...] = ()
    span: tuple[int, int] = (0, 1)

    def __str__(self) -> str:
        return self.role


class Leases(World):
    """Workers that take a claim, work under it and release it; breakers that break what they saw.

    Args:
        workers: roles "work" or "break", and the claims they want.
        tries: the most times that a worker takes its claim, always under the same id.
        options: see `World`.
    """

    GUARDS: ClassVar = {"void_is_told": "R13, F8: work under a lost claim is not a success"}

    def __init__(self, workers, name="claims", tries=2, **options) -> None:
        super().__init__(**options)
        self.name, self.actors, self.tries = name, list(workers), tries
        self.wrong = cache(self._wrong)
        self.worked = cache(self._worked)

    def first(self, i):
        return ("start", 0, (), (self.tries, 0, 0))

    def act(self, state, i, actor):
        if actor[0] in ("end", "dead", "done"):
            return
        steps = self._work if self.actors[i].role == "work" else self._break
        yield from steps(state, i, actor)
        if state[4][CRASH] and actor[0] != "start" and self.actors[i].role == "work":
            again = ("start", 0, (), (actor[3][0], 0, 0))
            yield f"{self.who(i)}: crashes", self.moved(state, i, again, fault=CRASH)

    def _take(self, i) -> TakeClaim:
        want = self.actors[i]
        return TakeClaim(i, *want.span, want.segments, want.kind, want.priority, f"group {i}")

    def _txn(self, i, memo, at) -> Txn:
        """A worker's next step; memo: (tries left, token, renewals)."""
        tries, token, _ = memo
        if at == "take":
            return Txn(100 * tries + i, (self._take(i),))
        if at == "renew":
            return Txn(100 * tries + 10 + i, (Renew(i, token),))
        if at == "work":
            return Txn(100 * tries + 20 + i, claim=(i, token))
        return Txn(100 * tries + 30 + i, (Release(i, token),))

    def _wish(self, commit) -> str:
        step = self.log.txns[commit[0]].id // 10 % 10
        return ("take", "renew", "work", "release", "break")[step]

    def _work(self, state, i, actor):
        at, _, commit, memo = actor
        tries, token, renewals = memo
        if at == "start" and tries:
            yield from self._propose(state, i, "take", (tries - 1, 0, 0))
        elif at == "held":
            if not renewals:
                yield from self._propose(state, i, "renew", (tries, token, 1))
            yield from self._propose(state, i, "work", memo)
        elif at == "worked":
            yield from self._propose(state, i, "release", memo)
        elif at == "read":
            yield from self._propose(state, i, self._wish(commit), memo)
        elif at == "unknown":
            yield f"{self.who(i)}: is asked again", self.moved(state, i, ("look", *actor[1:]))

    def _propose(self, state, i, wish, memo):
        head = state[0]
        txn = self._txn(i, memo, wish)
        number = self.log.number(txn)
        label = f"{self.who(i)}: reads the head at {self.log.versions[head]} to {wish}: "
        if not self.log.void(head, number):
            yield label + "ready", self.moved(state, i, ("put", head, (number,), memo))
            return
        lost = ("done" if wish == "release" else "start", 0, (), (memo[0], 0, 0))
        if wish == "work" and "void_is_told" in self.off:
            lost = ("worked", 0, (), memo)
        if wish != "take":  # waiting for a claim does not change the state
            yield label + "the claim is lost", self.moved(state, i, lost)

    def committed(self, state, i, actor, node):
        tries, token, renewals = actor[3]
        wish = self._wish(actor[2])
        if wish == "take":
            mine = (c for c in self.log.states[node].claims if c.group == f"group {i}")
            token = next((c.token for c in mine), 0)
        following = {"take": "held", "renew": "held", "work": "worked"}.get(wish, "done")
        return (following, 0, (), (tries, token, renewals))

    def _break(self, state, i, actor):
        """memo: (tries left, the claim seen, 0)."""
        at, _, _, (tries, seen, _) = actor
        head = state[0]
        if at == "start" and tries:
            for claim in sorted(self.log.states[head].claims):
                after = ("read", 0, (), (tries - 1, claim, 0))
                label = f"{self.who(i)}: sees claim {claim.id} of {claim.token}, {claim.renewed}"
                yield label, self.moved(state, i, after)
        elif at == "read":
            action = Break("claim", seen.id, seen.token, seen.renewed)
            number = self.log.number(Txn(100 * tries + 40 + i, (action,)))
            after = ("put", head, (number,), actor[3])
            if self.log.void(head, number):
                after = ("start", 0, (), (tries, 0, 0))
            yield f"{self.who(i)}: reads the head to break", self.moved(state, i, after)

    def _wrong(self, node) -> str | None:
        """Track the claims of a history independently, and return the fold's first error."""
        standing: dict[int, list] = {}  # id: [token, last sign of life, what was asked]
        for step in self.log.paths[node][1:]:
            version = self.log.versions[step]
            for number in self.log.commits[step]:
                txn = self.log.txns[number]
                if txn.id not in self.log.accepted[step]:
                    continue
                if txn.claim is not None and standing.get(txn.claim[0], [-1])[0] != txn.claim[1]:
                    return f"version {version} worked under a claim that was lost"
                for action in txn.actions:
                    reason = self._follow(action, version, standing)
                    if reason:
                        return f"version {version}: {reason}"
        claims = sorted(self.log.states[node].claims)
        if any(conflicting(a, b) for a in claims for b in claims if a.id < b.id):
            return "two conflicting claims stand"
        return None if {c.id for c in claims} == set(standing) else "a claim is lost or left over"

    @staticmethod
    def _follow(action, version: int, standing) -> str | None:
        found = standing.get(getattr(action, "id", getattr(action, "name", None)))
        match action:
            case TakeClaim() if found is None:
                for other, (_, _, claim) in list(standing.items()):
                    if conflicting(claim, action):
                        if claim.priority >= action.priority:
                            return f"claim {other} stood in the way of {action.id}"
                        del standing[other]
                standing[action.id] = [version, version, action]
            case Renew() | Release() if found is None or found[0] != action.token:
                return "a claim that is lost was renewed or released"
            case Renew():
                found[1] = version
            case Release():
                del standing[action.id]
            case Break() if found is None or found[1] != action.renewed:
                return "a claim was broken that is not as it was seen"
            case Break():
                del standing[action.name]
        return None

    def _worked(self, node) -> frozenset[int]:
        """The transactions of work in a history."""
        return frozenset(t for n in self.log.paths[node] for t in self.log.accepted[n])

    def problem(self, state):
        head, _, actors, _, _ = state
        for i, (at, _, _, memo) in enumerate(actors):
            if at == "worked" and self._txn(i, memo, "work").id not in self.worked(head):
                return f"{self.who(i)} takes its work for done, and it is void"
        return self.wrong(head)
