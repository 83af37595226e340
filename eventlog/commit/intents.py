"""Published transactions as values: which may be published, in what form, and which are included.

No I/O. Under contention a writer publishes its append or replacement under `_intents/`, and the
writer that wins the next slot includes it in its commit (FORMAT.md "Combining"). The fold accepts a
published transaction once, and only within its window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec
from msgspec import UnsetType

from eventlog.commit.proposal import check_proposed
from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add, Assess
from eventlog.model.records import Transaction
from eventlog.state.small.rules import MAX_WINDOW, can_be_published, is_append

WINDOW = 12  # the window of a published append, in versions
# The window of a replacement: longer than any writer commits without listing published ones.
REPLACE_WINDOW = 48
MAX_TAKEN = 64  # the most published transactions that one commit includes
MAX_TAKEN_BYTES = codec.MAX_COMMIT_BYTES // 2  # their total size: they must fit into the commit
MAX_LISTED = 1000  # by one listing, which is one request


@dataclass(frozen=True, slots=True, order=True)
class Intent:
    """A published transaction as a listing shows it.

    Intents are ordered as commits include them: by the end of the window, so the appends that have
    waited longest are first.

    Attributes:
        until: the last version of its window.
        id: the id of the transaction.
        key: the key of its object.
        size: the size of the object in bytes.
    """

    until: int
    id: str
    key: str
    size: int


def published_form(transaction: Transaction, head: Snapshot) -> Transaction:
    """Return a transaction in its published form, with a window that starts after `head`."""
    window = WINDOW if is_append(transaction) else REPLACE_WINDOW
    return msgspec.structs.replace(transaction, until=head.version + window)


def patience(transaction: Transaction, combine_after: int) -> int:
    """Return how many attempts a transaction may lose before it is published; 0: never published.

    A replacement costs far more work than an append: it is published after its first lost attempt.

    Args:
        transaction: the transaction.
        combine_after: the table's property of this name; 0: nothing is published.
    """
    if not combine_after or not combinable(transaction):
        return 0
    return combine_after if is_append(transaction) else 1


def is_note(transaction: Transaction) -> bool:
    """Return whether a transaction only records an analysis, which the next one makes again."""
    return bool(transaction.actions) and all(isinstance(a, Assess) for a in transaction.actions)


def void_if_it_waited(transaction: Transaction, head: Snapshot) -> bool:
    """Return whether a published transaction would probably be void before others include it.

    Those that delete rows include nothing, and each of their commits may void a replacement of the
    same segments, which then has to be made for the new deletes.

    Args:
        transaction: the transaction.
        head: the newest known snapshot.
    """
    if is_append(transaction):
        return False
    adds = (action for action in transaction.actions if isinstance(action, Add))
    overtaken = any(not isinstance(add.vector, UnsetType) for add in adds)
    # against rewrites-published-beside-deletes
    return overtaken or not isinstance(head.header.changes.vectors, UnsetType)


def combinable(transaction: Transaction) -> bool:
    """Return whether a transaction may be published: an append or replacement, small enough."""
    # The window of the published form takes room too.
    size_limit = codec.MAX_INTENT_BYTES - 64
    return (
        _may_be_taken(transaction) and len(codec.encode_transaction(transaction, "")) < size_limit
    )


def first_intent_key(head: Snapshot) -> str:
    """Return the key to start a listing after: no intent before it can take effect on `head`."""
    latest = min(head.version + MAX_WINDOW + 1, keys.MAX_VERSION)
    return keys.intent_key(latest, "f" * 32)


def most_listed(head: Snapshot) -> int:
    """Return how many published transactions to list: what four commits take, if so many wait.

    Those that took effect stay in the listing until their windows have ended.
    """
    return min(4 * MAX_TAKEN + len(head.meta.published), MAX_LISTED)


def open_intents(listed: Iterable[tuple[str, int]], head: Snapshot) -> list[Intent]:
    """Return the intents of a listing that may still take effect on `head`, in order.

    Of several with the same id, the one whose window ends last is kept.

    Args:
        listed: (key, size) of the listed objects, in the order of the listing.
        head: the newest known snapshot.
    """
    intents: dict[str, Intent] = {}
    for key, size in listed:
        parsed = keys.parse_intent_key(key)
        if parsed is None or size > codec.MAX_INTENT_BYTES:
            continue
        until, transaction_id = parsed
        if until <= head.version:
            break  # later windows are listed first: all following ones have ended
        intents.setdefault(transaction_id, Intent(until, transaction_id, key, size))
    return sorted(intents.values())


def waiting(intents: Iterable[Intent], head: Snapshot, taken: Collection[str] = ()) -> list[Intent]:
    """Return the intents that may still take effect on `head`, except the ids in `taken`."""
    return [
        intent
        for intent in intents
        if intent.until > head.version
        and intent.id not in head.meta.published
        and intent.id not in taken
    ]


def that_fit(intents: Iterable[Intent]) -> list[Intent]:
    """Return the first intents, as many as one commit can include."""
    taken: list[Intent] = []
    size = 0
    for intent in intents:
        size += intent.size
        if size > MAX_TAKEN_BYTES or len(taken) == MAX_TAKEN:
            break
        taken.append(intent)
    return taken


def parse_intent(body: bytes, key: str, table_id: str) -> Transaction:
    """Return the published transaction in an object.

    Args:
        body: the bytes of the object.
        key: its key.
        table_id: the id of the table that it must be for.

    Raises:
        Corrupt: the bytes break the format, are for another table, or do not match the key.
        InvalidInput: the transaction is invalid.
    """
    transaction = codec.decode_transaction(body, table_id)
    check_proposed(msgspec.structs.replace(transaction, until=None))
    named = keys.parse_intent_key(key)
    if named != (transaction.until, transaction.id) or not _may_be_taken(transaction):
        raise Corrupt("its content does not match its key", key=key)
    return transaction


def _may_be_taken(transaction: Transaction) -> bool:
    return transaction.spill is None and can_be_published(transaction)
