"""Compares a Delta publication with the log: what `fsck` reports of it. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eventlog.display import command
from eventlog.errors import Corrupt, DataLoss, InvalidInput, KeyNotFound, VersionVacuumed
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import cut_of
from eventlog.publishing import versions
from eventlog.publishing.delta.checkpoint_publisher import same_state
from eventlog.publishing.delta.delta_listing import DeltaListing, list_delta, named_checkpoint
from eventlog.publishing.delta.delta_plan import check_whole
from eventlog.publishing.delta.delta_removal import behind_horizon, check_publisher
from eventlog.publishing.delta.delta_versions import DeltaVersions
from eventlog.publishing.delta.translation import checkpoints, delta_commits
from eventlog.publishing.delta.translation.delta_commits import LOG_PREFIX
from eventlog.publishing.delta.translation.delta_vectors import VECTORS_PREFIX
from eventlog.publishing.publication import PublicationProblem, audited, made_again, unread
from eventlog.publishing.versions import VersionStep
from eventlog.session.session import Session
from eventlog.store.port import ObjectStore

_WRONG = "is not what this version is published as"


def audit_delta(session: Session) -> tuple[PublicationProblem, ...]:
    """Return what is wrong with the Delta publication of a table; nothing if there is none.

    Two LISTs, and if there is a publication another one, one of the vectors that have objects, two
    GETs a version, and one a checkpoint. Once more where a vacuum raised the horizon meanwhile.

    Raises:
        Corrupt: the log does not add up.
        Unavailable: the store does not answer.
    """
    return audited(session, [LOG_PREFIX, VECTORS_PREFIX], _problems)


def _problems(session: Session) -> Iterator[PublicationProblem]:
    listing = list_delta(session.store)
    try:
        check_publisher(session, listing)
    except Corrupt as error:
        yield PublicationProblem(error.message, error.key or LOG_PREFIX, None)
        return
    head = session.refresh() if listing.commits else None
    mend = made_again("delta", session.uri, listing.spans(head) if head else ())
    for key in listing.others:
        yield PublicationProblem(f"the object is no part of the publication: {mend}", key, None)
    if head is None:
        vectors = session.store.list(VECTORS_PREFIX, limit=1)
        # against delta-log-without-versions-unreported
        if listing.checkpoints or listing.hinted is not None or any(vectors):
            yield unread("delta", session.uri, LOG_PREFIX)
        return
    try:
        check_whole(listing, head, session.uri)
    except Corrupt as error:
        yield PublicationProblem(error.message, error.key or LOG_PREFIX, error.version)
    for version in (v for v in listing.commits if v > head.version):
        key = delta_commits.delta_commit_key(version)
        yield PublicationProblem(f"{_WRONG}: {mend}", key, version)
    if listing.commits[-1] < head.meta.horizon:  # against lost-files-unreported
        key = delta_commits.delta_commit_key(listing.commits[-1])
        message = behind_horizon(session, listing.commits[-1], head.meta.horizon)
        yield PublicationProblem(message, key, listing.commits[-1], "warning")
    described = DeltaVersions(session, writes=False)
    described.first = listing.first
    yield from _of_checkpoints(session, listing, head)
    yield from _of_versions(session, described, listing, head, mend)
    yield from _of_vectors(session.store, described.vector_sizes, mend)


def _of_checkpoints(
    session: Session, listing: DeltaListing, head: Snapshot
) -> Iterator[PublicationProblem]:
    """Yield what the keys of checkpoints, and the hint, show to be missing."""
    again = f"{command('publish', 'delta', session.uri)} puts"
    newest = listing.commits[-1]
    above = max(listing.checkpoints, default=-1)
    # against newest-delta-version-unreported
    if above > newest >= head.meta.horizon:
        key = delta_commits.delta_commit_key(above)
        message = f"versions {newest + 1} to {above} are missing in the publication"
        yield PublicationProblem(f"{message}: {again} them again", key, above)
    # against hint-of-no-checkpoint-unreported
    if listing.is_hint_lost and named_checkpoint(session.store) < 0:
        if listing.hinted is None:
            message = "is missing, so that engines list the whole Delta log"
        else:
            message = "names no checkpoint that is there, so that engines cannot open the table"
        yield PublicationProblem(f"{message}: {again} it again", checkpoints.HINT_KEY, None)


def _of_versions(
    session: Session, described: DeltaVersions, listing: DeltaListing, head: Snapshot, mend: str
) -> Iterator[PublicationProblem]:
    # In a keyed table the rows that the version before showed are needed.
    # What the log was cut above cannot be compared.
    # against audit-of-delta-below-the-cut
    first = max(listing.commits[0], cut_of(head.meta))
    last = min(listing.commits[-1], head.version)
    merged_from = max(described.first or 0, head.meta.horizon) + 1 if head.merge_rule else 0
    for step in versions.version_steps(session.log, first, last):
        version = step.after.version
        files = not version or version >= merged_from
        try:
            for message, key in _of_version(session, described, step, listing, files=files):
                yield PublicationProblem(f"{message}: {mend}", key, version)
        except (DataLoss, KeyNotFound, VersionVacuumed) as error:
            # What a vacuum deleted, or will: of versions that are not kept.
            if version >= session.refresh().meta.horizon:
                yield PublicationProblem(error.message, error.key or LOG_PREFIX, version)


def _of_version(
    session: Session,
    described: DeltaVersions,
    step: VersionStep,
    listing: DeltaListing,
    *,
    files: bool,
) -> Iterator[tuple[str, str]]:
    """Yield the messages and keys of what is wrong with a version."""
    version = step.after.version
    if version in listing.commits:
        key = delta_commits.delta_commit_key(version)
        try:
            if not described.is_published(step, session.store.get(key), files=files):
                yield _WRONG, key
        except InvalidInput as error:
            yield error.message, key
    if version in listing.checkpoints:
        key = delta_commits.checkpoint_key(version)
        body = session.store.get(key)
        try:
            rows = checkpoints.described_rows(body)
            is_ours = same_state(rows, described.expected_rows(step.after))
        except Corrupt:
            is_ours = False
        if not is_ours:
            yield "another program wrote this checkpoint, or it is damaged", key
        elif version == listing.hinted:
            hint = checkpoints.hint(version, rows.num_rows, len(body))
            named = session.store.get(checkpoints.HINT_KEY)
            # against changed-hint-unreported
            if named != hint and checkpoints.hinted_version(named) == version:
                yield "another program wrote this hint, or it is damaged", checkpoints.HINT_KEY


def _of_vectors(
    store: ObjectStore, sizes: Mapping[str, int], mend: str
) -> Iterator[PublicationProblem]:
    """Yield the objects of vectors that published versions name, and that are not there."""
    there = {row.key: row.size for row in store.list(VECTORS_PREFIX)} if sizes else {}
    for key, size in sorted(sizes.items()):
        if there.get(key) != size:  # against lost-vector-unreported
            yield PublicationProblem(
                f"the deletion vector of published versions is missing, or damaged: {mend}",
                key,
                None,
            )
