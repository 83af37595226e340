"""Reading the log of one table: commits, headers, key frames, and snapshots resolved from them.

Opening a version costs one GET of its commit and one of the key frame root that it names. The head
costs one LIST more, whatever the length of the history (FORMAT.md "Opening a version").
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec import UnsetType

from eventlog import limits
from eventlog.cache import Cache
from eventlog.display import command
from eventlog.errors import (
    Corrupt,
    DataLoss,
    EventLogError,
    KeyNotFound,
    TableNotFound,
    UnsupportedFormat,
    VersionCut,
    VersionNotFound,
    VersionNotReplicated,
)
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes
from eventlog.log import chain, spills
from eventlog.log.keyframes import KeyFrameReader
from eventlog.log.snapshot import Snapshot
from eventlog.log.staged_segments import StagedSegments
from eventlog.log.starts import Starts
from eventlog.model.actions import Action, Add
from eventlog.model.entries import Spill
from eventlog.model.records import Commit, Header, Leaf, LogCut, Meta, Stem, Stub, Transaction
from eventlog.state import fold
from eventlog.state.appends import Appends, appends
from eventlog.state.judging import Judging
from eventlog.state.pieces.places import Stems
from eventlog.state.questions import Answer, Question, Touched
from eventlog.state.small.holds import check_kept
from eventlog.state.version import VersionState
from eventlog.store.branching.roots import check_there, committing_root, held_from, unless_deleted
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

LINKED = 1000  # versions above an old one that are read before something is built on it
HEAD_PAGE = 16  # keys per head LIST: the newest commits, their key frames, and foreign objects
MAX_STEPPED_BACK = 16  # versions whose unusable key frames are remembered

logger = logging.getLogger(__name__)


class Log:
    """The commits and key frames of one table. Safe to use from several threads.

    Attributes:
        store: the store of the table.
        table: the id of the table that commits must belong to; None: any table.
        key_frames: reads roots and leaves of key frames.
        staged: the objects of segments that adds name: which are missing, and which are fresh.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.table: str | None = None
        self.key_frames = KeyFrameReader(store)
        self.staged = StagedSegments(store)
        # By commit hash: the key frames that turned out to be unusable for the state after that
        # commit, and the same state over an older key frame.
        self._stepped_back: Cache[str, tuple[frozenset[int], VersionState]] = Cache(
            MAX_STEPPED_BACK
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Caches stay behind; the other process opens the same table, or fails.
        return (_opened, (self.store, self.table))

    @property
    def starts(self) -> Starts:
        """Where a copy begins, and which versions it lacks."""
        return Starts(self.store, self._table_id)

    def head(self) -> Snapshot:
        """Return the snapshot of the head: one LIST, one commit and one key frame root.

        If the LIST shows a key frame of the head itself, that one is used, so that the spill of a
        bulk commit need not be read.

        Raises:
            TableNotFound: there is no log under this root.
            Corrupt: the newest versions have a gap, or the commits do not add up; or the parent of
                a branch lacks the version that it forked from.
        """
        while True:
            version, framed = self._newest()
            try:
                return self._opened(version, framed=framed)
            except (Corrupt, KeyNotFound, VersionCut):
                # The reader may have been suspended while others wrote and cut the log.
                if self._newest_or(version) == version:  # against head-cut-off-while-it-was-read
                    raise

    def _newest_or(self, version: int) -> int:
        """Return the newest version, or `version` if that cannot be said."""
        try:
            return self._newest()[0]
        except EventLogError:
            return version

    def _opened(self, version: int, *, framed: bool) -> Snapshot:
        """Return the snapshot of the head, over its own key frame if a LIST shows it."""
        commit, body = self.read(version)
        if framed:
            try:
                return self._snapshot(
                    VersionState.at_keyframe(commit, body, self.key_frames.root(version))
                )
            except (Corrupt, KeyNotFound, UnsupportedFormat) as error:
                logger.warning("key frame %d of %s is unusable: %s", version, self.store.uri, error)
        return self.resolve(commit, body)

    def head_version(self) -> int:
        """Return the newest version. One LIST of a few keys, whatever the length of the history.

        Raises:
            TableNotFound: there is no log under this root.
            Corrupt: the newest versions have a gap, or lie below the fork of this branch.
        """
        return self._newest()[0]

    def check_fork(self) -> None:
        """Check that the parent of a branch has the version that it forked from. One GET.

        Nothing, if this is no branch.

        Raises:
            Corrupt: the parent does not have it, or has another one.
            TableNotFound: the branch was deleted.
        """
        for fork in self.store.forks[:1]:
            try:
                self.read(fork.version)
            except VersionNotFound:
                check_there(self.store)
                raise Corrupt(
                    f"the parent of branch {fork.name!r} lacks version {fork.version}, from which "
                    "the branch forked: it has lost commits, or the fork is of another log. Put "
                    f"the parent's `_log/` back from a copy; {command('fsck', self.store.uri)} "
                    "lists what is missing",
                    table=self.store.uri,
                    key=keys.commit_key(fork.version),
                    version=fork.version,
                ) from None

    def _newest(self) -> tuple[int, bool]:
        """Return the newest version, and whether the LIST shows its key frame."""
        versions, frames, last = self._listed()
        gaps = chain.gaps([*versions, -1] if last else versions)
        if gaps:  # against gap-not-checked
            with unless_deleted(self.store):  # a late commit to a deleted branch lies alone
                owner = partial(committing_root, self.store)
                chain.check_explained(gaps, self.starts.all(), self.store.uri, owner)
        for fork in self.store.forks[:1]:
            if versions[0] < fork.version:  # against head-below-the-fork
                self.check_fork()  # a LIST may be stale
                return fork.version, False
        return versions[0], versions[0] in frames

    def _listed(self) -> tuple[list[int], list[int], bool]:
        """Return the newest versions, those with a key frame, and whether these are all."""
        after, versions, frames = "", list[int](), list[int]()
        while True:
            page = list(self.store.list(keys.LOG_PREFIX, after=after, limit=HEAD_PAGE))
            parsed = [p for p in (keys.parse_log_key(listed.key) for listed in page) if p]
            versions += [version for version, framed in parsed if not framed]
            frames += [version for version, framed in parsed if framed]
            last = len(page) < HEAD_PAGE
            # A gap can only be seen between two versions, and foreign objects may fill a page.
            if len(versions) > 1 or last:
                break
            after = page[-1].key
        if not versions:
            self.check_fork()
            raise TableNotFound(
                f"no table at {self.store.uri}: check the path, or create it",
                table=self.store.uri,
            )
        return versions, frames, last

    def read(self, version: int) -> tuple[Commit, bytes]:
        """Return the commit of `version` and its bytes. One GET.

        Raises:
            VersionCut: a stub is left of it.
            VersionNotFound: it does not exist.
            Corrupt: its bytes break the format, or another table's commit is in this log.
            TableNotFound: the table was replaced by another one.
            UnsupportedFormat: a newer reader is needed.
        """
        found, body = self.slot(version)
        if isinstance(found, Stub):  # against stub-taken-for-a-commit
            raise cut_off(version, self.store.uri)
        return found, body

    def slot(self, version: int) -> tuple[Commit | Stub, bytes]:
        """As `read`, but return the stub of a commit where the log was cut above it.

        Raises:
            VersionNotFound: it does not exist.
            Corrupt: its bytes break the format, or another table's commit is in this log.
            TableNotFound: the table was replaced by another one.
            UnsupportedFormat: a newer reader is needed.
        """
        key = keys.commit_key(version)
        try:
            # against size-checked-after-reading
            body = self.store.get(key, length=codec.MAX_COMMIT_BYTES + 1)
        except KeyNotFound:
            raise self._missing(key, version) from None
        try:
            decode = codec.decode_stub if codec.is_stub(body) else codec.decode_commit
            found: Commit | Stub = decode(body, version)
        except (Corrupt, UnsupportedFormat) as error:
            raise self._located(error, key, version) from None
        self._check_table(found.header)
        return found, body

    def commit_hash(self, version: int) -> str:
        """Return the commit hash of a version, which a stub has, too. One GET; errors as `slot`."""
        found, body = self.slot(version)
        return found.commit if isinstance(found, Stub) else codec.sha256(body)

    def header(self, version: int, known: Header | None = None) -> Header:
        """Return the header of `version`. One ranged GET of 2 KB.

        Args:
            version: the version.
            known: a header that is probably the one there: its bytes need not be decoded then.

        Raises:
            VersionNotFound: it does not exist.
            Corrupt: its bytes break the format, or another table's commit is in this log.
            TableNotFound: the table was replaced by another one.
            UnsupportedFormat: a newer reader is needed.
        """
        key = keys.commit_key(version)
        try:
            stored = self.store.get(key, length=codec.HEADER_BYTES)
            if known is not None and stored.startswith(codec.encode_header(known)):
                return known
            header = codec.decode_header(stored, version)
        except KeyNotFound:
            raise self._missing(key, version) from None
        except (Corrupt, UnsupportedFormat) as error:
            raise self._located(error, key, version) from None
        self._check_table(header)
        return header

    def snapshot(self, version: int) -> Snapshot:
        """Return the snapshot at `version`, from its commit and the key frame root that it names.

        If the key frame is missing or damaged, the state at its version is resolved from the key
        frame before it, and so on down to the empty state before version 0.

        Raises:
            VersionNotFound: there is no such version.
            VersionNotReplicated: it is a version that this replica does not have.
            Corrupt: the commits themselves do not add up.
        """
        commit, body = self.read_below(version)
        try:
            return self.resolve(commit, body)
        except (Corrupt, KeyNotFound):
            self._check_above_the_cut(version)
            raise

    def newest_cut(self) -> LogCut | None:
        """Return where the newest commit says that the log is cut; None if it is not.

        Reads no leaf: one LIST, and one GET each of the commit and of the root that it names. None
        too where that fails.
        """
        try:
            commit, _ = self.read(self._newest()[0])
            base = commit.header.keyframe
            meta = Meta() if base is None else self.key_frames.root(base).state
            cut = codec.meta_patch(meta, commit.state).cut
        except EventLogError:
            return None
        return None if isinstance(cut, UnsetType) else cut

    def _check_above_the_cut(self, version: int) -> None:
        """Say that a version was cut off, if it was: its objects may be gone.

        Raises:
            VersionCut: it was.
        """
        cut = self.newest_cut()
        below = version < (0 if cut is None else cut.version)
        if version < held_from(self.store.forks):  # the parent of a branch may have been cut since
            below |= codec.is_stub(self.store.get(keys.commit_key(0)))
        if below:  # against cut-off-taken-for-damaged
            raise cut_off(version, self.store.uri) from None

    def read_below(self, version: int) -> tuple[Commit, bytes]:
        """As `read`, of a version that is below the newest one, so that a replica may lack it.

        Raises:
            VersionNotFound: it does not exist.
            VersionNotReplicated: it is a version that this replica does not have.
            Corrupt: its bytes break the format, or another table's commit is in this log.
        """
        found, body = self.slot_below(version)
        if isinstance(found, Stub):
            raise cut_off(version, self.store.uri)
        return found, body

    def slot_below(self, version: int) -> tuple[Commit | Stub, bytes]:
        """As `slot`, of a version that is below the newest one, so that a replica may lack it.

        Raises:
            VersionNotFound: it does not exist.
            VersionNotReplicated: it is a version that this replica does not have.
            Corrupt: its bytes break the format, or another table's commit is in this log.
        """
        try:
            return self.slot(version)
        except VersionNotFound as missing:
            raise self.starts.not_replicated(version) or missing from None

    def hash_at(self, head: Snapshot, version: int) -> str | None:
        """Return the hash of the commit of a version, or None above the head. One small GET.

        Args:
            head: the newest known snapshot, whose own hash costs nothing.
            version: the version.

        Raises:
            VersionNotFound: the version after it does not exist.
        """
        if version == head.version:
            return head.commit_hash
        return None if version > head.version else self.header(version + 1).prev

    def above(self, head: Snapshot, version: int) -> Header | None:
        """Return the header of the version after one that is below the head. One small GET.

        None where this replica lacks it. Nothing is sent if it is the head.

        Raises:
            Corrupt: it is missing, or breaks the format.
        """
        if version + 1 == head.version:
            return head.header
        try:
            return self.header(version + 1)
        except VersionNotFound:
            if self.starts.not_replicated(version + 1) is not None:
                return None
            raise self._lost(version + 1) from None

    def check_linked(self, head: Snapshot, old: Snapshot) -> None:
        """Check that an old version belongs to the log of a later one, before it is used.

        A commit that relies on a wrong version stays, even if the log is repaired later. One GET
        for each version above the old one, up to `LINKED`; none if it is the head or the one below.

        Args:
            head: a version that is known, not below the other one.
            old: the other one.

        Raises:
            Corrupt: a version is missing, or is not the one that the version after it names.
            TableNotFound: the branch was deleted.
        """
        if old.version >= head.version:
            return
        with unless_deleted(self.store):
            last = min(old.version + LINKED, head.version - 1)
            header, digest = old.header, old.commit_hash
            # Two commits of another log also name each other, so the chain must reach the head.
            for neighbour in each(self._linking, range(old.version + 1, last + 1)):
                if neighbour is None:
                    return  # this replica lacks it
                commit, body = neighbour
                chain.check_named(header, digest, commit.header, self.store.uri)
                header, digest = commit.header, codec.sha256(body)
            above = self.above(head, last)
            if above is not None:
                chain.check_named(header, digest, above, self.store.uri)

    def _linking(self, version: int) -> tuple[Commit, bytes] | None:
        """Return the commit of a version; None if this replica lacks it."""
        try:
            return self.read(version)
        except VersionNotFound:
            if self.starts.not_replicated(version) is not None:
                return None
            raise self._lost(version) from None

    def _lost(self, version: int) -> Corrupt:
        return Corrupt(
            f"version {version} is missing, which shows whether version {version - 1} is of this "
            f"log: run {command('fsck', self.store.uri)}, and put it back from a copy",
            table=self.store.uri,
            key=keys.commit_key(version),
            version=version,
        )

    def resolve(self, commit: Commit, body: bytes) -> Snapshot:
        """Return the snapshot of a commit that was already read.

        Args:
            commit: the commit.
            body: its bytes.

        Raises:
            Corrupt: the commits themselves do not add up.
        """
        with unless_deleted(self.store):
            try:
                return self._resolved(commit, body)
            except (Corrupt, KeyNotFound):
                # As of the version at which the log was cut, where a vacuum died.
                own = self._on_own_keyframe(commit, body)
                if own is None:
                    raise
                return self._snapshot(own)

    def _resolved(self, commit: Commit, body: bytes) -> Snapshot:
        pending: list[tuple[Commit, bytes]] = []
        while True:
            try:
                state = self._on_keyframe(commit, body)
                break
            except (Corrupt, KeyNotFound, UnsupportedFormat) as error:
                start = commit.header.keyframe
                if start is None:  # against bad-key-frame-ends-the-road
                    if isinstance(error, Corrupt) and error.key is None:
                        version = commit.header.version
                        raise self._located(error, keys.commit_key(version), version) from None
                    raise
                logger.warning("key frame %d of %s is unusable: %s", start, self.store.uri, error)
                try:
                    below, below_body = self.read_below(start)
                except (VersionCut, VersionNotFound) as missing:
                    own = self._on_own_keyframe(commit, body)
                    if own is None:
                        raise self._without_commit(start, error, missing) from None
                    state = own
                    break
                # against stepped-back-into-another-log
                chain.check_later(below, below_body, commit, self.store.uri)
                pending.append((commit, body))
                commit, body = below, below_body
        for later, later_body in reversed(pending):
            meta = codec.meta_patch(state.meta, later.state)
            delta = spills.delta_of(later, self.spill)
            try:
                state = state.after(later, later_body, delta, meta)
            except Corrupt as error:
                audit = command("fsck", self.store.uri)
                error.message += f": the one that it names is unusable; run {audit}"
                version = later.header.version
                raise self._located(error, keys.commit_key(version), version) from None
        return self._snapshot(state)

    def _without_commit(
        self, version: int, problem: EventLogError, missing: VersionCut | VersionNotFound
    ) -> Corrupt:
        """Return the error for an unusable key frame of a version that cannot be resolved."""
        audit = command("fsck", self.store.uri)
        way = f"its commit is missing: run {audit}, and put both back from a copy"
        if isinstance(missing, VersionCut):
            way = (
                "the log is cut above its commit: read a newer version, or put the damaged object "
                "back from a copy"
            )
        if isinstance(missing, VersionNotReplicated):
            copying = command("replicate", "SOURCE", self.store.uri, "--backfill")
            way = (
                "this copy lacks the older versions that could replace it: put the damaged object "
                f"back, or copy them: {copying}"
            )
        return Corrupt(
            f"the key frame of version {version} is unusable ({problem.message}), and {way}",
            table=self.store.uri,
            key=problem.key or keys.keyframe_key(version),
            version=version,
        )

    def newer(self, known: Snapshot) -> Snapshot:
        """Return the head, given an earlier head. One GET if there is no newer version.

        Args:
            known: a snapshot that was the head.

        Raises:
            Corrupt: the next version does not follow the known one.
        """
        seen = -1
        while True:
            try:
                return self._newer(known)
            except (Corrupt, KeyNotFound, VersionCut):  # as in `head`
                newest = self._newest_or(seen)
                if newest == seen:  # against newest-cut-off-while-it-was-read
                    raise
                seen = newest

    def _newer(self, known: Snapshot) -> Snapshot:
        """Do what `newer` does, once."""
        try:
            commit, body = self.slot(known.version + 1)
        except VersionNotFound:
            return known
        with unless_deleted(self.store):
            chain.check_follows(known, commit, self.store.uri)
        try:
            head = self.head_version()
        except TableNotFound:
            check_there(self.store)
            head = -1
        # A stale LIST may be behind, but a session never goes backwards.
        if head > commit.header.version:  # against session-goes-backwards
            before, before_body = commit, body
            commit, body = self.read(head)
            with unless_deleted(self.store):
                chain.check_later(before, before_body, commit, self.store.uri)
        if isinstance(commit, Stub):  # the LIST was stale: a cut is below the head
            raise cut_off(commit.header.version, self.store.uri)
        return self.resolve(commit, body)

    def latest(self, known: Snapshot) -> Snapshot:
        """Return the head, given an earlier head that is probably several versions behind.

        One LIST, and one GET if there is a newer version. Unlike `newer` it does not show that the
        versions between follow the known one.

        Args:
            known: a snapshot that was the head.

        Raises:
            Corrupt: the head is of another log, or does not follow a known one right before it.
            TableNotFound: the table or branch was deleted.
        """
        head = self.head_version()
        if head <= known.version:
            return known
        commit, body = self.read(head)
        if head == known.version + 1:
            return self.following(known, commit, body)
        return self.resolve(commit, body)

    def following(self, known: Snapshot, commit: Commit, body: bytes) -> Snapshot:
        """Return the snapshot of the commit after `known`.

        Args:
            known: the snapshot before.
            commit: the commit of the next version.
            body: its bytes.

        Raises:
            Corrupt: it does not follow the known snapshot.
        """
        with unless_deleted(self.store):
            chain.check_follows(known, commit, self.store.uri)
        return self.resolve(commit, body)

    def took_effect(self, commit: Commit, after: Snapshot, transaction_id: str) -> bool:
        """Return whether a transaction took effect in a commit.

        Args:
            commit: the commit.
            after: the snapshot of its version.
            transaction_id: the id of the transaction.

        Raises:
            Unavailable: the store does not answer.
        """
        known = after.state.took_effect(commit, transaction_id)
        if known is not None:
            return known
        return transaction_id in self.effect(commit).accepted

    def effect(self, commit: Commit) -> fold.Effect:
        """Return the effect of a commit, by folding it onto the version before it.

        Raises:
            Corrupt: that version or a spill cannot be read, or the commit does not follow it.
            Unavailable: the store does not answer.
        """
        version = commit.header.version
        return self.effect_on(self.snapshot(version - 1) if version else None, commit)

    def effect_on(self, before: Snapshot | None, commit: Commit) -> fold.Effect:
        """As `effect`, where the version before the commit was already read.

        Args:
            before: the snapshot of the version before; None before version 0.
            commit: the commit.

        Raises:
            Corrupt: a spill cannot be read, or the commit does not follow `before`.
            Unavailable: the store does not answer.
        """
        time_ms = commit.header.time
        transactions = spills.unpack(commit, self.spill).transactions
        if before is None:
            return fold.judge(transactions, fold.EmptyState(), time_ms)
        with unless_deleted(self.store):
            chain.check_follows(before, commit, self.store.uri)  # against effect-on-another-log
        # Rewrites are many and tables large: an effect that the commit's state hash confirms needs
        # no more.
        _, view = self.answer(before.state, Judging(transactions, own_chunks=True))
        effect = fold.judge(transactions, view, time_ms)
        after = fold.add_effect(before.header, before.meta, effect)
        if after == (commit.header.totals, commit.header.state_hash):
            return effect
        return fold.judge(transactions, self.load_view(before, transactions)[1], time_ms)

    def appends(self, commit: Commit) -> Appends:
        """Return what a commit appended. No request but one for each spill.

        If one of its transactions is void, the commit is folded onto the version before it, which
        has to be read for that.

        Raises:
            Corrupt: a spill, or the version before, cannot be read.
            Unavailable: the store does not answer.
        """
        return appends(commit.header.version, self.taken(commit), commit.header.time)

    def taken(self, commit: Commit) -> Sequence[Transaction]:
        """Return the transactions that took effect in a commit, in order, with all their actions.

        See `appends` for the requests and the errors.
        """
        if commit.header.changes.transactions == len(commit.transactions):
            return spills.unpack(commit, self.spill).transactions
        return self.effect(commit).taken

    def load_view(
        self, head: Snapshot, transactions: Sequence[Transaction]
    ) -> tuple[Snapshot, fold.FoldView]:
        """Fetch what is needed to judge these transactions on `head`.

        Args:
            head: the snapshot before the commit.
            transactions: the transactions in the order of judging, none spilled.

        Returns:
            The snapshot to continue with: `head`, or the same state over an older key frame if the
            head's is unusable. And the view for `fold.judge`, which covers only these transactions.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
            Unavailable: the store does not answer.
        """
        adds = (a for t in transactions for a in t.actions if isinstance(a, Add))
        fresh = self.staged.fresh(adds)
        state, view = self.answer(head.state, Judging(transactions, fresh))
        return self._moved(head, state), view

    def load_touched(self, head: Snapshot) -> tuple[Snapshot, Mapping[str, pa.Table], Stems]:
        """Fetch what the key frame of `head` rewrites, for `keyframe.build_key_frame`.

        Args:
            head: the snapshot whose key frame is to be built.

        Returns:
            The snapshot to continue with, as in `load_view`, and the leaves and the stems by
            sha256.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the entries.
            Unavailable: the store does not answer.
        """
        state, (leaves, stems) = self.answer(head.state, Touched())
        return self._moved(head, state), leaves, stems

    def answer(
        self, state: VersionState, question: Question[Answer]
    ) -> tuple[VersionState, Answer]:
        """Fetch the leaves that a question needs, and return its answer.

        If the key frame is unusable, an older one is used instead (hazard P1).

        Args:
            state: the version that the question is about.
            question: the question.

        Returns:
            `state`, or the same state over the older key frame that was used, and the answer.

        Raises:
            Corrupt: neither the key frame nor the commits before it give the answer.
            Unavailable: the store does not answer.
        """
        state = self.usable(state)
        while True:
            try:
                asked, needed = self._stems_read(state, question)
                bare = question.without_statistics(asked, needed)
                leaves = self.key_frames.leaves(needed, checked=question.checked, bare=bare)
                return state, question.answer(asked, leaves)
            except (Corrupt, KeyNotFound) as error:
                try:
                    state = self._over_older(state, error)
                except (Corrupt, KeyNotFound):
                    self._check_above_the_cut(state.version)
                    raise

    def _stems_read(
        self, state: VersionState, question: Question[Any]
    ) -> tuple[VersionState, Sequence[Leaf]]:
        """Return the state with the stems that a question needs, and the leaves that it needs."""
        while True:
            needed = question.needs(state)
            stems = [piece for piece in needed if isinstance(piece, Stem)]
            if not stems:
                return state, [piece for piece in needed if isinstance(piece, Leaf)]
            state = state.having(self.key_frames.stems(stems))

    def usable(self, state: VersionState) -> VersionState:
        """Return the state over a key frame that is not known to be unusable. No requests."""
        versions, older = self._stepped_back.get(state.commit_hash) or (frozenset(), state)
        return older if state.base is not None and state.base.version in versions else state

    def check_uploaded(self, actions: Iterable[Action], version: int) -> None:
        """Check that the objects of these adds exist, with one GET of one byte each.

        Args:
            actions: the actions; only adds are checked.
            version: the version that the adds come from, for the errors.

        Raises:
            DataLoss: objects are missing.
            TableNotFound: they are, because the branch was deleted.
            VersionVacuumed: objects are missing because the version was vacuumed meanwhile.
        """
        adds = [action for action in actions if isinstance(action, Add)]
        lost = self.staged.missing(adds)
        if lost:
            check_there(self.store)
            newest = self.head()
            oldest_held = held_from(self.store.forks)
            check_kept(newest.meta, newest.version, version, self.store.uri, held=oldest_held)
            raise DataLoss(
                f"{len(lost):,} of {len(adds):,} segments of version {version} are missing: run "
                f"{command('fsck', self.store.uri)}",
                table=self.store.uri,
                key=lost[0],
                version=version,
            )

    def spill(self, spill: Spill) -> pa.Table:
        """Return the table of a spill object. One GET.

        Raises:
            Corrupt: it is missing or damaged. Unlike a key frame, it cannot be recomputed.
        """
        return frame_bytes.from_parquet(
            self.spill_bytes(spill), spill.adds + spill.drops + (spill.vectors or 0), spilled=True
        )

    def spill_bytes(self, spill: Spill) -> bytes:
        """Return the bytes of a spill object under `_frames/`. One GET.

        Raises:
            Corrupt: it is missing or damaged.
        """
        key = keys.frame_key(spill.sha256)
        try:
            body = self.store.get(key, length=min(spill.size, limits.FRAME_BYTES) + 1)
        except KeyNotFound:
            raise Corrupt(
                "an object that a commit names is missing", table=self.store.uri, key=key
            ) from None
        if codec.sha256(body) != spill.sha256 or len(body) != spill.size:
            raise Corrupt(
                "the object does not have the hash in its name", table=self.store.uri, key=key
            )
        return body

    def _snapshot(self, state: VersionState) -> Snapshot:
        """Return the snapshot of a state that was just read.

        Its key frame is tried again even if it was unusable before: it may have been repaired.
        """
        self._stepped_back.forget(state.commit_hash)
        return Snapshot(state, self)

    def _moved(self, head: Snapshot, state: VersionState) -> Snapshot:
        return head if state is head.state else Snapshot(state, self)

    def _over_older(self, state: VersionState, error: EventLogError) -> VersionState:
        """Return the same state over an older key frame, and remember it for later questions."""
        if state.base is None:
            raise error
        unusable = state.base.version
        logger.warning("key frame %d is unusable, reading an older one: %s", unusable, error)
        # The delta of a commit never starts from the key frame of the same version.
        versions, _ = self._stepped_back.get(state.commit_hash) or (frozenset[int](), state)
        try:
            below = self.snapshot(unusable).state
            if below.base is not None and below.base.version >= unusable:
                # Nothing older is left, and the snapshot is over this key frame again.
                raise cut_off(unusable, self.store.uri)  # against key-frame-tried-for-ever
            older = state.over(below)
        except (VersionCut, VersionNotFound) as missing:
            tried = state.version in versions
            own = None if tried else self._on_own_keyframe(*self.read(state.version))
            if own is None:
                raise self._without_commit(unusable, error, missing) from None
            older = own
        self._stepped_back.put(state.commit_hash, (versions | {unusable}, older))
        return older

    def _on_keyframe(self, commit: Commit, body: bytes) -> VersionState:
        start = commit.header.keyframe
        base = None if start is None else self.key_frames.root(start)
        delta = spills.delta_of(commit, self.spill)
        return VersionState.from_commit(commit, body, base, delta)

    def _on_own_keyframe(self, commit: Commit, body: bytes) -> VersionState | None:
        """Return the state over the key frame of the commit's own version, if that is sound.

        The lowest version of a copy has one, and may have nothing below the key frame that it
        names.
        """
        try:
            root = self.key_frames.root(commit.header.version)
            return VersionState.at_keyframe(commit, body, root)
        except (Corrupt, KeyNotFound, UnsupportedFormat):
            return None

    def _check_table(self, header: Header) -> None:
        for fork in self.store.forks:
            if fork.table != header.table:  # against fork-of-another-table
                raise Corrupt(
                    f"the fork of branch {fork.name!r} is of another table (id {fork.table}) than "
                    f"the commits (id {header.table}): run `eventlog fsck` on the parent",
                    table=self.store.uri,
                    key=keys.FORK_KEY,
                    version=header.version,
                )
        if self.table is None or header.table == self.table:
            return
        if header.version and self.header(0):  # version 0 is the known table's: a foreign commit
            raise Corrupt(
                f"the commit belongs to another table (id {header.table}): run "
                f"{command('fsck', self.store.uri)}",
                table=self.store.uri,
                version=header.version,
            )
        raise TableNotFound(
            f"the table that was opened (id {self.table}) is gone, and there is now another one "
            f"here (id {header.table}): open the table again",
            table=self.store.uri,
        )

    def _table_id(self) -> str:
        # The commit of the start itself may be missing: a follower may stop before it (R17.5).
        return self.table or self.header(self._listed()[0][0]).table

    def _missing(self, key: str, version: int) -> VersionNotFound:
        return VersionNotFound(
            f"the table has no version {version}: {command('log', self.store.uri)} lists its "
            "versions",
            table=self.store.uri,
            key=key,
            version=version,
        )

    def _located(self, error: Corrupt | UnsupportedFormat, key: str, version: int) -> Exception:
        error.table, error.key, error.version = self.store.uri, key, version
        return error


def cut_off(version: int, table: str) -> VersionCut:
    """Return the error for a version of whose commit a stub is left."""
    return VersionCut(
        f"version {version} was cut off: a vacuum of the log left no more than its header, which "
        f"{command('log', table)} shows. Read a newer version",
        table=table,
        version=version,
    )


def _opened(store: ObjectStore, table: str | None) -> Log:
    log = Log(store)
    log.table = table
    return log
