"""Two operations at once: one stops before a call, the other runs or dies, the first goes on.

Every ordered pair of append, replace, vacuum and key frame, also of one with itself, and of a
compaction with these, and with itself as where its task is delivered twice. The whole product
(`EVENTLOG_CRASH_FULL=1`) has every call of the first with every death of the second, and every
death of the first after that; the default run has every stop with the second running whole, and a
fixed part of the rest.
"""

import os
from collections import Counter
from dataclasses import dataclass
from itertools import product
from zlib import crc32

import pytest
from support.builders import Crash
from support.crashes import (
    ENDS,
    HOWS,
    OPERATIONS,
    MortalStore,
    Operation,
    append_rows,
    fresh,
    names,
    rows_of,
    sweep,
    table_with_history,
)

from eventlog import errors

pytestmark = pytest.mark.usefixtures("in_turn")

FULL = bool(os.environ.get("EVENTLOG_CRASH_FULL"))
MOST = 60
LONG_AGO = 1  # the version that the appending handles know
NAMES = ("append", "replace", "vacuum", "key frame")
COMPACT = "compact"
PAIRS = [(*pair, "1") for pair in product(NAMES, NAMES)]
PAIRS += [("append", "append", "64"), (COMPACT, "append", "64"), (COMPACT, COMPACT, "64")]
# With a key frame at each commit an operation has more points at which it may end.
LONG = [(*pair, "64") for pair in product(NAMES, NAMES) if pair != ("append", "append")]
if FULL:
    PAIRS, LONG = PAIRS + LONG, []
    PAIRS += [(COMPACT, other, "64") for other in ("replace", "vacuum")]
    PAIRS += [(other, COMPACT, "64") for other in ("append", "replace", "vacuum")]


def behind(act):
    """The operation of a handle that was opened long ago: a fence may pass what it stages."""

    def late(t):
        t.session._head = t.session.log.snapshot(LONG_AGO)
        return act(t)

    return late


FIRST = {
    "append": Operation(behind(append_rows(100, "job", 2)), (*range(4), 100, 101)),
    **{name: OPERATIONS[name] for name in (*NAMES[1:], COMPACT)},
}
SECOND = {**FIRST, "append": Operation(behind(append_rows(300, "other", 2)), (*range(4), 300, 301))}
tried, pairs = Counter(), set()


@dataclass(frozen=True)
class Fate:
    """At which call an operation dies or gets no answer, and how; 0: it does not."""

    at: int = 0
    how: str = "before"


class Run:
    """One run of two operations on a table of its own."""

    def __init__(self, first, second, stop, fates, keyframe_commits):
        self.past = table_with_history(keyframe_commits)
        self.store = self.past.store()
        mine, others = fates
        self.acts = (FIRST[first].act, SECOND[second].act)
        self.second = MortalStore(self.store, others.at, others.how)
        self.first = MortalStore(
            self.store, mine.at, mine.how, pause=stop, meanwhile=self._meanwhile
        )
        self.ends = [None, None]
        self.met = False
        self.ends[0] = self._end(0, self.first, 100)

    def _meanwhile(self):
        self.met = True
        self.ends[1] = self._end(1, self.second, 101)

    def _end(self, which, store, seed):
        try:
            self.acts[which](fresh(store, seed))
        except (*ENDS, errors.CommitConflict) as error:
            return error
        return None

    def check(self, first, second):
        """Check what is there, then that both can be done again, and that vacuum ends its work."""
        rows = Counter(rows_of(self.past.check(self.store)))
        for which, (name, operation) in enumerate(
            ((first, FIRST[first]), (second, SECOND[second]))
        ):
            end = self.ends[which]
            if which == 1 and not self.met:
                continue
            check_end(name, (second, first)[which], end)
            assert not (self.first, self.second)[which].deletes or name == "vacuum"
            new = [rows[n] for n in names(operation.rows[4:])]
            assert set(new) in ({0}, {1}, set())
            if end is None:
                assert set(new) <= {1}
            elif not isinstance(end, (Crash, errors.CommitUnknown)):
                assert set(new) <= {0}  # it said that nothing was committed
        assert [rows[n] for n in names(range(4))] == [1] * 4
        for number, act in enumerate(self.acts):
            act(fresh(self.store, 200 + number))
        wanted = {*FIRST[first].rows, *SECOND[second].rows}
        assert rows_of(fresh(self.store, 202)) == names(wanted)
        sweep(fresh(self.store, 300))
        left = self.past.dead(self.store)
        # What is staged in an epoch that a vacuum has been through is for a full one to find.
        assert not left & self.past.named(self.store)
        assert not left or "append" in (first, second)
        if left:
            sweep(fresh(self.store, 301), full=True)
            assert self.past.dead(self.store) == set()
        assert rows_of(self.past.check(self.store)) == names(wanted)


def check_end(name, other, end):
    """Only who needs what is gone, or came too late for a vacuum, may be told to decide again."""
    if isinstance(end, errors.CommitConflict):
        late = "deleted it" in str(end)
        replaced = name == "replace" and other in ("replace", COMPACT)
        assert replaced or (other == "vacuum" and late), (name, other, end)


def stops(first, second, keyframe_commits):
    """Every stop of the first at which the second runs whole: its runs."""
    for stop in range(1, MOST):
        run = Run(first, second, stop, (Fate(), Fate()), keyframe_commits)
        if not run.met:
            return
        yield stop, run


@pytest.mark.sample(3, verify=5)
@pytest.mark.parametrize(
    ("first", "second", "keyframe_commits"),
    [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.long) for pair in LONG)],
)
def test_two_operations_at_once(first, second, keyframe_commits):
    pairs.add((first, second, keyframe_commits))
    for stop, whole in stops(first, second, keyframe_commits):
        whole.check(first, second)
        assert not any(isinstance(end, ENDS) for end in whole.ends)
        tried["stops"] += 1
        for fates in points(whole, stop, second):
            text = repr((first, second, stop, fates, keyframe_commits))
            if crc32(text.encode()) % part(fates) == 0:
                Run(first, second, stop, fates, keyframe_commits).check(first, second)
                tried["deaths"] += 1


def points(whole, stop, second):
    """Yield the fates of both: either dies anywhere, or both do, the first where it stopped."""
    hows = [how for how in HOWS if how != "after"]  # the same as before the next call
    harder = [*hows, "half"] if second == "vacuum" else hows
    deaths = [Fate(at, how) for at in range(1, whole.second.calls + 1) for how in harder]
    lives = [Fate(at, how) for at in range(stop, whole.first.calls + 1) for how in hows]
    yield from ((Fate(), death) for death in deaths)
    yield from ((life, Fate()) for life in lives)
    yield from product(lives[: len(hows)], deaths)


def part(fates):
    """Return how many points with these fates stand for one that is run."""
    both = all(fate.at for fate in fates)
    return 1 if FULL else 2000 if both else 300


@pytest.mark.long
def test_the_pairs_are_stopped_at_hundreds_of_points():
    if len(pairs) < len(PAIRS):
        pytest.skip("counts what the other tests of this file ran")
    print(f"crash pairs: {tried['stops']} stops, {tried['deaths']} with deaths")  # noqa: T201
    assert tried["stops"] > 200
    assert tried["deaths"] > (25_000 if FULL else 40)
