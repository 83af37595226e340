"""Copies that something happens to: followers that died early, emptied copies, stale knowledge."""

import pytest
from support.builders import START_MS, Crash, reopen
from support.copies import everything, grow, sweep
from support.crashes import MortalStore

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore


def copy(table, store, **options):
    """One pass by another process: nothing cached, its own clock."""
    return follow(reopen(table.store), Table(store), clock=ManualClock(START_MS, 7), **options)


def vacuumed(table, seed):
    """A few more versions, of which the older ones are given up; return the horizon."""
    for n in range(2):
        grow(table, 100 * (n + 1))
    return sweep(table.store, seed)


class DiesAfter(MortalStore):
    """A store for a program that dies right after it created an object under a prefix."""

    def __init__(self, inner, prefix, count=1):
        super().__init__(inner)
        self._prefix, self._left = prefix, count

    def put_if_absent(self, key, body):
        created = super().put_if_absent(key, body)
        self._left -= key.startswith(self._prefix)
        if self._left <= 0:
            self.dead = True
            raise Crash("dies")
        return created


def test_a_copy_can_be_read_after_a_death_between_a_start_and_its_commit():
    source, target = everything(), MemoryStore()
    copy(source, target, start="keyframe")
    had = Log(target).head().version
    horizon = vacuumed(source, 10)
    with pytest.raises(Crash):
        copy(source, DiesAfter(target, keys.STARTS_PREFIX))
    assert len(list(target.list(keys.STARTS_PREFIX))) == 2
    assert Log(target).head().version == had < horizon
    assert copy(source, target).start == horizon
