"""Published transactions of a store, by the shell of the commit protocol."""

from eventlog.commit.committer import Committer
from eventlog.commit.intents import that_fit, waiting
from eventlog.commit.protocol import commands
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.store.memory import MemoryStore


class Staged(MemoryStore):
    """A store in which every segment that somebody adds is there, for tests that read no rows."""

    def get(self, key, *, start=0, length=None):
        if key.startswith(keys.SEGMENTS_PREFIX):
            return b""
        return super().get(key, start=start, length=length)


class Intents:
    """The objects under `_intents/` of one store, accessed through one handle."""

    def __init__(self, store, clock):
        self._committer = Committer(Log(store), clock)

    def publish(self, published, table_id):
        """Publish; return the error if it is refused permanently."""
        answer = self._committer.perform(commands.Publish(published, table_id))
        if isinstance(answer, commands.Refused):
            raise answer.error

    def pending(self, own, head):
        """Return the intents that the next commit on `head` would include: id to key."""
        listed = self._committer.perform(commands.ListIntents(head))
        chosen = that_fit(waiting(listed, head, {own.id}))
        return {intent.id: intent.key for intent in chosen}

    def read(self, wanted, table_id):
        """Return the published transactions of these keys."""
        return self._committer.perform(commands.ReadIntents(list(wanted.values()), table_id))
