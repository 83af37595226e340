"""The first rows of a scan: exactly the first, and no more segments than they need."""

import pytest
from support.builders import SCHEMA, create, events

from eventlog import errors
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, upsert

WHERES = (None, "value >= 0", "name LIKE '%4'", "value > 1000")


@pytest.fixture(scope="module")
def table():
    made = create(CountingStore(MemoryStore()))
    for day in range(12):
        append(made, events(4, day=day, first=4 * day))
    delete(made, where="value IN (0, 0.5, 1, 1.5, 2.5)")
    return made


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("limit", [0, 1, 3, 7, 43, 1000])
def test_they_are_the_first_of_all_rows(table, where, limit):
    whole = scan(table, where=where).to_table()
    limited = scan(table, where=where, limit=limit)
    assert limited.to_table().equals(whole.slice(0, limit))
    assert limited.count() == min(limit, whole.num_rows)
    assert scan(table, [], where, limit=limit).to_table().num_rows == limited.count()


def segments_read(table, **query):
    planned = scan(table, **query)
    with table.store.measure() as counts:
        planned.to_table()
    return counts.get


@pytest.mark.parametrize(("limit", "reads"), [(0, 0), (1, 1), (3, 1), (4, 2)])
def test_segments_behind_them_are_not_read(table, limit, reads):
    # Nothing is left of the first segment, and three rows of the second.
    assert segments_read(table, limit=limit) == reads


def test_with_a_filter_few_more_are_read(table):
    every = segments_read(table, where="name LIKE '%4'")
    assert segments_read(table, where="name LIKE '%4'", limit=1) <= 3 < every


def test_a_limit_holds_in_a_keyed_table():
    made = create(key="name", buckets=4)
    for first in (0, 6, 3):
        upsert(made, events(9, first=first))
    whole = scan(made).to_table()
    for limit in (0, 1, 5, 100):
        assert scan(made, limit=limit).to_table().equals(whole.slice(0, limit))


def test_a_limited_scan_is_one_part_and_no_dataset(table):
    limited = scan(table, limit=3)
    (part,) = limited.parts(4)
    assert part.to_table().num_rows == 3
    assert limited.to_duckdb().fetchall() == scan(table).to_duckdb().fetchall()[:3]
    with pytest.raises(errors.InvalidInput, match="limit"):
        limited.to_dataset()


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True])
def test_a_limit_is_a_whole_number(table, limit):
    with pytest.raises(errors.InvalidInput, match="limit"):
        scan(table, limit=limit)


def test_head_shows_rows(table):
    first = table.head(2)
    assert (len(first), first.schema) == (2, SCHEMA)
    assert first.to_table().equals(scan(table, limit=2).to_table())
    lines = repr(first).splitlines()
    assert lines[0] == "2 rows"
    assert lines[1].split() == SCHEMA.names
    assert len(lines) == 4
    assert repr(table.head(30)).splitlines()[-1] == "  … 10 more rows"
