"""The values of the model: a small table state, and the actions of transactions.

Segments, claims and transactions are small integers, a chunk is the interval [n, n + 1), an entry's
hash is the entry itself. A segment has one row unless it says otherwise. A policy is a number, a
negative one is not a digest; chunks from 90 on have names that do not parse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Vector(NamedTuple):
    """A deletion vector: the epoch of its object, the number of deleted rows, and the object."""

    epoch: int
    rows: int
    object: int = 99


class Entry(NamedTuple):
    seg: int
    chunk: int
    epoch: int
    version: int
    partition: int
    rows: int = 1
    vector: Vector | None = None

    @property
    def left(self) -> int:
        """The number of rows that are not deleted."""
        return self.rows - (self.vector.rows if self.vector else 0)


def named(live) -> dict[int, int]:
    """The objects that live entries name, of segments and of vectors: object -> epoch."""
    found = {entry.seg: entry.epoch for entry in live}
    return found | {e.vector.object: e.vector.epoch for e in live if e.vector is not None}


class Pin(NamedTuple):
    name: str
    version: int
    owner: str
    token: int


class Replica(NamedTuple):
    name: str
    acked: int
    owner: str
    token: int


class Claim(NamedTuple):
    id: int
    start: int
    end: int
    segments: tuple[int, ...]
    kind: str
    priority: int
    group: str
    token: int
    renewed: int


class Sweep(NamedTuple):
    fence: int
    horizon: int
    version: int
    pending: tuple = ()  # (segment, epoch, version of its drop)


class State(NamedTuple):
    version: int = 0
    live: frozenset[Entry] = frozenset()
    fence: int = 0
    horizon: int = 0
    swept: Sweep | None = None
    pins: frozenset[Pin] = frozenset()
    replicas: frozenset[Replica] = frozenset()
    claims: frozenset[Claim] = frozenset()
    apps: frozenset[tuple[str, int, int]] = frozenset()  # (id, sequence, version)
    published: frozenset[tuple[int, int, int]] = frozenset()  # (id, version, until)
    granularity: str = "day"
    chunks: frozenset[tuple[int, int]] = frozenset()  # (chunk, version of its state)
    analysed: tuple[int, int] | None = None  # (version, policy)


@dataclass(frozen=True)
class Add:
    seg: int
    chunk: int
    epoch: int
    rows: int = 1
    vector: Vector | None = None


@dataclass(frozen=True)
class DeleteRows:
    entry: Entry
    vector: Vector


@dataclass(frozen=True)
class Drop:
    entry: Entry


@dataclass(frozen=True)
class SetLayout:
    pass


@dataclass(frozen=True)
class Unchanged:
    start: int
    end: int


@dataclass(frozen=True)
class Fence:
    epoch: int


@dataclass(frozen=True)
class Horizon:
    version: int


@dataclass(frozen=True)
class Swept:
    sweep: Sweep


@dataclass(frozen=True)
class SetPin:
    name: str
    version: int
    owner: str


@dataclass(frozen=True)
class Unpin:
    name: str
    owner: str
    token: int


@dataclass(frozen=True)
class TakeClaim:
    id: int
    start: int
    end: int
    segments: tuple[int, ...]
    kind: str
    priority: int
    group: str


@dataclass(frozen=True)
class Renew:
    id: int
    token: int


@dataclass(frozen=True)
class Release:
    id: int
    token: int


@dataclass(frozen=True)
class Break:
    kind: str
    name: str | int
    token: int
    renewed: int = 0


@dataclass(frozen=True)
class Attach:
    name: str
    acked: int
    owner: str


@dataclass(frozen=True)
class Ack:
    name: str
    token: int
    version: int


@dataclass(frozen=True)
class Detach:
    name: str
    token: int


@dataclass(frozen=True)
class Restore:
    version: int


@dataclass(frozen=True)
class Replace:
    version: int
    deletes: int


@dataclass(frozen=True)
class Update:
    rows: int
    paired: bool


@dataclass(frozen=True)
class SetGranularity:
    old: str
    new: str


@dataclass(frozen=True)
class Assess:
    """`chunks` is of (chunk, version of its state or None: removed)."""

    old: tuple[int, int] | None
    analysed: tuple[int, int] | None
    chunks: tuple[tuple[int, int | None], ...] = ()


@dataclass(frozen=True)
class Txn:
    id: int
    actions: tuple = ()
    read: int = 0
    until: int | None = None
    app: tuple[str, int] | None = None
    claim: tuple[int, int] | None = None
