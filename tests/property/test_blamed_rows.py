"""Any history: each row has the commit that wrote it, and a lost segment excludes no commit."""

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from support.builders import DAY_US, SCHEMA, create, live
from support.replacements import rewrite

from eventlog.compaction import Policy, run
from eventlog.format import keys
from eventlog.writers import append, delete, update, upsert

NAMES = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES),
        st.tuples(st.just("write"), NAMES),
        st.tuples(st.just("update"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("restore"), st.integers(0, 9)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("rewrite"), st.integers(0, 9)),
    ),
    min_size=3,
    max_size=9,
)


def take(table, step, keyed):
    """Do one step. Each row that it writes has the version in its column `value`."""
    verb, *args = step
    version = table.refresh().version + 1
    if verb == "write":
        rows = [[n % 2 * DAY_US, f"row {n}", float(version)] for n in args[0]]
        (upsert if keyed else append)(
            table, pa.table(list(map(list, zip(*rows, strict=True))), schema=SCHEMA)
        )
    elif verb == "update" and not keyed:
        update(table, {"value": str(float(version))}, where=f"name = 'row {args[0]}'")
    elif verb == "delete":
        delete(table, where=f"name = 'row {args[0]}'")
    elif verb == "restore":
        table.restore(args[0] % version)
    elif verb == "compact":
        run(table, policy=Policy(min_gain=0, small_ratio=1))
    elif verb == "rewrite" and not keyed:
        there = live(table.refresh())[args[0] % 3 : args[0] % 3 + 2]
        if there:
            table.commit(rewrite(table, there))


@pytest.mark.verify
@given(steps, st.booleans(), st.integers(0, 9))
def test_each_row_has_the_commit_that_wrote_it(history, keyed, spared):
    options = {"key": ["name"], "buckets": 2, "granularity": "all"} if keyed else {}
    table = create(**options)
    for step in history:
        take(table, step, keyed)
    found = table.blame(where="true").to_pylist()
    assert len(found) == table.count()
    assert [row["_version"] for row in found] == [int(row["value"]) for row in found]
    kept = {keys.key_of(segment) for segment in table.snapshot().segments()}
    objects = [row.key for row in table.store.list("data/") if row.key not in kept]
    table.store.delete([key for place, key in enumerate(objects) if place % 3 != spared % 3])
    for row in table.blame(where="true").to_pylist():
        assert int(row["value"]) in row["_versions"]
        assert row["_version"] in (None, int(row["value"]))
