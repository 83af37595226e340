"""Model 1: writers that race for slots, lose answers, crash, and retry (hazards C, I).

A job is work to be done once. A plain writer has its own job. Jobs of one name are one unit of work
under an app id, delivered to several writers, each of which restarts after a crash.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from model.terms import Txn
from model.world import CRASH, World


class Commits(World):
    """Writers that carry one transaction each to the head.

    Args:
        jobs: for each writer "plain", or the name of the app whose unit of work it was given.
        options: see `World`.
    """

    GUARDS: ClassVar = {
        "look_when_unclear": "C1: after an unclear answer the slot is read",
        "look_when_refused": "C1: a refused PUT may be one's own earlier one",
        "absent_is_open": "C2: a slot that is empty now may still be filled",
        "same_id": "C8: a retry after unknown has the same id",
        "look_before_retry": "C8: a retry after unknown reads the slot first",
        "unclear_is_no_success": "C2: no acknowledgement without reading the commit",
    }

    def __init__(self, jobs=("plain", "plain", "job"), name="commit", **options) -> None:
        super().__init__(**options)
        self.name = name
        self.actors = [f"{job} writer" for job in jobs]
        self.jobs = jobs
        kinds = sorted(set(jobs))
        groups = (tuple(i for i, j in enumerate(jobs) if j == kind) for kind in kinds)
        self.symmetric = tuple(group for group in groups if len(group) > 1)
        self.effects = cache(self._effects)

    def _txn(self, i: int, attempt: int) -> int:
        job = self.jobs[i]
        app = None if job == "plain" else (job, 1)
        return self.log.number(Txn(10 * i + attempt, app=app))

    def rename(self, txn: Txn, names) -> Txn:
        i = names.get(txn.id // 10, txn.id // 10)
        return Txn(10 * i + txn.id % 10, app=txn.app)

    def first(self, i: int) -> tuple:
        return ("read", 0, (self._txn(i, 0),), ())

    def unclear(self, actor):
        if "unclear_is_no_success" in self.off:
            return ("acked", *actor[1:])
        return ("look" if "look_when_unclear" not in self.off else "read", *actor[1:])

    def refused(self, actor):
        return ("look" if "look_when_refused" not in self.off else "read", *actor[1:])

    def _look(self, state, i, actor):
        if "absent_is_open" in self.off and actor[1] == state[0]:
            # It treats an empty slot as proof that nothing was committed.
            yield f"{self.who(i)}: GET slot: absent", self.moved(state, i, ("failed", *actor[1:]))
            return
        yield from super()._look(state, i, actor)

    def act(self, state, i, actor):
        faults = state[4]
        at, base, commit, memo = actor
        name = self.who(i)
        if at == "read":
            yield from self._read(state, i, actor)
            yield (
                f"{name}: gives up, nothing is open",
                self.moved(state, i, ("failed", base, commit, memo)),
            )
        elif at == "unknown":
            yield f"{name}: is asked again", self.moved(state, i, self._retry(actor, i))
        if faults[CRASH] and at not in ("acked", "failed", "dead"):
            if self.jobs[i] == "plain":
                yield (
                    f"{name}: crashes",
                    self.moved(state, i, ("dead", 0, commit, ()), fault=CRASH),
                )
            else:
                attempt = self.log.txns[commit[0]].id % 10 + 1
                again = ("read", 0, (self._txn(i, attempt),), ())
                yield (
                    f"{name}: crashes and starts again",
                    self.moved(state, i, again, fault=CRASH),
                )

    def _read(self, state, i, actor):
        """LIST and GET of the head, and rebase on it: already done, void, or ready."""
        head = state[0]
        _, _, commit, memo = actor
        label = f"{self.who(i)}: reads the head at {self.log.versions[head]}: "
        if self.log.void(head, commit[0]):
            yield label + "done already", self.moved(state, i, ("acked", head, commit, memo))
        else:
            yield label + "ready", self.moved(state, i, ("put", head, commit, memo))

    def _retry(self, actor, i):
        _, base, commit, memo = actor
        if "same_id" in self.off:
            attempt = self.log.txns[commit[0]].id % 10 + 1
            return ("read", base, (self._txn(i, attempt),), memo)
        if "look_before_retry" in self.off:
            return ("read", base, commit, memo)
        return ("look", base, commit, memo)

    def _effects(self, node: int) -> tuple[int, ...]:
        """How often the work of each writer took effect in a history."""
        txns = [t for n in self.log.paths[node] for t in self.log.accepted[n]]
        done = [self.jobs[t // 10] if self.jobs[t // 10] != "plain" else t // 10 for t in txns]
        return tuple(done.count(i if j == "plain" else j) for i, j in enumerate(self.jobs))

    def problem(self, state):
        for i, (actor, count) in enumerate(zip(state[2], self.effects(state[0]), strict=True)):
            if count > 1:
                return f"the work of {self.who(i)} took effect {count} times"
            if actor[0] == "acked" and count != 1:
                return f"{self.who(i)} was acknowledged and is not in the log"
            if actor[0] == "failed" and count and self.jobs[i] == "plain":
                return f"{self.who(i)} was told that nothing was committed, and it was"
        return None
