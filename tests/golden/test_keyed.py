"""The golden keyed tables, read by a second reader, which knows the text of FORMAT.md alone."""

import json

import pytest
from golden import vectors
from golden.keyed_reader import Reader, bucket, exact, merged, murmur3
from support import builders

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import run
from eventlog.keyed.rule import keyed_of, splits_of
from eventlog.log import spills
from eventlog.model.actions import Merge
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import upsert

NAMES = ("joined", "keyed", "rolled", "split")
EDGES = ("deletes", "grouped", "summed")
VECTORS = json.loads(vectors.VECTORS.read_text(encoding="utf-8"))


def reader_of(name):
    store = LocalStore(vectors.TABLES / name)
    objects = {found.key: store.get(found.key) for found in store.list("")}
    outcomes = [[o == "accepted" for o in one["transactions"]] for one in VECTORS[name]]
    return Reader(objects, outcomes)


def said(rows):
    """Rows as texts, which tell 0.0 from -0.0, and of which a NaN equals another."""
    return sorted(str(list(row.items())) for row in rows)


def read(table, version):
    """The rows of a version, as the second reader names their values."""
    rows = scan(table, version=version).to_table()
    kinds = {c.name: str(c.type) for c in table.snapshot(version).stored_schema.columns}
    columns = {name: exact(rows.column(name), kinds[name]) for name in rows.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.sample(2, verify=4)
@pytest.mark.parametrize("name", [*NAMES, *EDGES])
def test_a_second_reader_finds_the_same_rows_at_every_version(name):
    table, second = Table.open(vectors.TABLES / name), reader_of(name)
    for version in range(table.session.head().version + 1):
        if second.versions[version][0]:
            assert said(read(table, version)) == said(second.rows(version).values()), version


@pytest.mark.parametrize("name", ["joined", "rolled"])
def test_merges_change_no_answer(name):
    """The rows as they were written, by the semantics alone: no slice, no merge."""
    table, second = Table.open(vectors.TABLES / name), reader_of(name)
    head = table.session.head()
    live, state = second.versions[head.version]
    ever = {i: e for entries, _ in second.versions for i, e in entries.items()}
    logs = sorted(
        (e for e in ever.values() if not e["slice"]["level"]), key=lambda entry: entry["at"]
    )
    rows = [row for e in logs for n in range(8) for row in second._read(e, n, state)]
    assert len(live) < len(ever)
    assert said(merged(rows, state).values()) == said(read(table, head.version))


@pytest.mark.sample(1, verify=2)
@pytest.mark.parametrize("name", NAMES)
def test_compaction_changes_no_answer(name):
    """Of tables whose merges this package did not make."""
    source = LocalStore(vectors.TABLES / name)
    store = MemoryStore()
    for found in source.list(""):
        store.put_if_absent(found.key, source.get(found.key))
    newest = Table.open(store.uri, store=store).session.head()
    table = Table.open(store.uri, store=store, clock=ManualClock(newest.header.time + 1000))
    again = [column for column in newest.schema.names if column != "total"]  # twice is too much
    upsert(table, scan(table, again).to_table().slice(0, 5))
    newest = table.session.head()
    report = run(table)
    assert report.count("done") == len(report.outcomes) > 0
    answers = [vectors.rows_of(table, one["version"]) for one in VECTORS[name]]
    assert answers == [one["rows"] for one in VECTORS[name]]
    head = table.refresh().version
    assert head > newest.version
    assert vectors.rows_of(table, head) == vectors.rows_of(table, newest.version)
    builders.check_sound(store)


def test_the_tables_hold_what_they_are_for():
    kinds, merges, counts, splits = set(), [], {}, set()
    for name in NAMES:
        table = Table.open(vectors.TABLES / name)
        assert keyed_of(table.session.head().layout) is not None
        for version in range(table.session.head().version + 1):
            commit, _ = table.session.log.read(version)
            split = isinstance(table.snapshot(version).layout.keyed.splits, int)
            assert commit.header.features == (("keyed", "split") if split else ("keyed",))
            splits |= {"features of a split"} if split else set()
            whole = spills.unpack(commit, table.session.log.spill)
            kinds |= {(s.slice.kind, s.slice.level) for s in whole.delta.adds}
            merges += [a for t in whole.transactions for a in t.actions if isinstance(a, Merge)]
        for one in VECTORS[name]:
            for outcome in one["transactions"]:
                counts[outcome] = counts.get(outcome, 0) + 1
    assert kinds >= {("log", 0), ("log", 1), ("base", 1), ("base", 2), ("late", 1), ("late", 2)}
    assert counts["F11"] > 30
    assert counts["F4"] == 3
    assert counts["R14.4"] == 1
    assert {m.first for m in merges} >= {0, 1}
    assert splits == {"features of a split"}
    assert {splits_of(m) for m in merges} >= {0, 1, 2}
    assert counts["R15.16"] == 5


def test_the_second_reader_knows_the_hash_that_others_publish():
    assert murmur3(b"iceberg") == 1210000089
    assert murmur3(b"\x00\x01\x02\x03") == -188683207 % 2**32
    assert bucket([34], ["int64"], 2**31) == 2017239379
    assert bucket([1420], ["decimal(4,2)"], 2**31) == -500754589 % 2**31
