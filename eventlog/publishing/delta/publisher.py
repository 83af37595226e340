"""Publishes versions as Delta, and takes a publication back: list, decide, put.

What lies there is the only state. Objects are put if absent, in order, so that a publisher that was
killed is continued by any other, and several at once do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

import pyarrow as pa
from msgspec import UnsetType

from eventlog.display import command
from eventlog.errors import (
    Corrupt,
    EventLogError,
    InvalidInput,
    KeyNotFound,
    VersionNotFound,
    VersionVacuumed,
)
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema, Segment
from eventlog.publishing import versions
from eventlog.publishing.delta import checkpoints, delta_commits, written_names
from eventlog.publishing.delta.delta_commits import parse_delta_key, vector_name
from eventlog.publishing.delta.delta_listing import (
    DeltaListing,
    has_checkpoint,
    list_delta,
    list_recent_delta,
    read_hint,
)
from eventlog.publishing.delta.delta_schema import check_types
from eventlog.publishing.delta.delta_vectors import VECTORS_PREFIX, DeltaVector
from eventlog.publishing.positions import ShownRows, shows_stored_rows
from eventlog.publishing.publication import (
    Publication,
    always,
    another_table,
    engine_root,
    made_again,
)
from eventlog.publishing.versions import VersionStep
from eventlog.segments.vectors import fetch_bitmap
from eventlog.session.session import Session
from eventlog.state.small.holds import check_kept
from eventlog.store.retry import retrying

logger = logging.getLogger(__name__)

_FORMAT, _LOG = "delta", delta_commits.LOG_PREFIX
_PREFIXES = (_LOG, VECTORS_PREFIX)


class DeltaPublisher:
    """Publishes the versions of one table as Delta.

    Args:
        session: of the table.
        writes: whether the objects of vectors are put; if not, nothing may be published.

    Attributes:
        first: where the publication begins.
        vector_sizes: the sizes of the objects of vectors that looked at versions name, by key, if
            they are not put.
    """

    def __init__(self, session: Session, *, writes: bool = True) -> None:
        self._session, self._store, self._log = session, session.store, session.log
        self._uri, self._writes = session.uri, writes
        self._shown = ShownRows(session.store)
        self._written: dict[int, Schema | None] = {}
        self.first: int | None = None
        self.vector_sizes: dict[str, int] = {}
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
                return self._publish(listing, head, first, last, more)
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

    def _publish(
        self,
        listing: DeltaListing,
        head: Snapshot,
        first: int | None,
        last: int | None,
        more: Callable[[], bool],
    ) -> Publication:
        if last is not None and last > head.version:
            self._session.snapshot(last)  # raises
        target = head.version if last is None else last
        self._check_table(head)
        self._check_whole(listing, head)
        start = self.first = self._start(listing, head, first, target)
        known = self._known(listing, head)
        if listing.is_hint_lost:
            self.mend_hint()
        if known is not None and known < start:  # a vacuum overtook the publication
            known = None
        if known is None:
            self._written = {}
        done, reached = 0, start - 1 if known is None else known
        begin = start if known is None else min(known, target)
        for step in versions.version_steps(self._log, begin, target):
            if done and not more():
                break
            if known is None and step.after.version == start and self._lacks_old_vectors(step):
                start += 1
                continue
            done += self._put_version(step, start, reached, listing)
            reached = max(reached, step.after.version)
        if reached < start:
            raise InvalidInput(
                f"version {target} is not published yet: it changes deletion vectors which only "
                "vacuumed versions had, so that the publication can begin at the next version",
                table=self._uri,
                version=target,
            )
        location = engine_root(self._store, _LOG)
        spans = ((start, reached),)
        return Publication(self._uri, _FORMAT, start, reached, done, location, spans=spans)

    def check(self, version: int) -> None:
        """Refuse a version that a Delta log cannot describe.

        Raises:
            InvalidInput: it is one.
        """
        for step in versions.version_steps(self._log, version, version):
            self._check_table(step.after)
            self._check_schema(step)

    def put_checkpoint(self, snapshot: Snapshot) -> None:
        """Put the checkpoint of a version, and let the hint name it.

        Raises:
            Corrupt: there is another one.
        """
        rows = self.expected_rows(snapshot)
        body, key = (
            checkpoints.checkpoint_bytes(rows),
            delta_commits.checkpoint_key(snapshot.version),
        )
        if not self._put(self._store.put_if_absent, key, body):
            body = self._store.get(key)
            if not same_state(checkpoints.described_rows(body), rows):
                raise self._other(key, snapshot.version)
        if snapshot.version <= self.named_checkpoint():  # against hint-of-an-older-checkpoint
            return
        named = checkpoints.hint(snapshot.version, rows.num_rows, len(body))
        self._put(self._store.put_hint, checkpoints.HINT_KEY, named)
        # A vacuum deletes checkpoints after it has put a hint, which this one may have replaced.
        if not has_checkpoint(self._store, snapshot.version):  # against hint-after-a-vacuum
            self.mend_hint()

    def mend_hint(self) -> None:
        """Let the hint name the newest checkpoint if the one that it names is gone.

        Two GETs if it is there; else a LIST of the Delta log, and a checkpoint is put again.
        """
        if self.named_checkpoint() >= 0:
            return
        listing = list_delta(self._store)
        # against hint-that-nothing-mends
        there = max(listing.checkpoints or listing.commits[-1:], default=None)
        if there is not None:
            self.put_checkpoint(self._session.snapshot(there))

    def expected_rows(self, snapshot: Snapshot) -> pa.Table:
        """Return the rows of the checkpoint of a version."""
        entries = self._shown.entries(snapshot)
        vectors = {}
        if "vector_rows" in entries.column_names:
            marked = entries.filter(entries.column("vector_rows").is_valid())
            segments = entry_columns.to_segments(marked)
            vectors = self._vectors((keys.key_of(segment), segment) for segment in segments)
        return checkpoints.checkpoint_rows(snapshot, entries, vectors)

    def named_checkpoint(self) -> int:
        """Return the version of the checkpoint that the hint names; -1 if that is not there."""
        hinted = read_hint(self._store)
        if hinted is None or hinted < 0 or not has_checkpoint(self._store, hinted):
            return -1
        return hinted

    def expected(self, step: VersionStep) -> bytes:
        """Return Delta's commit of a version.

        Raises:
            DataLoss: a segment of a keyed table is missing or damaged.
        """
        step = replace(step, exchanges=()) if self._is_bare(step) else self._shown.step(step)
        entries = (
            (exchange.key, entry)
            for exchange in step.exchanges
            for entry in (exchange.before, exchange.after)
            if entry is not None
        )
        return delta_commits.delta_commit(step, self._vectors(entries))

    def _is_bare(self, step: VersionStep) -> bool:
        """Return whether the commit of a version lacks files.

        That of the first version of a keyed table does: which rows the version before showed may be
        known no longer, and its checkpoint has all files.
        """
        version = step.after.version
        return version > 0 and version == self.first and step.after.merge_rule is not None

    def _is_begun_at(self, snapshot: Snapshot) -> bool:
        """Return whether a publisher that began at this version may have put a bare commit of it.

        As one does that a vacuum overtook, while another one publishes older versions still. Its
        checkpoint has all files, so that readers need none of the commit.
        """
        version = snapshot.version
        is_keyed = version > 0 and snapshot.merge_rule is not None
        return is_keyed and has_checkpoint(self._store, version)

    def _check_table(self, head: Snapshot) -> None:
        """Refuse by name the tables that a Delta log cannot describe."""
        if self._store.forks:  # against branch-published-as-delta
            raise InvalidInput(
                "a branch is not published as Delta, whose readers find no segments outside of its "
                "root: publish it as Iceberg, or publish the branch into its parent with "
                f"{command('merge', self._uri)}",
                table=self._uri,
            )
        rule = head.merge_rule
        if rule is not None and not shows_stored_rows(rule):  # against made-rows-published-as-delta
            raise InvalidInput(
                f"a table with merge={rule.kind} is not published as Delta: its readers are shown "
                "rows that are stored nowhere. Publish its compacted versions as Iceberg, or a "
                "copy of its rows without a key",
                table=self._uri,
            )
        # against path-that-delta-decodes
        if "%" in engine_root(self._store, delta_commits.LOG_PREFIX):
            raise InvalidInput(
                "readers of Delta decode the path, and look in another place: publish a table "
                "whose path has no '%'",
                table=self._uri,
            )
        check_types(head.stored_schema)

    def _check_schema(self, step: VersionStep) -> None:
        """Refuse a version whose segments readers by name would read wrongly.

        Raises:
            InvalidInput: there is one.
        """
        snapshot, before = step.after, step.before
        schema = snapshot.stored_schema
        check_types(schema)
        if not written_names.is_evolved(schema):
            return
        if before is not None and before.stored_schema == schema and self._written:
            entries = [exchange.after for exchange in step.exchanges if exchange.after]
        else:
            entries = entry_columns.to_segments(snapshot.entries())
        newest = {entry.schema: entry for entry in sorted(entries, key=lambda e: e.epoch)}
        for number, entry in newest.items():
            if number not in self._written:
                self._written[number] = self._schema_of(entry)
        written = {number: self._written[number] for number in newest}
        written_names.check_readable(schema, written, snapshot.version)

    def _schema_of(self, entry: Segment) -> Schema | None:
        """Return the schema that a segment was written with; None if it is not found."""
        for version in (entry.version, entry.epoch):
            with suppress(VersionNotFound):
                schema = self._log.snapshot(version).stored_schema
                if schema.id == entry.schema:
                    return schema
        return None

    def _start(self, listing: DeltaListing, head: Snapshot, first: int | None, target: int) -> int:
        """Return where the publication begins.

        Raises:
            InvalidInput: it begins above `first`, or would have very many versions.
        """
        there, horizon = listing.first, head.meta.horizon
        if there is not None and max([*listing.commits[-1:], there]) < horizon:
            check_publisher(self._session, listing)
            # Readers find nothing of what was published. A vacuum takes it back.
            there, first = None, horizon  # against publication-behind-the-horizon
        if there is not None and first is not None and first < there:
            raise InvalidInput(
                f"the publication begins at version {there}. {self._taking_back()}, and "
                f"publish again from version {first}",
                table=self._uri,
            )
        start = first if there is None else there
        if start is None:
            start = versions.first_publishable(self._log, head)
        if start > target:
            raise InvalidInput(
                f"version {target} cannot be the last one of a publication that begins at version "
                f"{start}",
                table=self._uri,
            )
        if there is None:
            if first is None:
                versions.check_count(start, target, self._uri, _FORMAT)
            check_kept(head.meta, head.version, start, self._uri)
        return start

    def _check_whole(self, listing: DeltaListing, head: Snapshot) -> None:
        """Check that no version is missing between the published ones.

        Raises:
            Corrupt: one is.
        """
        lost = listing.gap(head.meta.horizon)
        if lost is not None:  # against gap-in-a-publication
            raise Corrupt(
                f"version {lost} is missing in the publication: "
                f"{made_again(_FORMAT, self._uri, listing.spans(head))}",
                table=self._uri,
                key=delta_commits.delta_commit_key(lost),
            )

    def _known(self, listing: DeltaListing, head: Snapshot) -> int | None:
        """Return the newest published version; None if none is.

        Raises:
            Corrupt: the table has not the newest one.
        """
        if not listing.commits:
            return None
        newest = listing.commits[-1]
        if newest > head.version:
            raise self._other(delta_commits.delta_commit_key(newest), newest)
        return newest

    def _put_version(
        self, step: VersionStep, start: int, known: int, listing: DeltaListing
    ) -> bool:
        """Put a version, and its checkpoint if it is due; return whether it was not known before.

        Args:
            step: the version.
            start: where the publication begins.
            known: the newest version that is published, which is compared.
            listing: of the publication.
        """
        version, snapshot = step.after.version, step.after
        self._check_schema(step)
        is_due, is_new = checkpoints.is_due(version, start), version > known
        if is_due and version == start and is_new:
            self.put_checkpoint(snapshot)  # before the commit, which is no table by itself
        if is_new:
            key, body = delta_commits.delta_commit_key(version), self.expected(step)
            if not self._put(self._store.put_if_absent, key, body):
                self._compare(step, body)
        else:
            self._compare(step)
        # A publisher that was killed may have put the commit without its checkpoint.
        named = version in listing.checkpoints and (listing.hinted or 0) >= version
        if is_due and version > start and not named:
            self.put_checkpoint(snapshot)
        return is_new

    def _compare(self, step: VersionStep, body: bytes | None = None) -> None:
        """Check that a version is published as this log has it.

        Raises:
            Corrupt: it is not.
        """
        key = delta_commits.delta_commit_key(step.after.version)
        there = self._store.get(key)
        # Which rows of a keyed table are hidden is left to `fsck`: to compare it costs a merge.
        merged = body is not None or step.after.merge_rule is None
        if there != body and not self.is_published(step, there, files=merged):
            raise self._other(key, step.after.version, there, step.after.header.table)

    def is_published(self, step: VersionStep, there: bytes, *, files: bool = True) -> bool:
        """Return whether bytes are Delta's commit of a version.

        The first version that vacuum keeps may name vectors which only the one before had. If these
        are gone, it is told by the ids that the commit has.

        Args:
            step: the version.
            there: the bytes.
            files: whether its actions of files are compared, too.

        Raises:
            DataLoss: a segment of a keyed table is missing or damaged.
            KeyNotFound: a vector of a version that is kept is missing.
        """
        bare = delta_commits.delta_commit(replace(step, exchanges=()), {})
        if not files or self._is_bare(step):
            return delta_commits.without_files(there) == bare
        # against bare-commit-of-another-publisher-refused
        if there == bare and (not step.exchanges or self._is_begun_at(step.after)):
            return True
        try:
            return there == self.expected(step)
        except KeyNotFound:
            if not self._lacks_old_vectors(step):
                raise
        known = (step.after.header.table, step.after.commit_hash)
        return delta_commits.publisher_of(there) == known

    def _lacks_old_vectors(self, step: VersionStep) -> bool:
        """Return whether the version names vectors that were vacuumed with the one before."""
        if step.after.version > self._session.refresh().meta.horizon or step.before is None:
            return False
        try:
            self._vectors((e.key, e.before) for e in step.exchanges if e.before is not None)
        except KeyNotFound:
            return True
        return False

    def _other(self, key: str, version: int, body: bytes | None = None, table: str = "") -> Corrupt:
        """Return the error for an object that another publication, or program, put."""
        if body is None:
            try:
                body = self._store.get(key)
            except KeyNotFound:
                body = b""
        named, _ = delta_commits.publisher_of(body)
        why = "is not what this version is published as: another program wrote it, or the table"
        why += " was restored from an older copy"
        if named is not None and table and named != table:
            why = f"publishes another table (id {named}), which was replaced or copied"
        return Corrupt(
            f"the object {why}. {self._taking_back()}, and publish again",
            table=self._uri,
            key=key,
            version=version,
        )

    def _taking_back(self) -> str:
        return f"Take the publication back with {command('unpublish', _FORMAT, self._uri, '--run')}"

    def _vectors(
        self, entries: Iterable[tuple[str, Segment]]
    ) -> dict[tuple[str, str], DeltaVector]:
        """Return the vectors of entries, by `vector_name`; those with an object have it put."""
        found: dict[tuple[str, str], DeltaVector] = {}
        for key, entry in entries:
            name = vector_name(entry, key)
            if name is None or name in found or isinstance(entry.vector, UnsetType):
                continue
            bitmap = fetch_bitmap(self._store, entry.vector, entry.rows)
            vector = found[name] = DeltaVector.of(bitmap, entry.vector.rows)
            if vector.is_inline:
                continue
            if self._writes:  # before the action that names it
                self._put(self._store.put_if_absent, vector.key, vector.body())
            else:
                self.vector_sizes[vector.key] = len(vector.body())
        return found


def check_publisher(
    session: Session, listing: DeltaListing, kind: type[EventLogError] = Corrupt
) -> None:
    """Refuse a Delta log that eventlog did not publish. One GET.

    Args:
        session: of the table.
        listing: of the log.
        kind: of the error.

    Raises:
        EventLogError: it is one.
    """
    if not listing.commits:
        return
    key = delta_commits.delta_commit_key(listing.commits[0])
    # against strangers-table-taken-for-a-publication
    if delta_commits.publisher_of(session.store.get(key))[0] is None:
        raise another_table("Delta", session.uri, key, kind)


def same_state(there: pa.Table, expected: pa.Table) -> bool:
    """Return whether two checkpoints describe the same state, whatever order their rows have."""
    return sorted(map(repr, there.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def unpublish_delta(session: Session, *, run: bool) -> tuple[str, ...]:
    """Delete the publication of a table, or only return what would be deleted.

    Returns:
        The keys: those of the newest versions first, so that an interrupted one can be continued.

    Raises:
        InvalidInput: what lies there is another program's.
    """
    listing = list_delta(session.store)
    check_publisher(session, listing, InvalidInput)  # against strangers-log-deleted
    doomed = tuple(_published_keys(session))
    if run and doomed:
        session.store.delete(doomed)
    return doomed


def _published_keys(session: Session) -> Iterator[str]:
    for prefix in _PREFIXES:
        yield from sorted((row.key for row in session.store.list(prefix)), reverse=True)


def behind_horizon(session: Session, horizon: int) -> str:
    """Return the warning of a publication that ends below the horizon, with what mends it."""
    advice = f"{command('publish', _FORMAT, session.uri)} publishes it"
    try:
        DeltaPublisher(session, writes=False).check(horizon)
    except InvalidInput as error:
        advice = f"{command('unpublish', _FORMAT, session.uri, '--run')} takes these back, since "
        advice += error.message
    return (
        f"version {horizon} is not published as Delta, but older ones are: its readers miss files "
        f"that were deleted; {advice}"
    )


def cut_delta(session: Session, horizon: int, *, run: bool) -> tuple[tuple[str, int], ...]:
    """Delete what is published of the versions below a horizon, or only return it.

    The checkpoint of the horizon is put first, so that the versions from there on stay readable. If
    nothing is published of older versions, this costs one LIST.

    Args:
        session: of the table.
        horizon: a version that is kept.
        run: whether anything is changed.

    Returns:
        The keys and sizes of the objects, in the order of their deletion.
    """
    store = session.store
    below = takewhile(lambda row: row.key < _lowest_key(horizon), store.list(_LOG))
    # Checkpoints first: what is left of an interrupted cut has no gap.
    doomed = sorted(
        (not parsed[1], row.key, row.size)
        for row in below
        if (parsed := parse_delta_key(row.key)) and parsed[0] < horizon
    )
    if not doomed:
        return ()
    try:
        kept = delta_commits.publisher_of(store.get(delta_commits.delta_commit_key(horizon)))
    except KeyNotFound:
        logger.warning("%s", behind_horizon(session, horizon))
        return ()
    snapshot = session.snapshot(horizon)
    # against strangers-log-cut
    if kept != (snapshot.header.table, snapshot.commit_hash):
        return ()
    if run:
        publisher = DeltaPublisher(session)
        publisher.put_checkpoint(snapshot)  # against cut-without-a-checkpoint
        store.delete([key for _, key, _ in doomed])
        # Another publisher may have named one that is deleted now.
        publisher.mend_hint()  # against cut-leaves-a-lost-hint
    return tuple((key, size) for _, key, size in doomed)


def _lowest_key(version: int) -> str:
    """Return a key that is above all of the versions below one, and below those from it on."""
    return f"{_LOG}{version:020d}"
