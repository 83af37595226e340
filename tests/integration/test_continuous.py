"""Compaction beside appends that never pause: nobody fails, and no row is lost or doubled.

Every compaction lands at its first or second try: without a clock or a race where a rival takes
each slot before the compactor does, and on real stores for as long as the soak says.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from bench.tries import TryCounter
from support import racers, workloads
from support.builders import START_MS, Spy, check_sound, create, events, reopen, row_names

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.commit.protocol import commit as committing
from eventlog.commit.protocol import contention
from eventlog.compaction import Policy, perform, plan, run
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.writers import append

WRITERS = 4
BLOCKS = 12
MINUTE_S = float(os.environ.get("EVENTLOG_SOAK_MINUTES", "1")) * 60


def create_at(uri, options):
    Table.create(uri, workloads.SCHEMA, time_column="at", storage_options=options)


def check_rows(uri, options, blocks, rows):
    """Every acknowledged row is there once, and the log adds up."""
    table = Table.open(uri, options)
    wanted = [n for w, count in enumerate(blocks) for n in workloads.ids_of(w, count, rows)]
    found = scan(table, columns=["id"]).to_table().column("id").to_pylist()
    assert len(found) == len(wanted)
    assert set(found) == set(wanted)
    assert table.session.head().totals.rows == len(wanted)
    report = fsck(table)
    assert not report.findings, report.findings
    return table


def check_at_rest(table):
    """With nobody about, one more pass leaves nothing to do: a segment a day."""
    run(table)
    assert not plan(table).tasks
    assert table.session.head().totals.segments == workloads.DAYS


class Rival:
    """A writer that commits an append just before a commit of the compactor's reaches the store.

    Args:
        store: with a table.
        stops: how many slots it takes in all; then it rests.
    """

    def __init__(self, store, stops):
        self._table = reopen(store, 7)
        self._left = stops
        self.appended = 0

    def take_slot(self, key):
        parsed = keys.parse_log_key(key)
        if self._left and parsed is not None and not parsed[1]:
            self._left -= 1
            append(self._table, events(1, first=1000 + self.appended))
            self.appended += 1


def compacted_beside(stops, days=3, rest_s=0):
    """Compact days one by one while a rival takes each slot; return its store and what came."""
    store = create(properties={"keyframe_commits": "16"}).store
    filling = reopen(store)
    for number in range(4):
        append(filling, events(2 * days, first=2 * days * number, days=days))
    before = row_names(filling)
    rival, spy = Rival(store, stops), Spy(store)
    spy.before_put = rival.take_slot
    counter = TryCounter(spy)
    clock = ManualClock(START_MS, 5)
    compactor = Table.open(store.uri, store=counter, clock=clock)
    policy = Policy(min_gain=0, small_task_bytes=0)
    tasks = plan(compactor, policy).tasks
    assert len(tasks) == days
    outcomes = []
    for task in tasks:
        clock.advance(1000 * rest_s)
        outcomes.append(perform(compactor, task, policy))
    new = [f"row {1000 + n}" for n in range(rival.appended)]
    assert sorted(row_names(check_sound(store))) == sorted(before + new)
    return store, outcomes, counter.tries("compact")


def operations(store, version):
    """What the transactions of a commit are, in no order."""
    return sorted(t.operation for t in reopen(store).session.log.read(version)[0].transactions)


@pytest.mark.parametrize("rest_s", [0, 3600])
def test_a_compaction_whose_every_slot_is_taken_lands_at_its_second_try(rest_s):
    """It is published after its first loss, and the rival takes it along at its next look.

    Also after a rest: it has read the head before it commits, so it lost to a commit since.
    """
    store, outcomes, tries = compacted_beside(stops=300, rest_s=rest_s)
    assert [one.status for one in outcomes] == ["done"] * 3
    assert (len(tries), max(tries)) == (3, 2)
    # It never won a slot of its own: that commit is the rival's.
    for one in outcomes:
        assert operations(store, one.version) == ["append", "compact"]


@pytest.mark.parametrize("without", ["patience", "lookout"])
def test_without_publishing_or_looking_it_would_be_tried_until_the_rival_rests(
    without, monkeypatch
):
    """Either half is needed: the test above sees it where one is gone."""
    if without == "patience":
        patience = committing.patience
        monkeypatch.setattr(
            committing,
            "patience",
            lambda t, after: 0 if t.operation == "compact" else patience(t, after),
        )
    else:
        monkeypatch.setattr(contention.Contention, "looks_beside", lambda _: False)
    _, outcomes, tries = compacted_beside(stops=60, days=1)
    assert [one.status for one in outcomes] == ["done"]
    assert max(tries) > 2


@pytest.mark.verify
def test_appends_and_compactions_without_a_pause(root_uri):
    create_at(root_uri, None)
    start = Barrier(WRITERS + 1)
    with ThreadPoolExecutor(WRITERS) as pool:
        appending = [
            pool.submit(
                workloads.append_continuously, n, start, lambda done: done >= BLOCKS, root_uri,
                None, rows=10,
            )
            for n in range(WRITERS)
        ]  # fmt: skip
        compactions = workloads.compact_continuously(
            start, lambda done: done and all(f.done() for f in appending), root_uri, None
        )
        blocks = [future.result() for future in appending]

    assert blocks == [BLOCKS] * WRITERS
    assert compactions.statuses
    assert set(compactions.statuses) == {"done"}, compactions.errors
    assert len(compactions.tries) == len(compactions.statuses)
    check_at_rest(check_rows(root_uri, None, blocks, 10))


@pytest.mark.soak
@pytest.mark.timeout(0)  # its length is given: EVENTLOG_SOAK_MINUTES
@pytest.mark.parametrize("place", ["s3", "directory"])
def test_every_compaction_lands_at_its_first_or_second_try(place, request, tmp_path, capsys):
    uri, options, environment = str(tmp_path / "table"), None, None
    if place == "s3":
        server = request.getfixturevalue("s3")
        uri = f"s3://{request.getfixturevalue('bucket')}/table"
        options, environment = server.storage_options(), server.environment()
    create_at(uri, options)

    arguments = (WRITERS, workloads.Seconds(MINUTE_S), uri, options, 100)
    *blocks, compactions = racers.run(
        workloads.work, WRITERS + 1, *arguments, environment=environment, seconds=MINUTE_S + 120
    )

    spread = {n: compactions.tries.count(n) for n in sorted(set(compactions.tries))}
    with capsys.disabled():
        sys.stdout.write(f"\n{place}: appends {blocks}, compactions by tries {spread}\n")
    assert len(compactions.statuses) >= min(10, MINUTE_S / 6)
    assert set(compactions.statuses) == {"done"}, compactions.errors
    check_at_rest(check_rows(uri, options, blocks, 100))
    assert max(compactions.tries) <= 2, spread
