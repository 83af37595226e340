"""Versions of one table as Iceberg describes them: reads what the description of a version needs.

The manifests and deletes that it names are put on the way, or compared (`PublishedObjects`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog.errors import (
    Corrupt,
    InvalidInput,
    KeyNotFound,
    VersionCut,
    VersionNotReplicated,
)
from eventlog.format import keys
from eventlog.format.frames.entry_columns import to_segments
from eventlog.inline import inline_objects
from eventlog.log.history import written_schema
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema
from eventlog.model.records import Commit, Transaction, cut_of
from eventlog.publishing.iceberg.iceberg_listing import IcebergListing
from eventlog.publishing.iceberg.iceberg_plan import (
    may_be_widened,
    version_problem,
    widening_problem,
)
from eventlog.publishing.iceberg.manifest_publisher import (
    PREFIX,
    ManifestPublisher,
    PublishedObjects,
    read_avro,
)
from eventlog.publishing.iceberg.translation.avro_files import (
    DELETES,
    EntryRecord,
    ManifestRecord,
    Record,
)
from eventlog.publishing.iceberg.translation.iceberg_schema import (
    partition_specs,
    spec_of,
    to_iceberg,
)
from eventlog.publishing.iceberg.translation.manifest_records import Translation
from eventlog.publishing.iceberg.translation.table_metadata import (
    MetadataFile,
    PublishedSnapshot,
    listed_versions,
    metadata_bytes,
    summary_of,
    tags_of,
    without_versions,
)
from eventlog.publishing.positions import ShownRows, published_schema, shows_stored_rows
from eventlog.publishing.versions import inline_entries
from eventlog.session.session import Session
from eventlog.state.small.timing import effective_time
from eventlog.store.branching.roots import held_from, root_of
from eventlog.store.parallel import Executors, each
from eventlog.store.retry import retrying


class IcebergVersions:
    """The versions of one table as Iceberg describes them.

    Args:
        session: of the table.
        listing: what is published.
        objects: those that are put, or compared.
        executors: merge the keys of a keyed table; None: this process does.

    Attributes:
        oldest: the oldest version that vacuum keeps; what only older ones need is not put.
    """

    def __init__(
        self,
        session: Session,
        listing: IcebergListing,
        objects: PublishedObjects,
        executors: Executors | None = None,
    ) -> None:
        self._uri, self._store, self._log = session.uri, session.store, session.log
        self._form = listing.form
        self._shown = ShownRows(session.store, executors)
        self._manifests = ManifestPublisher(session, objects, self._shown)
        rule = listing.head.merge_rule
        self._makes_rows = rule is not None and not shows_stored_rows(rule)
        self._made: dict[int, bool] = {}
        self._snapshots: dict[int, PublishedSnapshot | str] = {}
        self._written: dict[int, Schema | None] = {}
        self._asked: tuple[Commit, Snapshot] | None = None
        self._inline: tuple[int, pa.ChunkedArray | None] = (-1, None)  # a version, its inline ids
        self._put = retrying(session.clock)
        self._held = held_from(session.store.forks)
        self.oldest = max(listing.head.meta.horizon, self._held)
        self._cut = cut_of(listing.head.meta)

    def is_published(self, version: int, body: bytes) -> bool:
        """Return whether bytes are the metadata file of a version; as `expected` otherwise.

        A copy may have got older versions since then, which the file does not list. It may list
        versions that the log was cut above since then: those are not compared. The version of the
        cut may be described as it was before, from the key frame that is gone.
        """
        try:
            lists = {
                one.sequence_number: one.manifest_list for one in MetadataFile.of(body).versions
            }
            self._describe_cut(lists.get(self._cut))
        except Corrupt:
            return False
        if body == self.expected(version):
            return True
        try:
            # against publication-of-a-cut-log-refused
            gone = {number for number in lists if number < self._cut}
            left = without_versions(body, gone)
        except Corrupt:
            return False
        return left == self.expected(version, lists.keys() - gone)

    def expected(self, version: int, listed: Collection[int] | None = None) -> bytes:
        """Return the metadata file of a version; puts what it names, unless that is there.

        What only vacuumed versions need is not put.

        Args:
            version: the version.
            listed: the versions that it may list; None: all.

        Raises:
            Corrupt: an object of another program is in the way, or the log is damaged.
            InvalidInput: Iceberg cannot say the version, and why.
            Unavailable: the store does not answer.
        """
        commit, body = self._log.read_below(version)
        snapshot = self._log.resolve(commit, body)
        own = self._snapshot(snapshot, put=True)
        self._asked = (commit, snapshot)
        if isinstance(own, str):
            raise InvalidInput(
                f"version {version} cannot be published to Iceberg: {own}. Later versions that can "
                "are published with `--from`",
                table=self._uri,
                version=version,
            )
        older = listed_versions(snapshot.meta, version, self._held)[:-1]
        for found in each(self.there, [v for v in older if v not in self._snapshots]):
            if found is not None:
                self._snapshot(found, put=found.version >= self.oldest)
        known = (self._snapshots.get(v) for v in older if listed is None or v in listed)
        return self._metadata(snapshot, [*(s for s in known if isinstance(s, tuple)), own])

    def put_segments(self, below: int | None) -> None:
        """Put what a version names and commits have, unless a published one names it already.

        What both have live was live in all versions between, and a vacuum leaves it. The version is
        the one that `expected` was asked for last.

        Args:
            below: the newest published version below it; None: there is none.

        Raises:
            Corrupt: another object is at the key of a segment, or the log is damaged.
            KeyNotFound: bytes of a segment are nowhere.
            Unavailable: the store does not answer.
        """
        if self._asked is None:
            return
        commit, snapshot = self._asked
        named = inline_entries(snapshot)
        new = named
        if below is not None and below != self._inline[0]:
            found = self.there(below) if named.num_rows else None
            self._inline = (below, None if found is None else inline_entries(found).column("id"))
        if below is not None and self._inline[1] is not None:
            known = pc.is_in(named.column("id"), value_set=self._inline[1])
            new = named.filter(pc.invert(known))
        # against iceberg-without-objects
        segments = to_segments(new)
        inline_objects.remember_committed(commit, segments)
        self._put(inline_objects.put_at_keys, self._store, segments)
        self._inline = (snapshot.version, named.column("id"))

    def there(self, version: int) -> Snapshot | None:
        """Return an older version; None where it was cut off, or a copy lacks it."""
        try:
            return self._log.snapshot(version)
        except (VersionCut, VersionNotReplicated):
            return None

    def problem(self, snapshot: Snapshot) -> str | None:
        """Return why Iceberg cannot say a version so that all its readers agree, or None."""
        is_made = snapshot.meta.layout is not None and self.is_made(snapshot)
        version = self._form.format_version
        found = version_problem(snapshot, version, self._uri, is_made=is_made)
        if found is None and may_be_widened(snapshot.stored_schema, version):
            return self._widened(snapshot)
        return found

    def is_left_out(self, version: int) -> bool:
        """Return whether a version that was not asked for by its number is not published."""
        if self._makes_rows and version not in self._made:
            self._made[version] = self.is_made(self._log.snapshot(version))
        return self._made.get(version, False)

    def is_made(self, snapshot: Snapshot) -> bool:
        """Return whether a version may show rows that are stored nowhere."""
        return self._makes_rows and any(chunk.merged for chunk in self._shown.slices(snapshot))

    def _snapshot(self, snapshot: Snapshot, *, put: bool) -> PublishedSnapshot | str:
        """Return a version as a snapshot, or why Iceberg cannot say it."""
        version = snapshot.version
        known = self._snapshots.get(version)
        if known is None:
            known = self.problem(snapshot) or self._described(snapshot, put=put)
            self._snapshots[version] = known
        return known

    def _describe_cut(self, published: str | None) -> None:
        """Describe the version of the cut by a manifest list that was published before the cut.

        Since then it opens over its own key frame, from whose leaves other manifests are made. They
        list the same files, or the list that is published is another one, which does not count.

        Args:
            published: the URI of its manifest list; None: it is not listed.
        """
        # The one of before may be of another file, which was published before or after the cut.
        self._snapshots.pop(self._cut, None)
        cut = self.there(self._cut) if self._cut and published is not None else None
        if published is None or cut is None or cut.base is None or cut.base.version != cut.version:
            return
        if self.problem(cut) is not None:
            return
        own = self._described(cut, put=False)
        if own.manifest_list != published and self._lists_its_files(published, cut):
            # against publication-at-the-cut-refused
            self._snapshots[cut.version] = own._replace(manifest_list=published)

    def _lists_its_files(self, manifest_list: str, snapshot: Snapshot) -> bool:
        """Return whether the data files of a manifest list are those of a version."""
        start = len(self._form.location) + 1

        def read(uri: str, kind: type[Record]) -> list[Record]:
            return read_avro(self._store, uri[start:], kind)

        try:
            manifests = read(manifest_list, ManifestRecord)
            found = [
                (record.content, entry.data_file.file_path)
                for record in manifests
                for entry in read(record.manifest_path, EntryRecord)
            ]
        except (Corrupt, KeyNotFound):
            return False
        files = sorted(path for content, path in found if content != DELETES)
        keyed = snapshot.merge_rule is not None
        slices = self._shown.slices(snapshot) if keyed else ()
        unread = {segment.id for chunk in slices for segment in chunk.unread}
        segments = (s for s in to_segments(snapshot.entries()) if s.id not in unread)
        return files == sorted(self._place(keys.key_of(segment)) for segment in segments)

    def _described(self, snapshot: Snapshot, *, put: bool) -> PublishedSnapshot:
        stored, form = published_schema(snapshot), self._form
        shown = to_iceberg(stored, form.format_version)
        translation = Translation.of(
            stored, _time_column(snapshot), shown, self._place, form.format_version
        )
        uri, deletes = self._manifests.manifest_list(snapshot, translation, put=put)
        changes = snapshot.header.changes
        taken: Sequence[Transaction] = ()
        if changes.drops and changes.adds:
            taken = self._log.taken(self._log.read_below(snapshot.version)[0])
        facts = summary_of(snapshot.version, changes, snapshot.totals, taken, deletes=deletes)
        return PublishedSnapshot(snapshot.version, snapshot.header.time, uri, stored, facts)

    def _metadata(self, snapshot: Snapshot, listed: list[PublishedSnapshot]) -> bytes:
        stored, meta, form = published_schema(snapshot), snapshot.meta, self._form
        time_column = _time_column(snapshot)
        time_type = next((c.type for c in stored.columns if c.id == time_column), None)
        schemas = {s.schema.id: s.schema for s in listed}
        assert meta.layout is not None  # noqa: S101
        return metadata_bytes(
            listed,
            location=form.location,
            table_uuid=form.table_uuid,
            format_version=form.format_version,
            schemas=[to_iceberg(schemas[i], form.format_version) for i in sorted(schemas)],
            specs=partition_specs(stored, time_column),
            default_spec=spec_of(meta.layout.granularity, time_type),
            times={s.version: effective_time(meta.clock, s.version, s.time) for s in listed},
            tags=tags_of(meta),
            sorted_by=_sorted_by(stored, time_column),
        )

    def _place(self, key: str) -> str:
        if key.startswith(PREFIX) or not self._store.forks:
            return f"{self._form.location}/{key}"
        return self._form.uri_below(root_of(self._store, key), key)

    def _widened(self, snapshot: Snapshot) -> str | None:
        """Return why segments with dates cannot be read as ones with timestamps, or None."""
        entries = snapshot.entries()
        numbers, stored = entries.column("schema"), snapshot.stored_schema
        for number in sorted(n for n in numbers.unique().to_pylist() if n < stored.id):
            if number not in self._written:
                one = entries.filter(pc.equal(numbers, number)).slice(length=1)
                self._written[number] = written_schema(self._log, to_segments(one)[0])
            problem = widening_problem(self._written[number], stored)
            if problem is not None:
                return problem
        return None


def _sorted_by(stored: Schema, time_column: int | None) -> int | None:
    """Return the id of the time column, or of the first one that has an order; None: none has."""
    plain = (column.id for column in stored.columns if isinstance(column.type, str))
    return next(plain, None) if time_column is None else time_column


def _time_column(snapshot: Snapshot) -> int | None:
    assert snapshot.meta.layout is not None  # noqa: S101 - `problem` comes first
    number = snapshot.meta.layout.time_column
    return None if isinstance(number, UnsetType) else number
