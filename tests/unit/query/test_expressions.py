"""Expressions of values: their types, the rows that fail, and what is refused and how."""

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from eventlog.errors import InvalidInput
from eventlog.model.schema import from_arrow
from eventlog.query.value_expressions import parse_value, qualified

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("price", pa.float64()),
        ("single", pa.float32()),
        ("name", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("dec", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("words", pa.list_(pa.string())),
        ("source.id", pa.int64()),
    ]
)
STORED = from_arrow(SCHEMA)
TEXTS = {"list": {"id": 0, "type": "string"}}


def rows(**columns):
    count = len(next(iter(columns.values()), [None]))
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * count), f.type) for f in SCHEMA})


def values(text, kind, **columns):
    return parse_value(text, STORED, kind).evaluate(rows(**columns)).to_pylist()


# (expression, type, column, its values, the results)
MEANINGS = [
    ("id + 1", "int64", "id", [1, None], [2, None]),
    ("small + 1", "int8", "small", [126, None], [127, None]),
    ("id / 2", "float64", "id", [7, -7], [3.5, -3.5]),
    ("id % 3", "int64", "id", [7, -7, -(2**63)], [1, -1, -2]),
    ("-id", "int64", "id", [2**63 - 1], [-(2**63) + 1]),
    ("-price", "float64", "price", [0.0, -1.5], [-0.0, 1.5]),
    ("price + single + 0.1", "float64", "price", [None], [None]),
    ("dec * 1.1", "decimal(14,3)", "dec", [Decimal("1.50")], [Decimal("1.650")]),
    ("dec + id", "decimal(38,2)", "dec", [None], [None]),
    ("CAST(dec * 1.1 AS DECIMAL(12,2))", "decimal(12,2)", "dec", [Decimal("0.05")],
     [Decimal("0.06")]),
    ("coalesce(single, 0.5)", "float32", "single", [None, 0.25], [0.5, 0.25]),
    ("coalesce(single, 0.1)", "float32", "single", [None], [pa.scalar(0.1, pa.float32()).as_py()]),
    ("coalesce(day, '2013-01-07')", "date", "day", [None], [date(2013, 1, 7)]),
    ("coalesce(words, tags)", TEXTS, "tags", [["a"], None], [["a"], None]),
    ("coalesce(id, 0.5)", "decimal(20,1)", "id", [None, 2], [Decimal("0.5"), Decimal("2.0")]),
    ("CASE WHEN flag THEN 0.1 ELSE 1 END", "float64", "flag", [True, False], [0.1, 1.0]),
    ("CASE WHEN flag THEN 1 END", "int8", "flag", [True, None], [1, None]),
    ("CASE id WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE name END", "string", "id", [1, 2, 3, None],
     ["one", "two", None, None]),
    ("CASE WHEN flag THEN NULL ELSE name END", "string", "name", ["a"], ["a"]),
    ("concat(name, '-', name)", "string", "name", ["a", "", None], ["a-a", "-", None]),
    ("substr(name, 2, 2)", "string", "name", ["añ😀b", "a", ""], ["ñ😀", "", ""]),
    ("substr(name, -2)", "string", "name", ["añ😀b", "a", ""], ["😀b", "a", ""]),
    ("substr(name, -5, 3)", "string", "name", ["abc"], ["a"]),
    ("upper(name)", "string", "name", ["straße"], ["STRAẞE"]),
    ("date_trunc('week', ts)", "timestamp", "ts", [-1],
     [datetime(1969, 12, 29, tzinfo=UTC)]),
    ("date_trunc('MONTH', day)", "date", "day", [date(2013, 1, 31)], [date(2013, 1, 1)]),
    ("CAST(price AS BIGINT)", "int64", "price", [2.9, -2.9], [2, -2]),
    ("CAST(dec AS INT)", "int32", "dec", [Decimal("-2.90")], [-2]),
    ("CAST(name AS TIMESTAMP)", "timestamp", "name",
     ["2013-01-07", "2013-01-07T05:00+02:00", "2013-01-07 05:00:00.5Z"],
     [datetime(2013, 1, 7, tzinfo=UTC), datetime(2013, 1, 7, 3, tzinfo=UTC),
      datetime(2013, 1, 7, 5, 0, 0, 500_000, tzinfo=UTC)]),
    ("CAST(ts AS STRING)", "string", "ts", [1357534800500000, 0],
     ["2013-01-07 05:00:00.5", "1970-01-01 00:00:00"]),
    ("CAST(local AS DATE)", "date", "local", [-1], [date(1969, 12, 31)]),
    ("CAST(wide AS STRING)", "string", "wide", [Decimal("1E-10"), Decimal(-3)],
     ["0.0000000001", "-3.0000000000"]),
    ("day", "timestamp_ntz", "day", [date(2013, 1, 7)], [datetime(2013, 1, 7)]),
    ("'2013-01-07'", "date", "id", [1], [date(2013, 1, 7)]),
    ("id > 3 AND flag", "bool", "id", [1, 5], [False, None]),
    ("0.1", "float32", "id", [1], [pa.scalar(0.1, pa.float32()).as_py()]),
    ("1.50", "decimal(12,2)", "id", [1, 2], [Decimal("1.50")] * 2),
    ("NULL", TEXTS, "id", [1], [None]),
    ("price > CAST('Infinity' AS DOUBLE)", "bool", "price", [float("nan"), float("inf"), None],
     [True, False, None]),
    ("source.id", "int64", "source.id", [4], [4]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "column", "given", "expected"), MEANINGS)
def test_meaning(text, kind, column, given, expected):
    quoted = text.replace("source.id", '"source.id"')
    found = parse_value(quoted, STORED, kind).evaluate(rows(**{column: given}))
    assert found.to_pylist() == expected
    assert "-0.0" not in repr(expected) or "-0.0" in repr(found.to_pylist())
    assert found.type == pa.array(expected, found.type).type
    assert (
        pickle.loads(pickle.dumps(parse_value(quoted, STORED, kind)))
        .evaluate(rows(**{column: given}))
        .equals(found)
    )


# (expression, type, column, its values, how many rows fail, what the message shows)
FAILURES = [
    ("id + 1", "int64", "id", [1, 2**63 - 1, None], 1, "(id = 9223372036854775807)"),
    ("id - 1", "int64", "id", [-(2**63), 0], 1, "(id = -9223372036854775808)"),
    ("id * id", "int64", "id", [2**32, 1], 1, "(id = 4294967296)"),
    ("-id", "int64", "id", [-(2**63), 1], 1, "id ="),
    ("abs(id)", "int64", "id", [-(2**63), 1], 1, "id ="),
    ("small + 1", "int8", "small", [127, 1], 1, "(small = 127)"),
    ("id / small", "float64", "small", [0, 1], 0, ""),  # null by zero is null
    ("1 / small", "float64", "small", [0, 1], 1, "(small = 0)"),
    ("1.5 / price", "float64", "price", [-0.0, 1], 1, "(price = -0.0)"),
    ("1 % small", "int64", "small", [0, 1], 1, "(small = 0)"),
    ("wide * 1000000000", "decimal(38,10)", "wide", [Decimal(10**27), 1], 1, "wide = 1"),
    ("wide + wide", "decimal(38,10)", "wide", [Decimal(10**28 - 1), 1], 1, "wide = 9"),
    ("CAST(name AS INT)", "int32", "name", ["1", "1.5", " 1", "", "0x1", "1e3", "x", None], 6,
     "(name = '1.5'), (name = ' 1'), (name = '')."),
    ("CAST(name AS DECIMAL(5,2))", "decimal(5,2)", "name", ["999.995", "999.994", "."], 2,
     "999.995"),
    ("CAST(name AS DOUBLE)", "float64", "name", ["1e999", "Infinity", "1e1_0"], 2, "1e999"),
    ("CAST(name AS DATE)", "date", "name", ["2013-02-29", "2012-02-29", "0000-01-01", "2013-1-1"],
     3, "2013-02-29"),
    ("CAST(name AS TIMESTAMP_NTZ)", "timestamp_ntz", "name",
     ["2013-01-07 24:00", "2013-01-07 05:00Z", "2013-01-07 05:00:00.1234567"], 3, "24:00"),
    ("CAST(name AS BOOLEAN)", "bool", "name", ["TRUE", "t", "1"], 2, "'t'"),
    ("CAST(price AS BIGINT)", "int64", "price", [float("nan"), 2.0**63, -(2.0**63), None], 2,
     "nan"),
    ("CAST(price AS REAL)", "float32", "price", [1e39, float("inf")], 1, "1e+39"),
    ("CAST(price AS DECIMAL(5,2))", "decimal(5,2)", "price", [999.995, float("inf"), 1.0], 2,
     "inf"),
    ("CAST(dec AS TINYINT)", "int8", "dec", [Decimal(128), Decimal("127.99")], 1, "128"),
    ("CAST(day AS STRING)", "string", "day", [2932897, 0], 1, "day ="),
    ("CAST(day AS TIMESTAMP)", "timestamp", "day", [2**31 - 1, 0], 1, "day ="),
    ("date_trunc('week', local)", "timestamp_ntz", "local", [-(2**63), 0], 1, "local ="),
    ("date_trunc('year', day)", "date", "day", [-(2**31), 0], 1, "day ="),
]  # fmt: skip


@pytest.mark.hazard("W3")
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure[0])
def test_rows_that_fail_are_counted_and_shown(failure):
    text, kind, column, given, count, shown = failure
    value, table = parse_value(text, STORED, kind), rows(**{column: given})
    if not count:
        assert value.evaluate(table).null_count
        return
    with pytest.raises(InvalidInput) as caught:
        value.evaluate(table)
    assert f"{text!r} fails for {count} of {len(given)} rows" in str(caught.value)
    assert shown in str(caught.value)


def test_three_rows_are_shown_of_many_in_all_batches():
    given = list(range(200_000))
    with pytest.raises(InvalidInput, match="for 199999 of 200000 rows") as caught:
        values("9223372036854775807 + id", "int64", id=given)
    assert str(caught.value).count("(id = ") == 3
    assert values("id + 1", "int64", id=given) == [n + 1 for n in given]
    assert values("id + 1", "int64", id=[]) == []


def test_floats_are_added_in_the_order_of_the_text():
    given = {"price": [1e16, 0.1], "single": [1.0, 1.5]}
    assert values("single + (single + price)", "float64", **given) == [1e16, 1.5 + (1.5 + 0.1)]
    assert values("single * (single * price)", "float64", **given) == [1e16, 1.5 * (1.5 * 0.1)]


@pytest.mark.parametrize(
    ("text", "column", "given", "expected"),
    [
        ("CASE WHEN id <> 0 THEN 6 / id END", "id", [3, 0], [2.0, None]),
        ("CASE id WHEN 0 THEN 0 ELSE 6 / id END", "id", [3, 0], [2.0, 0.0]),
        (
            "CASE WHEN id = 0 THEN 1.5 WHEN 6 / id > 1 THEN 2.5 END",
            "id",
            [3, 0, 6],
            [2.5, 1.5, None],
        ),
        ("coalesce(price, 1 / id)", "price", [1.5, 2.5], [1.5, 2.5]),
        ("CASE WHEN id <> 0 AND 6 / id > 1 THEN 1 ELSE 0 END", "id", [3, 0], [1, 0]),
        ("CASE WHEN 6 / id > 1 AND id <> 0 THEN 1 ELSE 0 END", "id", [3, 0], [1, 0]),
        ("CASE WHEN NOT (id = 0 OR 6 / id > 1) THEN 1 ELSE 0 END", "id", [3, 0, 9], [0, 0, 1]),
        ("CASE WHEN (6 / id > 1) IS TRUE OR id = 0 THEN 1 END", "id", [3, 0, 9], [1, 1, None]),
    ],
)
def test_what_does_not_decide_does_not_fail(text, column, given, expected):
    columns = {"id": [0] * len(given), column: given}
    assert values(text, "float64", **columns) == expected


@pytest.mark.parametrize(
    "text",
    [
        "coalesce(6 / id, 1)",
        "coalesce(price, 6 / id)",
        "CASE WHEN 6 / id > 1 THEN 1 END",
        "CASE WHEN flag THEN 1 ELSE 6 / id END",
        "CASE WHEN id = 0 THEN 6 / id END",
        "CASE WHEN id = 0 AND 6 / id > 1 THEN 1 END",
        "CASE WHEN id = 0 AND 6 / id < 1 THEN 1 END",
        "CASE WHEN id = 1 OR 6 / id > 1 THEN 1 END",
        "CASE WHEN (6 / id > 1) IS NULL THEN 1 END",
        "CASE WHEN NOT 6 / id > 1 THEN 1 END",
        "CASE WHEN 6 / id IN (1, 2) THEN 1 END",
        "CASE WHEN 6 / id BETWEEN 1 AND 2 THEN 1 END",
        "CASE WHEN 6 / id IS NOT DISTINCT FROM NULL THEN 1 END",
        "CASE WHEN CAST(CAST(6 / id AS DECIMAL(9,2)) AS STRING) LIKE '%1' THEN 1 END",
        "length(substr(upper(concat(CAST(6 % id AS STRING), 'a')), 1))",
        "year(date_trunc('month', CASE WHEN 6 % id = 1 THEN day END))",
    ],
)
def test_failures_reach_the_result(text):
    with pytest.raises(InvalidInput, match=r"fails for 1 of 1 rows.*id = 0"):
        parse_value(f"CAST({text} AS DOUBLE)", STORED, "float64").evaluate(rows(id=[0]))


# (expression, type, what the message has to name)
REFUSED = [
    ("id", "float64", "write CAST(id AS DOUBLE)"),
    ("price", "float32", "write CAST(price AS REAL)"),
    ("price", "int64", "write CAST(price AS BIGINT)"),
    ("dec * 1.1", "decimal(12,2)", "write CAST(dec * 1.1 AS DECIMAL(12,2))"),
    ("name", "int64", "write CAST(name AS BIGINT)"),
    ("id", "string", "write CAST(id AS STRING)"),
    ("ts", "date", "write CAST(ts AS DATE)"),
    ("ts", "timestamp_ntz", "write CAST(ts AS TIMESTAMP_NTZ)"),
    ("price", "string", "engines write floats in different ways"),
    ("flag", "int64", "CASE WHEN x THEN 1 ELSE 0 END"),
    ("id", "bool", "write a comparison"),
    ("CAST(id AS BOOLEAN)", "bool", "write a comparison"),
    ("CAST(price AS STRING)", "string", "engines write floats"),
    ("CAST(raw AS STRING)", "string", "binary cannot be cast"),
    ("CAST(tags AS STRING)", "string", "cannot be cast"),
    ("tags", {"list": {"id": 0, "type": "int64"}}, "has type"),
    ("300", "int8", "'300' is no value of type int8"),
    ("'x'", "date", "is no value of type date"),
    ("1.5", "int64", "is no value of type int64"),
    ("9223372036854775807 + 1", "int64", "for every row"),
    ("CAST('x' AS INT)", "int32", "for every row"),
    ("CAST(id AS INT8)", "int8", "INT8"),
    ("CAST(id AS VARCHAR(3))", "string", "CAST converts to"),
    ("CAST(id AS DECIMAL)", "decimal(9,0)", "CAST converts to"),
    ("CAST(id AS DECIMAL(39,0))", "decimal(38,0)", "CAST converts to"),
    ("TRY_CAST(name AS INT)", "int32", "TryCast"),
    ("IF(flag, 1, 2)", "int8", "(If)"),
    ("name || 'a'", "string", "||"),
    ("nullif(id, 1)", "int64", "NULLIF"),
    ("now()", "timestamp", "NOW()"),
    ("round(price)", "float64", "ROUND"),
    ("concat(name, id)", "string", "CONCAT needs text, not int64"),
    ("substr(name, 0)", "string", "1 for the first"),
    ("substr(name, 1, -1)", "string", "0 or more"),
    ("substr(name, id)", "string", "whole number in the expression"),
    ("date_trunc(s, ts)", "timestamp", "in single quotes"),
    ("date_trunc('fortnight', ts)", "timestamp", "one of year, quarter"),
    ("date_trunc('hour', day)", "date", "cannot cut to hour"),
    ("date_trunc('day', ts, 'Europe/Oslo')", "timestamp", "do not support"),
    ("coalesce(id, name)", "int64", "one type, not int64, string"),
    ("CASE WHEN id THEN 1 END", "int8", "not a boolean"),
    ("CASE " + "WHEN flag THEN 1 " * 300 + "END", "int8", "at most 256"),
    ("wide * wide", "decimal(38,20)", "more than 38 digits"),
    ("id % 1.5", "float64", "remainder of two integers"),
    ("name + 1", "int64", "arithmetic needs numbers"),
    ("-tags", "int64", "arithmetic needs numbers"),
    ("abs(tags)", "int64", "ABS needs a number"),
    ("length(tags)", "int64", "LENGTH needs text"),
    ("tags = tags", "bool", "cannot be compared"),
    ("CASE WHEN flag THEN 1 ELSE tags END", "int64", "one type"),
    ("source.id", "int64", "without a table"),
    ("id + ", "int64", "not one SQL expression"),
]


@pytest.mark.parametrize(("text", "kind", "named"), REFUSED)
def test_what_has_no_value_of_the_type_is_refused(text, kind, named):
    with pytest.raises(InvalidInput) as caught:
        parse_value(text, STORED, kind)
    assert named in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_columns_of_another_table_have_its_name():
    other = from_arrow(pa.schema([("id", pa.int64()), ("Total", pa.float64())]))
    value = parse_value("source.total + id", STORED, "float64", {"source": other})
    total = qualified("source", "Total")
    assert value.columns() == {"id", total}
    table = rows(id=[1, 2], **{"source.id": [7, 8]}).append_column(total, pa.array([0.5, 1.5]))
    assert value.evaluate(table).to_pylist() == [1.5, 3.5]
    failing = parse_value("source.id + 9223372036854775807", STORED, "int64", {"source": other})
    with pytest.raises(InvalidInput, match=r"\(source\.id = 1\)"):
        failing.evaluate(pa.table({qualified("source", "id"): [1]}))
    with pytest.raises(InvalidInput, match="columns of source need"):
        parse_value("target.id", STORED, "int64", {"source": other})
    with pytest.raises(InvalidInput, match="unknown column 'price'; columns: id, Total"):
        parse_value("source.price", STORED, "int64", {"source": other})


def test_what_only_the_result_needs_is_read():
    value = parse_value("CASE WHEN flag THEN lower(NAME) END", STORED, "string")
    assert value.columns() == {"flag", "name"}
    assert value.evaluate(rows(flag=[True], name=["A"]).select(["name", "flag"])).to_pylist() == [
        "a"
    ]
