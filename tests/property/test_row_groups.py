"""Many of what tests mostly have one of: row groups in a segment, segments in a chunk, parts."""

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import DAY_US, create, live, reopen

from eventlog import compaction, limits
from eventlog.format import parts
from eventlog.readers import count, scan
from eventlog.segments import fragments
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("value", pa.float64()),
        ("list", pa.list_(pa.string())),
        ("a.b", pa.int32()),
    ]
)
TEXTS = st.one_of(st.none(), st.sampled_from(["", "Oslo", "Kyoto", "x" * 300]))
ROWS = st.fixed_dictionaries(
    {
        "at": st.integers(0, 2 * DAY_US - 1),
        "text": TEXTS,
        "value": st.one_of(st.none(), st.floats(-2, 2), st.sampled_from([float("nan"), -0.0])),
        "list": st.one_of(st.none(), st.lists(TEXTS, max_size=3)),
        "a.b": st.one_of(st.none(), st.integers(-5, 5)),
    }
)
BOUNDS = st.tuples(
    st.sampled_from([1, 3, 8, 1000]),  # rows of a row group
    st.sampled_from([200, 1500, 2**20]),  # bytes of one
    st.sampled_from([0, 3000, 2**20]),  # of a segment that is checked whole
    st.sampled_from([100, 2000, 2**24]),  # of what is decoded at once
)
WHERE = {
    None: lambda row: True,
    "n >= 7 AND n < 30": lambda row: 7 <= row["n"] < 30,
    "text = 'Oslo'": lambda row: row["text"] == "Oslo",
    '"a.b" > 0 AND n < 40': lambda row: (row["a.b"] or 0) > 0 and row["n"] < 40,
    "value IS NULL OR n = 3": lambda row: row["value"] is None or row["n"] == 3,
}


def rows_of(table):
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.verify
@pytest.mark.hazard("W4")
@given(
    appends=st.lists(st.lists(ROWS, min_size=1, max_size=40), min_size=2, max_size=4),
    bounds=BOUNDS,
    names=st.lists(st.sampled_from(SCHEMA.names), unique=True),
)
def test_every_way_to_cut_rows_gives_the_same_rows(appends, bounds, names):
    group_rows, group_bytes, whole_bytes, piece_bytes = bounds
    number = iter(range(10_000))
    written = [[row | {"n": next(number)} for row in rows] for rows in appends]
    everything = [row for rows in written for row in rows]
    with (
        patch.object(limits, "ROW_GROUP_ROWS", group_rows),
        patch.object(limits, "ROW_GROUP_BYTES", group_bytes),
        patch.object(limits, "WHOLE_BYTES", whole_bytes),
        patch.object(fragments, "_PIECE_BYTES", piece_bytes),
    ):
        store = MemoryStore()
        table = create(store, schema=SCHEMA)
        for rows in written:
            append(table, pa.Table.from_pylist(rows, schema=SCHEMA))
        for _ in range(2):
            again = reopen(store)
            assert all(
                (s.tail is None) == (s.bytes <= whole_bytes) for s in live(again.session.head())
            )
            for where, passes in WHERE.items():
                kept = [row for row in everything if passes(row)]
                right = pa.Table.from_pylist(kept, schema=SCHEMA)
                assert rows_of(scan(again, where=where).to_table()) == rows_of(right)
                found = scan(again, names, where=where, batch_rows=5).to_table()
                assert found.num_rows == count(again, where=where) == len(kept)
                assert rows_of(found) == rows_of(right.select(names)) or not names
            for task in compaction.plan(table, compaction.Policy(small_task_bytes=0)).tasks:
                assert compaction.perform(table, task, compaction.Policy()).ok


@given(sizes=st.lists(st.lists(st.integers(0, 2**40), min_size=2, max_size=2), max_size=4))
def test_what_row_groups_take_is_told(sizes):
    class Footer:
        num_row_groups = len(sizes)
        metadata = {parts.DECODED_KEY.encode(): parts.encode_sizes(sizes).encode()}  # noqa: RUF012

    assert parts.decoded_sizes(Footer, 2) == sizes
    assert parts.decoded_sizes(Footer, 3) == (None if sizes else [])
    Footer.num_row_groups += 1
    assert parts.decoded_sizes(Footer, 2) is None
    Footer.metadata = None
    assert parts.decoded_sizes(Footer, 2) is None
