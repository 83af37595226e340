"""The rows of every version of a table, and whether each commit did what its writer asked for.

Rows come from the objects that the log names, decoded here: rows by the field ids of their columns,
positions by the bitmaps of vectors. A row is its values by the ids of columns; no two rows of a
version have one number (column 2).
"""

import base64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from simulation.ledger import hold, vectors_key
from simulation.naive import stored_in
from simulation.world import added_bytes, as_json
from support.folds import advance

from eventlog import Table
from eventlog.format import codec, keys
from eventlog.log import spills
from eventlog.model.actions import Add, DeleteRows, Drop, Replace, Restore, SetSchema, Update
from eventlog.model.schema import to_arrow

NUMBER = 2


@dataclass(frozen=True)
class Asked:
    """What a writer asked for.

    Attributes:
        verb: append, delete, update, overwrite or merge.
        start: the version that it began at.
        holds: whether a row is selected.
        changed: the new form of a selected row.
        new: rows that it adds, or those of the source of a merge.
        how: of a merge: what becomes of matched rows, and of those that match none on either side.
    """

    verb: str
    start: int
    holds: Callable[[dict], bool] = lambda _: False
    changed: Callable[[dict], dict] | None = None
    new: tuple | list = ()
    how: tuple[str, str, str] | None = None


class RowBook:
    """The rows of every version.

    Attributes:
        asked: transaction id -> what its writer asked for.
        at: the rows of each version, by number.
        units: app id -> the version that did its unit of work.
        schemas: the versions that changed columns.
        counts: how often what was in the log.
    """

    def __init__(self, store):
        self.store, self.asked, self.at, self.units = store, {}, [], {}
        self.counts, self.schemas = Counter(), []
        self.state, self.version, self.time = None, -1, 0
        self._columns, self._objects, self._deleted = [], {}, {}
        self._rows, self._born, self._moved = {}, {}, -1

    @property
    def horizon(self):
        return self.state.meta.horizon

    def follow(self):
        """Apply the commits that are new.

        Raises:
            Violation: one did to the rows what nobody asked for.
        """
        log = Table(self.store).session.log
        found = (keys.parse_log_key(o.key) for o in self.store.list(keys.LOG_PREFIX, limit=4))
        newest = max(place[0] for place in found if place is not None and not place[1])
        for version in range(self.version + 1, newest + 1):
            commit, body = log.read(version)
            whole = spills.unpack(commit, log.spill)
            self.state, effect = advance(self.state, whole, codec.sha256(body))
            self.version, self.time = version, commit.header.time
            for transaction in effect.taken:
                self._apply(transaction)
            self._columns.append(self.state.meta.schema)
            self.at.append(dict(self._rows))

    def shown(self, version):
        """Return the rows that readers see, by the names of columns."""
        schema = self._columns[version]
        kinds = to_arrow(schema)
        rows = []
        for row in self.at[version].values():
            whole = self._whole(row, schema)
            values = {c.name: whole[c.id] for c in schema.columns}
            rows.append({f.name: _shown(values[f.name], f) for f in kinds})
        return rows

    def _whole(self, row, schema):
        """Return a row with all columns of a schema: with defaults where its segment lacks them."""
        return {
            c.id: row[c.id] if c.id in row else as_json(c).get("initial") for c in schema.columns
        }

    def _apply(self, transaction):
        where = f"version {self.version}, {transaction.operation}"
        actions = transaction.actions
        before = dict(self._rows)
        gone = self._gone(actions, where)
        for row in gone:
            del self._rows[row[NUMBER]]
        came = self._came(actions, where)
        for row in came:
            hold(row[NUMBER] not in self._rows, "rows", f"{where}: row {row} is live twice")
            self._rows[row[NUMBER]] = row
        if transaction.app is not None:
            hold(transaction.app.id not in self.units, "unit", f"{where} was done before")
            self.units[transaction.app.id] = self.version
        self._check(transaction, before, gone, came, where)

    def _check(self, transaction, before, gone, came, where):
        kinds = {type(action) for action in transaction.actions}
        asked, schema = self.asked.get(transaction.id), self.state.meta.schema
        if Replace in kinds:
            same = self._same(gone, schema) == self._same(came, schema)
            hold(same, "rows", f"{where}: {gone} became {came}")
        elif asked is not None:
            read = transaction.read_version
            if asked.verb == "merge":
                wanted = self._merged(asked, before, gone, came, where)
            else:
                self._check_selected(asked, read, before, gone, where)
                old = [self._whole(row, self._columns[read]) for row in gone]
                wanted = [asked.changed(row) for row in old] if asked.changed else asked.new
                self.counts["rows updated"] += len(gone) if asked.changed else 0
            same = self._same(came, schema) == self._same(wanted, schema)
            hold(same, asked.verb, f"{where}: {came}, not {wanted}")
        if SetSchema in kinds and self.version:
            self.schemas.append(self.version)
            self.counts["columns changed"] += 1
            hold(not gone and not came, "rows", f"{where} changes rows")
        for action in transaction.actions:
            if isinstance(action, Restore):
                there = self.at[action.version].keys()
                hold(self._rows.keys() == there, "rows", f"{where}: other rows than then")
        moves = kinds & {Replace, Update}
        if moves:
            self._moved = self.version
        kept = before.keys() if moves else ()
        new = (row[NUMBER] for row in came if row[NUMBER] not in kept)
        self._born.update((number, self.version) for number in new)

    def _same(self, rows, schema):
        """Return rows in a form in which equal ones are equal, with the columns of a schema."""
        return {row[NUMBER]: self._whole(row, schema) for row in rows}

    def _check_selected(self, asked, read, before, gone, where):
        """Check which rows are gone; `simulation.contents` has the rule."""
        start, numbers = asked.start, {row[NUMBER] for row in gone}
        schema = self._columns[start]
        selected = {n for n, row in before.items() if asked.holds(self._whole(row, schema))}
        others = sorted(numbers - selected)
        hold(not others, asked.verb, f"{where} deletes rows that it does not select: {others}")
        if self._moved <= start:
            later = sorted(n for n in numbers if self._born[n] > start)
            hold(not later, asked.verb, f"{where} deletes rows that came after its start: {later}")
        then, last = self.at[start], self.at[read]
        due = {
            n
            for n in selected & then.keys() & last.keys()
            if self._born[n] <= start
            and asked.holds(self._whole(then[n], schema))
            and self._whole(last[n], schema) == self._whole(before[n], schema)
        }
        left = sorted(due - numbers)
        hold(not left, asked.verb, f"{where} leaves rows that it selects: {left}")

    def _merged(self, asked, before, gone, came, where):
        """Check which rows a merge deletes; return those that it should add."""
        matched, inserts, others = asked.how
        added = {row[NUMBER] for row in came}
        source = {row[NUMBER]: row for row in asked.new}
        lost, wanted = set(), []
        if others == "delete":
            lost |= before.keys() - source.keys()
        for number, row in source.items():
            if number in before:
                if matched != "ignore":
                    lost.add(number)
                if matched == "update":
                    wanted.append(self._whole(before[number], self.state.meta.schema) | row)
            elif inserts == "insert" and (number in added or not self._was_matched(asked, number)):
                wanted.append(row)
        numbers = {row[NUMBER] for row in gone}
        hold(numbers == lost, "merge", f"{where} deletes {numbers}, not {lost}")
        self.counts["rows merged"] += len(wanted)
        return wanted

    def _was_matched(self, asked, number):
        """Whether a row may count as matched that others deleted meanwhile: where it is ignored."""
        return asked.how[0] == "ignore" and any(number in rows for rows in self.at[asked.start :])

    # ----------------------------------------------------------------- what the actions do

    def _gone(self, actions, where):
        found = []
        for action in actions:
            if isinstance(action, Drop):
                deleted = self._deleted.get(action.id, BitMap64())
                rows = self._objects[action.id]
                found += [row for n, row in enumerate(rows) if n not in deleted]
            elif isinstance(action, DeleteRows):
                rows, before = self._objects[action.id], self._deleted.get(action.id, BitMap64())
                after = self._positions(action.vector, rows, where)
                hold(before < after, "rows", f"{where}: {action} brings rows back")
                found += [rows[n] for n in after - before]
                self._deleted[action.id] = after
                self.counts["rows deleted by position"] += len(after - before)
        return found

    def _came(self, actions, where):
        found = []
        for add in (a for a in actions if isinstance(a, Add)):
            if add.id not in self._objects:
                self._objects[add.id] = self._decoded(add)
            rows, deleted = self._objects[add.id], BitMap64()
            if "vector" in as_json(add):
                deleted = self._positions(add.vector, rows, where)
                self.counts["rows deleted during a rewrite"] += len(deleted)
            self._deleted[add.id] = deleted
            found += [row for n, row in enumerate(rows) if n not in deleted]
        return found

    def _decoded(self, add):
        """Return the rows of a segment's object, by the field ids of its columns."""
        body = added_bytes(self.store, add)
        table = pq.read_table(BytesIO(body))
        ids = [int(field.metadata[b"PARQUET:field_id"]) for field in table.schema]
        columns = [_plain(column) for column in table.columns]
        return [dict(zip(ids, row, strict=True)) for row in zip(*columns, strict=True)]

    def _positions(self, vector, rows, where):
        vector = as_json(vector)
        key = vectors_key(vector)
        if key is None:
            bitmap = base64.b64decode(vector["bitmap"])
        else:
            place = stored_in(vector)
            bitmap = self.store.get(key, start=place["offset"], length=place["size"])
        found = BitMap64.deserialize(bitmap)
        few = len(found) == vector["rows"] and found.max() < len(rows)
        hold(few, "rows", f"{where}: {vector} has positions {list(found)} of {len(rows)} rows")
        return found


def _plain(column):
    """Return the values of a column; moments as microseconds."""
    is_time = str(column.type).startswith("timestamp")
    return column.cast("int64").to_pylist() if is_time else column.to_pylist()


def _shown(value, field):
    is_time = pa.types.is_timestamp(field.type)
    return pa.scalar(value, field.type).as_py() if is_time else value
