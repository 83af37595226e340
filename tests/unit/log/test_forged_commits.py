"""Commits whose digests fit, and whose parts are not those of the format or of the fold."""

import pytest
from support.builders import create, events, live, replaced
from support.damage import Damaged

from eventlog import Table, errors
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes
from eventlog.log import spills
from eventlog.model.actions import SetSchema
from eventlog.model.entries import Column, Schema, Spill
from eventlog.readers import count, scan
from eventlog.writers import append, overwrite


def forged(change, *, dropped=False):
    """A table whose newest commit was changed; three days, one more key frame, one more day."""
    table = create()
    append(table, events(3, days=3))
    table.write_keyframe()
    append(table, events(2, day=5))
    append(table, events(2, day=7))
    if dropped:
        overwrite(table, events(1, day=1), start="1970-01-02", end="1970-01-03")
    damaged = Damaged.of(table.store)
    damaged.forge_commit(table.refresh().version, change)
    return damaged


def opened(damaged):
    table = Table.open("", store=damaged.store)
    table.refresh()
    return table


def delta(**changes):
    return lambda commit: replaced(commit, delta=replaced(commit.delta, **changes(commit.delta)))


def first(**changes):
    def change(commit):
        head, *rest = commit.transactions
        return replaced(commit, transactions=(replaced(head, **changes), *rest))

    return change


def state(**changes):
    return lambda commit: replaced(commit, state={**commit.state, **changes})


def typed(kind):
    return Schema(2, (Column(4, "added", kind, True),))


def nested(levels):
    return {"list": nested(levels - 1)} if levels else "int64"


REFUSED_AT_OPEN = {
    "adds turned": lambda c: replaced(c, delta=replaced(c.delta, adds=c.delta.adds[::-1])),
    "an add twice": lambda c: replaced(c, delta=replaced(c.delta, adds=c.delta.adds * 2)),
    "a transaction without an id": first(id="zz"),
    "an id in upper case": first(id="AB" * 16),
    "a read version before the first": first(read_version=-2),
    "a read version after it": first(read_version=99),
    "a spill without a hash": first(spill=Spill("zz", 1, 1, 0)),
    "a state that repeats a value": state(fence=0),
    "a state that repeats an empty map": state(chunks={}),
    "a state that removes what is not there": state(chunks={"1970": None}),
    "a state of unknown fields": state(shelf=1),
    "a type with a float": first(actions=(SetSchema(typed({"list": 1.5})),)),
    "a type of 33 levels": first(actions=(SetSchema(typed(nested(33))),)),
    "a table without an id": lambda c: replaced(c, header=replaced(c.header, table="zz")),
    "both lists and a spill": lambda c: replaced(
        c, delta=replaced(c.delta, spill=Spill("ab" * 32, 1, 1, 0))
    ),
}


@pytest.mark.parametrize("name", REFUSED_AT_OPEN)
def test_what_a_commit_alone_tells_is_refused_at_open(name):
    damaged = forged(REFUSED_AT_OPEN[name])
    with pytest.raises(errors.Corrupt):
        opened(damaged)
    assert damaged.errors()


@pytest.mark.parametrize("kind", [nested(32), {"set": "int64"}, {"list": 5}, "uint64"])
def test_a_type_that_the_format_does_not_have_does_not_stop_a_reader(kind):
    damaged = forged(first(actions=(SetSchema(typed(kind)),)))
    assert live(opened(damaged).session.head())
    assert damaged.errors()  # of the fold: the transaction is void


def test_a_table_of_several_adds_and_drops_is_read():
    for dropped in (False, True):
        damaged = forged(lambda commit: commit, dropped=dropped)
        assert count(opened(damaged)) == 7
        assert damaged.errors() == []


def drops(**changes):
    def change(commit):
        (drop,) = commit.delta.drops
        return replaced(commit, delta=replaced(commit.delta, drops=(replaced(drop, **changes),)))

    return change


def test_a_drop_must_name_the_segment_whose_hash_it_has():
    """At open only the hash counts; whoever reads the entry refuses another id."""
    damaged = forged(drops(id="ab" * 16), dropped=True)
    assert opened(damaged).session.head().totals.rows == 7
    for question in ({}, {"where": "at < TIMESTAMP '1970-01-03 00:00:00Z'"}):
        with pytest.raises(errors.Corrupt):
            scan(opened(damaged), **question).to_table()
    with pytest.raises(errors.Corrupt):
        overwrite(opened(damaged), events(1, day=1), start="1970-01-02", end="1970-01-03")
    assert damaged.errors()


def test_a_drop_with_another_chunk_changes_no_answer():
    """The key frame that it cannot be laid over is stepped over, and its id says enough."""
    damaged = forged(drops(chunk="1970-01-03"), dropped=True)
    wanted = forged(lambda commit: commit, dropped=True)
    for question in ({}, {"where": "at < TIMESTAMP '1970-01-03 00:00:00Z'"}):
        found = scan(opened(damaged), **question).to_table()
        assert found == scan(opened(wanted), **question).to_table()
    overwrite(opened(damaged), events(1, day=1), start="1970-01-02", end="1970-01-03")
    assert count(opened(damaged)) == 7
    assert damaged.errors()


@pytest.mark.parametrize("field", ["rows", "bytes"])
def test_totals_over_drops_are_compared_where_all_entries_are_read(field):
    def change(commit):
        totals = commit.header.totals
        totals = replaced(totals, **{field: getattr(totals, field) + 1})
        return replaced(commit, header=replaced(commit.header, totals=totals))

    with pytest.raises(errors.Corrupt):
        opened(forged(change))
    damaged = forged(change, dropped=True)
    assert (
        opened(damaged).session.head().totals
        != forged(lambda c: c, dropped=True).table.session.head().totals
    )
    for ask in (
        count,
        lambda table: scan(table).to_table(),
        lambda table: table.session.head().chunks(),
    ):
        with pytest.raises(errors.Corrupt, match="add up"):
            ask(opened(damaged))
    assert any("totals" in found.message for found in damaged.errors())


def test_a_delta_in_a_spill_has_the_same_order(monkeypatch):
    monkeypatch.setattr(spills, "SPILL_BYTES", 1)
    damaged = forged(lambda commit: commit)
    assert count(opened(damaged)) == 7

    def turned(commit):
        spill = commit.delta.spill
        stored = damaged.store.get(keys.frame_key(spill.sha256))
        table = frame_bytes.from_parquet(stored, spill.adds, spilled=True)
        body = frame_bytes.to_parquet(table.take([1, 0, *range(2, table.num_rows)]))
        damaged.store.put_if_absent(keys.frame_key(codec.sha256(body)), body)
        named = replaced(spill, sha256=codec.sha256(body), size=len(body))
        return replaced(commit, delta=replaced(commit.delta, spill=named))

    damaged.forge_commit(damaged.table.refresh().version, turned)
    with pytest.raises(errors.Corrupt, match="order"):
        opened(damaged)
    assert damaged.errors()


def test_segments_in_a_root_have_one_order():
    damaged = forged(lambda commit: commit)
    before = live(opened(damaged).session.head())
    (version,) = damaged.keyframes()
    damaged.forge_root(version, lambda root: replaced(root, segments=root.segments[::-1]))
    assert live(opened(damaged).session.head()) == before  # over an older key frame, or none
    assert any("order" in found.message for found in damaged.errors())
