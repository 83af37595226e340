"""Publishes versions as Delta: list, decide (`delta_plan`), put.

What lies there is the only state. Objects are put if absent, in order, so that a publisher that was
killed is continued by any other, and several at once do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from eventlog.errors import Corrupt, InvalidInput, KeyNotFound, VersionVacuumed
from eventlog.format.frames.entry_columns import to_segments
from eventlog.inline import inline_objects
from eventlog.log.snapshot import Snapshot
from eventlog.publishing import versions
from eventlog.publishing.delta.checkpoint_publisher import CheckpointPublisher
from eventlog.publishing.delta.delta_listing import DeltaListing, list_recent_delta
from eventlog.publishing.delta.delta_plan import (
    DeltaPlan,
    check_beginning,
    check_whole,
    other_object,
)
from eventlog.publishing.delta.delta_removal import check_publisher
from eventlog.publishing.delta.delta_versions import DeltaVersions
from eventlog.publishing.delta.translation.delta_commits import LOG_PREFIX, delta_commit_key
from eventlog.publishing.publication import Publication, always, engine_root
from eventlog.publishing.versions import VersionStep
from eventlog.session.session import Session
from eventlog.state.small.holds import check_kept
from eventlog.store.parallel import Executors
from eventlog.store.retry import retrying

_FORMAT = "delta"


class DeltaPublisher:
    """Publishes the versions of one table as Delta.

    Args:
        session: of the table.
        executors: merge the keys of a keyed table; None: this process does.
    """

    def __init__(self, session: Session, executors: Executors | None = None) -> None:
        self._session, self._store, self._log = session, session.store, session.log
        self._uri = session.uri
        self._described = DeltaVersions(session, writes=True, executors=executors)
        self._checkpoints = CheckpointPublisher(session, self._described)
        self._put = retrying(session.clock)

    def publish(
        self, first: int | None, last: int | None, more: Callable[[], bool] = always
    ) -> Publication:
        """Publish the versions up to `last`; see `eventlog.publishing.publish`.

        Args:
            first: where a new publication begins.
            last: the last version; None: the newest.
            more: asked before each further version; the rest is left out if it returns False.
        """
        while True:
            horizon = self._session.head().meta.horizon
            # Before the newest version is read: others publish what is committed meanwhile.
            listing = list_recent_delta(self._store)
            head = self._session.refresh()
            try:
                if last is not None and last > head.version:
                    self._session.snapshot(last)  # raises
                target = head.version if last is None else last
                return self._publish(self._plan(listing, head, first, target), target, more)
            except (Corrupt, InvalidInput):
                with suppress(KeyNotFound):  # only a vacuum of this table takes what was listed
                    check_publisher(self._session, listing)
                raise
            except (KeyNotFound, VersionVacuumed):
                # A vacuum took back what this publisher had listed, or vectors or segments of old
                # versions.
                # against overtaken-by-a-vacuum
                if self._session.refresh().meta.horizon <= horizon:
                    raise

    def _plan(
        self, listing: DeltaListing, head: Snapshot, first: int | None, target: int
    ) -> DeltaPlan:
        """Return what is to be put.

        Raises:
            Corrupt: the publication has a gap, or versions that the table has not.
            InvalidInput: the table cannot be published, or not from `first` on, or has very many
                versions.
        """
        self._described.check_table(head)
        check_whole(listing, head, self._uri)
        plan = DeltaPlan.of(listing, self._start(listing, head, first, target))
        newest = max(listing.commits, default=0)
        if newest > head.version:
            raise self._other(newest)
        return plan

    def _start(self, listing: DeltaListing, head: Snapshot, first: int | None, target: int) -> int:
        begun, horizon = listing.first, head.meta.horizon
        if listing.is_behind(horizon):
            check_publisher(self._session, listing)
            # Readers find nothing of what was published. A vacuum takes it back.
            begun, first = None, horizon  # against publication-behind-the-horizon
        if begun is not None:
            if first is not None and first < begun:  # against refused-after-unpublish
                check_kept(head.meta, head.version, first, self._uri)
                self._described.check_earlier(first, begun)
            check_beginning(begun, first, target, self._uri)
            return begun
        if first is None:
            first = versions.first_publishable(self._log, head)
            versions.check_count(first, target, self._uri, _FORMAT)
        check_beginning(first, first, target, self._uri)
        check_kept(head.meta, head.version, first, self._uri)
        return first

    def _publish(self, plan: DeltaPlan, target: int, more: Callable[[], bool]) -> Publication:
        self._described.begin(plan.start, is_new=plan.known is None)
        done, reached = 0, plan.reached
        try:
            for step in versions.version_steps(self._log, plan.first_step(target), target):
                if done and not more():
                    break
                version = step.after.version
                is_first = plan.known is None and version == plan.start
                if is_first and self._described.lacks_old_vectors(step):
                    plan = replace(plan, start=version + 1)
                    continue
                done += self._put_version(step, plan)
                reached = max(reached, version)
        finally:
            if plan.listing.is_hint_lost:
                self._checkpoints.mend_hint()
        if reached < plan.start:
            raise InvalidInput(
                f"version {target} is not published yet: it changes deletion vectors which only "
                "vacuumed versions had, so that the publication can begin at the next version",
                table=self._uri,
                version=target,
            )
        location = engine_root(self._store, LOG_PREFIX)
        spans = ((plan.start, reached),)
        return Publication(self._uri, _FORMAT, plan.start, reached, done, location, spans=spans)

    def _put_version(self, step: VersionStep, plan: DeltaPlan) -> bool:
        """Put what is to be put of a version; return whether it was not known before."""
        puts = plan.puts(step.after.version)
        self._described.check_schema(step)
        if puts.commit:
            self._put_objects(step, every=puts.checkpoint == "before")
        if puts.checkpoint == "before":
            self._checkpoints.put_checkpoint(step.after)
        if puts.commit:
            key, body = delta_commit_key(step.after.version), self._described.expected(step)
            if not self._put(self._store.put_if_absent, key, body):
                self._compare(step, body)
        else:
            self._compare(step)
        if puts.checkpoint == "after":
            self._checkpoints.put_checkpoint(step.after)
        return puts.commit

    def _put_objects(self, step: VersionStep, *, every: bool) -> None:
        """Put what a version names and commits have, before it is published (FORMAT.md R21.2).

        Args:
            step: the version.
            every: whether it names all of its segments, and not only those that it changes.
        """
        if every or step.before is None:
            named = to_segments(versions.inline_entries(step.after))
        else:
            named = [exchange.after for exchange in step.exchanges if exchange.after is not None]
        # against published-without-objects
        self._put(inline_objects.put_at_keys, self._store, named)

    def _compare(self, step: VersionStep, body: bytes | None = None) -> None:
        """Check that a version is published as this log has it.

        Raises:
            Corrupt: it is not.
        """
        key, version = delta_commit_key(step.after.version), step.after.version
        there = self._store.get(key)
        # Which rows of a keyed table are hidden is left to `fsck`: to compare it costs a merge.
        merged = body is not None or step.after.merge_rule is None
        if there != body and not self._described.is_published(step, there, files=merged):
            raise other_object(self._uri, key, version, there, step.after.header.table)

    def _other(self, version: int) -> Corrupt:
        """Return the error for a published version that the table has not. One GET."""
        key, body = delta_commit_key(version), b""
        with suppress(KeyNotFound):
            body = self._store.get(key)
        return other_object(self._uri, key, version, body)
