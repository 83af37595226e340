"""A bounded cache that evicts the least recently used value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Cache(Generic[_Key, _Value]):
    """Values by key, bounded by their number or their total weight. Thread-safe.

    Args:
        most: bound on the total weight; the newest value is kept whatever it weighs.
        weigh: returns the weight of a value; 1 by default, so that `most` is a number of values.
        dropped: called with the key of each evicted value, while the cache is locked.
    """

    def __init__(
        self,
        most: int,
        *,
        weigh: Callable[[_Value], int] = lambda _: 1,
        dropped: Callable[[_Key], object] = lambda _: None,
    ) -> None:
        self._most, self._weigh, self._dropped = most, weigh, dropped
        self._lock = Lock()
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._weight = 0

    def __contains__(self, key: _Key) -> bool:
        """Say whether there is a value; this does not count as a use."""
        return key in self._values

    def get(self, key: _Key) -> _Value | None:
        """Return the value under `key`, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def forget(self, key: _Key) -> None:
        """Remove the value under `key`, if any, without calling `dropped`."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        """Remove all values, without calling `dropped`."""
        with self._lock:
            self._values.clear()
            self._weight = 0

    def put(self, key: _Key, value: _Value) -> None:
        """Store a value, replacing the one under the same key."""
        with self._lock:
            self._remove(key)
            self._values[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most and len(self._values) > 1:
                evicted, oldest = self._values.popitem(last=False)
                self._weight -= self._weigh(oldest)
                self._dropped(evicted)

    def _remove(self, key: _Key) -> None:
        if key in self._values:
            self._weight -= self._weigh(self._values.pop(key))
