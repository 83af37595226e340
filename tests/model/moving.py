"""Model 6: rows that are deleted, updated and moved by compactions at once (R20.3, R20.5).

Rows have names. A deleter and an updater find rows, and find them again where others have moved
them; a compactor writes the rows of all segments into one, and translates what was deleted
meanwhile. Whether a vector stands in the log or in an object is the matter of `vacuums`: here a
commit has it or not.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, NamedTuple

from model.world import CRASH, Log, World

NOTHING = frozenset[int]()


class Part(NamedTuple):
    """A live segment: its rows, of which some positions are deleted, and the version it came in."""

    id: tuple[int, int]
    rows: tuple[str, ...]
    gone: frozenset[int] = NOTHING
    since: int = 0

    @property
    def left(self) -> tuple[str, ...]:
        """The rows that are not deleted."""
        return tuple(row for n, row in enumerate(self.rows) if n not in self.gone)


class Edit(NamedTuple):
    """What a transaction does to a live segment; `to` is None if it drops it."""

    id: tuple[int, int]
    read: frozenset[int]
    to: frozenset[int] | None


class RowTxn(NamedTuple):
    """A transaction: what it does to segments, and those that it adds."""

    id: int
    kind: str = ""
    edits: tuple[Edit, ...] = ()
    adds: tuple[Part, ...] = ()
    same: frozenset[Part] | None = None  # a precondition: what is live
    app: None = None

    @property
    def actions(self) -> tuple[object, ...]:
        """The parts, for counterexamples."""
        return (self.kind, *self.edits, *self.adds)


class RowState(NamedTuple):
    """The live segments of a version."""

    version: int = 0
    live: frozenset[Part] = frozenset()


class RowRules:
    """The fold of such transactions, without the guards in `off`."""

    def __init__(self, off: frozenset[str]) -> None:
        self.off = off

    def fold(self, before: RowState, txns) -> tuple[RowState, tuple[str, ...]]:
        """See `rules.Rules.fold`; these commits have one transaction each."""
        (txn,) = txns
        version = before.version + 1
        live = {part.id: part for part in before.live}
        why = ""
        for edit in txn.edits:
            part = live.get(edit.id)
            same = part is not None and part.gone == edit.read
            if part is None or ("entry_named" not in self.off and not same):
                why = "R20.3, F5"
                break
            if edit.to is None:
                del live[edit.id]
            else:
                live[edit.id] = part._replace(gone=edit.to)
        if txn.same is not None and "same_segments" not in self.off and txn.same != before.live:
            why = "F7"
        if not why and txn.kind == "compact" and "rows_counted" not in self.off:
            kept = sum(len(add.left) for add in txn.adds)
            named = [part for part in before.live if part.id in {edit.id for edit in txn.edits}]
            why = "" if kept == sum(len(part.left) for part in named) else "F10"
        if why:
            return before._replace(version=version), (why,)
        live.update({add.id: add._replace(since=version) for add in txn.adds})
        return RowState(version, frozenset(live.values())), ("",)


def named(row: str) -> str:
    """The name that a row keeps when it is updated."""
    return row.rstrip("'")


class Moves(World):
    """Any of "delete X", "update X", "compact", "append X" and "restore" around some rows.

    Args:
        actors: what each does; X are the letters of rows.
        segments: the rows of each segment at the start.
        options: see `World`.
    """

    GUARDS: ClassVar = {
        "entry_named": "R20.3, F5: a delete and a drop name the entry with its vector",
        "rows_counted": "F10: as many rows are left of a rewrite's adds as of its drops",
        "same_segments": "F7: a restore counts on the segments that it has seen",
        "vectors_united": "section 8.19: a vector has what others deleted before",
        "moved_followed": "section 8.19: rows are found again where others have moved them",
        "arrivals_ignored": "section 8.19: rows that came after the start are not searched",
        "deletes_translated": "section 10.4: a rewrite deletes what was deleted while it ran",
        "before_marked": "section 10.4: what was deleted before has no place in the outputs",
        "newest_named": "section 10.4: a rewrite names the newest entries when it tries again",
        "came_back": "section 10.4: a segment that a restore brought back is another input",
        "rows_read_again": "section 8.19: an update makes new forms of the rows as they are now",
    }

    def __init__(self, actors, name="moves", segments=("ab", "c"), **options) -> None:
        super().__init__(**options)
        self.name, self.actors = name, list(actors)
        parts = [Part((-1, n), tuple(rows)) for n, rows in enumerate(segments)]
        self.log = Log(RowRules(self.off), RowState(0, frozenset(parts)))
        self.wrong = cache(self._wrong)
        self.serial = cache(self._serial)
        self.reached = cache(self._reached)

    def first(self, i):
        return ("start", 0, (), ())

    def act(self, state, i, actor):
        at = actor[0]
        if at in ("acked", "dead", "end", "stuck"):
            return
        if at in ("start", "read", "again"):
            yield self._propose(state, i, actor)
        elif at == "unknown":
            yield f"{self.who(i)}: is asked again", self.moved(state, i, ("look", *actor[1:]))
        if state[4][CRASH] and at != "start":
            dead = ("dead", 0, (), ())
            yield f"{self.who(i)}: crashes", self.moved(state, i, dead, fault=CRASH)

    def _propose(self, state, i, actor):
        """Read the head; commit the same again if it is not void there, or find the rows again."""
        head = state[0]
        at, _, commit, memo = actor
        label = f"{self.who(i)}: reads version {self.log.versions[head]}"
        if at == "read" and not self.log.void(head, commit[0]):
            return f"{label}: the same again", self.moved(state, i, ("put", head, commit, memo))
        verb = self.actors[i].split()[0]
        txn, memo = getattr(self, f"_{verb}")(i, head, memo)
        if txn is None:
            return f"{label}: nothing to do", self.moved(state, i, ("end", head, (), ()))
        number = self.log.number(txn)
        if self.log.void(head, number):  # although nobody is in the way
            return f"{label}: void", self.moved(state, i, ("stuck", head, (number,), memo))
        return f"{label}: {txn.actions}", self.moved(state, i, ("put", head, (number,), memo))

    def _letters(self, i):
        return self.actors[i].split()[1]

    def _live(self, node):
        return sorted(self.log.states[node].live)

    # memo of a change of rows: (start, the last node seen, ids of segments that have its rows)

    def _delete(self, i, head, memo):
        memo, found = self._find(i, head, memo)
        edits = tuple(self._edit(part, places) for part, places in found)
        return (RowTxn(i, "delete", edits) if edits else None), memo

    def _update(self, i, head, memo):
        memo, found = self._find(i, head, memo)
        edits = tuple(self._edit(part, places) for part, places in found)
        rows = tuple(f"{part.rows[n]}'" for part, places in found for n in sorted(places))
        if "rows_read_again" in self.off and len(memo) > 3:
            rows = memo[3]
        new = Part((i, self.log.versions[head]), rows)
        if "rows_read_again" in self.off:
            memo = (*memo[:3], rows)
        return (RowTxn(i, "update", edits, (new,)) if edits else None), memo

    def _find(self, i, head, memo):
        """Return what to remember, and the positions of the selected rows, by segment."""
        start, seen, touched = memo[:3] or (head, head, frozenset())
        touched = self._followed(start, seen, head, touched)
        found = []
        for part in self._live(head):
            old = part.since <= self.log.versions[start] or part.id in touched
            if not old and "arrivals_ignored" not in self.off:
                continue
            rows = enumerate(part.rows)
            wanted = {n for n, row in rows if named(row) in self._letters(i)} - part.gone
            if wanted:
                found.append((part, frozenset(wanted)))
        touched |= {part.id for part, _ in found}
        return (start, head, touched, *memo[3:]), found

    def _followed(self, start, seen, head, touched):
        """Return the segments that have rows of those that were touched, at the head."""
        if "moved_followed" in self.off:
            return touched
        for node in self.log.paths[head]:
            if self.log.versions[seen] < self.log.versions[node]:
                for txn in (self.log.txns[number] for number in self.log.numbers[node]):
                    moves = txn.kind in ("compact", "update")
                    if moves and touched & {edit.id for edit in txn.edits}:
                        touched |= {add.id for add in txn.adds}
        return touched

    def _edit(self, part, places):
        gone = places if "vectors_united" in self.off else part.gone | places
        return Edit(part.id, part.gone, None if len(gone) == len(part.rows) else frozenset(gone))

    # memo of a compaction: (its inputs as they were read, the output's id)

    def _compact(self, i, head, memo):
        live = {part.id: part for part in self._live(head)}
        inputs, output = memo or (tuple(live.values()), (i, self.log.versions[head]))
        came_back = "came_back" in self.off
        now = {
            part.id: live[part.id]
            for part in inputs
            if part.id in live and (came_back or live[part.id].since == part.since)
        }
        if not now or self._rewritten(i, inputs, head):
            return None, memo
        rows = tuple(row for part in inputs for row in part.left)
        gone = frozenset(self._translated(inputs, now))
        if "deletes_translated" in self.off:
            gone = NOTHING
        named = {part.id: part for part in inputs} if "newest_named" in self.off else now
        edits = tuple(Edit(part.id, part.gone, None) for part in named.values())
        adds = () if len(gone) == len(rows) else (Part(output, rows, gone),)
        return RowTxn(i, "compact", edits, adds), (inputs, output)

    def _translated(self, inputs, now):
        """Yield the positions in the output of rows that were deleted while it was made."""
        first = 0
        for part in inputs:
            places = [n for n in range(len(part.rows)) if n not in part.gone]
            gone = now[part.id].gone if part.id in now else frozenset(range(len(part.rows)))
            if "before_marked" not in self.off:
                gone -= part.gone
            for place in gone:
                yield first + sum(n < place for n in places)
            first += len(places)

    def _rewritten(self, i, inputs, head):
        """Return whether another compaction took an input."""
        ids = {part.id for part in inputs}
        numbers = (n for node in self.log.paths[head] for n in self.log.numbers[node])
        txns = [self.log.txns[n] for n in numbers]
        return any(
            txn.kind == "compact" and txn.id != i and ids & {edit.id for edit in txn.edits}
            for txn in txns
        )

    def _append(self, i, head, _memo):
        rows = tuple(self._letters(i))
        return RowTxn(i, "append", (), (Part((i, 0), rows),)), ()

    def _restore(self, i, head, _memo):
        """Bring the first version back, as of what is live now."""
        then = {part.id: part for part in self._live(0)}
        live = {part.id: part for part in self._live(head)}
        same = {name for name in then.keys() & live.keys() if then[name].gone == live[name].gone}
        edits = tuple(Edit(n, part.gone, None) for n, part in live.items() if n not in same)
        adds = tuple(part for n, part in then.items() if n not in same)
        if not edits and not adds:
            return None, ()
        return RowTxn(i, "restore", edits, adds, self.log.states[head].live), ()

    # ------------------------------------------------------------------------- what must hold

    def _serial(self, node):
        """Return the rows after the accepted transactions: name -> (updates, whether it is late).

        A row that came late, by an append or a restore, may or may not be changed by what began
        before: what happened to it counts. That of others follows from what was asked for.
        """
        path = self.log.paths[node]
        if len(path) == 1:
            return {row: (0, False) for part in self._live(node) for row in part.left}
        rows, shown = dict(self.serial(path[-2])), self._shown(node)
        for txn in (self.log.txns[number] for number in self.log.numbers[node]):
            if txn.kind == "append":
                rows |= {row: (0, True) for add in txn.adds for row in add.rows}
            elif txn.kind == "restore":
                rows = dict.fromkeys(self.serial(0), (0, True))
            elif txn.kind in ("delete", "update"):
                for name in rows.keys() & set(self._letters(txn.id)):
                    times, late = rows[name]
                    if late and shown.get(name) == times:
                        continue
                    if txn.kind == "delete":
                        del rows[name]
                    else:
                        rows[name] = times + 1, late
        return rows

    def _shown(self, node):
        live = (row for part in self._live(node) for row in part.left)
        return {named(row): row.count("'") for row in live}

    def _wrong(self, node) -> str | None:
        live = [row for part in self._live(node) for row in part.left]
        if len(live) != len(set(map(named, live))):
            return f"a row is live twice: {live}"
        wanted = {name: times for name, (times, _) in self.serial(node).items()}
        shown = self._shown(node)
        if shown.keys() - wanted.keys():
            return f"a deleted row shows again: {live}"
        if wanted.keys() - shown.keys():
            return f"a row is hidden that nobody deleted: {live}"
        return None if shown == wanted else f"an update is lost, or was done twice: {live}"

    def _reached(self, start, node) -> bool:
        """Return whether a change took rows of an append after its start that nobody has moved."""
        path = self.log.paths[node]
        since = [n for n in path if self.log.versions[n] > self.log.versions[start]]
        txns = [self.log.txns[number] for n in since for number in self.log.numbers[n]]
        late = {row for txn in txns if txn.kind == "append" for add in txn.adds for row in add.rows}
        moved = any(txn.kind in ("compact", "update") for txn in txns[:-1])
        before = self.serial(path[-2])
        after = self.serial(node)
        return not moved and any(before.get(row) != after.get(row) for row in late & before.keys())

    def problem(self, state):
        head, _, actors, _, _ = state
        for i, (at, base, _, memo) in enumerate(actors):
            changes = self.actors[i].split()[0] in ("delete", "update")
            if at == "stuck":
                return f"{self.who(i)} is void although nobody is in the way"
            if at == "acked" and not any(i in self.log.accepted[n] for n in self.log.paths[head]):
                return f"{self.who(i)} was acknowledged and is in no version"
            if at == "acked" and changes and self.reached(memo[0], base):
                return f"{self.who(i)} changed a row that came after it began"
            if at == "end" and changes:
                rows = self.serial(base)
                if any(name in rows and not rows[name][1] for name in self._letters(i)):
                    return f"{self.who(i)} finds no row, and there is one"
        return self.wrong(head)
