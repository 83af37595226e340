"""Publishing: versions described in the metadata of other formats, so that any engine reads them.

Nothing is copied: the same segments are described again, beside the log. Version 7 is version 7 in
each format. What is published follows from the log alone, so any publisher writes the same. Start
at `publish`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from eventlog.arguments import choice, whole
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.publishing.delta.delta_removal import unpublish_delta
from eventlog.publishing.following import FORMATS, StandingPublisher, publications
from eventlog.publishing.iceberg.iceberg_removal import unpublish_iceberg
from eventlog.publishing.publication import Publication
from eventlog.session.session import Session
from eventlog.session.tags import VersionOrName, version_number
from eventlog.store.parallel import DriverName, executors_of
from eventlog.table.table import Table

__all__ = ["Publication", "follow", "publish", "unpublish"]


def publish(
    table: Table | str | os.PathLike[str],
    format: str,  # noqa: A002 - the word of users
    *,
    version: VersionOrName | None = None,
    first: VersionOrName | None = None,
    format_version: int | None = None,
    scheme: str | None = None,
    driver: DriverName = "local",
    storage_options: Mapping[str, str] | None = None,
) -> Publication:
    """Publish the versions of a table that are not published yet.

    Per version one GET, of its commit, and one PUT, or four for Iceberg. Safe beside writers and
    other publishers; if it crashes, call it again.

    Args:
        table: the table, or its URI.
        format: `delta` or `iceberg`.
        version: the last version to publish, or the name of a tag; the newest if None.
        first: where a new publication begins; at the oldest version that vacuum keeps if None. To
            Iceberg, versions below those that are published can be published later.
        format_version: of Iceberg, 2 or 3; None: as it was published before, else 2.
        scheme: of Iceberg's URIs, for a table in S3: `s3`, `s3a` or `s3n`; None: as it was
            published before, else that of the table's own URI.
        driver: `spark`: the executors of the active session merge the keys of a keyed table, which
            shows which of its rows are published. What is published is the same.
        storage_options: for a URI; see `eventlog.store.options`.

    Returns:
        What is published now.

    Raises:
        Corrupt: the log does not add up, or there is a publication of another table, or by another
            program; its object is named.
        DataLoss: a segment of a keyed table is missing or damaged.
        InvalidInput: the format cannot describe the table, which is said by name; or an argument is
            wrong; or there are more than 10,000 versions and no `first`; or there is no session of
            Spark.
        Unavailable: the store does not answer; call it again.
        VersionNotFound: there is no such version.
        VersionNotReplicated: this copy lacks a version.
        VersionVacuumed: `first` is below the horizon.
    """
    choice(format, "format", FORMATS)
    executors = executors_of(driver)
    session = _opened(table, storage_options).session
    last = _numbered(session, version, "version")
    begin = _numbered(session, first, "first")
    publisher = StandingPublisher(
        session,
        format,
        first=begin,
        scheme=scheme,
        format_version=format_version,
        executors=executors,
    )
    return publisher.step(last=last)


def follow(
    table: Table | str | os.PathLike[str],
    format: str,  # noqa: A002
    *,
    first: VersionOrName | None = None,
    every_s: float = 1.5,
    format_version: int | None = None,
    scheme: str | None = None,
    driver: DriverName = "local",
    storage_options: Mapping[str, str] | None = None,
) -> Iterator[Publication]:
    """Publish the versions of a table, and from then on each one soon after its commit.

    Yields what is published: at once, and whenever versions were. It ends with an error, or when
    the caller leaves the loop; another call goes on. Several at once do no harm. Between commits it
    sends one GET each `every_s` seconds, soon after a commit more, and one a minute. Where the
    store does not answer, it waits for it.

    Args:
        table: the table, or its URI.
        format: `delta` or `iceberg`.
        first: where a new publication begins; at the oldest version that vacuum keeps if None.
        every_s: the longest time between two looks for a commit, in seconds; at least 0.1.
        format_version: see `publish`.
        scheme: see `publish`.
        driver: see `publish`.
        storage_options: for a URI; see `eventlog.store.options`.

    Raises:
        Corrupt: the log does not add up, or there is a publication of another table, or by another
            program; its object is named.
        InvalidInput: a version that the format cannot describe, which is said by name, and what to
            do; those below it are published. Or an argument is wrong; or there are more than 10,000
            versions and no `first`; or there is no session of Spark.
        TableNotFound: the table was removed or replaced.
        VersionNotReplicated: this copy lacks a version.
    """
    choice(format, "format", FORMATS)
    if not isinstance(every_s, int | float) or not 0.1 <= every_s <= 86_400:
        raise InvalidInput(f"every_s is {every_s!r}: give the seconds, 0.1 to 86,400")
    executors = executors_of(driver)
    session = _opened(table, storage_options).session
    begin = _numbered(session, first, "first")
    options = {"scheme": scheme, "format_version": format_version, "executors": executors}
    return publications(session, format, begin, every_s, **options)


def unpublish(
    table: Table | str | os.PathLike[str],
    format: str,  # noqa: A002
    *,
    dry_run: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Delete what was published; the table itself is not touched.

    Args:
        table: the table, or its URI.
        format: `delta` or `iceberg`.
        dry_run: delete nothing; only return the keys.
        storage_options: for a URI; see `eventlog.store.options`.

    Returns:
        The keys of the objects that were, or would be, deleted.

    Raises:
        InvalidInput: what lies there was published by another program.
        Unavailable: the store does not answer; call it again.
    """
    choice(format, "format", FORMATS)
    session = _opened(table, storage_options).session
    if format == "iceberg":
        return unpublish_iceberg(session, run=not dry_run)
    return unpublish_delta(session, run=not dry_run)


def _opened(
    table: Table | str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> Table:
    return table if isinstance(table, Table) else Table.open(table, storage_options)


def _numbered(session: Session, version: VersionOrName | None, name: str) -> int | None:
    if version is None:
        return None
    return whole(version_number(session, version, name), name, high=keys.MAX_VERSION)
