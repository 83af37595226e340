"""Many writers of one table in simulated time: how long an append takes, and what it costs.

The writers run the real commit protocol, against a real log in memory; only time is simulated. A
request takes effect about half its latency after it was sent. Run it for a table of policies:

    make contention SECONDS=20
"""

import heapq
import itertools
import random
import sys
from dataclasses import dataclass, field

from support.builders import START_MS, add, create, drop_of, replaced
from support.intents import Staged

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.commit.protocol import commands as c
from eventlog.commit.protocol import commit as committing
from eventlog.errors import EventLogError
from eventlog.model.actions import Replace
from eventlog.store.testing.wrappers import CountingStore

THREADS = 32  # requests that one writer has in flight at once
WRITERS = (1, 2, 4, 8, 16, 32)


class FarStore(CountingStore):
    """A store whose reads cost requests, in memory."""

    near = False


class Clock(ManualClock):
    """A clock of simulated time, on which nothing sleeps."""

    def __init__(self, world, seed):
        super().__init__(START_MS, seed)
        self._world = world

    def now_ms(self):
        return START_MS + int(self._world.now * 1000)

    def elapsed_s(self):
        return self._world.now

    def sleep(self, seconds):
        raise AssertionError("the protocol waits by commands")

    def beside(self, work, name):
        def later():
            # Leaves and the root of a key frame, two requests in sequence, while appends go on.
            for _ in range(4):
                yield self._world.half()
            work()

        self._world.start(later())


@dataclass
class Result:
    """The measurements of one run."""

    seconds: float
    latencies: list = field(default_factory=list)  # of appends, in seconds
    replaced: list = field(default_factory=list)  # of replacements
    waiting: list = field(default_factory=list)  # of appends that were not done at the end
    requests: int = 0
    commits: int = 0

    @property
    def rate(self):
        return len(self.latencies) / self.seconds

    @property
    def each(self):
        return self.requests / max(1, len(self.latencies) + len(self.replaced))

    def at(self, share):
        return sorted(self.latencies)[int(len(self.latencies) * share)]

    def slowest(self):
        return max([*self.latencies, *self.replaced, *self.waiting])


class World:
    """Simulated time, one table, and processes: generators that yield seconds to wait.

    Args:
        latency: latency of a request in seconds.
        seed: the seed of all random draws.
        jitter: the fraction by which a request may take longer or shorter.
        combine_after: the table's property; with 0 nothing is published. None: its default.
        keyframes: the table's property `keyframe_commits`.
        cpu: CPU seconds that a request takes in addition.
        cores: number of processors that all writers share.
    """

    def __init__(
        self, latency, seed=1, *, jitter=0.2, combine_after=None, keyframes=1024, cpu=0.0, cores=2
    ):
        self.now = 0.0
        self.latency = latency
        self.store = Staged()
        self.random = random.Random(seed)
        self._jitter, self._cpu = jitter, cpu
        self._cores = [0.0] * cores  # when each has done what was asked of it
        self._queue, self._count = [], itertools.count()
        properties = {"keyframe_commits": str(keyframes)}
        if combine_after is not None:
            properties["combine_after"] = str(combine_after)
        create(self.store, seed=seed, properties=properties)

    def start(self, process, then=lambda _result: None):
        """Run a process; `then` is called with what it returns."""
        self._step(process, then)

    def run(self, until):
        while self._queue and self._queue[0][0] <= until:
            self.now, _, process, then = heapq.heappop(self._queue)
            self._step(process, then)

    def half(self):
        """Half of a request, from the writer to the store or back."""
        spread = 1 + self._jitter * (2 * self.random.random() - 1)
        return self.latency / 2 * spread + (self._busy() if self._cpu else 0.0)

    def _busy(self):
        """How long half of a request's work takes, with what waits before it."""
        core = min(range(len(self._cores)), key=self._cores.__getitem__)
        self._cores[core] = max(self._cores[core], self.now) + self._cpu / 2
        return self._cores[core] - self.now

    def _step(self, process, then):
        try:
            wait = next(process)
        except StopIteration as end:
            then(end.value)
            return
        heapq.heappush(self._queue, (self.now + wait, next(self._count), process, then))

    def together(self, *processes):
        """A process that runs several and returns their results."""
        results, left = [None] * len(processes), [len(processes)]

        def ended(number):
            def note(result):
                results[number] = result
                left[0] -= 1

            return note

        for number, process in enumerate(processes):
            self.start(process, ended(number))
        while left[0]:
            yield self.latency / 50 or 1e-4
        return results


class Writer:
    """One process that appends, or replaces its own segments, without a pause or after one."""

    def __init__(
        self, world, number, result, *, replaces=False, pause=0.0, staged=True, appends=None, last=0
    ):
        self.world, self.number, self.result, self.replaces = world, number, result, replaces
        self.pause, self.staged, self.left = pause, staged, appends
        self.last = last
        self.store = FarStore(world.store)
        self.table = Table(self.store, Clock(world, number + 1))
        self.table.session.head()
        self.started = 0.0
        self.writer = self.table.session.committer.writer
        if not staged:  # nobody looks for the object of rows that stand in the intent
            self.table.session.log.staged.lost = lambda adds: set()
        world.start(self.work(world.random.random() * max(world.latency, pause)))

    def work(self, delay):
        yield delay
        mine = None
        while self.left is None or self.left > 0:
            self.left = self.left and self.left - 1
            if self.last and self.world.now > self.last:
                self.left = 0
                break
            started = self.started = self.world.now
            before = self._requests()
            actions = self._actions(mine)
            head = self.table.session.head()
            if self.staged:
                steps = committing.read_published(self.writer, head)
                yield from self.world.together(self._request(None), self._drive(steps))
            transaction = self.table.transaction("append", actions)
            transaction = replaced(transaction, writer=f"writer {self.number}")
            steps = committing.commit(self.writer, transaction, self.table.session.head())
            outcome = yield from self._drive(steps)
            if isinstance(outcome, Exception):
                raise outcome
            self.table.session.advance(outcome.head)
            took = self.world.now - started
            (self.result.replaced if mine and self.replaces else self.result.latencies).append(took)
            self.result.requests += self._requests() - before + self.staged  # and the upload
            mine = actions[-1] if self.replaces else None
            mine = mine and (mine, outcome.version)
            if self.pause:
                yield self.pause * (0.5 + self.world.random.random())

    def _actions(self, mine):
        fresh = add(self.table)
        if mine is None:
            return [fresh]
        old, version = mine
        segment = self.table.session.head().delta.adds[old.id]
        return [Replace(version, 0), drop_of(segment), fresh]

    def _requests(self):
        return self.store.counts.total

    def _drive(self, steps):
        answer, error = None, None
        while True:
            try:
                command = steps.throw(error) if error else steps.send(answer)
            except StopIteration as end:
                return end.value
            except EventLogError as failed:
                return failed
            answer, error = None, None
            answer = yield from self._perform(command)
            if isinstance(answer, EventLogError):
                error = answer

    def _perform(self, command):
        match command:
            case c.Sleep(seconds):
                yield seconds
                return None
            case c.Both(first, second):
                return tuple(
                    (yield from self.world.together(self._perform(first), self._perform(second)))
                )
            case c.Publish():
                started = self.world.now
                yield from self._request(command)
                return c.IntentStored(self.world.now - started)
            case (
                c.PutSlot() | c.ReadSlot() | c.ListIntents() | c.Newest() | c.ReadIntents()
                | c.At() | c.PutObjects() | c.WriteKeyFrame()
            ):  # fmt: skip
                return (yield from self._request(command))
        return self._now(command)

    def _now(self, command):
        try:
            return self.table.session.committer.perform(command)
        except EventLogError as failed:
            return failed

    def _request(self, command):
        """A request, or several in sequence; those of `ReadIntents` run in parallel."""
        idle = isinstance(command, c.WriteKeyFrame | c.PutObjects | c.ReadIntents)
        if not idle:
            yield self.world.half()
        before = self._requests()
        answer = command and self._now(command)
        sent = self._requests() - before
        if isinstance(command, c.ReadIntents):
            sent = -(-sent // THREADS)
        rest = 2 * sent if idle else 2 * max(1, sent) - 1
        for _ in range(rest):
            yield self.world.half()
        return answer


def contend(
    writers,
    latency,
    *,
    seconds=20.0,
    seed=1,
    replacing=0,
    pause=0.0,
    staged=True,
    appends=None,
    last=0,
    **options,
):
    """Run writers that contend for one table for simulated seconds; return a `Result`.

    Each pauses for about `pause` seconds after each append, and ends after `appends` of them, or
    with the one during which the second `last` ends.
    """
    world = World(latency, seed, **options)
    result = Result(seconds)
    shared = {"pause": pause, "staged": staged, "appends": appends, "last": last}
    crowd = [Writer(world, n, result, replaces=n < replacing, **shared) for n in range(writers)]
    world.run(seconds)
    result.waiting = [world.now - writer.started for writer in crowd if writer.left != 0]
    result.commits = Table(world.store).session.head().version
    return result


def main(arguments):
    seconds = float(arguments[0]) if arguments else 20.0
    for latency_ms in [float(a) for a in arguments[1:]] or [20.0, 50.0, 100.0]:
        alone = None
        sys.stdout.write(f"{latency_ms:g} ms a request\n")
        for writers in WRITERS:
            result = contend(writers, latency_ms / 1000, seconds=seconds)
            alone = alone or result.rate
            sys.stdout.write(
                f"  {writers:3} writers: {result.rate:6.1f} appends/s, "
                f"x{result.rate / alone:5.2f}, {result.each:5.2f} requests, "
                f"p50 {result.at(0.5) * 1000:5.0f} ms, p99 {result.at(0.99) * 1000:5.0f} ms, "
                f"max {result.slowest() * 1000:5.0f} ms, "
                f"{result.commits / seconds:5.1f} commits/s\n"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
