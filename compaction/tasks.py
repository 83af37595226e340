"""A task of compaction: one commit that replaces segments by others.

Imports eventlog and rewriting only. Tasks are sent to Spark and to Lambda as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from eventlog.display import Described, Description
from eventlog.errors import InvalidInput
from eventlog.format.codec import sha256
from eventlog.model.entries import Granularity, Segment
from eventlog.quantities import count_text, size_text
from eventlog.rewriting.slice_merge import Buckets

Color = Literal["red", "black"]


class Task(Described, Struct, frozen=True, forbid_unknown_fields=True):
    """Rewrite these segments into the fewest good ones.

    Attributes:
        id: 32 hexadecimal digits, a function of the table, the granularity and the inputs with
            their versions: the same work has the same id wherever and whenever it is planned.
            Segments that a restore brought back count as others.
        version: the version at which it was planned.
        granularity: granularity of the segments that it makes.
        chunks: the chunks whose rows it rewrites, in time order: at `granularity` or, if inputs are
            coarser, those of the inputs.
        inputs: the live segments that it replaces, in (chunk start, chunk end, version, partition)
            order. Good segments of the same chunks are left alone.
        priority: 0 to 1, including ageing.
        reason: the rule and its numbers, as text.
        after: ids of tasks that must end first. They make segments in this task's chunks, so its
            inputs must be looked up again then (`eventlog.compaction.planner.planning.renewed`).
        buckets: in a keyed table, the slices that it merges; its inputs may also count in others.
    """

    id: str
    version: int
    granularity: Granularity
    chunks: tuple[str, ...]
    inputs: tuple[Segment, ...]
    priority: float
    reason: str
    after: tuple[str, ...] = ()
    buckets: Buckets | None = None

    def _described(self) -> Description:
        size = f"{count_text(len(self.inputs), 'segment')}, {size_text(self.bytes)}"
        return Description(f"Task {self.id[:8]}  {chunks_text(self.chunks)}  {size}: {self.reason}")

    @property
    def bytes(self) -> int:
        """Its cost: the size of its inputs in bytes."""
        return sum(segment.bytes for segment in self.inputs)

    @property
    def rows(self) -> int:
        """The rows of its inputs, without deleted ones."""
        return sum(segment.live_rows for segment in self.inputs)

    @property
    def color(self) -> Color:
        """Red may run now; black waits for the tasks in `after`."""
        return "black" if self.after else "red"


def chunks_text(chunks: tuple[str, ...]) -> str:
    """Return names of chunks in time order as text for display: the only one, or both ends."""
    return chunks[0] if len(chunks) == 1 else f"{chunks[0]} … {chunks[-1]}"


def task_id(table: str, granularity: str, inputs: Iterable[tuple[str, int]]) -> str:
    """Return the id of the task that rewrites the segments of these (id, version), in this order.

    It is the id of a transaction, which takes effect once. Versions are included because work that
    is due again after a restore must not have the id of the work that the restore undid.
    """
    # against task-id-without-versions
    text = " ".join((table, granularity, *(f"{name}@{version}" for name, version in inputs)))
    return sha256(text.encode())[:32]


_tasks = msgspec.json.Decoder(list[Task])  # created once; safe to share between threads


def encode_tasks(tasks: Iterable[Task]) -> bytes:
    """Return tasks as JSON."""
    return msgspec.json.encode(list(tasks))


def decode_tasks(body: bytes) -> list[Task]:
    """Return the tasks of `encode_tasks`.

    Raises:
        InvalidInput: the text is not a list of tasks.
    """
    try:
        return _tasks.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"these are not tasks of compaction: {error}") from None
