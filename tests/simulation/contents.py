"""Tracks which rows are live, version by version: appended rows are live once despite rewrites.

The object of a simulated segment lists its rows by name. Rows are removed only by transactions that
drop them: a rewrite (`replace`) keeps all of them, except the number that it declares to leave out
(hazard K6).
"""

import json

from simulation.ledger import hold, segment_key


def body_of(rows):
    """The object of a segment with these rows."""
    return json.dumps(rows).encode()


def rows_in(body):
    return json.loads(body)


class Contents:
    """The live rows after every commit so far.

    Args:
        fetch: returns the object of a key; raises KeyError or similar if there is none.
    """

    def __init__(self, fetch):
        self.live = {}  # row -> id of the segment that has it
        self.rows = {}  # segment id -> its rows
        self.rewritten = 0  # number of rows copied by rewrites
        self._fetch = fetch

    def advance(self, step, version):
        """Apply the effects of a folded commit.

        Raises:
            Violation: a row is live twice, or a rewrite has other rows than it replaced.
        """
        for txn in step.commit["transactions"]:
            if txn["id"] in step.accepted:
                self._apply(txn["actions"], f"version {version}")

    def _apply(self, actions, where):
        dropped = {row for a in _of(actions, "drop") for row in self.rows[a["id"]]}
        for row in dropped:
            del self.live[row]
        added = set()
        for add in _of(actions, "add"):
            rows = self._rows_of(add)
            hold(len(rows) == add["rows"], "rows", f"{where}: {add} has {len(rows)} rows")
            for row in rows:
                twice = self.live.setdefault(row, add["id"]) != add["id"] or row in added
                hold(not twice, "rows", f"{where}: row {row} is live twice, once in {add['id']}")
                added.add(row)
        for planned in _of(actions, "replace"):
            made, lost = added - dropped, dropped - added
            hold(not made, "rows", f"{where}: a rewrite made rows {sorted(made)}")
            few = len(lost) == planned["deletes"]
            hold(few, "rows", f"{where}: a rewrite lost rows {sorted(lost)}: {planned}")
            self.rewritten += len(added)

    def _rows_of(self, add):
        if add["id"] not in self.rows:
            self.rows[add["id"]] = rows_in(self._fetch(segment_key(add)))
        return self.rows[add["id"]]


def _of(actions, kind):
    return [action for action in actions if action["action"] == kind]
