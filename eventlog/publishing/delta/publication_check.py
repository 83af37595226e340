"""Compares a Delta publication with the log: what `fsck` reports of it. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from eventlog.display import command
from eventlog.errors import Corrupt, DataLoss, InvalidInput, KeyNotFound
from eventlog.publishing import versions
from eventlog.publishing.delta import checkpoints, delta_commits
from eventlog.publishing.delta.delta_commits import LOG_PREFIX
from eventlog.publishing.delta.delta_listing import DeltaListing, list_delta
from eventlog.publishing.delta.publisher import DeltaPublisher, check_publisher, same_state
from eventlog.publishing.publication import PublicationProblem
from eventlog.publishing.versions import VersionStep
from eventlog.session.session import Session

_WRONG = "is not what this version is published as: `eventlog unpublish`, and publish again"


def audit_delta(session: Session) -> Iterator[PublicationProblem]:
    """Yield what is wrong with the Delta publication of a table; nothing if there is none.

    One LIST; and if there is a publication two GETs a version, and one a checkpoint.

    Raises:
        Corrupt: the log does not add up.
        Unavailable: the store does not answer.
    """
    listing = list_delta(session.store)
    try:
        check_publisher(session, listing)
    except InvalidInput as error:
        yield PublicationProblem(error.message, error.key or LOG_PREFIX, None)
        return
    for key in listing.others:
        yield PublicationProblem("the object is no part of the publication", key, None)
    if listing.first is None or not listing.commits:
        return
    newest, head = listing.commits[-1], session.refresh()
    lost = listing.gap(head.meta.horizon)
    if lost is not None:
        key = delta_commits.delta_commit_key(lost)
        yield PublicationProblem("the published version is missing", key, lost)
    publisher = DeltaPublisher(session, writes=False)
    # against hint-of-no-checkpoint-unreported
    if listing.is_hint_lost and publisher.named_checkpoint() < 0:
        yield PublicationProblem(
            "names no checkpoint that is there, without which engines cannot open the table: "
            f"{command('publish', 'delta', session.uri)} puts it again",
            checkpoints.HINT_KEY,
            None,
        )
    for version in (v for v in listing.commits if v > head.version):
        yield PublicationProblem(_WRONG, delta_commits.delta_commit_key(version), version)
    publisher.first = listing.first
    # In a keyed table the rows that the version before showed are needed.
    merged_from = max(listing.first, head.meta.horizon) + 1 if head.merge_rule else 0
    for step in versions.version_steps(session.log, listing.commits[0], min(newest, head.version)):
        version = step.after.version
        files = not version or version >= merged_from
        try:
            yield from _of_version(session, publisher, step, listing, files=files)
        except (DataLoss, KeyNotFound) as error:
            # What a vacuum deleted, or will: of versions that are not kept.
            if version >= session.refresh().meta.horizon:
                yield PublicationProblem(error.message, error.key or LOG_PREFIX, version)


def _of_version(
    session: Session,
    publisher: DeltaPublisher,
    step: VersionStep,
    listing: DeltaListing,
    *,
    files: bool,
) -> Iterator[PublicationProblem]:
    version = step.after.version
    if version in listing.commits:
        key = delta_commits.delta_commit_key(version)
        try:
            if not publisher.is_published(step, session.store.get(key), files=files):
                yield PublicationProblem(_WRONG, key, version)
        except InvalidInput as error:
            yield PublicationProblem(error.message, key, version)
    if version in listing.checkpoints:
        key = delta_commits.checkpoint_key(version)
        try:
            rows = checkpoints.described_rows(session.store.get(key))
            if not same_state(rows, publisher.expected_rows(step.after)):
                yield PublicationProblem(_WRONG, key, version)
        except Corrupt as error:
            yield PublicationProblem(error.message, key, version)
