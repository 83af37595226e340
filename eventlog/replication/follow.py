"""Follow: copy a table, byte for byte, and keep the copy up to date.

Objects are copied in the order in which the source made them visible: the objects of a version,
then its commit, then its key frame (MERGING.md R17.2). So the target is a valid table at every
moment, and a follower that stops is simply started again. It stores no progress except the copy.
Any number of followers may run for one pair.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from eventlog.arguments import choice, text
from eventlog.clock import Clock, SystemClock
from eventlog.commit.proposal import check_writable
from eventlog.display import command
from eventlog.errors import (
    CommitConflict,
    Corrupt,
    DataLoss,
    InvalidInput,
    KeyNotFound,
    TableNotFound,
    VersionNotFound,
    VersionNotReplicated,
    VersionVacuumed,
)
from eventlog.format import codec, keys
from eventlog.lineage.relation import relation, same_root
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Start, cut_of
from eventlog.replication import attachment
from eventlog.replication.backfill import Filler
from eventlog.replication.pipeline import Pipeline
from eventlog.replication.steps import From, Steps, Target, first_version, oldest_kept
from eventlog.store.branching.roots import check_there
from eventlog.store.location import check_promise, open_store, real_root
from eventlog.store.parallel import DriverName, Executors, executors_of
from eventlog.store.port import ObjectStore
from eventlog.store.retry import retrying
from eventlog.table.table import Table

Progress = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)

_RESTARTS = 3  # of a pass that a vacuum of the source overtook


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of one pass of a follower.

    Attributes:
        source: root URI of the table that is followed.
        target: root URI of the copy.
        start: the first version that this pass copied; None if there was nothing to copy.
        version: the newest version of the target now.
        versions: number of commits that were copied.
        objects: number of objects that this pass created, commits and key frames included.
        bytes: the size of these objects.
        behind: number of versions of the source that the target does not have yet: those that were
            committed during the pass.
        attached: whether the source's vacuum still waits for this replica; None without a name.
    """

    source: str
    target: str
    start: int | None
    version: int
    versions: int
    objects: int
    bytes: int
    behind: int
    attached: bool | None = None


def follow(  # noqa: PLR0913 - two places, each with options
    source: Table | str | os.PathLike[str],
    target: Table | str | os.PathLike[str],
    *,
    name: str | None = None,
    start: From = "oldest",
    source_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    driver: DriverName = "local",
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Followed:
    """Copy the versions that the target lacks, up to the head that the source has now.

    Idempotent and resumable: after an error or a crash call it again. The target is a valid table
    at every moment, whose versions are those of the source, byte for byte.

    Args:
        source: the table to follow, or its root.
        target: the copy, or its root, where there may be no table yet.
        name: the name of the replica, 1 to 255 characters. The source's vacuum then waits for it:
            the first pass attaches the replica, and each pass acknowledges the versions that it
            has. This needs the permission to commit to the source. None: nothing is written to the
            source.
        start: where a new copy starts. `oldest`: at the oldest version that the source keeps;
            `keyframe`: at the source's newest key frame. The copy lacks the versions before that
            (`VersionNotReplicated`) until `backfill` copies them. A copy that is behind the
            source's horizon always starts again at the horizon.
        source_options: override the AWS environment; see `eventlog.store.options`.
        target_options: likewise, for the target.
        driver: `spark`: the executors of the active session copy the segments. They must reach both
            stores as this process does.
        progress: called with ("versions", number done, total).
        clock: use this clock instead of the machine's.

    Returns:
        The result of the pass.

    Raises:
        CommitConflict: the target took writes of its own (see `merge`); or another replica has
            the name; or the source is itself attached as a copy, so that no name may be written to
            its log.
        Corrupt: a version of the source is not the one that the version after it names. Neither it
            nor any version above it was copied.
        DataLoss: an object of the source is missing or damaged; the target has all versions below.
        InvalidInput: the two are different tables, or an argument is wrong, or a store refuses; or
            there is no session of Spark, or its executors store what this process does not find.
        TableNotFound: there is no table at the source; or the target is a branch that was deleted.
        Unavailable: a store does not answer.
        UnsupportedFormat: one of them needs a newer release.
    """
    choice(start, "start", ("oldest", "keyframe"))
    executors = executors_of(driver)
    clock = clock or SystemClock()
    table = source if isinstance(source, Table) else Table.open(source, source_options, clock=clock)
    store = target.store if isinstance(target, Table) else open_store(target, target_options, clock)
    follower = Follower(
        table, store, clock, name=name, start=start, progress=progress, executors=executors
    )
    return follower.step()


class Gap(Exception):
    """The copy can follow only by leaving out versions, which the caller does not want."""


class Follower:
    """Follows one table, and remembers the state of both logs between passes.

    Args:
        source: the table to follow.
        target: the store where the copy is, or will be.
        clock: for pauses.
        name: the name of the replica, if the source's vacuum is to wait for it; see `follow`.
        start: where a new copy starts; see `follow`.
        executors: copy the segments; None: this process does.
        progress: called with ("versions", number done, total).
        gaps: whether a copy that is behind the source's horizon may start again above it. If not,
            `step` raises `Gap`.

    Raises:
        InvalidInput: the target is the source, or the name is no text of 1 to 255 characters.
    """

    def __init__(
        self,
        source: Table,
        target: ObjectStore,
        clock: Clock,
        *,
        name: str | None = None,
        start: From = "oldest",
        executors: Executors | None = None,
        progress: Progress | None = None,
        gaps: bool = True,
    ) -> None:
        if same_root(source.store, target):
            raise InvalidInput(f"{target.uri} cannot follow itself: choose an empty root")
        _check_apart(real_root(source.uri), real_root(target.uri))
        if name is not None:
            text(name, "name")
        self._source, self._target, self._clock = source.session, target, clock
        self._name, self._start, self._gaps = name, start, gaps
        self._owner = attachment.owner_of(target)
        self._tell: Progress = progress or (lambda *_: None)
        self._pipeline = Pipeline(source.store, target, clock, executors=executors)
        self._known: Target | None = None
        self._cut = 0  # that of the source when the pass began
        self._least = 0  # below this version the source has nothing that the copy lacks

    def step(self) -> Followed:
        """Copy up to the head of the source; see `follow`."""
        for tries in range(_RESTARTS):
            try:
                return self._pass()
            except (VersionVacuumed, VersionNotReplicated):
                # A vacuum of the source passed the version being copied: go on at its horizon. Or
                # the source is itself a copy that lacks versions: go on above the gap.
                if tries == _RESTARTS - 1:
                    raise
            except Corrupt:
                # Spills go before the commits below a cut become stubs.
                if tries == _RESTARTS - 1 or not self._was_cut():  # against copy-met-a-cut
                    raise
            finally:
                if self._known is not None and not self._known.settled:
                    self._known = None  # read the target again after a failure
        raise AssertionError  # the last try returns or raises

    def _was_cut(self) -> bool:
        """Return whether the log of the source was cut higher since the pass began."""
        return cut_of(self._source.refresh().meta) > self._cut

    def _pass(self) -> Followed:
        source, log = self._source, self._source.log
        known = self._known = self._remembered() or self._read_target()
        head = source.refresh()
        self._cut = cut_of(head.meta)
        check_writable(head.header)  # writing a copy needs the same release as writing the table
        if self._name is not None and known.version < self._acked(head):
            # Another follower of the pair may have copied this since, or the copy was emptied.
            known = self._known = self._read_target()  # against old-news-taken-for-emptied
        objects, size = self._pipeline.objects, self._pipeline.bytes
        first = self._first(known, head)
        token = None
        if self._name is not None:
            attachment.check_no_copy(source, self._name)
            if self._name not in head.meta.replicas:
                self._check_followed_whole(known, first, head)
            token = attachment.attach(source, self._name, self._owner, known.version, first)
            head = source.refresh()
        try:
            if token is not None:
                # A vacuum may have raised the horizon before the attachment took effect.
                first = self._first(known, head)
            versions, attached, first = self._copied(known, first, head, token)
        except (CommitConflict, InvalidInput) as refused:
            if token is not None:
                refused.message += self._still_waits()
            raise
        known.settled = True
        if versions:
            retrying(self._clock)(check_there, self._target)
        return Followed(
            source=source.uri,
            target=self._target.uri,
            start=first if versions else None,
            version=known.version,
            versions=versions,
            objects=self._pipeline.objects - objects,
            bytes=self._pipeline.bytes - size,
            behind=log.head_version() - known.version if versions else 0,
            attached=attached,
        )

    def _copied(
        self, known: Target, first: int, head: Snapshot, token: int | None
    ) -> tuple[int, bool | None, int]:
        """Copy the versions from `first` on, and acknowledge them if the copy has a name.

        Returns:
            The number of versions; whether the copy is attached still, None without a name; and
            the first version that was copied.
        """
        source = self._source
        known.settled = False
        versions = self._copy(known, first, head)
        self._close(known, head)  # against gap-left-open
        if self._name is None or token is None:
            return versions, None, first
        version = known.worth if versions else attachment.unsaid(source, self._name, known.version)
        attached = attachment.ack(source, self._name, token, version)
        if attached and source.head().version > known.version:
            # Copy the acknowledgement as well: if the copy takes over, the old table has no
            # version that the copy lacks, and can follow it.
            first = first if versions else known.version + 1
            versions += self._copy(known, known.version + 1, source.head())
        return versions, attached, first

    def _check_followed_whole(self, known: Target, first: int, head: Snapshot) -> None:
        """Check that a branch can follow up to the head, before its name is recorded.

        The steps are made and not taken.

        Raises:
            InvalidInput: the branch cannot show the segments of one of the versions.
        """
        if self._target.forks:  # against name-of-a-refused-copy-left
            apart = replace(known, framed=set(known.framed), gaps=list(known.gaps))
            steps = Steps(self._source, self._target, apart, self._pipeline, head)
            deque(steps.all(first), maxlen=0)

    def _still_waits(self) -> str:
        """Return the sentence that ends the message of a refusal if the copy has a name."""
        source, name = self._source.uri, str(self._name)
        return (
            f". {source} still waits for {self._target.uri} with its vacuum, until "
            f"{command('replicas', source, '--break', name)}"
        )

    def _first(self, known: Target, head: Snapshot) -> int:
        kept = oldest_kept(head, self._source.store)
        first = first_version(known.version, head, self._start, max(self._least, kept))
        if first > known.version + 1 and not self._gaps:  # against gap-in-what-takes-writes
            raise Gap
        if 0 <= known.version < kept - 1 and known.version + 1 >= head.meta.horizon:
            # The copy would treat the versions between the two as readable, without their segments.
            source, target = self._source.uri, self._target.uri
            raise InvalidInput(
                f"{target} has versions up to {known.version}, and the branch {source} those from "
                f"{kept} on: a copy of the branch needs an empty root, "
                f"{command('replicate', source, 'TARGET')}. To have its rows in {target} as well: "
                f"{command('merge', source, target)}"
            )
        return first

    def _remembered(self) -> Target | None:
        """Return the remembered state of the copy, if its newest known version still exists."""
        known = self._known
        if known is None or known.hash is None:
            return None
        try:
            key = keys.commit_key(known.version)
            body = self._target.get(key, length=codec.MAX_COMMIT_BYTES + 1)
        except KeyNotFound:  # it was emptied meanwhile
            return None
        # against memory-trusted
        return known if codec.sha256(body) == known.hash else None

    def _acked(self, head: Snapshot) -> int:
        """Return the version that the copy has acknowledged under its name; -1: none."""
        replica = head.meta.replicas.get(self._name or "")
        return replica.acked if replica and replica.owner == self._owner else -1

    def _read_target(self) -> Target:
        """Return the state of the target, checked to be behind the source.

        Raises:
            CommitConflict: the target has versions that the source does not have.
        """
        # The target is read first: then the source, read later, has all versions of a sound copy.
        log = Log(self._target)
        self._check_branch()
        try:
            known = log.head()
        except TableNotFound:
            known = None
        if known is not None:
            check_writable(known.header)
        head = self._source.refresh()
        token = self._clock.random_id
        retrying(self._clock)(check_promise, self._target, head.header.table, token)  # R2.3
        if known is None:
            return Target()
        self._check_behind(log, known, head)
        base = known.base
        starts = log.starts.all()
        headless, gaps = _missing(log, starts, known.version)
        return Target(
            version=known.version,
            hash=known.commit_hash,
            header=known.header,
            frame=base,
            framed={base.version} if base else set(),
            headless=headless,
            gaps=gaps,
            late=bool(starts),
        )

    def _close(self, known: Target, head: Snapshot) -> None:
        """Copy the commits of the gaps that were left when the copy was started again above them.

        The objects of these versions may be gone. But a handle that has seen the version below a
        gap goes on to the next version: it must neither stop nor commit there (MERGING.md R17.5).
        """
        filler = Filler(self._source, self._target, self._pipeline, lambda *_: None)
        for start in known.gaps:
            try:
                filler.fill(start, head.meta.horizon)
                # If the target has a commit under this key, it may be the target's own write.
                _, lowest = self._source.log.slot_below(start.after + 1)
                self._pipeline.put_slot(start.after + 1, lowest)
            except VersionNotReplicated:
                logger.warning(
                    "%s itself lacks versions between %d and %d: open %s again before you read or "
                    "write it",
                    self._source.uri,
                    start.after,
                    start.version,
                    self._target.uri,
                )
            except CommitConflict as conflict:
                raise CommitConflict(
                    f"version {start.after + 1} or above was written to the copy while the copy "
                    f"was started again at version {start.version}: the newest version lacks the "
                    "rows that were written. Read them with `version=`, and write them again",
                    table=self._target.uri,
                    version=start.after + 1,
                ) from conflict
        known.gaps = []

    def _check_branch(self) -> None:
        """Check that the branch exists if the target's root is that of a branch.

        Raises:
            InvalidInput: there is no such branch, and a copy cannot be made there.
        """
        try:
            self._target.forks  # noqa: B018 - reads it
        except TableNotFound:
            raise InvalidInput(
                f"{self._target.uri} is the root of a branch that does not exist: a copy is a "
                "separate table, so give it an empty root that is not in `_branches`"
            ) from None

    def _copy(self, known: Target, first: int, head: Snapshot) -> int:
        """Copy the versions from `first` to the head; return how many."""
        total = head.version - first + 1
        framed = head.base is not None and head.base.version == known.version
        settled = not framed or known.version in known.framed
        if total <= 0 and settled and not known.headless:
            return 0
        done = 0
        try:
            steps = Steps(self._source, self._target, known, self._pipeline, head)
            for copied in self._pipeline.copied(steps.all(first)):
                done += copied
                if copied:
                    self._tell("versions", done, total)
            known.headless = False
        except VersionNotReplicated as missing:
            start = self._source.log.starts.above(missing.version or 0)
            self._least = start.version if start else self._least
            raise
        except DataLoss:
            newest = self._source.refresh()
            if newest.meta.horizon <= first + done:
                raise
            raise VersionVacuumed(
                f"a vacuum of {self._source.uri} passed version {first + done} while it was "
                f"copied: {command('replicate', self._source.uri, self._target.uri)} goes on at "
                "the horizon. With a name the source waits for the replica",
                table=self._source.uri,
                version=first + done,
            ) from None
        return done

    def _check_behind(self, log: Log, known: Snapshot, head: Snapshot) -> None:
        """Check that the source has all versions of the target."""
        found = relation(log, known, self._source.log, head)
        if found.kind not in ("ahead", "diverged"):
            return
        if found.kind == "diverged":
            self._check_parted(log, known, head)
        source, target = self._source.uri, self._target.uri
        if found.kind == "ahead":
            why = (
                f"{target} took writes of its own: it is ahead of {source}, with version "
                f"{found.version} against {found.other}. If it has taken over, let the other one "
                f"follow: {command('replicate', target, source)}"
            )
        else:
            first = found.common + 1
            sides = ((source, self._source.log, found.other), (target, log, found.version))
            rowless = [root for root, at, last in sides if attachment.says_only(at, first, last)]
            only = "".join(f" ({r} has acknowledgements alone, and no rows)" for r in rowless)
            merges = [
                command("merge", one, other)
                for one, other in ((source, target), (target, source))
                if one not in rowless
            ]
            why = (
                f"{target} took writes of its own after version {found.common}, and {source} went "
                f"on as well{only}: neither can follow the other any more. "
                f"Go on with {' and '.join(merges) or 'either'}, or let a new copy under an empty "
                "root follow the one that you keep"
            )
        if self._acked(head) >= 0:
            why += self._still_waits()
        raise CommitConflict(why, table=target, version=found.common)

    def _check_parted(self, log: Log, known: Snapshot, head: Snapshot) -> None:
        """Check that two logs have diverged if the header above the lower head seems to show it.

        Raises:
            Corrupt: that header is damaged or belongs to another log: the lower head is in both
                logs.
        """
        longer, top, lower = self._source.log, head, known
        if known.version > head.version:
            longer, top, lower = log, known, head
        with suppress(VersionNotFound, VersionNotReplicated):
            body = longer.slot_below(lower.version)[1]
            if codec.commit_hash_of(body) == lower.commit_hash:  # against damage-taken-for-a-fork
                longer.check_linked(top, lower)


def _missing(log: Log, starts: list[Start], newest: int) -> tuple[bool, list[Start]]:
    """Return whether a copy lacks version 0, and the starts that left gaps above its versions.

    A gap is filled from above, so it is closed once its lowest version exists.
    """
    headless, gaps = False, []
    for start in starts:
        if start.version <= newest:
            try:
                log.store.get(keys.commit_key(start.after + 1), length=1)
            except KeyNotFound:
                headless |= start.after < 0
                gaps += [start] if start.after >= 0 else []
    return headless, gaps


def _check_apart(source: str, target: str) -> None:
    """Check that the roots are not nested, unless they are of branches of one table.

    Raises:
        InvalidInput: one root lies in the other.
    """
    table, copy = keys.split_branches(source)[0], keys.split_branches(target)[0]
    if table != copy and _is_below(copy, table):
        raise InvalidInput(
            f"{target} lies in the table's root {table}: give the copy a root outside of it"
        )
    if table != copy and _is_below(table, copy):
        raise InvalidInput(f"{source} lies in {copy}: give the copy a root that it does not lie in")


def _is_below(root: str, other: str) -> bool:
    return root.startswith(f"{other.rstrip('/')}/")
