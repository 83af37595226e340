"""Compares an Iceberg publication with the log: what `fsck` reports of it. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventlog.display import command
from eventlog.errors import Corrupt, DataLoss, InvalidInput, KeyNotFound
from eventlog.publishing.iceberg.iceberg_publisher import IcebergPublisher
from eventlog.publishing.iceberg.iceberg_removal import check_owner
from eventlog.publishing.iceberg.manifest_publisher import (
    BARRIER,
    BARRIER_BODY,
    HINT,
    PREFIX,
    PublishedObjects,
    Same,
    is_published_key,
    metadata_key,
    names_metadata,
    parse_metadata_key,
)
from eventlog.publishing.publication import PublicationProblem
from eventlog.session.session import Session

_WRONG = "is not what this table is published as: `eventlog unpublish`, and publish again"


class ComparedObjects(PublishedObjects):
    """Objects that are compared with those that lie there, instead of being put.

    Args:
        session: of the table.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session, {})
        self.problems: list[PublicationProblem] = []

    def put(self, key: str, body: bytes, same: Same) -> int:
        """Compare an object with the one that lies there, and return the size of that."""
        try:
            found = self.store.get(key)
        except KeyNotFound:
            self.problems.append(PublicationProblem("the object is missing", key, None))
            found = body
        if not same(found, body):  # against published-object-not-compared
            self.problems.append(PublicationProblem(f"the object {_WRONG}", key, None))
        self.note(key, len(found))
        return len(found)


def audit_iceberg(session: Session) -> Iterator[PublicationProblem]:
    """Yield what is wrong with the Iceberg publication of a table; nothing if there is none.

    One LIST, and if there is a publication one GET for each of its objects, and for each version.
    One GET more for each version between them that is not published, and two for the hint.

    Raises:
        Corrupt: the log does not add up.
        Unavailable: the store does not answer.
    """
    found = [row.key for row in session.store.list(PREFIX)]
    published = sorted(v for key in found if (v := parse_metadata_key(key)) is not None)
    try:
        check_owner(session, found)
    except InvalidInput as error:
        yield PublicationProblem(error.message, error.key or PREFIX, None)
        return
    if not published:
        return
    for key in found:
        if not is_published_key(key):
            yield PublicationProblem("the object is no part of the publication", key, None)
    objects = ComparedObjects(session)
    try:
        publisher = IcebergPublisher(session, objects=objects)
    except (Corrupt, InvalidInput) as error:
        yield PublicationProblem(error.message, error.key or PREFIX, error.version)
        return
    objects.put(BARRIER, BARRIER_BODY, bytes.__eq__)
    yield from _of_metadata(session, publisher, published)
    yield from objects.problems
    for run in publisher.passed_over():
        advice = command(
            *("publish", "iceberg", session.uri, "--from", str(run[0]), "--version", str(run[-1]))
        )
        yield PublicationProblem(
            f"{len(run)} versions from {run[0]} on are not published, though older and newer ones "
            f"are: {advice} publishes them",
            metadata_key(run[0]),
            run[0],
            "warning",
        )
    if not names_metadata(session.store):  # against hint-of-no-metadata-unreported
        yield PublicationProblem(
            "names no version that is published: "
            f"{command('publish', 'iceberg', session.uri)} puts it again",
            HINT,
            None,
        )


def _of_metadata(
    session: Session, publisher: IcebergPublisher, published: Iterable[int]
) -> Iterator[PublicationProblem]:
    """Yield what is wrong with the metadata files of the versions that vacuum keeps."""
    horizon = session.refresh().meta.horizon
    for version in (v for v in published if v >= horizon):  # a vacuum takes those below
        key = metadata_key(version)
        try:
            if not publisher.is_published(version, session.store.get(key)):
                yield PublicationProblem(f"the object {_WRONG}", key, version)
        except (DataLoss, InvalidInput, KeyNotFound) as error:
            yield PublicationProblem(error.message, key, version)
