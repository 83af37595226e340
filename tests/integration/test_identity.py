"""A handle whose table was removed, with or without another one in its place (hazard W9).

Whatever a handle of the old table is told to do, nothing is committed to the new table and nothing
of it is deleted.
"""

import pickle
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest
from support.builders import SCHEMA, START_MS, App, add, commit, events, replaced, row_names
from support.intents import Intents

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model.actions import Drop
from eventlog.readers import scan
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.port import ObjectStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

VERSIONS = 5  # of the table that is removed
WIDER = pa.schema([*SCHEMA, ("more", pa.int64())])
GONE = errors.TableNotFound
# Versions of the table that lies there afterwards; None: nothing does.
SUCCESSORS = [None, VERSIONS - 1, VERSIONS, VERSIONS + 1]


def fill(store: ObjectStore, versions: int, *, seed: int = 1) -> Table:
    """A table of so many appends, each of one row of one day."""
    clock = ManualClock(START_MS, seed)
    own = {"inline_bytes": "0"}
    table = Table.create(
        store.uri, SCHEMA, time_column="at", store=store, clock=clock, properties=own
    )
    for n in range(versions):
        append(table, events(1, first=1000 * seed + n))
    return table


def swap(table: Table, versions: int | None, seed: int = 7) -> Table | None:
    """Remove everything under the table's root, and maybe create another table there."""
    store = open_store(table.uri) if not isinstance(table.store, CountingStore) else table.store
    store.delete([found.key for found in store.list("")])
    return None if versions is None else fill(store, versions, seed=seed)


def idle(table: Table) -> Table:
    """Let more time pass than a handle trusts what it saw."""
    table.clock.advance(1_001)
    return table


def everything(store: ObjectStore) -> dict[str, bytes]:
    return {found.key: store.get(found.key) for found in store.list("")}


NOW = {"retention": timedelta(0), "staging": timedelta(0)}
VERBS = {
    "append": lambda t: append(t, events(1, first=77)),
    "append of several days": lambda t: append(t, events(9, first=77, days=3)),
    "append that is known as done": lambda t: append(t, events(1), app_id="job", app_seq=1),
    "overwrite that is known as done": lambda t: overwrite(
        t, events(1), app_id="job", app_seq=1, start="2013-01-07", end="2013-01-08"
    ),
    "commit that is known as done": lambda t: commit(t, app=App("job", 1)),
    "overwrite": lambda t: overwrite(t, events(1, first=77), start="1970-01-01", end="1970-01-02"),
    "commit": lambda t: commit(t, add(t)),
    "drop": lambda t: commit(t, Drop("0" * 32, "1970-01-01", "0" * 64)),
    "restore": lambda t: t.restore(1),
    "pin": lambda t: t.pin("mine"),
    "pin that is known as held": lambda t: t.pin("held"),
    "unpin": lambda t: t.unpin("held"),
    "break_pin": lambda t: t.break_pin("held"),
    "claim": lambda t: t.claim("1970-01-03", "1970-01-04"),
    "claim that is known as held": lambda t: t.claim("1970-01-05", "1970-01-06", group="work"),
    "renew": lambda t: t.lease.renew(),
    "release": lambda t: t.lease.release(),
    "break_claim": lambda t: t.break_claim(t.lease.id),
    "set_properties": lambda t: t.set_properties({"user.owner": "me"}),
    "add_columns": lambda t: t.add_columns(WIDER),
    "set_granularity": lambda t: t.set_granularity("month"),
    "write_keyframe": lambda t: t.write_keyframe(),
    "compaction": lambda t: run(t, policy=Policy(small_task_bytes=0)),
    "vacuum": lambda t: vacuum(t, dry_run=False, **NOW),
    "verify": lambda t: t.verify(),
}


def old_handle(store: ObjectStore) -> Table:
    """A handle that knows of app marks, pins and claims, at version `VERSIONS`."""
    table = fill(store, 1)
    append(table, events(1), app_id="job", app_seq=1)
    table.pin("held")
    table.lease = table.claim("1970-01-10", "1970-01-20")
    table.claim("1970-01-05", "1970-01-06", group="work")
    assert table.session.head().version == VERSIONS
    return table


@pytest.mark.hazard("W9")
def test_w9_a_handle_that_read_one_old_version_notices_another_table():
    store = MemoryStore()
    fill(store, VERSIONS)
    table = Table.open(store.uri, store=store)
    assert table.snapshot(1).version == 1
    store.delete([found.key for found in store.list("")])
    fill(store, VERSIONS, seed=7)
    with pytest.raises(GONE):
        table.snapshot(1)


@pytest.mark.sample(24, verify=34)
@pytest.mark.hazard("W9")
@pytest.mark.parametrize("versions", SUCCESSORS)
@pytest.mark.parametrize("verb", VERBS)
def test_w9_a_handle_notices_that_its_table_is_gone(verb, versions):
    table = old_handle(CountingStore(MemoryStore()))
    swap(table, versions)
    before = everything(table.store)
    with pytest.raises(GONE, match="open") as caught:
        VERBS[verb](idle(table))
    assert table.id in str(caught.value) or versions is None
    after = everything(table.store)
    assert {k: v for k, v in after.items() if k in before} == before
    assert {k for k in after if k not in before and not k.startswith(keys.SEGMENTS_PREFIX)} == set()


class Apart(ManualClock):
    """A clock whose two times move apart, as where a machine sleeps or its clock is set."""

    beside_ms = 0  # that only the elapsed time has moved

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.beside_ms / 1000


@pytest.mark.hazard("W9")
@pytest.mark.parametrize("moved", ["elapsed", "wall forward", "wall back"])
def test_w9_time_has_passed_where_either_clock_says_so(moved):
    store = CountingStore(MemoryStore())
    fill(store, VERSIONS)
    clock = Apart(START_MS, seed=3)
    table = Table.open(store.uri, store=store, clock=clock)
    table.refresh()
    swap(table, VERSIONS)
    if moved == "elapsed":
        clock.beside_ms = 1_001
    elif moved == "wall back":
        clock.advance(-1_001)
    else:
        clock.advance(1_001)
        clock.beside_ms = -1_001
    before = everything(store)
    with pytest.raises(GONE):
        append(table, events(1, first=77))
    staged = keys.SEGMENTS_PREFIX
    assert {k: v for k, v in everything(store).items() if k in before or staged not in k} == before


@pytest.mark.sample(2, verify=3)
@pytest.mark.hazard("W9")
@pytest.mark.parametrize("versions", [None, VERSIONS])
@pytest.mark.parametrize("verb", ["append", "compaction", "vacuum"])
def test_w9_on_every_kind_of_store(verb, versions, root_uri):
    table = old_handle(open_store(root_uri))
    new = swap(table, versions)
    before = everything(table.store)
    with pytest.raises(GONE):
        VERBS[verb](idle(table))
    after = everything(table.store)
    assert {k: v for k, v in after.items() if not k.startswith(keys.SEGMENTS_PREFIX)} == {
        k: v for k, v in before.items() if not k.startswith(keys.SEGMENTS_PREFIX)
    }
    assert before.items() <= after.items()
    if new is not None:
        assert fsck(Table.open(root_uri)).ok
        assert len(scan(Table.open(root_uri)).to_table()) == versions


@pytest.mark.hazard("W9")
def test_w9_a_directory_is_looked_at_before_every_commit(tmp_path):
    table = old_handle(open_store(tmp_path / "table"))
    swap(table, VERSIONS)
    with pytest.raises(GONE, match=table.id):  # not a moment has passed
        append(table, events(1))
    with pytest.raises(GONE, match=table.id):
        table.refresh()


@pytest.mark.hazard("W9")
@pytest.mark.parametrize("versions", [VERSIONS + 1])
def test_w9_what_a_read_meets_is_told_as_what_it_is(versions, root_uri):
    table = old_handle(open_store(root_uri))
    swap(table, versions)
    for read in (
        table.refresh,
        partial(table.snapshot, VERSIONS - 1),
        partial(table.snapshot, VERSIONS + 1),
        partial(table.snapshot, timestamp="2013-01-01T00:00:00Z"),
        lambda: list(table.history(3)),
        partial(table.find_transaction, "0" * 32),
        lambda: scan(table).to_table(),
    ):
        with pytest.raises(GONE, match=f"{table.id}.*another"):
            read()


@pytest.mark.hazard("W9")
@pytest.mark.parametrize("versions", [None, 1])
def test_w9_a_scan_that_finds_its_segments_gone_says_why(versions, root_uri):
    table = old_handle(open_store(root_uri))
    planned = scan(table)
    swap(table, versions)
    with pytest.raises(GONE):
        planned.to_table()


@pytest.mark.hazard("W9")
@pytest.mark.parametrize("versions", [1, VERSIONS])
def test_w9_a_pickled_handle_is_of_its_table(versions, root_uri):
    """As a Spark job has it, whose driver commits in a process of its own."""
    table = old_handle(open_store(root_uri))
    sent = pickle.dumps(table)
    swap(table, versions)
    before = everything(table.store)
    with pytest.raises(GONE, match=table.id):
        append(pickle.loads(sent), events(1))
    assert everything(table.store) == before


@pytest.mark.hazard("W9")
def test_w9_commits_that_were_taken_back_are_told_from_another_table(root_uri):
    """A backup of the table as it was before: the same table, without what the handle has seen."""
    table = old_handle(open_store(root_uri))
    table.store.delete([keys.commit_key(VERSIONS)])
    with pytest.raises(errors.Corrupt, match="commits were removed"):
        append(idle(table), events(1))
    commit(Table.open(root_uri), add(table, epoch=0))  # another commit of the same version
    with pytest.raises(errors.Corrupt, match="forked or changed"):
        append(idle(table), events(1))


@pytest.mark.hazard("W9")
def test_w9_what_an_old_handle_published_is_not_taken_along():
    """Within the second that a handle trusts, it may publish beside the log of another table."""
    store = CountingStore(MemoryStore())
    old = fill(store, 1)
    left = Intents(old.store, old.clock)
    new = swap(old, 1)
    published = old.transaction("append", [add(old)])
    left.publish(replaced(published, until=6), old.id)
    for n in range(40):  # often enough to look for those that wait
        append(new, events(1, first=n))
    assert new.refresh().totals.segments == 41
    assert published.id not in new.session.head().meta.published


@pytest.mark.hazard("W9")
def test_w9_a_vacuum_looks_before_each_batch_of_deletes():
    table = fill(CountingStore(MemoryStore()), 2)
    overwrite(table, events(1), start="1970-01-01", end="1970-01-02")
    inner, deletes = table.store.inner, []

    class Swapping(CountingStore):
        """Between the commit of its marks and its first delete the table is exchanged."""

        def put_if_absent(self, key, body):
            created = super().put_if_absent(key, body)
            if key.startswith(keys.LOG_PREFIX):
                inner.delete([found.key for found in inner.list("")])
                fill(inner, 9, seed=3)
            return created

        def delete(self, names):
            deletes.append(names)

    swapped = Table.open(table.uri, store=Swapping(inner), clock=table.clock)
    later = swapped.clock
    later.advance(10_000)
    with pytest.raises(GONE):
        vacuum(swapped, dry_run=False, **NOW)
    assert deletes == []
    assert len(row_names(Table.open(table.uri, store=inner))) == 9
