"""What a version appended, compared with the fold of all versions."""

import pyarrow as pa
import pytest
from support.builders import add, commit, create, drop_of, events, live
from support.deleting import delete_rows
from support.replacements import rewrite
from support.updating import update_rows

from eventlog.commit import proposal
from eventlog.format import keys
from eventlog.log import spills
from eventlog.state import fold
from eventlog.state.appends import Appends
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite


def appended(table, version):
    commit, _ = table.session.log.read(version)
    return table.session.log.appends(commit)


@pytest.fixture
def table():
    """Version 1 appended two segments, a day each."""
    table = create()
    append(table, events(4, days=2))
    return table


def test_an_append_is_new_as_the_table_has_it(table):
    found = appended(table, 1)
    assert sorted(found.segments, key=lambda s: s.id) == live(table.snapshot())
    assert (found.version, found.change, found.schema, found.horizon) == (1, None, None, 0)
    assert appended(table, 0).segments == ()
    assert appended(table, 0).schema == table.session.head().stored_schema


def test_a_rewrite_of_rows_is_not_new(table):
    version = table.commit(rewrite(table, live(table.session.head())))
    time = table.session.head().header.time
    assert appended(table, version) == Appends(version, time=time)


@pytest.mark.parametrize("change", ["deletes", "drop", "overwrite", "restore", "rows", "update"])
def test_what_removes_rows_or_brings_them_back_is_a_change(table, change):
    if change == "deletes":
        keep = lambda rows: pa.array([n > 0 for n in range(len(rows))])
        version = table.commit(rewrite(table, live(table.session.head()), keep=keep))
    elif change == "rows":
        version = delete_rows(table, {live(table.session.head())[0].id: [1]})
    elif change == "update":
        version = update_rows(table, {live(table.session.head())[0].id: [1]}, lambda rows: rows)
    elif change == "overwrite":
        version = overwrite(table, events(1, first=9), start="1970-01-01", end="1970-01-02")
    else:
        dropped = table.drop_segments(live(table.session.head())[:1], reason="a test")
        version = dropped if change == "drop" else table.restore(1)
    found = appended(table, version)
    assert found.segments == ()
    assert found.change is not None


def test_an_update_names_its_old_and_new_rows_if_they_are_pairs(table):
    first, second = live(table.session.head())
    paired = update_rows(table, {first.id: [1]}, lambda rows: rows)
    other = update_rows(table, {second.id: [1]}, lambda rows: rows, paired=False)
    (update,) = appended(table, paired).updates
    assert update.touched == {first.id}
    assert [s.version for s in update.segments] == [paired]
    assert appended(table, paired).change == "update"
    assert not appended(table, other).updates


def test_an_overwrite_of_nothing_is_an_append(table):
    version = overwrite(table, events(1, day=7), start="1970-01-08", end="1970-01-09")
    assert (len(appended(table, version).segments), appended(table, version).change) == (1, None)


def test_columns_and_the_horizon_are_told(table):
    schema = pa.schema([*table.session.head().schema, ("more", pa.int64())])
    version = table.add_columns(schema)
    assert appended(table, version).schema == table.session.head().stored_schema


def put_commit(table, transactions):
    """Commit these transactions together, also those that are void."""
    head = table.refresh()
    _, view = table.session.log.load_view(head, transactions)
    effect = fold.judge(transactions, view, head.header.time + 1)
    made = proposal.propose(
        head,
        transactions,
        effect,
        table_id=head.header.table,
        time_ms=head.header.time + 1,
        log=table.session.log,
    )
    table.store.put_if_absent(keys.commit_key(head.version + 1), made.body)
    return effect


def test_a_void_transaction_counts_for_nothing_and_others_in_its_commit_do(table):
    old, other = live(table.session.head())
    fresh = [add(table), add(table), add(table)]
    transactions = [
        table.transaction("append", [fresh[0]]),
        table.transaction("overwrite", [drop_of(old), drop_of(old), fresh[1]]),
        table.transaction("append", [fresh[2]]),
    ]
    effect = put_commit(table, transactions)
    assert list(effect.void) == [transactions[1].id]
    found = appended(table, 2)
    assert found.segments == effect.adds
    assert [s.id for s in found.segments] == [fresh[0].id, fresh[2].id]
    assert found.change is None
    # And a change that did take effect takes no append of its commit with it.
    fresh = [add(table), add(table)]
    changing = table.transaction("overwrite", [drop_of(other), fresh[0]])
    effect = put_commit(table, [changing, table.transaction("append", [fresh[1]])])
    assert effect.void == {}
    found = appended(table, 3)
    assert (found.change, found.segments) == ("overwrite", effect.adds[1:])


def test_a_commit_costs_one_request_and_a_spill_one_more(monkeypatch):
    monkeypatch.setattr(spills, "SPILL_BYTES", 1_000)
    store = CountingStore(MemoryStore())
    table = create(store)
    few, many = add(table), [add(table) for _ in range(5)]
    commit(table, few)
    commit(table, *many)
    for version, adds, cost in ((1, [few], 1), (2, many, 2)):
        with store.measure() as counts:
            assert {s.id for s in appended(table, version).segments} == {a.id for a in adds}
        assert counts.get == cost
        assert (counts.list, counts.put) == (0, 0)
