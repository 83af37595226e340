"""Changes of rows that are deleted and updated by their positions, against rows with an identity.

The model is a dictionary of rows by their number at every version. Rows are deleted while a
compaction runs, too: what it commits changes no row.
"""

import random
from collections import Counter
from datetime import timedelta
from unittest import mock

import pyarrow as pa
import pytest
from support.deleting import deleted_positions
from support.keyed_tables import DAY
from support.repeatable import EXAMPLES
from support.updating import update_rows

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.compaction import execute
from eventlog.readers import changes, scan
from eventlog.readers.changefeed.reader import ChangeReading
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite

LONG = max(EXAMPLES, 1000)
POLICY = compaction.Policy(target_bytes=2**16, max_task_bytes=2**20, min_gain=0)
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("v", pa.int64())])
FILTERS = [
    (None, lambda _: True),
    ("v < 3", lambda row: row["v"] < 3),
    ("at < TIMESTAMP '2024-01-02'", lambda row: row["at"] < DAY + timedelta(days=1)),
    ("at >= TIMESTAMP '2024-01-02' AND v > 1", lambda r: r["at"] >= FILTER_DAY and r["v"] > 1),
]
FILTER_DAY = DAY + timedelta(days=1)


class Rows:
    """A table, and what its rows are by the model.

    Attributes:
        at: the rows of every version, by their number.
        pairs: by version the new rows of a paired update, by the number of the old row.
        moved: number of deletes that landed while a compaction ran.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        store, clock = MemoryStore(), ManualClock(1_700_000_000_000, seed + 1)
        order = self.chance.choice([(), (), ("v",)])
        self.table = Table.create(
            store.uri,
            SCHEMA,
            store=store,
            clock=clock,
            time_column="at",
            granularity=self.chance.choice(["day", "hour"]),
            order_by=order,
        )
        self.other = Table.open(store.uri, store=store, clock=ManualClock(1_700_000_000_000, seed))
        self.ordered = bool(order)
        self.at = {0: {}}
        self.pairs = {}
        self.count = self.moved = 0

    def new_rows(self, day=None):
        rows = []
        for _ in range(self.chance.randrange(1, 12)):
            self.count += 1
            on = self.chance.randrange(3) if day is None else day
            at = DAY + timedelta(days=on, hours=self.chance.randrange(3))
            rows.append({"at": at, "id": self.count, "v": self.chance.randrange(5)})
        return rows

    def note(self, rows, version=None):
        version = self.table.refresh().version if version is None else version
        now = self.at[max(self.at)]
        self.at.update((v, now) for v in range(max(self.at) + 1, version))
        self.at[version] = rows

    @property
    def now(self):
        return dict(self.at[max(self.at)])

    def add(self, table):
        rows = self.new_rows()
        version = append(table, pa.Table.from_pylist(rows, schema=SCHEMA))
        self.note({**self.now, **{row["id"]: row for row in rows}}, version)

    def delete(self, table):
        rows = self.now
        if not rows:
            return
        gone = self.chance.sample(sorted(rows), self.chance.randrange(1, min(6, len(rows)) + 1))
        version = delete(table, where=f"id IN ({', '.join(map(str, gone))})")
        self.note({n: row for n, row in rows.items() if n not in gone}, version)

    def overwrite(self):
        day = self.chance.randrange(3)
        start, end = (DAY + timedelta(days=n) for n in (day, day + 1))
        rows = self.new_rows(day)
        overwrite(self.table, pa.Table.from_pylist(rows, schema=SCHEMA), start=start, end=end)
        kept = {n: row for n, row in self.now.items() if not start <= row["at"] < end}
        self.note({**kept, **{row["id"]: row for row in rows}})

    def restore(self):
        version = self.chance.randrange(self.table.refresh().version + 1)
        rows = self.at[max(v for v in self.at if v <= version)]
        self.table.restore(version)
        self.note(rows)

    def update(self):
        """Give some rows other values, in their order; half of them keep theirs."""
        found = {}
        for segment in self.table.refresh().segments():
            left = sorted(set(range(segment.rows)) - set(deleted_positions(self.table, segment)))
            some = self.chance.sample(left, self.chance.randrange(len(left) + 1))
            if some:
                found[segment.id] = some
        if not found:
            return
        rows, pairs = self.now, {}

        def change(old):
            new = []
            for row in old.to_pylist():
                n, self.count = row["id"], self.count + 1
                changed = {**row, "v": row["v"] + self.chance.randrange(2)}
                # The identity may stay as it is, too: an update of a value only.
                changed["id"] = self.chance.choice([n, self.count])
                pairs[n] = changed
                new.append(changed)
            return pa.Table.from_pylist(new, schema=SCHEMA)

        version = update_rows(self.table, found, change)
        kept = {n: row for n, row in rows.items() if n not in pairs}
        self.note({**kept, **{row["id"]: row for row in pairs.values()}}, version)
        self.pairs[version] = pairs

    def compact(self):
        """Compact while others delete and append."""
        made = execute.rewrite

        def rewrite(*args, **options):
            result = made(*args, **options)
            for _ in range(self.chance.randrange(3)):
                self.delete(self.other)
                self.moved += 1
            if self.chance.randrange(3) == 0:
                self.add(self.other)
            return result

        with mock.patch.object(execute, "rewrite", rewrite):
            result = compaction.run(self.table, policy=POLICY)
        assert all(outcome.ok for outcome in result.outcomes), result.outcomes
        self.note(self.now)

    def act(self):
        match self.chance.choice("aaaaddddouuuccr"):
            case "a":
                self.add(self.table)
            case "d":
                self.delete(self.table)
            case "o":
                self.overwrite()
            case "r":
                self.restore()
            case "u":
                # Segments are sorted when they are staged, and the rows are no pairs then.
                (self.add if self.ordered else lambda _: self.update())(self.table)
            case "c":
                self.compact()

    def expected(self, start, end, columns, holds):
        """The changes of each version, with `update` in the place of a pair, as one entry."""
        found = []
        for version in range(start + 1, end + 1):
            old, new = dict(self.at[version - 1]), dict(self.at[version])
            for n, row in self.pairs.get(version, {}).items():
                before, after = old.pop(n), new.pop(row["id"])
                shown = [("update_before", before), ("update_after", after)]
                told = [(kind, image) for kind, image in shown if holds(image)]
                if len(told) < 2 or any(before[name] != after[name] for name in columns):
                    found.append(entry(told, version, columns))
            # Rows that are alike in the columns cancel out.
            before, after = (
                Counter(tuple(str(row[name]) for name in columns) for row in rows if holds(row))
                for rows in (old.values(), new.values())
            )
            found += [[(version, "delete", *row)] for row in (before - after).elements()]
            found += [[(version, "insert", *row)] for row in (after - before).elements()]
        return sorted(found)


def entry(told, version, columns):
    return [(version, kind, *(str(image[name]) for name in columns)) for kind, image in told]


def entries(found, columns):
    """The changes that were read, with the two of a pair in one entry."""
    result, rows = [], found.to_pylist()
    while rows:
        some = [rows.pop(0)]
        if some[0]["_change"] == "update_before" and rows and rows[0]["_change"] == "update_after":
            some.append(rows.pop(0))
        told = [(row["_change"], row) for row in some]
        result.append(entry(told, some[0]["_version"], columns))
    return sorted(result)


def check(rows, start, end, columns, passing):
    sql, holds = passing
    found = changes(rows.table, start, end, columns, sql).to_table()
    told = entries(found, columns)
    wanted = [some for some in rows.expected(start, end, columns, holds) if some]
    if sql is not None:  # halves of two pairs may be neighbours
        told, wanted = (sorted([one] for some in both for one in some) for both in (told, wanted))
    assert told == wanted, (start, end, sql)


def play(seed, steps):
    rows = Rows(seed)
    for _ in range(steps):
        rows.act()
    last = rows.table.refresh().version
    for version in range(last + 1):
        found = scan(rows.table, version=version).to_table().to_pylist()
        told, wanted = (
            sorted(entry([("", row) for row in some], version, SCHEMA.names))
            for some in (found, rows.at[version].values())
        )
        assert told == wanted
    names = SCHEMA.names
    with mock.patch.object(ChangeReading, "portion_bytes", rows.chance.choice([200, 2**20])):
        check(rows, 0, last, names, FILTERS[0])
        for _ in range(3):
            start, end = sorted(rows.chance.sample(range(last + 1), 2))
            columns = rows.chance.choice([names, ["id"], ["v"]])
            check(rows, start, end, columns, rows.chance.choice(FILTERS))
    return rows


@pytest.mark.hazard("W14")
def test_changes_of_deleted_and_updated_rows_are_those_of_the_model():
    played = [play(seed, 14) for seed in range(6)]
    assert sum(rows.moved for rows in played) > 3
    assert sum(len(rows.pairs) for rows in played) > 5


@pytest.mark.long
def test_changes_of_deleted_and_updated_rows_in_thousands_of_histories():
    for seed in range(1000, 1000 + LONG):
        play(seed, 20)
