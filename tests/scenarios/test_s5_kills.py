"""`kill -9` at every request of a replicator and of a merge, and 20 times in one long copy."""

import os
import signal
import subprocess
import sys

import pytest
from support.builders import create, events, sorted_names
from support.copies import check_prefix, laid, objects
from support.racers import killed_at, replicate

from eventlog import Table
from eventlog.clock import SystemClock
from eventlog.fsck.check import fsck
from eventlog.replication import backfill, follow, merge, replicas
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

REPLICATE = "from eventlog.cli import main; main()"
MOST = 1000  # requests of one pass
SHARES = 2  # each test takes every second request, and a few minutes
COMPLETED = 5  # each fifth copy is also completed


def held(store):
    """The objects of a store in memory, where looking at them costs no requests."""
    copy = MemoryStore()
    for row in store.list(""):
        copy.put_if_absent(row.key, store.get(row.key))
    return copy


@pytest.mark.scenario("S5.1")
@pytest.mark.hazard("G1")
@pytest.mark.long
@pytest.mark.timeout(1800)  # some 90 deaths, each of a process and with a look at all objects
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize(
    ("place", "far", "when", "how"),
    [
        ("s3", "bucket", "before", {}),
        ("s3", "bucket", "after", {"name": "far"}),
        ("s3", "across", "after", {}),
        ("s3", "directory", "before", {"name": "far"}),
        ("directory", "across", "after", {}),
        ("s3", "bucket", "after", {"start": "keyframe"}),
        ("directory", "directory", "before", {"start": "keyframe"}),
    ],
    indirect=["place", "far"],
)
def test_s5_1_a_replicator_is_killed_at_every_request(place, far, when, how, share):
    (root, options), here, name, heads = far, place, how.get("name"), set()
    theirs = held(laid(open_store(here)).store)
    for at in range(1 + share, MOST, SHARES):
        copy = f"{root}{at}"
        if name is not None:  # each attaches to a table of its own
            here = f"{place}{at}"
            laid(open_store(here))
        killed = killed_at(at, when, replicate, here, copy, target_options=options, **how)
        store = open_store(copy, options)
        theirs = held(open_store(here)) if name is not None else theirs
        heads.add(check_prefix(theirs, held(store)))
        if not killed:
            break
        if at // SHARES % COMPLETED == 0:
            follow(here, copy, target_options=options, **how)
            backfill(here, copy, target_options=options)
            theirs = held(open_store(here))
            assert objects(store) == objects(theirs)
            assert name is None or replicas(Table(theirs))[name].owner.startswith(copy)
    assert not killed
    # Killed at each version above the start, or at every second one.
    assert len(heads) > (2 if "start" in how else max(heads)) // SHARES


def names_in(store):
    return sorted_names(Table(store))


@pytest.mark.scenario("S5.3")
@pytest.mark.hazard("G3")
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("place", "far", "when"),
    [("s3", "bucket", "after"), ("s3", "across", "before"), ("directory", "directory", "after")],
    indirect=["place", "far"],
)
def test_s5_3_a_merge_is_killed_at_every_request(place, far, when):
    (root, options), both = far, f"{place}-both"
    append(create(open_store(both)), events(2))
    follow(both, place)
    for n in range(3):
        append(Table.open(place), events(2, first=10 * (n + 1)))
    everything = sorted(["row 100", *names_in(open_store(place))])
    found = set()
    for at in range(1, MOST):
        copy = f"{root}{at}"
        follow(both, copy, target_options=options)
        append(Table.open(copy, options), events(1, first=100))
        killed = killed_at(at, when, merge, place, copy, target_options=options)
        store = open_store(copy, options)
        mine = held(store)
        assert not fsck(Table(mine), objects=True).errors
        assert {"row 0", "row 1", "row 100"} <= set(names_in(mine)) <= set(everything)
        assert len(names_in(mine)) == len(set(names_in(mine)))
        found.add(len(names_in(mine)))
        if not killed:
            break
        merge(place, copy, target_options=options)
        assert names_in(held(store)) == everything
    assert not killed
    assert found == {3, 5, 7, 9}


@pytest.mark.scenario("S5.1")
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_s5_1_a_replicator_killed_20_times_leaves_a_table_each_time(place, far):
    source, (root, options) = laid(open_store(place)), far
    for n in range(20):
        append(source, events(3, first=300 + 10 * n, days=3))
    command = [sys.executable, "-c", REPLICATE, "replicate", place, root, "--name", "far"]
    for name, value in options.items():
        command += ["--target-option", f"{name}={value}"]
    clock, heads, store = SystemClock(), set(), open_store(root, options)
    for _ in range(20):
        there = len(list(store.list("")))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # However slow the machine is: killed when it has copied a few objects more, or is done.
        while process.poll() is None and len(list(store.list(""))) < there + 5:
            clock.sleep(0.1)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        heads.add(check_prefix(source.store, open_store(root, options)))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert len(heads) > 2
    assert objects(open_store(root, options)) == objects(source.store)
