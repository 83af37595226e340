"""A store that tells how often each transaction was tried."""

import json
from collections import Counter

from eventlog.format import codec, keys
from eventlog.store.testing.wrappers import CountingStore


class TryCounter(CountingStore):
    """Counts the tries of every transaction that goes through this store.

    A try is a slot of the log that the transaction was sent to, or a window of versions that it was
    published for: others may commit it then, or the writer itself. The same again after an unclear
    answer is the same try.

    Args:
        inner: the store that does the work.
    """

    def __init__(self, inner):
        super().__init__(inner)
        self._tries = {}

    def __reduce__(self):
        return (TryCounter, (self.inner,))

    def put_if_absent(self, key, body):
        in_log, in_intents = keys.parse_log_key(key), keys.parse_intent_key(key)
        if in_log is not None and not in_log[1]:
            for transaction in codec.decode_commit(bytes(body), in_log[0]).transactions:
                if transaction.until is None:
                    self._tries[transaction.id, key] = transaction.operation
        elif in_intents is not None:  # sealed for the table, which this store does not know
            self._tries[in_intents[1], key] = json.loads(bytes(body))["operation"]
        return super().put_if_absent(key, body)

    def filesystem(self):
        return self.inner.filesystem()

    def tries(self, operation):
        """Return how often each transaction of an operation was tried, in no order."""
        wanted = [key for key, name in list(self._tries.items()) if name == operation]
        return list(Counter(transaction for transaction, _ in wanted).values())

    def forget(self):
        self._tries.clear()
