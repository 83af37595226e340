"""Versions of one table as Delta describes them: reads what the description of a version needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from msgspec import UnsetType

from eventlog.display import command
from eventlog.errors import InvalidInput, KeyNotFound
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.log.history import written_schema
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import cut_of
from eventlog.publishing import versions
from eventlog.publishing.delta import written_names
from eventlog.publishing.delta.delta_listing import has_checkpoint
from eventlog.publishing.delta.delta_plan import begun_again, check_table
from eventlog.publishing.delta.translation import checkpoints, delta_commits
from eventlog.publishing.delta.translation.delta_commits import LOG_PREFIX, vector_name
from eventlog.publishing.delta.translation.delta_schema import check_types
from eventlog.publishing.delta.translation.delta_vectors import DeltaVector
from eventlog.publishing.positions import ShownRows
from eventlog.publishing.publication import engine_root
from eventlog.publishing.versions import VersionStep
from eventlog.segments.vectors import fetch_bitmap
from eventlog.session.session import Session
from eventlog.store.parallel import Executors
from eventlog.store.retry import retrying


class DeltaVersions:
    """The versions of one table as Delta describes them.

    Args:
        session: of the table.
        writes: whether the objects of vectors are put; if not, nothing may be published.
        executors: merge the keys of a keyed table; None: this process does.

    Attributes:
        first: where the publication begins; None: it is not known yet.
        vector_sizes: the sizes of the objects of vectors that looked at versions name, by key, if
            they are not put.
    """

    def __init__(
        self, session: Session, *, writes: bool, executors: Executors | None = None
    ) -> None:
        self._session, self._store, self._log = session, session.store, session.log
        self._writes = writes
        self._shown = ShownRows(session.store, executors)
        self._written: dict[int, Schema | None] = {}
        self._put = retrying(session.clock)
        self.first: int | None = None
        self.vector_sizes: dict[str, int] = {}

    def begin(self, first: int, *, is_new: bool) -> None:
        """Note where the publication begins.

        Args:
            first: the first version.
            is_new: whether nothing of it is published yet.
        """
        self.first = first
        if is_new:
            self._written = {}

    def check_table(self, snapshot: Snapshot) -> None:
        """Refuse a table that a Delta log cannot describe.

        Raises:
            InvalidInput: it is one.
        """
        root = engine_root(self._store, LOG_PREFIX)
        check_table(snapshot, self._session.uri, root, is_branch=bool(self._store.forks))

    def problem(self, snapshot: Snapshot) -> str | None:
        """Return why a Delta log cannot describe a version, or None."""
        try:
            self.check_table(snapshot)
        except InvalidInput as error:
            return error.message
        if not written_names.is_evolved(snapshot.stored_schema):
            return None
        return self._read_problem(snapshot, entry_columns.to_segments(snapshot.entries()))

    def check_earlier(self, first: int, begun: int) -> None:
        """Refuse to begin a publication earlier, at a version from which on not all can be in it.

        One GET a version.

        Args:
            first: the version.
            begun: where the publication begins.

        Raises:
            InvalidInput: there is one, and at which version it can begin.
        """
        why, oldest = None, first
        for step in versions.version_steps(self._log, first, begun - 1):
            found = self.problem(step.after)
            if found is not None:
                why, oldest = found, step.after.version + 1
        if why is None:
            return
        advice = "as early as it can: leave out where it begins"
        if oldest < begun:
            advice = f"and can begin at {oldest}: {begun_again(self._session.uri, oldest)}"
        raise InvalidInput(
            f"{why}. The publication begins at version {begun}, {advice}", table=self._session.uri
        )

    def way_on(self) -> str:
        """Return what leads on where columns of a version cannot be published, as commands."""
        uri, head = self._session.uri, self._session.refresh()
        iceberg = f"the table as Iceberg: {command('publish', 'iceberg', uri)}"
        if self.problem(head) is None:  # against advice-that-delta-refuses
            return (
                f"Publish version {head.version}, the newest, and later ones: "
                f"{begun_again(uri, head.version)}. Or publish {iceberg}"
            )
        return (
            f"Publish {iceberg}. Or write all rows again by an `overwrite`, and publish from its "
            f"version on, N: {begun_again(uri, 'N')}"
        )

    def check_schema(self, step: VersionStep) -> None:
        """Refuse a version whose segments readers by name would read wrongly.

        Raises:
            InvalidInput: there is one, and what leads on.
        """
        snapshot, before = step.after, step.before
        schema, version = snapshot.stored_schema, snapshot.version
        check_types(schema)
        if not written_names.is_evolved(schema):
            return
        if before is not None and before.stored_schema == schema and self._written:
            entries = [exchange.after for exchange in step.exchanges if exchange.after]
        else:
            entries = entry_columns.to_segments(snapshot.entries())
        why = self._read_problem(snapshot, entries)
        if why is not None:
            first = version if self.first is None else self.first
            there = f". Versions {first} to {version - 1} are published" if first < version else ""
            raise InvalidInput(
                f"{why}{there}. {self.way_on()}", table=self._session.uri, version=version
            )

    def _read_problem(self, snapshot: Snapshot, entries: Iterable[Segment]) -> str | None:
        """Return why readers by name would read some segments of a version wrongly, or None."""
        newest = {entry.schema: entry for entry in sorted(entries, key=lambda e: e.epoch)}
        for number, entry in newest.items():
            if number not in self._written:
                self._written[number] = written_schema(self._log, entry)
        written = {number: self._written[number] for number in newest}
        return written_names.read_problem(snapshot.stored_schema, written, snapshot.version)

    def expected_rows(self, snapshot: Snapshot) -> pa.Table:
        """Return the rows of the checkpoint of a version."""
        entries = self._shown.entries(snapshot)
        vectors = {}
        if "vector_rows" in entries.column_names:
            marked = entries.filter(entries.column("vector_rows").is_valid())
            segments = entry_columns.to_segments(marked)
            vectors = self._vectors((keys.key_of(segment), segment) for segment in segments)
        return checkpoints.checkpoint_rows(snapshot, entries, vectors)

    def expected(self, step: VersionStep) -> bytes:
        """Return Delta's commit of a version.

        Raises:
            DataLoss: a segment of a keyed table is missing or damaged.
        """
        if self._is_begun(step):
            return delta_commits.beginning(step)
        step = self._shown.step(step)
        entries = (
            (exchange.key, entry)
            for exchange in step.exchanges
            for entry in (exchange.before, exchange.after)
            if entry is not None
        )
        return delta_commits.delta_commit(step, self._vectors(entries))

    def is_published(self, step: VersionStep, there: bytes, *, files: bool = True) -> bool:
        """Return whether bytes are Delta's commit of a version.

        The first version that vacuum keeps may name vectors which only the one before had. If these
        are gone, it is told by the ids that the commit has; and where the log is cut, its changes.

        Args:
            step: the version.
            there: the bytes.
            files: whether its actions of files are compared, too.

        Raises:
            DataLoss: a segment of a keyed table is missing or damaged.
            KeyNotFound: a vector of a version that is kept is missing.
        """
        begun = delta_commits.beginning(step)
        if there == begun:
            # against bare-commit-of-another-publisher-refused
            return self._is_begun(step) or self._may_begin_at(step.after)
        try:
            if not files or self._is_begun(step):
                bare = delta_commits.delta_commit(replace(step, exchanges=()), {})
                same = delta_commits.without_files(there) == bare
            else:
                same = there == self.expected(step)
            # against delta-of-a-cut-log-refused
            if same or not self._is_cut_below(step):
                return same
        except KeyNotFound:
            if not self.lacks_old_vectors(step):
                raise
        known = (step.after.header.table, step.after.commit_hash)
        return delta_commits.publisher_of(there) == known

    def _is_cut_below(self, step: VersionStep) -> bool:
        """Return whether the version before, and so what this one changes, was cut off."""
        return step.before is None and step.after.version == cut_of(self._session.refresh().meta)

    def lacks_old_vectors(self, step: VersionStep) -> bool:
        """Return whether the version names vectors that were vacuumed with the one before."""
        if step.after.version > self._session.refresh().meta.horizon or step.before is None:
            return False
        try:
            self._vectors((e.key, e.before) for e in step.exchanges if e.before is not None)
        except KeyNotFound:
            return True
        return False

    def _is_begun(self, step: VersionStep) -> bool:
        """Return whether the publication begins with a version, and its commit lacks files.

        That of the first version of a keyed table does: which rows the version before showed may be
        known no longer, and its checkpoint has all files.
        """
        version = step.after.version
        return version > 0 and version == self.first and step.after.merge_rule is not None

    def _may_begin_at(self, snapshot: Snapshot) -> bool:
        """Return whether a publisher may have begun at a version that is not the first one.

        As one does that a vacuum overtook, while another one publishes older versions still. Its
        checkpoint has all files, so that readers need none of the commit.
        """
        version = snapshot.version
        is_keyed = version > 0 and snapshot.merge_rule is not None
        return is_keyed and has_checkpoint(self._store, version)

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
