"""The steps of a pass of a follower: which objects are copied, in which order.

The objects of a version come before its commit, the commit before its key frame (MERGING.md R17.2).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from msgspec import UnsetType

from eventlog.commit import keyframe_writing
from eventlog.copying.copier import Item
from eventlog.display import command
from eventlog.errors import (
    CommitConflict,
    Corrupt,
    InvalidInput,
    KeyNotFound,
    UnsupportedFormat,
    VersionNotFound,
    VersionNotReplicated,
)
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns
from eventlog.log import chain, spills
from eventlog.log.log import LINKED, Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add, DeleteRows
from eventlog.model.entries import Segment, stored_bitmap
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    Commit,
    Header,
    KeyFrame,
    Start,
    packs_of,
)
from eventlog.replication import attachment, contents
from eventlog.replication.pipeline import Pipeline
from eventlog.session.session import Session
from eventlog.state.delta import Delta
from eventlog.state.keyframe import Frame
from eventlog.state.version import VersionState
from eventlog.store.branching.roots import held_from, is_inherited
from eventlog.store.parallel import read_ahead, threads
from eventlog.store.port import ObjectStore
from eventlog.table.branching.keeping import Kept

From = Literal["oldest", "keyframe"]
Step = Callable[[], int]  # returns the number of versions that it completed
Check = Callable[[KeyFrame], object]  # raises Corrupt for the root of another commit's key frame

_COMMITS_AHEAD = 16
_BYTES_AHEAD = 8 << 20  # of commits that wait for later ones; decoded they take several times that
_ENTRIES = 8192  # of a large state that are converted together

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Target:
    """The state of the copy, as far as a follower has read it.

    Attributes:
        version: the copy's newest version; -1: it has none.
        hash: the hash of that version's commit; None: unknown.
        header: the header of that version; None: it has none.
        frame: a key frame that the copy has; None: unknown.
        framed: the versions of the copy's key frames, as far as is known.
        worth: the newest version copied that contains more than bookkeeping of replicas.
        settled: whether the last pass was completed.
        headless: whether the copy lacks version 0.
        gaps: the starts that left gaps which are still open.
        late: whether the copy was started above versions that it did not have.
    """

    version: int = -1
    hash: str | None = None
    header: Header | None = None
    frame: KeyFrame | None = None
    framed: set[int] = field(default_factory=set)
    worth: int = -1
    settled: bool = True
    headless: bool = False
    gaps: list[Start] = field(default_factory=list)
    late: bool = False


def oldest_kept(head: Snapshot, store: ObjectStore) -> int:
    """Return the oldest version whose segments a table keeps.

    This is the table's horizon, or for a branch the oldest version that its parent keeps for it, if
    that is newer (FORMAT.md R16.6).
    """
    return max(head.meta.horizon, held_from(store.forks))  # against inherited-taken-for-kept


def first_version(having: int, head: Snapshot, start: From, oldest: int) -> int:
    """Return the first version to copy; above `having + 1` if versions between are left out.

    Args:
        having: the newest version of the target; -1: none.
        head: the head of the source.
        start: see `eventlog.replication.follow`.
        oldest: the oldest version whose segments the source keeps.
    """
    first = having + 1
    if start == "keyframe" and having < 0 and head.base is not None:
        first = max(first, head.base.version)
    # against given-up-versions-copied
    return min(max(first, oldest), head.version + 1)


class Steps:
    """The steps from the newest version of the target to the head of the source.

    Args:
        source: the session of the table that is followed.
        target: the store of the copy.
        known: the state of the copy; updated as steps are taken.
        pipeline: stores the objects that the steps create.
        head: the head of the source.
    """

    def __init__(
        self,
        source: Session,
        target: ObjectStore,
        known: Target,
        pipeline: Pipeline,
        head: Snapshot,
    ) -> None:
        self._store, self._log = source.store, source.log
        self._target, self._known, self._pipeline, self._head = target, known, pipeline, head
        self._commits: dict[int, bool] = {}  # whether the target has them, by version

    def all(self, first: int) -> Iterator[Item | Step]:
        """Yield objects to copy, and steps to take once all before them are stored.

        Args:
            first: the first version to copy.
        """
        having = self._known.version
        if self._known.headless:  # an earlier pass ended before it
            yield from self._first_of_all()
        framed = self._listed_keyframes(having)
        if having in framed - self._known.framed:  # an earlier pass ended before it
            yield from self._keyframe(having, None, self._check_newest)
        if first > having + 1:
            self._known.late = True
            yield from self._live(having, first)
        with threads() as pool:
            versions = range(first, self._head.version + 1)
            read = read_ahead(pool, versions, self._log.read_below, window=_COMMITS_AHEAD)
            for commit, body in _linked(read, self._head, self._store.uri):
                version, base = commit.header.version, commit.header.keyframe
                if base is not None and base not in self._known.framed:
                    yield from self._keyframe(
                        base, None, partial(check_key_frame_state, self._log, commit, body)
                    )
                whole = version == first > having + 1  # `_live` has copied its segments
                entries = () if whole else self._entries(commit)
                changed = () if whole else self._changed(commit)
                entries = [entry for entry in entries if self._needs_object(entry, version)]
                self._check_kept(entries, version, changed)
                yield from contents.of_commit(commit, entries, changed, late=self._known.late)
                yield self._commit_step(commit, body)
                if whole and having < 0:
                    yield from self._first_of_all()
                if version in framed:
                    check = partial(VersionState.at_keyframe, commit, body)
                    yield from self._keyframe(version, self._known.frame, check)

    def _entries(self, commit: Commit) -> list[Segment]:
        """Return the entries that a commit made live, by its delta."""
        adds = (t.spill or any(isinstance(a, Add) for a in t.actions) for t in commit.transactions)
        if commit.delta.spill is not None and not any(adds):
            return []  # no transaction adds segments, so the spill need not be read
        delta = spills.delta_of(commit, self._log.spill)
        return [s for s in delta.adds.values() if s.version == commit.header.version]

    def _changed(self, commit: Commit) -> list[Segment]:
        """Return the entries to which a commit gave vectors, by its delta and its actions."""
        if not commit.header.changes.vectors:
            return []
        unpacked = spills.unpack(commit, self._log.spill)
        actions = (a for t in unpacked.transactions for a in t.actions)
        # Of a void transaction the delta has no vector.
        given = {(a.id, a.vector) for a in actions if isinstance(a, DeleteRows)}
        delta = spills.delta_of(commit, self._log.spill)
        return [entry for entry in delta.adds.values() if (entry.id, entry.vector) in given]

    def _needs_object(self, entry: Segment, version: int) -> bool:
        """Return whether the target needs the object of an entry that a version adds.

        It does not if the bytes stand in the commit itself, or in an earlier one that it has.
        """
        stands = entry.inline
        if isinstance(stands, UnsetType):
            return True
        if stands not in self._commits:
            self._commits[stands] = stands == version or self._has_commit(stands)
        return not self._commits[stands]  # against inline-bytes-not-copied

    def _has_commit(self, version: int) -> bool:
        try:
            self._target.get(keys.commit_key(version), length=1)
        except KeyNotFound:
            return False
        return True

    def _check_kept(
        self, entries: Collection[Segment], version: int, changed: Collection[Segment] = ()
    ) -> None:
        """Check that a target branch's parent keeps the inherited objects of a version (R17.2).

        Inherited objects were stored before the branch forked, and only the parent has them. Of
        `changed` entries the target has the segments.

        Raises:
            InvalidInput: the parent need not keep them all; a merge copies such segments.
        """
        for fork in self._target.forks[:1]:
            needed = {key for entry in entries for key in keys.keys_of(entry)}
            needed |= {key for entry in changed for key in keys.keys_of(entry)[1:]}
            older = [key for key in sorted(needed) if is_inherited(key, fork.version)]
            if not older:
                continue
            kept = Kept(Log(self._target), [fork], fork.held + 1).of(older)
            if len(kept) < len(older):  # against followed-into-what-the-parent-deletes
                source, target = self._store.uri, self._target.uri
                raise InvalidInput(
                    f"version {version} of {source} has segments that were stored before branch "
                    f"{fork.name!r} forked, and that its parent need not keep for it: "
                    f"{command('merge', source, target)} copies them to the branch",
                    table=target,
                    version=version,
                )

    def _commit_step(self, commit: Commit, body: bytes) -> Step:
        version, known, digest = commit.header.version, self._known, codec.sha256(body)

        def step() -> int:
            # against commit-of-another-chain
            if known.hash is not None and commit.header.prev != known.hash:
                raise chain.forked(version, self._store.uri)
            self._pipeline.create(keys.commit_key(version), body)
            known.version, known.hash = version, digest
            known.header = commit.header
            if not attachment.is_bookkeeping(commit):
                known.worth = version
            return 1

        return step

    def _live(self, having: int, first: int) -> Iterator[Item | Step]:
        """Yield all segments that are live where a copy starts, and the object that records it."""
        snapshot = self._log.snapshot(first)
        vectored = list[Segment]()
        yield from self._live_segments(snapshot, having, vectored)
        self._check_kept((), first, vectored)
        yield from contents.vector_items(vectored, first, maybe_there=True)
        if snapshot.meta.swept is not None:  # against copy-without-the-record-of-its-state
            yield from contents.of_sweep(snapshot.meta.swept, first)
        if snapshot.header.keyframe is not None:
            yield from self._first_keyframe(snapshot, snapshot.header.keyframe)
        body = codec.encode_start(
            Start(FORMAT_NAME, FORMAT_VERSION, (), snapshot.header.table, first, having)
        )

        def step() -> int:
            self._check_open(having + 1)
            try:
                self._pipeline.create(keys.start_key(first), body)
            except CommitConflict:
                if not self._explained(first, having):  # against any-start-accepted
                    raise
            self._known.hash = None  # the copy lacks the commit before the first
            if having >= 0:
                self._known.gaps.append(codec.decode_start(body, first, snapshot.header.table))
            return 0

        yield step

    def _live_segments(
        self, snapshot: Snapshot, having: int, vectored: list[Segment]
    ) -> Iterator[Item]:
        """Yield the live segments of the first version that a copy has above a gap, or at all.

        Args:
            snapshot: the version.
            having: the newest version of the target below it; -1: none.
            vectored: gets the entries whose deletion vectors are stored.
        """
        stored = contents.Listed(
            (row.key, row.size) for row in self._target.list(keys.SEGMENTS_PREFIX)
        )
        named, first = self._named(having), snapshot.version
        for entry in _live_at(snapshot):
            if stored_bitmap(entry.vector) is not None:
                vectored.append(entry)
            place = keys.key_of(entry), entry.bytes
            seen = place in stored
            if self._needs_object(entry, first) and not (seen and place in named):
                self._check_kept((entry,), first)
                yield contents.segment_item(entry, first, maybe_there=seen, unnamed=True)

    def _named(self, having: int) -> contents.Listed:
        """Return the segments of the target's newest version, which were checked when copied."""
        if having < 0:
            return contents.Listed(())
        with suppress(Corrupt):  # damage of the target stops no follower: it compares each object
            live = _live_at(Log(self._target).snapshot(having))
            return contents.Listed((keys.key_of(s), s.bytes) for s in live)
        return contents.Listed(())

    def _check_open(self, version: int) -> None:
        """Check that nobody wrote the first version that a start leaves out."""
        try:
            key = keys.commit_key(version)
            there = self._target.get(key, length=codec.MAX_COMMIT_BYTES + 1)
            ours = codec.commit_hash_of(self._log.slot_below(version)[1])
        except (KeyNotFound, VersionNotFound, VersionNotReplicated):
            return
        if codec.commit_hash_of(there) != ours:  # against gap-over-a-write
            raise CommitConflict(
                f"version {version} was written to the copy meanwhile: it took writes of its own; "
                f"{command('merge', self._store.uri, self._target.uri)}, and then the other way "
                "round, joins the two",
                table=self._target.uri,
                version=version,
            )

    def _first_of_all(self) -> Iterator[Item | Step]:
        """Yield version 0 of a copy that starts above it, so that nobody creates a table there.

        If version 0 is below the horizon, only its commit is copied, or what is left of it: a stub.
        """
        try:
            commit, body = self._log.slot_below(0)
        except (VersionNotFound, VersionNotReplicated):  # the source itself lacks it
            return
        if isinstance(commit, Commit):
            kept = oldest_kept(self._head, self._store) == 0
            yield from contents.of_commit(commit, self._entries(commit) if kept else ())

        def step() -> int:
            self._pipeline.create(keys.commit_key(0), body)
            return 0

        yield step

    def _explained(self, first: int, having: int) -> bool:
        """Return whether a start that another follower recorded before covers this gap."""
        body = self._target.get(keys.start_key(first), length=codec.MAX_START_BYTES + 1)
        return codec.decode_start(body, first, self._head.header.table).after <= having

    def _first_keyframe(self, snapshot: Snapshot, named: int) -> Iterator[Item | Step]:
        """Yield the key frame that the first version names, since the copy has none below it.

        If it is unusable at the source, it is built again over the older key frame that the source
        uses instead (MERGING.md R17.5).

        Args:
            snapshot: the first version; all of its entries were read.
            named: the version of the key frame that this version names.
        """
        base = self._log.usable(snapshot.state).base
        if base is not None and base.version == snapshot.version:
            named = base.version  # the source is cut here, and its version opens over this one
        if base is not None and base.version == named:  # against copy-begins-over-a-bad-key-frame
            made = Frame(base, {}, {}, {})
        else:
            made = self._made(named)
        root, objects = made.root, made.objects
        self._known.framed.add(named)
        pieces = self._log.key_frames.new_in(root, None, made.stems)
        yield from contents.of_pieces(pieces, named, but=objects, maybe_there=True)
        yield from contents.of_packs(root, None)
        self._known.frame = root

        def step() -> int:
            for key, body in objects.items():
                self._pipeline.create(key, body)
            try:
                self._pipeline.create(keys.keyframe_key(named), codec.encode_keyframe(root))
            except CommitConflict as conflict:
                conflict.message = (
                    "the target has other bytes under this key, a key frame that its first "
                    f"version, {snapshot.version}, needs: remove this object, and follow again"
                )
                raise
            return 0

        yield step

    def _made(self, version: int) -> Frame:
        """Return an unusable key frame of a version, built again."""
        key = keys.keyframe_key(version)
        try:
            below = self._log.snapshot(version)
        except VersionNotFound:
            raise Corrupt(
                f"a copy of {self._store.uri} has to begin with the key frame of version "
                f"{version}, which is unusable, and the versions that could replace it are "
                "missing: put the object back, or copy these versions there: "
                f"{command('replicate', 'SOURCE', self._store.uri, '--backfill')}",
                table=self._store.uri,
                key=key,
                version=version,
            ) from None
        below.entries()  # a damaged leaf is noticed
        made = keyframe_writing.built(self._log, below)[1]
        logger.warning("key frame %d is built again for the copy: %s is unusable", version, key)
        return made

    def _check_newest(self, root: KeyFrame) -> None:
        """Check that a key frame is that of the target's newest version.

        Raises:
            Corrupt: it is the key frame of another commit.
        """
        known = self._known
        if known.header is not None and known.hash is not None:
            VersionState(known.header, known.hash, root.state, None, Delta()).on_keyframe(root)

    def _keyframe(
        self, version: int, known: KeyFrame | None, check: Check
    ) -> Iterator[Item | Step]:
        """Yield a key frame, unless it is missing or unusable at the source."""
        self._known.framed.add(version)
        key = keys.keyframe_key(version)
        try:
            root = self._log.key_frames.root(version)
            body = self._store.get(key, length=codec.MAX_KEYFRAME_BYTES + 1)
            same = codec.decode_keyframe(body, version) == root
            check(root)  # against key-frame-of-another-log-copied
            pieces = self._log.key_frames.new_in(root, known)
        except (Corrupt, KeyNotFound, UnsupportedFormat) as error:
            logger.warning("key frame %d of %s is not copied: %s", version, self._store.uri, error)
            return
        if not same:
            logger.warning("key frame %d of %s changed meanwhile", version, self._store.uri)
            return
        yield from contents.of_pieces(pieces, version, maybe_there=known is None)
        yield from contents.of_packs(root, None if known is None else packs_of(known))
        self._known.frame = root

        def step() -> int:
            try:
                self._pipeline.create(key, body)
            except CommitConflict:
                # Readers do without it; the commits show whether the target is a copy.
                logger.warning(
                    "the target has other bytes under %s, a key frame: it is damaged, and readers "
                    "do without it; remove the object, and the next one takes its place",
                    key,
                )
            return 0

        yield step

    def _listed_keyframes(self, having: int) -> set[int]:
        """Return the versions with a key frame, from the target's head to the source's."""
        versions = set()
        for row in self._store.list(keys.LOG_PREFIX):
            parsed = keys.parse_log_key(row.key)
            if parsed is None:
                continue
            version, framed = parsed
            if version < having:
                break
            if framed and version <= self._head.version:
                versions.add(version)
        return versions


def check_key_frame_state(log: Log, commit: Commit, body: bytes, root: KeyFrame) -> None:
    """Check that a key frame and the delta of a commit that names it result in its state.

    Args:
        log: the log of the commit.
        commit: the commit.
        body: the commit's bytes.
        root: the key frame.

    Raises:
        Corrupt: they do not, or the delta's spill is missing or damaged.
    """
    VersionState.from_commit(commit, body, root, spills.delta_of(commit, log.spill))


def _linked(
    commits: Iterable[tuple[Commit, bytes]], head: Snapshot, table: str
) -> Iterator[tuple[Commit, bytes]]:
    """Yield commits, each only after several commits above it were found to be linked to it.

    A copy that has a commit of another log can follow no more. A single link does not show this,
    since neighbouring commits of the other log name each other as well.

    Raises:
        Corrupt: a commit is damaged or does not follow the one below. Commits below it that were
            read ahead are not yielded, since it is unknown to which log they belong.
    """
    ahead: deque[tuple[Commit, bytes]] = deque()
    bytes_ahead, digest = 0, ""
    for commit, body in commits:
        if ahead:  # against commit-copied-before-it-is-named
            chain.check_named(ahead[-1][0].header, digest, commit.header, table)
        ahead.append((commit, body))
        bytes_ahead, digest = bytes_ahead + len(body), codec.sha256(body)
        while len(ahead) > 2 and (len(ahead) > LINKED or bytes_ahead > _BYTES_AHEAD):
            bytes_ahead -= len(ahead[0][1])
            yield ahead.popleft()
    if ahead and digest != head.commit_hash:  # against copied-head-of-another-log
        raise chain.forked(head.version, table)
    yield from ahead


def _live_at(snapshot: Snapshot) -> Iterator[Segment]:
    """Yield the live segments, converted in portions, since there may be millions."""
    entries = snapshot.entries()
    for at in range(0, entries.num_rows, _ENTRIES):
        yield from entry_columns.to_segments(entries.slice(at, _ENTRIES))
