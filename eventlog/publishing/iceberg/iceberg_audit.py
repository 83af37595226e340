"""Compares an Iceberg publication with the log: what `fsck` reports of it. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from eventlog.display import command
from eventlog.errors import Corrupt, DataLoss, InvalidInput, KeyNotFound
from eventlog.publishing.iceberg.iceberg_cut import behind_the_horizon
from eventlog.publishing.iceberg.iceberg_listing import IcebergListing, list_iceberg
from eventlog.publishing.iceberg.iceberg_removal import check_owner
from eventlog.publishing.iceberg.iceberg_versions import IcebergVersions
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
from eventlog.publishing.publication import (
    PublicationProblem,
    audited,
    made_again,
    successive,
    unread,
)
from eventlog.session.session import Session

_WRONG = "the object is not what this table is published as"
_LEFT = (
    "no reader looks at this object, which a write of another program left that was refused: it is "
    "harmless. Delete it; or take it away with the whole publication"
)


class ComparedObjects(PublishedObjects):
    """Objects that are compared with those that lie there, instead of being put.

    Args:
        session: of the table.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session, {})
        self.problems: list[tuple[str, str]] = []

    def put(self, key: str, body: bytes, same: Same) -> int:
        """Compare an object with the one that lies there, and return the size of that."""
        try:
            found = self.store.get(key)
        except KeyNotFound:
            self.problems.append(("the object is missing", key))
            found = body
        if not same(found, body):  # against published-object-not-compared
            self.problems.append((_WRONG, key))
        self.note(key, len(found))
        return len(found)


def audit_iceberg(session: Session) -> tuple[PublicationProblem, ...]:
    """Return what is wrong with the Iceberg publication of a table; nothing if there is none.

    One LIST, and if there is a publication two more, one GET for each of its objects, and for each
    version. One GET more for each version between them that is not published, and two for the hint.
    Once more where a vacuum raised the horizon meanwhile.

    Raises:
        Corrupt: the log does not add up.
        Unavailable: the store does not answer.
    """
    return audited(session, [PREFIX], _problems)


def _problems(session: Session) -> Iterator[PublicationProblem]:
    found = [row.key for row in session.store.list(PREFIX)]
    published = sorted(v for key in found if (v := parse_metadata_key(key)) is not None)
    try:
        check_owner(session, found)
    except Corrupt as error:
        yield PublicationProblem(error.message, error.key or PREFIX, None)
        return
    if not published:
        if any(map(is_published_key, found)):  # against publication-without-versions-unreported
            yield unread("iceberg", session.uri, PREFIX)
        return
    try:
        listing = list_iceberg(session)
    except (Corrupt, InvalidInput) as error:
        yield PublicationProblem(error.message, error.key or PREFIX, error.version)
        return
    objects = ComparedObjects(session)
    described = IcebergVersions(session, listing, objects)
    again = _published_again(described, listing.published)
    mend = made_again("iceberg", session.uri, again, *listing.form.options(session.uri))
    yield from _of_listing(session, listing, mend)
    if BARRIER in listing.sizes:
        objects.put(BARRIER, BARRIER_BODY, bytes.__eq__)
    yield from _of_metadata(session, described, published, mend)
    for message, key in objects.problems:
        yield PublicationProblem(f"{message}: {mend}", key, None)
    for run in _passed_over(described, listing.published):
        advice = command(
            *("publish", "iceberg", session.uri, "--from", str(run[0]), "--version", str(run[-1]))
        )
        which = f"version {run[0]} is" if len(run) == 1 else f"versions {run[0]} to {run[-1]} are"
        yield PublicationProblem(
            f"{which} not published, though older and newer ones are: {advice} publishes "
            f"{'it' if len(run) == 1 else 'them'}",
            metadata_key(run[0]),
            run[0],
            "warning",
        )
    named = names_metadata(session.store)
    if not named:  # against hint-of-no-metadata-unreported
        why = "is missing" if named is None else "names no version that is published"
        yield PublicationProblem(
            f"{why}, and engines that are given the root open this one: "
            f"{command('publish', 'iceberg', session.uri)} puts it again",
            HINT,
            None,
        )


def _of_listing(
    session: Session, listing: IcebergListing, mend: str
) -> Iterator[PublicationProblem]:
    """Yield what the keys of objects alone show to be wrong."""
    for key in listing.sizes:
        if not is_published_key(key):
            yield PublicationProblem(f"{_LEFT}: {mend}", key, None, "warning")
    horizon, newest = listing.head.meta.horizon, max(listing.published)
    if newest < horizon:  # against lost-files-of-iceberg-unreported
        message = behind_the_horizon(session, newest, horizon)
        yield PublicationProblem(message, metadata_key(newest), newest, "warning")
    if BARRIER not in listing.sizes:
        advice = f"{command('publish', 'iceberg', session.uri)} puts it again"
        yield PublicationProblem(f"the object is missing: {advice}", BARRIER, None)


def _of_metadata(
    session: Session, described: IcebergVersions, published: Iterable[int], mend: str
) -> Iterator[PublicationProblem]:
    """Yield what is wrong with the metadata files of the versions that vacuum keeps."""
    horizon = session.refresh().meta.horizon
    for version in (v for v in published if v >= horizon):  # a vacuum takes those below
        key = metadata_key(version)
        try:
            if not described.is_published(version, session.store.get(key)):
                yield PublicationProblem(f"{_WRONG}: {mend}", key, version)
        except InvalidInput as error:
            yield PublicationProblem(f"{error.message}: {mend}", key, version)
        except (DataLoss, KeyNotFound) as error:
            yield PublicationProblem(error.message, key, version)


def _passed_over(described: IcebergVersions, published: Collection[int]) -> Iterator[range]:
    """Yield the versions between published ones that could be published, and are not."""
    low, high = min(published, default=0), max(published, default=0)
    missing = [v for v in range(max(described.oldest, low), high) if v not in published]
    there = [
        found.version
        for found in map(described.there, missing)
        # against refused-version-called-lost
        if found is not None and described.problem(found) is None
    ]
    yield from (range(first, last + 1) for first, last in successive(there))


def _published_again(described: IcebergVersions, published: Iterable[int]) -> list[tuple[int, int]]:
    """Return the published versions that vacuum keeps, as the calls that publish them again.

    Each is the first and the last version of a call: none can pass over one that is refused.
    """
    kept = sorted(version for version in published if version >= described.oldest)
    found: list[tuple[int, int]] = []
    for version in kept:
        first, last = found[-1] if found else (version, version)
        # against refused-version-in-the-way
        if any(_ends(described, between) for between in range(last + 1, version)):
            found.append((version, version))
        else:
            found[-1:] = [(first, version)]
    return found


def _ends(described: IcebergVersions, version: int) -> bool:
    """Return whether a call that publishes a version ends there with an error."""
    found = described.there(version)
    return found is None or (described.problem(found) is not None and not described.is_made(found))
