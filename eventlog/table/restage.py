"""Late writers: uploads below the fence are staged again, and committed after all.

Shell layer. A fenced upload can never take effect under its own key any more, and vacuum
may take it at any moment; so its bytes are copied to a fresh key of an epoch read now (FORMAT.md
R12.8). Nothing is deleted here (hazard C7).
"""

from __future__ import annotations

import logging

import msgspec

from eventlog.errors import CommitConflict, KeyNotFound
from eventlog.format import codec, keys
from eventlog.log.history import find_transaction
from eventlog.model.records import Action, Add, Transaction
from eventlog.store.parallel import COPY_THREADS, each
from eventlog.store.retry import put_once
from eventlog.table.table import Table

_MAX_RESTAGES = 3

logger = logging.getLogger(__name__)


def commit_staged(t: Table, transaction: Transaction) -> int:
    """Commit a transaction of staged segments; those that were fenced meanwhile are staged again.

    The transaction keeps its id: whatever becomes of the first form, it has one effect.

    Raises:
        CommitConflict: it cannot be carried, or a vacuum took a fenced upload before it could be
            copied; nothing was committed.
        CommitUnknown: see `Table.commit`.
        Unavailable: see `Table.commit`.
    """
    for _ in range(_MAX_RESTAGES):  # lost races: each time with the segments staged again
        try:
            return t.commit(transaction)
        except CommitConflict as conflict:
            if not any(_fenced(action, t.head().meta.fence) for action in transaction.actions):
                raise
            # Handed in before, by another process: the fence hides that it is in already.
            head = t.head().version
            landed = find_transaction(t.log, transaction.id, transaction.read_version + 1, head)
            if landed is not None:
                return landed
            logger.info("staging again what was fenced: %s", conflict)
            transaction = restaged(t, transaction)
    return t.commit(transaction)


def restaged(t: Table, transaction: Transaction) -> Transaction:
    """Return the transaction with every fenced segment copied to an epoch of the newest version.

    Raises:
        CommitConflict: an upload is gone or damaged.
        Unavailable: the store does not answer.
    """
    head = t.head()

    def again(action: Action) -> Action:
        if isinstance(action, Add) and _fenced(action, head.meta.fence):
            return _copied(t, action, head.version, transaction.id)
        return action

    actions = tuple(each(again, transaction.actions, count=COPY_THREADS))
    return msgspec.structs.replace(transaction, actions=actions)  # against restage-under-a-new-id


def _fenced(action: Action, fence: int) -> bool:
    return isinstance(action, Add) and action.epoch < fence


def _copied(t: Table, add: Add, epoch: int, transaction_id: str) -> Add:
    key = keys.segment_key(add.epoch, add.chunk, add.id)
    try:
        body = t.store.get(key, length=add.bytes + 1)
    except KeyNotFound:
        body = b""
    if codec.sha256(body) != add.checksum:  # against restage-copies-anything
        raise CommitConflict(
            "the upload took so long that a vacuum gave it up and took it; nothing was committed: "
            "write it again (the property staging_hours says how long an upload may take)",
            table=t.uri,
            key=key,
            transaction=transaction_id,
        )
    fresh = msgspec.structs.replace(add, id=t.clock.token(), epoch=epoch)
    put_once(t.store, t.clock, keys.segment_key(epoch, fresh.chunk, fresh.id), body)
    t.log.vouch([fresh])
    return fresh  # against restage-deletes
