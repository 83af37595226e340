"""Two logs of a table delete rows, compact, vacuum and merge: no row is lost or returns."""

import itertools
import random
from datetime import timedelta

import pytest
from support.builders import check_sound, create, events, live, reopen, sorted_names
from support.deleting import delete_rows, deleted_positions
from support.forked_histories import copied
from support.replacements import replace

from eventlog.compaction import vacuum
from eventlog.errors import CommitConflict
from eventlog.fsck.check import fsck
from eventlog.readers import count
from eventlog.replication import merge
from eventlog.writers import append

HISTORIES = 8  # for each seed
SOON = {"retention": timedelta(hours=1), "staging": timedelta(0), "dry_run": False}


class History:
    """A table and a copy that took writes of its own."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.numbers = itertools.count()
        self.table = create(seed=seed + 1, properties={"keyframe_commits": "3"})
        self.write(self.table, 4)
        self.base = set(sorted_names(self.table))
        self.other = reopen(copied(self.table.store), seed=seed + 5000)

    def write(self, table, most):
        for _ in range(self.chance.randint(most > 3, most)):
            table.refresh()
            table.clock.advance(1_800_000)
            kind = self.chance.choice(["append", *["delete"] * 3, "compact", "vacuum"])
            getattr(self, kind)(table, live(table.head()))

    def append(self, table, _):
        count = self.chance.randint(2, 5)
        append(table, events(count, first=next(self.numbers) * 10))

    def delete(self, table, segments):
        positions = {}
        for segment in self.chance.sample(segments, min(len(segments), self.chance.randint(1, 2))):
            gone = deleted_positions(table, segment)
            left = [n for n in range(segment.rows) if n not in gone]
            number = self.chance.randint(1, 2)
            if len(left) > number:
                positions[segment.id] = self.chance.sample(left, number)
        if positions:
            delete_rows(table, positions)

    def compact(self, table, segments):
        if segments:
            replace(table, self.chance.sample(segments, min(len(segments), 2)))

    def vacuum(self, table, _):
        vacuum(table, full=self.chance.random() < 0.5, **SOON)

    def joined(self):
        """Merge in one direction and then in the other; return whether somebody had to choose."""
        one, two = self.chance.sample([self.table, self.other], 2)
        there, here = set(sorted_names(one)), set(sorted_names(two))
        wanted, chosen = (self.base & there & here) | (there - self.base) | (here - self.base), None
        try:
            merge(one, two)
        except CommitConflict as conflict:
            if "--take" not in str(conflict):
                raise
            chosen = self.chance.choice(["source", "target"])
            merge(one, two, take=chosen)
            wanted = there if chosen == "source" else here  # all rows are in one chunk
        merge(two, one)
        for table in (one, two):
            table.refresh()
            assert sorted_names(table) == sorted(wanted)
            assert count(table) == table.head().totals.rows == len(wanted)
        self.base = wanted
        return chosen is not None


@pytest.mark.parametrize("seed", range(5))
def test_deletes_of_two_logs_are_merged_right_or_somebody_chooses(seed):
    chosen = set()
    for number in range(HISTORIES):
        history = History(HISTORIES * seed + number)
        for _ in range(3):
            history.write(history.table, 3)
            history.write(history.other, 3)
            chosen.add(history.joined())
        for table in (history.table, history.other):
            check_sound(table.store)
            report = fsck(reopen(table.store), checksums=True)
            assert not report.findings
    assert False in chosen
