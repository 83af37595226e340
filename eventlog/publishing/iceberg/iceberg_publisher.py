"""Publishes versions of a table as snapshots of an Iceberg table: list, decide, put.

Everything under `metadata/` is a function of the log, so that publishers may run side by side, and
a killed one is followed by another. The hint comes last: it is the only object that is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from eventlog.errors import InvalidInput, KeyNotFound
from eventlog.publishing import versions
from eventlog.publishing.iceberg.iceberg_cut import put_lost_objects
from eventlog.publishing.iceberg.iceberg_listing import list_iceberg
from eventlog.publishing.iceberg.iceberg_versions import IcebergVersions
from eventlog.publishing.iceberg.manifest_publisher import (
    BARRIER,
    BARRIER_BODY,
    HINT,
    PREFIX,
    PublishedObjects,
    hint_body,
    mend_hint,
    metadata_key,
    parse_metadata_key,
    stranger_error,
)
from eventlog.publishing.publication import Publication, always, successive
from eventlog.session.session import Session
from eventlog.state.small.holds import check_kept
from eventlog.store.branching.roots import held_from
from eventlog.store.parallel import Executors


class IcebergPublisher:
    """A publisher of one table. Not safe to use from several threads.

    Args:
        session: of the table.
        scheme: of the URIs, for a table in S3: `s3`, `s3a` or `s3n`; None: as it was published
            before, else that of the table's own URI.
        format_version: of Iceberg: 2 or 3; None: as it was published before, else 2.
        executors: merge the keys of a keyed table; None: this process does.

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
        executors: Executors | None = None,
    ) -> None:
        self._session, self._store, self._uri = session, session.store, session.uri
        # Before all objects are listed, which is not one moment: see `_look_after`.
        versions_before = [parse_metadata_key(row.key) for row in session.store.list(f"{PREFIX}v")]
        listing = list_iceberg(session, scheme=scheme, format_version=format_version)
        oldest = min((v for v in versions_before if v is not None), default=0)
        self._listed_from = oldest if listing.sizes else listing.head.version
        self._location, self._newest = listing.form.location, listing.newest
        self._published = set(listing.published)
        self._horizon = listing.head.meta.horizon
        self._objects = PublishedObjects(session, listing.sizes)
        self._described = IcebergVersions(session, listing, self._objects, executors)

    def is_current(self) -> bool:
        """Return whether what this publisher knows of the objects holds still. Two small GETs.

        It does not after a vacuum raised the horizon, nor once the publication was taken back.
        """
        if self._session.refresh().meta.horizon != self._horizon:
            return False
        try:
            self._store.get(metadata_key(max(self._published, default=0)), length=1)
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
        new = [version for version in wanted if version not in self._published]
        put: list[int] = []
        reached = max(self._published, default=-1)
        if BARRIER not in self._objects.sizes:  # against dropped-with-its-directory
            self._objects.put(BARRIER, BARRIER_BODY, bytes.__eq__)
        try:
            for version in new:
                if put and not more():
                    break
                reached = max(reached, version)
                if version != last and self._described.is_left_out(version):
                    continue
                body = self._described.expected(version)
                below = max((v for v in self._published if v < version), default=None)
                self._described.put_segments(below)
                self._objects.put(metadata_key(version), body, bytes.__eq__)
                self._published.add(version)
                put.append(version)
        finally:
            self._put_hint(changed=bool(put))
            self._look_after(put)
        if not self._published:
            self._described.expected(wanted[-1])  # raises
        first, newest = min(self._published), max(self._published)
        behind = max(0, reached - newest)
        spans = tuple(successive(self._published))
        return Publication(
            self._uri, "iceberg", first, newest, len(put), self._location, behind, spans
        )

    def _wanted(self, first: int | None, last: int | None) -> range:
        head, held = self._session.refresh(), held_from(self._store.forks)
        oldest = self._described.oldest = max(head.meta.horizon, held)
        target = head.version if last is None else last
        if first is None:
            # against vacuumed-versions-published
            first = max(max(self._published, default=-1) + 1, oldest)
            if not self._published:
                first = max(versions.first_publishable(self._session.log, head), held)
                versions.check_count(first, target, self._uri, "iceberg")
        elif first > target:
            raise InvalidInput(
                f"version {first} is above the last one, {target}: choose an older first one",
                table=self._uri,
            )
        for version in (min(first, target), target):
            check_kept(head.meta, head.version, version, self._uri, held=held)
        return range(first, target + 1)

    def _look_after(self, put: Collection[int]) -> None:
        """Put again what a vacuum deleted that these versions name. One GET if none may have.

        A vacuum deletes nothing but what versions below the horizon name, and their metadata last.
        So where none of them was there before the first object was listed, all that was listed
        stays.
        """
        oldest = min([self._listed_from, *self._published])  # against vacuum-between-two-pages
        if not put or oldest >= self._session.refresh().meta.horizon:
            return
        put_lost_objects(self._session, put)  # against published-while-a-vacuum-deletes

    def _compare_newest(self) -> None:
        """Check, once, that the newest metadata is that of this log.

        It is not where a table was restored from an older copy, and went on.
        """
        body, self._newest = self._newest, b""
        version, described = max(self._published, default=-1), self._described
        # against publication-of-another-history
        if body and version >= described.oldest and not described.is_published(version, body):
            raise stranger_error(self._uri, metadata_key(version))

    def _put_hint(self, *, changed: bool) -> None:
        if not self._published:
            return
        wanted = hint_body(max(self._published))
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
