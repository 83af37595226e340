"""A store with random faults of all kinds that real stores have."""

from collections import Counter
from dataclasses import dataclass

from support.builders import Crash

from eventlog import errors
from eventlog.format import keys

PUTS = (
    "lost",
    "never",
    "delayed",
    "twice",
    "refused",
    "conflict",
    "outage",
    "crash before",
    "crash after",
)
GETS = ("refused", "refused", "refused", "outage", "crash before", "crash before")
REPLACES = ("lost", "never", "delayed", "refused", "crash before", "crash after")
LISTS = ("refused", "outage", "crash before", "stale", "empty")
DELETES = (
    "refused",
    "lost",
    "delayed",
    "halfway",
    "crash before",
    "crash after",
    "crash halfway",
)
ALL = frozenset((*PUTS, *GETS, *LISTS, *REPLACES, *DELETES, "crash delayed"))


@dataclass(frozen=True)
class Weather:
    """The faults: the fraction of calls that fail, the kinds of faults, and the latency."""

    rate: float = 0.0
    accidents: frozenset[str] = ALL
    latency: tuple[float, float] = (0.0, 0.0)


FAIR = Weather()


class Late:
    """Requests in flight: each lands eventually, even if its sender has crashed."""

    def __init__(self, inner):
        self.inner = inner
        self.requests = []

    def put(self, key, body):
        self.requests.append((self.inner.put_if_absent, (key, bytes(body))))

    def replace(self, key, old, body):
        self.requests.append((self.inner.replace, (key, old, body)))

    def delete(self, batch):
        self.requests.append((self.inner.delete, (batch,)))

    def land(self, number):
        call, args = self.requests.pop(number)
        call(*args)

    def land_all(self, random):
        while self.requests:
            self.land(random.randrange(len(self.requests)))


class HarshStore:
    """A store whose every call yields to the scheduler, and may fail as real ones do.

    Args:
        inner: the store.
        scheduler: draws.
        weather: the faults.
        late: requests in flight, shared by all users of this store.
        struck: how often each fault happened.
        clock: the store's own time, if it has one.
    """

    def __init__(self, inner, scheduler, weather=FAIR, *, late=None, struck=None, clock=None):
        self.inner = inner
        self.uri = inner.uri
        self.calls = Counter()
        self.weather = weather
        self.late = Late(inner) if late is None else late
        self.struck = Counter() if struck is None else struck
        self._scheduler = scheduler
        self._clock = clock
        self._out = 0  # remaining calls of a network outage

    @property
    def _in_flight(self):
        return 0.5 if "crash delayed" in self.weather.accidents else 0.0

    near, unproven, forks = False, None, ()

    def get(self, key, *, start=0, length=None):
        self._meet("get", key, GETS)
        return self.inner.get(key, start=start, length=length)

    def list(self, prefix, *, after="", limit=None):
        accident = self._meet("list", prefix, LISTS)
        if accident == "empty":
            return iter(())
        if accident != "stale":
            return self.inner.list(prefix, after=after, limit=limit)
        rows = [*self.inner.list(prefix, after=after)]
        if prefix == keys.LOG_PREFIX:  # newest first; a gap would not be a stale LIST
            behind = self._scheduler.random.randint(1, 3)
            rows = rows[min(behind, len(rows) - 1) :] if rows else rows
        else:
            rows = [row for row in rows if self._scheduler.random.random() < 0.5]
        return iter(rows[:limit])

    def put_if_absent(self, key, body):
        accident = self._meet("put", key, PUTS)
        if accident == "delayed":
            self.late.put(key, body)
        if accident in ("delayed", "never"):
            raise errors.OutcomeUnknown(accident)
        if accident == "crash after" and self._scheduler.random.random() < self._in_flight:
            self.struck["crash delayed"] += 1
            self.late.put(key, body)
            raise Crash("crash delayed")
        created = self.inner.put_if_absent(key, body)
        if accident == "lost":
            raise errors.OutcomeUnknown(accident)
        if accident == "crash after":
            raise Crash(accident)
        return created and accident != "twice"

    def replace(self, key, old, body):
        accident = self._meet("replace", key, REPLACES)
        if accident == "delayed":
            self.late.replace(key, old, body)
        done = accident in ("delayed", "never") or self.inner.replace(key, old, body)
        if accident == "crash after":
            raise Crash(accident)
        if accident is not None:
            raise errors.Unavailable(accident)
        return done

    def delete(self, keys):
        batch = [*keys]
        accident = self._meet("delete", f"{len(batch)} keys", DELETES)
        if accident == "delayed":
            self.late.delete(batch)
            raise errors.Unavailable(accident)
        half = self._scheduler.random.randint(0, len(batch)) if accident else 0
        self.inner.delete(batch[:half] if accident in ("halfway", "crash halfway") else batch)
        if accident in ("lost", "halfway"):
            raise errors.Unavailable(accident)
        if accident is not None:
            raise Crash(accident)

    def filesystem(self):
        return self.inner.filesystem()

    def now_ms(self):
        return self._clock.now_ms() if self._clock else None

    def _meet(self, verb, key, accidents):
        self.calls[verb] += 1
        scheduler, weather = self._scheduler, self.weather
        least, most = weather.latency
        seconds = scheduler.random.uniform(least, most) if most else 0.0
        scheduler.park((verb, key), seconds)
        if self.late.requests and scheduler.random.random() < 0.2:
            number = scheduler.random.randrange(len(self.late.requests))
            scheduler.trace.append(("late", "lands"))
            self.late.land(number)
        if self._out:
            self._out -= 1
            return self._strike(self._cut_off(verb))
        # Deletes are rare, so their faults are made more frequent.
        rate = 0.5 if verb == "delete" and weather.rate else weather.rate
        if not rate or scheduler.random.random() >= rate:
            return None
        accident = scheduler.random.choice(accidents)
        if accident not in weather.accidents:
            return None
        if accident == "outage":
            self.struck[accident] += 1
            self._out = scheduler.random.randint(3, 30)
            accident = self._cut_off(verb)
        return self._strike(accident)

    def _cut_off(self, verb):
        """Return the fault of a call during an outage: the request may or may not arrive."""
        draw = self._scheduler.random
        return draw.choice(("lost", "never", "delayed")) if verb == "put" else "refused"

    def _strike(self, accident):
        self.struck[accident] += 1
        self._scheduler.trace.append((accident,))
        if accident == "conflict":  # the adapter retries a 409 until it gives up
            raise errors.OutcomeUnknown(accident)
        if accident == "refused":
            raise errors.Unavailable(accident)
        if accident == "crash before":
            raise Crash(accident)
        return accident
