"""Histories with deletes of rows: merges, vacuums, restores and losses keep or name every row."""

import itertools
import random
from datetime import timedelta

import pytest
from support.builders import check_sound, create, events, live, reopen, sorted_names
from support.deleting import delete_rows, deleted_positions
from support.forked_histories import copied
from support.replacements import replace

from eventlog.compaction import vacuum
from eventlog.errors import CommitConflict, DataLoss
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import count, scan
from eventlog.replication import merge
from eventlog.writers import append

HISTORIES = 5  # for each seed
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
            getattr(self, kind)(table, live(table.session.head()))

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
            assert count(table) == table.session.head().totals.rows == len(wanted)
        self.base = wanted
        return chosen is not None


@pytest.mark.sample(2, verify=3)
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


@pytest.mark.sample(2, verify=2)
@pytest.mark.parametrize("seed", range(4))
def test_kept_versions_show_their_rows_whatever_is_vacuumed_and_restored(seed):
    for number in range(HISTORIES):
        history = History(HISTORIES * seed + number + 1000)
        table, chance = history.table, history.chance
        rows = {table.session.head().version: sorted_names(table)}
        for step in range(12):
            kind = chance.choice(["write", "write", "restore", "pin", "unpin"])
            if kind == "write":
                history.write(table, 2)
            elif kind == "restore":
                table.restore(chance.choice([v for v in rows if v >= table.refresh().meta.horizon]))
            elif kind == "pin":
                table.pin(f"step {step}", table.refresh().version, owner="me")
            else:
                for name in [*table.refresh().meta.pins][:1]:
                    table.unpin(name, owner="me")
            rows[table.refresh().version] = sorted_names(table)
            kept = [v for v in rows if v >= table.session.head().meta.horizon]
            for version in chance.sample(kept, min(3, len(kept))):
                assert sorted_names(table, version) == rows[version]
        check_sound(table.store)
        assert not fsck(reopen(table.store), checksums=True).findings


@pytest.mark.parametrize("seed", range(4))
def test_stand_ins_are_exact_or_the_rows_are_lost(seed):
    read = set()
    for number in range(HISTORIES):
        history = History(HISTORIES * seed + number + 2000)
        table, chance = history.table, history.chance
        history.append(table, ())
        for _ in range(6):
            kind = chance.choice(["append", "delete", "compact", "compact"])
            getattr(history, kind)(table, live(table.refresh()))
        wanted = sorted_names(table)
        objects = [key for s in live(table.refresh()) for key in keys.keys_of(s)]
        older = [row.key for row in table.store.list("data/") if row.key not in objects]
        lost = [
            *chance.sample(objects, 1),
            *chance.sample(older, min(len(older), chance.randint(0, 1))),
        ]
        table.store.delete(lost)
        try:
            found = scan(reopen(table.store), fallback=True).to_table().column("name").to_pylist()
        except DataLoss:
            read.add(False)
        else:
            assert sorted(found) == wanted
            read.add(True)
    assert read == {False, True}
