"""Published transactions as values: which may be published, in what form, and which are taken.

Pure. Under contention a writer publishes its append or replacement under `_intents/`, and whoever
wins the next slot takes it along (FORMAT.md "Combining"). The fold accepts a published transaction
once, and only within its window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from eventlog.commit.proposal import check_transaction
from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction
from eventlog.state.small.rules import MAX_WINDOW, can_be_published, is_append

WINDOW = 8  # versions for which a published append waits
# A replacement waits longer than any writer goes without looking for what is published.
REPLACE_WINDOW = 48
MAX_TAKEN = 64  # published transactions that one commit takes along
MAX_TAKEN_BYTES = codec.MAX_COMMIT_BYTES // 2  # of them together: they must fit into the commit
MAX_LISTED = 4 * MAX_TAKEN


@dataclass(frozen=True, slots=True, order=True)
class Intent:
    """A published transaction as a listing shows it, in the order in which they are taken.

    Those whose window ends first come first: of the appends, those that have waited longest.
    """

    until: int
    id: str
    key: str
    size: int


def publication(transaction: Transaction, head: Snapshot) -> Transaction:
    """Return a transaction in the form to publish: to take effect within the next versions."""
    window = WINDOW if is_append(transaction) else REPLACE_WINDOW
    return msgspec.structs.replace(transaction, until=head.version + window)


def patience(transaction: Transaction, combine_after: int) -> int:
    """Return how many races it may lose before it is published; 0: it never is.

    A replacement took far more work than an append, and is published after its first.
    """
    if not combine_after or not combinable(transaction):
        return 0
    return combine_after if is_append(transaction) else 1


def combinable(transaction: Transaction) -> bool:
    """Say whether a transaction may be published: an append or replacement, and small enough."""
    # The window that it is published with takes room too; the table's id takes none.
    size_limit = codec.MAX_INTENT_BYTES - 64
    return (
        _may_be_taken(transaction) and len(codec.encode_transaction(transaction, "")) < size_limit
    )


def start_key(head: Snapshot) -> str:
    """Return the key after which a listing starts: nothing before it can take effect on `head`."""
    latest = min(head.version + MAX_WINDOW + 1, keys.MAX_VERSION)
    return keys.intent_key(latest, "f" * 32)


def open_intents(listed: Iterable[tuple[str, int]], head: Snapshot) -> list[Intent]:
    """Return what a listing of keys and sizes shows that may still take effect on `head`, in order.

    One of each id: the window that ends last is kept.
    """
    intents: dict[str, Intent] = {}
    for key, size in listed:
        parsed = keys.parse_intent_key(key)
        if parsed is None or size > codec.MAX_INTENT_BYTES:
            continue
        until, transaction_id = parsed
        if until <= head.version:
            break  # later windows sort first: from here on all have ended
        intents.setdefault(transaction_id, Intent(until, transaction_id, key, size))
    return sorted(intents.values())


def waiting(intents: Iterable[Intent], head: Snapshot, taken: Collection[str] = ()) -> list[Intent]:
    """Return the intents that may still take effect on `head`, without those of ids in `taken`."""
    return [
        intent
        for intent in intents
        if intent.until > head.version
        and intent.id not in head.meta.published
        and intent.id not in taken
    ]


def that_fit(intents: Iterable[Intent]) -> list[Intent]:
    """Return the first intents, as many as one commit can take along."""
    taken: list[Intent] = []
    size = 0
    for intent in intents:
        size += intent.size
        if size > MAX_TAKEN_BYTES or len(taken) == MAX_TAKEN:
            break
        taken.append(intent)
    return taken


def parse(body: bytes, key: str, table_id: str) -> Transaction:
    """Return the published transaction that an object holds.

    Raises:
        Corrupt: its bytes break the format, are for another table, or do not match its key.
        InvalidInput: it is none that may be published.
    """
    transaction = codec.decode_transaction(body, table_id)
    check_transaction(msgspec.structs.replace(transaction, until=None))
    named = keys.parse_intent_key(key)
    if named != (transaction.until, transaction.id) or not _may_be_taken(transaction):
        raise Corrupt("its content does not match its key", key=key)
    return transaction


def _may_be_taken(transaction: Transaction) -> bool:
    return transaction.spill is None and can_be_published(transaction)
