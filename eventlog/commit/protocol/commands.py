"""What the commit protocol asks of its shell, and the answers that are no errors.

Values only. The protocol yields one command and is sent the answer that its docstring names; an
error that the shell meets is raised where the command was yielded. Reading a snapshot, whatever
that takes, is one command: how a version is read is no part of the protocol.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eventlog.errors import InvalidInput, Unavailable
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Commit, Transaction
from eventlog.state import fold


@dataclass(frozen=True, slots=True)
class Stored:
    """What stands in a slot, which need not be the bytes that were sent."""

    commit: Commit
    body: bytes


@dataclass(frozen=True, slots=True)
class Now:
    """Tell the time: milliseconds UTC, of the store where it tells one. Answer: int."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Tell the seconds since some moment of this process; they never go back. Answer: float."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw a random number in [0, 1). Answer: float."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait. Answer: None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CheckIdentity:
    """Make sure that the log is still the one of `head`: at most one request. Answer: None.

    Attributes:
        head: the newest snapshot that the protocol builds on.
        writes: also make sure, once, that the store refuses to create a key twice.
    """

    head: Snapshot
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Met:
    """Note that the log was met just now, so that no check of it is due. Answer: None."""


@dataclass(frozen=True, slots=True)
class View:
    """Fetch what judging these transactions on `head` needs. Answer: `Viewed`."""

    head: Snapshot
    transactions: Sequence[Transaction]


@dataclass(frozen=True, slots=True)
class Viewed:
    """The head, maybe over another key frame, and the view of it that the fold works on."""

    head: Snapshot
    view: fold.View


# --- One slot -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutObjects:
    """Create the objects that a commit names, by key; retried until it is clear. Answer: None."""

    objects: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class PutSlot:
    """Create the commit of a version: one request, never retried by the shell.

    Answer: `Created`, `Exists`, `Unclear` or `Refused`.
    """

    version: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Created:
    """The slot holds the bytes that were sent."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The store refused to create the slot a second time."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """The request may have had an effect, or may have one later."""

    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The request had no effect and will have none."""

    error: Unavailable | InvalidInput


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """Read the commit of a version: one request. Answer: `Stored`, or None where it is absent."""

    version: int


# --- Snapshots ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolve:
    """Resolve the snapshot of a commit. Answer: Snapshot.

    Attributes:
        stored: the commit.
        known: the snapshot of the version before it, which it has to follow; None: not compared.
    """

    stored: Stored
    known: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """Look for versions after `known`: one request where there is none. Answer: Snapshot."""

    known: Snapshot


@dataclass(frozen=True, slots=True)
class At:
    """Read the snapshot of a version. Answer: Snapshot."""

    version: int


@dataclass(frozen=True, slots=True)
class Holds:
    """Say whether a transaction took effect in a commit with the snapshot `after`. Answer: bool."""

    stored: Stored
    after: Snapshot
    transaction_id: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Write the key frame of `head` if it is due; it never fails. Answer: Snapshot."""

    head: Snapshot


# --- Published transactions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Create the object of a published transaction; retried until it is clear.

    Answer: `Published`, or `Refused` where the store refuses that for good and nothing was sent.
    """

    transaction: Transaction
    table_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """The transaction is published.

    Attributes:
        took_s: how long the request took: the measure for how long others' requests take.
    """

    took_s: float


@dataclass(frozen=True, slots=True)
class ListIntents:
    """List what is published and may still take effect on `head`: one request.

    Answer: list of `publication.Intent`.
    """

    head: Snapshot


@dataclass(frozen=True, slots=True)
class ReadIntents:
    """Read published transactions by key: one request for each that was not read before.

    Answer: list of Transaction; what is not usable is left out.
    """

    keys: Sequence[str]
    table_id: str


@dataclass(frozen=True, slots=True)
class Beside:
    """Do two things at once. Answer: the first one's, and the second one's or None if it failed.

    The first one's error is raised as if it was alone.
    """

    first: Command
    second: Command


Command = (
    Now | Elapsed | Draw | Sleep | CheckIdentity | Met | View
    | PutObjects | PutSlot | ReadSlot
    | Resolve | Newest | At | Holds | Frame
    | Publish | ListIntents | ReadIntents | Beside
)  # fmt: skip

T = TypeVar("T")
# A part of the protocol: it yields commands, is sent their answers, and returns a T.
Steps = Generator[Command, Any, T]
