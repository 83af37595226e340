"""The walk over a whole log: folds every commit, compares every key frame and leaf with the fold.

Reads a window of commits ahead and passes them to `eventlog.fsck.audit`, so that the memory is
proportional to the live segments and not to the length of the history. Does not use the caches of a
handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain as chained
from itertools import islice

from eventlog.commit import proposal
from eventlog.display import command
from eventlog.errors import (
    Corrupt,
    InvalidInput,
    KeyNotFound,
    NotFound,
    UnsupportedFormat,
    VersionCut,
    VersionNotReplicated,
)
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns
from eventlog.fsck.audit import Audit, AuditPast
from eventlog.fsck.findings import MAX_LISTED, Findings, Severity, VoidTransaction
from eventlog.fsck.keyframe_check import KeyFrameAudit, KeyFrameCheck
from eventlog.fsck.objects.inline_segments import CommittedBodies
from eventlog.fsck.objects.leftovers import UnnamedObjects
from eventlog.fsck.objects.vacuum_record import Waiting
from eventlog.inline import inline_objects
from eventlog.log import chain, history, spills
from eventlog.log.diff import Gone
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.log.starts import has_commit
from eventlog.model.actions import Add, Drop
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Meta, Start
from eventlog.state.delta import Delta
from eventlog.state.version import VersionState
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import committing_root
from eventlog.store.parallel import read_ahead, threads
from eventlog.store.port import ObjectStore

_MANY = 1000  # versions of a gap: each of a smaller one is asked for, since a listing may be stale

# Called with the phase, the number done, and the total.
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class LogListing:
    """The keys under `_log/`: the newest version, the key frames, and keys that are neither.

    `gaps` are the pairs of versions, the newer one first, between which commits are missing.
    """

    head: int = -1
    keyframes: set[int] = field(default_factory=set)
    foreign: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


def list_log(store: ObjectStore) -> LogListing:
    """Return the keys under `_log/`. The newest version of a branch is its fork or above it."""
    listed, last = LogListing(), -1
    listed.head = max((fork.version for fork in store.forks[:1]), default=-1)
    for row in store.list(keys.LOG_PREFIX):
        parsed = keys.parse_log_key(row.key)
        if parsed is None:
            listed.foreign.append(row.key)
        elif parsed[1]:
            listed.keyframes.add(parsed[0])
        else:
            listed.head = max(listed.head, parsed[0])
            if last >= 0:
                listed.gaps += chain.gaps((last, parsed[0]))
            last = parsed[0]
    if last >= 0:
        listed.gaps += chain.gaps((last, -1))
    return listed


class Walk:
    """One walk over the log.

    Args:
        store: of the table.
        listed: the result of `list_log`.
        findings: receives the problems.
        start: the version of the key frame to start from, which is trusted; None for the empty
            state.
        wanted: a version whose live segments are kept in `kept`, and small state in `kept_meta`.
        waiting: the record of the last vacuum.
        rows: whether the rows of packs are compared with the commits.

    Attributes:
        first: where the fold starts; None: from the empty state. Of a log that is cut it is at or
            above the version below which commits are stubs.

    Raises:
        InvalidInput: there is no key frame to start from.
    """

    def __init__(
        self,
        store: ObjectStore,
        listed: LogListing,
        findings: Findings,
        *,
        start: int | None = None,
        wanted: int | None = None,
        waiting: Waiting | None = None,
        rows: bool = False,
    ) -> None:
        if start is not None and (start not in listed.keyframes or start > listed.head):
            known = sorted(v for v in listed.keyframes if v <= listed.head)
            raise InvalidInput(
                f"version {start} has no key frame to start from; the newest key frames are: "
                f"{', '.join(map(str, known[-8:])) or 'none'}",
                table=store.uri,
                version=start,
            )
        self._store, self.listed, self._findings = store, listed, findings
        self.log = Log(store)  # with caches of its own
        whole, self._opens_from = self._cut()
        self._stubs = range(whole)
        if self._stubs.stop in listed.keyframes and (start or 0) < self._stubs.stop:
            start = self._stubs.stop  # what was before cannot be folded any more
        self.first, self._wanted = start, wanted
        self.waiting = waiting or Waiting({}, -1, -1)
        self.audit = Audit(self._recall, self._earlier)
        self.unnamed = UnnamedObjects(start or 0)
        self.frames = KeyFrameAudit()
        self.bodies = CommittedBodies()
        self.key_frames = KeyFrameCheck(
            self.log, self.audit, self.unnamed, self.frames, findings, rows=rows
        )
        self._starts: list[Start] = []  # whose version is in the log
        self._unreadable: dict[int, str] = {}  # what is wrong with others of these
        self._absent: list[range] = []  # the versions that this replica left out
        self._left_out = set[int]()  # versions among them whose key frame was looked at
        self.kept: Mapping[str, Segment] | None = None
        self.kept_meta: Meta | None = None
        self.void: list[VoidTransaction] = []
        self.versions = self.transactions = 0
        self.broken = False  # whether a commit is damaged, so that the fold cannot be trusted
        self.unfit = False  # whether schema and layout were reported, which readers refuse
        self._in_step = start is None and not self._stubs
        self._last_stub: str | None = None  # the commit hash below the fold's start

    def _cut(self) -> tuple[int, int]:
        """Return the version below which commits may be stubs, and that below which none opens."""
        store, held = self._store, [fork.held for fork in self._store.forks[:1]]
        cuts = [self.log.newest_cut()]
        while isinstance(store, BranchStore):  # a parent may have been cut since
            store = store.parent
            cuts.append(Log(store).newest_cut())  # against cut-of-the-parent-forgotten
        known = [(cut.whole, cut.version) for cut in cuts if cut is not None]
        whole, opens = max(known, default=(0, 0))
        # Stubs tell it, too: a backfill copies them.
        with suppress(Corrupt, NotFound, UnsupportedFormat):
            seen = history.first_whole(self.log, min([self.listed.head, *held]))
            if seen > whole:
                whole, opens = seen, max([opens, seen, *held])
        return whole, opens

    def run(self, progress: Progress) -> None:
        """Fold every version up to the head, and compare the key frames on the way."""
        for key in self.listed.foreign:
            self._find("warning", "this key does not belong to the log; readers ignore it", key)
        self._look_at_starts()
        first, end = self.begin, self.listed.head + 1
        self._absent = self._gaps()
        self._check_stubs()
        skipped = self._absent + self._lost()
        begins = {gap.stop for gap in skipped}
        wanted = chained.from_iterable(_between(range(first, end), skipped))
        with threads() as pool:
            # A commit has at most 8 MiB, and usually about 32 KB.
            for version, body in read_ahead(pool, wanted, self._fetch):
                # The fold goes on from the state at the first version of a replica, as it is.
                self._in_step = self._in_step and version not in begins
                self._take(version, body, pool)
                if version == self._wanted and self.audit.version == version:
                    self.kept, self.kept_meta = dict(self.audit.live), self.audit.meta
                progress("commits", version + 1 - first, end - first)
        for version in sorted(v for v in self.listed.keyframes if v > self.listed.head):
            self.key_frames.check_stray(version)
        self.key_frames.packs.report_missing(self.audit.meta.horizon, sorted(self.frames.good))
        self._look_at_head()

    @property
    def begin(self) -> int:
        """The version that the fold starts from."""
        return max(self.first or 0, self._stubs.stop)

    def left_out(self, version: int) -> bool:
        """Return whether segments that a version dropped may have come later, from a backfill.

        This copy began, or went on, at that version or above it.
        """
        return any(start.after + 1 < version <= start.version for start in self._starts)

    def _look_at_starts(self) -> None:
        """Read the starts; report those that no follower of this log can have left."""
        versions = [*self.log.starts.versions()]
        try:
            table = self.log.header(self.listed.head).table if versions else ""
        except (Corrupt, NotFound, UnsupportedFormat) as error:
            self._find("warning", f"no start can be read: {error.message}", keys.STARTS_PREFIX)
            return
        for version in versions:
            present, key = has_commit(self.log.store, version), keys.start_key(version)
            ignored = "readers ignore it, and the object can be removed by hand"
            try:
                start = self.log.starts.at(version, table)
            except (Corrupt, NotFound, UnsupportedFormat) as error:
                if present:
                    self._unreadable[version] = error.message
                else:
                    self._find("warning", f"{error.message}; {ignored}", key)
                continue
            # A replicator that ended before its first commit leaves a start above the log (R17.5).
            if present:
                self._starts.append(start)
            elif start.after < 0 or not has_commit(self.log.store, start.after):
                ends = f"({start.after} and {version})"
                message = f"no version that this start names is in the log {ends}: {ignored}"
                self._find("warning", message, key)

    def _gaps(self) -> list[range]:
        """Return the versions that this replica left out when it started (R17.4)."""
        absent, needed = list[range](), set[int]()
        for newer, older in self.listed.gaps:
            explaining = [s for s in self._starts if s.after <= older and newer <= s.version]
            # Reported once, for the start: the versions themselves may be no loss.
            unreadable = {v for v in self._unreadable if newer <= v and not explaining}
            needed |= unreadable
            if explaining or unreadable:
                absent.append(range(older + 1, newer))
            if explaining:
                self._look_at_gap(newer, older, [start.after for start in explaining])
        for version, problem in self._unreadable.items():
            wanted = (
                "it has to be put back from a copy: it names the versions that were left out. Or "
                f"remove it by hand. {chain.put_back(committing_root(self._store, version))}"
            )
            if version not in needed:
                wanted = "no gap in the log needs it: remove the object by hand"
            self._find("error", f"{problem}; {wanted}", keys.start_key(version), version)
        return absent

    def _lost(self) -> list[range]:
        """Report gaps that are too large to ask for each version; return them."""
        lost = []
        for newer, older in self.listed.gaps:
            gap = range(older + 1, newer)
            if len(gap) > _MANY and gap not in self._absent:
                key = keys.commit_key(newer)
                message = (
                    f"the commits of the versions {gap[0]} to {gap[-1]} are missing. "
                    f"{chain.put_back(committing_root(self._store, gap[-1]))}. Remove this object "
                    "only if it is no commit of the table"
                )
                self._find("error", message, key, newer)
                self.broken = True
                lost.append(gap)
        return lost

    def _check_stubs(self) -> None:
        """Check the chain of hashes below the version from which the log is whole.

        A commit that a vacuum has not replaced yet serves as well as its stub.
        """
        if self.begin > self._stubs.stop:
            return
        wanted = _between(range(self._stubs.stop), list(self._absent))
        named: tuple[int, str] | None = None
        with threads() as pool:
            for version, body in read_ahead(pool, chained.from_iterable(wanted), self._fetch):
                named = self._check_stub(version, body, named)
        for version in sorted(v for v in self.listed.keyframes if v < self._stubs.stop):
            again = command("vacuum", self._store.uri, "--log", "--full", "--run")
            message = f"this key frame lies below the cut of the log: {again} deletes it"
            self._find("warning", message, keys.keyframe_key(version), version)

    def _check_stub(
        self, version: int, body: bytes | Corrupt | None, below: tuple[int, str] | None
    ) -> tuple[int, str] | None:
        """Return a version below the cut and its commit hash, if it follows the one below."""
        key = keys.commit_key(version)
        if body is None or isinstance(body, Corrupt):
            missing = "the stub of this version is missing: there is a gap in the log"
            self.broken = True
            self._find("error", body.message if body else missing, key, version)
            return None
        try:
            header = codec.decode_header(body, version)
            digest = codec.commit_hash_of(body, version)
        except Corrupt as error:
            self.broken = True
            self._find("error", error.message, key, version)
            return None
        # against stubs-of-another-log
        if below is not None and below[0] == version - 1 and header.prev != below[1]:
            self.broken = True
            self._find("error", "it does not follow the version below", key, version)
        if version == self._stubs.stop - 1:
            self._last_stub = digest
        return version, digest

    def _look_at_gap(self, newer: int, older: int, after: Sequence[int]) -> None:
        """Report versions that are absent above others that are there, and not left out."""
        # Versions that a start left out are copied newest first, except the lowest one (R17.5):
        # version 0, or the next one for handles that know the version below.
        if all(older > end + 1 for end in after):  # against lost-taken-for-left-out
            again = command("replicate", "SOURCE", self._store.uri, "--backfill")
            message = (
                f"this copy has lost the versions {older + 1} to {newer - 1}, between others that "
                f"it has: {again} copies them again"
            )
            self._find("error", message, keys.commit_key(newer), newer)

    def _fetch(self, version: int) -> tuple[int, bytes | Corrupt | None]:
        # Bytes only: decoded commits and their spills would take many times the memory.
        try:
            return version, self._store.get(
                keys.commit_key(version), length=codec.MAX_COMMIT_BYTES + 1
            )
        except KeyNotFound:
            return version, None
        except Corrupt as error:  # a branch does not follow its parent's log
            return version, error

    def _take(self, version: int, body: bytes | Corrupt | None, pool: Executor) -> None:
        """Fold one version; after one that cannot be folded, trust the state of the next one."""
        read = self._decode(version, body)
        if read is None:
            self.broken, self._in_step = True, False
        else:
            commit, delta, digest = read
            last = self._last_stub if version == self._stubs.stop else None
            if last is not None and commit.header.prev != last:  # against stub-below-of-another-log
                self._find("error", "it does not follow the stub below", keys.commit_key(version))
            self._look_for_base(commit, pool)
            self._in_step = self._in_step and self._step(commit, digest, delta)
            if not self._in_step:
                self._resume(commit, body if isinstance(body, bytes) else b"")
        if version in self.listed.keyframes:
            self.key_frames.check(version, pool)

    def _decode(
        self, version: int, body: bytes | Corrupt | None
    ) -> tuple[Commit, Delta, str] | None:
        key = keys.commit_key(version)
        if isinstance(body, Corrupt):
            self._find("error", body.message, key, version)
            return None
        if body is None:
            way = chain.put_back(committing_root(self._store, version))
            message = f"the commit is missing: there is a gap in the log. {way}"
            self._find("error", message, key, version)
            return None
        try:
            commit = codec.decode_commit(body, version)
            self.unnamed.note_commit(commit)
            delta = spills.delta_of(commit, self.log.spill)
            return spills.unpack(commit, self.log.spill), delta, codec.sha256(body)
        except (Corrupt, NotFound) as error:
            # A spill is another object, and may be all that is damaged.
            message = error.message
            if isinstance(error, Corrupt) and (error.key or key) == key:
                owner = committing_root(self._store, version)
                again = command("replicate", "SOURCE", owner, "--backfill")
                message += f"; once it is removed by hand below {owner}, {again} copies it again"
            self._find("error", message, error.key or key, version)
            return None

    def _step(self, commit: Commit, digest: str, delta: Delta) -> bool:
        version = commit.header.version
        key = keys.commit_key(version)
        try:
            step = self.audit.step(commit, digest, delta)
        except Corrupt as error:
            self.broken = True
            self._find("error", error.message, key, version)
            return False
        self.versions += not step.problems
        self.transactions += len(commit.transactions)
        gone = Gone.by(version, step.drops, step.deletes)
        self.unnamed.note_drops(gone.ids())
        self.bodies.note(version, step.adds)
        inline_objects.remember_committed(commit, step.adds)
        live = (*step.adds, *(after for _, after in step.deletes))
        self.waiting.note(gone, live, self.audit.live)
        room = MAX_LISTED - len(self.void)
        for transaction, reason in islice(step.void.items(), room):
            self.void.append(VoidTransaction(version, transaction, reason))
        for breach in step.breaches:
            self.unfit = True
            self._find("error", breach, key, version)
        for problem in step.problems:
            self.broken = True
            self._find("error", problem, key, version)
        return True

    def _resume(self, commit: Commit, body: bytes) -> None:
        version = commit.header.version
        try:
            if version == self.first:
                root = self.log.key_frames.root(version)
                snapshot = Snapshot(VersionState.at_keyframe(commit, body, root), self.log)
            else:
                snapshot = self.log.resolve(commit, body)
            past = _past(snapshot)
        except (Corrupt, NotFound) as error:
            # Reported once per gap.
            if version - self.audit.version <= 2 or version == self.listed.head:
                message = f"its state cannot be resolved: {error.message}"
                self._find("error", message, error.key or keys.commit_key(version), version)
            self.broken = True
            return
        self.audit.resume(commit.header, snapshot.commit_hash, past)
        self.unnamed.unknown_before(version)
        self._in_step = True

    def _look_for_base(self, commit: Commit, pool: Executor) -> None:
        base = commit.header.keyframe
        if base is None or base in self.frames.missing | self.frames.bad:
            return
        version = commit.header.version
        if base < self._stubs.stop and version < max(self._opens_from, self._stubs.stop + 1):
            return  # it opens over its own key frame, or not at all
        if base not in self.listed.keyframes:
            self.key_frames.note_missing(
                base, "commits start from this key frame, but it does not exist"
            )
        elif base not in self._left_out and any(base in gap for gap in self._absent):
            # The lowest version of a copy starts from it, and its commit is not in the copy.
            self._left_out.add(base)
            self.key_frames.check(base, pool)

    def _look_at_head(self) -> None:
        head = self.listed.head
        if self.audit.version != head or head in self.listed.keyframes:
            return
        try:
            snapshot = self.log.snapshot(head)
        except (Corrupt, NotFound):
            return  # reported before
        # A snapshot over an older key frame than its commit names has a longer delta, and would
        # seem due too early.
        base = snapshot.base.version if snapshot.base else None
        if base == snapshot.header.keyframe and proposal.keyframe_due(snapshot.state):
            self.key_frames.note_missing(
                head, "the newest version's key frame is due, but does not exist"
            )

    def _recall(self, version: int) -> AuditPast:
        try:
            return _past(self.log.snapshot(version))
        except (VersionCut, VersionNotReplicated):  # a replica starts above its key frame
            if version not in self.listed.keyframes:
                raise
            root = self.log.key_frames.root(version)
            live = [*root.segments]
            for leaf in self.log.key_frames.all_leaves(root):
                live += entry_columns.to_segments(self.log.key_frames.leaf(leaf))
            return AuditPast(root.state, {segment.id: segment for segment in live})

    def _earlier(self, version: int, adds: Sequence[Add]) -> Mapping[str, Segment]:
        return self.log.snapshot(version).live([Drop(a.id, a.chunk, "") for a in adds])

    def _find(self, severity: Severity, message: str, key: str, version: int | None = None) -> None:
        self._findings.add(severity, message, key, version)


def _between(every: range, gaps: Sequence[range]) -> Iterator[range]:
    """Yield the parts of a range between gaps in it."""
    start = every.start
    for gap in sorted(gaps, key=lambda gap: gap.start):
        yield range(start, max(start, gap.start))
        start = max(start, gap.stop)
    yield range(start, every.stop)


def _past(snapshot: Snapshot) -> AuditPast:
    live = entry_columns.to_segments(snapshot.entries())
    return AuditPast(snapshot.meta, {segment.id: segment for segment in live})
