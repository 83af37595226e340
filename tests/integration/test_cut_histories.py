"""Random histories of a table whose log is cut, beside writers that sleep and vacuums that die."""

import random
from contextlib import suppress
from datetime import timedelta

import pytest
from integration.test_cut_logs import ALL, DAY, HOUR, check_cut, rows_of
from support.builders import Crash, CrashingStore, Spy, create, events, reopen

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.inline.inline_objects import forget_objects
from eventlog.writers import append, overwrite


class History:
    """A table, and what happens to it, an hour after the other."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seeds = iter(range(1000 * seed + 1000, 1000 * seed + 2000))
        frames, inline = self.random.choice("247"), self.random.choice(("0", "8000"))
        self.table = create(properties={"keyframe_commits": frames, "inline_bytes": inline})

    def handle(self, store):
        """A handle of another process."""
        return Table(store, ManualClock(self.table.clock.now_ms(), next(self.seeds)))

    def step(self, number):
        """One change, chosen by chance."""
        self.table.clock.advance(HOUR)
        steps = (self.append, self.restore, self.pin, self.cut, self.sleep)
        self.random.choices(steps, (9, 2, 2, 3, 3))[0](number)

    def append(self, number):
        append(self.table, events(1, day=self.random.randrange(3), first=1000 + number))

    def restore(self, number):
        head = self.table.refresh()
        with suppress(errors.EventLogError):
            self.table.restore(self.random.randint(head.meta.horizon, head.version))

    def pin(self, number):
        head = self.table.refresh()
        if head.meta.pins:
            self.table.unpin(next(iter(head.meta.pins)), owner="x")
        else:
            version = self.random.randint(head.meta.horizon, head.version)
            with suppress(errors.EventLogError):
                self.table.pin(f"p{number}", version, owner="x")

    def cut(self, number):
        """A vacuum, which may die, and changes no row."""
        shown = rows_of(reopen(self.table.store))
        hours = {"retention": (0, 3, 9), "staging": (0, 5), "log_retention": (0, 4, 12)}
        given = {name: timedelta(hours=self.random.choice(some)) for name, some in hours.items()}
        store = self.table.store
        if self.random.random() < 0.6:
            store = CrashingStore(store, self.random.randint(3, 160), "before")
        with suppress(Crash):
            vacuum(self.handle(store), log=True, dry_run=False, **given)
        forget_objects()
        assert rows_of(reopen(self.table.store)) == shown

    def sleep(self, number):
        """A writer is suspended before its PUT, while others write and cut the log."""
        spy, slept = Spy(self.table.store), []
        writer = self.handle(spy)
        slot = writer.refresh().version + 1

        def before_put(key):
            if key == keys.commit_key(slot) and not slept:
                slept.append(key)
                for one in range(self.random.randint(0, 9)):
                    overwrite(self.table, events(1, first=5000 + 10 * number + one), **DAY)
                    self.table.clock.advance(HOUR)
                vacuum(self.handle(self.table.store), **ALL)

        spy.before_put = before_put
        name = f"{2000 + number}"
        before = [row for row in rows_of(reopen(self.table.store)) if name in row]
        try:
            version = append(writer, events(1, day=1, first=int(name)))
        except (errors.CommitConflict, errors.CommitUnknown):
            return
        assert not codec.is_stub(self.table.store.get(keys.commit_key(version)))
        after = [row for row in rows_of(reopen(self.table.store)) if name in row]
        assert len(after) == len(before) + 1


@pytest.mark.hazard("W20")
@pytest.mark.sample(2, verify=10)
@pytest.mark.parametrize("seed", range(60))
def test_no_row_is_lost_by_cuts(seed):
    history = History(seed)
    for number in range(history.random.randint(10, 25)):
        history.step(number)
    check_cut(history.table.store)
    shown = rows_of(reopen(history.table.store))
    vacuum(history.handle(history.table.store), **ALL)
    forget_objects()
    check_cut(history.table.store)
    assert rows_of(reopen(history.table.store)) == shown
