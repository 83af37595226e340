"""S5: copies of a table that follow it, between any two stores.

After EventQL's "Segment based replication": immutable segments are sent in order, each once, and
what a server acknowledged is tied to one placement of it. Here the log itself says what to send.
"""

import shutil

import pytest
from support.builders import START_MS, Crash, events, sorted_names
from support.copies import check_prefix, grow, laid, objects, sweep
from support.crashes import MortalStore

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.errors import Unavailable, VersionNotReplicated
from eventlog.readers import scan
from eventlog.replication import backfill, follow, replicas
from eventlog.store.location import open_store
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.writers import append


def filled(place):
    return laid(open_store(place))


@pytest.mark.verify
@pytest.mark.scenario("S5.1")
def test_s5_1_a_copy_is_the_same_table_byte_for_byte(place, far):
    source, (root, options) = filled(place), far
    done = follow(place, root, target_options=options, name="far")
    copy = Table.open(root, options)
    assert done.version == copy.session.head().version
    assert check_prefix(source.store, copy.store) == done.version
    assert sorted_names(copy) == sorted_names(source)
    grow(source)
    follow(source, root, target_options=options)
    assert objects(Table.open(root, options).store) == objects(source.store)
    assert replicas(source)["far"].owner.startswith(root)
    # Another engine of this package reads it from its root alone.
    assert scan(Table.open(root, options), where="name = 'row 1'").count() == 1


@pytest.mark.verify
@pytest.mark.scenario("S5.2")
def test_s5_2_a_new_copy_starts_at_a_key_frame_and_is_filled_later(place, far):
    source, (root, options) = filled(place), far
    done = follow(source, root, target_options=options, start="keyframe")
    copy = Table.open(root, options)
    assert done.start > 0
    assert sorted_names(copy) == sorted_names(source)
    with pytest.raises(VersionNotReplicated):
        copy.snapshot(done.start - 1)
    append(source, events(1, first=200))
    follow(source, root, target_options=options)
    backfill(source, root, target_options=options)
    assert objects(copy.store) == objects(source.store)
    head = source.refresh().version
    assert [e.version for e in copy.history()] == [*range(head, -1, -1)]
    assert sorted_names(copy, 1) == sorted_names(source, 1)


@pytest.mark.scenario("S5.5")
def test_s5_5_an_emptied_replica_is_attached_anew_and_nothing_is_deleted_for_it(place, tmp_path):
    source, root = filled(place), (tmp_path / "copy").as_uri()
    follow(source, root, name="us")
    full = replicas(source)["us"]
    shutil.rmtree(tmp_path / "copy")
    append(source, events(1, first=200))
    store = open_store(root)
    with pytest.raises(Crash):
        follow(source, Table(MortalStore(store, 8)), name="us")
    emptied = replicas(source)["us"]
    assert emptied.token > full.token
    assert emptied.acked < full.acked
    assert sweep(source.store, 70) <= emptied.acked
    done = follow(source, root, name="us")
    assert check_prefix(source.store, store) == done.version
    assert replicas(source)["us"].acked > full.acked


@pytest.mark.verify
@pytest.mark.scenario("S5.7")
def test_s5_7_a_target_that_declines_is_asked_again_more_slowly(place, tmp_path):
    source, store = filled(place), open_store((tmp_path / "copy").as_uri())
    faults = [Fault("put", "unavailable", "data/", occurrence=n) for n in (1, 2, 3, 5, 8)]
    clock = ManualClock(START_MS, 7)
    follow(source, Table(FaultyStore(store, faults)), clock=clock)
    assert clock.elapsed_s() > 0
    assert objects(store) == objects(source.store)

    append(source, events(1, first=200))
    down = [Fault("put", "unavailable", "_log/", occurrence=0)]
    with pytest.raises(Unavailable):
        follow(source, Table(FaultyStore(store, down)), clock=clock)
    check_prefix(source.store, store)
    follow(source, Table(store))
    assert objects(store) == objects(source.store)
