"""Publishing that goes along: each commit soon, few requests between, and an end that is named."""

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support.builders import Spy, create, events
from support.published import START_MS, objects_of
from support.vacuumed import NOW

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import ManualClock, SystemClock
from eventlog.compaction import vacuum
from eventlog.errors import Corrupt, InvalidInput, TableNotFound, Unavailable
from eventlog.fsck.check import fsck
from eventlog.publishing import follow, publish, unpublish
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, upsert

FORMATS = pytest.mark.parametrize("format_name", ["delta", "iceberg"])
PREFIX = {"delta": "_delta_log/", "iceberg": "metadata/"}


class ActingClock(ManualClock):
    """A clock at whose pauses something happens, by their number; and that ends after the last."""

    def __init__(self, *acts):
        super().__init__(START_MS, 7)
        self.acts, self.pauses = [*acts], []

    def sleep(self, seconds):
        super().sleep(seconds)
        self.pauses.append(seconds)
        if not self.acts:
            raise Crash("over")
        self.acts.pop(0)()


def nothing():
    """An act."""


def followed(store, format_name, *acts, **options):
    """What follow yields until the acts are over, and the clock."""
    clock, found = ActingClock(*acts), []
    with pytest.raises(Crash):
        _keep(found, follow(Table(store, clock), format_name, **options))
    return found, clock


def _keep(found, publications):
    for done in publications:
        found.append(done)


@FORMATS
def test_each_commit_is_published_within_two_seconds(format_name):
    store = MemoryStore()
    t = create(store)
    append(t, events(2))
    more = [lambda n=n: append(t, events(1, day=n)) for n in range(2)]
    quiet = [nothing] * 12
    found, clock = followed(store, format_name, more[0], *quiet, more[1], nothing)
    assert [(done.first, done.last, done.put) for done in found] == [
        (0, 1, 2),
        (0, 2, 1),
        (0, 3, 1),
    ]
    assert clock.pauses[0] == clock.pauses[1] == 0.1
    assert clock.pauses[-1] < max(clock.pauses) == 1.5
    by_follow = objects_of(t, PREFIX[format_name])
    unpublish(t, format_name, dry_run=False)
    publish(t, format_name)
    assert objects_of(t, PREFIX[format_name]) == by_follow


@FORMATS
def test_an_idle_hour_costs_one_get_in_a_second_and_a_half(format_name):
    store = MemoryStore()
    append(create(store), events(2))
    publish(Table.open("", store=store), format_name)
    counting = CountingStore(store)
    clock = ActingClock(*[nothing] * 2420)
    publications = follow(Table(counting, clock), format_name)
    next(publications)
    with counting.measure() as counts, pytest.raises(Crash):
        next(publications)
    assert sum(clock.pauses) >= 3600
    assert counts.total == counts.get <= 2420 + 61


@FORMATS
def test_a_lost_connection_is_waited_for(format_name, caplog):
    class Down(Spy):
        is_down = False

        def get(self, key, *, start=0, length=None):
            if self.is_down:
                raise Unavailable("no route to the store")
            return super().get(key, start=start, length=length)

    store = Down(MemoryStore())
    t = create(store.inner)
    append(t, events(2))

    def cut():
        append(t, events(1, day=1))
        store.is_down = True

    def mend():
        store.is_down = False

    found, clock = followed(store, format_name, cut, *[nothing] * 6, mend, nothing)
    assert [done.last for done in found] == [1, 2]
    assert max(clock.pauses) <= 2
    assert caplog.text.count("no route to the store") == 3  # of seven tries


@FORMATS
def test_a_table_that_was_replaced_ends_it(format_name):
    store = MemoryStore()
    t = create(store)
    append(t, events(2))

    def replace():
        store.delete([row.key for row in store.list("")])
        create(store, seed=5)

    clock = ActingClock(replace, *[nothing] * 100)
    with pytest.raises(TableNotFound):
        [*follow(Table(CountingStore(store), clock), format_name)]
    assert sum(clock.pauses) < 65


@FORMATS
def test_an_object_of_a_stranger_ends_it(format_name):
    store = MemoryStore()
    t = create(store)
    append(t, events(2))
    key = {"delta": f"_delta_log/{2:020d}.json", "iceberg": "metadata/v2.metadata.json"}

    def write():
        store.put_if_absent(key[format_name], b"{}")
        append(t, events(1))

    with pytest.raises(Corrupt, match=f"eventlog unpublish {format_name}") as caught:
        [*follow(Table(store, ActingClock(write)), format_name)]
    assert caught.value.key == key[format_name]


def test_a_version_that_delta_cannot_say_ends_it_and_the_message_leads_on():
    store = MemoryStore()
    t = create(store)
    append(t, events(2))
    clock = ActingClock(lambda: (append(t, events(1)), t.rename_column("value", "price")))
    found = []
    with pytest.raises(InvalidInput, match=r"version 3 .*eventlog unpublish.*--from") as caught:
        _keep(found, follow(Table(store, clock), "delta"))
    assert (found[-1].last, caught.value.version) == (1, 3)
    assert sorted(objects_of(t))[2].endswith("2.json")  # those below are published


@FORMATS
def test_a_vacuum_or_an_end_of_the_publication_meanwhile_is_no_obstacle(format_name):
    store = MemoryStore()
    t = create(store)
    for number in range(3):
        append(t, events(2, first=2 * number))

    def clean():
        t.clock.advance(10**9)
        vacuum(t, dry_run=False, **NOW)

    def end():
        unpublish(t, format_name, dry_run=False)
        append(t, events(1, day=2))

    found, _ = followed(store, format_name, clean, nothing, end, nothing)
    horizon = t.refresh().meta.horizon
    assert [(done.first, done.last) for done in found] == [(0, 3), (horizon, 5), (horizon, 6)]
    assert fsck(t).ok
    assert next(follow(t, format_name, first=0)).first == horizon  # as it was begun


def test_arguments_of_follow_are_checked_at_once():
    t = create()
    for options, said in (({"every_s": 0}, "every_s"), ({"first": -1}, "first")):
        with pytest.raises(InvalidInput, match=said):
            follow(t, "delta", **options)
    with pytest.raises(InvalidInput, match="format"):
        follow(t, "paper")


def test_the_verb_tells_what_is_published_when_it_is_interrupted(tmp_path, monkeypatch):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(2))

    def interrupt(self, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", interrupt)
    told = CliRunner().invoke(build(), ["publish", "delta", t.uri, "--follow"])
    assert told.exit_code == 0
    assert told.stdout == f"{t.uri} is published as delta, 0 to 1: published 2 versions\n"
    assert told.stderr == f"stopped: {t.uri} is published as delta, 0 to 1\n"
    told = CliRunner().invoke(build(), ["publish", "delta", t.uri, "--follow", "--version", "1"])
    assert told.exit_code == 2
    assert "leave --version out" in told.stderr


@pytest.mark.sample(0, verify=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@FORMATS
def test_signals_end_it(tmp_path, format_name, number):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(2))
    arguments = [sys.executable, "-m", "eventlog.cli", "publish", format_name, t.uri, "--follow"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert "0 to 1: published 2 versions" in program.stdout.readline()
        append(t, events(2))
        assert "0 to 2: published 1 version" in program.stdout.readline()
        os.kill(program.pid, number)
        assert program.communicate(timeout=200)[1].startswith("stopped: ")
    assert program.returncode == 0


def test_versions_that_are_passed_over_are_looked_at_once():
    t = create(key="name", properties={"merge": "partial"})
    upsert(t, events(2))
    clock = ActingClock(lambda: upsert(t, events(1)), nothing)
    found = follow(Table(t.store, clock), "iceberg")
    assert next(found).behind == 1
    assert next(found).behind == 2
    with pytest.raises(Crash):
        next(found)
