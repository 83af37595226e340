"""Compares a Delta publication with the log: what `fsck` reports of it. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from eventlog.errors import Corrupt, InvalidInput, KeyNotFound
from eventlog.publishing import versions
from eventlog.publishing.delta import checkpoints, delta_commits
from eventlog.publishing.delta.publisher import (
    DeltaListing,
    DeltaPublisher,
    list_delta,
    same_state,
)
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
    listing = list_delta(session)
    for key in listing.others:
        yield PublicationProblem("the object is no part of the publication", key, None)
    if listing.first is None or not listing.commits:
        return
    newest, head = listing.commits[-1], session.refresh()
    if listing.gap is not None:
        key = delta_commits.delta_commit_key(listing.gap)
        yield PublicationProblem("the published version is missing", key, listing.gap)
    for version in (v for v in listing.commits if v > head.version):
        yield PublicationProblem(_WRONG, delta_commits.delta_commit_key(version), version)
    publisher = DeltaPublisher(session, writes=False)
    for step in versions.version_steps(session.log, listing.commits[0], min(newest, head.version)):
        yield from _of_version(session, publisher, step, listing)


def _of_version(
    session: Session, publisher: DeltaPublisher, step: VersionStep, listing: DeltaListing
) -> Iterator[PublicationProblem]:
    version = step.after.version
    if version in listing.commits:
        key = delta_commits.delta_commit_key(version)
        try:
            if session.store.get(key) != publisher.expected(step):
                yield PublicationProblem(_WRONG, key, version)
        except (InvalidInput, KeyNotFound) as error:
            yield PublicationProblem(error.message, key, version)
    if version in listing.checkpoints:
        key = delta_commits.checkpoint_key(version)
        try:
            rows = checkpoints.described_rows(session.store.get(key))
            if not same_state(rows, publisher.expected_rows(step.after)):
                yield PublicationProblem(_WRONG, key, version)
        except (Corrupt, KeyNotFound) as error:
            yield PublicationProblem(error.message, key, version)
