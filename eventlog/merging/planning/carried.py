"""The inputs and results of the planners of a merge. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eventlog.merging.log_acts import AppliedStep
from eventlog.merging.planning.forms import ObjectPlace
from eventlog.merging.sequences import joined_runs
from eventlog.model.actions import Action, AppReset, AppRise
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Meta

Choice = Literal["source", "target"]
ColumnChange = tuple[Choice, tuple[str, ...]]


class MergeConflict(Exception):
    """A change of the source that cannot be merged into the target, with the reason.

    Attributes:
        version: the source's version that made the change.
        ours: the target's version that conflicts with it; None if it is not a single one.
        whole: whether one of the two logs must be chosen as a whole.
        choices: the logs that can be chosen; none: no choice resolves the conflict.
        changes: the changes of columns that resolve it together: in which log, and the act of
            `eventlog columns` with its words.
        chunks: the chunks in which a choice leaves out what one of the two did, in order.
    """

    def __init__(
        self,
        reason: str,
        version: int,
        ours: int | None = None,
        *,
        whole: bool = False,
        choices: Sequence[Choice] = ("source", "target"),
        changes: Sequence[ColumnChange] = (),
        chunks: Sequence[str] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.version = version
        self.ours = ours
        self.whole = whole
        self.choices = choices
        self.changes = changes
        self.chunks = chunks


@dataclass(frozen=True, slots=True)
class Divergence:
    """What both logs did since the fork point.

    Attributes:
        source: the source's commits that are merged already.
        target: the target's commits.
        later: the source's commits that are to be merged.
        seen: the target's version up to which the source has everything, after all its commits.
    """

    source: Sequence[AppliedStep]
    target: Sequence[AppliedStep]
    later: Sequence[AppliedStep]
    seen: int

    @classmethod
    def unread(cls, later: Sequence[AppliedStep]) -> Divergence:
        """Return the value for planners that need no more than the commits to be merged."""
        return cls((), (), later, -1)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two logs that have diverged.

    Attributes:
        source: the source's root URI.
        target: the target's root URI.
        common: the last version that both logs share.
        origin: the hash of the source's first commit after that.
        own: the hash of the target's first commit after that; None if the target has none.
        schema: the source's newest schema.
        meta: the source's newest small state.
        seen: the target's version up to which the source has everything, before the commits that
            are to be merged.
        ours: hashes of the target's commits that the commits to be merged name as their origins.
        alone: whether the target has merged no other log than the source.
        forked: the schema of the last version that both logs share; None: the newest ones.
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
    forked: Schema | None = None

    @property
    def is_upper(self) -> bool:
        """Whether the target's rows come after those of the source in a keyed table (R19.8)."""
        return self.own is not None and self.own > self.origin


@dataclass(frozen=True, slots=True)
class Carried:
    """One transaction that a merge commits on the target.

    Attributes:
        version: the newest version of the source that it carries.
        commit: the hash of that version's commit.
        adds: segments of the source, with the target's schema.
        drops: ids of segments of the target, with their chunks.
        changes: changes of the small state, in order.
        commits: the commits in which the changes were first committed: hashes, with their versions.
        apps: the new sequences of apps.
        resets: for each restore that it needs, the sequences of apps after that restore.
        deletes: for a rewrite, the number of rows that it deletes; None: it is no rewrite.
        operations: the names of the source's operations.
        transactions: number of transactions that it carries, through however many logs they came.
        copies: for adds that are no segments of the source: the places of their objects. The
            first object that exists is copied.
        seen: for drops of a keyed table, the target's version that the source had seen; None: the
            newest.
        still: chunks to which nothing may be added before it is committed.
        united: if it unites the two logs by their states: "source" if each chunk that it changes
            becomes what it is at the source, else "both".
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
    copies: Mapping[str, tuple[ObjectPlace, ...]] = field(default_factory=dict)
    seen: int | None = None
    still: frozenset[str] = frozenset()
    united: str | None = None
    resets: Sequence[Mapping[str, AppReset]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the target would be the same without it."""
        records = bool(self.commits)  # against what-was-undone-at-once-not-recorded
        return not (self.adds or self.drops or self.changes or self.apps or records)

    def then(self, later: Carried) -> Carried:
        """Return the one transaction that has the effect of both."""
        seen = [version for version in (self.seen, later.seen) if version is not None]
        dropped = {i for i, _ in later.drops}
        added = {s.id for s in self.adds}
        back = {s.id for s in later.adds} & {i for i, _ in self.drops}
        apps = dict(self.apps)
        for app, rise in later.apps.items():
            known = apps.get(app, rise)
            apps[app] = AppRise(known.old, joined_runs(known.done, rise.done))
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
