"""Publishes versions of a table as snapshots of an Iceberg table: list, decide, put.

Everything under `metadata/` is a function of the log, so that publishers may run side by side, and
a killed one is followed by another. The hint comes last: it is the only object that is replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog.display import command
from eventlog.errors import InvalidInput, KeyNotFound, VersionNotReplicated
from eventlog.format.frames.entry_columns import to_segments
from eventlog.log.history import written_schema
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema
from eventlog.model.records import Transaction
from eventlog.publishing import versions
from eventlog.publishing.iceberg.iceberg_removal import check_owner
from eventlog.publishing.iceberg.manifest_publisher import (
    BARRIER,
    BARRIER_BODY,
    HINT,
    PREFIX,
    ManifestPublisher,
    PublishedObjects,
    hint_body,
    mend_hint,
    metadata_key,
    parse_metadata_key,
    stranger_error,
)
from eventlog.publishing.iceberg.translation.iceberg_schema import (
    has_wall_times,
    partition_specs,
    schema_problem,
    spec_of,
    to_iceberg,
    widened_times,
)
from eventlog.publishing.iceberg.translation.manifest_records import Translation
from eventlog.publishing.iceberg.translation.table_metadata import (
    MAIN,
    VERSION_PROPERTY,
    PublishedSnapshot,
    listed_versions,
    metadata_bytes,
    operation_of,
    published_snapshots,
    snapshot_id,
    tags_of,
)
from eventlog.publishing.positions import ShownRows, published_schema, shows_stored_rows
from eventlog.publishing.publication import Publication, always, engine_root
from eventlog.session.session import Session
from eventlog.state.small.holds import check_kept
from eventlog.state.small.timing import effective_time
from eventlog.store.branching.roots import held_from, root_of
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore

FORMATS = (2, 3)
_SCHEMES = ("s3", "s3a", "s3n")
_UNSAFE = re.compile(r"[%#?\x00-\x1f]")


class IcebergPublisher:
    """A publisher of one table. Not safe to use from several threads.

    Args:
        session: of the table.
        scheme: of the URIs, for a table in S3: `s3`, `s3a` or `s3n`; None: as it was published
            before, else that of the table's own URI.
        format_version: of Iceberg: 2 or 3; None: as it was published before, else 2.

    Raises:
        Corrupt: another program wrote under `metadata/`.
        InvalidInput: an argument is wrong, or differs from that of the publication that is there;
            or that is of another table.
    """

    def __init__(
        self,
        session: Session,
        *,
        scheme: str | None = None,
        format_version: int | None = None,
        objects: PublishedObjects | None = None,
    ) -> None:
        if scheme is not None and scheme not in _SCHEMES:
            raise InvalidInput(f"scheme {scheme!r} is not one of {', '.join(_SCHEMES)}")
        if format_version is not None and format_version not in FORMATS:
            raise InvalidInput(f"Iceberg's format version {format_version!r} is not 2 or 3")
        self._session, self._store, self._log = session, session.store, session.log
        self._uri = session.uri
        # Before the newest version is read: others publish what is committed meanwhile.
        sizes = {row.key: row.size for row in session.store.list(PREFIX)}
        head = session.refresh()
        self._uuid = _uuid(session.store, head.header.table)
        for key, size in sizes.items():
            # Writes that were refused leave other objects, and empty metadata: no reader sees them.
            # against metadata-of-a-stranger-not-noticed
            other = key.endswith(".metadata.json") and parse_metadata_key(key) is None
            if other and size and key != BARRIER:
                check_owner(session, sizes)
                raise stranger_error(self._uri, key)
        self.published = {v for key in sizes if (v := parse_metadata_key(key)) is not None}
        if self.published and max(self.published) > head.version:
            check_owner(session, sizes)
            raise stranger_error(self._uri, metadata_key(max(self.published)))
        before, self._newest = self._newest_metadata()
        self.location = _location(session.store, scheme or _scheme_of(before))
        self.format_version = format_version or before.get("format-version", 2)
        self._check_same(before)
        self._shown = ShownRows(session.store)
        there = objects or PublishedObjects(session, sizes)
        self._manifests = ManifestPublisher(session, there, self._shown)
        rule = head.merge_rule
        self._makes_rows = rule is not None and not shows_stored_rows(rule)
        self._made: dict[int, bool] = {}
        self._snapshots: dict[int, PublishedSnapshot | str] = {}
        self._oldest = max(head.meta.horizon, held_from(self._store.forks))
        self._horizon = head.meta.horizon
        self._written: dict[int, Schema | None] = {}

    def is_current(self) -> bool:
        """Return whether what this publisher knows of the objects holds still. Two small GETs.

        It does not after a vacuum raised the horizon, nor once the publication was taken back.
        """
        if self._session.refresh().meta.horizon != self._horizon:
            return False
        try:
            self._store.get(metadata_key(max(self.published, default=0)), length=1)
        except KeyNotFound:
            return False
        return True

    def publish(
        self,
        first: int | None = None,
        last: int | None = None,
        more: Callable[[], bool] = always,
    ) -> Publication:
        """Publish versions, those that are published already left out.

        Args:
            first: the first one. None: the one after the newest that is published, or the oldest
                that vacuum keeps.
            last: the last one; None: the newest.
            more: asked before each further version; the rest is left out if it returns False.

        Raises:
            Corrupt: an object of another program is in the way, or the log is damaged.
            InvalidInput: Iceberg cannot say a version, and why; those below it are published. Or
                there are very many versions, and no `first`.
            Unavailable: the store does not answer; what was published is whole.
            VersionNotFound: there is no version `last`.
            VersionNotReplicated: this copy lacks a version.
            VersionVacuumed: rows of the versions are gone.
        """
        self._compare_newest()
        wanted = self._wanted(first, last)
        new = [version for version in wanted if version not in self.published]
        put, reached = 0, max(self.published, default=-1)
        if BARRIER not in self._manifests.objects.sizes:  # against dropped-with-its-directory
            self._manifests.objects.put(BARRIER, BARRIER_BODY, bytes.__eq__)
        try:
            for version in new:
                if put and not more():
                    break
                reached = max(reached, version)
                if version != last and self._is_left_out(version):
                    continue
                self._publish(version)
                put += 1
        finally:
            self._put_hint(changed=put > 0)
        if not self.published:
            self.expected(wanted[-1])  # raises
        first, newest = min(self.published), max(self.published)
        behind = max(0, reached - newest)
        spans = tuple(_successive(self.published))
        return Publication(self._uri, "iceberg", first, newest, put, self.location, behind, spans)

    def _wanted(self, first: int | None, last: int | None) -> range:
        head, held = self._session.refresh(), held_from(self._store.forks)
        self._oldest = max(head.meta.horizon, held)
        target = head.version if last is None else last
        if first is None:
            # against vacuumed-versions-published
            first = max(max(self.published, default=-1) + 1, self._oldest)
            if not self.published:
                first = max(versions.first_publishable(self._log, head), held)
                versions.check_count(first, target, self._uri, "iceberg")
        elif first > target:
            raise InvalidInput(
                f"version {first} is above the last one, {target}: choose an older first one",
                table=self._uri,
            )
        for version in (min(first, target), target):
            check_kept(head.meta, head.version, version, self._uri, held=held)
        return range(first, target + 1)

    def passed_over(self) -> Iterator[range]:
        """Yield the versions between published ones that could be published, and are not."""
        low, high = min(self.published, default=0), max(self.published, default=0)
        missing = [v for v in range(max(self._oldest, low), high) if v not in self.published]
        there = [
            found.version
            for found in map(self._there, missing)
            # against refused-version-called-lost
            if found is not None and self._problem(found) is None
        ]
        yield from (range(first, last + 1) for first, last in _successive(there))

    def spans(self) -> list[tuple[int, int]]:
        """Return the published versions that vacuum keeps, as the calls that publish them again.

        Each is the first and the last version of a call: none can pass over one that is refused.
        """
        kept = sorted(version for version in self.published if version >= self._oldest)
        found: list[tuple[int, int]] = []
        for version in kept:
            first, last = found[-1] if found else (version, version)
            # against refused-version-in-the-way
            if any(map(self._ends, range(last + 1, version))):
                found.append((version, version))
            else:
                found[-1:] = [(first, version)]
        return found

    def options(self) -> tuple[str, ...]:
        """Return the options of `eventlog publish` that give a publication the form of this one."""
        found = () if self.format_version == FORMATS[0] else ("--format-version", "3")
        scheme, own = _scheme_of({"location": self.location}), _scheme_of({"location": self._uri})
        return found if scheme == own else (*found, "--scheme", str(scheme))

    def _ends(self, version: int) -> bool:
        """Return whether a call that publishes a version ends there with an error."""
        found = self._there(version)
        return found is None or (self._problem(found) is not None and not self._is_made(found))

    def is_published(self, version: int, body: bytes) -> bool:
        """Return whether bytes are the metadata file of a version; as `expected` otherwise.

        A copy may have got older versions since then, which the file does not list.
        """
        if body == self.expected(version):
            return True
        try:
            listed = {s["sequence-number"] for s in published_snapshots(json.loads(body))}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        return body == self.expected(version, listed)

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
        snapshot = self._resolved(version)
        own = self._snapshot(snapshot, put=True)
        if isinstance(own, str):
            raise InvalidInput(
                f"version {version} cannot be published to Iceberg: {own}. Later versions that can "
                "are published with `--from`",
                table=self._uri,
                version=version,
            )
        older = listed_versions(snapshot.meta, version, held_from(self._store.forks))[:-1]
        for found in each(self._there, [v for v in older if v not in self._snapshots]):
            if found is not None:
                self._snapshot(found, put=found.version >= self._oldest)
        known = (self._snapshots.get(v) for v in older if listed is None or v in listed)
        return self._metadata(snapshot, [*(s for s in known if isinstance(s, tuple)), own])

    def _publish(self, version: int) -> None:
        body = self.expected(version)
        self._manifests.objects.put(metadata_key(version), body, bytes.__eq__)
        self.published.add(version)

    def _resolved(self, version: int) -> Snapshot:
        return self._log.snapshot(version)

    def _there(self, version: int) -> Snapshot | None:
        """Return an older version; None where a copy lacks it."""
        try:
            return self._resolved(version)
        except VersionNotReplicated:
            return None

    def _snapshot(self, snapshot: Snapshot, *, put: bool) -> PublishedSnapshot | str:
        """Return a version as a snapshot, or why Iceberg cannot say it."""
        version = snapshot.version
        known = self._snapshots.get(version)
        if known is None:
            known = self._problem(snapshot) or self._described(snapshot, put=put)
            self._snapshots[version] = known
        return known

    def _described(self, snapshot: Snapshot, *, put: bool) -> PublishedSnapshot:
        stored = published_schema(snapshot)
        shown = to_iceberg(stored, self.format_version)
        form = Translation.of(
            stored, _time_column(snapshot), shown, self._place, self.format_version
        )
        uri, deletes = self._manifests.manifest_list(snapshot, form, put=put)
        return PublishedSnapshot(
            snapshot.version, snapshot.header.time, uri, stored, self._facts(snapshot, deletes)
        )

    def _facts(self, snapshot: Snapshot, deletes: int | None) -> Mapping[str, str]:
        """Return the summary of a snapshot; without totals if the deletes are not known."""
        changes, totals = snapshot.header.changes, snapshot.totals
        deleted = 0 if isinstance(totals.deleted, UnsetType) else totals.deleted
        taken: Sequence[Transaction] = ()
        if changes.drops and changes.adds:
            taken = self._log.taken(self._log.read_below(snapshot.version)[0])
        numbers = {
            "added-data-files": changes.adds,
            "deleted-data-files": changes.drops,
        }
        counts = {
            "total-data-files": totals.segments,
            "total-records": totals.rows + deleted,
            "total-files-size": totals.bytes,
            "total-delete-files": deletes or 0,
            "total-position-deletes": deleted,
            "total-equality-deletes": 0,
        }
        if deletes is not None:
            numbers |= counts
        operation = operation_of(changes, taken)
        if deletes is None and operation == "append" and changes.adds:
            operation = "overwrite"  # the rows may have the keys of others
        return {
            "operation": operation,
            **{name: str(number) for name, number in numbers.items()},
            VERSION_PROPERTY: str(snapshot.version),
            "eventlog.operation": changes.operation,
        }

    def _problem(self, snapshot: Snapshot) -> str | None:
        """Return why Iceberg cannot say a version so that all its readers agree, or None."""
        stored, layout = snapshot.stored_schema, snapshot.meta.layout
        if layout is None:
            return "it has no layout"
        if self._is_made(snapshot):  # against made-rows-in-iceberg
            return (
                "its readers are shown rows that are merged of several stored ones: compact the "
                "table, and publish the version that this makes"
            )
        if MAIN in tags_of(snapshot.meta):
            advice = f"pin under another name than that, and {command('unpin', self._uri, MAIN)}"
            return f"Iceberg calls the newest version {MAIN!r}: {advice}"
        problem = schema_problem(stored, self.format_version)
        if problem is None and self.format_version < 3 and has_wall_times(stored):
            problem = self._widened(snapshot)
        return problem

    def _is_left_out(self, version: int) -> bool:
        """Return whether a version that was not asked for by its number is not published."""
        if self._makes_rows and version not in self._made:
            self._made[version] = self._is_made(self._resolved(version))
        return self._made.get(version, False)

    def _is_made(self, snapshot: Snapshot) -> bool:
        """Return whether a version may show rows that are stored nowhere."""
        return self._makes_rows and any(chunk.merged for chunk in self._shown.slices(snapshot))

    def _widened(self, snapshot: Snapshot) -> str | None:
        """Return why segments with dates cannot be read as ones with timestamps, or None."""
        entries = snapshot.entries()
        numbers, stored = entries.column("schema"), snapshot.stored_schema
        for number in sorted(n for n in numbers.unique().to_pylist() if n < stored.id):
            if number not in self._written:
                one = entries.filter(pc.equal(numbers, number)).slice(length=1)
                self._written[number] = written_schema(self._log, to_segments(one)[0])
            before = self._written[number]
            name = None if before is None else widened_times(before, stored)
            if before is None or name is not None:
                what = "a column" if name is None else f"column {name!r}"
                return (
                    f"segments have {what} as a date that is a timestamp now, which Iceberg allows "
                    "from format version 3 on: compact the table, or publish with format version 3"
                )
        return None

    def _metadata(self, snapshot: Snapshot, listed: list[PublishedSnapshot]) -> bytes:
        stored, meta = published_schema(snapshot), snapshot.meta
        time_column = _time_column(snapshot)
        types = {column.id: column.type for column in stored.columns}
        schemas = {s.schema.id: s.schema for s in listed}
        assert meta.layout is not None  # noqa: S101
        return metadata_bytes(
            listed,
            location=self.location,
            table_uuid=self._uuid,
            format_version=self.format_version,
            schemas=[to_iceberg(schemas[i], self.format_version) for i in sorted(schemas)],
            specs=partition_specs(stored, time_column),
            default_spec=spec_of(meta.layout.granularity, types[time_column]),
            times={s.version: effective_time(meta.clock, s.version, s.time) for s in listed},
            tags=tags_of(meta),
        )

    def _place(self, key: str) -> str:
        store = self._store
        if key.startswith(PREFIX) or not store.forks:
            return f"{self.location}/{key}"
        return f"{_root(root_of(store, key), self.location)}/{key}"

    def _newest_metadata(self) -> tuple[dict[str, Any], bytes]:
        if not self.published:
            return {}, b""
        version = max(self.published)
        key = metadata_key(version)
        body = self._store.get(key)
        try:
            found = json.loads(body)
            ours = found["properties"][VERSION_PROPERTY] == str(version) and found[
                "current-snapshot-id"
            ] == snapshot_id(version)
        except (ValueError, KeyError, TypeError, RecursionError):
            ours = False
        if not ours:  # against metadata-of-a-stranger-taken-for-ours
            check_owner(self._session, map(metadata_key, self.published))
            raise stranger_error(self._uri, key)
        return dict(found), body

    def _compare_newest(self) -> None:
        """Check, once, that the newest metadata is that of this log.

        It is not where a table was restored from an older copy, and went on.
        """
        body, self._newest = self._newest, b""
        version = max(self.published, default=-1)
        # against publication-of-another-history
        if body and version >= self._oldest and not self.is_published(version, body):
            raise stranger_error(self._uri, metadata_key(version))

    def _check_same(self, before: Mapping[str, Any]) -> None:
        """Check that what is published is of this table, in the same form and at this place."""
        advice = f"{command('unpublish', 'iceberg', self._uri, '--run')} removes it"
        facts = {
            "the table": ("table-uuid", self._uuid),
            "the place, or its scheme": ("location", self.location),
            "the format version": ("format-version", self.format_version),
        }
        for what, (name, value) in facts.items():
            if before and before.get(name) != value:  # against publication-of-another-table
                raise InvalidInput(
                    f"{what} of the publication under `metadata/` is another one "
                    f"({before.get(name)}, not {value}): {advice}",
                    table=self._uri,
                )

    def _put_hint(self, *, changed: bool) -> None:
        if not self.published:
            return
        wanted = hint_body(max(self.published))
        store = self._store
        if not changed:
            try:
                if store.get(HINT, length=20) == wanted:
                    return
            except KeyNotFound:
                pass
        store.put_hint(HINT, wanted)
        # A vacuum deletes versions before it puts a hint, which this one may have replaced.
        mend_hint(store)  # against iceberg-hint-after-a-vacuum


def _successive(versions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of successive ones of some versions."""
    for _, run in groupby(enumerate(sorted(versions)), lambda pair: pair[1] - pair[0]):
        successive = [version for _, version in run]
        yield successive[0], successive[-1]


def _time_column(snapshot: Snapshot) -> int:
    assert snapshot.meta.layout is not None  # noqa: S101 - `_problem` comes first
    return snapshot.meta.layout.time_column


def _uuid(store: ObjectStore, table: str) -> str:
    """Return the id of a table, or of a branch, in the form of a UUID."""
    forks = store.forks
    digits = forks[0].id if forks else table
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _location(store: ObjectStore, scheme: str | None) -> str:
    """Return the root URI of a table's own objects, as engines take it."""
    own = engine_root(store, PREFIX)
    kind, _, rest = own.partition("://")
    if kind != "file" and scheme is not None and kind not in _SCHEMES:
        raise InvalidInput(f"a table at {kind}:// has no other scheme: leave it out")
    if _UNSAFE.search(own):
        raise InvalidInput(
            f"engines read the URI {own!r} in different ways: publish a table whose path has no "
            "'%', '#' or '?'",
            table=store.uri,
        )
    return f"{scheme}://{rest}" if scheme and kind != "file" else own


def _root(root: str, location: str) -> str:
    """Return the root URI of objects of a branch's parent in the form of a location."""
    kind, _, rest = root.partition("://")
    return f"{location.partition('://')[0]}://{unquote(rest) if kind == 'file' else rest}"


def _scheme_of(before: Mapping[str, Any]) -> str | None:
    scheme = str(before.get("location", "")).partition("://")[0]
    return scheme if scheme in _SCHEMES else None
