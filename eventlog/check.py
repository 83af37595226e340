"""`check`: is everything that is stored what the log says it is?

Shell layer. Reads all commits once, a window of them ahead, and hands them to the pure
`eventlog.audit`; compares every key frame and leaf with the fold on the way; on request looks at
the segments that are live at the newest version. Reads only, and trusts no cache of the handle.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeVar

from eventlog import codec, keyframe, keys, proposal, segments
from eventlog.audit import Audit, Past
from eventlog.delta import Delta
from eventlog.errors import (
    Corrupt,
    EventLogError,
    KeyNotFound,
    NotFound,
    TableNotFound,
)
from eventlog.log import Log
from eventlog.model import Commit, KeyFrame, Leaf, Segment
from eventlog.snapshot import Snapshot
from eventlog.store import ObjectStore
from eventlog.table import Table

Severity = Literal["error", "warning"]
# Called with what is being read, how many are done, and how many there are.
Progress = Callable[[str, int, int], None]

_Wanted = TypeVar("_Wanted")
_Read = TypeVar("_Read")

_THREADS = 8
_WINDOW = 32  # objects read ahead; a commit has at most 8 MiB, and about 32 KB as a rule
_PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: an error breaks FORMAT.md, a warning does not."""

    severity: Severity
    message: str
    key: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class VoidTransaction:
    """A transaction that the log holds and the fold refused, which is no fault."""

    version: int
    transaction: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a check looked at and what it found.

    Attributes:
        table: the root URI.
        head: the newest version.
        versions: commits that were folded and agree with their header.
        transactions: transactions in those commits.
        void: those of them without effect.
        keyframes: key frames that agree with the fold, leaves included.
        bad_keyframes: those that do not. Readers step over them.
        leaves: leaf objects that were read and agree.
        segments: live segments that were looked for; None if they were not to be.
        checksummed: bytes of segments that were read and hashed.
        findings: in order of version.
    """

    table: str
    head: int
    versions: int
    transactions: int
    void: tuple[VoidTransaction, ...]
    keyframes: int
    bad_keyframes: int
    leaves: int
    segments: int | None
    checksummed: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may be there."""
        return all(finding.severity != "error" for finding in self.findings)


def check(
    table: Table,
    *,
    segments: bool = False,
    checksums: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Check the log of a table: chain, fold, every header, delta and key frame.

    Args:
        table: a handle; `Table(store)` opens one without reading a head that may be damaged.
        segments: also look that every segment live at the newest version is there, in its size.
        checksums: also read those segments and compare their sha256; implies `segments`.
        progress: called as the work goes on.

    Raises:
        TableNotFound: no commit lies under this root.
        Unavailable: the store does not answer; nothing is known.
        UnsupportedFormat: the log needs a newer release.
    """
    found = _listed(table.store)
    if not found.commits:
        raise TableNotFound(
            f"no table at {table.uri}: check the path, or create it", table=table.uri
        )
    run = _Run(table.store, found, progress or (lambda *_: None))
    run.audit_log()
    if segments or checksums:
        run.look_for_segments()
    if checksums:
        run.compare_checksums()
    return run.report(looked=segments or checksums)


@dataclass(slots=True)
class _Listed:
    """The keys under `_log/`: versions with a commit, with a key frame, and what is neither."""

    commits: set[int] = field(default_factory=set)
    keyframes: set[int] = field(default_factory=set)
    foreign: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """One version as it was read: its commit or why not, and its key frame or why not."""

    version: int
    commit: Commit | None = None
    body: bytes = b""
    delta: Delta = field(default_factory=Delta)
    problem: EventLogError | None = None
    root: KeyFrame | None = None
    root_problem: EventLogError | None = None


def _listed(store: ObjectStore) -> _Listed:
    found = _Listed()
    for row in store.list(keys.LOG_PREFIX):
        parsed = keys.parse_log_key(row.key)
        if parsed is None:
            found.foreign.append(row.key)
        else:
            (found.keyframes if parsed[1] else found.commits).add(parsed[0])
    return found


class _Run:
    """One check: what was listed, what was counted, what was found."""

    def __init__(self, store: ObjectStore, listed: _Listed, progress: Progress) -> None:
        self._store, self._listed, self._progress = store, listed, progress
        self._log = Log(store)  # with caches of its own
        self._audit = Audit(self._recall)
        self._in_step = True
        self._head = max(listed.commits)
        self._findings: list[Finding] = []
        self._void: list[VoidTransaction] = []
        self._leaves: set[str] = set()
        self._versions = self._transactions = self._good = self._bad = self._checksummed = 0

    def report(self, *, looked: bool) -> Report:
        return Report(
            table=self._store.uri,
            head=self._head,
            versions=self._versions,
            transactions=self._transactions,
            void=tuple(self._void),
            keyframes=self._good,
            bad_keyframes=self._bad,
            leaves=len(self._leaves),
            segments=len(self._audit.live) if looked else None,
            checksummed=self._checksummed,
            findings=tuple(self._findings),
        )

    def audit_log(self) -> None:
        """Fold every version from 0 to the head, and compare the key frames on the way."""
        for key in self._listed.foreign:
            self._find("warning", "this key is none of the log's; readers ignore it", key)
        with ThreadPoolExecutor(_THREADS) as pool:
            for fetched in _ahead(pool, self._fetch, iter(range(self._head + 1))):
                self._take(fetched)
                self._progress("commits", fetched.version + 1, self._head + 1)
        for version in sorted(v for v in self._listed.keyframes if v > self._head):
            self._bad += 1
            message = "a key frame of a version that the log does not have"
            self._find("error", message, keys.keyframe_key(version), version)

    def look_for_segments(self) -> None:
        """Compare the live segments with one listing of `data/`."""
        if self._audit.version != self._head:
            message = f"the segments looked for are those of version {self._audit.version}"
            key = keys.commit_key(self._head)
            self._find("warning", f"the head cannot be resolved: {message}", key, self._head)
        wanted = {keys.key_of(segment): segment for segment in self._audit.live.values()}
        total = len(wanted)
        for row in self._store.list(keys.SEGMENTS_PREFIX):
            segment = wanted.pop(row.key, None)
            if segment is None:
                continue
            if row.size != segment.bytes:
                self._find(
                    "error",
                    f"the segment has {row.size:,} bytes, the log says {segment.bytes:,}",
                    row.key,
                    segment.version,
                )
            self._progress("segments", total - len(wanted), total)
        for key, segment in wanted.items():
            self._find("error", "a live segment is missing", key, segment.version)

    def compare_checksums(self) -> None:
        """Read the live segments and compare their sha256."""
        live = sorted(self._audit.live.values(), key=lambda s: (s.version, s.partition))
        total = sum(segment.bytes for segment in live)
        done = 0
        with ThreadPoolExecutor(_THREADS) as pool:
            for segment, digest in _ahead(pool, self._digest, iter(live)):
                done += segment.bytes
                self._progress("bytes", done, total)
                if digest is None:
                    continue  # reported as missing
                self._checksummed += segment.bytes
                if digest != segment.checksum:
                    self._find(
                        "error",
                        f"the segment's sha256 is {digest}, the log says {segment.checksum}",
                        keys.key_of(segment),
                        segment.version,
                    )

    def _fetch(self, version: int) -> _Fetched:
        root, root_problem = None, None
        if version in self._listed.keyframes:
            try:
                root = self._log.keyframe(version)
            except (Corrupt, NotFound) as error:
                root_problem = error
        try:
            commit, body = self._log.read(version)
            delta = proposal.delta_of(commit, self._log.spill)
            commit = proposal.unpack(commit, self._log.spill)
        except (Corrupt, NotFound) as error:
            return _Fetched(version, problem=error, root=root, root_problem=root_problem)
        return _Fetched(version, commit, body, delta, root=root, root_problem=root_problem)

    def _take(self, fetched: _Fetched) -> None:
        """Fold one version; behind one that cannot be folded, go on from the next one's word."""
        key = keys.commit_key(fetched.version)
        if fetched.commit is None:
            self._find("error", _reason(fetched), key, fetched.version)
            self._in_step = False
        else:
            self._in_step = self._in_step and self._step(fetched.commit, fetched, key)
            if not self._in_step:
                self._resume(fetched.commit, fetched.body, key)
        if fetched.version in self._listed.keyframes:
            self._take_keyframe(fetched)

    def _step(self, commit: Commit, fetched: _Fetched, key: str) -> bool:
        try:
            step = self._audit.step(commit, codec.sha256(fetched.body), fetched.delta)
        except Corrupt as error:
            self._find("error", error.message, key, fetched.version)
            return False
        self._versions += not step.problems
        self._transactions += len(commit.transactions)
        for transaction, reason in step.void.items():
            self._void.append(VoidTransaction(fetched.version, transaction, reason))
        for problem in step.problems:
            self._find("error", problem, key, fetched.version)
        return True

    def _resume(self, commit: Commit, body: bytes, key: str) -> None:
        version = commit.header.version
        try:
            snapshot = self._log.resolve(commit, body)
            past = _past(snapshot)
        except (Corrupt, NotFound) as error:
            if version - self._audit.version <= 2 or version == self._head:  # say it once
                self._find("error", f"its state cannot be resolved: {error.message}", key, version)
            return
        self._audit.resume(commit.header, snapshot.commit_hash, past)
        self._in_step = True

    def _take_keyframe(self, fetched: _Fetched) -> None:
        key = keys.keyframe_key(fetched.version)
        problems = [(key, fetched.root_problem.message)] if fetched.root_problem else []
        if fetched.root is not None:
            if self._audit.version == fetched.version:
                problems += [(key, text) for text in self._audit.check_keyframe(fetched.root)]
            else:
                problems.append((key, "it cannot be compared with its commit"))
            problems += self._leaf_problems(fetched.root)
        for where, problem in problems:
            message = f"{problem}; readers step over this key frame"
            self._find("error", message, where, fetched.version)
        self._good += not problems
        self._bad += bool(problems)

    def _leaf_problems(self, root: KeyFrame) -> list[tuple[str, str]]:
        """Read the leaves that no earlier key frame had; they are named by their content."""
        problems = []
        for leaf in root.leaves:
            if leaf.sha256 in self._leaves:
                continue
            key = keys.frame_key(leaf.sha256)
            problem = self._leaf_problem(leaf, key, root.version)
            if problem:
                problems.append((key, problem))
            else:
                self._leaves.add(leaf.sha256)
        return problems

    def _leaf_problem(self, leaf: Leaf, key: str, version: int) -> str | None:
        try:
            entries = segments.to_segments(keyframe.check_leaf(leaf, self._store.get(key)))
        except KeyNotFound:
            return "the leaf is missing"
        except Corrupt as error:
            return error.message
        if self._audit.version == version and self._audit.foreign(entries):
            return "the leaf holds entries that the log does not fold to"
        return None

    def _digest(self, segment: Segment) -> tuple[Segment, str | None]:
        """Hash one segment piece by piece, so that memory does not follow its size."""
        key, digest, start = keys.key_of(segment), hashlib.sha256(), 0
        try:
            while piece := self._store.get(key, start=start, length=_PIECE_BYTES):
                digest.update(piece)
                start += len(piece)
        except KeyNotFound:
            return segment, None
        return segment, digest.hexdigest()

    def _recall(self, version: int) -> Past:
        return _past(self._log.snapshot(version))

    def _find(self, severity: Severity, message: str, key: str, version: int | None = None) -> None:
        self._findings.append(Finding(severity, message, key, version))


def _past(snapshot: Snapshot) -> Past:
    live = segments.to_segments(snapshot.entries())
    return Past(snapshot.meta, {segment.id: segment for segment in live})


def _reason(fetched: _Fetched) -> str:
    if isinstance(fetched.problem, NotFound):
        return "the commit is missing: the log has a gap"
    return fetched.problem.message if fetched.problem else ""


def _ahead(
    pool: ThreadPoolExecutor, read: Callable[[_Wanted], _Read], wanted: Iterator[_Wanted]
) -> Iterator[_Read]:
    """Yield what was read, in order, with a window of reads under way."""
    flying: deque[Future[_Read]] = deque(pool.submit(read, one) for one in islice(wanted, _WINDOW))
    try:
        while flying:
            found = flying.popleft().result()
            flying.extend(pool.submit(read, one) for one in islice(wanted, 1))
            yield found
    finally:
        for future in flying:
            future.cancel()
