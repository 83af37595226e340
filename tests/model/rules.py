"""The rules of the fold in a small model, written from FORMAT.md independently of the code.

`Rules(off)` disables single guards, for the negative controls.
"""

from __future__ import annotations

from model.terms import (
    Ack,
    Add,
    Assess,
    Attach,
    Break,
    Claim,
    DeleteRows,
    Detach,
    Drop,
    Entry,
    Fence,
    Horizon,
    Pin,
    Release,
    Renew,
    Replace,
    Replica,
    Restore,
    SetGranularity,
    SetLayout,
    SetPin,
    State,
    Sweep,
    Swept,
    TakeClaim,
    Txn,
    Unchanged,
    Unpin,
    Update,
    Vector,
)

WINDOW = 64
NAMELESS = 90  # chunks from here on

# The guards that can be disabled, and their rules.
GUARDS = {
    "once_a_commit": "F1",
    "app_sequence": "F2",
    "window": "F3 until",
    "window_bound": "F3 until + 64",
    "published_once": "F3 published",
    "published_adds_only": "R11.1",
    "marks_kept": "published is forgotten only after until",
    "fence_rises": "F4",
    "drop_live": "F5",
    "drop_shrunk": "F5 deleted from in this commit",
    "delete_live": "R20.3",
    "delete_grows": "R20.3 rows",
    "vector_part": "R20.2 rows",
    "vector_fenced": "R20.3, F6 fence of a vector",
    "vector_epoch": "R20.3, F6 epoch of a vector",
    "exchange_restore": "R20.6 restore",
    "exchange_same": "R20.6 another object",
    "update_once": "R20.5 two, or a rewrite",
    "update_rows": "R20.5 rows",
    "update_paired": "R20.5 paired",
    "add_fenced": "F6 fence",
    "add_epoch": "F6 epoch",
    "add_once": "F6 id",
    "unchanged": "F7",
    "claim_held": "F8",
    "claim_token": "F8 token",
    "horizon_rises": "R12.1",
    "horizon_pins": "R12.1 pins",
    "horizon_replicas": "R12.1 replicas",
    "pin_above_horizon": "R12.2",
    "pin_name": "R12.2 name",
    "hold_token": "R12.2 token",
    "unpin_owner": "R12.2 owner",
    "break_renewal": "R12.2 renewed",
    "ack_rises": "R12.2 ack",
    "restore_above_horizon": "R12.3",
    "sweep_rises": "R12.6",
    "claim_conflict": "R13.1, R13.2",
    "claim_priority": "R13.2 same priority",
    "claim_revokes": "R13.2 revoked",
    "claim_group": "R13.3",
    "claim_shape": "R13.4",
    "replace_once": "F10 two",
    "replace_drops": "F10 no drop",
    "replace_read": "F10 read_version",
    "replace_plan": "F10 version",
    "replace_rows": "F10 rows",
    "replace_deletes": "F10 delete_rows",
    "granularity": "R14.4",
    "assess_old": "R14.6 old",
    "assess_names": "R14.6 names",
    "assess_order": "R14.6 ascending",
    "assess_version": "R14.6 analysed.version",
    "assess_state": "R14.6 state's version",
    "assess_policy": "R14.6 policy",
    "marks_in_key_frames": "P4: a key frame has apps and published",
}


class _Void(Exception):
    """Raised with the rule that makes a transaction void."""


class Rules:
    """The fold without the guards in `off`.

    Args:
        off: names of `GUARDS`.
        frames: number of versions between key frames; 0 for none.
    """

    def __init__(self, off=(), frames: int = 0) -> None:
        self.off = frozenset(off)
        self.frames = frames
        assert self.off <= set(GUARDS), self.off

    def judge(self, state: State, txn: Txn) -> State | None:
        """The state after a commit of this one transaction, or None if it is void."""
        after, verdicts = self.fold(state, (txn,))
        return None if verdicts[0] else after

    def fold(self, before: State, txns) -> tuple[State, tuple[str, ...]]:
        """The state after a commit, and for each transaction why it is void ("" if it is not)."""
        version = before.version + 1
        early = 0 if self._on("marks_kept") else 1
        kept = frozenset(mark for mark in before.published if mark[2] - early >= version)
        now = before._replace(version=version, published=kept)
        accepted, added, shrunk, verdicts = [], [], set(), []
        if not self._on("marks_in_key_frames") and self.frames and version % self.frames == 0:
            now = now._replace(apps=frozenset(), published=frozenset())
        for txn in txns:
            try:
                self._need(txn.id not in accepted, "once_a_commit")
                after = self._marks(txn, now)
                for action in txn.actions:
                    after = self._small(action, after)
                now = self._segments(txn, before, after, (added, shrunk))
            except _Void as why:
                verdicts.append(str(why))
                continue
            accepted.append(txn.id)
            added += [a.seg for a in txn.actions if isinstance(a, Add)]
            shrunk |= {a.entry.seg for a in txn.actions if isinstance(a, DeleteRows | Drop)}
            verdicts.append("")
        return now, tuple(verdicts)

    def _on(self, guard: str) -> bool:
        assert guard in GUARDS
        return guard not in self.off

    def _need(self, holds: bool, guard: str) -> None:
        if not holds and self._on(guard):
            raise _Void(GUARDS[guard])

    def _marks(self, txn: Txn, now: State) -> State:
        """F2, F3, F8: the rules that do not depend on the actions."""
        if txn.until is not None:
            self._need(now.version <= txn.until, "window")
            self._need(txn.until <= now.version + WINDOW, "window_bound")
            self._need(all(mark[0] != txn.id for mark in now.published), "published_once")
            kinds = {type(a) for a in txn.actions}
            only = kinds <= {Replace, Drop, Add, Release} if Replace in kinds else kinds <= {Add}
            only = only and (txn.claim is None or Replace in kinds)
            self._need(only, "published_adds_only")
            rest = {mark for mark in now.published if mark[0] != txn.id}
            now = now._replace(published=frozenset({*rest, (txn.id, now.version, txn.until)}))
        if txn.app is not None:
            name, seq = txn.app
            self._need(all(m[0] != name or m[1] < seq for m in now.apps), "app_sequence")
            rest = {mark for mark in now.apps if mark[0] != name}
            now = now._replace(apps=frozenset({*rest, (name, seq, now.version)}))
        if txn.claim is not None:
            claim_id, token = txn.claim
            found = _named(now.claims, claim_id)
            self._need(found is not None, "claim_held")
            self._need(found is None or found.token == token, "claim_token")
        return now

    def _segments(self, txn: Txn, before: State, now: State, done: tuple) -> State:
        """F5, F6, F7: drops and adds, against the small state that the actions made.

        `done`: the segments that earlier transactions of the commit added, and those of which they
        deleted rows or exchanged the vector.
        """
        live, (added, shrunk) = set(now.live), done
        drops = [a.entry for a in txn.actions if isinstance(a, Drop)]
        for entry in drops:
            self._need(entry in live, "drop_live")
            self._need(entry.seg not in shrunk, "drop_shrunk")
            live.discard(entry)
        for action in (a for a in txn.actions if isinstance(a, DeleteRows)):
            entry, vector = action.entry, action.vector
            self._need(entry in live and entry in before.live, "delete_live")
            self._need(entry.rows - entry.left < vector.rows < entry.rows, "delete_grows")
            self._check_vector(vector, now, restored=False)
            live.discard(entry)
            live.add(entry._replace(vector=vector))
        self._replace(txn, drops)
        self._update(txn, drops)
        adds = [a for a in txn.actions if isinstance(a, Add)]
        restored = any(isinstance(a, Restore) for a in txn.actions)
        may = restored or not self._on("exchange_restore")
        again = {e.seg: e for e in drops if e.seg not in added} if may else {}
        seen = {entry.seg for entry in before.live} - {*again} | set(added)
        for n, add in enumerate(adds):
            old = again.get(add.seg)
            if old is not None:
                same = (add.chunk, add.epoch, add.rows) == (old.chunk, old.epoch, old.rows)
                self._need(same and add.vector != old.vector, "exchange_same")
            known = restored or old is not None
            self._need(known or add.epoch >= now.fence, "add_fenced")
            self._need(add.epoch < now.version, "add_epoch")
            self._need(add.seg not in seen, "add_once")
            if add.vector is not None:
                self._need(0 < add.vector.rows < add.rows, "vector_part")
                self._check_vector(add.vector, now, restored=restored)
            seen.add(add.seg)
            made = Entry(add.seg, add.chunk, add.epoch, now.version, len(added) + n)
            live.add(made._replace(rows=add.rows, vector=add.vector))
        for action in (a for a in txn.actions if isinstance(a, Unchanged)):
            arrived = any(
                e.version > txn.read and e.chunk < action.end and action.start < e.chunk + 1
                for e in before.live
            )
            self._need(not arrived, "unchanged")
        return now._replace(live=frozenset(live))

    def _replace(self, txn: Txn, drops: list[Entry]) -> None:
        """F10: a rewrite has the rows that it replaces, as of its plan."""
        replaces = [a for a in txn.actions if isinstance(a, Replace)]
        if not replaces:
            return
        planned = replaces[0]
        self._need(len(replaces) == 1, "replace_once")
        self._need(bool(drops), "replace_drops")
        self._need(planned.version <= txn.read, "replace_read")
        self._need(all(entry.version <= planned.version for entry in drops), "replace_plan")
        self._need(not any(isinstance(a, DeleteRows) for a in txn.actions), "replace_deletes")
        left = sum(entry.left for entry in drops)
        self._need(left == _new_rows(txn) + planned.deletes, "replace_rows")

    def _update(self, txn: Txn, drops: list[Entry]) -> None:
        """R20.5: as many rows go and come as are updated."""
        updates = [a for a in txn.actions if isinstance(a, Update)]
        if not updates:
            return
        alone = not any(isinstance(a, Replace | Restore) for a in txn.actions)
        self._need(len(updates) == 1 and alone, "update_once")
        gone = sum(entry.left for entry in drops)
        for action in (a for a in txn.actions if isinstance(a, DeleteRows)):
            gone += action.vector.rows - (action.entry.rows - action.entry.left)
        rows, new = updates[0].rows, _new_rows(txn)
        self._need(1 <= rows <= min(gone, new), "update_rows")
        self._need(not updates[0].paired or rows == gone == new, "update_paired")

    def _check_vector(self, vector: Vector, now: State, *, restored: bool) -> None:
        self._need(restored or vector.epoch >= now.fence, "vector_fenced")
        self._need(vector.epoch < now.version, "vector_epoch")

    def _assess(self, action: Assess, now: State) -> State:
        """R14.6, except its bound on the number of states."""
        self._need(action.old == now.analysed, "assess_old")
        names = [chunk for chunk, _ in action.chunks]
        self._need(names == sorted(set(names)), "assess_order")
        self._need(all(name < NAMELESS for name in names), "assess_names")
        if action.analysed is not None:
            version, policy = action.analysed
            self._need(version < now.version, "assess_version")
            self._need(policy >= 0, "assess_policy")
        states = dict(now.chunks)
        for chunk, version in action.chunks:
            self._need(version is None or version < now.version, "assess_state")
            states.pop(chunk, None)
            if version is not None:
                states[chunk] = version
        return now._replace(chunks=frozenset(states.items()), analysed=action.analysed)

    def _small(self, action, now: State) -> State:
        """F9: the effect of an action on the small state."""
        match action:
            case SetLayout():
                raise _Void("F4 layout")  # the model's tables are there already
            case Fence(epoch):
                self._need(now.fence < epoch <= now.version, "fence_rises")
                return now._replace(fence=epoch)
            case Horizon(version):
                self._need(now.horizon < version < now.version, "horizon_rises")
                self._need(all(p.version >= version for p in now.pins), "horizon_pins")
                self._need(all(r.acked >= version for r in now.replicas), "horizon_replicas")
                return now._replace(horizon=version)
            case Swept(sweep):
                last = now.swept or Sweep(0, 0, 0)
                rises = last.version < sweep.version < now.version
                rises = rises and last.fence <= sweep.fence <= now.fence
                rises = rises and last.horizon <= sweep.horizon <= now.horizon
                self._need(rises, "sweep_rises")
                return now._replace(swept=sweep)
            case SetGranularity(old, new):
                self._need(old == now.granularity, "granularity")
                return now._replace(granularity=new)
            case Assess():
                return self._assess(action, now)
            case Restore(version):
                self._need(now.horizon <= version < now.version, "restore_above_horizon")
            case SetPin() | Unpin() | Attach() | Ack() | Detach() | Break():
                return self._hold(action, now)
            case TakeClaim():
                return self._take(action, now)
            case Renew(claim_id, token) | Release(claim_id, token):
                claim = _named(now.claims, claim_id)
                self._need(claim is not None and claim.token == token, "claim_token")
                if claim is None:
                    return now
                rest = now.claims - {claim}
                if isinstance(action, Renew):
                    rest |= {claim._replace(renewed=now.version)}
                return now._replace(claims=rest)
        return now

    def _hold(self, action, now: State) -> State:
        """R12.2: pins and replicas, and their owners."""
        match action:
            case SetPin(name, version, owner):
                self._need(now.horizon <= version < now.version, "pin_above_horizon")
                self._need(_named(now.pins, name) is None, "pin_name")
                rest = {p for p in now.pins if p.name != name}
                pin = Pin(name, version, owner, now.version)
                return now._replace(pins=frozenset({*rest, pin}))
            case Attach(name, acked, owner):
                self._need(now.horizon <= acked < now.version, "pin_above_horizon")
                self._need(_named(now.replicas, name) is None, "pin_name")
                rest = {r for r in now.replicas if r.name != name}
                replica = Replica(name, acked, owner, now.version)
                return now._replace(replicas=frozenset({*rest, replica}))
        field = {Unpin: "pins", Ack: "replicas", Detach: "replicas"}.get(type(action))
        field = field or {"pin": "pins", "claim": "claims", "replica": "replicas"}[action.kind]
        held = getattr(now, field)
        seen = _named(held, action.name)
        self._need(seen is not None and seen.token == action.token, "hold_token")
        if seen is None:
            return now
        rest = held - {seen}
        match action:
            case Unpin(_, owner, _):
                self._need(seen.owner == owner, "unpin_owner")
            case Break(_, _, _, renewed):
                self._need(getattr(seen, "renewed", 0) == renewed, "break_renewal")
            case Ack(_, _, version):
                self._need(seen.acked < version < now.version, "ack_rises")
                rest |= {seen._replace(acked=version)}
        return now._replace(**{field: rest})

    def _take(self, asked: TakeClaim, now: State) -> State:
        """R13: granted, refused, or already held."""
        ordered = list(asked.segments) == sorted(set(asked.segments))
        self._need(asked.start < asked.end and ordered and asked.group != "", "claim_shape")
        scope = (asked.group, asked.start, asked.end, asked.segments, asked.kind)
        if self._on("claim_group") and any(scope == _scope(claim) for claim in now.claims):
            return now
        self._need(_named(now.claims, asked.id) is None, "claim_shape")
        claim = Claim(
            asked.id,
            asked.start,
            asked.end,
            asked.segments,
            asked.kind,
            asked.priority,
            asked.group,
            now.version,
            now.version,
        )
        blocking = frozenset(c for c in now.claims if conflicting(c, claim))
        for other in blocking:
            self._need(other.priority <= asked.priority, "claim_conflict")
            self._need(other.priority != asked.priority, "claim_priority")
        rest = now.claims - blocking if self._on("claim_revokes") else now.claims
        return now._replace(claims=rest | {claim})


def _new_rows(txn: Txn) -> int:
    """The rows that the adds of a transaction bring."""
    adds = (a for a in txn.actions if isinstance(a, Add))
    return sum(a.rows - (a.vector.rows if a.vector else 0) for a in adds)


def conflicting(a: Claim, b: Claim) -> bool:
    """R13.1."""
    if a.kind == "shared" and b.kind == "shared":
        return False
    if a.segments and b.segments:
        return bool(set(a.segments) & set(b.segments))
    return a.start < b.end and b.start < a.end


def _scope(claim: Claim) -> tuple:
    return (claim.group, claim.start, claim.end, claim.segments, claim.kind)


def _named(held, name):
    """The pin, replica or claim of this name (its first field), or None."""
    return next((one for one in held if one[0] == name), None)
