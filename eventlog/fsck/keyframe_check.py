"""The check of key frames and their leaves: each is compared with the fold of the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest

from eventlog import limits
from eventlog.errors import Corrupt, KeyNotFound, NotFound, UnsupportedFormat
from eventlog.format import keys
from eventlog.format.entry_order import EntryKey, first_key
from eventlog.format.frames import entry_columns
from eventlog.fsck.audit import Audit
from eventlog.fsck.findings import Findings
from eventlog.fsck.objects.leftovers import UnnamedObjects
from eventlog.log.log import Log
from eventlog.model.records import KeyFrame, Leaf
from eventlog.state import keyframe
from eventlog.store.parallel import read_ahead


@dataclass(frozen=True, slots=True)
class BadLeaf:
    """A leaf that is missing or damaged, as described by the first key frame that names it.

    Attributes:
        version: of that key frame.
        leaf: its entry there.
        end: the first entry of the next leaf; None for the last leaf.
        missing: whether there is no object under its key.
        problem: what is wrong with it.
    """

    version: int
    leaf: Leaf
    end: EntryKey | None
    missing: bool
    problem: str


@dataclass(slots=True)
class KeyFrameAudit:
    """The state of the key frames.

    Attributes:
        good: versions whose key frame agrees with the fold, leaves included.
        bad: versions whose root is damaged, or does not agree.
        newer: versions whose root has a newer format, and is not compared.
        with_bad_leaves: versions whose root is sound, with their missing or damaged leaves.
        missing: versions whose key frame is referred to or due, but does not exist.
        leaves: by sha256, those that were read; None if nothing is wrong.
    """

    good: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    newer: set[int] = field(default_factory=set)
    with_bad_leaves: dict[int, set[str]] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    leaves: dict[str, BadLeaf | None] = field(default_factory=dict)


class KeyFrameCheck:
    """Checks key frames, those of older versions first; each leaf is read once.

    Args:
        log: the log.
        audit: the fold of the log so far.
        unnamed: notes which leaves have a name.
        frames: receives the state of the key frames.
        findings: receives the problems.
    """

    def __init__(
        self,
        log: Log,
        audit: Audit,
        unnamed: UnnamedObjects,
        frames: KeyFrameAudit,
        findings: Findings,
    ) -> None:
        self._log, self._audit, self._unnamed = log, audit, unnamed
        self._frames, self._findings = frames, findings
        self._entries: dict[str, Leaf] = {}  # of leaves, from the last root that names them

    def check_stray(self, version: int) -> None:
        """Report a key frame past the head, unless its commit arrived after the listing."""
        try:
            self._log.header(version)
        except (Corrupt, NotFound):
            self._frames.bad.add(version)
            message = (
                "this key frame is of a version that the log does not have: commits were removed, "
                "or an `eventlog replicate` to this root was interrupted and has to be run again"
            )
            self._findings.add("error", message, keys.keyframe_key(version), version)

    def note_missing(self, version: int, problem: str) -> None:
        """Note a key frame that is referred to or due, but does not exist."""
        self._frames.missing.add(version)
        message = f"{problem}; readers use an older one"
        self._findings.add("warning", message, keys.keyframe_key(version), version)

    def check(self, version: int, pool: ThreadPoolExecutor) -> None:
        """Compare a key frame and its new leaves with the fold, if that has its version."""
        key = keys.keyframe_key(version)
        try:
            root = self._log.key_frames.root(version)
        except UnsupportedFormat as error:
            # Only the key frame needs a newer release; the log itself can be read.
            self._frames.newer.add(version)
            message = f"{error.message}; readers of this release skip this key frame"
            self._findings.add("warning", message, key, version)
            return
        except (Corrupt, NotFound) as error:
            problems = [error.message]
        else:
            self._check_leaves(root, pool)
            if self._audit.version != version:
                return  # readers use it, and nothing contradicts it; its commit is reported
            problems = self._audit.check_keyframe(root)
        for problem in problems:
            message = f"{problem}; readers skip this key frame"
            self._findings.add("error", message, key, version)
        if problems:
            self._frames.bad.add(version)
        elif version not in self._frames.with_bad_leaves:
            self._frames.good.add(version)

    def _check_leaves(self, root: KeyFrame, pool: ThreadPoolExecutor) -> None:
        """Read the leaves that earlier roots do not have with the same entry, and check them."""
        self._unnamed.note_frames(leaf.sha256 for leaf in root.leaves)
        known = self._frames.leaves
        nexts = dict(zip_longest((leaf.sha256 for leaf in root.leaves), root.leaves[1:]))
        new = [leaf for leaf in root.leaves if self._entries.get(leaf.sha256) != leaf]
        self._entries.update((leaf.sha256, leaf) for leaf in new)
        for leaf, body in read_ahead(pool, new, self._fetch_leaf):
            problem = self._leaf_problem(leaf, body, root.version)
            after = nexts[leaf.sha256]
            end = first_key(after) if after else None
            bad = BadLeaf(root.version, leaf, end, body is None, problem) if problem else None
            known[leaf.sha256] = bad
        for bad in (known[leaf.sha256] for leaf in root.leaves):
            if bad is not None:
                self._frames.with_bad_leaves.setdefault(root.version, set()).add(bad.leaf.sha256)
                message = f"{bad.problem}; readers skip this key frame"
                self._findings.add("error", message, keys.frame_key(bad.leaf.sha256), root.version)

    def _fetch_leaf(self, leaf: Leaf) -> tuple[Leaf, bytes | None]:
        try:
            return leaf, self._log.store.get(
                keys.frame_key(leaf.sha256), length=min(leaf.size, limits.FRAME_BYTES) + 1
            )
        except KeyNotFound:
            return leaf, None

    def _leaf_problem(self, leaf: Leaf, body: bytes | None, version: int) -> str | None:
        if body is None:
            return "the leaf is missing"
        try:
            table = keyframe.check_leaf(leaf, body)
            keyframe.check_entries(leaf.sha256, table)
            entries = entry_columns.to_segments(table)
        except Corrupt as error:
            return error.message
        if self._audit.version == version and self._audit.foreign(entries):
            return "the leaf has entries that are not in the folded state"
        return None
