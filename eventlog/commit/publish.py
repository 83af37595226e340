"""Published transactions: what their writer offers to whoever wins the next slot.

Shell layer. Under contention writers combine instead of racing: an append, or a replacement, is
published under `_intents/`, and the next winner takes along what it finds there (FORMAT.md
"Combining"). The fold accepts a published transaction once, and only within its window.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from eventlog.clock import Clock
from eventlog.commit.proposal import check_transaction
from eventlog.commit.slot import retrying
from eventlog.errors import Corrupt, InvalidInput, KeyNotFound, OutcomeUnknown
from eventlog.format import codec, keys
from eventlog.model.records import Transaction
from eventlog.state.rules import MAX_WINDOW, can_be_published, is_append
from eventlog.state.snapshot import Snapshot
from eventlog.store.port import ObjectInfo, ObjectStore

WINDOW = 8  # versions for which a published append waits
# A replacement waits longer than any writer goes without looking for it (`Lookout`).
REPLACE_WINDOW = 48
MAX_TAKEN = 64  # published transactions that one commit takes along
MAX_TAKEN_BYTES = codec.MAX_COMMIT_BYTES // 2  # of them together: they must fit into the commit
_MAX_SEEN = 4 * MAX_TAKEN
_THREADS = 8

# Direct commits after which a writer looks for others: seldom, or often while it has met some.
_SELDOM, _OFTEN = 32, 4
_REMEMBERED = 64  # direct commits for which others are remembered

logger = logging.getLogger(__name__)


class Lookout:
    """When a winning writer looks for waiting ones: one LIST every so many commits.

    Without it a writer that never pauses would never see them, and they would starve.
    """

    def __init__(self) -> None:
        self._since = 0  # direct commits since the last look
        self._met = 0  # direct commits for which others are still remembered

    def lost(self) -> None:
        """Note that another writer was met."""
        self._met = _REMEMBERED

    def due(self) -> bool:
        """Count a direct commit, and say whether to look before it."""
        self._since += 1
        self._met = max(0, self._met - 1)
        if self._since < (_OFTEN if self._met else _SELDOM):
            return False
        self._since = 0
        return True


class Intents:
    """The published transactions under one root."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, Transaction | None] = {}  # by key; None: not usable

    def publish(self, published: Transaction, table: str) -> None:
        """Publish a transaction in the form that `publication` gave it.

        Args:
            published: the transaction.
            table: id of the table that it is for.

        Raises:
            InvalidInput: the store refuses it for good, such as a writer who may not create objects
                there; nothing was published.
            Unavailable: the store does not answer; it may be published nevertheless.
        """
        key = keys.intent_key(published.until or 0, published.id)
        body = codec.encode_transaction(published, table)
        unclear: list[OutcomeUnknown] = []

        def send() -> None:
            try:
                self._store.put_if_absent(key, body)
            except OutcomeUnknown as error:
                unclear.append(error)
                raise

        try:
            retrying(self._clock)(send)
        except InvalidInput:
            # against refused-publication-taken-for-sent
            if unclear:  # what was sent before it was refused may be there
                raise unclear[-1] from None
            raise

    def pending(self, own: Transaction, head: Snapshot) -> dict[str, str]:
        """Return the others' published transactions that may still take effect: id to key.

        One LIST. The smallest ids are kept where there are more than `MAX_TAKEN`, or more than
        `MAX_TAKEN_BYTES`.

        Raises:
            Unavailable: the store does not answer.
        """
        wanted: dict[str, ObjectInfo] = {}
        # Nothing before this key can take effect: strangers there must not fill the page.
        latest = min(head.version + MAX_WINDOW + 1, keys.MAX_VERSION)
        start = keys.intent_key(latest, "f" * 32)
        for found in self._store.list(keys.INTENTS_PREFIX, after=start, limit=_MAX_SEEN):
            parsed = keys.parse_intent_key(found.key)
            if parsed is None or found.size > codec.MAX_INTENT_BYTES:
                continue
            until, transaction_id = parsed
            if until <= head.version:
                break  # later windows sort first: from here on all have ended
            if transaction_id != own.id and transaction_id not in head.meta.published:
                wanted.setdefault(transaction_id, found)
        return _first(wanted)

    def read(self, wanted: Mapping[str, str], table: str) -> list[Transaction]:
        """Return the published transactions of these keys; what is not usable is left out.

        One GET for each that was not read before.

        Args:
            wanted: their keys by id.
            table: id of the table that they must be for.

        Raises:
            Unavailable: the store does not answer.
        """
        known = self._known  # replaced as a whole: a handle may be used from several threads
        found = {key: known[key] for key in wanted.values() if key in known}
        missing = [key for key in wanted.values() if key not in found]
        if len(missing) > 1:
            with ThreadPoolExecutor(_THREADS) as pool:
                bodies = pool.map(lambda key: self._get(key, table), missing)
                found.update(zip(missing, bodies, strict=True))
        elif missing:
            found[missing[0]] = self._get(missing[0], table)
        self._known = found
        usable = (found[key] for key in wanted.values())
        return [transaction for transaction in usable if transaction is not None]

    def _get(self, key: str, table: str) -> Transaction | None:
        """Return a published transaction, or None for what does not belong there."""
        try:
            body = self._store.get(key, length=codec.MAX_INTENT_BYTES + 1)
            transaction = codec.decode_transaction(body, table)
            check_transaction(msgspec.structs.replace(transaction, until=None))
        except (Corrupt, InvalidInput, KeyNotFound) as error:
            logger.warning("ignoring published transaction %s: %s", key, error)
            return None
        named = keys.parse_intent_key(key)
        if named != (transaction.until, transaction.id) or not _may_ride(transaction):
            logger.warning(
                "ignoring published transaction %s: its content does not match its key", key
            )
            return None
        return transaction


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
    return _may_ride(transaction) and len(codec.encode_transaction(transaction, "")) < size_limit


def _may_ride(transaction: Transaction) -> bool:
    return transaction.spill is None and can_be_published(transaction)


def _first(wanted: Mapping[str, ObjectInfo]) -> dict[str, str]:
    """Return id to key of the smallest ids that one commit can take along."""
    taken: dict[str, str] = {}
    size = 0
    for transaction_id in sorted(wanted)[:MAX_TAKEN]:
        size += wanted[transaction_id].size
        if size > MAX_TAKEN_BYTES:
            break
        taken[transaction_id] = wanted[transaction_id].key
    return taken
