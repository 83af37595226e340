"""What planners are given, and what they return. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eventlog.merging import history
from eventlog.merging.history import AppliedStep
from eventlog.model.actions import Action, AppReset, AppRise
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Meta


class MergeConflict(Exception):
    """What the source did cannot be carried; has the reason.

    Attributes:
        version: the source's version.
        ours: the target's version that stands against it, where it is one.
        lasting: whether it stays, whatever is chosen.
    """

    def __init__(
        self, reason: str, version: int, ours: int | None = None, *, lasting: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.version = version
        self.ours = ours
        self.lasting = lasting


class PastNeeded(Exception):
    """The decision needs what both did since they parted."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """What both logs did since they parted.

    Attributes:
        source: the source's commits, as far as they are carried.
        target: the target's.
        later: the source's that are to be carried.
        seen: the target's version up to which the source has everything, after all of these.
    """

    source: Sequence[AppliedStep]
    target: Sequence[AppliedStep]
    later: Sequence[AppliedStep]
    seen: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two logs that have parted.

    Attributes:
        source: root URI of the source.
        target: that of the target.
        common: the last version that they share.
        origin: the hash of the first version of the source after that.
        own: that of the target; None if it has none.
        schema: the source's newest schema.
        meta: the source's newest small state.
        seen: the target's version up to which the source has everything, before what is carried.
        ours: hashes of commits of the target that the source names in what is carried.
        alone: whether the target has merged nothing else than the source.
    """

    source: str
    target: str
    common: int
    origin: str
    own: str | None
    schema: Schema
    meta: Meta
    seen: int = -1
    ours: frozenset[str] = frozenset()
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Carried:
    """One transaction of the target.

    Attributes:
        version: the source's version up to which it carries.
        commit: the hash of that version's commit.
        adds: segments of the source, with the target's schema.
        drops: ids of segments of the target, and their chunks.
        changes: changes of the small state, in order.
        commits: those in which what it carries was first committed: hashes, with their versions.
        apps: what becomes of the sequences of apps.
        resets: for each restore that it needs, what becomes of the sequences of apps after that.
        deletes: for a rewrite, the number of rows that it deletes; None: it is none.
        operations: the source's.
        transactions: number of transactions that it carries, by however many logs they came.
        copies: for adds that are no segments of the source: where their objects lie, as (whether
            that is at the target, key), the first that is there.
        seen: for drops of a keyed table, the target's version that the source had seen; None: the
            newest.
        still: chunks to which nothing may be added meanwhile.
        united: where it makes the two one by their states: "source" where each chunk that it
            changes becomes what it is at the source, else "both".
    """

    version: int
    commit: str
    adds: tuple[Segment, ...] = ()
    drops: tuple[tuple[str, str], ...] = ()
    changes: tuple[Action, ...] = ()
    commits: Mapping[str, int] = field(default_factory=dict)
    apps: Mapping[str, AppRise] = field(default_factory=dict)
    deletes: int | None = None
    operations: tuple[str, ...] = ()
    transactions: int = 0
    copies: Mapping[str, tuple[tuple[bool, str], ...]] = field(default_factory=dict)
    seen: int | None = None
    still: frozenset[str] = frozenset()
    united: str | None = None
    resets: Sequence[Mapping[str, AppReset]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the target would be the same without it."""
        return not (self.adds or self.drops or self.changes or self.apps)

    def then(self, later: Carried) -> Carried:
        """Return the one transaction that has the effect of both."""
        seen = [version for version in (self.seen, later.seen) if version is not None]
        dropped = {i for i, _ in later.drops}
        added = {s.id for s in self.adds}
        back = {s.id for s in later.adds} & {i for i, _ in self.drops}
        apps = dict(self.apps)
        for app, rise in later.apps.items():
            known = apps.get(app, rise)
            apps[app] = AppRise(known.old, history.union(known.done, rise.done))
        return Carried(
            later.version,
            later.commit,
            (
                *(s for s in self.adds if s.id not in dropped),
                *(s for s in later.adds if s.id not in back),
            ),
            (
                *(d for d in self.drops if d[0] not in back),
                *(d for d in later.drops if d[0] not in added),
            ),
            (*self.changes, *later.changes),
            {**self.commits, **later.commits},
            dict(sorted(apps.items(), key=lambda item: item[0].encode())),
            operations=(*self.operations, *later.operations),
            transactions=self.transactions + later.transactions,
            copies={**self.copies, **later.copies},
            seen=min(seen, default=None),
            still=self.still | later.still,
        )
