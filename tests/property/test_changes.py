"""Changes between versions are what the versions themselves say, and chained ranges are one range.

Keyed tables are compared with the model (`support.keyed_model`): its answers at every version give
the changes. Tables without a key are compared with the rows of both versions, counted.
"""

import random
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.deleting import delete_rows
from support.keyed_book import model_of
from support.keyed_tables import DAY, ordered, predicate
from support.random_histories import History, settings
from support.repeatable import EXAMPLES
from support.updating import some_positions, update_rows

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.readers import changes, scan
from eventlog.readers.changefeed.reader import ChangeReading
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

LONG = max(EXAMPLES, 1000)
POLICY = compaction.Policy(target_bytes=4096, max_task_bytes=2**20)
PLAIN = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("l", pa.list_(pa.int32())),
    ]
)
PLAIN_FILTERS = [
    (None, lambda _: True),
    ("n = 1", lambda row: row["n"] == 1),
    ("n IS NULL OR x IS NULL", lambda row: row["n"] is None or row["x"] is None),
    ("at >= TIMESTAMP '2024-01-02'", lambda row: row["at"] >= DAY + timedelta(days=1)),
]


def keyed_rows(book, version, end):
    """The rows of a version by chunk and key, by the model, with the columns of `end`."""
    chunks = {}
    for chunk, _, row in book.at[version]:
        whole = {name: row.get(name) for name in book.columns[end]} | {"_op": row["_op"]}
        chunks.setdefault(chunk, []).append(whole)
    return {
        (chunk, key): row
        for chunk, rows in chunks.items()
        for key, row in model_of(rows, book.rules[end]).items()
    }


def expected(book, start, end, columns=None, holds=None):
    """What each version did to the rows that pass, by the rows before it and after it.

    An update whose rows both pass is one only if they differ in these columns.
    """
    names = book.columns[end] if columns is None else columns
    passes = lambda row: row is not None and (holds is None or holds(row) is True)
    found = []
    for version in range(start + 1, end + 1):
        old, new = (keyed_rows(book, v, end) for v in (version - 1, version))
        for key in {*old, *new}:
            before, after = old.get(key), new.get(key)
            updated = before is not None and after is not None
            told = [passes(before), passes(after)]
            if all(told) and all(before[n] == after[n] for n in names):
                continue
            kinds = ("update_before", "update_after") if updated else ("delete", "insert")
            for row, kind, tell in zip((before, after), kinds, told, strict=True):
                if tell:
                    image = {name: row[name] for name in names}
                    found.append(image | {"_change": kind, "_version": version})
    return found


def untimed(table):
    return table.drop_columns(["_time"]).to_pylist()


def check(history, start, end):
    table = history.handle()
    found = changes(table, start, end).to_table()
    wanted = expected(history.book, start, end)
    assert ordered(untimed(found)) == ordered(wanted)
    times = {e.version: e.time for e in table.history()}
    versions = found.column("_version").to_pylist()
    assert found.column("_time").to_pylist() == [times[v] for v in versions]
    kinds = found.column("_change").to_pylist()
    for place, kind in enumerate(kinds):
        if kind == "update_before":
            assert kinds[place + 1] == "update_after"
            assert versions[place + 1] == versions[place]
    for _ in range(2):
        check_view(history, start, end)
    return len(wanted)


def check_view(history, start, end):
    """Some columns, in any order, of some rows: in one range, and in a chain of ranges."""
    chance, table = history.chance, history.handle()
    every, known = (history.book.columns[version] for version in (end, start))
    columns = chance.choice([None, chance.sample(known, chance.randrange(len(known) + 1))])
    sql, holds = chance.choice([(None, None), predicate(chance), predicate(chance)])
    wanted = ordered(expected(history.book, start, end, columns, holds))
    whole = changes(table, start, end, columns, sql).to_table()
    assert whole.schema.names[:-3] == (every if columns is None else columns)
    assert ordered(untimed(whole)) == wanted, (sql, columns)
    cuts = chance.sample(range(start, end + 1), min(end - start + 1, chance.randrange(4)))
    edges = sorted({start, *cuts, end})
    chain = [changes(table, a, b, columns, sql).to_table() for a, b in pairwise(edges)]
    # The schema of each is that of its own end: columns may have been added.
    rows = [
        dict.fromkeys(every if columns is None else columns) | row
        for part in chain
        for row in untimed(part)
    ]
    assert ordered(rows) == wanted, (sql, columns, edges)


def play(seed, steps=12):
    """Play a history, and compare its changes with the model; return their number."""
    most = 4000 if seed % 2 else 2**20
    with settings(seed), mock.patch.object(ChangeReading, "portion_bytes", most):
        history = History(seed)
        for _ in range(steps):
            history.step()
        history.book.follow()
        kept = history.book.kept
        told = check(history, kept[0], kept[-1])
        start = history.chance.choice(kept)
        check(history, start, history.chance.choice([v for v in kept if v >= start]))
    return told


def play_plain(seed, steps=8):
    """The same for a table without a key."""
    chance = random.Random(seed)
    store, clock = MemoryStore(), ManualClock(1_700_000_000_000, seed + 1)
    options = {"time_column": "at", "granularity": "day"}
    table = Table.create(store.uri, PLAIN, store=store, clock=clock, **options)
    for _ in range(steps):
        act_plain(chance, table)
    last = table.refresh().version
    state, whole = counted(scan(table, version=0).to_table()), Counter()
    most = 700 if seed % 2 else 2**20
    with mock.patch.object(ChangeReading, "portion_bytes", most):
        for version in range(1, last + 1):
            found = changes(table, version - 1, version).to_table()
            assert set(found.column("_version").to_pylist()) <= {version}
            whole += counted(found)
            gone, new = (
                counted(found.filter(pc.equal(found.column("_change"), c)).select(PLAIN.names))
                for c in ("delete", "insert")
            )
            assert not gone & new
            assert gone <= state
            state = state - gone + new
            assert state == counted(scan(table, version=version).to_table())
        assert counted(changes(table, 0, last).to_table()) == whole
        for _ in range(3):
            check_plain_view(chance, table)
    return whole.total()


def check_plain_view(chance, table):
    """Some columns of some rows: rows of a version that are alike in them cancel out."""
    last = table.refresh().version
    columns = chance.sample(PLAIN.names, chance.randrange(len(PLAIN) + 1))
    sql, holds = chance.choice(PLAIN_FILTERS)

    def view(version):
        rows = scan(table, version=version).to_table().to_pylist()
        return Counter(repr([row[n] for n in columns]) for row in rows if holds(row))

    told = Counter()
    for change in changes(table, 0, last, columns, sql).to_table().to_pylist():
        told[change["_change"], change["_version"], repr([change[n] for n in columns])] += 1
    wanted = Counter()
    for version in range(1, last + 1):
        old, new = view(version - 1), view(version)
        wanted.update({("delete", version, row): n for row, n in (old - new).items()})
        wanted.update({("insert", version, row): n for row, n in (new - old).items()})
    assert told == wanted, (sql, columns)


def act_plain(chance, table):
    day = DAY + timedelta(days=chance.randrange(3))
    match chance.choice("aaaaoorcdxxxu"):
        case "a":
            append(table, plain_rows(chance))
        case "o":
            rows = [r for r in plain_rows(chance).to_pylist() if r["at"].date() == day.date()]
            rows = pa.Table.from_pylist(rows, schema=PLAIN)
            overwrite(table, rows, start=day, end=day + timedelta(days=1))
        case "r":
            table.restore(chance.randrange(table.refresh().version + 1))
        case "c":
            compaction.run(table, policy=POLICY)
        case "d":
            segments = table.refresh().segments()
            if segments:
                table.drop_segments([chance.choice(segments)], reason="a test")
        case "x" | "u" as act:
            some = some_positions(chance, table)
            if some and act == "x":
                delete_rows(table, some)
            elif some:
                rows = plain_rows(chance, sum(map(len, some.values())))
                update_rows(table, some, lambda _: rows, paired=False)


def plain_rows(chance, least=1):
    rows = [
        {
            "at": DAY + timedelta(days=chance.randrange(3), hours=chance.randrange(3)),
            "n": chance.choice([None, 1, 2]),
            "x": chance.choice([None, float("nan"), 0.0, -0.0]),
            "l": chance.choice([None, [], [1], [1, None]]),
        }
        for _ in range(chance.randrange(least, least + 7))
    ]
    return pa.Table.from_pylist(rows, schema=PLAIN)


def counted(table):
    return Counter(repr(row) for row in table.to_pylist())


@pytest.mark.verify
@pytest.mark.hazard("W14")
def test_changes_of_keyed_tables_are_those_of_the_model():
    assert sum(play(seed, steps=8) for seed in (1, 34)) > 10


@pytest.mark.verify
@pytest.mark.hazard("W14")
def test_changes_of_other_tables_lead_from_version_to_version():
    assert sum(play_plain(seed) for seed in (1, 11, 51)) > 30


@pytest.mark.long
def test_changes_of_thousands_of_histories():
    for seed in range(1000, 1000 + LONG):
        play(seed, steps=16)
        play_plain(seed, steps=16)
