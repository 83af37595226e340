"""Random writers beside each other: no version shows a row that breaks a check which it has."""

import datetime as dt
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import START_MS, check_sound, create

from eventlog import Table, compaction
from eventlog.clock import ManualClock
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, update, upsert

SCHEMA = pa.schema(
    [pa.field("at", pa.timestamp("us", "UTC")), pa.field("id", pa.int64()), ("n", pa.int64())]
)
AT = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
# By name: the expression, and whether a value meets it by this file's own reckoning.
CHECKS = {
    "high": ("n < 6", lambda n: n < 6),
    "low": ("n > -6 OR n = -9", lambda n: n > -6 or n == -9),
    "whole": ("60 / n <> 7.5", lambda n: n not in (0, 8)),
}


class Crowded(MemoryStore):
    """A store on which others may commit before a commit arrives."""

    def __init__(self):
        super().__init__()
        self.before = None

    def put_if_absent(self, key, body):
        act, self.before = self.before, None
        if act is not None and key.startswith(keys.LOG_PREFIX):
            act()
        return super().put_if_absent(key, body)


class Writers:
    """Writers with handles of their own, which do random things to a table."""

    def __init__(self, seed, *, keyed=False):
        self.random, self.store, self.keyed = random.Random(seed), Crowded(), keyed
        options = {"key": "id", "buckets": 2} if keyed else {"granularity": "day"}
        create(self.store, schema=SCHEMA, **options)
        clock = lambda n: ManualClock(START_MS + n, 100 + n)
        self.tables = [Table(self.store, clock(n)) for n in range(3)]

    def rows(self):
        count = self.random.randrange(1, 4)
        numbers = [
            self.random.choice([*[1, 2, 3, 4, 5] * 9, *range(-9, 10), None]) for _ in range(count)
        ]
        given = {"at": [AT + dt.timedelta(self.random.randrange(2))] * count, "n": numbers}
        return pa.table(given | {"id": [*self.random.sample(range(6), count)]}, schema=SCHEMA)

    def act(self):
        """Do one random thing, beside which another one may happen; say whether it was done."""
        t, name = self.random.choice(self.tables), self.random.choice([*CHECKS])
        low = self.random.randrange(-9, 9)
        acts = [
            lambda: t.add_check(name, CHECKS[name][0]),
            lambda: t.drop_check(name),
            lambda: t.restore(self.random.randrange(t.refresh().version + 1)),
            lambda: compaction.run(t, policy=compaction.Policy(target_bytes=2**20, backoff_s=1)),
        ]
        if self.keyed:
            keys_of = pa.table({"id": [self.random.randrange(6)]})
            acts += [lambda: upsert(t, self.rows())] * 3 + [lambda: delete(t, keys=keys_of)]
        else:
            acts += [
                lambda: append(t, self.rows()),
                lambda: append(t, self.rows()),
                lambda: overwrite(t, self.rows(), start="2013-01-07", end="2013-01-08"),
                lambda: update(t, {"n": "n * 2"}, f"n > {low}"),
                lambda: delete(t, where=f"n > {low} AND n < {low + 4}"),
            ]
        act = self.random.choice(acts)
        if self.random.random() < 0.4 and self.store.before is None:
            self.store.before = self.act
        try:
            act()
        except (InvalidInput, CommitConflict):
            return False
        return True

    def check(self):
        """Check every version."""
        t = check_sound(self.store)
        for version in range(t.session.head().version + 1):
            snapshot = t.snapshot(version)
            shown = scan(t, ["n"], version=version).to_table()["n"].to_pylist()
            for name in snapshot.checks:
                meets = CHECKS[name][1]
                assert all(n is None or meets(n) for n in shown), (version, name, shown)
        assert fsck(t, checksums=True).findings == ()


def history(seed, *, keyed):
    writers = Writers(seed, keyed=keyed)
    done = sum(writers.act() for _ in range(24))
    writers.check()
    return done


@pytest.mark.sample(3, verify=6)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
def test_no_version_shows_a_row_that_breaks_a_check_of_its_own(seed, keyed):
    assert history(seed, keyed=keyed) > 5


@pytest.mark.long
@settings(max_examples=100)
@given(st.integers(100, 2**40), st.booleans())
def test_nor_does_one_of_other_histories(seed, keyed):
    history(seed, keyed=keyed)
