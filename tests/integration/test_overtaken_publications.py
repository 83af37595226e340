"""Publications that a vacuum overtakes: Delta's, from the horizon on; and long ones."""

import contextlib
import json
import random
from datetime import timedelta

import pytest
from support.builders import CrashingStore, Spy, create, events, live
from support.deleting import delete_rows
from support.publication_rounds import FORMATS, MetStore, change, check_publication
from support.published import compact_all, known_rows, objects_of, put_checkpoint, readings

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.errors import Corrupt, InvalidInput, Unavailable
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.publishing.delta import delta_listing
from eventlog.publishing.delta.translation import checkpoints
from eventlog.publishing.iceberg import cut_iceberg
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash
from eventlog.writers import append, upsert

DELTA = "_delta_log/"
HINT, ICEBERG_HINT = f"{DELTA}_last_checkpoint", "metadata/version-hint.text"
FORMATS_EACH = pytest.mark.parametrize("name", FORMATS)
NOW = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}


TABLES = pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])


def largest(t):
    return max(live(t.refresh()), key=lambda segment: segment.rows).id


def changed(store, deletes=3):
    """An append, then deletes whose vectors are objects, which a vacuum takes."""
    t = create(store)
    append(t, events(9))
    for number in range(deletes):
        delete_rows(t, {largest(t): [number]})
    return t


def upserted(store):
    """Upserts, all compacted; and more, of rows that others replace. A vacuum takes the first."""
    t = create(store, key="name", buckets=2, granularity="all")
    for number in range(3):
        upsert(t, events(4, first=2 * number))
    compact_all(t)
    upsert(t, events(2))
    upsert(t, events(3, first=1))
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


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_vacuum_without_news_cuts_what_a_publisher_behind_the_horizon_left(name):
    t = changed(MemoryStore(), deletes=1)
    publish(t, name, version=1)
    horizon = vacuumed(t)
    vacuum(t, **NOW)
    newest = t.refresh().version
    publish(t, name)
    report = vacuum(t, **NOW)
    assert t.refresh().version == newest
    if name == "iceberg":  # publishing to Delta goes on at the horizon by itself
        assert report.gone["published"].objects > 0
    assert check_publication(t, name)[0] >= horizon


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


def meeting(name, at, *, keyed):
    """Publish at a store that is met by another publisher and a vacuum at a call; return calls."""
    store = MemoryStore()
    t = upserted(store) if keyed else changed(store, deletes=4)
    write = upsert if keyed else append
    publish(t, name, version=1)

    def meet():
        publish(t, name)
        write(t, events(1, first=30))
        publish(t, name)
        vacuumed(t)

    met = MetStore(store, at, meet)
    publish(Table.open("", store=met), name)
    assert publish(t, name).last == t.refresh().version
    assert fsck(t).ok, at
    write(t, events(1, first=40))
    publish(t, name)
    vacuumed(t)
    check_publication(t, name)
    return met.calls


@pytest.mark.parametrize(("at", "keyed"), [(4, False), (21, False), (19, True)])
@FORMATS_EACH
@pytest.mark.usefixtures("often")
def test_a_vacuum_between_a_publishers_calls_does_no_harm(name, at, keyed):
    assert meeting(name, at, keyed=keyed) > at


def audited_beside_a_vacuum(name, at, *, keyed):
    """Check a table with fsck, which a vacuum meets at a call; return its calls."""
    store = MemoryStore()
    t = upserted(store) if keyed else changed(store)
    publish(t, name)
    met = MetStore(store, at, lambda: vacuumed(t))
    report = fsck(Table.open("", store=met))
    assert report.ok, (at, report.findings)
    return met.calls


@pytest.mark.parametrize(("at", "keyed"), [(45, False), (60, True)])
def test_a_vacuum_beside_fsck_is_not_taken_for_a_loss(at, keyed):
    assert audited_beside_a_vacuum("iceberg", at, keyed=keyed) > at


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("first", range(1, 13))
@FORMATS_EACH
@TABLES
def test_a_vacuum_at_each_call_of_fsck_is_not_taken_for_a_loss(name, first, keyed):
    at = calls = first
    while at <= calls:
        calls = max(calls, audited_beside_a_vacuum(name, at, keyed=keyed))
        at += 12
    assert at > 30


def test_publishers_that_a_vacuum_parts_agree_on_the_version_that_one_begins_at(tmp_path):
    spy = Spy(LocalStore(str(tmp_path)))
    t = upserted(spy.inner)
    begun = f"{DELTA}{t.refresh().version:020d}.json"

    def overtaken(key):
        if key == begun:
            spy.before_put = lambda key: None
            assert vacuumed(t) == t.session.head().version - 2
            assert publish(t, "delta").first == t.session.head().version - 2

    spy.before_put = overtaken
    assert publish(Table.open("", store=spy), "delta").first == 0
    assert fsck(t).ok
    assert readings(t, t.refresh().meta.horizon)["deltalake"] == known_rows(
        t, t.session.head().version
    )


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("first", range(1, 13))
@FORMATS_EACH
@TABLES
@pytest.mark.usefixtures("often")
def test_a_vacuum_at_each_of_a_publishers_calls_does_no_harm(name, first, keyed):
    at = calls = first
    while at <= calls:
        calls = max(calls, meeting(name, at, keyed=keyed))
        at += 12
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
    put_checkpoint(other, 3)
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
    """A store in which something happens before a publication is cut."""

    def __init__(self, inner, before, prefix=DELTA):
        super().__init__(inner)
        self._before, self._prefix = before, prefix

    def delete(self, keys):
        batch = [*keys]
        if batch[0].startswith(self._prefix):
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


def iceberg_hint_is_there(t):
    return t.store.get(f"metadata/{t.store.get(ICEBERG_HINT).decode()}.metadata.json")


def test_the_hint_of_iceberg_does_not_stay_at_a_version_that_a_vacuum_deleted():
    spy = Spy(MemoryStore())
    t, other = changed(spy.inner), Table.open("", store=spy)

    def overtaken(key):
        if key == ICEBERG_HINT:
            spy.before_put = lambda key: None
            append(t, events(1, first=30))
            publish(t, "iceberg")
            vacuumed(t)

    spy.before_put = overtaken
    publish(other, "iceberg", version=2)
    assert iceberg_hint_is_there(t)


def test_a_vacuum_mends_the_hint_of_iceberg_that_a_slow_publisher_put():
    spy = Spy(MemoryStore())
    t = changed(spy.inner)
    append(t, events(1, first=30))
    publish(t, "iceberg")
    t.clock.advance(10**9)
    slow = SlowDelete(spy.inner, lambda: spy.inner.put_hint(ICEBERG_HINT, b"v2"), "metadata/")
    vacuum(Table(slow, t.clock), **NOW)
    assert iceberg_hint_is_there(t)


def test_a_vacuum_takes_what_a_publisher_that_it_overtook_put_again():
    t = changed(MemoryStore())
    append(t, events(1, first=30))
    publish(t, "iceberg")
    old = objects_of(t, "metadata/")
    horizon = vacuumed(t)
    for key in ("metadata/v1.metadata.json", "metadata/v2.metadata.json"):  # without their lists
        t.store.put_if_absent(key, old[key])
    append(t, events(1, first=40))
    publish(t, "iceberg")
    assert fsck(t).ok
    vacuumed(t)
    versions = [int(key[10:].partition(".")[0]) for key in objects_of(t, "metadata/v")
                if key.endswith(".json")]  # fmt: skip
    assert min(versions) >= horizon


def test_an_interrupted_cut_of_iceberg_is_continued():
    t = changed(MemoryStore())
    append(t, events(1, first=30))
    publish(t, "iceberg")
    before = objects_of(t, "metadata/")
    t.clock.advance(10**9)
    whole = [key for key, _ in cut_iceberg(t.session, 4, run=False)]
    for kept in range(len(whole)):
        t.store.delete(whole[:kept])
        assert {key for key, _ in cut_iceberg(t.session, 4, run=False)} == {*whole[kept:]}
        for key in whole[:kept]:
            t.store.put_if_absent(key, before[key])


def disturbed(seed, changes):
    """Publish beside changes: two publishers in each format, met by each other and killed."""
    draw, store = random.Random(seed), MemoryStore()
    t = create(store)

    def publish_once(name, at, then):
        met = MetStore(store, draw.randrange(1, 40), then)
        killed = CrashingStore(met, at, draw.choice(["before", "after", "lost", "refused"]))
        with contextlib.suppress(Crash, Unavailable):
            publish(Table.open("", store=killed), name)

    for number in range(changes):
        t.clock.advance(60_000)
        name = draw.choice(FORMATS)
        move = lambda n=number: change(t, draw, n, timedelta(minutes=20))
        other = lambda name=name, move=move: publish_once(name, draw.randrange(5, 90), move)
        if draw.random() < 0.5:
            move()
        else:
            publish_once(name, draw.randrange(5, 120), draw.choice([move, other]))
    t.clock.advance(60_000)
    vacuum(t, dry_run=False, retention=timedelta(minutes=10), staging=timedelta(minutes=10))
    return {name: check_publication(t, name) for name in FORMATS}


@pytest.mark.usefixtures("often")
def test_publishers_beside_changes_and_vacuums_leave_what_one_publication_puts():
    first, last = disturbed(1, 14)["delta"]
    assert first < last


@pytest.mark.sample(0, verify=1)
@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("seed", range(2, 12))
def test_more_publishers_beside_changes_and_vacuums(seed):
    disturbed(seed, 60)


def deleted_again(store):
    """A row that is deleted, restored, and later deleted again: by the same file of positions."""
    t = create(store)
    append(t, events(9))
    (segment,) = [segment.id for segment in live(t.refresh())]
    delete_rows(t, {segment: [0]})
    t.restore(1)
    publish(t, "iceberg")
    t.clock.advance(3_600_000)
    delete_rows(t, {segment: [0]})
    return t


def cut_to_the_restore(t):
    """Vacuum all versions below the restore."""
    half = timedelta(minutes=30)
    vacuum(t, retention=half, staging=half, dry_run=False)
    assert t.refresh().meta.horizon == 3


def positions_of(t):
    return {key: body for key, body in objects_of(t, "metadata/").items() if "/deletes-" in key}


def test_a_publisher_puts_again_what_a_vacuum_took_before_it_named_it():
    spy = Spy(MemoryStore())
    t = deleted_again(spy.inner)
    before = positions_of(t)

    def overtaken(key):
        if key == "metadata/v4.metadata.json":
            spy.before_put = lambda key: None
            cut_to_the_restore(Table(spy.inner, t.clock))
            assert positions_of(t) == {}

    spy.before_put = overtaken
    assert publish(Table(spy, t.clock), "iceberg", version=4).put == 1
    assert positions_of(t) == before
    assert len(before) == 1
    assert fsck(t).ok


def test_a_vacuum_puts_again_what_a_publisher_named_before_it_took_it():
    store = MemoryStore()
    t = deleted_again(store)
    before = positions_of(t)
    slow = SlowDelete(store, lambda: publish(Table(store, t.clock), "iceberg"), "metadata/")
    cut_to_the_restore(Table(slow, t.clock))
    assert "metadata/v4.metadata.json" in objects_of(t, "metadata/")
    assert positions_of(t) == before
    assert fsck(t).ok


class Paged:
    """A store whose LIST of all that is published is not one moment: `between` runs inside."""

    def __init__(self, inner, between):
        self.inner, self.between = inner, between

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def list(self, prefix, **options):
        if prefix != "metadata/":
            yield from self.inner.list(prefix, **options)
            return
        yield from [row for row in self.inner.list(prefix) if row.key < "metadata/v"]
        self.between, between = lambda: None, self.between
        between()
        yield from [row for row in self.inner.list(prefix) if row.key >= "metadata/v"]


def test_a_publisher_notices_a_vacuum_between_two_pages_of_its_list():
    store = MemoryStore()
    t = deleted_again(store)
    publish(t, "iceberg", version=3)
    before = positions_of(t)
    paged = Paged(store, lambda: cut_to_the_restore(Table(store, t.clock)))
    assert publish(Table(paged, t.clock), "iceberg", version=4).put == 1
    assert paged.between() is None
    assert positions_of(t) == before
    assert fsck(t).ok
