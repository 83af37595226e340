"""A seeded scheduler: controls the order, the time and all random draws; one seed is one run.

Actors are greenlets of one thread. The next actor is chosen only when one of them calls a store or
sleeps.
"""

import gc
import importlib
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from unittest import mock

from greenlet import GreenletExit, getcurrent, greenlet
from support.builders import START_MS

from eventlog.clock import ManualClock
from eventlog.format import codec
from eventlog.store.parallel import end_idle_threads

MAX_STEPS = 20_000


class NoProgress(AssertionError):
    """The actors did not end within the bound."""


class Actor:
    """One job, which runs only during its turns."""

    def __init__(self, number, job, hub):
        self.number = number
        self.wake = 0.0
        self.fiber = greenlet(job, hub)


class Scheduler:
    """Runs jobs one at a time; the next one is drawn at every store call and sleep.

    Args:
        seed: the seed of all random draws.
        timed: the actor whose wait ends first is next, instead of a random one.
        stay: the probability that the running actor continues.
        choose: chooses the next actor instead; called with the waiting actors and the last one.
        max_steps: the bound on the steps of a run.
    """

    def __init__(self, seed, *, timed=False, stay=0.0, choose=None, max_steps=MAX_STEPS):
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.trace = []
        self.running: Actor | None = None
        self._timed = timed
        self._stay = stay
        self._choose = choose or self._draw
        self._max_steps = max_steps
        self._hub = None
        self._actors, self._waiting = [], []

    def run(self, *jobs: Callable[[], object]):
        self._hub = getcurrent()
        self._actors, self._waiting = [], []
        for job in jobs:
            self.spawn(job)
        waiting = self._waiting
        try:
            while waiting:
                self.running = self._choose(waiting, self.running)
                self.now = max(self.now, self.running.wake)
                self.running.fiber.switch()
                if self.running.fiber.dead:
                    waiting.remove(self.running)
                if self.steps > self._max_steps:
                    raise NoProgress(f"no end after {self.steps} steps")
        finally:
            self.running, self._hub = None, None
            for actor in self._actors:  # even after a failure, so that no greenlet remains
                while not actor.fiber.dead:
                    actor.fiber.throw(GreenletExit)

    def spawn(self, job: Callable[[], object]):
        """Add a job, also while others run."""
        actor = Actor(len(self._actors), job, self._hub)
        self._actors.append(actor)
        self._waiting.append(actor)

    def park(self, what, seconds=0.0):
        """Yield the turn for at least this long. A no-op outside of actors."""
        actor = self.running
        if actor is None or getcurrent() is not actor.fiber:
            return
        self.steps += 1
        self.trace.append((actor.number, *what))
        actor.wake = self.now + seconds
        self._hub.switch()

    def _draw(self, waiting, last):
        if self._timed:
            self.random.random()
            return min(waiting, key=lambda a: a.wake)
        if (
            self._stay
            and self.random.random() < self._stay
            and not (last is None or last.fiber.dead)
        ):
            return last
        return waiting[int(self.random.random() * len(waiting))]


class WaitingClock(ManualClock):
    """A clock on which sleeping yields the turn; its time is the run's plus `off_ms`."""

    def __init__(self, scheduler, seed, off_ms=0):
        super().__init__(START_MS, seed)
        self.off_ms = off_ms
        self._scheduler = scheduler

    def now_ms(self):
        return START_MS + int(self._scheduler.now * 1000) + self.off_ms

    def elapsed_s(self):
        return self._scheduler.now

    def sleep(self, seconds):
        self._scheduler.park(("sleep",), seconds)


class InlineExecutor:
    """An executor that runs each task in its caller, so that the scheduler controls the order."""

    def __init__(self, *args, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def map(self, call, *rows, **options):
        return [call(*row) for row in zip(*rows, strict=False)]

    def submit(self, call, *args, **options):
        future = Future()
        try:
            future.set_result(call(*args, **options))
        except Exception as error:  # noqa: BLE001 - it belongs to who asks for the result
            future.set_exception(error)
        return future

    def shutdown(self, **options):
        pass


# Modules that start threads, loaded or not.
THREADED = (
    "eventlog.commit.committer",
    "eventlog.store.parallel",
    "eventlog.compaction.runner",
)


@contextmanager
def one_thread():
    """Prevent our modules from starting threads, which would break determinism."""
    for name in THREADED:
        importlib.import_module(name)
    end_idle_threads()  # a reader before may have left some
    changed = []
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "eventlog" and hasattr(module, "ThreadPoolExecutor"):
            changed.append((module, module.ThreadPoolExecutor))
            module.ThreadPoolExecutor = InlineExecutor
    collecting = gc.isenabled()
    gc.disable()  # `simulate` collects garbage between runs
    try:
        # Every reader of a commit shares one decoded copy of it; asking the system for a name
        # takes longer than a commit.
        decode = mock.patch.object(codec, "decode_commit", lru_cache(256)(codec.decode_commit))
        with decode, mock.patch.dict(os.environ, LOGNAME="actor"):
            yield
    finally:
        if collecting:
            gc.enable()
        for module, executor in changed:
            module.ThreadPoolExecutor = executor
        end_idle_threads()  # which are none: the next reader wants real ones
