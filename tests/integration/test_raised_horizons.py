"""When a vacuum raises the horizon: by the table's own retention only where that frees something.

A retention that is given raises it always, and a table that rests gets no more commits.
"""

import random
from datetime import timedelta
from importlib import import_module

import pytest
from support.builders import create, events, reopen
from support.forked_histories import copied
from support.vacuumed import DAY

from eventlog import Table, errors
from eventlog.compaction import Policy, vacuum
from eventlog.compaction import run as compact
from eventlog.format import keys
from eventlog.publishing import publish
from eventlog.readers import count, scan
from eventlog.replication import follow
from eventlog.store.branching.branch import BranchStore
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite, upsert

VACUUM = import_module("eventlog.compaction.vacuum")  # its package has a function of that name
HOUR_MS = 3_600_000
NONE = timedelta(0)
SHORT = {"retention_hours": "2", "staging_hours": "1"}


def later(table, hours):
    table.clock.advance(hours * HOUR_MS)


def vacuumed(table, **options):
    """Vacuum; return the horizon."""
    return vacuum(table, dry_run=False, **options).horizon


def on(table, name):
    return Table.open("", store=BranchStore(table.store, name), clock=table.clock)


def appended(table=None, appends=3):
    """A table that was only appended to, and the last time ago."""
    table = table or create(properties=SHORT)
    for n in range(appends):
        append(table, events(2, first=10 * n, day=n))
    later(table, 3)
    return table


def data_keys(store):
    return {row.key for row in store.list(keys.SEGMENTS_PREFIX)}


def live_keys(table):
    return {keys.key_of(segment) for segment in table.refresh().segments()}


@pytest.mark.parametrize("seen", [False, True], ids=["", "by a vacuum when it was young"])
def test_a_row_that_a_vector_deletes_is_given_up_with_its_version(seen):
    table = appended()
    delete(table, where="name = 'row 10'")
    deleted = table.refresh().version
    if seen:
        assert vacuumed(table) == 0
    append(table, events(1, first=90, day=5))
    later(table, 3)
    append(table, events(1, first=91, day=6))
    assert vacuumed(table) > deleted
    with pytest.raises(errors.VersionVacuumed):
        scan(reopen(table.store), version=deleted - 1).to_table()


def test_a_published_table_gives_up_versions_as_its_publications_are_cut(tmp_path):
    for name in ("iceberg", "delta"):
        table = appended(create(LocalStore(str(tmp_path / name)), properties=SHORT))
        assert vacuum(table).horizon == 0
        publish(table, name)
        assert vacuum(table).horizon == table.session.head().version == 3


def test_a_given_retention_gives_up_versions_of_a_table_that_was_only_appended_to():
    table = appended()
    assert (vacuum(table).horizon, vacuum(table, retention=NONE).horizon) == (0, 3)
    assert vacuum(table, retention=timedelta(hours=2)).horizon == 3


@pytest.mark.parametrize("full", [False, True])
def test_what_was_dropped_before_the_first_vacuum_decides(full):
    table = appended()
    assert vacuum(table, full=full).horizon == 0
    overwrite(table, events(1, first=50), **DAY)
    later(table, 3)
    append(table, events(1, first=60, day=7))
    report = vacuum(table, dry_run=False, full=full)
    assert (report.horizon, report.gone["dropped"].objects) == (4, 1)


def test_a_first_vacuum_far_from_the_horizon_raises_it_and_reads_no_more(monkeypatch):
    table = appended()
    monkeypatch.setattr(VACUUM, "_LINKED", 2)
    assert vacuum(table).horizon == 3
    monkeypatch.setattr(VACUUM, "_LINKED", 3)
    assert vacuum(table).horizon == 0


def copy_without_its_beginning(horizon):
    source = create(properties={"keyframe_commits": "3", **SHORT})
    for n in range(8):
        append(source, events(1, first=n))
        if n + 1 == horizon:
            later(source, 3)
            assert vacuumed(source, retention=NONE) == horizon
    store = MemoryStore()
    assert follow(source, Table(store), start="keyframe").start > 1
    copy = Table.open("", store=store, clock=source.clock)
    later(copy, 3)
    append(copy, events(1, first=50))
    return copy


@pytest.mark.parametrize("horizon", [0, 2])
def test_a_copy_that_lacks_versions_raises_its_horizon_above_them(horizon):
    copy = copy_without_its_beginning(horizon)
    assert vacuumed(copy) == copy.session.head().meta.horizon > 6


def test_a_branch_of_such_a_copy_is_vacuumed():
    copy = copy_without_its_beginning(2)
    branch = copy.branch("audit")
    append(branch, events(1, first=60))
    later(branch, 3)
    assert vacuumed(branch) > 6


@pytest.mark.parametrize("deleted", [False, True], ids=["", "and deletes by a vector"])
def test_a_branch_gives_up_versions_above_which_it_dropped_segments_of_its_parent(deleted):
    table = appended()
    if deleted:
        delete(table, where="name = 'row 10'")
        later(table, 3)
        append(table, events(1, first=90, day=9))
        vacuumed(table, retention=NONE)
    branch = table.branch("audit")
    append(branch, events(3, first=100, day=20))
    branch.break_pin("branch:audit")  # inherited from the parent, where it still stands
    overwrite(branch, events(0), start="1970-01-02", end="1970-01-03")
    if deleted:  # as many rows as with the dropped segment went
        delete(branch, where="name = 'row 100'")
    changed = branch.refresh().version
    later(branch, 3)
    append(branch, events(1, first=200, day=30))
    later(branch, 3)
    assert vacuumed(branch) > changed


@pytest.mark.parametrize("name", [None, "iceberg", "delta"])
def test_what_was_deleted_shortly_before_a_table_came_to_rest_is_given_up(name):
    table = appended()
    delete(table, where="name = 'row 10'")
    deleted = table.refresh().version
    if name:
        publish(table, name)
    for _ in range(3):
        assert vacuumed(table) < deleted
    later(table, 3)
    assert vacuumed(table) >= deleted
    with pytest.raises(errors.VersionVacuumed):
        scan(reopen(table.store), version=deleted - 1).to_table()
    rest = table.refresh().version
    for _ in range(3):
        later(table, 300)
        vacuumed(table)
    assert table.refresh().version <= rest + 2


def plain(_):
    table = create()
    append(table, events(2))
    overwrite(table, events(2, first=5), **DAY)
    delete(table, where="name = 'row 5'")
    return table


def only_appended(_):
    return appended(create())


def keyed(_):
    table = create(key="name", buckets=1)
    for _ in range(3):
        upsert(table, events(2))
    compact(table)
    return table


def published(path):
    table = create(LocalStore(str(path)))
    append(table, events(2))
    append(table, events(2, first=5))
    publish(table, "iceberg")
    overwrite(table, events(2, first=9), **DAY)
    publish(table, "iceberg")
    return table


def pinned(_):
    table = appended(create())
    table.pin("keep", 2)
    overwrite(table, events(1, first=90), **DAY)
    return table


def with_a_branch(_):
    table = appended(create())
    append(table.branch("audit"), events(1, first=60))
    overwrite(table, events(1, first=90), **DAY)
    return table


def with_an_unpinned_branch(_):
    table = with_a_branch(_)
    table.break_pin("branch:audit")
    return table


def branch(_):
    table = with_a_branch(_)
    overwrite(on(table, "audit"), events(1, first=70), **DAY)
    return on(table, "audit")


def with_a_copy(_):
    table = appended(create())
    follow(table, f"memory://{id(table)}", name="dr", clock=table.clock)
    overwrite(table, events(1, first=90), **DAY)
    return table


def copy(_):
    table = plain(_)
    vacuum(table, dry_run=False, retention=NONE, staging=NONE)
    return Table.open("", store=copied(table.store), clock=table.clock)


@pytest.mark.parametrize(
    "given",
    [{}, {"retention": NONE}, {"retention": NONE, "staging": NONE}],
    ids=["own", "retention", "both"],
)
@pytest.mark.parametrize(
    "make",
    [plain, only_appended, keyed, published, pinned, with_a_branch, with_an_unpinned_branch,
     branch, with_a_copy, copy],
)  # fmt: skip
def test_vacuums_of_an_idle_table_commit_nothing_after_the_second(make, given, tmp_path):
    table = make(tmp_path)
    later(table, 3000)
    for _ in range(2):
        vacuumed(table, **given)
        later(table, 300)
    rest = table.refresh().version
    before = {row.key for row in table.store.list("")}
    for _ in range(3):
        vacuumed(table, **given)
        later(table, 300)
    assert table.refresh().version == rest
    assert {row.key for row in table.store.list("")} == before


@pytest.mark.parametrize("given", [{"retention": NONE}, {"retention": timedelta(hours=100)}])
def test_a_given_retention_gives_up_versions_of_an_idle_table(given):
    """A vacuum by the table's own retention has left nothing, and there is no news since."""
    table = create()
    append(table, events(3))
    later(table, 30)
    append(table, events(1, first=9, day=3))
    delete(table, where="name = 'row 1'")
    deleted = table.refresh().version
    later(table, 101)
    append(table, events(1, first=10, day=4))
    later(table, 30)
    for _ in range(3):
        assert vacuumed(table) == 0
    rest = table.refresh().version
    assert count(table, version=deleted - 1) == 4
    assert vacuumed(table, **given) >= deleted
    with pytest.raises(errors.VersionVacuumed):
        scan(reopen(table.store), version=deleted - 1).to_table()
    for _ in range(3):
        vacuumed(table, **given)
    assert table.refresh().version == rest + 2


def test_what_waits_for_the_retention_alone_goes_though_nothing_is_committed():
    table = create()
    append(table, events(2))
    overwrite(table, events(1, first=5), **DAY)
    later(table, 30)
    for _ in range(2):
        assert vacuumed(table) == 0
    rest = table.refresh().version
    later(table, 200)
    for _ in range(2):
        assert vacuumed(table) >= 2
    assert data_keys(table.store) == live_keys(table)
    assert table.refresh().version == rest + 2


def test_an_idle_vacuum_sends_a_few_requests():
    table = plain(None)
    later(table, 3000)
    given = {"retention": NONE, "staging": NONE}
    vacuumed(table, **given)
    counting = CountingStore(table.store)
    handle = Table.open("", store=counting, clock=table.clock)
    handle.refresh()
    before = counting.counts.get + counting.counts.list
    vacuumed(handle, **given)
    counts = counting.counts
    assert counts.get + counts.list - before <= 8  # two look for what is published
    assert counts.put == counts.delete == 0


def test_many_versions_of_vacuums_are_given_up_without_reading_them(monkeypatch):
    table = plain(None)
    later(table, 3000)
    vacuumed(table, retention=NONE, staging=NONE)
    later(table, 1)
    rest = table.refresh().version
    monkeypatch.setattr(VACUUM, "_OWN", 1)
    assert vacuumed(table, retention=NONE, staging=NONE) == rest


class RandomLife:
    """A table in which things happen at random, and vacuums by its own retention."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.table = create(properties=SHORT, seed=seed)
        self.number = 0

    def append(self):
        self.number += 10
        append(self.table, events(2, first=self.number, day=self.chance.randrange(3)))

    def overwrite(self):
        self.number += 10
        overwrite(self.table, events(1, first=self.number), **DAY)

    def delete(self):
        delete(self.table, where=f"name = 'row {self.chance.randrange(self.number + 1)}'")

    def compact(self):
        compact(self.table, policy=Policy(min_gain=0, deleted_ratio=0))

    def restore(self):
        head = self.table.refresh()
        self.table.restore(self.chance.randint(head.meta.horizon, head.version - 1))

    def pin(self):
        head = self.table.refresh()
        if "keep" in head.meta.pins:
            self.table.unpin("keep")
        elif head.version > head.meta.horizon:
            self.table.pin("keep", self.chance.randint(head.meta.horizon, head.version - 1))

    def branch(self):
        if self.table.branches():
            self.table.delete_branch("audit")
        else:
            append(self.table.branch("audit"), events(1, first=1))

    def fail_over(self):
        if not self.table.branches():
            self.table = Table.open("", store=copied(self.table.store), clock=self.table.clock)

    def vacuum(self):
        own = vacuum(self.table, full=self.chance.random() < 0.2)
        given = vacuum(self.table, retention=timedelta(hours=2))
        assert own.horizon <= given.horizon
        assert own.deleted.objects <= given.deleted.objects
        vacuumed(self.table)

    def live(self, steps):
        acts = [self.append, self.append, self.overwrite, self.delete, self.compact, self.restore,
                self.pin, self.branch, self.fail_over, self.vacuum, self.vacuum]  # fmt: skip
        self.append()
        for _ in range(steps):
            self.chance.choice(acts)()
            later(self.table, self.chance.choice((0, 0, 1, 3)))

    def end(self):
        """Let go of everything, and wait."""
        if "keep" in self.table.refresh().meta.pins:
            self.table.unpin("keep")
        if self.table.branches():
            self.table.delete_branch("audit")
        later(self.table, 3)
        self.append()
        later(self.table, 3)


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        *((seed, 25) for seed in range(3)),
        *(pytest.param(seed, 60, marks=pytest.mark.verify) for seed in range(100, 106)),
    ],
)
def test_no_garbage_is_kept_for_ever_by_a_horizon_that_stays(seed, steps):
    life = RandomLife(seed)
    life.live(steps)
    life.end()
    vacuumed(life.table)
    assert data_keys(life.table.store) == live_keys(life.table)
