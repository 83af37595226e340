"""Predicates of many values and parts: their cost is theirs once, not once a segment or a leaf."""

import functools
import itertools
import operator
import sys

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.builders import DAY_US, create

from eventlog import readers
from eventlog.errors import InvalidInput
from eventlog.log.snapshot import plan_scan
from eventlog.model.entries import ColumnStats
from eventlog.model.records import Leaf
from eventlog.query import predicate
from eventlog.segments import large_filters
from eventlog.writers import append

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
    ]
)
ROWS = 1000


def table_of(segments):
    """A table of the same rows in so many segments."""
    numbers = range(ROWS)
    at = pa.array([n % segments * DAY_US + n for n in numbers], pa.int64())
    columns = [at.cast(SCHEMA.field("at").type), [*numbers], [f"row {n}" for n in numbers]]
    table = create(schema=SCHEMA, granularity="day")
    append(table, pa.table([*columns, [n / 2 for n in numbers]], schema=SCHEMA))
    assert len(table.session.head().segments()) == segments
    return table


@pytest.fixture(scope="module")
def many():
    return table_of(200)


@pytest.fixture(scope="module")
def few():
    return table_of(2)


VALUES = pa.array(range(0, 200_000, 2), pa.int64())
TEXTS = " OR ".join(f"s LIKE '%w {n}_'" for n in range(150))
LARGE = {
    "integers": (pc.field("n").isin(VALUES), lambda n: n % 2 == 0),
    "texts": (pc.field("s").isin(pc.binary_join_element_wise("row", VALUES.cast("string"), " ")),
              lambda n: n % 2 == 0),
    "floats": (pc.field("f").isin(VALUES.cast(pa.float64())), lambda n: n % 4 == 0),
    "patterns": (TEXTS, lambda n: n >= 10),
    "both": (pc.field("n").isin(VALUES) & (pc.field("f") < 100), lambda n: n % 2 == 0 and n < 200),
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluations():
    """A list that grows whenever Arrow evaluates a filter with the function `evaluated`."""
    calls: list[int] = []

    def note(context, numbers):
        calls.append(len(numbers))
        return pa.repeat(pa.scalar(True), len(numbers))

    doc = {"summary": "", "description": ""}
    pc.register_scalar_function(note, "evaluated", doc, {"n": pa.int64()}, pa.bool_())
    return calls


@pytest.mark.sample(0, verify=2)
@pytest.mark.parametrize("name", LARGE)
def test_the_cost_does_not_grow_with_the_segments(many, few, evaluations, name):
    where, holds = LARGE[name]
    asked = predicate.parse_predicate(where, many.session.head().stored_schema).to_arrow()
    asked &= pc.Expression._call("evaluated", [pc.field("n")])
    for table in (few, many):
        found = readers.scan(table, ["n"], asked)
        evaluations.clear()
        numbers = found.to_table()["n"].to_pylist()
        assert sorted(numbers) == [n for n in range(ROWS) if holds(n)]
        assert evaluations == [ROWS]
        assert readers.count(table, asked) == len(numbers)


@pytest.mark.verify
def test_rows_come_in_order_and_in_bounded_batches(many, monkeypatch):
    monkeypatch.setattr(large_filters, "_SMALL_FILTER_BYTES", 0)
    monkeypatch.setattr(large_filters, "_MOST_BYTES", 1000)
    plain = readers.scan(many).to_table()
    for where in (pc.field("n").isin(VALUES[:300]), pc.field("f") < 100, "s LIKE '%5_'"):
        batches = list(readers.scan(many, ["s", "at"], where, batch_rows=16).to_batches())
        assert max(batch.num_rows for batch in batches) <= 16
        found = pa.Table.from_batches(batches)
        asked = predicate.parse_predicate(where, many.session.head().stored_schema).to_arrow()
        assert found == plain.filter(asked).select(["s", "at"])
        assert 50 < found.num_rows == readers.count(many, where)
        assert readers.scan(many, [], where).to_table().num_rows == found.num_rows


def test_a_large_predicate_that_fails_on_the_rows_is_the_callers_error(many):
    failing = pc.field("n").isin(VALUES) & (pc.divide_checked(pc.scalar(1), pc.field("n")) > 0)
    for read in (
        lambda: readers.scan(many, where=failing).to_table(),
        lambda: readers.count(many, failing),
    ):
        with pytest.raises(InvalidInput, match="predicate fails on the rows: divide by zero"):
            read()


@pytest.mark.parametrize(
    "where", ["1 / n > 0", "n * 9223372036854775807 > 0", "NOT n % n = 0", "CAST(s AS INT) = 3"]
)
def test_a_predicate_that_fails_for_a_row_ends_the_scan(few, where):
    for read in (
        lambda: readers.scan(few, where=where).to_table(),
        lambda: readers.count(few, where),
    ):
        with pytest.raises(
            InvalidInput,
            match=r"on the rows: an operation overflows.*CASE WHEN b <> 0 THEN a / b END",
        ):
            read()


BOOLEANS = list(enumerate(itertools.product([True, False, None], repeat=2)))


@pytest.mark.parametrize(
    "form",
    ["{} BETWEEN b AND c", "{} NOT BETWEEN b AND c", "{} IN (b, c)", "{} NOT IN (b, c, FALSE)",
     "{} IS DISTINCT FROM b", "b IS NOT DISTINCT FROM {}", "{} <=> b"],
)  # fmt: skip
def test_what_names_an_operand_several_times_is_not_nested_without_bound(form):
    schema = pa.schema([*SCHEMA, ("b", pa.bool_()), ("c", pa.bool_())])
    table = create(schema=schema)
    rows = [{"at": 0, "n": n, "b": b, "c": c} for n, (b, c) in BOOLEANS]
    append(table, pa.Table.from_pylist(rows, schema=schema))
    text = "(n > 1)"
    for depth in range(1, 28):
        text = f"({form.format(text)})"
        if depth == 4:
            theirs = form.replace("<=>", "IS NOT DISTINCT FROM")
            wanted = functools.reduce(
                lambda inner, _: f"({theirs.format(inner)})", range(4), "(n > 1)"
            )
            with duckdb.connect() as duck:
                duck.register("t", pa.Table.from_pylist(rows, schema=schema))
                [(found,)] = duck.execute(f"SELECT count(*) FROM t WHERE {wanted}").fetchall()
            assert readers.count(table, text) == found
    with pytest.raises(InvalidInput, match="repeats an operand"):
        readers.count(table, text)


@pytest.mark.parametrize(
    ("form", "fine"),
    [("n % {}", 2), ("{} % 7", 6), ("year(at) % {}", 2), ("CAST({} AS BIGINT)", 2)],
)
def test_remainders_and_casts_are_not_nested_without_bound(few, form, fine):
    text, texts = "year(at)", []
    for _ in range(fine + 1):
        text = f"({form.format(text)})"
        texts.append(text)
    assert readers.count(few, f"{texts[fine - 1]} IS NULL OR 1 = 1") == ROWS
    with pytest.raises(InvalidInput, match="repeats an operand"):
        readers.count(few, f"{texts[fine]} IS NULL OR 1 = 1")


@pytest.mark.verify
@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("n + 1 IN (" + ",".join(map(str, range(12_000))) + ")", lambda n: n >= 0),
        pytest.param(
            "n IN (" + ",".join(["n"] * 30_000) + ")", lambda n: n >= 0, marks=pytest.mark.long
        ),
        pytest.param(" OR ".join(["NOT n>5"] * 5_000), lambda n: n <= 5, marks=pytest.mark.long),
        pytest.param(" AND ".join(["n%2=0"] * 5_000), lambda n: n % 2 == 0, marks=pytest.mark.long),
        pytest.param(
            " OR ".join(["n+1 IN(" + ",".join(["1"] * 250) + ")"] * 60),
            lambda n: n == 0,
            marks=pytest.mark.long,
        ),
    ],
    ids=["terms", "columns", "or", "and", "lists in or"],
)
def test_a_connective_may_join_as_much_as_fits_into_a_text(few, where, holds):
    """Arrow walks a chain of what one connective joins by recursion, and ends the process."""
    assert readers.count(few, where) == sum(map(holds, range(ROWS)))


@pytest.mark.verify
@pytest.mark.parametrize(
    "text_of",
    [
        lambda count: " OR ".join(f"n<>{n}" for n in range(count)),
        lambda count: f"n + 1 IN ({','.join(map(str, range(count)))})",
    ],
    ids=["terms", "list"],
)
def test_reading_a_text_costs_in_proportion_to_it(text_of):
    stored = create(schema=SCHEMA).session.head().stored_schema

    def calls(count):
        where = text_of(count)
        seen = [0]

        def note(*_):
            seen[0] += 1

        sys.setprofile(note)
        try:
            predicate.parse_predicate(where, stored)
        finally:
            sys.setprofile(None)
        return seen[0]

    calls(10)
    assert calls(2000) < 12 * calls(200)


def test_many_equalities_prune_as_a_list_does(many):
    values = [0, 7.5, *range(2000, 2300, 20)]
    equal = " OR ".join(f"n = {n}" for n in values)
    listed = f"n IN ({', '.join(map(str, values))})"
    found = plan_scan(many.session.head(), where=equal)
    assert found.pruning == plan_scan(many.session.head(), where=listed).pruning
    assert found.pruning.read == 1
    assert readers.count(many, equal) == readers.count(many, listed) == 1
    assert readers.count(many, f"({equal} OR n IS NULL OR s = 'row 6') AND NOT (n = 5)") == 2


def test_leaves_are_not_asked_what_costs_more_than_their_entries():
    stored = create(schema=SCHEMA).session.head().stored_schema
    low, first = ColumnStats(2, 0, 9, 0), "1970-01-01/" + "0" * 32
    leaf = Leaf("0" * 64, 1, first, DAY_US // 1000, 5, 5, 1, "0" * 64, (low,))
    for parts, expected in ((20, False), (600, True)):
        wheres = [
            " AND ".join(f"n > {n}" for n in range(10, 10 + parts)),
            functools.reduce(operator.and_, [pc.field("n") > n for n in range(10, 10 + parts)]),
        ]
        for where in wheres:
            said = predicate.parse_predicate(where, stored)
            assert said.leaf_may_match(leaf, "at") is expected
            assert said.interval("at")


def test_values_beyond_the_bound_are_refused(many, monkeypatch):
    monkeypatch.setattr(predicate, "MAX_EXPRESSION_BYTES", 2**19)
    with pytest.raises(InvalidInput, match="join the rows with a table of the values"):
        readers.scan(many, where=pc.field("n").isin(VALUES))
