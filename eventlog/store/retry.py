"""The retry policy: the same request again, a few times, with exponential backoff.

The caller must make sure that the request is idempotent.
"""

from __future__ import annotations

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_never,
)
from tenacity.retry import retry_base

from eventlog.clock import Clock
from eventlog.errors import Unavailable
from eventlog.store.port import Body, ObjectStore
from eventlog.telemetry.signals import add_to

MAX_TRIES = 8  # of one request, the first one included
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


def wait_s(tries: int, drawn: float) -> float:
    """Return the seconds to wait after `tries` tries, given a random number in [0, 1)."""
    longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tries)
    return float(longest * (0.5 + drawn / 2))


def retrying(
    clock: Clock, *, tries: int | None = MAX_TRIES, when: retry_base | None = None
) -> Retrying:
    """Return the policy for one request. After the last try its error is raised unchanged.

    Args:
        clock: for the pauses and their jitter.
        tries: the maximum number of tries; None: without an end.
        when: the condition for a retry; if None, a missing or unclear answer (`Unavailable`).
    """

    def wait(state: RetryCallState) -> float:
        return wait_s(state.attempt_number, clock.random_fraction())

    return Retrying(
        retry=retry_if_exception_type(Unavailable) if when is None else when,
        stop=stop_never if tries is None else stop_after_attempt(tries),
        wait=wait,
        sleep=clock.sleep,
        before_sleep=_count_retry,
        reraise=True,
    )


def _count_retry(state: RetryCallState) -> None:
    add_to("retries")
    if state.next_action is not None:
        add_to("waited", state.next_action.sleep)


def put_once(store: ObjectStore, clock: Clock, key: str, body: Body) -> None:
    """Create an object under a key that no other writer uses for other bytes.

    Raises:
        Unavailable: the store does not answer; the object may or may not exist, and nothing refers
            to it.
    """
    # False means that an earlier try with the same bytes was applied.
    retrying(clock)(store.put_if_absent, key, body)
