"""Tracks which rows are live, version by version: appended rows are live once despite rewrites.

The object of a simulated segment lists its rows by name: that of the row, and how often it was
updated, `<name>:<number>`. Rows are removed only by transactions that drop their segments or delete
their positions: a rewrite (`replace`) keeps all of them, except the number that it declares to
leave out (hazard K6). What changes of rows delete and add is compared with what their actors asked
for.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from pyroaring import BitMap64
from simulation import naive
from simulation.ledger import hold, segment_key, vectors_key

from eventlog.segments.vectors import VectorReader


def body_of(rows):
    """The object of a segment with these rows."""
    return json.dumps(rows).encode()


def rows_in(body):
    return json.loads(body)


def name_of(row):
    """The name that a row keeps when it is updated."""
    return row.partition(":")[0]


def updated(row):
    """The next form of a row."""
    name, _, number = row.partition(":")
    return f"{name}:{int(number or 0) + 1}"


def without_deleted(table, segment, rows):
    """Return those rows of a segment that are not deleted in the version of the table's handle.

    Raises:
        DataLoss: the deletion vector is missing.
    """
    head = table.session.head()
    gone = VectorReader(table.store, head.version, [segment], head.header.table).deleted(segment)
    return [row for place, row in enumerate(rows) if place not in gone]


@dataclass(frozen=True)
class Change:
    """What the actor of a change of rows asked for.

    Attributes:
        start: the version as of which rows are selected.
        holds: whether a row is selected.
        updates: whether the rows get their next forms, or go.
        new: other rows that are added.
    """

    start: int
    holds: Callable[[str], bool]
    updates: bool = False
    new: tuple[str, ...] = ()


class Contents:
    """The live rows after every commit so far.

    Args:
        fetch: returns the object of a key; raises KeyError or similar if there is none.
    """

    def __init__(self, fetch):
        self.live = {}  # row -> id of the segment that has it
        self.rows = {}  # segment id -> its rows
        self.deleted = {}  # segment id -> the positions of its deleted rows
        self.rewritten = 0  # number of rows copied by rewrites
        self.translated = 0  # number of rows of rewrites that were deleted meanwhile
        self.changes = {}  # transaction id -> what its actor asked for
        self.changed = 0  # number of rows deleted by those
        self.moved = -1  # the last version that put rows into other segments
        self._born = {}  # name of a row -> the version that appended it, or brought it back
        self._past = []  # the live rows of each version
        self._places = {}  # segment id -> its place in the order of scans
        self._fetch = fetch

    def advance(self, step, version):
        """Apply the effects of a folded commit.

        Raises:
            Violation: a row is live twice, or a rewrite has other rows than it replaced, or a
                change of rows has deleted or added others than it should have.
        """
        for txn in step.commit["transactions"]:
            if txn["id"] in step.accepted:
                self._apply(txn, version)
        self._past.append(frozenset(self.live))
        for entry in step.state["live"].values():
            start_end = naive.interval(entry["chunk"])
            self._places[entry["id"]] = *start_end, entry["version"], entry["partition"]

    def _apply(self, txn, version):
        actions, where = txn["actions"], f"version {version}"
        dropped = self._dropped(actions, where)
        for row in dropped:
            del self.live[row]
        added = []
        for add in _of(actions, "add"):
            rows = self._added(add, where)
            for row in rows:
                twice = self.live.setdefault(row, add["id"]) != add["id"] or row in added
                hold(not twice, "rows", f"{where}: row {row} is live twice, once in {add['id']}")
                added.append(row)
        gone, came = set(dropped), set(added)
        for planned in _of(actions, "replace"):
            made, lost = came - gone, gone - came
            hold(not made, "rows", f"{where}: a rewrite made rows {sorted(made)}")
            few = len(lost) == planned["deletes"]
            hold(few, "rows", f"{where}: a rewrite lost rows {sorted(lost)}: {planned}")
            self.rewritten += len(came)
        for restored in _of(actions, "restore"):
            same = self.live.keys() == self._past[restored["version"]]
            hold(same, "rows", f"{where} has other rows than version {restored['version']}")
        change = self.changes.get(txn["id"])
        if change is not None:
            self._check_change(change, txn["read_version"], dropped, added, where)
        if _of(actions, "replace") or _of(actions, "update"):
            self.moved = version
        if not _of(actions, "replace") and not (change and change.updates):
            self._born.update((name_of(row), version) for row in came)

    def _dropped(self, actions, where):
        """Return the rows that are removed, in the order of scans."""
        found = []
        for drop in _of(actions, "drop"):
            gone = self.deleted.get(drop["id"], BitMap64())
            rows = [row for n, row in enumerate(self.rows[drop["id"]]) if n not in gone]
            found.append((self._places[drop["id"]], rows))
        for action in _of(actions, "delete_rows"):
            before, rows = self.deleted.get(action["id"], BitMap64()), self.rows[action["id"]]
            after = self._positions(action["vector"], rows, where)
            hold(before < after, "rows", f"{where}: {action} brings rows back")
            found.append((self._places[action["id"]], [rows[n] for n in after - before]))
            self.deleted[action["id"]] = after
        return [row for _, rows in sorted(found) for row in rows]

    def _added(self, add, where):
        """Return the rows that come with an add."""
        if add["id"] not in self.rows:
            own = add.get("parquet")
            body = self._fetch(segment_key(add)) if own is None else base64.b64decode(own)
            self.rows[add["id"]] = rows_in(body)
        rows, gone = self.rows[add["id"]], BitMap64()
        hold(len(rows) == add["rows"], "rows", f"{where}: {add} has {len(rows)} rows")
        if "vector" in add:
            gone = self._positions(add["vector"], rows, where)
            self.translated += len(gone)
        self.deleted[add["id"]] = gone
        return [row for n, row in enumerate(rows) if n not in gone]

    def _positions(self, vector, rows, where):
        """Return the positions that a vector deletes."""
        key = vectors_key(vector)
        if key is None:
            bitmap = base64.b64decode(vector["bitmap"])
        else:
            place = naive.stored_in(vector)
            bitmap = self._fetch(key)[place["offset"] : place["offset"] + place["size"]]
        found = BitMap64.deserialize(bitmap)
        few = len(found) == vector["rows"] and found.max() < len(rows)
        hold(few, "rows", f"{where}: {vector} has positions {list(found)} of {len(rows)} rows")
        return found

    def _check_change(self, change, read, dropped, added, where):
        """Check that a change has deleted what it selects, and added what it should.

        Rows that came after its start are not searched; only where others have moved rows, they
        may be beside some that are. A row must go if it was selected at the start, and was as it is
        when the change looked last.
        """
        before, gone = {*self.live, *dropped} - set(added), set(dropped)
        others = sorted(row for row in gone if not change.holds(row))
        hold(not others, "change", f"{where} deletes rows that it does not select: {others}")
        if self.moved <= change.start:
            later = sorted(row for row in gone if self._born[name_of(row)] > change.start)
            hold(not later, "change", f"{where} deletes rows that came after its start: {later}")
        then = {name_of(row) for row in self._past[change.start] if change.holds(row)}
        due = {row for row in before & self._past[read] if change.holds(row)}
        due = {
            row for row in due if name_of(row) in then and self._born[name_of(row)] <= change.start
        }
        hold(due <= gone, "change", f"{where} leaves rows that it selects: {sorted(due - gone)}")
        wanted = [updated(row) for row in dropped] if change.updates else [*change.new]
        hold(added == wanted, "change", f"{where} adds rows {added}, not {wanted}")
        self.changed += len(gone)


def _of(actions, kind):
    return [action for action in actions if action["action"] == kind]
