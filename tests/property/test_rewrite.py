"""Rewriting random rows: none lost, none changed, sorted as Arrow sorts; merged statistics hold."""

import tempfile
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.builders import create, live
from support.compaction_tasks import policy, rewrite_task, task_of

from eventlog.compaction.execute import replacement
from eventlog.model import schema, stats
from eventlog.readers import scan
from eventlog.rewriting.row_digest import NOTHING, digest
from eventlog.staging.external_sort import sort_on_disk
from eventlog.writers import append

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=64)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KINDS = {
    pa.int64(): INTS | st.integers(-2, 2),
    pa.float64(): FLOATS | st.sampled_from([0.0, -0.0, float("nan"), float("inf")]),
    pa.string(): TEXTS | st.sampled_from(["", "a", "a" * 32, "a" * 33, "\U0010ffff" * 33]),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.integers(-700_000, 10**6),
    pa.timestamp("us", "UTC"): st.integers(-(10**15), 10**15),
    pa.decimal128(38, 2): st.decimals(-(10**35), 10**35, places=2),
}
AT = 86_400_000_000


@st.composite
def tables(draw, most=60, kinds=KINDS):
    """Tables of a few columns with nulls and ties, and their rows numbered in `n`."""
    chosen = draw(st.lists(st.sampled_from(list(kinds)), min_size=1, max_size=3))
    rows = draw(st.integers(0, most))
    columns = {}
    for place, kind in enumerate(chosen):
        values = st.lists(st.none() | kinds[kind], min_size=rows, max_size=rows)
        columns[f"c{place}"] = pa.array(draw(values), kind)
    return pa.table({**columns, "n": pa.array(range(rows), pa.int64())})


def cut(table, places):
    """The table in parts."""
    bounds = [0, *sorted(place % (table.num_rows + 1) for place in places), table.num_rows]
    return [table.slice(a, b - a) for a, b in pairwise(bounds)]


PLACES = st.lists(st.integers(0, 100), max_size=8)


@given(tables(), PLACES, st.sampled_from([64, 512, 2**20]))
def test_sorting_outside_of_memory_is_sorting(table, places, memory):
    by = table.column_names[:-1]
    with tempfile.TemporaryDirectory() as folder:
        parts = list(sort_on_disk(cut(table, places), by, memory_bytes=memory, directory=folder))
    found = pa.concat_tables(parts) if parts else table.slice(0, 0)
    wanted = table.sort_by([(name, "ascending") for name in by])
    assert found.column("n").to_pylist() == wanted.column("n").to_pylist()
    assert digest(found, "n") == digest(table, "n")


def merged(parts, columns):
    return stats.merge_stats((part.num_rows, stats.compute(part, columns)) for part in parts)


@given(tables(), PLACES)
@example(pa.table({"c0": [-(2**63), 0], "n": [0, 1]}), [1])
@example(pa.table({"c0": ["a" * 33, "b", None], "n": [0, 1, 2]}), [1, 2])
def test_merged_statistics_enclose_all_and_are_those_of_the_whole(table, places):
    columns = schema.from_arrow(table.schema).columns
    whole, found = stats.compute(table, columns), merged(cut(table, places), columns)
    if not table.num_rows:
        assert found == ()
        return
    for column, one, other in zip(columns, whole, found, strict=True):
        assert (other.column, other.nulls) == (one.column, one.nulls)
        least = column.type == "int64" and -(2**63) in table.column(column.name).to_pylist()
        if least or column.type.startswith("decimal"):
            # What has no place among the bounds makes those of its part unknown.
            assert other.min in (None, one.min)
            assert other.max in (None, one.max)
        else:
            assert other == one


def test_merged_bounds_that_nobody_knows_stay_unknown():
    columns = schema.from_arrow(pa.schema([("x", pa.decimal128(38, 0))])).columns
    table = pa.table({"x": pa.array([Decimal(1), Decimal(10) ** 30], pa.decimal128(38, 0))})
    (found,) = merged([table.slice(0, 1), table.slice(1)], columns)
    assert (found.min, found.max) == (None, None)


@given(tables(), PLACES, st.randoms(use_true_random=False))
def test_a_digest_adds_up_in_any_order_and_misses_no_row(table, places, random):
    order = list(range(table.num_rows))
    random.shuffle(order)
    total = NOTHING
    for part in cut(table.take(pa.array(order, pa.int64())), places):
        total += digest(part, "n")
    assert total == digest(table, "n")
    if table.num_rows:
        assert digest(table.slice(1), "n") != total
        assert digest(pa.concat_tables([table, table.slice(0, 1)]), "n") != total


@given(
    tables(most=40),
    PLACES,
    st.sampled_from(["hour", "day", "month", "all"]),
    st.sampled_from(["hour", "day", "month", "all"]),
    st.booleans(),
    st.sampled_from([1024, 3000, 2**20]),
    st.sampled_from([2**20, 2**26]),
)
def test_a_rewrite_keeps_all_rows(table, places, old, new, in_order, target, memory):  # noqa: PLR0917
    times = pa.array([AT * 25 + n * AT // 4 for n in range(table.num_rows)], pa.int64())
    rows = table.append_column("at", times.cast(pa.timestamp("us", "UTC")))
    written = create(schema=rows.schema, granularity=old)
    for part in cut(rows, places):
        append(written, part)
    by = tuple(table.column_names[:-1]) if in_order else ()
    settings = policy(target_bytes=target, memory_bytes=memory, sort_by=by)
    task = task_of(written, granularity=new)
    before = [digest(scan(written).to_table(), "at"), written.session.head().totals.rows]
    assume(task.inputs)
    made = rewrite_task(written, task, settings, verify=True)
    version = written.commit(replacement(written, task, made, None))
    assert [digest(scan(written).to_table(), "at"), written.refresh().totals.rows] == before
    assert all(segment.version == version for segment in live(written.session.head()))
    kept = scan(written).to_table().sort_by("n").drop_columns(["at"])
    assert str(kept.to_pydict()) == str(table.to_pydict())
