"""Model 7: a log that is cut, with its slots and key frames (hazards C4 and W20, R22.1 to R22.5).

Slots are keys of their own here: each is free, has a commit, or a stub. Writers are suspended
anywhere, vacuums die anywhere, and a second vacuum finishes what the first one left.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

NOBODY = -1  # who committed the versions that are there at the start


class Slot(NamedTuple):
    """What lies under the key of a commit.

    Attributes:
        by: the actor that committed it.
        frame: the key frame that it names; -1: none.
        cut: (version of the cut, version that stays whole, headers seen), if it cuts the log.
        stub: whether a stub is left of it.
    """

    by: int
    frame: int
    cut: tuple[int, int, int] | None = None
    stub: bool = False


class Cuts:
    """Actors around one log: "write" (one commit, over a key frame that it holds), "sleep" (it has
    read version 0, and was suspended before its PUT), "wake" (it put version 1 and got no answer),
    "frame" (writes the key frame of the newest version), "vacuum" (cuts the log).

    A state is (slots, key frames, actors, crashes left). An actor is (at, memo).

    Args:
        actors: what each does.
        off: disabled guards.
        crashes: how often a vacuum dies.
        most: versions that there are at most.
        last: the key frame from which the newest commit starts at first, 1 or 3.
    """

    GUARDS: ClassVar = {
        "slots_stay": "C4, R22.2: a commit below the cut becomes a stub, and its slot is not freed",
        "stub_has_the_hash": "C1, R22.2: a writer finds its own commit in a stub",
        "cut_first": "R22.4: the cut is committed before anything is touched",
        "cut_rises": "R22.1: a cut below another one is void",
        "frames_in_use": "R22.4: key frames stay that versions from the cut on start from",
        "commits_beside": "R22.4: so do those that commits beside the cut start from",
        "frames_above": "R22.3: a commit above the cut starts from a key frame above it",
        "ascending": "R22.5: what is lower goes first, so that the next vacuum finds the rest",
    }

    def __init__(self, actors, off=(), crashes=1, most=7, last=1) -> None:
        self.actors, self.off = list(actors), frozenset(off)
        self.crashes, self.most, self.last = crashes, most, last
        self.name = "cuts " + " ".join(self.actors)

    def initial(self):
        """Versions 0 to 4, with key frames of 1 and 3."""
        waker = self.actors.index("wake") if "wake" in self.actors else NOBODY
        frames = (1, 1, self.last)
        slots = (Slot(NOBODY, -1), Slot(waker, -1), *(Slot(NOBODY, frame) for frame in frames))
        at = {"sleep": ("put", (0, -1)), "wake": ("look", (0, -1))}
        actors = tuple(at.get(name, ("start", ())) for name in self.actors)
        return slots, frozenset({1, 3}), actors, self.crashes

    def canonical(self, state):
        """See `checker.Model`."""
        return state

    def steps(self, state):
        """See `checker.Model`."""
        for i, actor in enumerate(self.actors):
            yield from getattr(self, f"_{actor}")(state, i, *state[2][i])

    def _moved(self, state, i, at, memo=(), *, slots=None, frames=None, crashes=None):
        actors = (*state[2][:i], (at, memo), *state[2][i + 1 :])
        return (
            state[0] if slots is None else slots,
            state[1] if frames is None else frames,
            actors,
            state[3] if crashes is None else crashes,
        )

    def _head(self, state) -> int:
        """The newest version: a LIST shows the first key, whatever is missing below."""
        return len(state[0]) - 1

    def _cut(self, state) -> tuple[int, int, int, int]:
        """The cut, the version from which the log is whole, the headers seen, and its commit."""
        for version in range(self._head(state), -1, -1):
            slot = state[0][version]
            if slot is not None and slot.cut is not None:
                return (*slot.cut, version)
        return 0, 0, 0, 0

    def _write(self, state, i, at, memo):
        """memo: (the head that was read, the key frame that is held, the cut that was read)."""
        slots, frames = state[0], state[1]
        if at == "start":
            head = self._head(state)
            held = {slots[head].frame} | {frame for frame in frames if frame <= head}
            for frame in sorted(held & (frames | {-1})):
                if frame < self._cut(state)[0] and "frames_above" not in self.off:
                    continue
                yield f"{i} reads {head} over {frame}", self._moved(state, i, "put", (head, frame))
        elif at == "put":
            head, frame = memo
            slot = head + 1
            if slot >= self.most:
                return
            if slot < len(slots) and slots[slot] is not None:
                yield f"{i}: slot {slot} is taken", self._moved(state, i, "look", memo)
                return
            body = Slot(i, frame)
            now = (*slots, body) if slot == len(slots) else self._with(slots, slot, body)
            acked = slot, self._head(state)
            yield f"{i} puts {slot}", self._moved(state, i, "acked", acked, slots=now)
            yield f"{i} puts {slot}, no answer", self._moved(state, i, "look", memo, slots=now)
        elif at == "look":
            slot = slots[memo[0] + 1]
            own = slot is not None and slot.by == i
            if own and slot.stub and "stub_has_the_hash" in self.off:
                own = False
            if own:
                yield f"{i} finds its own", self._moved(state, i, "acked", (memo[0] + 1, 0))
            elif slot is not None:
                yield f"{i} lost", self._moved(state, i, "start")

    _sleep = _wake = _write

    def _with(self, slots, version, body):
        return (*slots[:version], body, *slots[version + 1 :])

    def _frame(self, state, i, at, memo):
        """memo: the version whose key frame is written."""
        if at == "start" and state[0][-1].cut is None:
            head = self._head(state)
            yield f"{i} builds key frame {head}", self._moved(state, i, "put", head)
        elif at == "put":
            frames = state[1] | {memo}
            yield f"{i} puts key frame {memo}", self._moved(state, i, "end", frames=frames)

    def _vacuum(self, state, i, at, memo):
        """memo: what `Cut` has; then what is to be done, in order."""
        slots, _, _, crashes = state
        if at == "start":
            yield from self._plan(state, i)
        elif at == "frame":  # the commit of the cut starts from a key frame above it
            head, cut = memo
            frames = state[1] | {head}
            after = self._moved(state, i, "put", (head, cut), frames=frames)
            yield f"{i} puts key frame {head}", after
        elif at == "put":
            head, cut = memo
            if head + 1 >= self.most:
                return
            if self._head(state) > head:  # what came meanwhile, it does not look at
                again = (self._head(state), cut)
                yield f"{i}: the cut is refused", self._moved(state, i, "frame", again)
                return
            now = self._cut(state)
            if (cut[0] <= now[0] or cut[1] < now[1]) and "cut_rises" not in self.off:
                yield f"{i}: the cut is void", self._moved(state, i, "start")
                return
            body = Slot(i, head if head >= cut[0] else slots[head].frame, cut)
            yield (
                f"{i} cuts at {cut[0]}, whole from {cut[1]}",
                self._moved(state, i, "work", (), slots=(*slots, body)),
            )
        elif at == "work":
            whole = self._whole(state)
            todo = self._todo(state, whole)
            yield f"{i} sees that the log stays from {whole}", self._moved(state, i, "do", todo)
        elif at == "do":
            yield from self._do(state, i, memo)
        if at in ("work", "do") and crashes:
            yield f"{i} dies", self._moved(state, i, "start", crashes=crashes - 1)

    def _plan(self, state, i):
        slots, frames, _, _ = state
        head = self._head(state)
        done = self._cut(state)
        last = slots[self._whole(state) - 1] if self._whole(state) else None
        if last is not None and not last.stub:
            yield f"{i} goes on", self._moved(state, i, "work")
        for wanted in range(done[0] + 1, head):
            named = [slots[version].frame for version in range(wanted, head + 1)]
            above = named[1:]
            own = min(above) >= wanted and wanted in frames
            own |= "frames_in_use" in self.off
            whole = wanted if own else min([wanted, *named])
            if whole <= done[1] or whole not in frames:
                continue
            cut = (wanted, whole, head)
            if "cut_first" in self.off:
                yield f"{i} begins", self._moved(state, i, "do", self._todo(state, whole))
            yield f"{i} wants {cut}", self._moved(state, i, "frame", (head, cut))

    def _whole(self, state) -> int:
        cut, whole, seen, token = self._cut(state)
        if not cut:
            return 0
        beside = [] if "commits_beside" in self.off else range(seen + 1, token)
        lowest = max(0, min([whole, *(state[0][version].frame for version in beside)]))
        return lowest if lowest in state[1] else 0

    def _todo(self, state, whole):
        """The key frames and then the commit of each version, ascending."""
        slots = state[0]
        low = 0
        if whole and slots[whole - 1] is not None and slots[whole - 1].stub:
            low = whole  # a vacuum came to its end
        versions = range(low, whole)
        if "ascending" in self.off:
            versions = reversed(versions)
        return tuple((kind, v, slots[v]) for v in versions for kind in ("frame", "slot"))

    def _do(self, state, i, todo):
        if not todo:
            yield f"{i} is done", self._moved(state, i, "start")
            return
        kind, version, seen = todo[0]
        slots, frames, _, _ = state
        if kind == "frame":
            yield (
                f"{i} deletes key frame {version}",
                self._moved(state, i, "do", todo[1:], frames=frames - {version}),
            )
            return
        if seen is not None and slots[version] == seen:
            body = None if "slots_stay" in self.off else seen._replace(stub=True)
            slots = self._with(slots, version, body)
        yield f"{i} ends {version}", self._moved(state, i, "do", todo[1:], slots=slots)

    def problem(self, state):
        """See `checker.Model`."""
        slots, frames, actors, _ = state
        head = self._head(state)
        cut = self._cut(state)[0]
        for i, (at, memo) in enumerate(actors):
            own = [v for v, slot in enumerate(slots) if slot is not None and slot.by == i]
            if self.actors[i] != "vacuum" and len(own) > 1:
                return f"{i} committed twice: {own}"
            if at == "acked" and not own:
                return f"{i} was acknowledged, and its commit is gone"
            if at == "acked" and memo[1] >= memo[0]:
                return f"{i} was acknowledged for {memo[0]}, below the head, where nobody looks"
        for version in range(cut, head + 1):
            slot = slots[version]
            if slot is None or slot.stub:
                return f"version {version} is above the cut {cut}, and has no commit"
            served = slot.frame == -1 or slot.frame in frames
            if not served and version not in frames:
                return f"version {version} starts from key frame {slot.frame}, which is gone"
        vacuums = [
            at for name, (at, _) in zip(self.actors, actors, strict=True) if name == "vacuum"
        ]
        return self._left(state) if set(vacuums) == {"start"} else None

    def _left(self, state):
        """What a vacuum cannot find any more."""
        slots, _, _, _ = state
        whole = self._whole(state)
        if whole and slots[whole - 1] is not None and slots[whole - 1].stub:
            left = [v for v in range(whole) if slots[v] is not None and not slots[v].stub]
            if left:
                return f"versions {left} stay whole for ever below the cut"
        return None
