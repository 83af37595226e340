"""Predicates: what is accepted, what it means, what is refused and how."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import repeatable
from support.effort import calls_of

from eventlog.errors import InvalidInput
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.entries import ColumnStats
from eventlog.model.records import Leaf
from eventlog.model.schema import from_arrow
from eventlog.query import predicate

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("price", pa.float64()),
        ("single", pa.float32()),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("Odd Name.x", pa.int32()),
        ("wide", pa.decimal128(38, 10)),
    ]
)
STORED = from_arrow(SCHEMA)


def rows(**columns):
    count = len(next(iter(columns.values())))
    return pa.table(
        {f.name: pa.array(columns.get(f.name, [None] * count), f.type) for f in SCHEMA},
        schema=SCHEMA,
    )


def passing(where, table):
    """Say for each row whether it passes."""
    found = table.append_column("at", pa.array(range(table.num_rows)))
    kept = (
        found.filter(predicate.parse_predicate(where, STORED).to_arrow()).column("at").to_pylist()
    )
    return [row in kept for row in range(table.num_rows)]


# (predicate, column, values, who passes)
MEANINGS = [
    ("id = 5.5", "id", [5, 6, None], [0, 0, 0]),
    ("id <> 5.5", "id", [5, None], [1, 0]),
    ("id > 5.5", "id", [5, 6], [0, 1]),
    ("5.5 >= id", "id", [5, 6], [1, 0]),
    ("id <= -0.5", "id", [-1, 0], [1, 0]),
    ("id < 9007199254740993", "id", [2**53, 2**53 + 1], [1, 0]),
    ("id < 9223372036854775808", "id", [2**63 - 1, None], [1, 0]),
    ("id >= -9223372036854775808", "id", [-(2**63)], [1]),
    ("small = 300", "small", [44, None], [0, 0]),
    ("small < 300", "small", [127, None], [1, 0]),
    ("NOT small > 1e30", "small", [127, None], [1, 0]),
    ("id IN (1, 2.5, NULL)", "id", [1, 2, None], [1, 0, 0]),
    ("id NOT IN (1, NULL)", "id", [1, 2, None], [0, 0, 0]),
    ("id NOT IN (1, 3)", "id", [1, 2, None], [0, 1, 0]),
    ("id IN (1.5)", "id", [1, None], [0, 0]),
    ("id NOT IN (1.5)", "id", [1, None], [1, 0]),
    ("3 IN (id, small)", "id", [3, 4], [1, 0]),
    ("id = NULL OR id = 3", "id", [3, 4], [1, 0]),
    ("id IS NOT DISTINCT FROM 3", "id", [3, 4, None], [1, 0, 0]),
    ("id IS DISTINCT FROM 3", "id", [3, 4, None], [0, 1, 1]),
    ("id IS DISTINCT FROM NULL", "id", [3, None], [1, 0]),
    ("id / 0 IS NULL", "id", [None], [1]),
    ("id % 0 IS NULL", "id", [None], [1]),
    ("id <> 0 AND 6 / id = 2", "id", [3, 0, 4, None], [1, 0, 0, 0]),
    ("6 / id = 2 AND id <> 0", "id", [3, 0, 4, None], [1, 0, 0, 0]),
    ("id = 0 OR 6 % id = 0", "id", [3, 0, 4, None], [1, 1, 0, 0]),
    ("NOT (id = 0 OR 6 % id = 0)", "id", [3, 0, 4, None], [0, 0, 1, 0]),
    ("CASE WHEN id <> 0 THEN 6 / id END > 1", "id", [3, 0, 7, None], [1, 0, 0, 0]),
    ("CAST(name AS INT) > 9 OR name = 'x'", "name", ["12", "x", "9", None], [1, 1, 0, 0]),
    ("CAST(coalesce(name, '10') AS INT) IN (9, 10)", "name", ["9", "11", None], [1, 0, 1]),
    ("price IS NULL OR CAST(price AS BIGINT) = 2", "price", [2.9, 3.0, None], [1, 0, 1]),
    ("date_trunc('month', day) = '2013-02-01'", "day", [15737, 15706, None], [1, 0, 0]),
    ("substr(name, -2) = 'lo'", "name", ["Oslo", "Bergen", None], [1, 0, 0]),
    ("concat(name, '!') LIKE 'O%!'", "name", ["Oslo", "Bergen", None], [1, 0, 0]),
    ("wide + 0.5 = 1.5", "wide", [1, 2, None], [1, 0, 0]),
    ("wide = id + 0.5", "id", [1, 2, None], [0, 0, 0]),
    ("id % -1 = 0", "id", [-(2**63), 7], [1, 1]),
    ("id / 2 = 3.5", "id", [7, 6], [1, 0]),
    ("- id = 3", "id", [-3, 3], [1, 0]),
    ("wide = 1234567890123456789012345678.0123456789", "wide",
     [__import__("decimal").Decimal("1234567890123456789012345678.0123456789")], [1]),
    ("price > 5", "price", [float("nan"), 6.0, 5.0, None], [1, 1, 0, 0]),
    ("price <= 5", "price", [float("nan"), 5.0, None], [0, 1, 0]),
    ("NOT price <= 5", "price", [float("nan"), 5.0, None], [1, 0, 0]),
    ("price = 0", "price", [-0.0, 0.0], [1, 1]),
    ("price IN (0, 7)", "price", [-0.0, 7.0, float("nan")], [1, 1, 0]),
    ("single = 0.1", "single", [0.1, 0.2], [1, 0]),
    ("name LIKE 'a%'", "name", ["a", "ab", "ba", None], [1, 1, 0, 0]),
    ("name NOT LIKE 'a%'", "name", ["ab", "ba", None], [0, 1, 0]),
    ("name LIKE '%'", "name", ["", None], [1, 0]),
    ("name LIKE ''", "name", ["", "a"], [1, 0]),
    ("name LIKE 'a_c%e'", "name", ["abce", "a\nc\ne", "ace", "abcef"], [1, 1, 0, 0]),
    ("name LIKE '_'", "name", ["ä", "\U0001f600", "ab", ""], [1, 1, 0, 0]),
    ("name LIKE '50!%' ESCAPE '!'", "name", ["50%", "50x"], [1, 0]),
    ("name LIKE 'a.[c'", "name", ["a.[c", "abcc"], [1, 0]),
    ("name LIKE 'a\\%'", "name", ["a\\x", "a%"], [1, 0]),
    ("name ILIKE 'STRA%E'", "name", ["Strasse", "x"], [1, 0]),
    ("name ILIKE 'xA%' ESCAPE 'A'", "name", ["X%", "xay", "xa%"], [1, 0, 0]),
    ("name = 'it''s'", "name", ["it's"], [1]),
    ("flag", "flag", [True, False, None], [1, 0, 0]),
    ("NOT flag", "flag", [True, False, None], [0, 1, 0]),
    ("flag IS NOT TRUE", "flag", [True, False, None], [0, 1, 1]),
    ("tags IS NULL", "tags", [None, []], [1, 0]),
    ('"Odd Name.x" = 1', "Odd Name.x", [1, 2], [1, 0]),
    ("`odd name.X` = 1", "Odd Name.x", [1, 2], [1, 0]),
    ("ID = 1 -- a remark", "id", [1, 2], [1, 0]),
    ("1 = 1", "id", [1], [1]),
    ("day < TIMESTAMP '2013-01-07 12:00:00'", "day", [15712, 15713], [1, 0]),
    ("day = '2013-01-07 12:00'", "day", [15712], [0]),
    ("ts > '2013-01-07 00:00:00.0000005'", "ts", [1357516800000000, 1357516800000001], [0, 1]),
    ("ts = '2013-01-07T02:00:00+02:00'", "ts", [1357516800000000], [1]),
    ("ts = DATE '2013-01-07'", "ts", [1357516800000000, 1357516800000001], [1, 0]),
    ("local = TIMESTAMP '2013-01-07'", "local", [1357516800000000], [1]),
    ("extract(YEAR FROM ts) = 2013 AND hour(ts) = 0", "ts", [1357516800000000, 0], [1, 0]),
    ("coalesce(id, 7) = 7", "id", [None, 7, 8], [1, 1, 0]),
    ("length(name) = 1 AND upper(name) = 'Ä'", "name", ["ä", "a"], [1, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("where", "column", "values", "expected"), MEANINGS)
def test_meaning(where, column, values, expected):
    assert passing(where, rows(**{column: values})) == [bool(e) for e in expected]


# (predicate, what the message has to name)
REFUSED = [
    ("", "exactly one"),
    ("  -- nothing", "exactly one"),
    ("id = 1; id = 2", "exactly one"),
    ("id =", "not one SQL expression"),
    ("id = 1 id = 2", "not one SQL expression"),
    ("SELECT 1", "not one SQL expression"),
    ("id", "'id' is not a boolean condition"),
    ("id + 1", "not a boolean condition"),
    ("nothing = 1", "unknown column 'nothing'; columns: ts, day"),
    ('name = "a"', "write text in single quotes"),
    ("t.id = 1", "without a table"),
    ("id = (SELECT 1)", "SELECT 1"),
    ("id IN (SELECT 1)", "SELECT 1"),
    ("EXISTS (SELECT 1)", "EXISTS"),
    ("count(*) > 1", "COUNT"),
    ("rank() OVER () = 1", "OVER"),
    ("no_such(id) = 1", "NO_SUCH"),
    ("IF(flag, TRUE, FALSE)", "(If)"),
    ("id = ?", "Placeholder"),
    ("id = 'x'", "column 'id' has type int64"),
    ("name = 3", "column 'name' has type string"),
    ("name = DATE '2013-01-07'", "a time"),
    ("flag = 1", "column 'flag' has type bool"),
    ("raw = 'x'", "binary"),
    ("tags = 'x'", "list"),
    ("ts = 'abc'", "'abc' is not a date or time"),
    ("ts = '2013-02-30'", "'2013-02-30'"),
    ("ts = '2013-01-07 00:00:00+99:00'", "is not a date"),
    ("local = '2013-01-07 00:00:00+02'", "without an offset"),
    ("name = ts", "string and timestamp"),
    ("ts = 2013-01-07", "Write a time in quotes"),
    ("name + 1 = 2", "arithmetic"),
    ("price % 2 = 0", "two integers"),
    ("hour(day) = 1", "HOUR"),
    ("length(name, id) = 1", "LENGTH"),
    ("length(name, 1, 2) = 1", "LENGTH"),
    ("CAST(id AS INT8) = 1", "INT8"),
    ("name LIKE name", "literal"),
    ("id LIKE 'a'", "text"),
    ("like('a%', name)", "between its operands"),
    ("coalesce(" + "id," * 256 + "id) = 1", "at most 256"),
    ("flag AND NOT ilike('a%', name)", "between its operands"),
    ("name LIKE 'a!' ESCAPE '!'", "escape"),
    ("ts > DATE '2014-01-01T00:00:00+01:00'", "a DATE is a day"),
    ("ts > DATE '2014-01-01T00:00:00Z'", "a DATE is a day"),
    ("ts > CAST('2014-01-01 05:00:00' AS DATE)", "a DATE is a day"),
    ("name LIKE 'a' ESCAPE 'ab'", "one character"),
    ("id BETWEEN SYMMETRIC 2 AND 1", "BETWEEN"),
    ("price < 1e400", "cannot be compared"),
    ("id < 1e999999999", "not a number"),
    ("id = " + "9" * 5000, "not a number"),
    ("name = '\ud800'", "Unicode"),
    ("id = 1" + " " * 70_000, "longer than"),
    ("(" * 40 + "id = 1" + ")" * 40, "nests"),
    ("NOT " * 40 + "flag", "nests"),
    ("id = " + "- " * 40 + "1", "nests"),
    ("id = " + "1 + " * 5000 + "1", "nests"),
    ("id = 1" + " = 1" * 5000, "parentheses"),
]


@pytest.mark.parametrize(("where", "named"), REFUSED)
def test_refused(where, named):
    with pytest.raises(InvalidInput) as caught:
        predicate.parse_predicate(where, STORED)
    assert named in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "where",
    [
        pc.field("nothing") == 1,
        pc.field("id") + 1,
        pc.field("name") == 3,
        pc.match_substring_regex(pc.field("name"), "("),
        7,
        None,
    ],
)
def test_refused_arrow_expressions(where):
    with pytest.raises(InvalidInput):
        predicate.parse_predicate(where, STORED)


def test_refused_arrow_expression_lists_the_columns():
    with pytest.raises(InvalidInput, match=r"nothing.*columns: ts, day"):
        predicate.parse_predicate(pc.field("nothing") == 1, STORED)


def test_an_arrow_expression_may_name_a_column_by_its_position():
    by_position = pc.field(SCHEMA.names.index("id")) == 7
    assert passing(by_position, rows(id=[7, 8])) == [True, False]
    assert "id" in predicate.parse_predicate(by_position, STORED).columns()


def test_long_flat_predicates_are_fine():
    where = " OR ".join(f"id = {number}" for number in range(2000))
    assert passing(where, rows(id=[1999, 2000])) == [True, False]
    where = "id IN (" + ", ".join(str(number) for number in range(5000)) + ")"
    assert passing(where, rows(id=[4999, 5000])) == [True, False]


def test_the_longest_pattern_works():
    where = "name LIKE 'a" + "_" * 60_000 + "b'"
    assert passing(where, rows(name=["ab", "a" + "x" * 60_000 + "b"])) == [False, True]


def test_arrow_expressions_with_literals_that_arrow_cannot_print():
    long = "\U0010ffff" * 60
    asked = predicate.parse_predicate((pc.field("name") == long) & (pc.field("id") > 20), STORED)
    assert {"name", "id"} <= asked.columns()
    assert not asked.leaf_may_match(leaf(ColumnStats(4, 10, 20, 0)), "ts")
    asked = predicate.parse_predicate(pc.field("name").isin([long, "a"]), STORED)
    assert not asked.leaf_may_match(leaf(ColumnStats(8, "b", "bz", 0)), "ts")


@pytest.mark.parametrize(
    "part",
    [
        "(", "NOT ", "CASE ", "- ", "a.", "[", "id=", "'", "id IN (", "x(", "id IS NOT ",
        "id BETWEEN ", "INTERVAL ", "id::int::int::int ", "::int", "{", "id + ", "id % ",
    ],
)  # fmt: skip
def test_the_cost_of_hostile_text_follows_its_length(part):
    """Twice the text is about twice the work, for a text that repeats anything."""

    def refuse(length):
        text = "id" * part.startswith("::") + part * (length // len(part))
        with pytest.raises(InvalidInput):
            predicate.parse_predicate(
                text + "'" * (text.count("'") % 2 == 0 and part == "'"), STORED
            )

    refuse(100)  # what is made once
    once, twice = (calls_of(lambda n=length: refuse(n)) for length in (500, 1_000))
    assert twice < 3 * once
    assert twice < 250_000
    refuse(60_000 if repeatable.EXAMPLES else 12_000)


@pytest.mark.parametrize(
    ("where", "start", "end"),
    [
        ("ts >= '2013-01-07' AND ts < '2013-01-08'", 1357516800000, 1357603200000),
        ("ts = '2013-01-07 00:00:00.000001'", 1357516800000, 1357516800001),
        ("ts <= '2013-01-07'", MIN_MS, 1357516800001),
        ("ts < '1969-12-31 23:59:59.9995'", MIN_MS, 0),
        ("ts > '1969-12-31 23:59:59.9995'", -1, MAX_MS),
        ("NOT (ts < '2013-01-07' OR ts >= '2013-01-08')", 1357516800000, 1357603200000),
        ("ts = '2013-01-07' OR ts IN ('2013-01-09', '2013-01-08')", 1357516800000, 1357689600001),
        ("ts > '2013-01-07' OR id = 3", MIN_MS, MAX_MS),
        ("ts < '2013-01-07' AND ts > '2013-01-08'", MIN_MS, MIN_MS),
        ("ts <> '2013-01-07'", MIN_MS, MAX_MS),
        ("ts IS NOT DISTINCT FROM '2013-01-07'", 1357516800000, 1357516800001),
        ("TRUE", MIN_MS, MAX_MS),
    ],
)
def test_interval_of_a_timestamp(where, start, end):
    low, high = predicate.parse_predicate(where, STORED).interval("ts")
    assert low <= start
    assert high >= end
    if start < end:
        assert (start - low, high - end) <= (1, 1)  # rounded outward by less than a millisecond
    else:
        assert low >= high


def test_interval_of_a_date():
    asked = predicate.parse_predicate("day >= '2013-01-07' AND day < '2013-01-07 12:00'", STORED)
    assert asked.interval("day") == (1357516800000, 1357603200000)


def test_interval_of_a_naive_timestamp_counts_as_utc():
    asked = predicate.parse_predicate("local BETWEEN '2013-01-07' AND '2013-01-07'", STORED)
    assert asked.interval("local") == (1357516800000, 1357516800001)


def test_interval_of_arrow_expressions():
    at = [
        pa.scalar(datetime(2013, 1, day, tzinfo=UTC), SCHEMA.field("ts").type) for day in (7, 8, 9)
    ]
    ts = pc.field("ts")
    for where, expected in [
        ((ts >= at[0]) & (ts < at[1]), (1357516800000, 1357603200000)),
        ((ts == at[0]) | (ts == at[2]), (1357516800000, 1357689600001)),
        (~(ts < at[0]), (1357516800000, MAX_MS)),
        ((ts < at[0]) & (pc.field("id") > 3), (MIN_MS, 1357516800000)),
        ((ts < at[0]) | (pc.field("id") > 3), (MIN_MS, MAX_MS)),
        (ts.is_null(), (MIN_MS, MAX_MS)),
        (pc.year(ts) == 2013, (MIN_MS, MAX_MS)),
        (pc.field("id") > 3, (MIN_MS, MAX_MS)),
    ]:
        assert predicate.parse_predicate(where, STORED).interval("ts") == expected
    day = pa.scalar(15712, pa.date32())
    asked = predicate.parse_predicate(pc.field("day") == day, STORED)
    assert asked.interval("day") == (1357516800000, 1357603200000)


def test_columns():
    asked = predicate.parse_predicate(
        "lower(NAME) = 'a' AND (id IS NULL OR price + small > 1)", STORED
    )
    assert asked.columns() == {"name", "id", "price", "small"}
    assert predicate.parse_predicate("TRUE", STORED).columns() == set()
    by_expression = predicate.parse_predicate((pc.field("id") > 3) & pc.field("flag"), STORED)
    assert {"id", "flag"} <= by_expression.columns()
    assert "price" not in by_expression.columns()


def leaf(*stats, rows=100):
    return Leaf("0" * 64, 1, "2013-01-07/" + "0" * 32, 1357603200000, 1, rows, 1, "0" * 64, stats)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("ts >= '2013-01-07' AND id > 10", True),
        ("ts < '2013-01-07'", False),
        ("ts >= '2013-01-08'", False),
        ("id > 20", False),
        ("id <= 20", True),
        ("id IS NULL", False),
        ("name IS NULL", True),
        ("name LIKE 'c%'", False),
        ("name LIKE 'b%'", True),
        ("name = 'a' OR id = 25", False),
        ("NOT id BETWEEN 10 AND 20", False),
        ("price = 3", True),
    ],
)
def test_leaf_may_match(where, expected):
    stats = (ColumnStats(4, 10, 20, 0), ColumnStats(8, "b", "bz", 4))
    assert predicate.parse_predicate(where, STORED).leaf_may_match(leaf(*stats), "ts") is expected


def test_leaf_may_match_of_arrow_expressions():
    stats = (ColumnStats(4, 10, 20, 0),)
    midnight = pa.scalar(datetime(2013, 1, 8, tzinfo=UTC), pa.timestamp("us", tz="UTC"))
    for where, expected in [
        (pc.field("ts") >= midnight, False),
        (pc.field("ts") < midnight, True),
        (pc.field("id") > 20, False),
        (pc.field("id").is_null(), False),
        (pc.field("name").is_null(), True),
        (pc.field("id") * 2 > 1000, True),
    ]:
        assert (
            predicate.parse_predicate(where, STORED).leaf_may_match(leaf(*stats), "ts") is expected
        )
