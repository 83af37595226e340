"""What a handle knows between two commits, and what comes of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from eventlog.commit.protocol.contention import (
    Contention,
)
from eventlog.commit.publication import Intent
from eventlog.log.snapshot import Reader, Snapshot
from eventlog.model.records import Transaction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction: its version, and the newest snapshot known.

    `version` is the version that holds it; for an (app id, sequence) that is in the state already,
    a version at which it is included.
    """

    version: int
    head: Snapshot


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A transaction that may stand in one of `versions`, in the form in which it was sent."""

    form: Transaction
    versions: range


@dataclass(slots=True)
class Memory:
    """What one handle remembers of its commits, and of other writers.

    Attributes:
        table: URI of the table, for errors.
        log: what the snapshots made here read from; nothing is asked of it here.
        contention: what it makes of other writers.
        unsettled: by transaction id, what was sent and may still take effect.
        may_publish: false once the store refuses what is published, for good.
        listed: others' published transactions, as a listing beside the last commit showed them.
    """

    table: str
    log: Reader
    contention: Contention = field(default_factory=Contention)
    unsettled: dict[str, Unsettled] = field(default_factory=dict)
    may_publish: bool = True
    listed: list[Intent] = field(default_factory=list)
