"""A store that injects planned faults, for tests and simulation.

Every fault occurs with real stores: no answer, a lost response, a late effect, a duplicated
request, a stale listing, or a crash of the caller at that point.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeVar

from pyarrow.fs import FileSystem

from eventlog.errors import InvalidInput, OutcomeUnknown, Unavailable
from eventlog.model.records import Fork
from eventlog.store.files import store_filesystem
from eventlog.store.port import Body, ObjectInfo, ObjectStore

Verb = Literal["get", "put", "list", "delete"]
Effect = Literal[
    "unavailable",
    "lost_response",
    "not_applied_unknown",
    "delayed",
    "duplicate",
    "crash_before",
    "crash_after",
    "stale_list",
]

_ONLY: dict[Effect, Verb] = {
    "not_applied_unknown": "put",
    "delayed": "put",
    "stale_list": "list",
}
_Answer = TypeVar("_Answer")


class Crash(BaseException):
    """A crash of the caller. Not an Exception, so that no handler of a program catches it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault.

    Attributes:
        verb: the kind of call that it matches; `put_hint` and `replace` are puts.
        effect: `unavailable`: nothing applied, Unavailable. `lost_response`: applied, then
            OutcomeUnknown for a put, else Unavailable. `not_applied_unknown`: nothing applied,
            OutcomeUnknown. `delayed`: OutcomeUnknown now, and the put is applied at the `amount`-th
            call after this one, or on `FaultyStore.release`. `duplicate`: applied twice, the second
            answer is returned. `crash_before`, `crash_after`: Crash before or after the effect.
            `stale_list`: the `amount` newest keys are missing from the listing.
        key: matches calls whose key (or prefix, or one of the keys to delete) contains this text.
        occurrence: which of the matching calls fails, counted from 1; 0 for all of them.
        amount: see `effect`.
    """

    verb: Verb
    effect: Effect
    key: str = ""
    occurrence: int = 1
    amount: int = 1


class FaultyStore:
    """A store that injects planned faults into calls; without any it behaves as the inner store.

    A call gets the first fault of the plan that matches it. Reads through `filesystem` count as
    `get` calls. The fault of a listing takes effect when the first row is requested.

    Args:
        inner: the wrapped store.
        faults: the plan; `inject` adds to it.
        history: keys in the order of their creation, appended to; pass the same list to all
            wrappers of a store, so that `stale_list` includes keys created by the others.

    Raises:
        InvalidInput: an effect that the verb cannot have.
    """

    def __init__(
        self,
        inner: ObjectStore,
        faults: Iterable[Fault] = (),
        history: list[str] | None = None,
    ) -> None:
        self.inner = inner
        self.history: list[str] = [] if history is None else history
        self.fired: list[Fault] = []
        self._lock = threading.RLock()
        self._plan: list[_Planned] = []
        self._late: list[_Late] = []
        for fault in faults:
            self.inject(fault)

    def __reduce__(self) -> tuple[object, ...]:
        return (FaultyStore, (self.inner, self.planned, list(self.history)))

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r}, {self.planned!r})"

    @property
    def planned(self) -> list[Fault]:
        """The faults that have not fired yet, and those that fire every time."""
        with self._lock:
            return [planned.fault for planned in self._plan]

    @property
    def delayed(self) -> list[str]:
        """The keys of the delayed puts that have not been applied yet."""
        with self._lock:
            return [late.key for late in self._late]

    def inject(self, fault: Fault) -> None:
        """Add a fault to the plan; its occurrences count from now on.

        Raises:
            InvalidInput: an effect that the verb cannot have.
        """
        if fault.verb != _ONLY.get(fault.effect, fault.verb):
            raise InvalidInput(f"a {fault.verb} cannot have the fault {fault.effect}")
        with self._lock:
            self._plan.append(_Planned(fault))

    def release(self) -> None:
        """Apply every delayed put now."""
        with self._lock:
            late, self._late = self._late, []
            for put in late:
                put.apply()

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return self.inner.uri

    @property
    def near(self) -> bool:
        """See `ObjectStore.near`; its reads may fail."""
        return False

    @property
    def unproven(self) -> str | None:
        """See `ObjectStore.unproven`."""
        return self.inner.unproven

    @property
    def forks(self) -> tuple[Fork, ...]:
        """See `ObjectStore.forks`."""
        return self.inner.forks

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        fault = self._meet("get", (key,))
        return _apply(fault, key, lambda: self.inner.get(key, start=start, length=length))

    def put_if_absent(self, key: str, body: Body) -> bool:
        """See `ObjectStore.put_if_absent`."""
        content = bytes(body)  # a late put must not see what the caller writes into its buffer
        return self._put(key, lambda: self._create(key, content))

    def put_hint(self, key: str, body: bytes) -> None:
        """See `ObjectStore.put_hint`."""
        self._put(key, lambda: self.inner.put_hint(key, body))

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        """See `ObjectStore.replace`."""
        return self._put(key, lambda: self.inner.replace(key, old, body))

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        fault = self._meet("list", (prefix,))
        if fault and fault.effect == "stale_list":
            hidden = self._newest(prefix, fault.amount)
            rows = self.inner.list(prefix, after=after)
            yield from islice((row for row in rows if row.key not in hidden), limit)
        elif fault is None:
            yield from self.inner.list(prefix, after=after, limit=limit)
        else:
            yield from _apply(
                fault, prefix, lambda: [*self.inner.list(prefix, after=after, limit=limit)]
            )

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`."""
        batch = tuple(keys)
        fault = self._meet("delete", batch)
        _apply(fault, batch[0] if batch else "", lambda: self.inner.delete(batch))

    def filesystem(self) -> tuple[FileSystem, str]:
        """See `ObjectStore.filesystem`; its reads get the faults of `get`."""
        return store_filesystem(self)

    def now_ms(self) -> int | None:
        """See `ObjectStore.now_ms`."""
        return self.inner.now_ms()

    def _put(self, key: str, call: Callable[[], _Answer]) -> _Answer:
        fault = self._meet("put", (key,))
        if fault and fault.effect in ("delayed", "not_applied_unknown"):
            if fault.effect == "delayed":
                with self._lock:
                    self._late.append(_Late(key, call, fault.amount))
            raise OutcomeUnknown(f"injected: {fault.effect}", key=key)
        return _apply(fault, key, call)

    def _create(self, key: str, body: Body) -> bool:
        created = self.inner.put_if_absent(key, body)
        if created:
            with self._lock:
                self.history.append(key)
        return created

    def _newest(self, prefix: str, count: int) -> set[str]:
        with self._lock:
            created = [key for key in self.history if key.startswith(prefix)]
        return set(created[max(0, len(created) - count) :])

    def _meet(self, verb: Verb, keys: tuple[str, ...]) -> Fault | None:
        """Count this call, apply the delayed puts that are due, and return its fault, if any."""
        with self._lock:
            for late in self._late:
                late.calls_left -= 1
            due = [late for late in self._late if late.calls_left <= 0]
            self._late = [late for late in self._late if late.calls_left > 0]
            for late in due:
                late.apply()
            fired: _Planned | None = None
            for planned in self._plan:
                if planned.fires(verb, keys) and fired is None:
                    fired = planned
            if fired is None:
                return None
            self.fired.append(fired.fault)
            if fired.fault.occurrence:
                self._plan.remove(fired)
            return fired.fault


@dataclass(eq=False, slots=True)
class _Planned:
    """A fault, and how many calls it might have fired on."""

    fault: Fault
    seen: int = 0

    def fires(self, verb: Verb, keys: tuple[str, ...]) -> bool:
        """Return whether the fault fires at a call, and count the call."""
        if verb != self.fault.verb or not any(self.fault.key in key for key in keys):
            return False
        self.seen += 1
        # A fault that was due for a call with another fault fires on the next one.
        return self.fault.occurrence <= self.seen


@dataclass(eq=False, slots=True)
class _Late:
    key: str
    apply: Callable[[], object]
    calls_left: int


def _apply(fault: Fault | None, key: str, call: Callable[[], _Answer]) -> _Answer:
    effect = fault.effect if fault else None
    if effect == "crash_before":
        raise Crash(f"injected before {key}")
    if effect == "unavailable":
        raise Unavailable("injected: unavailable", key=key)
    answer = call()
    if effect == "duplicate":
        answer = call()
    if effect == "crash_after":
        raise Crash(f"injected after {key}")
    if fault and effect == "lost_response":
        lost = OutcomeUnknown if fault.verb == "put" else Unavailable
        raise lost("injected: the response was lost", key=key)
    return answer
