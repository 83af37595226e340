"""Combining under a seeded scheduler: one seed is one run, with all its accidents."""

import contextlib
import random
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest
from builders import START_MS, Crash, add, create, drop_of, fold_all, live

from eventlog import Table, errors, keys
from eventlog.clock import ManualClock
from eventlog.memory import MemoryStore
from eventlog.model import App, Fence, PropertyChange, SetProperties

SEEDS = 300
MAX_STEPS = 20_000
PUT_ACCIDENTS = ("lost", "never", "delayed", "twice", "refused", "crash before", "crash after")
READ_ACCIDENTS = ("refused", "crash before", "stale")


class Actor:
    """One thread, which runs only while it is its turn."""

    def __init__(self, job):
        self.gate = threading.Semaphore(0)
        self.job = job
        self.wake = 0.0
        self.done = False
        self.error = None


class Scheduler:
    """Runs jobs one at a time; whose turn is next is drawn at every call of a store and sleep.

    Args:
        seed: of all that is drawn.
        timed: the one whose wait ends first goes next, instead of one drawn without regard to time.
    """

    def __init__(self, seed, *, timed=False):
        self.random = random.Random(seed)
        self.now = 0.0
        self.trace = []
        self._timed = timed
        self._turn = threading.Semaphore(0)
        self._own = threading.local()
        self._over = False

    def run(self, *jobs):
        actors = [Actor(job) for job in jobs]
        threads = [threading.Thread(target=self._live, args=(a,), daemon=True) for a in actors]
        for thread in threads:
            thread.start()
        try:
            while waiting := [a for a in actors if not a.done]:
                drawn = self.random.choice(waiting)
                actor = min(waiting, key=lambda a: a.wake) if self._timed else drawn
                self.now = max(self.now, actor.wake)
                self._let_run(actor)
                assert len(self.trace) < MAX_STEPS, "no progress"
        finally:
            self._over = True
            for actor in actors:
                while not actor.done:
                    self._let_run(actor)
        for thread in threads:
            thread.join(10)
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def park(self, what, seconds=0.0):
        """Give up the turn for at least so long. A helper thread of an actor's runs with it."""
        actor = getattr(self._own, "actor", None)
        if actor is None:
            return
        self.trace.append(what)
        actor.wake = self.now + seconds
        self._turn.release()
        actor.gate.acquire()
        if self._over:
            raise SystemExit

    def _let_run(self, actor):
        actor.gate.release()
        assert self._turn.acquire(timeout=20), "an actor hangs"

    def _live(self, actor):
        self._own.actor = actor
        actor.gate.acquire()
        try:
            if not self._over:
                actor.job()
        except SystemExit:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            actor.error = error
        actor.done = True
        self._turn.release()


class WaitingClock(ManualClock):
    """A clock whose sleepers give up their turn; all clocks of a run show one time."""

    def __init__(self, scheduler, seed):
        super().__init__(START_MS, seed)
        self._scheduler = scheduler

    def now_ms(self):
        return START_MS + int(self._scheduler.now * 1000)

    def sleep(self, seconds):
        self._scheduler.park(("sleep",), seconds)


class HarshStore:
    """A store whose every call gives up the turn, and may go wrong as real ones do.

    Args:
        inner: the store.
        scheduler: draws.
        rate: how many of the calls go wrong.
        late: puts on their way, shared by all who talk to this store.
        crashes: whether a caller may die.
        latency: least and greatest seconds of a call.
    """

    def __init__(self, inner, scheduler, *, rate=0.0, late=None, crashes=True, latency=(0, 0)):
        self.inner = inner
        self.uri = inner.uri
        self.calls = Counter()
        self.late = [] if late is None else late
        self._scheduler = scheduler
        self._rate = rate
        self._crashes = crashes
        self._latency = latency

    def get(self, key, *, start=0, length=None):
        self._meet("get", key, READ_ACCIDENTS)
        return self.inner.get(key, start=start, length=length)

    def list(self, prefix, *, after="", limit=None):
        accident = self._meet("list", prefix, READ_ACCIDENTS)
        rows = [*self.inner.list(prefix, after=after)]
        behind = 1 if accident == "stale" and len(rows) > 1 else 0
        return iter(rows[behind:][:limit])

    def put_if_absent(self, key, body):
        accident = self._meet("put", key, PUT_ACCIDENTS)
        if accident == "delayed":
            self.late.append((key, bytes(body)))
        if accident in ("delayed", "never"):
            raise errors.OutcomeUnknown(accident)
        created = self.inner.put_if_absent(key, body)
        if accident == "lost":
            raise errors.OutcomeUnknown(accident)
        if accident == "crash after":
            raise Crash(accident)
        return created and accident != "twice"

    def delete(self, keys):
        raise AssertionError("a commit deletes nothing")

    def filesystem(self):
        return self.inner.filesystem()

    def now_ms(self):
        return None

    def _meet(self, verb, key, accidents):
        self.calls[verb] += 1
        draw = self._scheduler.random
        self._scheduler.park((verb, key), draw.uniform(*self._latency))
        if self.late and draw.random() < 0.2:
            self.inner.put_if_absent(*self.late.pop(draw.randrange(len(self.late))))
        if draw.random() >= self._rate:
            return None
        accident = draw.choice([a for a in accidents if self._crashes or "crash" not in a])
        self._scheduler.trace.append((accident,))
        if accident == "refused":
            raise errors.Unavailable(accident)
        if accident == "crash before":
            raise Crash(accident)
        return accident


@dataclass
class Told:
    """What the writers of a run were told, and must still be true in the end."""

    acknowledged: list = field(default_factory=list)  # (transaction, version)
    refused: list = field(default_factory=list)
    left: list = field(default_factory=list)  # whose writer died or gave up


class Run:
    """A table, its writers and what they were told."""

    def __init__(self, seed, *, rate=0.0, crashes=True, timed=False, latency=(0, 0), **properties):
        self.scheduler = Scheduler(seed, timed=timed)
        self.random = self.scheduler.random
        self.inner = MemoryStore()
        self.late = []
        self.told = Told()
        self._weather = {"rate": rate, "crashes": crashes, "late": self.late, "latency": latency}
        self._seed = seed * 1000
        shown = {name: str(value) for name, value in properties.items()}
        self._first = create(self.inner, seed=self._next_seed(), properties=shown)

    def _next_seed(self):
        self._seed += 1
        return self._seed

    def open(self):
        """Another process's handle, opened in fair weather."""
        store = HarshStore(self.inner, self.scheduler, **{**self._weather, "rate": 0.0})
        table = Table.open(
            self.inner.uri, store=store, clock=WaitingClock(self.scheduler, self._next_seed())
        )
        store._rate = self._weather["rate"]
        return table

    def writer(self, number, appends):
        """The job of one writer: that many appends, some with an app id, until they are in."""

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
        """Commit until there is an answer; say whether the append is in, or given up."""
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
                # That nothing was committed must stay true: this one is never handed in again.
                self.told.refused.append((transaction, error))
                return False
            else:
                self.told.acknowledged.append((transaction, version))
                return True

    def _look(self, table):
        with contextlib.suppress(errors.Unavailable):
            table.refresh()

    def maintainer(self, rounds):
        """The job of one who compacts, sets properties and fences, and is no append."""

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
        found = live(head)
        if kind == "compact" and found:
            actions = [*(drop_of(s) for s in found), add(table, rows=len(found))]
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
        while self.late:
            self.inner.put_if_absent(*self.late.pop())
        return self.check()

    def take_leftovers(self):
        """Let leaders take along whatever is still published."""
        table = Table.open(self.inner.uri, store=self.inner, clock=ManualClock(START_MS, 77))
        for _ in range(3):
            table._committer._crowd = 8
            table.commit(table.transaction("append", [add(table)]))

    def check(self):
        """Fold the log from version 0, and compare it with all that writers were told."""
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
        """Snapshots, over key frames and deltas, are what the fold arrives at."""
        log = Table(self.inner).log
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
    assert combined > 20


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
        assert landed[-1] < 590, "it got in only when the hog was through"
        fold_all(run.inner)


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
    assert max(requests) < 10, requests
