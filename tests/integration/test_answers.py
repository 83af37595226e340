"""One answer, whoever reads: pyarrow, pandas, Polars, DuckDB and streams against plain Python.

The tables have several commits, segments, row groups and pages, before and after compaction.
Spark's engines are compared in the same way in `tests/spark/test_engines.py`.
"""

import datetime as dt
import math
import random
import struct
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import predicates
from support.builders import create

from eventlog import compaction, limits, readers
from eventlog.staging import encoding
from eventlog.writers import append

AT = pa.timestamp("us", "UTC")


@pytest.fixture(scope="module")
def world():
    """A table, its version before a compaction and the one after it, and its rows."""
    with pytest.MonkeyPatch.context() as patch:
        small = {"data_page_size": 32, "write_batch_size": 3}
        options = encoding.parquet_options
        patch.setattr(encoding, "parquet_options", lambda *given: options(*given) | small)
        patch.setattr(limits, "ROW_GROUP_ROWS", 7)
        table = create(schema=predicates.SCHEMA, time_column="ts")
        rows = predicates.rows(random.Random(11), 120)
        for first in range(0, 120, 40):
            append(table, predicates.to_arrow(rows[first : first + 40]))
        appended = table.session.head().version
        compaction.run(table)
        assert len(table.snapshot(version=appended).segments()) > 12
        assert 1 < len(table.refresh().segments()) < 12
        yield table, (appended, table.session.head().version), rows


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.mark.verify
@pytest.mark.hazard("W5")
def test_random_questions_have_one_answer(world, duck):
    table, versions, rows = world
    chance, count = predicates.examples(20)
    relation = readers.scan(table).to_duckdb(duck)
    for number in range(count):
        question = predicates.ask(chance)
        expected, version = question.ids(rows), versions[number % 2]
        found = readers.scan(table, ["id"], question.sql, version).to_table()
        assert sorted(found["id"].to_pylist()) == expected, question.sql
        assert readers.count(table, question.sql, version) == len(expected), question.sql
        # DuckDB compares integers as floats where one of a list has an exponent.
        if not any(sign in question.sql for sign in ("1e", "ILIKE")):
            got = relation.filter(question.sql).project("id").fetchall()
            assert sorted(got) == [(number,) for number in expected], question.sql


FLOATS = [
    ("{} = 0", lambda x: x == 0), ("{} >= 0", lambda x: math.isnan(x) or x >= 0),
    ("{} <= 0", lambda x: x <= 0), ("{} IN (0, 7)", lambda x: x in (0.0, 7.0)),
    ("{} > 1e38", lambda x: math.isnan(x) or x > 1e38), ("{} <> 0", lambda x: x != 0),
    ("{} <> {}", lambda x: False), ("{} = {}", lambda x: True),
    ("NOT ({} < 0)", lambda x: math.isnan(x) or x >= 0),
]  # fmt: skip


@pytest.mark.sample(0, verify=2)
@pytest.mark.hazard("W5")
@pytest.mark.parametrize("name", predicates.FLOAT_COLUMNS)
def test_floats_compare_as_numbers_and_nan_is_the_greatest(world, duck, name):
    table, versions, rows = world
    quoted = predicates.quoted(name)
    valid = [(row["id"], row[name]) for row in rows if row[name] is not None]
    for text, holds in FLOATS:
        where = text.format(quoted, quoted)
        expected = [number for number, value in valid if holds(value)]
        for version in versions:
            scan = readers.scan(table, ["id", name], version=version)
            asked = readers.scan(table, ["id"], where, version).to_table()
            assert sorted(asked["id"].to_pylist()) == expected, where
            pushed = scan.to_duckdb(duck).filter(where).project("id").fetchall()
            assert sorted(pushed) == [(number,) for number in expected], where


ROADS = {
    "table": lambda scan, _: scan.to_table(),
    "batches": lambda scan, _: pa.Table.from_batches(scan.to_batches()),
    "reader": lambda scan, _: scan.to_reader().read_all(),
    "stream": lambda scan, _: pa.table(scan),
    "polars": lambda scan, _: scan.to_polars().to_arrow(),
    "duckdb": lambda scan, duck: scan.to_duckdb(duck).to_arrow_table(),
}


@pytest.mark.sample(2)
@pytest.mark.hazard("W3")
@pytest.mark.parametrize("road", ROADS)
def test_every_value_comes_back_bit_by_bit(world, duck, road):
    table, versions, rows = world
    expected = predicates.bits(predicates.to_arrow(rows))
    for version in versions:
        found = ROADS[road](readers.scan(table, version=version), duck)
        assert found.column_names == predicates.SCHEMA.names
        assert predicates.bits(found.sort_by("id")) == expected


@pytest.mark.hazard("W3")
def test_pandas_gets_every_value(world):
    table, versions, rows = world
    for version in versions:
        frame = readers.scan(table, version=version).to_pandas().sort_values("id")
        assert [*frame.columns] == predicates.SCHEMA.names
        assert {str(frame[name].dtype) for name in ("i8", "i16", "i32", "i64")} == {
            "Int8", "Int16", "Int32", "Int64",
        }  # fmt: skip
        assert str(frame["id"].dtype) == "int64"
        for field in predicates.SCHEMA:
            nested = pa.types.is_nested(field.type)
            again = pa.array([*frame[field.name]], field.type, from_pandas=not nested)
            found = predicates.bits(pa.table({field.name: again}))[0]
            expected = predicates.bits(predicates.to_arrow(rows).select([field.name]))[0]
            assert [*map(_one_missing, found)] == [*map(_one_missing, expected)], field.name


def _one_missing(value):
    """The value with null in place of NaN, here as bits: pandas tells the two apart nowhere."""
    if isinstance(value, dict):
        return {name: _one_missing(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_one_missing(part) for part in value]
    return None if value == struct.pack("d", math.nan) else value


def test_pandas_rounds_no_integer_inside_of_a_value(world):
    inside = pa.struct([("k", pa.int64())])
    schema = pa.schema(
        [("ts", predicates.SCHEMA.field("ts").type), ("s", inside), ("l", pa.list_(pa.int64()))]
    )
    table = create(schema=schema, time_column="ts")
    large = 2**53 + 1
    for at in (0, predicates.DAY_US):
        rows = [[at] * 2, [{"k": large}, {"k": None}], [[large, None], None]]
        columns = [
            pa.array(v, pa.int64() if n == 0 else schema.field(n).type) for n, v in enumerate(rows)
        ]
        append(
            table, pa.table([columns[0].cast(schema.field(0).type), *columns[1:]], schema=schema)
        )
    frame = readers.scan(table).to_pandas()
    assert [*frame["s"]] == [{"k": large}, {"k": None}] * 2
    assert [None if v is None else [*v] for v in frame["l"]] == [[large, None], None] * 2


NAMES_NO_COLUMN = {
    "1 + 1 = 2": True,
    "LENGTH('abc') = 3 OR NULL": True,
    "'a' LIKE 'b%'": False,
    "NOT (1 + 1 = 2)": False,
    "1 = NULL": False,
}


@pytest.mark.verify
@pytest.mark.hazard("W5")
def test_a_filter_that_names_no_column_counts_as_it_reads(world):
    table, versions, rows = world
    questions_ = [*NAMES_NO_COLUMN.items(), (pc.scalar(True), True), (pc.scalar(False), False)]
    for version in versions:
        for where, passes in questions_:
            found = readers.scan(table, where=where, version=version)
            without = readers.scan(table, [], where=where, version=version)
            wanted = len(rows) if passes else 0
            counts = (found.count(), found.to_table().num_rows, without.to_table().num_rows)
            assert counts == (wanted,) * 3, where
            assert readers.count(table, where=where, version=version) == wanted


@pytest.mark.parametrize("digits", [(5, 1), (18, 18), (38, 10)], ids=str)
def test_a_decimal_among_floats_is_the_nearest_one(duck, digits):
    chance, (precision, scale) = random.Random(7), digits
    units = [chance.randrange(10 ** chance.randint(1, precision)) for _ in range(300)]
    texts = [f"{number:0{scale + 1}}" for number in units]
    decimals = [Decimal(f"{text[:-scale]}.{text[-scale:]}") for text in texts]
    table = create(
        schema=pa.schema(
            [("at", pa.timestamp("us", "UTC")), ("x", pa.decimal128(*digits)), ("f", pa.float64())]
        )
    )
    rows = pa.table(
        [[0] * 300, decimals, [float(d) for d in decimals]], schema=table.session.head().schema
    )
    append(table, rows)
    duck.register("decimals", rows)
    for where in (
        "x = f", "NOT x <> f", "-x = -f", "abs(x) = abs(f)", "x * 1 = f", "x / 1 = f",
        "coalesce(x, f) = f", "x IN (f)", "x BETWEEN f AND f", f"x + 0 = {texts[0]}e-{scale}",
    ):  # fmt: skip
        [(wanted,)] = duck.execute(f"SELECT count(*) FROM decimals WHERE {where}").fetchall()
        assert readers.count(table, where=where) == wanted > 0, where


@pytest.mark.verify
def test_years_have_as_many_digits_as_they_need(duck):
    at, kinds = (
        pa.timestamp("us", "UTC"),
        [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")],
    )
    schema = pa.schema([("at", at), *[(f"x{n}", kind) for n, kind in enumerate(kinds)]])
    days = [
        19_431_954,
        11_248_737,
        11_248_738,
        15_712,
        0,
        -1,
        -719_529,
        -800_000,
        -12_687_429,
        None,
    ]
    times = pa.array([None if day is None else day * 86_400 * 10**6 for day in days], pa.int64())
    columns = [pa.array(days, pa.int32()).cast(pa.date32()), times.cast(kinds[1]), times.view(at)]
    rows = pa.table([pa.array([0] * len(days), at), *columns], schema=schema)
    table = create(schema=schema)
    append(table, rows)
    duck.register("years", rows)
    # DuckDB has another calendar for instants; in UTC they have the year of a time without a zone.
    for column, theirs in (("x0", "x0"), ("x1", "x1"), ("x2", "x1")):
        years = f"SELECT DISTINCT coalesce(year({theirs}), 0) FROM years"
        for (year,) in duck.execute(years).fetchall():
            for sign in "=<>":
                count = f"SELECT count(*) FROM years WHERE year({theirs}) {sign} {year}"
                [(wanted,)] = duck.execute(count).fetchall()
                assert readers.count(table, where=f"year({column}) {sign} {year}") == wanted


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), AT], ids=str)
def test_parts_of_times_are_exact_as_far_as_times_go(kind):
    """The calendar repeats after 400 years, of which Python knows some."""
    day, end, whole = (86_400 * 10**6, 2**63, pa.int64())
    if pa.types.is_date(kind):
        day, end, whole = (1, 2**31, pa.int32())
    units = [-end, -end + 1, end - 719_469 * day, end - 1, -719_469 * day, -1, 0, 15_712 * day]
    table = create(schema=pa.schema([("at", AT), ("x", kind)]))
    at = pa.array(range(len(units)), pa.int64()).cast(pa.timestamp("s")).cast(AT)
    append(table, pa.table({"at": at, "x": pa.array(units, whole).cast(kind)}))
    for second, number in enumerate(units):
        cycle, rest = divmod(number, 146_097 * day)
        days, microseconds = divmod(rest, day)
        time = dt.datetime(1970, 1, 1) + dt.timedelta(days, microseconds=microseconds)
        where = (
            f"at = '1970-01-01T00:00:{second:02}Z' AND year(x) = {time.year + 400 * cycle} "
            f"AND month(x) = {time.month} AND day(x) = {time.day}"
        )
        if day > 1:
            where += f" AND hour(x) = {time.hour}"
        assert readers.count(table, where=where) == 1, where


def test_a_filter_that_fails_on_bounds_only_is_asked_of_the_rows():
    # The greatest value has no place among the floats; Arrow refuses to compare it with one.
    table = create(schema=pa.schema([("at", pa.timestamp("us", tz="UTC")), ("i", pa.int64())]))
    for numbers in ([1, 2], [3, 2**63 - 1]):
        append(
            table,
            pa.table({"at": pa.array([0, 1], table.snapshot().schema.field(0).type), "i": numbers}),
        )
    i = pc.field("i")
    assert readers.scan(table, where=i.cast("float64", safe=False) < 3.0).to_table().num_rows == 2
    found = readers.scan(table, where=pc.is_in(i, value_set=pa.array([1.0, 3.0])))
    assert found.to_table().column("i").to_pylist() == [1, 3]
    assert readers.scan(table, where=i < 3.0).to_table().column("i").to_pylist() == [1, 2]
