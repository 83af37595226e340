"""The goals and limits of compaction, as one value with documented defaults.

Imports eventlog and rewriting only. Sizes are bytes of stored objects unless stated otherwise.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
from msgspec import Struct

from eventlog import arguments
from eventlog.errors import InvalidInput
from eventlog.format.codec import sha256
from eventlog.model.chunks import check_granularity
from eventlog.model.entries import Granularity
from eventlog.rewriting.outputs import Sizes

MIB = 2**20
GIB = 2**30

Order = Literal["priority", "newest"]
ORDERS: tuple[Order, ...] = ("priority", "newest")


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of compaction.

    Attributes:
        target_bytes: largest size of a segment. 1 KiB to 5 GiB.
        small_ratio: a segment of at least this share of `target_bytes` is good: it is not rewritten
            to make it larger (hysteresis). Above 0, at most 1; at 1 only full segments are good.
        deleted_ratio: a segment is rewritten once more than this share of its rows is deleted. From
            0, where one deleted row is enough, to 1, where that is never a reason.
        min_gain: small segments are merged if that reduces their number by at least this many per
            `target_bytes` rewritten. At most 1,000; 0 merges whenever the number falls.
        granularity: cut every segment to this granularity. None keeps the present ones: small
            segments are merged within the table's granularity, coarser ones within their own.
        sort_by: columns by which a task sorts its rows; the table's `order_by` if None.
        max_task_bytes: largest size of a task's inputs; a larger single segment is still one task.
            At least four times `target_bytes`, so that a part of a chunk still yields good
            segments.
        small_task_bytes: neighbouring tasks below this size are joined, up to `max_task_bytes`.
        max_tasks: tasks that run at once. 1 to 10,000. On Spark the session's parallelism replaces
            the default if it is larger (`eventlog.compaction.runner.limits_on`).
        max_running_bytes: largest total size of the inputs of running tasks; a task above it runs
            alone. At least 1.
        max_queue: largest number of waiting tasks; beyond it those of lowest priority are deferred.
            1 to 1,000,000.
        order: which tasks run first: with "priority" those that save queries the most per byte
            rewritten, with "newest" the latest chunks. In both, a task's priority rises with age.
        ageing_versions: number of versions after its last change at which a chunk precedes all
            younger ones, in either order. At least 1.
        backoff_s: seconds that a chunk rests after its task failed; doubled for each further
            failure in a row, up to `max_backoff_s`. At least 0.
        max_backoff_s: see `backoff_s`. At most ten years.
        claim_bytes: a task with inputs of at least this size takes a claim, so that no other
            process starts the same work; a smaller one can only lose the race at its commit. At
            least 0.
        memory_bytes: bytes of Arrow data that one task may hold. At least 1 MiB. Tasks that run at
            once in one program share it; on Spark each task, in each slot of an executor, has this
            much.
    """

    target_bytes: int = 128 * MIB
    small_ratio: float = 0.75
    deleted_ratio: float = 0.2
    min_gain: float = 0.5
    granularity: Granularity | None = None
    sort_by: tuple[str, ...] | None = None
    max_task_bytes: int = 2 * GIB
    small_task_bytes: int = 64 * MIB
    max_tasks: int = 4
    max_running_bytes: int = 8 * GIB
    max_queue: int = 1000
    order: Order = "priority"
    ageing_versions: int = 1000
    backoff_s: int = 60
    max_backoff_s: int = 86_400
    claim_bytes: int = 256 * MIB
    memory_bytes: int = 512 * MIB

    def check(self) -> Policy:
        """Return this policy.

        Raises:
            InvalidInput: a setting is out of its bounds.
        """
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInput(
                    f"policy {name} must be a whole number from {low} to {high}, not {value!r}"
                )
        if self.max_task_bytes < 4 * self.target_bytes:
            raise InvalidInput(
                f"policy max_task_bytes must be at least {4 * self.target_bytes} here"
            )
        # In this form both refuse NaN too.
        if not arguments.is_number(self.small_ratio) or not 0 < self.small_ratio <= 1:
            raise InvalidInput("policy small_ratio must be above 0 and at most 1")
        if not arguments.is_number(self.deleted_ratio) or not 0 <= self.deleted_ratio <= 1:
            raise InvalidInput("policy deleted_ratio must be from 0 to 1")
        if not arguments.is_number(self.min_gain) or not 0 <= self.min_gain <= _MAX_GAIN:
            raise InvalidInput(f"policy min_gain must be from 0 to {_MAX_GAIN}")
        if self.granularity is not None:
            check_granularity(self.granularity)
        arguments.choice(self.order, "policy order", ORDERS)
        if self.sort_by is not None:
            arguments.name_list(self.sort_by, "policy sort_by")
        return self

    @property
    def sizes(self) -> Sizes:
        """The sizes that bound a rewrite."""
        return Sizes(self.target_bytes, self.memory_bytes)

    @property
    def good_bytes(self) -> int:
        """The smallest size in bytes of a good segment."""
        return math.ceil(self.small_ratio * self.target_bytes)

    def backoff_ms(self, failures: int) -> int:
        """Return how long in ms a chunk rests after this many failures in a row (at least 1)."""
        doubled = self.backoff_s << min(failures - 1, 40)  # against rest-that-does-not-grow
        return 1000 * min(doubled, self.max_backoff_s)

    def digest(self, granularity: Granularity) -> str:
        """Return a digest of the settings that decide whether a chunk is stable: 64 hex digits.

        Limits of cost and the order are not included: chunks need no new analysis when they change.

        Args:
            granularity: the table's granularity.
        """
        parts = {
            "target_bytes": self.target_bytes,
            "small_ratio": float(self.small_ratio),
            "deleted_ratio": float(self.deleted_ratio),
            "min_gain": float(self.min_gain),
            "cut": self.granularity,
            "granularity": self.granularity or granularity,
        }
        return sha256(msgspec.json.encode(parts))


_MAX_GAIN = 1000
_DECADE_S = 10 * 366 * 86_400
_MOST_BYTES = 2**60
_BOUNDS = {
    "target_bytes": (1024, 5 * GIB),
    "max_task_bytes": (4096, _MOST_BYTES),
    "small_task_bytes": (0, _MOST_BYTES),
    "max_tasks": (1, 10_000),
    "max_running_bytes": (1, _MOST_BYTES),
    "max_queue": (1, 1_000_000),
    "ageing_versions": (1, 2**62),
    "backoff_s": (0, _DECADE_S),
    "max_backoff_s": (0, _DECADE_S),
    "claim_bytes": (0, _MOST_BYTES),
    "memory_bytes": (MIB, _MOST_BYTES),
}
