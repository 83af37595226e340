"""The commands that the commit protocol yields to its shell, and the answers to them.

Values only. The protocol yields one command and is sent the answer that the command's docstring
states; an error in the shell is raised where the command was yielded. Reading a snapshot is a
single command: how a version is read is not part of the protocol.
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
    """The content of a slot, which may differ from the bytes that were sent."""

    commit: Commit
    body: bytes


@dataclass(frozen=True, slots=True)
class Now:
    """Get the time in ms UTC, from the store if it has a clock. Answer: int."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Get the monotonic time of this process in seconds. Answer: float."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw a random number in [0, 1). Answer: float."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for `seconds`. Answer: None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CheckIdentity:
    """Check that the log is still that of `head`: at most one request. Answer: None.

    Attributes:
        head: the newest snapshot that the protocol builds on.
        writes: also check, once, that the store refuses to create a key twice.
    """

    head: Snapshot
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Confirm:
    """Check, after a commit, that the branch still exists: one request, in a branch only.

    No table contains a commit to a branch that was deleted before it. Answer: None.
    """


@dataclass(frozen=True, slots=True)
class NoteLogSeen:
    """Note that the log was just seen, so that no identity check is due. Answer: None."""


@dataclass(frozen=True, slots=True)
class LoadView:
    """Fetch what is needed to judge these transactions on `head`. Answer: `Viewed`.

    Attributes:
        head: the newest known snapshot.
        transactions: the transactions, in order.
        proposes: whether a commit is made of them, which is to start from the newest key frame.
    """

    head: Snapshot
    transactions: Sequence[Transaction]
    proposes: bool = True


@dataclass(frozen=True, slots=True)
class Viewed:
    """The head, perhaps over another key frame, and the view of it for the fold."""

    head: Snapshot
    view: fold.FoldView


# --- One slot -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutObjects:
    """Create the objects that a commit names, by key, with retries. Answer: None."""

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
    """The slot was created with the bytes that were sent."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The slot already exists."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """The outcome is unknown: the request may have had an effect, or may have one later."""

    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The request failed: it had no effect and will have none."""

    error: Unavailable | InvalidInput


SlotAnswer = Created | Exists | Unclear | Refused


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """Read the commit of a version: one request. Answer: `Stored`, or None if it is absent.

    VersionCut is raised where a stub is left of it, which `SlotHash` can read.
    """

    version: int


@dataclass(frozen=True, slots=True)
class SlotHash:
    """Read the commit hash of a version of which a stub is left: one request. Answer: text."""

    version: int


# --- Snapshots ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolve:
    """Resolve the snapshot of a commit. Answer: Snapshot.

    Attributes:
        stored: the commit.
        known: the snapshot of the version before, which it must follow; None: not checked.
    """

    stored: Stored
    known: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """Get the newest snapshot: one request if there is none after `known`. Answer: Snapshot.

    Attributes:
        known: the newest known one.
        far: it is probably several versions behind; then two requests get the newest.
    """

    known: Snapshot
    far: bool = False


@dataclass(frozen=True, slots=True)
class At:
    """Read the snapshot of a version. Answer: Snapshot."""

    version: int


@dataclass(frozen=True, slots=True)
class TookEffect:
    """Find out whether a transaction took effect in a commit. Answer: bool.

    Attributes:
        stored: the commit.
        after: the snapshot of its version.
        transaction_id: the id of the transaction.
    """

    stored: Stored
    after: Snapshot
    transaction_id: str


@dataclass(frozen=True, slots=True)
class WriteKeyFrame:
    """Write the key frame of `head` if it is due, best effort. Answer: Snapshot.

    Attributes:
        head: the snapshot of a version that was just committed.
        beside: do not wait for it where the store is far; the answer is `head` then.
    """

    head: Snapshot
    beside: bool = False


# --- Published transactions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Create the object of a published transaction, with retries.

    Answer: `IntentStored`, or `Refused` if the store refuses every retry and stored nothing.
    """

    transaction: Transaction
    table_id: str


@dataclass(frozen=True, slots=True)
class IntentStored:
    """The transaction is published.

    Attributes:
        took_s: how long the request took, in seconds: an estimate for other writers' requests.
    """

    took_s: float


@dataclass(frozen=True, slots=True)
class ListIntents:
    """List the published transactions that may still take effect on `head`: one request.

    Answer: list of `intents.Intent`.
    """

    head: Snapshot


@dataclass(frozen=True, slots=True)
class ReadIntents:
    """Read published transactions by key: one request for each that is not cached.

    Answer: list of Transaction, without invalid ones.
    """

    keys: Sequence[str]
    table_id: str


@dataclass(frozen=True, slots=True)
class Both:
    """Execute two commands at once. Answer: both answers; the second is None if it failed.

    An error of the first command is raised as if it were alone.
    """

    first: Command
    second: Command


Command = (
    Now | Elapsed | Draw | Sleep | CheckIdentity | Confirm | NoteLogSeen | LoadView
    | PutObjects | PutSlot | ReadSlot | SlotHash
    | Resolve | Newest | At | TookEffect | WriteKeyFrame
    | Publish | ListIntents | ReadIntents | Both
)  # fmt: skip

T = TypeVar("T")
# A part of the protocol: it yields commands, is sent their answers, and returns a T.
Steps = Generator[Command, Any, T]
