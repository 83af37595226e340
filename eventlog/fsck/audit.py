"""The audit: compares every commit with the fold of all transactions up to it.

No I/O, except through the functions passed to `Audit`. Commits are added one by one, in order. The
live set is kept in memory and changed in place, so the cost of a step is proportional to the
changes of its commit. The fold is `eventlog.state.fold`, the one that writers and readers use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UnsetType

from eventlog.errors import Corrupt, NotFound, VersionCut, VersionNotReplicated
from eventlog.format import codec
from eventlog.keyed.rule import stored_rule
from eventlog.model.actions import Add, Drop, Restore
from eventlog.model.columns.named_layout import named_layout
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Header, KeyFrame, Meta, Transaction, cut_of
from eventlog.model.schema import first_problems, stored_time_column
from eventlog.model.stats import live_stats
from eventlog.state import fold
from eventlog.state.delta import Delta

_ROWS = ("chunk", "checksum", "vector")  # the fields of an entry that decide about its rows


@dataclass(frozen=True, slots=True)
class AuditPast:
    """The state at an earlier version: the small state, and the live segments by id."""

    meta: Meta
    live: Mapping[str, Segment]


@dataclass(frozen=True, slots=True)
class AuditStep:
    """The result of the audit of one commit.

    Attributes:
        void: the transactions without effect: id to reason.
        drops: the segments that it dropped.
        adds: those that it made live.
        deletes: those of which it deleted rows: the entry before, and the one after.
        problems: differences between the commit and the fold; empty if there are none.
        breaches: breaches of the format that the fold accepts, and readers or later writers refuse:
            in a first schema, and in a layout that does not fit it.
    """

    void: Mapping[str, str] = field(default_factory=dict)
    drops: tuple[Segment, ...] = ()
    adds: tuple[Segment, ...] = ()
    deletes: tuple[tuple[Segment, Segment], ...] = ()
    problems: tuple[str, ...] = ()
    breaches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Change:
    """The changes of one version, to compute later deltas; `meta` is the small state after it."""

    version: int
    meta: Meta
    adds: tuple[Segment, ...] = ()
    drops: tuple[Segment, ...] = ()
    deletes: tuple[tuple[Segment, Segment], ...] = ()


class Audit:
    """Folds a log commit by commit and compares every commit with the result.

    Args:
        recall: returns the state at a version whose changes are no longer kept, since it is older
            than the last two key frames in use. Raises the errors of the log.
        earlier: returns those of the adds' segments that were live at a version, by id. Raises the
            errors of the log.
    """

    def __init__(
        self,
        recall: Callable[[int], AuditPast],
        earlier: Callable[[int, Sequence[Add]], Mapping[str, Segment]],
    ) -> None:
        self._recall = recall
        self._earlier = earlier
        self._state: fold.FullState | None = None
        self._live: dict[str, Segment] = {}
        self._changes: deque[_Change] = deque()
        # The oldest version from which deltas can be computed; -1 is the empty state.
        self._floor = -1
        # The key frame in use and the delta since; None: to be computed from the changes.
        self._expected: tuple[int | None, Delta] | None = (None, Delta())

    @property
    def version(self) -> int:
        """The last version that was folded; -1 before the first."""
        return self._state.version if self._state else -1

    @property
    def header(self) -> Header | None:
        """The header of the last version that was folded."""
        return self._state.header if self._state else None

    @property
    def meta(self) -> Meta:
        """The small state at the last version that was folded."""
        return self._state.meta if self._state else Meta()

    @property
    def live(self) -> Mapping[str, Segment]:
        """The live segments by id; changes with every step."""
        return self._live

    def step(self, commit: Commit, commit_hash: str, delta: Delta) -> AuditStep:
        """Fold the next commit.

        Args:
            commit: with the actions of every transaction, none spilled.
            commit_hash: sha256 of its bytes.
            delta: the delta that it carries, read from its spill if it has one.

        Raises:
            Corrupt: it does not follow the previous commit, or its header differs from the fold.
                The audit keeps its state; continue with `resume`.
        """
        first = self.meta.schema is None
        effect = fold.effect_of(self._state, commit)
        fold.apply(effect, self._live)
        self._state = fold.FullState(commit.header, commit_hash, effect.meta, self._live)
        self._changes.append(
            _Change(self.version, effect.meta, effect.adds, effect.drops, effect.deletes)
        )
        problems = self._check_delta(commit, delta, effect)
        cut, base = cut_of(effect.meta), commit.header.keyframe
        if cut and (base is None or base < cut):  # against frame-below-the-cut-unnoticed
            problems.append(f"it starts from {_named(base)}, and the log is cut at version {cut}")
        for transaction in effect.taken:
            problems += self._check_restored(transaction)
        breaches = _breaches(effect.meta) if first else []
        return AuditStep(
            dict(effect.void),
            effect.drops,
            effect.adds,
            effect.deletes,
            tuple(problems),
            tuple(breaches),
        )

    def resume(self, header: Header, commit_hash: str, past: AuditPast) -> None:
        """Continue from the state that a version claims, after a commit that cannot be folded."""
        self._live = dict(past.live)
        self._state = fold.FullState(header, commit_hash, past.meta, self._live)
        self._changes = deque([_Change(header.version, past.meta)])
        self._floor, self._expected = header.version, None

    def check_keyframe(self, root: KeyFrame) -> list[str]:
        """Return the fields in which a key frame root differs from the state just folded."""
        state = self._state
        assert state is not None  # noqa: S101 - a key frame is checked after its commit
        header = state.header
        wanted = {
            "features": (root.features, header.features),
            "table": (root.table, header.table),
            "commit": (root.commit, state.commit_hash),
            "time": (root.time, header.time),
            "totals": (root.totals, header.totals),
            "state hash": (root.state_hash, header.state_hash),
            "small state": (root.state, state.meta),
        }
        wrong = [name for name, (stored, folded) in wanted.items() if stored != folded]
        if self.foreign(root.segments):
            wrong.append("segments")
        if not wrong:
            return []
        return [f"the key frame differs from the folded state: {', '.join(wrong)}"]

    def foreign(self, entries: Iterable[Segment]) -> list[Segment]:
        """Return the entries that are not live, or differ, at the version just folded."""
        return [entry for entry in entries if self._live.get(entry.id) != entry]

    def _check_delta(self, commit: Commit, delta: Delta, effect: fold.Effect) -> list[str]:
        """Compare the commit's delta and `state`, both relative to its key frame, with the fold."""
        base = commit.header.keyframe
        if (-1 if base is None else base) < self._floor:
            self._expected = None
            return self._check_old_delta(commit, delta)
        if self._expected is not None and self._expected[0] == base:
            expected = self._expected[1].then(effect.adds, effect.drops, effect.deletes)
        else:
            expected = Delta()
            for change in self._changes:
                if base is None or change.version > base:
                    expected = expected.then(change.adds, change.drops, change.deletes)
            self._forget(base)
        self._expected = (base, expected)
        past = next((c.meta for c in self._changes if c.version == base), Meta())
        problems = _state_problems(past, commit, effect.meta)
        if delta != expected:
            problems.append(f"the delta from {_named(base)} does not give the folded segments")
        return problems

    def _check_restored(self, transaction: Transaction) -> list[str]:
        """Return the problems of a restore: adds that were not live at its version (R12.3)."""
        restores = [a for a in transaction.actions if isinstance(a, Restore)]
        # Only the other log shows what was live there.
        named = [a.version for a in restores if isinstance(a.origin, UnsetType)]
        adds = [a for a in transaction.actions if isinstance(a, Add)]
        if not named or not adds:
            return []
        live: dict[str, Segment] = {}
        try:
            for version in named:
                live |= self._earlier(version, adds)
        except (VersionCut, VersionNotReplicated):
            return []  # only a copy that has the version shows it
        except (Corrupt, NotFound) as error:
            return [f"it restores from a version that cannot be resolved: {error.message}"]
        # The objects of segments that are live again with another vector were compared there.
        again = {action.id for action in transaction.actions if isinstance(action, Drop)}
        names = [name for name in Segment.__struct_fields__ if name in Add.__struct_fields__]
        wrong = [
            add.id
            for add in adds
            if not _is_same(
                add, self._of_columns(live.get(add.id)), _ROWS if add.id in again else names
            )
        ]
        where = f"version {', '.join(map(str, named))}"
        return [
            f"it restores segment {i}, which was not live, or differed, at {where}" for i in wrong
        ]

    def _of_columns(self, segment: Segment | None) -> Segment | None:
        """Return an entry with the statistics of columns that the version just folded has."""
        schema = None if self._state is None else self._state.meta.schema
        if segment is None or schema is None:
            return segment
        # against statistics-of-dropped-columns-missed
        return msgspec.structs.replace(segment, stats=live_stats(segment.stats, schema))

    def _check_old_delta(self, commit: Commit, delta: Delta) -> list[str]:
        state = self._state
        assert state is not None  # noqa: S101 - called after a fold
        base = commit.header.keyframe
        try:
            past = AuditPast(Meta(), {}) if base is None else self._recall(base)
        except VersionCut:
            return []  # the version itself is below the cut, and nobody opens it
        except (Corrupt, NotFound) as error:
            return [f"it starts from {_named(base)}, which cannot be resolved: {error.message}"]
        problems = _state_problems(past.meta, commit, state.meta)
        live = dict(past.live)
        # Drops are of segments in the key frame, and come first: a segment may be added again.
        gone = [live.pop(i, None) for i in delta.drops]
        live.update(delta.adds)
        if None in gone or live != self._live:
            problems.append(f"the delta from {_named(base)} does not give the folded segments")
        return problems

    def _forget(self, base: int | None) -> None:
        """If the key frame in use changes, forget the changes before the previous one."""
        last = self._expected[0] if self._expected else None
        if last is None or base is None or base < last:
            return
        while self._changes[0].version < last:
            self._changes.popleft()
        self._floor = last


def _breaches(meta: Meta) -> list[str]:
    """Return what is wrong with the first schema, and with the layout beside it."""
    if meta.schema is None:
        return []
    problems = first_problems(meta.schema)
    if meta.layout is not None and not problems:
        try:
            named = named_layout(meta.layout, meta.schema)
            stored_time_column(meta.schema, named)
            stored_rule(meta.layout, meta.schema)
        except Corrupt as error:
            problems.append(error.message)
    return problems


def _is_same(add: Add, segment: Segment | None, names: Iterable[str]) -> bool:
    """Say whether an add equals a segment in these fields."""
    return segment is not None and all(getattr(add, n) == getattr(segment, n) for n in names)


def _state_problems(past: Meta, commit: Commit, meta: Meta) -> list[str]:
    base = _named(commit.header.keyframe)
    try:
        patched = codec.meta_patch(past, commit.state)
    except Corrupt as error:
        return [f"its state field cannot be applied to {base}: {error.message}"]
    if patched == meta:
        return []
    return [f"its state field, applied to {base}, does not give the folded small state"]


def _named(base: int | None) -> str:
    return "the empty state" if base is None else f"the key frame of version {base}"
