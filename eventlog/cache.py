"""A bounded cache: what was used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Cache(Generic[_Key, _Value]):
    """Values by key, bounded by their number or by what they weigh; safe to use from threads.

    Args:
        most: what all values may weigh together; the newest one stays whatever it weighs.
        weigh: what a value weighs; 1 each if None, so that `most` is a number of values.
        dropped: called with the key of each value that went, while the cache is locked.
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
        """Say whether a value is there; that is no use of it."""
        return key in self._values

    def get(self, key: _Key) -> _Value | None:
        """Return a value, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def forget(self, key: _Key) -> None:
        """Give a value up, if it is there, without a call of `dropped`."""
        with self._lock:
            self._remove(key)

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value, in the place of one that was there under the key."""
        with self._lock:
            self._remove(key)
            self._values[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most and len(self._values) > 1:
                gone, oldest = self._values.popitem(last=False)
                self._weight -= self._weigh(oldest)
                self._dropped(gone)

    def _remove(self, key: _Key) -> None:
        if key in self._values:
            self._weight -= self._weigh(self._values.pop(key))
