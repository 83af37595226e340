"""Model 2: slow writers, vacuums, pins, readers, restores around one table (hazards V, K1, K7)."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from model.programs import DELETED, NEVER, Programs
from model.terms import Entry, Fence, Horizon, State, Sweep, Swept, Txn, named
from model.world import CRASH, DELAYED

START = State(version=2, live=frozenset({Entry(0, 0, 0, 1, 0, 3), Entry(1, 0, 1, 2, 0)}))


class Vacuums(Programs):
    """Any of "append", "twin" (of actor 0), "replace" (of the first live segment), "overwrite" (of
    the last one), "shrink" (deletes a row of the first live segment by its position), "restore",
    "vacuum", "pin", "break" and "read" around one table.

    Args:
        actors: what each actor does.
        lags: how far below its own version a vacuum's commit may set the fence and the horizon.
        runs: the most times that a vacuum starts.
        options: see `World`.
    """

    GUARDS: ClassVar = {
        "live_after_fence": "V3: the live set is read at the fence's commit or later",
        "live_at_head": "K7: the live set is read at F, not at the horizon",
        "epoch_below_fence": "V1, R12.4: only epochs below the fence are deleted",
        "vectors_live": "R12.4: an object of vectors is live while a live entry names it",
        "dropped_after_horizon": "V2, R12.4: segments dropped after the horizon are kept",
        "fence_settled": "R12.5: nothing is deleted before F is known to be in the log",
        "horizon_committed": "R12.5: the horizon is committed before it applies",
        "pending_kept": "R12.9: the record names dropped segments that had to be kept",
        "last_drop": "R12.5: of several drops of one segment the last one counts",
        "live_is_done": "R12.8: an add that is already live is not copied, fenced or not",
        "restage_id": "R12.8: a fenced add is copied, not committed with another epoch",
    }

    def __init__(self, actors, name="vacuum", lags=((0, 1),), runs=1, **options) -> None:
        super().__init__(start=START, **options)
        self.name, self.actors, self.lags, self.runs = name, list(actors), lags, runs
        self.objects = (0, 1, *(NEVER for _ in range(2 * len(self.actors))))
        self.needed = cache(self._needed)
        self.drops = cache(self._drops)
        self.times = cache(self._times)
        self.double = cache(self._double)

    def first(self, i):
        return ("start", 0, (), self.runs if self.actors[i] == "vacuum" else ())

    def act(self, state, i, actor):
        if actor[0] in ("end", "dead", "lost"):
            return
        yield from getattr(self, f"_{self.actors[i]}")(state, i, actor)
        if state[4][CRASH] and actor[0] not in ("start", "acked"):
            yield f"{self.who(i)}: crashes", self.moved(state, i, self._dead(i, actor), fault=CRASH)

    def _dead(self, i, actor):
        if self.actors[i] != "vacuum":
            return ("dead", 0, (), ())
        return ("start", 0, (), _runs_left(actor[3]))

    def committed(self, state, i, actor, node):
        if self.actors[i] == "vacuum":
            return self._fenced(actor, node)
        return ("acked", node, actor[2], actor[3])

    def unclear(self, actor):
        settled = "fence_settled" not in self.off or not isinstance(actor[3], tuple)
        if not settled and actor[3] and actor[3][0] == "plan":
            return self._fenced(actor, self.log.after(actor[1], actor[2]))
        return super().unclear(actor)

    def _vacuum(self, state, i, actor):
        """memo: runs left; then ("plan", lag, first head); then what `_fenced` returns."""
        at, _, _, memo = actor
        head, name = state[0], self.who(i)
        if at == "start" and memo:
            for lag in self.lags:
                yield (
                    f"{name}: starts, lag {lag}",
                    self.moved(state, i, ("read", head, (), ("plan", lag, head, memo - 1))),
                )
        elif at == "read" and memo[0] == "plan":
            yield from self._propose(state, i, actor)
        elif at == "read":  # the record was refused: judge again
            yield from self._record(state, i, actor)
        elif at == "list":
            yield from self._list(state, i, actor)
        elif at == "delete":
            yield from self._delete(state, i, actor)
        elif at == "unknown":
            again = ("start", 0, (), _runs_left(memo))
            yield f"{name}: starts again", self.moved(state, i, again)

    def _propose(self, state, i, actor):
        head, (_, lag, _, runs) = state[0], actor[3]
        now = self._state(head)
        fence, wanted = (now.version + 1 - below for below in lag)
        pins = () if "horizon_pins" in self.off else (pin.version for pin in now.pins)
        acked = () if "horizon_replicas" in self.off else (r.acked for r in now.replicas)
        horizon = min([wanted, *pins, *acked])
        actions = []
        if fence > now.fence:
            actions.append(Fence(fence))
        if horizon > now.horizon and "horizon_committed" not in self.off:
            actions.append(Horizon(horizon))
        if not actions:
            yield f"{self.who(i)}: nothing to give up", self.moved(state, i, ("start", 0, (), runs))
            return
        yield from self._put_or(
            state, i, actor, Txn(50 + i, tuple(actions)), ("start", 0, (), runs)
        )

    def _fenced(self, actor, node):
        """After the commit of fence and horizon F; or after that of the record."""
        memo = actor[3]
        if memo[0] != "plan":
            return ("start", 0, (), memo[0])
        first = self._state(node).swept.fence if self._state(node).swept else 0
        seen = memo[2] if "live_after_fence" in self.off else node
        return ("list", node, (), (memo[3], first, (), seen))

    def _list(self, state, i, actor):
        """LIST of one epoch after the other; memo: (runs, next epoch, found, live set read at)."""
        _, node, _, (runs, epoch, found, seen) = actor
        last = self._state(node).fence
        if "epoch_below_fence" in self.off:
            last = max(last, self.log.versions[state[0]] + 1)
        if epoch < last:
            here = tuple(s for s, e in enumerate(state[3]) if e == epoch)
            yield (
                f"{self.who(i)}: LIST epoch {epoch}: {here}",
                self.moved(state, i, ("list", node, (), (runs, epoch + 1, found + here, seen))),
            )
            return
        dead, pending = self._judge(node, seen, found, state[3])
        after = ("delete", node, (), (runs, dead, pending))
        yield (
            f"{self.who(i)}: GET commits: dead are {dead}, pending {pending}",
            self.moved(state, i, after),
        )

    def _judge(self, node, seen, found, objects):
        """R12.5: the candidates that are dead at F, and the dropped ones to keep for now."""
        now = self._state(node)
        last = now.swept or Sweep(0, 0, 0)  # without a record: every drop there was
        dropped = {s: (e, v) for s, e, v in last.pending}
        for seg, epoch, version in self.drops(node):
            known = seg in dropped and "last_drop" in self.off
            if version > last.version and not known:
                dropped[seg] = (epoch, version)
        horizon = now.horizon
        if "horizon_committed" in self.off:
            horizon = now.version - 1
        at = self.log.at(seen, horizon) if "live_at_head" in self.off else seen
        entries = self._state(at).live
        live = {e.seg for e in entries} if "vectors_live" in self.off else {*named(entries)}
        dead, pending = [], []
        for seg in sorted({*found, *dropped} - live):
            epoch, version = dropped.get(seg, (objects[seg], 0))
            stays = version > horizon and "dropped_after_horizon" not in self.off
            stays = stays or (epoch >= now.fence and "epoch_below_fence" not in self.off)
            if not stays:
                dead.append(seg)
            elif seg in dropped:
                pending.append((seg, epoch, version))
        return tuple(dead), tuple(pending) if "pending_kept" not in self.off else ()

    def _delete(self, state, i, actor):
        """One DELETE at a time; memo: (runs, dead, pending)."""
        _, node, _, (runs, dead, pending) = actor
        if not dead:
            yield from self._record(state, i, actor)
            return
        after = ("delete", node, (), (runs, dead[1:], pending))
        label = f"{self.who(i)}: DELETE object {dead[0]}"
        gone = tuple(DELETED if s == dead[0] else e for s, e in enumerate(state[3]))
        yield label, self.moved(state, i, after, objects=gone)
        if state[4][DELAYED]:
            later = tuple(sorted((*state[1], (-1, dead[:1]))))
            yield label + " is delayed", self.moved(state, i, after, flying=later, fault=DELAYED)

    def _record(self, state, i, actor):
        """The record; memo: (runs, dead, pending), or (runs, record) once it was formed."""
        _, node, _, memo = actor
        if len(memo) == 3:
            now = self._state(node)
            memo = (memo[0], Sweep(now.fence, now.horizon, now.version, memo[2]))
        txn = Txn(70 + i, (Swept(memo[1]),))
        ending = ("start", 0, (), memo[0])
        yield from self._put_or(state, i, ("read", node, (), memo), txn, ending)

    def _drops(self, node) -> tuple[tuple[int, int, int], ...]:
        """(object, epoch, version) of every drop in a history."""
        found = []
        for before, after in zip(self.log.paths[node], self.log.paths[node][1:], strict=False):
            then, now = (named(self._state(at).live) for at in (before, after))
            gone = then.keys() - now.keys()
            found += sorted((one, then[one], self.log.versions[after]) for one in gone)
        return tuple(found)

    def _needed(self, node) -> frozenset[int]:
        """The objects live at a version from the horizon to the head, or at a pinned one."""
        now = self._state(node)
        kept = {*range(self._oldest(node), now.version + 1), *(p.version for p in now.pins)}
        return frozenset(one for v in kept for one in named(self._state(self.log.at(node, v)).live))

    def _double(self, node) -> bool:
        live = self._state(node).live
        return len({entry.seg for entry in live}) < len(live)

    def _times(self, node) -> tuple[int, ...]:
        """How often each actor's own transaction took effect in a history."""
        ids = [t for n in self.log.paths[node] for t in self.log.accepted[n]]
        return tuple(ids.count(10 + i) for i in range(len(self.actors)))

    def problem(self, state):
        head, _, actors, objects, _ = state
        for seg in self.needed(head):
            if objects[seg] < 0:
                return (
                    f"object {seg} is gone, and live at a version from the horizon "
                    f"{self._state(head).horizon} to the head, or at a pinned one"
                )
        if self.double(head):
            return "a segment is live twice"
        for i, actor in enumerate(actors):
            if actor[0] == "lost":
                return f"{self.who(i)}: data loss at a version that was not given up"
            pair = {2 + 2 * i, 3 + 2 * i}
            if pair <= {entry.seg for entry in self._state(head).live}:
                return f"{self.who(i)}: its rows are live twice"
            if (
                self.actors[i] == "append"
                and "twin" not in self.actors
                and (self.times(head)[i] > 1)
            ):
                return f"{self.who(i)}: its append took effect twice"
            if actor[0] == "acked" and self.actors[i] == "append" and not self.times(head)[i]:
                return f"{self.who(i)} was acknowledged and is not in the log"
        return None


def _runs_left(memo) -> int:
    """The number of times that a vacuum may still start."""
    if isinstance(memo, int):
        return memo
    return memo[3] if memo[0] == "plan" else memo[0]
