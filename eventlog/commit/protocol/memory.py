"""What a handle knows between two commits, and what comes of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from eventlog.commit.protocol.contention import (
    Contention,
)
from eventlog.commit.publication import Intent
from eventlog.model.records import Transaction
from eventlog.state.snapshot import Frames, Snapshot


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
        frames: where a snapshot gets the parts of key frames.
        contention: what it makes of other writers.
        unsettled: by transaction id, what was sent and may still take effect.
        may_publish: false once the store refuses what is published, for good.
        listed: others' published transactions, as a listing beside the last commit showed them.
    """

    table: str
    frames: Frames
    contention: Contention = field(default_factory=Contention)
    unsettled: dict[str, Unsettled] = field(default_factory=dict)
    may_publish: bool = True
    listed: list[Intent] = field(default_factory=list)
