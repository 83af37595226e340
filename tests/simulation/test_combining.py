"""Combining under a seeded scheduler: one seed is one run, with all its faults."""

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from simulation.harsh import HarshStore, Late, Weather
from simulation.scheduler import Scheduler, WaitingClock
from support.builders import START_MS, Crash, add, create, drop_of, fold_all, live
from support.intents import Staged
from support.repeatable import EXAMPLES

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.model.actions import Fence, PropertyChange, SetProperties
from eventlog.model.records import App

pytestmark = pytest.mark.usefixtures("in_turn")

SEEDS = EXAMPLES or 60
ACCIDENTS = frozenset(
    ("lost", "never", "delayed", "twice", "refused", "stale", "crash before", "crash after")
)
FAIR_TO_THE_LIVING = frozenset(a for a in ACCIDENTS if "crash" not in a)


@dataclass
class Answers:
    """The answers to the writers of a run, which must still be true at the end."""

    acknowledged: list = field(default_factory=list)  # (transaction, version)
    refused: list = field(default_factory=list)
    left: list = field(default_factory=list)  # transactions whose writer crashed or gave up


class Run:
    """A table, its writers and their answers."""

    def __init__(self, seed, *, rate=0.0, crashes=True, timed=False, latency=(0, 0), **properties):
        self.scheduler = Scheduler(seed, timed=timed)
        self.random = self.scheduler.random
        self.inner = Staged()
        self.late = Late(self.inner)
        self.told = Answers()
        self._weather = Weather(rate, ACCIDENTS if crashes else FAIR_TO_THE_LIVING, latency)
        self._seed = seed * 1000
        shown = {name: str(value) for name, value in properties.items()}
        self._first = create(self.inner, seed=self._next_seed(), properties=shown)

    def _next_seed(self):
        self._seed += 1
        return self._seed

    def open(self):
        """A handle like that of another process, opened without faults."""
        fair = replace(self._weather, rate=0.0)
        store = HarshStore(self.inner, self.scheduler, fair, late=self.late)
        table = Table.open(
            self.inner.uri, store=store, clock=WaitingClock(self.scheduler, self._next_seed())
        )
        table.refresh()
        store.weather = self._weather
        return table

    def writer(self, number, appends):
        """The job of one writer: appends, some with an app id, until they are committed."""

        def write():
            table = self.open()
            for n in range(appends):
                app = App(f"job {number}", n) if self.random.random() < 0.7 else None
                table = self._append(table, app)

        return write

    def _append(self, table, app):
        while True:
            transaction = table.transaction("append", [add(table)], app=app)
            try:
                done = self._insist(table, transaction)
            except Crash:
                self.told.left.append(transaction)
                table = self.open()
                done = app is None
            if done:
                return table

    def _insist(self, table, transaction):
        """Commit until there is an answer. Return whether the append is committed or given up."""
        while True:
            try:
                version = table.commit(transaction)
            except errors.CommitUnknown:
                if self.random.random() < 0.3:
                    self._look(table)
                if transaction.app is None and self.random.random() < 0.2:
                    self.told.left.append(transaction)
                    return True
            except (errors.Unavailable, errors.CommitConflict) as error:
                # It must stay uncommitted, because it is never retried.
                self.told.refused.append((transaction, error))
                return False
            else:
                self.told.acknowledged.append((transaction, version))
                return True

    def _look(self, table):
        with contextlib.suppress(errors.Unavailable):
            table.refresh()

    def maintainer(self, rounds):
        """The job of a maintainer, which compacts, sets properties and fences."""

        def maintain():
            table = self.open()
            for n in range(rounds):
                try:
                    self._maintain(table, n)
                except (errors.CommitConflict, errors.CommitUnknown, errors.Unavailable):
                    pass
                except Crash:
                    table = self.open()

        return maintain

    def _maintain(self, table, number):
        head = table.refresh()
        kind = self.random.choice(["compact", "property", "fence", "append"])
        live_segments = live(head)
        if kind == "compact" and live_segments:
            actions = [*(drop_of(s) for s in live_segments), add(table, rows=len(live_segments))]
        elif kind == "fence" and head.version > head.meta.fence:
            actions = [Fence(self.random.randint(head.meta.fence + 1, head.version))]
        elif kind == "append":
            actions = [add(table)]
        else:
            old = head.properties.get("user.note")
            actions = [SetProperties((PropertyChange("user.note", old, str(number)),))]
        table.commit(table.transaction(kind, actions))

    def go(self, *jobs):
        self.scheduler.run(*jobs)
        self.late.land_all(self.random)
        return self.check()

    def take_leftovers(self):
        """Let leaders include all pending publications."""
        table = Table.open(self.inner.uri, store=self.inner, clock=ManualClock(START_MS, 77))
        for _ in range(3):
            table.session.committer.writer.contention.expected = 8
            table.commit(table.transaction("append", [add(table)]))

    def check(self):
        """Fold the log from version 0, and compare it with all answers to writers."""
        self.take_leftovers()
        steps = fold_all(self.inner)
        versions, by_app, segments = {}, Counter(), Counter()
        for state, effect in steps:
            for transaction_id in effect.accepted:
                assert transaction_id not in versions, "a transaction took effect twice"
                versions[transaction_id] = state.version
            assert not effect.void
            segments.update(s.id for s in effect.adds)
        assert set(segments.values()) <= {1}, "a segment was made live twice"
        self._check_told(versions, by_app)
        self._check_views(steps)
        return steps, versions

    def _check_told(self, versions, by_app):
        told = self.told
        all_of_them = [t for t, _ in told.acknowledged] + told.left + [t for t, _ in told.refused]
        for transaction in {t.id: t for t in all_of_them}.values():
            if transaction.app is not None and transaction.id in versions:
                by_app[transaction.app.id, transaction.app.seq] += 1
        for transaction, version in told.acknowledged:
            if transaction.id in versions:
                assert versions[transaction.id] == version
            else:
                assert transaction.app is not None, "an acknowledged append is lost"
            if transaction.app is not None:
                assert by_app[transaction.app.id, transaction.app.seq] == 1
        assert set(by_app.values()) <= {1}, "a unit of work took effect twice"
        for transaction, error in told.refused:
            assert transaction.id not in versions, f"{error!r}, and it was committed"

    def _check_views(self, steps):
        """Snapshots, by key frames and deltas, equal the fold."""
        log = Table(self.inner).session.log
        for state, _ in steps:
            snapshot = log.snapshot(state.version)
            assert snapshot.meta == state.meta
            assert snapshot.commit_hash == state.commit_hash
            assert snapshot.totals == state.header.totals
            marks = state.meta.published.values()
            assert all(m.version <= state.version <= m.until for m in marks)
        assert live(snapshot) == sorted(state.segments.values(), key=lambda s: s.id)


def published(store):
    return [o.key for o in store.list(keys.INTENTS_PREFIX)]


@pytest.mark.sample(2, verify=2)
@pytest.mark.parametrize("block", range(6))
def test_appends_in_fair_weather_all_land_once(block):
    combined = 0
    for seed in range(block, SEEDS, 6):
        run = Run(seed, combine_after=1 + seed // 6 % 2, keyframe_commits=1 + seed % 5)
        writers = 3 + seed % 2
        steps, _ = run.go(*(run.writer(n, 3) for n in range(writers)))
        assert len(run.told.acknowledged) == 3 * writers
        assert not run.told.refused
        combined += sum(len(effect.accepted) > 1 for _, effect in steps)
    assert combined


@pytest.mark.sample(2, verify=2)
@pytest.mark.parametrize("block", range(6))
def test_appends_in_foul_weather_land_at_most_once_and_as_told(block):
    for seed in range(block, SEEDS, 6):
        run = Run(
            seed,
            rate=(0.03, 0.1, 0.3)[seed % 3],
            crashes=seed % 4 > 0,
            combine_after=1 + seed % 2,
            keyframe_commits=1 + seed % 5,
        )
        run.go(*(run.writer(n, 3) for n in range(3)), run.maintainer(3))


def test_one_seed_is_one_run():
    def trace(seed):
        run = Run(seed, rate=0.1, combine_after=1)
        run.go(*(run.writer(n, 3) for n in range(3)))
        return run.scheduler.trace

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


@pytest.mark.parametrize("latency", [(0.015, 0.025), (0.005, 0.05)])
def test_a_writer_gets_in_against_one_who_never_looks_for_others(latency):
    for seed in range(8):
        run = Run(seed, timed=True, latency=latency, combine_after=1)
        landed = []

        def hog(run=run, landed=landed):
            table = run.open()
            for n in range(600):
                table.store.put_if_absent(f"data/staged by the hog {n}", b"")
                table.commit(table.transaction("append", [add(table)]))
                if len(landed) == 5:
                    break

        def other(run=run, landed=landed):
            table = run.open()
            for n in range(5):
                table.store.put_if_absent(f"data/staged by the other {n}", b"")
                version = table.commit(table.transaction("append", [add(table)]))
                landed.append(version)

        run.scheduler.run(hog, other)
        assert len(landed) == 5
        assert landed[-1] < 590, "it was committed only after the hog had finished"
        fold_all(run.inner)


@pytest.mark.verify
@pytest.mark.parametrize("writers", [2, 4, 8])
def test_requests_of_an_append_are_bounded_however_many_write(writers):
    appends = 12
    requests = []
    for seed in range(4):
        run = Run(seed, timed=True, latency=(0.01, 0.03), combine_after=1, keyframe_commits=1024)
        tables = []

        def write(run=run, tables=tables):
            table = run.open()
            tables.append(table)
            for _ in range(appends):
                table.commit(table.transaction("append", [add(table)]))

        run.scheduler.run(*[write] * writers)
        steps = fold_all(run.inner)
        assert sum(len(effect.accepted) for _, effect in steps[1:]) == writers * appends
        requests.append(sum(t.store.calls.total() for t in tables) / (writers * appends))
    # What is done at once takes its turns here: writers wait, and look, longer than they would.
    assert max(requests) < 14, requests
