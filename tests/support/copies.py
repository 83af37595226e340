"""Copies of tables for tests: a table with objects of every kind, and what makes a copy a copy."""

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cache
from unittest import mock

from support.builders import create, events
from support.crashes import SMALL_LEAVES, fresh

from eventlog import compaction
from eventlog.compaction import Policy
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore
from eventlog.table.table import Table
from eventlog.writers import append, overwrite

POLICY = Policy(target_bytes=2**20, backoff_s=1)
NOT_COPIED = (keys.INTENTS_PREFIX, keys.PROBES_PREFIX, keys.STARTS_PREFIX)


@contextmanager
def small_objects():
    """Let a few segments need spills, and key frames have leaves."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(keyframe, **SMALL_LEAVES))
        stack.enter_context(mock.patch.object(spills, "SPILL_BYTES", 1500))
        yield


def everything(store=None):
    """A table with appends, an overwrite, a compaction, a restore, new columns and a vacuum."""
    store = MemoryStore() if store is None else store
    with small_objects():
        table = create(store, properties={"keyframe_commits": "3"})
        for n in range(3):
            append(table, events(6, first=10 * n, days=6))
        kept = table.session.head().version
        overwrite(table, events(2, first=50), start="1970-01-01", end="1970-01-02")
        compaction.run(table, policy=POLICY)
        table.restore(kept)
        append(table, events(3, first=70, days=3))
    return table


@cache
def _laid():
    """The objects of `everything`, made once."""
    store = everything().store
    return tuple((row.key, store.get(row.key)) for row in store.list(""))


def laid(store):
    """The table of `everything` in a store that is slower than memory."""
    for key, body in _laid():
        store.put_if_absent(key, body)
    return fresh(store, 2)


def grow(table, first=100):
    """A few more versions, of several kinds."""
    with small_objects():
        append(table, events(6, first=first, days=6))
        compaction.run(table, policy=POLICY)
        append(table, events(1, first=first + 10))


def sweep(store, seed):
    """Vacuum as much as is allowed, an hour later for each seed; return the horizon."""
    table, nothing = fresh(store, seed), timedelta(0)
    compaction.vacuum(table, dry_run=False, retention=nothing, staging=nothing)
    return table.refresh().meta.horizon


def objects(store):
    """The objects that a copy has, too, by key."""
    return {
        row.key: store.get(row.key) for row in store.list("") if not row.key.startswith(NOT_COPIED)
    }


def check_prefix(source, target):
    """Check that a store has a prefix of a table, byte for byte, and is whole; return its head.

    -1: it has no version yet.
    """
    theirs, mine = objects(source), objects(target)
    assert all(theirs[key] == body for key, body in mine.items())
    versions = [p[0] for p in map(keys.parse_log_key, mine) if p is not None and not p[1]]
    if not versions:
        return -1
    report = fsck(Table(target), objects=True)
    assert not report.errors, report.findings
    assert not [f for f in report.findings if "start from" in f.message]
    return report.head
