"""Backfill: copy the versions that a replica left out when it started, or lost, the newest first.

So the replica's versions never have a gap from some version on (FORMAT.md R17.4, MERGING.md R17.5).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from eventlog.clock import Clock, SystemClock
from eventlog.commit.proposal import check_writable
from eventlog.copying.copier import Item
from eventlog.display import command
from eventlog.errors import (
    CommitConflict,
    Corrupt,
    DataLoss,
    KeyNotFound,
    UnsupportedFormat,
    VersionNotFound,
    VersionNotReplicated,
    VersionVacuumed,
)
from eventlog.format import codec, keys
from eventlog.log import chain
from eventlog.log.diff import diff
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import FORMAT_NAME, FORMAT_VERSION, Commit, KeyFrame, Start, Stub
from eventlog.replication import contents
from eventlog.replication.pipeline import Pipeline
from eventlog.replication.steps import Check, Step, check_key_frame_state, oldest_kept
from eventlog.session.session import Session
from eventlog.state.version import VersionState
from eventlog.store.location import open_store
from eventlog.store.parallel import DriverName, executors_of, read_ahead, threads
from eventlog.store.port import ObjectStore
from eventlog.table.table import Table

Progress = Callable[[str, int, int], None]

_AHEAD = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """The result of a backfill.

    Attributes:
        versions: number of commits that were copied.
        objects: number of objects that were created, commits and key frames included.
        bytes: the size of these objects.
    """

    versions: int
    objects: int
    bytes: int


def backfill(
    source: Table | str | os.PathLike[str],
    target: Table | str | os.PathLike[str],
    *,
    source_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    driver: DriverName = "local",
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Backfilled:
    """Copy the versions that the target left out when it started, or lost, the newest first.

    A version that it lost is one that is missing between others and that no start explains. If the
    source has left out some of these, the target gets the source's start.

    Of versions below the source's horizon only the commits are copied, for histories: their rows
    cannot be read, as at the source. If the source is a branch, these commits are not copied
    either: the copy would treat the versions as readable.
    Idempotent and resumable: after an error or a crash call it again.

    Args:
        source: the table that the target follows, or its root.
        target: the copy, or its root.
        source_options: override the AWS environment; see `eventlog.store.options`.
        target_options: likewise, for the target.
        driver: see `follow`.
        progress: called with ("versions", number done, total).
        clock: use this clock instead of the machine's.

    Raises:
        CommitConflict: the target took writes of its own under these versions, or the two logs
            parted below the versions that the target has.
        Corrupt: a version that both have does not follow the source's version below it, which was
            changed.
        DataLoss: an object of the source is missing or damaged.
        InvalidInput: there is no session of Spark, or no such driver; or executors store what this
            process does not find.
        TableNotFound: there is no table at the source or the target.
        Unavailable: a store does not answer.
        UnsupportedFormat: one of them needs a newer release.
        VersionNotReplicated: the source is itself a copy that lacks versions; the versions that it
            has above these were copied.
        VersionVacuumed: a vacuum of the source passed the version being copied, or the copy is
            behind the vacuum; all that could be copied was copied. Call `follow`, and then
            `backfill` again.
    """
    executors = executors_of(driver)
    clock = clock or SystemClock()
    table = source if isinstance(source, Table) else Table.open(source, source_options, clock=clock)
    store = target.store if isinstance(target, Table) else open_store(target, target_options, clock)
    log = Log(store)
    newest, gaps = _listed(log)
    ours = _newest(log, newest, gaps)
    for head in (ours, table.refresh()):
        check_writable(head.header)
    pipeline = Pipeline(table.store, store, clock, executors=executors)
    work = Filler(table.session, store, pipeline, progress or (lambda *_: None))
    versions = work.fill_all(log.starts.all(), gaps, ours.meta.horizon)
    return Backfilled(versions, work.pipeline.objects, work.pipeline.bytes)


def _newest(log: Log, newest: int, gaps: Sequence[tuple[int, int]]) -> Snapshot:
    """Return the newest version of a copy that can be read."""
    try:
        return log.head()
    except Corrupt:
        if not gaps:
            raise
        return log.snapshot(newest)  # commits above it may be lost, too


def _listed(log: Log) -> tuple[int, list[tuple[int, int]]]:
    """Return the newest version, and the versions around each gap, the newer one first.

    Of a branch those above its fork. (-1, no gap) if there is no commit. One LIST for each 1,000
    keys.
    """
    least = max((fork.version for fork in log.store.forks), default=-1)
    versions = []
    for row in log.store.list(keys.LOG_PREFIX):
        version, framed = keys.parse_log_key(row.key) or (-1, True)
        if not framed and version > least:
            versions.append(version)
    return max(versions, default=least), chain.gaps([*versions, least])


@dataclass(slots=True)
class Filler:
    """Copies versions that a copy lacks, the newest first.

    Attributes:
        source: the session of the table that is copied.
        target: the store of the copy.
        pipeline: copies the objects.
        tell: called with ("versions", number done, total).
    """

    source: Session
    target: ObjectStore
    pipeline: Pipeline
    tell: Progress

    def fill_all(
        self, starts: Sequence[Start], gaps: Iterable[tuple[int, int]], given_up: int
    ) -> int:
        """Copy all versions that the copy lacks; return their number.

        Args:
            starts: the starts of the copy.
            gaps: the versions around each gap of its log, the newer one first.
            given_up: the version below which the copy's versions cannot be read.
        """
        lost = [gap for gap in gaps if not chain.is_explained(*gap, starts)]
        count = sum(self.fill_lost(range(older + 1, newer), given_up) for newer, older in lost)
        return count + sum(self.fill(start, given_up) for start in starts)

    def fill(self, start: Start, given_up: int) -> int:
        """Copy the versions that a start left out; return their number.

        Args:
            start: the start.
            given_up: the version below which the copy's versions cannot be read.
        """
        return self._fill(Log(self.target).starts.absent(start), given_up)

    def fill_lost(self, lost: range, given_up: int) -> int:
        """Copy versions that the copy lost: no start explains them; return their number.

        If the source left out the oldest of them, and the copy has nothing below that the source
        lacks, the copy gets the source's start: they are what the copy left out, too. So are all
        versions below the oldest one that the parent of a branch keeps for it, and the copy of the
        branch gets a start for them.

        Args:
            lost: the versions, ascending.
            given_up: the version below which the copy's versions cannot be read.
        """
        if self.source.store.forks and lost.start <= 1:
            oldest = self._oldest_kept()
            if given_up < oldest and lost.stop <= oldest:
                self._start_again(lost.stop)
                return 0
        try:
            return self._fill(lost, given_up)
        except VersionNotReplicated:
            for start in self.source.log.starts.all():
                whole = lost.start - 1 <= start.after + 1  # against lost-explained-by-a-start
                if whole and lost.start < start.version <= lost.stop:
                    key = keys.start_key(start.version)
                    self.pipeline.create(key, codec.encode_start(start))
            raise

    def _start_again(self, first: int) -> None:
        """Store the start of a copy whose first version, apart from version 0, is this one."""
        commit, body = self.source.log.read_below(first)
        key = keys.commit_key(first)
        if self.target.get(key, length=len(body) + 1) != body:
            raise self._not_followed(first)
        start = Start(FORMAT_NAME, FORMAT_VERSION, (), commit.header.table, first, -1)
        self.pipeline.create(keys.start_key(first), codec.encode_start(start))

    def _fill(self, lacking: range, given_up: int) -> int:
        oldest = self._oldest_kept()
        # No commit without its segments, if the copy would treat the version as readable.
        least = 0 if oldest <= given_up else oldest  # against given-up-taken-for-readable
        least = max(least, lacking.start)
        has = max(least, self._begins_below(lacking))
        wanted = range(lacking.stop - 1, has - 1, -1)
        done = 0
        try:
            for copied in self.pipeline.copied(self._steps(wanted, oldest)):
                done += copied
                if copied:
                    self.tell("versions", done, len(wanted))
        except DataLoss:
            version = wanted.start - done
            if version >= self._oldest_kept():
                raise
            raise VersionVacuumed(
                f"a vacuum of {self.source.uri} passed version {version} while it was copied: "
                f"{command('replicate', self.source.uri, self.target.uri)}, and then the same with "
                "`--backfill`, copies the commits of such versions",
                table=self.source.uri,
                version=version,
            ) from None
        if has > least and (missing := self.source.log.starts.not_replicated(has - 1)):
            raise missing
        if len(wanted) < len(lacking) and self.source.head().meta.horizon > given_up:
            raise VersionVacuumed(
                f"{self.source.uri} no longer keeps the versions below {oldest}, and the copy, "
                "which is behind, would treat them as readable: "
                f"{command('replicate', self.source.uri, self.target.uri)}, and then the same with "
                "`--backfill`. If it is refused, let a new copy under an empty root follow",
                table=self.source.uri,
                version=oldest - 1,
            )
        return done

    def _begins_below(self, wanted: range) -> int:
        """Return the version from which on the source has all wanted versions; 0: it has all."""
        log = self.source.log
        gaps = [log.starts.absent(start) for start in log.starts.all()]
        return max((gap.stop for gap in gaps if gap and gap.start < wanted.stop), default=0)

    def _oldest_kept(self) -> int:
        return oldest_kept(self.source.refresh(), self.source.store)

    def _steps(self, wanted: range, horizon: int) -> Iterator[Item | Step]:
        if not wanted:
            return
        log, lowest = self.source.log, wanted.start + 1
        above = Log(self.target).header(lowest)
        framed: set[int] = set()
        later = None
        if lowest - 1 >= horizon:
            later = log.snapshot(lowest)
            # Segments that it dropped belong to the version below, whose commit does not list them.
            log.check_linked(self.source.head(), later)  # against backfill-below-another-log
            self._check_same(later)
        with threads() as pool:
            for commit, body in read_ahead(pool, wanted, log.slot_below, window=_AHEAD):
                version, named = commit.header.version, commit.header.keyframe
                if codec.commit_hash_of(body) != above.prev:  # against backfill-of-another-chain
                    yield self._refusal(version)  # of its objects nothing is stored
                    return
                above = commit.header
                if isinstance(commit, Stub):  # the source is cut, and nothing else is left
                    yield self._commit_step(version, body)
                    continue
                before = None
                if later is not None and version >= horizon:
                    # Segments that the next version dropped; a later one may have restored them.
                    before = log.resolve(commit, body)
                    change = diff(before, later)
                    has = set(map(keys.key_of, change.added))  # the target, with other vectors
                    for entry in change.dropped:
                        if keys.key_of(entry) not in has:
                            yield contents.segment_item(
                                entry, version, maybe_there=True, unnamed=True
                            )
                    yield from contents.vector_items(change.dropped, version, maybe_there=True)
                    later = before
                yield from contents.of_commit(commit, ())
                yield from self._keyframe(
                    version, framed, partial(VersionState.at_keyframe, commit, body)
                )
                if named is not None:
                    check = partial(self._check_named, commit, body, before)
                    yield from self._keyframe(named, framed, check)
                yield self._commit_step(version, body)

    def _check_same(self, later: Snapshot) -> None:
        """Check that the copy has the same version, above which it lacks none that is wanted."""
        ours = Log(self.target).read_below(later.version)[1]
        # against backfill-below-another-version
        if later.commit_hash != codec.sha256(ours):
            raise self._not_followed(later.version - 1)

    def _commit_step(self, version: int, body: bytes) -> Step:
        def step() -> int:
            self.pipeline.put_slot(version, body)
            return 1

        return step

    def _refusal(self, version: int) -> Step:
        def step() -> int:
            raise self._not_followed(version)

        return step

    def _not_followed(self, version: int) -> CommitConflict | Corrupt:
        """Return the error for a version that the target's next one does not follow."""
        source, target = self.source.uri, self.target.uri
        try:
            ours, theirs = (log.read(version + 1)[1] for log in (Log(self.target), self.source.log))
        except VersionNotFound:  # the source ends there
            ours = theirs = b""
        if not ours or ours != theirs:
            return CommitConflict(
                f"{source} and {target} have parted below version {version + 1}: backfill from the "
                "table that the copy has followed, or from another copy of that",
                table=source,
                version=version,
            )
        return Corrupt(
            f"version {version + 1} is the same in {source} and {target}, and does not follow "
            f"version {version} of {source}, which was changed: see what "
            f"{command('fsck', source)} finds, and backfill from another copy",
            table=source,
            version=version,
        )

    def _check_named(
        self, commit: Commit, body: bytes, state: Snapshot | None, root: KeyFrame
    ) -> None:
        """Check that a key frame and the delta of a commit that names it result in its state.

        Args:
            commit: the commit.
            body: the commit's bytes.
            state: the snapshot of the commit at the source; None: not loaded.
            root: the key frame.

        Raises:
            Corrupt: they do not, or the delta's spill is missing or damaged.
        """
        if state is None or state.base != root:
            check_key_frame_state(self.source.log, commit, body, root)

    def _keyframe(self, version: int, framed: set[int], check: Check) -> Iterator[Item | Step]:
        """Yield a key frame that the source has and the target lacks, unless it is in `framed`."""
        if version in framed:
            return
        framed.add(version)
        key = keys.keyframe_key(version)
        try:
            root = self.source.log.key_frames.root(version)
            body = self.source.store.get(key, length=codec.MAX_KEYFRAME_BYTES + 1)
            check(root)  # against key-frame-of-another-log-filled-in
            pieces = self.source.log.key_frames.new_in(root, None)
        except KeyNotFound:
            return
        except (Corrupt, UnsupportedFormat) as error:
            uri = self.source.uri
            logger.warning("key frame %d of %s is not copied: %s", version, uri, error)
            return
        if self._has(key):
            return
        yield from contents.of_pieces(pieces, version, maybe_there=True)
        yield from contents.of_packs(root, None)

        def step() -> int:
            self.pipeline.create(key, body)
            return 0

        yield step

    def _has(self, key: str) -> bool:
        try:
            self.target.get(key, length=1)
        except KeyNotFound:
            return False
        return True
