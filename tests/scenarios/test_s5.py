"""S5: copies of a table that follow it, between any two stores.

After EventQL's "Segment based replication": immutable segments are sent in order, each once, and
what a server acknowledged is tied to one placement of it. Here the log itself says what to send.
"""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from support.builders import START_MS, Crash, events
from support.copies import check_prefix, grow, laid, objects, sweep
from support.crashes import MortalStore

from eventlog import Table
from eventlog.clock import ManualClock, SystemClock
from eventlog.errors import Unavailable, VersionNotReplicated
from eventlog.readers import scan
from eventlog.replication import backfill, follow, replicas
from eventlog.store.location import open_store
from eventlog.store.options import parse_options
from eventlog.store.s3.clients import clients_for
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.writers import append

REPLICATE = "from eventlog.cli import main; main()"


@pytest.fixture(scope="session")
def second_server(s3):
    """Another S3 server, in a process of its own; the options that lead to it."""
    command = [sys.executable, "-m", "eventlog.store.testing.local_server", "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        endpoint = run.stdout.readline().split()[-1]
        yield {"endpoint_url": endpoint}
        run.terminate()
        run.communicate(timeout=300)


@pytest.fixture(
    params=["across", *(pytest.param(n, marks=pytest.mark.long) for n in ("bucket", "directory"))]
)
def far(request, place, tmp_path):
    """The root of a copy, and its options: in another bucket, or in a directory.

    `across`: on another server if the source is on one, else in a bucket.
    """
    if request.param == "directory":
        return (tmp_path / "copy").as_uri(), {}
    name = request.getfixturevalue("bucket") + "-far"
    if request.param == "bucket" or not place.startswith("s3"):
        request.getfixturevalue("s3").create_bucket(name)
        return f"s3://{name}/copy", {}
    options = request.getfixturevalue("second_server")
    clients_for(parse_options(options)).write.create_bucket(Bucket=name)
    return f"s3://{name}/copy", options


def filled(place):
    return laid(open_store(place))


def rows(table, version=None):
    return sorted(scan(table, version=version).to_table().column("name").to_pylist())


@pytest.mark.scenario("S5.1")
def test_s5_1_a_copy_is_the_same_table_byte_for_byte(place, far):
    source, (root, options) = filled(place), far
    done = follow(place, root, target_options=options, name="far")
    copy = Table.open(root, options)
    assert done.version == copy.head().version
    assert check_prefix(source.store, copy.store) == done.version
    assert rows(copy) == rows(source)
    grow(source)
    follow(source, root, target_options=options)
    assert objects(Table.open(root, options).store) == objects(source.store)
    assert replicas(source)["far"].owner.startswith(root)
    # Another engine of this package reads it from its root alone.
    assert scan(Table.open(root, options), where="name = 'row 1'").count() == 1


@pytest.mark.scenario("S5.2")
def test_s5_2_a_new_copy_starts_at_a_key_frame_and_is_filled_later(place, far):
    source, (root, options) = filled(place), far
    done = follow(source, root, target_options=options, start="keyframe")
    copy = Table.open(root, options)
    assert done.start > 0
    assert rows(copy) == rows(source)
    with pytest.raises(VersionNotReplicated):
        copy.snapshot(done.start - 1)
    append(source, events(1, first=200))
    follow(source, root, target_options=options)
    backfill(source, root, target_options=options)
    assert objects(copy.store) == objects(source.store)
    head = source.refresh().version
    assert [e.version for e in copy.history()] == [*range(head, -1, -1)]
    assert rows(copy, 1) == rows(source, 1)


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


@pytest.mark.scenario("S5.1")
@pytest.mark.long
def test_s5_1_a_replicator_killed_20_times_leaves_a_table_each_time(place, far):
    source, (root, options) = filled(place), far
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
            clock.sleep(0.02)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        heads.add(check_prefix(source.store, open_store(root, options)))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert len(heads) > 2
    done = check_prefix(source.store, open_store(root, options))
    assert source.refresh().version - 1 <= done  # the newest version says what the copy has
    follow(place, root, target_options=options)
    assert objects(open_store(root, options)) == objects(source.store)
