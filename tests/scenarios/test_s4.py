"""S4: several writers upsert into one keyed table and never see each other.

After "Non-blocking Concurrency Control" (Hudi): a file slice is a base and the logs above it, by
completion. Here a base has the versions that its merge was planned on, a log that of its commit.
"""

import itertools
import random
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from support.keyed_tables import model_of, ordered, rule_at, runs_of

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, perform, plan
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.readers import changes, count, scan
from eventlog.table.stage_again import commit_staged
from eventlog.writers import delete, upsert
from eventlog.writers.batch import stage

SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("a", pa.string()), ("b", pa.string())]
)
WITH_OP = pa.schema([*SCHEMA, pa.field("_op", pa.string())])
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
POLICY = Policy(target_bytes=2**20, backoff_s=1)
WRITERS, UPSERTS = 3, 3


def keyed(place, **options):
    options = {"key": "id", "order_by": "at", "buckets": 2, "time_column": "at"} | options
    return Table.create(place, SCHEMA, clock=ManualClock(1_700_000_000_000, 1), **options)


def other(table, seed):
    return Table.open(table.uri, clock=ManualClock(1_700_000_000_000, seed))


def row(key, minute=0, a=None, b=None, op="u"):
    return {"id": key, "at": NOON + timedelta(minutes=minute), "a": a, "b": b, "_op": op}


def arrow(*rows):
    return pa.Table.from_pylist(list(rows), schema=WITH_OP)


def staged(table, *rows):
    """Write a log whose commit is still to come."""
    head = table.refresh()
    adds = stage(table, head, arrow(*rows), 2**20)
    return table.transaction("upsert", adds, read_version=head.version)


def answer(table, version=None):
    return {r["id"]: (r["a"], r["b"]) for r in scan(table, version=version).to_table().to_pylist()}


def compact(table):
    report = compaction.run(table, policy=POLICY)
    assert all(outcome.ok for outcome in report.outcomes), report.outcomes
    return report


@pytest.mark.scenario("S4.1")
@pytest.mark.hazard("K4")
def test_s4_1_the_slices_of_the_document(place):
    table = keyed(place, buckets=1)
    upsert(table, arrow(row(1, a="base"), row(2, a="base")))
    compact(table)
    l1, l2, l3 = other(table, 2), other(table, 3), other(table, 4)
    first = staged(l1, row(1, 1, a="l1"))  # begins first, and ends before the next one
    second = staged(l2, row(2, 2, a="l2"))
    third = staged(l3, row(2, 1, a="l3"), row(3, a="l3"))  # begins before the merge, ends after
    commit_staged(l1.session, first)
    commit_staged(l2.session, second)
    before = table.refresh().version
    (task,) = plan(table, POLICY).tasks
    assert perform(table, task, POLICY).ok
    merged = table.refresh().version
    commit_staged(l3.session, third)

    (old,) = runs_of(table.snapshot(before))
    assert [len(old.base), len(old.logs)] == [1, 2]
    (new,) = runs_of(table.refresh())
    assert new.base[0].span == (1, before)
    assert [log.low for log in new.logs] == [merged + 1]
    # The order of rows is that of `at`, whenever they were committed or merged.
    assert answer(table) == {1: ("l1", None), 2: ("l2", None), 3: ("l3", None)}
    assert answer(table, before) == answer(table, merged) == {1: ("l1", None), 2: ("l2", None)}


@pytest.mark.scenario("S4.2")
@pytest.mark.hazard("K5")
def test_s4_2_writers_never_fail_and_the_table_is_a_dictionary(place):
    table = keyed(place, properties={"combine_after": "1", "keyframe_commits": "8"})
    given, problems = {}, []

    def write(writer):
        chance = random.Random(writer)
        try:
            handle = other(table, 10 + writer)
            for seq in range(UPSERTS):
                rows = [
                    row(chance.randrange(5), chance.randrange(9), f"{writer} {seq} {n}",
                        op="u" if chance.random() < 0.8 else "d")
                    for n in range(chance.randrange(1, 5))
                ]  # fmt: skip
                given[f"w{writer}", seq] = rows
                upsert(handle, arrow(*rows), app_id=f"w{writer}", app_seq=seq)
                if writer == 0 and seq % 2:
                    compaction.run(handle, policy=POLICY)
        except Exception as error:  # noqa: BLE001 - all of them are shown
            problems.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    table.refresh()
    every = in_order_of_completion(table, given)
    assert len(every) == sum(map(len, given.values()))
    wanted = ordered(model_of(every, rule_at(table.session.head())).values())
    assert ordered(scan(table).to_table().to_pylist()) == wanted
    compact(table)
    assert ordered(scan(table).to_table().to_pylist()) == wanted
    assert fsck(table).findings == ()


def in_order_of_completion(table, given):
    rows = []
    for version in range(table.session.head().version + 1):
        commit = spills.unpack(table.session.log.read(version)[0], table.session.log.spill)
        for transaction in commit.transactions:
            if transaction.app is not None:
                rows += given[transaction.app.id, transaction.app.seq]
    return rows


@pytest.mark.scenario("S4.3")
@pytest.mark.parametrize("kind", ["last", "partial"])
def test_s4_3_a_late_event_still_loses_to_what_was_merged(place, kind):
    table = keyed(place, properties={"merge": kind})
    upsert(table, arrow(row(1, 10, a="new", b="new"), row(2, 10, a="new")))
    upsert(table, arrow(row(3, 10, op="d"), row(4, 10, op="d")))
    compact(table)
    upsert(table, arrow(row(1, 5, a="late"), row(3, 5, a="late"), row(4, 15, a="later")))
    wanted = {1: ("new", "new"), 2: ("new", None), 4: ("later", None)}
    assert answer(table) == wanted
    compact(table)
    assert answer(table) == wanted
    assert count(table) == 3


@pytest.mark.scenario("S4.3")
def test_s4_3_the_first_event_wins_even_if_it_is_late(place):
    table = keyed(place, properties={"merge": "first"})
    upsert(table, arrow(row(1, 10, a="second")))
    compact(table)
    upsert(table, arrow(row(1, 5, a="first")))
    assert answer(table) == {1: ("first", None)}
    compact(table)
    assert answer(table) == {1: ("first", None)}


@pytest.mark.scenario("S4.4")
@pytest.mark.parametrize("merged", [False, True])
def test_s4_4_deletes_and_rows_that_come_again(place, merged):
    table = keyed(place, order_by=None)
    step = (lambda: compact(table)) if merged else (lambda: None)
    upsert(table, arrow(*(row(n, a="first") for n in range(4))))
    step()
    delete(table, keys=pa.table({"id": [1, 2]}))
    assert sorted(answer(table)) == [0, 3]
    step()
    upsert(table, arrow(row(1, a="again")))
    assert answer(table)[1] == ("again", None)
    step()
    delete(table, where="a = 'again' OR id = 3")
    step()
    assert answer(table) == {0: ("first", None)}
    assert count(table) == 1


@pytest.mark.scenario("S4.4")
def test_s4_4_two_streams_fill_the_columns_of_one_row(place):
    # Each has an order of its own: whatever arrives when, the join is the same.
    schema = pa.schema([*SCHEMA, ("seen_a", pa.int64()), ("seen_b", pa.int64())])
    table = Table.create(
        place,
        schema,
        key="id",
        buckets=2,
        time_column="at",
        properties={"merge": "partial", "merge.group.seen_a": "a", "merge.group.seen_b": "b"},
    )
    chance = random.Random(1)
    events = [(key, n, side) for key in range(3) for n in range(3) for side in "ab"]
    chance.shuffle(events)
    for place_in, (key, n, side) in enumerate(events):
        one = {"id": key, "at": NOON, side: f"{side}{n}", f"seen_{side}": n}
        upsert(table, pa.Table.from_pylist([one], schema=schema))
        if place_in % 9 == 3:
            compact(table)
    assert answer(table) == dict.fromkeys(range(3), ("a2", "b2"))


@pytest.mark.scenario("S4.5")
def test_s4_5_every_version_stays_as_it_was(place):
    table = keyed(place, properties={"keyframe_commits": "4"})
    chance, wanted, rows = random.Random(5), {0: []}, []
    for step in range(7):
        if step % 4 == 3:
            compact(table)
        else:
            fresh = [
                row(chance.randrange(4), chance.randrange(6), str(step), op=chance.choice("uud"))
                for _ in range(2)
            ]
            upsert(table, arrow(*fresh))
            rows += fresh
        now = ordered(model_of(rows, rule_at(table.refresh())).values())
        for version in range(table.session.head().version + 1):
            wanted.setdefault(version, now)
    late = other(table, 9)
    for version, then in wanted.items():
        assert ordered(scan(late, version=version).to_table().to_pylist()) == then, version
        assert count(late, version=version) == len(then)
    newest = late.session.head().version
    whole = changes(late, 0).to_table().to_pylist()
    for cuts in ([3], [1, 2, 5], range(1, newest)):
        ends = [0, *cuts, newest]
        parts = [changes(late, a, b).to_table().to_pylist() for a, b in pairwise(ends)]
        assert ordered(itertools.chain(*parts)) == ordered(whole)
    for version in range(newest):  # the changes of a version lead from the one before it to it
        state = {r["id"]: r for r in wanted[version]}
        for change in changes(late, version, version + 1).to_table().to_pylist():
            at = {n: change[n] for n in SCHEMA.names}
            if change["_change"] in ("delete", "update_before"):
                assert state.pop(at["id"]) == at
            else:
                assert state.setdefault(at["id"], at) is at
        assert ordered(state.values()) == wanted[version + 1]
