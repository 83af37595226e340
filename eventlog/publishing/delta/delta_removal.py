"""What of a Delta publication can go: all of it, or what is published of old versions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import takewhile

from eventlog.display import command
from eventlog.errors import Corrupt, EventLogError, InvalidInput, KeyNotFound
from eventlog.publishing.delta.checkpoint_publisher import CheckpointPublisher
from eventlog.publishing.delta.delta_listing import DeltaListing, list_delta
from eventlog.publishing.delta.delta_versions import DeltaVersions
from eventlog.publishing.delta.translation import delta_commits
from eventlog.publishing.delta.translation.delta_commits import LOG_PREFIX, parse_delta_key
from eventlog.publishing.delta.translation.delta_vectors import VECTORS_PREFIX
from eventlog.publishing.publication import another_table, made_again, overtaken
from eventlog.session.session import Session

logger = logging.getLogger(__name__)

_FORMAT = "delta"


def check_publisher(
    session: Session, listing: DeltaListing, kind: type[EventLogError] = Corrupt
) -> None:
    """Refuse a Delta log that eventlog did not publish. One GET.

    Args:
        session: of the table.
        listing: of the log.
        kind: of the error.

    Raises:
        EventLogError: it is one.
    """
    if not listing.commits:
        return
    key = delta_commits.delta_commit_key(listing.commits[0])
    # against strangers-table-taken-for-a-publication
    if delta_commits.publisher_of(session.store.get(key))[0] is None:
        raise another_table("Delta", session.uri, key, kind)


def unpublish_delta(session: Session, *, run: bool) -> tuple[str, ...]:
    """Delete the publication of a table, or only return what would be deleted.

    Returns:
        The keys: those of the newest versions first, so that an interrupted one can be continued.

    Raises:
        InvalidInput: what lies there is another program's.
    """
    listing = list_delta(session.store)
    check_publisher(session, listing, InvalidInput)  # against strangers-log-deleted
    doomed = tuple(_published_keys(session))
    if run and doomed:
        session.store.delete(doomed)
    return doomed


def _published_keys(session: Session) -> Iterator[str]:
    for prefix in (LOG_PREFIX, VECTORS_PREFIX):
        yield from sorted((row.key for row in session.store.list(prefix)), reverse=True)


def behind_horizon(session: Session, newest: int, horizon: int) -> str:
    """Return the warning of a publication that ends below the horizon, with what mends it.

    Args:
        session: of the table.
        newest: the newest published version.
        horizon: the oldest version that vacuum keeps.
    """
    described = DeltaVersions(session, writes=False)
    why = described.problem(session.snapshot(horizon))
    advice = f"{command('publish', _FORMAT, session.uri)} goes on at version {horizon}"
    return overtaken(newest, "Delta", advice if why is None else f"{why}. {described.way_on()}")


def cut_delta(session: Session, horizon: int, *, run: bool) -> tuple[tuple[str, int], ...]:
    """Delete what is published of the versions below a horizon, or only return it.

    The checkpoint of the horizon is put first, so that the versions from there on stay readable. If
    nothing is published of older versions, this costs one LIST.

    Args:
        session: of the table.
        horizon: a version that is kept.
        run: whether anything is changed.

    Returns:
        The keys and sizes of the objects, in the order of their deletion.
    """
    store = session.store
    below = takewhile(lambda row: row.key < _lowest_key(horizon), store.list(LOG_PREFIX))
    # Checkpoints first: what is left of an interrupted cut has no gap.
    doomed = sorted(
        (not parsed[1], row.key, row.size)
        for row in below
        if (parsed := parse_delta_key(row.key)) and parsed[0] < horizon
    )
    if not doomed:
        return ()
    try:
        kept = delta_commits.publisher_of(store.get(delta_commits.delta_commit_key(horizon)))
    except KeyNotFound:
        logger.warning("%s", _not_cut(session, horizon))
        return ()
    snapshot = session.snapshot(horizon)
    # against strangers-log-cut
    if kept != (snapshot.header.table, snapshot.commit_hash):
        return ()
    if run:
        publisher = CheckpointPublisher(session, DeltaVersions(session, writes=True))
        publisher.put_checkpoint(snapshot)  # against cut-without-a-checkpoint
        store.delete([key for _, key, _ in doomed])
        # Another publisher may have named one that is deleted now.
        publisher.mend_hint()  # against cut-leaves-a-lost-hint
    return tuple((key, size) for _, key, size in doomed)


def _not_cut(session: Session, horizon: int) -> str:
    """Return why nothing is cut where the horizon of a vacuum is not published."""
    listing = list_delta(session.store)
    newest = max([*listing.commits, *listing.checkpoints], default=-1)
    if newest < horizon:
        return behind_horizon(session, newest, horizon)
    mend = made_again(_FORMAT, session.uri, listing.spans(session.refresh()))
    return f"version {horizon} is not published as Delta, but older and newer ones are: {mend}"


def _lowest_key(version: int) -> str:
    """Return a key that is above all of the versions below one, and below those from it on."""
    return f"{LOG_PREFIX}{version:020d}"
