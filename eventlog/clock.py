"""Time, randomness and work beside: the only module that reads or starts any of them.

Everything else takes a `Clock`, so that a test or a simulation controls both.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from threading import Thread
from typing import Protocol


class Clock(Protocol):
    """Wall time, sleeping, randomness and work beside, as one object that tests can replace.

    Ids and jitter come from the randomness, and never from a time.
    """

    def now_ms(self) -> int:
        """Return the wall time in milliseconds since 1970-01-01 UTC."""
        ...

    def elapsed_s(self) -> float:
        """Return the seconds since an arbitrary start; never decreases.

        Only differences are meaningful, and only within one process.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...

    def random_fraction(self) -> float:
        """Return a random float in [0, 1), for jitter."""
        ...

    def random_id(self) -> str:
        """Return a fresh random id: 128 bits as 32 lower-case hexadecimal digits."""
        ...

    def beside(self, work: Callable[[], None], name: str) -> None:
        """Do work that nobody waits for, while the caller goes on.

        Args:
            work: raises nothing.
            name: what it is, for a list of threads.

        Raises:
            RuntimeError: it cannot be started.
        """
        ...


class SystemClock:
    """The machine's clock and its secure random source."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        """See `Clock.elapsed_s`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(seconds)

    def random_fraction(self) -> float:
        """See `Clock.random_fraction`."""
        return random.random()  # noqa: S311 - jitter, not a secret

    def random_id(self) -> str:
        """See `Clock.random_id`."""
        return secrets.token_hex(16)

    def beside(self, work: Callable[[], None], name: str) -> None:
        """See `Clock.beside`: in a thread, for which the end of the interpreter waits."""
        Thread(target=work, name=name).start()


class ManualClock:
    """A clock that advances only on `sleep` and `advance`, with seeded randomness, for tests.

    Args:
        now_ms: the wall time to start at.
        seed: of the random source; the same seed gives the same sequence of ids and jitter.
    """

    def __init__(self, now_ms: int = 0, seed: int = 0) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0
        self._random = random.Random(seed)  # noqa: S311 - determinism is the point

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._now_ms

    def elapsed_s(self) -> float:
        """See `Clock.elapsed_s`."""
        return self._elapsed_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Move the clock forward instead of waiting."""
        self.advance(round(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        """Move the clock by `milliseconds`; a negative number sets only the wall time back."""
        self._now_ms += milliseconds
        self._elapsed_ms += max(0, milliseconds)

    def random_fraction(self) -> float:
        """See `Clock.random_fraction`."""
        return self._random.random()

    def random_id(self) -> str:
        """See `Clock.random_id`."""
        return f"{self._random.getrandbits(128):032x}"

    def beside(self, work: Callable[[], None], name: str) -> None:
        """Do the work at once, so that one order of events is one outcome."""
        del name
        work()
