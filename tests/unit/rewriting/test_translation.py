"""Rows that were deleted while a rewrite ran: their places in what it made."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from support.builders import create
from support.compaction_tasks import SMALL, policy, rewrite_task, task_of
from support.deleting import delete_rows
from support.replacements import read
from support.updating import some_positions

from eventlog.errors import InvalidInput
from eventlog.rewriting import translation
from eventlog.rewriting.translation import Rewriting, translate
from eventlog.state.fold import segment_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("v", pa.string())])
START = datetime(2024, 1, 1, tzinfo=UTC)


def table_of(store=None, **options):
    return create(store, schema=SCHEMA, **options)


def rows(first, count, *, hours=1, kinds=3, seed=0):
    chance = random.Random(first + seed)
    return pa.Table.from_pylist(
        [
            {
                "at": START + timedelta(hours=chance.randrange(hours), seconds=n % 60),
                "n": n,
                "v": chance.choice("xyz"[:kinds]),
            }
            for n in range(first, first + count)
        ],
        schema=SCHEMA,
    )


def numbers(table, segments):
    """The numbers of the rows that are not deleted, in order, of entries that need not be live."""
    return read(table, segments).column("n").to_pylist()


def entries(table, adds):
    return [
        segment_of(add, table.session.head().version + 1, place) for place, add in enumerate(adds)
    ]


class Rewrite:
    """A rewrite of all live segments, and what becomes of its outputs."""

    def __init__(self, table, settings=SMALL, granularity=None):
        self.table, self.settings = table, settings
        self.task = task_of(table, granularity=granularity)
        self.made = made = rewrite_task(table, self.task, settings)
        self.rewriting = Rewriting(
            self.task.inputs, made.schema, made.layout, made.by, made.adds, settings.memory_bytes
        )

    def translated(self):
        """The outputs at the newest version."""
        live = {s.id: s for s in self.table.refresh().segments()}
        now = [live[s.id] for s in self.task.inputs if s.id in live]
        return translate(self.table, self.rewriting, now)

    def check(self):
        """The outputs have the rows of the inputs that are left, in the order of the rewrite."""
        adds = self.translated()
        left = {n for s in self.table.session.head().segments() for n in numbers(self.table, [s])}
        found = numbers(self.table, entries(self.table, adds))
        written = numbers(self.table, entries(self.table, self.made.adds))
        assert found == [n for n in written if n in left]
        assert set(found) == left & set(written)
        assert sum(add.live_rows for add in adds) == len(found)
        return adds


def delete_some(table, chance, most=0.4, *, in_log=True):
    """Delete some rows of some segments, never all of one."""
    found = some_positions(chance, table, most)
    if found:
        delete_rows(table, found, in_log=in_log)


CASES = {
    "as they are": {},
    "sorted": {"sort_by": ("n",)},
    "ties": {"sort_by": ("v",)},
    "ties of two columns": {"sort_by": ("v", "at")},
    "small": {"target_bytes": 2048},
    "small and sorted": {"target_bytes": 2048, "sort_by": ("v",)},
}


@pytest.mark.sample(6, verify=10)
@pytest.mark.parametrize("granularity", [None, "hour", "month"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("before", [False, True], ids=["", "deleted before"])
def test_deletes_are_found_in_the_outputs(case, granularity, before):
    table, chance = table_of(), random.Random(f"{case} {granularity} {before}")
    for part in range(4):
        append(table, rows(100 * part, 60, hours=40))
    if before:
        delete_some(table, chance)
    rewrite = Rewrite(table, policy(**CASES[case]), granularity)
    if "small" in case and granularity is None:
        assert len(rewrite.made.adds) > len({add.chunk for add in rewrite.made.adds})
    for _ in range(3):  # each sees what the earlier ones deleted
        delete_some(table, chance)
        rewrite.check()


@pytest.mark.parametrize("sort_by", [None, ("v",)])
def test_deletes_are_found_without_a_time_column(sort_by):
    table = table_of(time_column=None)
    for part in range(3):
        append(table, rows(100 * part, 20))
    rewrite = Rewrite(table, policy(sort_by=sort_by))
    delete_some(table, random.Random(5))
    assert any(add.vector for add in rewrite.check())
    with pytest.raises(InvalidInput, match="cannot have chunks by day"):
        Rewrite(table, granularity="day")


def test_columns_may_get_other_names_before_deletes_are_found():
    table = table_of()
    for part in range(3):
        append(table, rows(100 * part, 20, hours=4))
    rewrite = Rewrite(table, policy(sort_by=("v",)), None)
    delete_some(table, random.Random(1))
    for old, new in (("v", "x"), ("n", "v")):
        table.rename_column(old, new)
    adds = rewrite.translated()
    assert any(add.vector for add in adds)
    assert sum(add.live_rows for add in adds) == table.session.head().totals.rows


def test_order_of_equal_rows_is_that_of_the_rewrite_when_sorted_on_disk():
    table = table_of()
    for part in range(3):
        append(table, rows(10_000 * part, 8000, kinds=1))
    rewrite = Rewrite(table, policy(sort_by=("v",), memory_bytes=2**20))
    chance = random.Random(3)
    delete_some(table, chance)
    rewrite.check()


@pytest.mark.parametrize(("share", "again"), [(4, False), (10**9, True)])
def test_the_order_of_sorted_rows_is_read_once_if_it_fits(monkeypatch, share, again):
    monkeypatch.setattr(translation, "_KEPT_SHARE", share)
    store = CountingStore(MemoryStore())
    table = table_of(store)
    for part in range(3):
        append(table, rows(100 * part, 60))
    rewrite, gets = Rewrite(table, policy(sort_by=("v",))), []
    for _ in range(3):
        delete_some(table, random.Random(1))
        table.refresh()
        with store.measure() as counts:
            rewrite.translated()
        gets.append(counts.get - news())
        rewrite.check()
    assert gets == [3, *([3, 3] if again else [0, 0])]


def test_outputs_without_rows_left_are_left_out():
    table = table_of()
    for part in range(3):
        append(table, rows(100 * part, 60))
    rewrite = Rewrite(table, policy(target_bytes=2048))
    first, *others = rewrite.made.adds
    assert others
    gone = set(numbers(table, entries(table, [first])))
    doomed = {}
    for segment in table.refresh().segments():
        places = [p for p, n in enumerate(numbers(table, [segment])) if n in gone]
        if places:
            doomed[segment.id] = places
    whole = [s for s in table.session.head().segments() if len(doomed.get(s.id, ())) == s.rows]
    table.drop_segments(whole, reason="a test") if whole else None
    delete_rows(table, {k: v for k, v in doomed.items() if k not in {s.id for s in whole}})
    adds = rewrite.check()
    assert [add.id for add in adds] == [add.id for add in others]


@pytest.mark.parametrize("case", ["as they are", "ties"])
def test_all_rows_of_an_input_that_is_gone_are_deleted(case):
    table = table_of()
    for part in range(3):
        append(table, rows(100 * part, 60))
    second = sorted(table.refresh().segments(), key=lambda s: s.version)[1]
    delete_rows(table, {second.id: [5]})
    rewrite = Rewrite(table, policy(**CASES[case]))
    table.drop_segments([s for s in table.refresh().segments() if s.id == second.id], reason="so")
    (add,) = rewrite.check()
    assert add.rows == 179
    assert add.live_rows == 120


def test_without_deletes_nothing_is_stored_and_without_an_order_no_row_is_read():
    store = CountingStore(MemoryStore())
    table = table_of(store)
    for part in range(3):
        append(table, rows(100 * part, 60))
    rewrite = Rewrite(table)
    with store.measure() as counts:
        assert rewrite.translated() == rewrite.made.adds
    assert counts.put == 0
    for in_log, gets in ((False, 1), (True, 0)):  # the vectors of the inputs, in one object
        delete_some(table, random.Random(1), in_log=in_log)
        table.refresh()
        with store.measure() as counts:
            (add,) = rewrite.translated()
        assert add.live_rows < add.rows
        assert (counts.put, counts.get) == (0, gets + news())


def news():
    """Requests of a refresh that finds nothing new."""
    return 1


def test_of_sorted_rows_only_the_columns_that_decide_are_read():
    seen = []
    made = translation.sort_on_disk
    table = table_of()
    for part in range(2):
        append(table, rows(100 * part, 60))
    rewrite = Rewrite(table, policy(sort_by=("v",)))
    delete_some(table, random.Random(2))

    def sorted_on_disk(tables, by, **options):
        for one in made(tables, by, **options):
            seen.append(one.column_names)
            yield one

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(translation, "sort_on_disk", sorted_on_disk)
        rewrite.check()
    assert seen
    assert all("n" not in names for names in seen)
