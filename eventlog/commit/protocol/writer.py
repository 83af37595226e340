"""What a handle remembers between two commits, and the outcome of a commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from eventlog.commit.intents import Intent
from eventlog.commit.protocol.contention import (
    Contention,
)
from eventlog.log.snapshot import Reader, Snapshot
from eventlog.model.records import Transaction


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a transaction.

    Attributes:
        version: the version in which it took effect; for an (app id, sequence) that was already
            committed, a version that includes it.
        head: the newest known snapshot.
    """

    version: int
    head: Snapshot


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A transaction that was sent and whose outcome is unknown.

    Attributes:
        form: the transaction as it was sent: published or not.
        versions: the versions in which it may have taken effect, or still may.
    """

    form: Transaction
    versions: range


@dataclass(slots=True)
class Writer:
    """What one handle remembers about its commits and other writers.

    Attributes:
        table: URI of the table, for errors.
        log: the log that new snapshots read from; the protocol itself does not use it.
        contention: what it remembers about other writers.
        unresolved: the transactions that were sent and may still take effect, by id.
        may_publish: false once the store has refused a publication.
        listed: other writers' published transactions, as listed during the last commit.
        taken: those that were read during the last commit, for the next one to include.
    """

    table: str
    log: Reader
    contention: Contention = field(default_factory=Contention)
    unresolved: dict[str, Unresolved] = field(default_factory=dict)
    may_publish: bool = True
    listed: list[Intent] = field(default_factory=list)
    taken: list[Transaction] = field(default_factory=list)
