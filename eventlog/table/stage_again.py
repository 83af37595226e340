"""Slow writers: staged segments below the fence are staged again, and then committed.

A segment below the fence can no longer be committed under its own key, and vacuum may delete it at
any time. Its bytes are copied to a fresh key in the current epoch (FORMAT.md R12.8). Nothing is
deleted here (hazard C7).
"""

from __future__ import annotations

import logging

import msgspec

from eventlog.errors import CommitConflict, KeyNotFound
from eventlog.format import codec, keys
from eventlog.log.history import find_transaction
from eventlog.model.actions import Action, Add
from eventlog.model.records import Transaction
from eventlog.session.session import Session
from eventlog.store.parallel import COPY_THREADS, each
from eventlog.store.retry import put_once

_MAX_RESTAGES = 3

logger = logging.getLogger(__name__)


def commit_staged(session: Session, transaction: Transaction) -> int:
    """Commit a transaction of staged segments, staging again those that have been fenced.

    The transaction keeps its id, so it takes effect once, even if its first form was committed.

    Raises:
        CommitConflict: it cannot be rebased onto the head, or a vacuum deleted a fenced upload
            before it could be copied; nothing was committed.
        CommitUnknown: see `Table.commit`.
        Unavailable: see `Table.commit`.
    """
    for _ in range(_MAX_RESTAGES):  # after each conflict, with the segments staged again
        try:
            return session.commit(transaction)
        except CommitConflict as conflict:
            if not any(
                _fenced(action, session.head().meta.fence) for action in transaction.actions
            ):
                raise
            # Another process may have committed it already; the fence conflict hides that.
            head = session.head().version
            landed = find_transaction(
                session.log, transaction.id, transaction.read_version + 1, head
            )
            if landed is not None:
                return landed
            logger.info("staging fenced segments again: %s", conflict)
            transaction = restaged(session, transaction)
    return session.commit(transaction)


def restaged(session: Session, transaction: Transaction) -> Transaction:
    """Return the transaction with every fenced segment copied to the epoch of the newest version.

    Raises:
        CommitConflict: an upload is missing or damaged.
        Unavailable: the store does not answer.
    """
    head = session.head()

    def again(action: Action) -> Action:
        if isinstance(action, Add) and _fenced(action, head.meta.fence):
            return _copied(session, action, head.version, transaction.id)
        return action

    actions = tuple(each(again, transaction.actions, count=COPY_THREADS))
    return msgspec.structs.replace(transaction, actions=actions)  # against restage-under-a-new-id


def _fenced(action: Action, fence: int) -> bool:
    return isinstance(action, Add) and action.epoch < fence


def _copied(session: Session, add: Add, epoch: int, transaction_id: str) -> Add:
    key = keys.segment_key(add.epoch, add.chunk, add.id)
    try:
        body = session.store.get(key, length=add.bytes + 1)
    except KeyNotFound:
        body = b""
    if codec.sha256(body) != add.checksum:  # against restage-copies-anything
        raise CommitConflict(
            "the upload took so long that a vacuum deleted it; nothing was committed: write the "
            "rows again (the property staging_hours sets how long an upload may take)",
            table=session.uri,
            key=key,
            transaction=transaction_id,
        )
    fresh = msgspec.structs.replace(add, id=session.clock.random_id(), epoch=epoch)
    put_once(session.store, session.clock, keys.segment_key(epoch, fresh.chunk, fresh.id), body)
    session.log.staged.vouch([fresh])
    return fresh  # against restage-deletes
