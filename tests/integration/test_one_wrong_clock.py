"""One wrong clock changes no row (hazard W13).

On stores that report no time commits are stamped by their writers' clocks. Each test has one
machine whose clock is far off, ahead or behind, and compares the rows with those that right clocks
give. docs/decisions/0012-no-clock-decides.md lists every place where a time decides something.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from support.builders import replace_object
from support.forked_histories import copied

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.format import keys
from eventlog.readers import changes, scan
from eventlog.state.small import rules
from eventlog.store.memory import MemoryStore
from eventlog.writers import upsert

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
NOW_MS = 1_700_000_000_000
OFFSETS = (8 * DAY_MS, 9 * YEAR_MS, -8 * DAY_MS, -10 * YEAR_MS)
ALL = Policy(min_gain=0.0)
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("seq", pa.int64())])
AT = datetime(2013, 1, 7, tzinfo=UTC)


class World:
    """A keyed table, its true time, and machines whose clocks are off by some milliseconds."""

    def __init__(self, **properties):
        self.now_ms, self.seeds = NOW_MS, 0
        self.store = MemoryStore()
        Table.create(
            self.store.uri,
            SCHEMA,
            time_column="at",
            key="id",
            order_by="seq",
            buckets=1,
            store=self.store,
            clock=self.clock(0),
            properties=properties,
        )

    def clock(self, offset):
        self.seeds += 1
        return ManualClock(self.now_ms + offset, self.seeds)

    def on(self, offset=0):
        return Table.open("", store=self.store, clock=self.clock(offset))

    def put(self, number, seq, op="u", offset=0):
        upsert(self.on(offset), row(number, seq, op))

    def merge(self, offset=0):
        assert {o.status for o in run(self.on(offset), policy=ALL).outcomes} <= {"done"}

    def later(self, hours):
        self.now_ms += hours * HOUR_MS

    def held(self):
        return sorted((r["id"], r["seq"]) for r in scan(self.on()).to_table().to_pylist())


def row(number, seq, op="u"):
    return pa.table({"id": [number], "at": [AT], "seq": [seq], "_op": [op]})


@pytest.mark.sample(2)
@pytest.mark.hazard("W13")
@pytest.mark.parametrize("merger", ["right", "wrong"])
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_commit_of_a_wrong_clock_forgets_no_young_delete(offset, merger):
    world = World()
    world.put(1, 10)
    world.put(1, 20, "d")
    world.later(1)
    for _ in range(3):
        world.put(2, 1, offset=offset)
        world.later(1)
        world.put(3, 1)
    world.merge(offset if merger == "wrong" else 0)
    world.put(1, 15)
    assert world.held() == [(2, 1), (3, 1)]
    world.merge(offset)
    world.put(1, 16)
    assert world.held() == [(2, 1), (3, 1)]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("idle_days", [8, 3650])
def test_a_delete_by_a_clock_that_is_behind_is_young(idle_days):
    world = World()
    world.put(1, 10)
    world.later(24 * idle_days)
    world.put(1, 20, "d", offset=-idle_days * DAY_MS)  # stamped right after the commit before it
    world.later(1)
    world.put(2, 1)
    world.put(3, 1)
    world.merge()
    world.put(1, 15)
    assert world.held() == [(2, 1), (3, 1)]
    world.later(1)
    world.merge()
    world.put(1, 16)
    assert world.held() == [(2, 1), (3, 1)]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_compaction_by_a_wrong_clock_forgets_no_young_delete(offset):
    world = World()
    world.put(1, 10)
    world.put(1, 20, "d")
    for _ in range(3):
        world.later(1)
        world.put(2, 1)
        world.merge(offset)
    world.put(1, 15)
    assert world.held() == [(2, 1)]


@pytest.mark.hazard("W13")
def test_a_delete_is_not_forgotten_before_its_time_by_the_clock_of_the_compaction():
    world = World()
    world.put(1, 10)
    world.put(1, 20, "d")
    for days in (8, 16, 24):  # a clock that is set forward again and again
        world.put(2, days, offset=days * DAY_MS)
    world.merge()
    world.put(1, 15)
    assert world.held() == [(2, 24)]


@pytest.mark.hazard("W13")
def test_a_delete_is_forgotten_when_its_time_has_passed_twice():
    world = World(tombstone_hours="2")
    world.put(1, 10)
    world.put(1, 20, "d")
    for hours, forgotten in ((1, False), (2, False), (3, True)):
        world.later(hours)
        world.put(2, hours)
        world.merge()
        kinds = {s.slice.kind for s in world.on().snapshot().segments()}
        assert ("late" not in kinds) is forgotten
    world.put(1, 15)
    assert world.held() == [(1, 15), (2, 3)]


@pytest.mark.hazard("W13")
def test_the_time_of_a_commit_of_another_log_forgets_no_young_delete():
    world = World(tombstone_hours="20")
    world.put(1, 10)
    world.put(2, 1)
    parted = World.__new__(World)
    parted.now_ms, parted.seeds, parted.store = NOW_MS, 50, copied(world.store)
    parted.later(5)
    parted.put(3, 1)
    for hours, number, seq, op in ((15, 1, 20, "d"), (15, 2, 2, "u"), (22, 2, 3, "u")):
        world.later(hours)
        world.put(number, seq, op)
    key = keys.commit_key(3)
    sound = world.store.get(key)
    replace_object(world.store, key, parted.store.get(key))
    world.merge()
    replace_object(world.store, key, sound)
    world.put(1, 15)
    assert world.held() == [(2, 3)]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_commit_of_a_wrong_clock_forgets_no_unit_of_work(offset, monkeypatch):
    monkeypatch.setattr(rules, "APP_VERSIONS", 2)  # as after a thousand versions within an hour
    world = World(app_retention_days="7")
    upsert(world.on(), row(1, 1), app_id="load", app_seq=1)
    for number in range(4):
        upsert(
            world.on(offset if number == 1 else 0), row(2, number), app_id=f"{number}", app_seq=1
        )
        world.later(1)
    before = world.on().snapshot().version
    assert upsert(world.on(), row(1, 9), app_id="load", app_seq=1) < before
    assert world.held() == [(1, 1), (2, 3)]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("idle_days", [8, 3650])
def test_a_unit_of_work_by_a_clock_that_is_behind_is_young(idle_days, monkeypatch):
    monkeypatch.setattr(rules, "APP_VERSIONS", 2)
    world = World(app_retention_days="7")
    world.put(3, 1)
    world.later(24 * idle_days)
    upsert(world.on(-idle_days * DAY_MS), row(1, 1), app_id="load", app_seq=1)
    for number in range(4):
        upsert(world.on(), row(2, number), app_id=f"{number}", app_seq=1)
    upsert(world.on(), row(1, 9), app_id="load", app_seq=1)
    assert world.held() == [(1, 1), (2, 3), (3, 1)]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_vacuum_by_a_wrong_clock_takes_no_row_of_the_newest_version(offset):
    world = World()
    for number in range(3):
        world.put(number, 1)
        world.later(1)
    world.merge()
    world.put(2, 2, offset=offset)
    vacuum(world.on(offset), dry_run=False)
    world.put(3, 1)
    vacuum(world.on(), dry_run=False, retention=timedelta(0), staging=timedelta(0))
    assert world.held() == [(0, 1), (1, 1), (2, 2), (3, 1)]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("offset", OFFSETS)
def test_what_changed_is_told_whole_whatever_the_clocks_said(offset):
    world = World()
    told = []
    seen = 0
    for number in range(6):
        world.put(number % 2, number, offset=offset if number == 2 else 0)
        if number == 3:
            world.merge(offset)
        found = changes(world.on(), seen)
        told += [(c["_change"], c["id"], c["seq"]) for c in found.to_table().to_pylist()]
        seen = found.end
    assert [t for t in told if t[0] != "update_before"] == [
        ("insert", 0, 0),
        ("insert", 1, 1),
        *(("update_after", number % 2, number) for number in range(2, 6)),
    ]


@pytest.mark.hazard("W13")
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_claim_that_a_wrong_clock_breaks_costs_work_and_no_row(offset):
    world = World()
    claiming = Policy(min_gain=0.0, claim_bytes=0)
    world.put(1, 1)
    world.put(2, 1)
    lease = world.on().claim()
    world.put(2, 2, offset=offset)
    statuses = {o.status for o in run(world.on(offset), policy=claiming).outcomes}
    assert statuses == ({"done"} if offset > 0 else {"claimed"})
    world.put(3, 1)
    if offset > 0:
        with pytest.raises(errors.ClaimLost):
            lease.renew()
    else:
        lease.release()
    world.merge()
    assert world.held() == [(1, 1), (2, 2), (3, 1)]
