"""Publications that a vacuum overtakes: Delta's, from the horizon on; and long ones."""

import json
from datetime import timedelta

import pytest
from support.builders import Spy, create, events, live
from support.deleting import delete_rows
from support.published import known_rows, objects_of, readings

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.errors import Corrupt, InvalidInput
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.publishing.delta import checkpoints, delta_listing
from eventlog.publishing.delta.publisher import DeltaPublisher
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

DELTA = "_delta_log/"
HINT = f"{DELTA}_last_checkpoint"
NOW = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}


def largest(t):
    return max(live(t.refresh()), key=lambda segment: segment.rows).id


def changed(store, deletes=3):
    """An append, then deletes whose vectors are objects, which a vacuum takes."""
    t = create(store)
    append(t, events(9))
    for number in range(deletes):
        delete_rows(t, {largest(t): [number]})
    return t


def vacuumed(t):
    t.clock.advance(10**9)
    vacuum(t, **NOW)
    return t.refresh().meta.horizon


def fresh(t):
    """What one publication of the table at once puts."""
    found = objects_of(t)
    unpublish(t, "delta", dry_run=False)
    publish(t, "delta")
    assert fsck(t).ok
    return found, objects_of(t)


def named_by_the_hint(t):
    return json.loads(t.store.get(HINT))["version"]


class MetStore(Spy):
    """A store that calls something back before its `at`-th call, once."""

    def __init__(self, inner, at, meet):
        super().__init__(inner)
        self.calls, self._at, self._meet = 0, at, meet

    def _tick(self):
        self.calls += 1
        if self.calls == self._at:
            self._meet()

    def get(self, key, *, start=0, length=None):
        self._tick()
        return super().get(key, start=start, length=length)

    def put_if_absent(self, key, body):
        self._tick()
        return super().put_if_absent(key, body)

    def put_hint(self, key, body):
        self._tick()
        super().put_hint(key, body)

    def list(self, prefix, *, after="", limit=None):
        self._tick()
        return super().list(prefix, after=after, limit=limit)


@pytest.mark.verify
@pytest.mark.parametrize("published", [0, 2])
def test_a_publication_behind_the_horizon_goes_on_there(tmp_path, published):
    t = changed(LocalStore(str(tmp_path)))
    publish(t, "delta", version=published)
    append(t, events(2, first=20))
    horizon = vacuumed(t)
    assert horizon == 5
    delete_rows(t, {largest(t): [7]})
    done = publish(t, "delta")
    assert (done.first, done.last) == (horizon, t.refresh().version)
    assert publish(t, "delta").put == 0
    for version in range(horizon, done.last + 1):
        found = readings(t, version)
        assert found["deltalake"] == found["polars"] == known_rows(t, version)
    assert fsck(t).ok
    append(t, events(1, first=30))
    publish(t, "delta")
    vacuumed(t)
    publish(t, "delta")
    found, expected = fresh(t)
    assert found == expected


def test_a_kept_version_may_name_vectors_that_are_vacuumed():
    t = changed(MemoryStore())
    publish(t, "delta")
    assert vacuumed(t) == t.refresh().version - 2  # with its fence and horizon, and its record
    horizon = t.refresh().meta.horizon
    assert publish(t, "delta").put == 2
    assert fsck(t).ok
    unpublish(t, "delta", dry_run=False)
    assert publish(t, "delta").first == horizon + 1
    assert fsck(t).ok
    unpublish(t, "delta", dry_run=False)
    with pytest.raises(InvalidInput, match="begin at the next version"):
        publish(t, "delta", version=horizon)


@pytest.fixture
def often(monkeypatch):
    """Checkpoints each third version, and pages of a LIST with ten keys."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(delta_listing, "PAGE", 10)


def meeting(at):
    """Publish at a store that is met by another publisher and a vacuum at a call; return calls."""
    store = MemoryStore()
    t = changed(store, deletes=4)
    publish(t, "delta", version=1)

    def meet():
        publish(t, "delta")
        append(t, events(1, first=30))
        publish(t, "delta")
        vacuumed(t)

    met = MetStore(store, at, meet)
    other = Table.open("", store=met)
    publish(other, "delta")
    assert publish(t, "delta").last == t.refresh().version
    assert f"{DELTA}{named_by_the_hint(t):020d}.checkpoint.parquet" in objects_of(t), at
    assert fsck(t).ok, at
    append(t, events(1, first=40))
    publish(t, "delta")
    vacuumed(t)
    publish(t, "delta")
    found, expected = fresh(t)
    assert found == expected, at
    return met.calls


@pytest.mark.usefixtures("often")
def test_a_vacuum_between_a_publishers_calls_does_no_harm():
    assert meeting(21) > 21


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("first", range(1, 5))
@pytest.mark.usefixtures("often")
def test_a_vacuum_at_each_of_a_publishers_calls_does_no_harm(first):
    at = calls = first
    while at <= calls:
        calls = max(calls, meeting(at))
        at += 4
    assert at > 30


@pytest.mark.usefixtures("often")
def test_the_hint_does_not_stay_at_a_checkpoint_that_a_vacuum_deleted():
    spy = Spy(MemoryStore())
    t, other = changed(spy.inner), Table.open("", store=spy)

    def overtaken(key):
        spy.before_put = lambda key: None
        publish(t, "delta")
        append(t, events(1, first=30))
        publish(t, "delta")
        assert vacuumed(t) > 3

    spy.before_put = lambda key: overtaken(key) if key == HINT else None
    DeltaPublisher(other.session).put_checkpoint(other.snapshot(3))
    assert f"{DELTA}{named_by_the_hint(t):020d}.checkpoint.parquet" in objects_of(t)


@pytest.mark.usefixtures("often")
def test_a_vacuum_mends_the_hint_that_a_slow_publisher_put():
    spy = Spy(MemoryStore())
    t = changed(spy.inner)
    publish(t, "delta")
    append(t, events(1, first=30))
    publish(t, "delta")
    old = checkpoints.hint(3, 1, 1)
    t.clock.advance(10**9)
    slow = Table(SlowDelete(spy.inner, lambda: spy.inner.put_hint(HINT, old)), t.clock)
    vacuum(slow, **NOW)
    assert t.refresh().meta.horizon > 3
    assert named_by_the_hint(t) == t.refresh().meta.horizon


class SlowDelete(Spy):
    """A store in which something happens before the Delta log is cut."""

    def __init__(self, inner, before):
        super().__init__(inner)
        self._before = before

    def delete(self, keys):
        batch = [*keys]
        if batch[0].startswith(DELTA):
            self._before()
        super().delete(batch)


@pytest.mark.usefixtures("often")
def test_a_long_publication_is_listed_from_the_checkpoint_of_the_hint():
    store = MemoryStore()
    t = create(store)
    rows = []
    for number in range(30):
        append(t, events(1, day=number % 5, first=number))
        if number == 12:
            publish(t, "delta")
    publish(t, "delta")

    class Listed(Spy):
        def list(self, prefix, *, after="", limit=None):
            for row in super().list(prefix, after=after, limit=limit):
                rows.append(row.key)
                yield row

    other = Table.open("", store=Listed(store))
    append(t, events(1, first=99))
    rows.clear()
    assert publish(other, "delta").put == 1
    listed = [key for key in rows if key.startswith(DELTA)]
    assert len(listed) <= 10 + 6
    assert publish(t, "delta").first == 0
    append(t, events(1, first=100))
    publish(t, "delta")
    store.delete([f"{DELTA}{31:020d}.json"])
    with pytest.raises(Corrupt, match="version 31 is missing"):
        publish(t, "delta")


@pytest.mark.usefixtures("often")
def test_a_hint_that_points_nowhere_is_put_again():
    t = create()
    for number in range(20):
        append(t, events(1, first=number))
    publish(t, "delta")
    for lost in (18, 999):
        t.store.put_hint(HINT, checkpoints.hint(lost, 1, 1))
        t.store.delete([f"{DELTA}{lost:020d}.checkpoint.parquet"])
        assert publish(t, "delta").put == 0
        assert named_by_the_hint(t) == 15


def test_the_delta_log_of_another_program_is_not_cut():
    t = changed(MemoryStore())
    for version in range(8):
        t.store.put_if_absent(f"{DELTA}{version:020d}.json", b'{"commitInfo":{}}\n')
    before = objects_of(t)
    vacuumed(t)
    assert objects_of(t) == before
