"""S5.6: buckets are split under writers and a compaction that began with the old number.

After "partition split" of a replicated log: there the parent is fenced and its writers are sent to
the children. Here a split is one commit, and what was staged or planned before it takes effect.
"""

import itertools
import random
import threading
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from support.keyed_tables import model_of, ordered, rule_at

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, perform, plan, run
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.model.records import App
from eventlog.readers import changes, scan
from eventlog.store.memory import MemoryStore
from eventlog.table.stage_again import commit_staged
from eventlog.writers import upsert
from eventlog.writers.batch import stage

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("a", pa.string())])
WITH_OP = pa.schema([*SCHEMA, pa.field("_op", pa.string())])
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
POLICY = Policy(target_bytes=2**20, backoff_s=1)
UPSERTS = 3
STEPS = ["land", "merge", "upsert", "split again"]
START_MS = 1_700_000_000_000


def keyed(place, **options):
    options = {"key": "id", "order_by": "at", "buckets": 3, "time_column": "at"} | options
    return Table.create(place, SCHEMA, clock=ManualClock(START_MS, 1), **options)


def other(table, seed):
    found = Table.open(table.uri, store=table.store, clock=ManualClock(START_MS, seed))
    found.refresh()
    return found


def drawn(chance, word, count=6):
    return [
        {
            "id": chance.randrange(24),
            "at": NOON + timedelta(minutes=chance.randrange(60)),
            "a": f"{word} {n}",
            "_op": "u" if chance.random() < 0.8 else "d",
        }
        for n in range(count)
    ]


def arrow(rows):
    return pa.Table.from_pylist(rows, schema=WITH_OP)


def staged(table, rows, app):
    """Write a log whose commit is still to come."""
    head = table.refresh()
    adds = stage(table, head, arrow(rows), 2**20)
    return table.transaction("upsert", adds, read_version=head.version, app=app)


def in_order_of_completion(table, given):
    rows = []
    for version in range(table.session.head().version + 1):
        commit = spills.unpack(table.session.log.read(version)[0], table.session.log.spill)
        for transaction in commit.transactions:
            if transaction.app is not None:
                rows += given[transaction.app.id, transaction.app.seq]
    return rows


def check(table, given):
    """The newest version is what was written."""
    rule = rule_at(table.refresh())
    wanted = ordered(model_of(in_order_of_completion(table, given), rule).values())
    assert ordered(scan(table).to_table().to_pylist()) == wanted
    return wanted


def check_well(table, given):
    """And so it is by look-up and by the changes to it, and every row lies in its bucket."""
    wanted = check(table, given)
    for key in (0, 1, 7, 22):
        found = scan(table, where=f"id = {key}").to_table().to_pylist()
        assert found == [row for row in wanted if row["id"] == key]
    rows = {}
    for change in changes(table, 0).to_table().to_pylist():
        if change["_change"] in ("delete", "update_before"):
            assert rows.pop(change["id"])["a"] == change["a"]
        else:
            rows[change["id"]] = {name: change[name] for name in SCHEMA.names}
    assert ordered(rows.values()) == wanted
    assert fsck(table, keys=True).findings == ()


@pytest.mark.scenario("S5.6")
def test_s5_6_no_writer_fails_while_buckets_are_split(place):
    table = keyed(place, properties={"combine_after": "1", "keyframe_commits": "8"})
    given, problems = {}, []
    late = other(table, 20)
    chance = random.Random(7)
    waiting = []
    for seq in range(UPSERTS):  # staged in 3 buckets, whatever there are when it lands
        given["late", seq] = drawn(chance, f"late {seq}")
        waiting.append(staged(late, given["late", seq], App("late", seq)))

    def write(writer, name):
        chance = random.Random(writer)
        try:
            handle = other(table, 10 + writer)
            for seq in range(UPSERTS):
                given[name, seq] = drawn(chance, f"{name} {seq}")
                upsert(handle, arrow(given[name, seq]), app_id=name, app_seq=seq)
                if name == "new" and seq in (0, 2):
                    handle.set_buckets(2 * rule_at(handle.refresh()).buckets)
                if name == "old" and seq % 2:
                    outcomes = run(handle, policy=POLICY).outcomes
                    assert {o.status for o in outcomes} <= {"done", "superseded"}
        except Exception as error:  # noqa: BLE001 - all of them are shown
            problems.append(error)

    def land():
        try:
            for transaction in waiting:
                commit_staged(late.session, transaction)
        except Exception as error:  # noqa: BLE001 - all of them are shown
            problems.append(error)

    threads = [threading.Thread(target=write, args=pair) for pair in ((1, "new"), (2, "old"))]
    threads.append(threading.Thread(target=land))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert rule_at(table.refresh()).buckets == 12
    assert len(in_order_of_completion(table, given)) == 3 * UPSERTS * 6
    check(table, given)
    assert all(outcome.ok for outcome in run(table, policy=POLICY).outcomes)
    check(table, given)
    assert fsck(table).findings == ()


@pytest.mark.scenario("S5.6")
@pytest.mark.parametrize(
    "orders",
    [
        [("merge", "split", "land", "upsert"), ("split", "land", "upsert", "split again", "merge")],
        pytest.param(list(itertools.permutations(["split", *STEPS])), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_s5_6_a_split_may_come_between_any_two_steps(orders):
    """An upsert that was staged, a merge that was planned and two splits, in every order."""
    for order in orders:
        table = keyed("", store=MemoryStore(), properties={"bucket_bytes": "1024"})
        given = {("first", n): drawn(random.Random(n), f"first {n}") for n in range(2)}
        for (name, seq), rows in given.items():
            upsert(table, arrow(rows), app_id=name, app_seq=seq)
        late, compactor = other(table, 2), other(table, 3)
        given["late", 0] = drawn(random.Random(5), "late")
        waiting = staged(late, given["late", 0], App("late", 0))
        (task,) = plan(compactor, POLICY).tasks
        for step in order:
            if step == "land":
                commit_staged(late.session, waiting)
            elif step == "merge":
                assert perform(compactor, task, POLICY).status == "done"
            elif step == "upsert":
                given["new", 0] = drawn(random.Random(6), "new")
                upsert(other(table, 4), arrow(given["new", 0]), app_id="new", app_seq=0)
            else:
                table.set_buckets(2 * rule_at(table.refresh()).buckets)
        check_well(table, given)
