"""Publishes versions as Delta, and takes a publication back: list, decide, put.

What lies there is the only state. Objects are put if absent, in order, so that a publisher that was
killed is continued by any other, and several at once do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from msgspec import UnsetType

from eventlog.display import command
from eventlog.errors import Corrupt, InvalidInput, KeyNotFound, VersionNotFound
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.keyed.rule import keyed_of
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema, Segment
from eventlog.publishing import versions
from eventlog.publishing.delta import checkpoints, delta_commits, written_names
from eventlog.publishing.delta.delta_commits import parse_delta_key, vector_name
from eventlog.publishing.delta.delta_schema import check_types
from eventlog.publishing.delta.delta_vectors import VECTORS_PREFIX, DeltaVector
from eventlog.publishing.publication import Publication
from eventlog.publishing.versions import VersionStep
from eventlog.segments.vectors import fetch_bitmap
from eventlog.session.session import Session
from eventlog.state.small.holds import check_kept
from eventlog.store.retry import retrying

logger = logging.getLogger(__name__)

_FORMAT = "delta"
_PREFIXES = (delta_commits.LOG_PREFIX, VECTORS_PREFIX)


@dataclass(frozen=True, slots=True)
class DeltaListing:
    """What lies in a Delta log.

    Attributes:
        commits: the published versions, ascending.
        checkpoints: the versions that have a checkpoint.
        others: the keys of objects that are no part of a publication.
        hinted: whether an object names the newest checkpoint.
    """

    commits: tuple[int, ...]
    checkpoints: frozenset[int]
    others: tuple[str, ...] = ()
    hinted: bool = False

    @property
    def gap(self) -> int | None:
        """The first version that is missing between the published ones; None if none is."""
        there = set(self.commits)
        return next(
            (v for v in range(self.first or 0, max(there, default=0)) if v not in there), None
        )

    @property
    def first(self) -> int | None:
        """Where the publication begins, also if it was interrupted there; None if there is none."""
        return min([*self.commits[:1], *self.checkpoints], default=None)


def list_delta(session: Session) -> DeltaListing:
    """Return what lies in the Delta log of a table. One LIST for each 1,000 objects.

    Raises:
        Unavailable: the store does not answer.
    """
    found: list[int] = []
    framed, others, hinted = set[int](), list[str](), False
    for row in session.store.list(delta_commits.LOG_PREFIX):
        parsed = parse_delta_key(row.key)
        if parsed is None:
            hinted |= row.key == checkpoints.HINT_KEY
            if row.key != checkpoints.HINT_KEY:
                others.append(row.key)
        elif parsed[1]:
            framed.add(parsed[0])
        else:
            found.append(parsed[0])
    return DeltaListing(tuple(found), frozenset(framed), tuple(others), hinted)


class DeltaPublisher:
    """Publishes the versions of one table as Delta.

    Args:
        session: of the table.
        writes: whether the objects of vectors are put; if not, nothing may be published.
    """

    def __init__(self, session: Session, *, writes: bool = True) -> None:
        self._session, self._store, self._log = session, session.store, session.log
        self._uri, self._writes = session.uri, writes
        self._written: dict[int, Schema | None] = {}
        self._put = retrying(session.clock)

    def publish(self, first: int | None, last: int | None) -> Publication:
        """Publish the versions up to `last`; see `eventlog.publishing.publish`."""
        head = self._session.refresh()
        if last is not None and last > head.version:
            self._session.snapshot(last)  # raises
        target = head.version if last is None else last
        self._check_table(head)
        listing = list_delta(self._session)
        start = self._start(listing, head, first, target)
        known = self._known(listing, head)
        begin = min(start if known is None else known, target)
        done = 0
        for step in versions.version_steps(self._log, begin, target):
            self._check_schema(step)
            version = step.after.version
            # A publisher that was killed may have put the checkpoint alone, without the hint.
            done_before = version in listing.checkpoints and listing.hinted
            due = checkpoints.is_due(version, start) and not done_before
            if due and version == start:
                self.put_checkpoint(step.after)  # before the commit, which is no table by itself
            if known is not None and version <= known:
                self._compare(step)
            else:
                self._put_step(step)
                done += 1
            if due and version > start:
                self.put_checkpoint(step.after)
        newest = target if known is None else max(known, target)
        return Publication(self._uri, _FORMAT, start, newest, done)

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
        if snapshot.version > self._hinted():  # against hint-of-an-older-checkpoint
            named = checkpoints.hint(snapshot.version, rows.num_rows, len(body))
            self._put(self._store.put_hint, checkpoints.HINT_KEY, named)

    def expected_rows(self, snapshot: Snapshot) -> pa.Table:
        """Return the rows of the checkpoint of a version."""
        segments = entry_columns.to_segments(snapshot.entries())
        vectors = self._vectors((keys.key_of(segment), segment) for segment in segments)
        return checkpoints.checkpoint_rows(snapshot, segments, vectors)

    def _hinted(self) -> int:
        """Return the version that the hint names; -1 if there is none."""
        try:
            return checkpoints.hinted_version(self._store.get(checkpoints.HINT_KEY))
        except KeyNotFound:
            return -1

    def expected(self, step: VersionStep) -> bytes:
        """Return Delta's commit of a version."""
        entries = (
            (exchange.key, entry)
            for exchange in step.exchanges
            for entry in (exchange.before, exchange.after)
            if entry is not None
        )
        return delta_commits.delta_commit(step, self._vectors(entries))

    def _check_table(self, head: Snapshot) -> None:
        """Refuse by name the tables that a Delta log cannot describe."""
        if self._store.forks:  # against branch-published-as-delta
            raise InvalidInput(
                "a branch is not published as Delta, whose readers find no segments outside of its "
                "root: publish it as Iceberg, or publish the branch into its parent with "
                f"{command('merge', self._uri)}",
                table=self._uri,
            )
        layout = head.meta.layout
        if layout is not None and keyed_of(layout) is not None:  # against keyed-published-as-it-is
            raise InvalidInput(
                "a keyed table is not published yet: its segments have rows that later ones "
                "replace. Copy its rows into a table without a key, and publish that",
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
        there = listing.first
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

    def _known(self, listing: DeltaListing, head: Snapshot) -> int | None:
        """Return the newest published version; None if none is.

        Raises:
            Corrupt: versions are missing between the published ones, or the table has not the
                newest one.
        """
        if not listing.commits:
            return None
        newest = listing.commits[-1]
        lost = listing.gap
        if lost is not None:  # against gap-in-a-publication
            raise Corrupt(
                f"version {lost} is missing in the publication, or another program wrote to it: "
                f"{self._taking_back()}, and publish again",
                table=self._uri,
                key=delta_commits.delta_commit_key(lost),
            )
        if newest > head.version:
            raise self._other(delta_commits.delta_commit_key(newest), newest)
        return newest

    def _put_step(self, step: VersionStep) -> None:
        key, body = delta_commits.delta_commit_key(step.after.version), self.expected(step)
        if not self._put(self._store.put_if_absent, key, body):
            self._compare(step, body)

    def _compare(self, step: VersionStep, body: bytes | None = None) -> None:
        """Check that a version is published as this log has it.

        Raises:
            Corrupt: it is not.
        """
        key = delta_commits.delta_commit_key(step.after.version)
        there = self._store.get(key)
        if there != (self.expected(step) if body is None else body):
            raise self._other(key, step.after.version, there, step.after.header.table)

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
            if self._writes and not vector.is_inline:  # before the action that names it
                self._put(self._store.put_if_absent, vector.key, vector.body())
        return found


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
    listing = list_delta(session)
    if listing.commits:
        lowest = session.store.get(delta_commits.delta_commit_key(listing.commits[0]))
        if delta_commits.publisher_of(lowest)[0] is None:  # against strangers-log-deleted
            raise InvalidInput(
                f"{session.uri}/{delta_commits.LOG_PREFIX} was not published by eventlog: nothing "
                "is deleted",
                table=session.uri,
                key=delta_commits.delta_commit_key(listing.commits[0]),
            )
    doomed = tuple(_published_keys(session))
    if run and doomed:
        session.store.delete(doomed)
    return doomed


def _published_keys(session: Session) -> Iterator[str]:
    for prefix in _PREFIXES:
        yield from sorted((row.key for row in session.store.list(prefix)), reverse=True)


def cut_delta(session: Session, horizon: int, *, run: bool) -> tuple[tuple[str, int], ...]:
    """Delete what is published of the versions below a horizon, or only return it.

    The checkpoint of the horizon is put first, so that the versions from there on stay readable. If
    nothing is published, this costs one LIST.

    Args:
        session: of the table.
        horizon: a version that is kept.
        run: whether anything is changed.

    Returns:
        The keys and sizes of the objects, in the order of their deletion.
    """
    listing = list_delta(session)
    first = listing.first
    if first is None or first >= horizon or not listing.commits or listing.gap is not None:
        return ()
    if listing.commits[-1] < horizon:
        logger.warning(
            "versions above %d are not published as Delta: its readers miss files that were "
            "deleted; %s publishes them",
            listing.commits[-1],
            command("publish", _FORMAT, session.uri),
        )
        return ()
    if run:
        publisher = DeltaPublisher(session)
        publisher.put_checkpoint(session.snapshot(horizon))  # against cut-without-a-checkpoint
    # Checkpoints first: what is left of an interrupted cut has no gap.
    doomed = sorted(
        (not parsed[1], row.key, row.size)
        for row in session.store.list(delta_commits.LOG_PREFIX)
        if (parsed := parse_delta_key(row.key)) and parsed[0] < horizon
    )
    if run and doomed:
        session.store.delete([key for _, key, _ in doomed])
    return tuple((key, size) for _, key, size in doomed)
