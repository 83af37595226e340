"""Random histories of a table and its branches: the picture of each version is what readers see.

They write, delete, update, restore and compact, also while rows are deleted, and branches are
merged: so segments are added of which rows are deleted already, and get other vectors.
"""

import random
import re
from collections import Counter
from unittest import mock

import pytest
from support.builders import create, events, live
from support.compaction_tasks import SMALL, task_of
from support.repeatable import EXAMPLES

from eventlog.compaction import Policy, execute, run
from eventlog.errors import CommitConflict
from eventlog.model.entries import deleted_rows
from eventlog.view import history_picture, still_of
from eventlog.view.stacks import Stacks
from eventlog.writers import append, delete, update, upsert

ROWS, STEPS = 6, 14
KEYED = {"key": ["name"], "buckets": 2, "granularity": "all"}
SEED, KEYED_SEED = 54, 18
LONG = max(EXAMPLES, 100)


class Drawn:
    """A table after random steps, with its newest branch.

    Attributes:
        sides: the table, and the branch.
        counts: how often a step changed something.
    """

    def __init__(self, seed, *, keyed):
        self.chance, self.keyed, self.counts = random.Random(f"picture {seed}"), keyed, Counter()
        self.table, self.written, self.named = create(**(KEYED if keyed else {})), 0, 0
        self.write(self.table)
        self.fork()
        steps = [self.write, self.delete, self.delete, self.restore, self.compact, self.merge]
        steps += [] if keyed else [self.update, self.compact_meanwhile]
        for step in self.chance.choices(steps, k=STEPS):
            side = self.table if step == self.merge else self.chance.choice(self.sides)
            before = side.refresh().version
            step(side)
            self.counts[step.__name__] += side.refresh().version > before

    def fork(self):
        self.named += 1
        self.branch = self.table.branch(f"branch-{self.named}")
        self.sides, self.forked = (self.table, self.branch), self.branch.refresh().version

    def some(self):
        first = self.chance.randrange(self.written) / 2
        return f"value >= {first} AND value < {first + self.chance.choice((1, 2, 4))}"

    def write(self, side):
        (upsert if self.keyed else append)(side, events(ROWS, first=self.written, days=2))
        self.written += ROWS

    def delete(self, side):
        delete(side, where=self.some())

    def update(self, side):
        update(side, {"name": "'new'"}, where=self.some())

    def restore(self, side):
        oldest = self.forked if side is self.branch else 1
        side.restore(self.chance.randint(oldest, side.refresh().version))

    def compact(self, side):
        run(side, policy=Policy(min_gain=0, small_ratio=1))

    def compact_meanwhile(self, side):
        """Rewrite all segments, and delete some of their rows before the commit of that."""
        rewrite = execute.rewrite

        def late(*args, **options):
            made = rewrite(*args, **options)
            self.delete(side)
            return made

        if live(side.refresh()):
            with mock.patch.object(execute, "rewrite", late):
                execute.perform(side, task_of(side), SMALL)

    def merge(self, table):
        try:
            table.merge(self.branch)
        except CommitConflict:
            self.fork()


def sums_in(still):
    """The numbers of segments and rows that a still shows, by version."""
    found = re.findall(r">Version (\d+)<.*?>([\d,]+) segments?, ([\d,]+)", still, re.DOTALL)
    numbers = ([int(text.replace(",", "")) for text in texts] for texts in found)
    return {version: (segments, rows) for version, segments, rows in numbers}


def drawn_at(picture, version):
    """The rows and the state of each live segment, by id, as a picture has them."""
    stacks, found = Stacks(picture, 10), {}
    for number, block in enumerate(picture.blocks):
        state = stacks.state_at(number, version)
        if state in ("visible", "masked"):
            assert block.entry.id not in found
            found[block.entry.id] = (block.entry.rows - block.masked_rows(version), state)
    return found


def check_pictures(table, first, *, keyed):
    """Compare the picture from a version on with the snapshot of each version, and its rows."""
    picture = history_picture(table, first)
    versions = range(first, picture.last + 1)
    shown = sums_in(still_of(picture, versions))
    for version in versions:
        stored = table.snapshot(version).segments()
        states = {s.id: "masked" if s.live_rows < s.rows else "visible" for s in stored}
        expected = {s.id: (s.live_rows, states[s.id]) for s in stored}
        assert drawn_at(picture, version) == expected, version
        # In a keyed table the stored rows are counted, before keys are merged.
        rows = sum(s.live_rows for s in stored) if keyed else table.count(version=version)
        assert shown[version] == (len(stored), rows)


def added_with_deleted_rows(table):
    """How often each operation added a segment of which rows were deleted already."""
    picture = history_picture(table)
    added = (block.made for block in picture.blocks if deleted_rows(block.entry.vector))
    return Counter(picture.transactions[number].operation for number in added)


def play(seed, *, keyed=False):
    """Play a history, check its pictures, and return what happened in it."""
    history = Drawn(seed, keyed=keyed)
    for side in history.sides:
        check_pictures(side, 0, keyed=keyed)
        check_pictures(side, side.refresh().version // 2, keyed=keyed)
    return history.counts, added_with_deleted_rows(history.table)


def test_each_version_is_in_the_picture_as_readers_see_it():
    _, added = play(SEED)
    assert {"merge", "restore", "compact"} <= added.keys()


def test_a_keyed_table_is_in_the_picture_as_it_is_stored():
    counts, _ = play(KEYED_SEED, keyed=True)
    assert all(counts[step] for step in ("delete", "restore", "compact", "merge"))


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True], ids=["", "keyed"])
def test_pictures_of_many_histories(keyed):
    for seed in range(LONG):
        play(seed, keyed=keyed)
