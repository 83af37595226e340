"""Changes between versions are what the versions themselves say, and chained ranges are one range.

Keyed tables are compared with the model (`support.keyed_model`): its answers at every version give
the changes. Tables without a key are compared with the rows of both versions, counted.
"""

import random
from collections import Counter
from datetime import timedelta
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.keyed_book import model_of
from support.keyed_tables import DAY, ordered, predicate
from support.random_histories import History, settings
from support.repeatable import EXAMPLES

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.readers import changes, scan
from eventlog.readers.changefeed import images
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


def expected(book, start, end):
    found = []
    for version in range(start + 1, end + 1):
        old, new = (keyed_rows(book, v, end) for v in (version - 1, version))
        for key in {*old, *new}:
            before, after = old.get(key), new.get(key)
            if before == after:
                continue
            updated = before is not None and after is not None
            if before is not None:
                change = "update_before" if updated else "delete"
                found.append(before | {"_change": change, "_version": version})
            if after is not None:
                change = "update_after" if updated else "insert"
                found.append(after | {"_change": change, "_version": version})
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
    sql, holds = predicate(history.chance)
    passing = [row for row in wanted if holds(row) is True]
    assert ordered(untimed(changes(table, start, end, where=sql).to_table())) == ordered(passing)
    return len(wanted)


def play(seed, steps=12):
    """Play a history, and compare its changes with the model; return their number."""
    window = 2000 if seed % 2 else images._WINDOW_BYTES
    with settings(seed), mock.patch.multiple(images, _WINDOW_BYTES=window):
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
    return whole.total()


def act_plain(chance, table):
    day = DAY + timedelta(days=chance.randrange(3))
    match chance.choice("aaaaoorcd"):
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


def plain_rows(chance):
    rows = [
        {
            "at": DAY + timedelta(days=chance.randrange(3), hours=chance.randrange(3)),
            "n": chance.choice([None, 1, 2]),
            "x": chance.choice([None, float("nan"), 0.0, -0.0]),
            "l": chance.choice([None, [], [1], [1, None]]),
        }
        for _ in range(chance.randrange(1, 8))
    ]
    return pa.Table.from_pylist(rows, schema=PLAIN)


def counted(table):
    return Counter(repr(row) for row in table.to_pylist())


def test_changes_of_keyed_tables_are_those_of_the_model():
    assert sum(play(seed, steps=8) for seed in (1, 4)) > 10


def test_changes_of_other_tables_lead_from_version_to_version():
    assert sum(play_plain(seed) for seed in range(3)) > 30


@pytest.mark.long
def test_changes_of_thousands_of_histories():
    for seed in range(1000, 1000 + LONG):
        play(seed, steps=16)
        play_plain(seed, steps=16)
