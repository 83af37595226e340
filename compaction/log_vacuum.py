"""The cut of a log: commits below it become stubs, key frames and spills there are deleted.

Imports eventlog only. The cut is committed before anything is touched, and what is deleted follows
from the log (FORMAT.md section 10.7; hazards C4 and W20). Below it a vacuum goes up in windows. In
each it deletes first the objects under `_frames/` that nothing can need any more, then the roots of
key frames; then each commit becomes a stub. So the next vacuum finds by a bisection where one that
died stopped, and the slot of a commit is never free. What comes late, as the key frame of a writer
who slept, is found by a listing: of the next keys each time, of all where the caller asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Lock

from msgspec import UnsetType

from eventlog import Snapshot, Table
from eventlog.commit.proposal import check_writable
from eventlog.errors import (
    CommitConflict,
    Corrupt,
    KeyNotFound,
    NotFound,
    UnsupportedFormat,
    VersionNotFound,
    VersionNotReplicated,
)
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns
from eventlog.log import history, spills
from eventlog.log.diff import dropped
from eventlog.model.actions import Add, Drop, SetCut, Swept
from eventlog.model.entries import Spill
from eventlog.model.records import Commit, Leaf, Piece, Stem, Stub, Transaction, cut_of
from eventlog.recovery import log_cut
from eventlog.recovery.log_cut import CutLimits
from eventlog.recovery.old_frames import old_frames
from eventlog.state.version import VersionState
from eventlog.store.parallel import HEADER_THREADS, each
from eventlog.store.port import ObjectStore, store_time_ms
from eventlog.store.retry import put_once, retrying
from eventlog.table.branching.names import fork_of, stored_names

_WINDOW = 256  # versions whose objects go before the next ones are looked at
_BATCH = 1000  # keys of one delete request
_MAX_CONFLICTS = 20

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogSums:
    """The objects of a log that a cut ended, or would end: their numbers and bytes, by kind.

    Attributes:
        cut: the version at which the log is cut; 0: at none.
        whole: the version below which commits are stubs, and key frames gone; at most `cut`.
        kept: why the log is not cut above `cut`.
        sums: objects and bytes, by kind: `commits` (of which a stub is left), `key frames`,
            `spills`, `intents`.
    """

    cut: int = 0
    whole: int = 0
    kept: str = ""
    sums: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, kind: str, size: int) -> None:
        """Count one object."""
        objects, total = self.sums.get(kind, (0, 0))
        self.sums[kind] = objects + 1, total + size


def cut_log(
    t: Table,
    age_ms: int,
    progress: Callable[[str, int, int], None],
    *,
    asked: bool,
    run: bool,
    full: bool = False,
) -> LogSums:
    """Cut the log of a table as far as its retention and what holds it allow.

    A branch is never cut: its log ends with it.

    Args:
        t: the table.
        age_ms: how long the log is kept, in ms.
        progress: called with (name of the step, amount done, total or 0).
        asked: whether the caller named that time; else the log is cut only where that is worth the
            headers that it costs.
        run: commit, replace and delete; else only count.
        full: also list everything that may be left below the cut, and all of `_frames/`.

    Raises:
        CommitConflict: other writers kept changing what holds the log; nothing was touched.
        Corrupt: the log breaks its format.
        TableNotFound: the table was replaced or removed.
        Unavailable: the store does not answer; run it again.
    """
    if t.store.forks:  # against branch-cut
        return LogSums(kept="this is a branch, whose log ends with it")
    for _ in range(_MAX_CONFLICTS):
        head = t.refresh()
        check_writable(head.header)
        plan = _plan(t, head, age_ms, asked=asked)
        if not run or plan.action is None:
            break
        # A commit above the cut names a key frame above it (R22.3).
        if head.base is None or head.base.version < plan.action.version:
            t.session.write_keyframe()
        try:
            t.commit(t.transaction("vacuum", [plan.action]))  # against cut-not-committed-first
        except CommitConflict as error:
            logger.info("the vacuum of the log looks again: %s", error)
            continue
        head = t.refresh()
        break
    else:
        raise CommitConflict(
            f"other writers changed what holds the log {_MAX_CONFLICTS} times in a row; nothing "
            "was cut, try again",
            table=t.uri,
        )
    report = LogSums(cut_of(head.meta), _whole(t, head), plan.kept)
    if not run and plan.action is not None:
        report.cut, report.whole = plan.action.version, plan.action.whole
    _Ending(t, head, report, progress, run=run, full=full).end()
    return report


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the log is to be cut, if it is, and what keeps the rest of it."""

    action: SetCut | None
    kept: str


def _plan(t: Table, head: Snapshot, age_ms: int, *, asked: bool) -> _Plan:
    limits, problem = _limits(t, head, age_ms)
    cut, wanted = cut_of(head.meta), limits.version
    if problem or wanted <= cut:
        return _Plan(None, problem or limits.reason)
    if not asked and not log_cut.is_worth_cutting(cut, wanted, head.version):
        return _Plan(None, "it is cut once that ends an eighth of it")
    versions = range(wanted, head.version + 1)
    headers = each(t.session.log.header, versions, count=HEADER_THREADS)
    frames = {header.version: header.keyframe for header in headers}
    whole = log_cut.whole_from(wanted, frames, _Frames(t).usable)
    before = 0 if isinstance(head.meta.cut, UnsetType) else head.meta.cut.whole
    if whole <= before:
        return _Plan(None, "no key frame above the last cut serves the versions that stay")
    return _Plan(SetCut(wanted, whole, head.version), limits.reason)


def _whole(t: Table, head: Snapshot) -> int:
    """Return the version below which commits may become stubs; 0: none may.

    It is lower than the cut says if what was committed beside the cut starts from an older key
    frame. One ranged GET for each of these versions.
    """
    cut = head.meta.cut
    if isinstance(cut, UnsetType):
        return 0
    beside = range(cut.seen + 1, cut.token)
    headers = each(t.session.log.header, beside, count=HEADER_THREADS)
    # against commits-beside-the-cut-forgotten
    named = [-1 if header.keyframe is None else header.keyframe for header in headers]
    lowest = min([cut.whole, *named])
    return lowest if lowest > 0 and _Frames(t).usable(lowest) else 0


def _limits(t: Table, head: Snapshot, age_ms: int) -> tuple[CutLimits, str]:
    """Return what keeps the log, and why it cannot be cut at all, or "".

    Raises:
        Corrupt: the fork of a branch cannot be read.
    """
    log, horizon = t.session.log, head.meta.horizon
    since = store_time_ms(t.store, t.clock) - age_ms
    try:
        aged = history.newest_before(log, head, since)
    except VersionNotReplicated:
        aged = 0
    # A pin holds a branch, and the horizon with it; but the log of a copy may lack the pin.
    held = held_by_branches(t.store)  # against cut-below-a-branch
    limits = CutLimits(horizon, max(aged, 0), held)
    late = [start.version for start in log.starts.all() if start.version > limits.version]
    problem = "this copy lacks versions above: `eventlog replicate --backfill`" if late else ""
    return limits, problem  # against copy-cut-in-a-gap


def held_by_branches(store: ObjectStore) -> dict[str, int]:
    """Return the oldest version that each branch under the root reads, by its name.

    One LIST, and a LIST and a GET for each branch.

    Raises:
        Corrupt: the fork of a branch cannot be read.
    """
    forks = [fork for name in stored_names(store) if (fork := fork_of(store, name)) is not None]
    return {fork.name: fork.held for fork in forks}


class _Frames:
    """The key frames at which the log may begin."""

    def __init__(self, t: Table) -> None:
        self._log = t.session.log

    def usable(self, version: int) -> bool:
        """Return whether the key frame of a version, and each object that it names, is there."""
        try:
            own = self.own(version)
            root = own.base
            for piece in self._log.key_frames.new_in(root, None) if root else ():
                self._log.store.get(keys.piece_key(piece), length=1)
        except (Corrupt, NotFound, UnsupportedFormat) as error:
            logger.warning("the log is not cut at key frame %d: %s", version, error)
            return False
        return True

    def own(self, version: int) -> Snapshot:
        """Return the snapshot of a version over its own key frame."""
        commit, body = self._log.read(version)
        root = self._log.key_frames.root(version)
        return Snapshot(VersionState.at_keyframe(commit, body, root), self._log)


class _Ending:
    """Ends what lies below the version from which the log stays whole, window by window."""

    def __init__(
        self,
        t: Table,
        head: Snapshot,
        report: LogSums,
        progress: Callable[[str, int, int], None],
        *,
        run: bool,
        full: bool,
    ) -> None:
        self._t, self._store, self._log = t, t.store, t.session.log
        self._head, self._report, self._progress, self._run = head, report, progress, run
        self._full = full
        self._dead: dict[str, bool] = {}  # by sha256: leaves and stems that were looked at
        self._named = set[str]()  # spills and records that were yielded
        self._kept: set[str] | None = None  # spills of commits from `whole` up to the cut
        self._at: Snapshot | None = None
        self._lock = Lock()
        self._dropped: dict[str, str] | None = None  # above the horizon: ids and checksums

    def end(self) -> None:
        """Replace and delete what is below, in ascending windows."""
        whole = self._report.whole
        boundary = self._ended(whole) if whole else 0
        # The window of a vacuum that died may be replaced in part.
        ended = boundary == whole and not self._full
        first = boundary if ended else max(0, boundary - _WINDOW)
        roots = self._roots(first)
        self._end_roots([version for version in roots if version < first])  # they came late
        for start in range(first, whole, _WINDOW):
            window = range(start, min(start + _WINDOW, whole))
            self._end_window(window, [v for v in roots if v in window])
            self._progress("log", window.stop - first, whole - first)
        if whole and self._full:
            # against left-below-the-cut-for-ever
            self._delete("frames", old_frames(self._log, self._whole_snapshot()))
        self._end_intents()

    def _ended(self, whole: int) -> int:
        """Return the version below which all commits are stubs: one GET where that is all."""
        stored = self._slot(whole - 1)
        if stored is not None and isinstance(stored[0], Stub):
            return whole  # as after every vacuum that came to its end
        return history.first_whole(self._log, whole)

    def _roots(self, first: int) -> list[int]:
        """Return the versions that have key frames, below those that stay.

        All from `first` on, and those below it that are among the first keys, which cost no request
        more: key frames are written beside later commits, so one may have come after its vacuum.
        """
        found = list[int]()
        if not self._report.whole:
            return found
        rows = self._store.list(keys.LOG_PREFIX, after=keys.commit_key(self._report.whole))
        for number, row in enumerate(rows):
            version, framed = keys.parse_log_key(row.key) or (self._report.whole, False)
            # against late-key-frame-stays
            if version < first and number >= _BATCH and not self._full:
                break
            if framed and version < self._report.whole:
                found.append(version)
        return found

    def _end_window(self, window: range, roots: Sequence[int]) -> None:
        slots = list(each(self._slot, window, count=HEADER_THREADS))
        stored = (slot for slot in slots if slot is not None)
        whole = [(found, body) for found, body in stored if isinstance(found, Commit)]
        self._end_roots(roots, [commit for commit, _ in whole])
        # The newest commit goes last: a stub there says that the window is done.
        for part in (whole[:-1], whole[-1:]):  # against window-done-before-its-end
            for _ in each(self._replace, part, count=HEADER_THREADS):
                pass

    def _end_roots(self, roots: Sequence[int], commits: Sequence[Commit] = ()) -> None:
        """Delete key frames, and what they and some commits name and nothing can name again."""
        self._delete("frames", [*self._dead_pieces(roots), *self._dead_spills(commits)])
        # Their leaves were named here alone, so the roots go after them.
        self._delete("key frames", [keys.keyframe_key(version) for version in roots])

    def _slot(self, version: int) -> tuple[Commit | Stub, bytes] | None:
        try:
            return self._log.slot(version)
        except VersionNotFound:
            return None

    def _replace(self, stored: tuple[Commit, bytes]) -> None:
        """Put a stub in the place of a commit, after what only the commit has."""
        commit, body = stored
        stub = codec.encode_stub(body)
        self._report.add("commits", max(0, len(body) - len(stub)))
        if not self._run:
            return
        kept_bodies = log_cut.kept_of(commit, self._needed(commit))
        for key, kept in kept_bodies.items():  # against stub-before-what-it-had
            put_once(self._store, self._t.clock, key, kept)
        key = keys.commit_key(commit.header.version)
        replace = partial(self._store.replace, key, body, stub)
        if not retrying(self._t.clock)(replace):
            raise Corrupt(
                "the commit has changed while the vacuum read it: run `eventlog fsck`",
                table=self._t.uri,
                key=key,
                version=commit.header.version,
            )

    def _needed(self, commit: Commit) -> dict[str, str]:
        """Return the checksums, by id, of segments in a commit that kept versions have live.

        Those are live at the head, or were dropped above the horizon and above what branches hold.
        """
        adds = (a for t in commit.transactions for a in t.actions if isinstance(a, Add))
        drops = [Drop(a.id, a.chunk, "") for a in adds if not isinstance(a.parquet, UnsetType)]
        if not drops:
            return {}
        with self._lock:
            if self._dropped is None:
                since = min([self._head.meta.horizon, *held_by_branches(self._store).values()])
                gone = dropped(self._log, since, self._head.version)
                self._dropped = {s.id: s.checksum for one in gone for s in one.segments}
        live = self._head.live(drops)
        return self._dropped | {name: entry.checksum for name, entry in live.items()}

    def _dead_pieces(self, roots: Sequence[int]) -> Iterator[str]:
        """Yield the keys of what these roots name, and no key frame has again.

        The leaves of a root come before its stems, which name them.
        """
        for version in roots:
            base = self._whole_snapshot().base
            try:
                root = self._log.key_frames.root(version)
                pieces = self._log.key_frames.new_in(root, base)
            except (Corrupt, KeyNotFound, UnsupportedFormat) as error:
                logger.info("key frame %d goes without its leaves: %s", version, error)
                continue
            for piece in pieces:
                if piece.sha256 not in self._dead and self._is_dead_piece(piece):
                    yield keys.piece_key(piece)

    def _is_dead_piece(self, piece: Piece) -> bool:
        """Return whether no key frame has, or ever gets, a leaf or a stem; asked once of each."""
        if isinstance(piece, Stem):
            leaves = self._log.key_frames.stem(piece)
            dead = any(self._dead.get(leaf.sha256, False) for leaf in leaves)
        else:
            dead = self._is_dead_leaf(piece)
        self._dead[piece.sha256] = dead
        return dead

    def _is_dead_leaf(self, leaf: Leaf) -> bool:
        try:
            entries = entry_columns.to_segments(self._log.key_frames.leaf(leaf))
        except (Corrupt, KeyNotFound):  # a vacuum that died has deleted it
            return True
        live = self._whole_snapshot().live([Drop(e.id, e.chunk, "") for e in entries])
        return log_cut.is_dead_leaf(entries, live)

    def _dead_spills(self, commits: Sequence[Commit]) -> Iterator[str]:
        """Yield the keys of the spills and records that these commits name, and no other again."""
        for commit in commits:
            if commit.delta.spill is not None:
                # A commit above starts from a key frame that has what this delta adds.
                yield from self._first_seen(commit.delta.spill)
            for transaction in commit.transactions:
                if transaction.spill is not None and self._is_dead(commit, transaction):
                    yield from self._first_seen(transaction.spill)
            newest = self._head.meta.swept
            for action in (a for t in commit.transactions for a in t.actions):
                record = action.sweep.pending if isinstance(action, Swept) else None
                if record and not (newest and newest.pending == record):
                    yield from self._first_seen(record)

    def _first_seen(self, spill: Spill) -> Iterator[str]:
        # against spill-of-the-boundary-deleted
        if spill.sha256 not in self._named and spill.sha256 not in self._kept_spills():
            self._named.add(spill.sha256)
            yield keys.frame_key(spill.sha256)

    def _kept_spills(self) -> set[str]:
        """Return the spills of the commits that stay and may start from a key frame that goes.

        Those are the ones up to the cut. Where nothing changed, such a commit has the delta of one
        below it, and so its spill.
        """
        if self._kept is None:
            up_to = range(self._report.whole, max(self._report.whole, self._report.cut) + 1)
            commits = [commit for commit, _ in each(self._log.read, up_to, count=HEADER_THREADS)]
            named = [[c.delta.spill, *(t.spill for t in c.transactions)] for c in commits]
            self._kept = {spill.sha256 for some in named for spill in some if spill is not None}
        return self._kept

    def _is_dead(self, commit: Commit, transaction: Transaction) -> bool:
        try:
            (unpacked,) = spills.unpack(_only(commit, transaction), self._log.spill).transactions
        except (Corrupt, KeyNotFound):
            return False
        bulk = unpacked.actions[len(transaction.actions) :]
        adds = [action for action in bulk if isinstance(action, Add)]
        drops = [action for action in bulk if isinstance(action, Drop)]
        named = [*drops, *(Drop(a.id, a.chunk, "") for a in adds)]
        live = self._whole_snapshot().live(named)
        return log_cut.is_dead_spill(adds, drops, live, self._is_gone)

    def _is_gone(self, add: Add) -> bool:
        try:
            self._store.get(keys.segment_key(add.epoch, add.chunk, add.id), length=1)
        except KeyNotFound:
            return True
        except Corrupt:
            return False
        return False

    def _whole_snapshot(self) -> Snapshot:
        if self._at is None:
            self._at = _Frames(self._t).own(self._report.whole)
        return self._at

    def _end_intents(self) -> None:
        """Delete the transactions whose windows ended below the log that stays."""
        if not self._report.whole:
            return
        after = keys.ended_intents(self._report.whole)
        rows = self._store.list(keys.INTENTS_PREFIX, after=after)
        listed = (row for row in rows if keys.parse_intent_key(row.key))
        while batch := list(islice(listed, _BATCH)):
            self._delete("intents", [row.key for row in batch])

    def _delete(self, kind: str, names: Sequence[str]) -> None:
        for first in range(0, len(names), _BATCH):
            batch = names[first : first + _BATCH]
            for _ in batch:
                self._report.add(kind, 0)
            if self._run:
                self._t.verify()  # against log-of-another-table-cut
                self._store.delete(batch)


def _only(commit: Commit, transaction: Transaction) -> Commit:
    """Return a commit with one of its transactions alone."""
    return Commit(commit.header, commit.state, (transaction,), commit.delta)
