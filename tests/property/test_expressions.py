"""A value of an expression is DuckDB's, and a row fails where DuckDB's expression fails.

What differs on purpose stands in `theirs`, the texts for DuckDB, as listed in docs/expressions.md:
division by zero fails; `%` by -1 is 0; casts to integers cut off what is behind the point; text is
cast by strict forms; CONCAT of NULL is NULL; a date that is cut stays a date. What DuckDB rounds in
another way (floats to decimals, long decimals to floats) is compared with Python's decimals.
"""

import math
import random
import re
import unicodedata
from datetime import date, datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import repeatable

from eventlog.errors import InvalidInput
from eventlog.model.schema import from_arrow
from eventlog.query import value_expressions
from eventlog.query.sql.literals import parse_moment
from eventlog.query.value_expressions import parse_value

SCHEMA = pa.schema(
    [
        ("i", pa.int64()), ("j", pa.int32()), ("b", pa.int8()), ("f", pa.float64()),
        ("g", pa.float32()), ("m", pa.decimal128(12, 2)), ("w", pa.decimal128(20, 9)),
        ("s", pa.string()), ("u", pa.string()), ("n", pa.timestamp("us")), ("d", pa.date32()),
        ("q", pa.bool_()),
    ]
)  # fmt: skip
STORED = from_arrow(SCHEMA)
EXACT = Context(prec=400)
VALUES = {
    "i": [-(2**63), -(2**63) + 1, -(2**53) - 1, -7, -1, 0, 1, 2, 3, 10, 2**31, 2**53 + 1,
          2**63 - 1],
    "j": [-(2**31), -1, 0, 1, 7, 2**31 - 1],
    "b": [-128, -3, -1, 0, 1, 2, 127],
    "f": [math.nan, -math.inf, -1e300, -2.5, -0.5, -0.0, 0.0, 5e-324, 0.1, 0.5, 1.5, 2.5,
          1e15 + 0.5, 2.0**63, 1e308, math.inf],
    "g": [math.nan, -math.inf, -1.5, -0.0, 0.0, 0.1, 16777216.0, 3e38],
    "m": [Decimal(t) for t in ("-9999999999.99", "-2.50", "-0.01", "0", "0.01", "0.50", "1.50",
                               "7", "9999999999.99")],
    "w": [Decimal(t) for t in ("-99999999999.999999999", "-0.000000001", "0", "0.000000001",
                               "1.005", "2.5", "99999999999.999999999")],
    "s": ["12", "-7", "+3", "007", "x", "", "9223372036854775808", "-9223372036854775808", "1.005",
          "-0.5", ".5", "5.", "1e3", "nan", "2013-01-07", "2013-02-29", "2012-02-29", "0000-01-01",
          "2013-01-07 05:06:07.25", "2013-01-07T23:59", "true", "FALSE", " 1", "0x1", "1_0",
          "1.2.3", "\u0661", "99999999.999"],
    "u": ["", "a", "Straße", "ÄÖ", "e\u0301a", "\U0001f600b\U0001f600", "\u03c3\u03b1\u03c2", "O%_",
          "\ufb01", "a\nb", "日本語テキスト"],
    "n": [datetime(1, 1, 1), datetime(1582, 10, 10, 5), datetime(1969, 12, 31, 23, 59, 59, 999999),
          datetime(1970, 1, 1), datetime(2012, 2, 29, 12, 30, 15, 500000), datetime(2013, 1, 6, 23),
          datetime(2013, 12, 30), datetime(9999, 12, 31, 23, 59, 59, 1)],
    "d": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2012, 2, 29), date(2013, 1, 6),
          date(2013, 12, 30), date(9999, 12, 31)],
    "q": [True, False],
}  # fmt: skip
ROWS = 400


@pytest.fixture(scope="module")
def rows():
    chance = random.Random(3)
    columns = [
        [chance.choice([None, *VALUES[field.name] * 2]) for _ in range(ROWS)] for field in SCHEMA
    ]
    return pa.table(
        [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)], SCHEMA
    )


@pytest.fixture(scope="module")
def duck(rows):
    with duckdb.connect() as connection:
        connection.execute("PRAGMA disable_optimizer")  # it moves what fails out of TRY
        connection.register("rows", rows)
        yield connection


def fail_unless(condition, value):
    """DuckDB's text for a value that fails where a condition is false, by a cast that fails."""
    fails = "('no bool' || coalesce(u, ''))::BOOLEAN"
    return f"CASE WHEN ({condition}) IS NOT FALSE THEN {value} WHEN {fails} THEN {value} END"


class Writer:
    """Writes random expressions of a type, as ours and as DuckDB's."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def of(self, kind, depth):
        """Return an expression of a family of types, of at most this depth."""
        plain = self.column(kind)
        if depth <= 0:
            return plain if self.chance.random() < 0.8 else self.literal(kind)
        if self.chance.random() < 0.25:
            return self.choice(kind, depth)
        return getattr(self, kind)(depth - 1)

    def column(self, kind):
        name = self.chance.choice(
            {"whole": "ijb", "real": "fg", "exact": "mw", "text": "su", "moment": "n", "day": "d",
             "truth": "q"}[kind]
        )  # fmt: skip
        wide = {"whole": "BIGINT", "real": "DOUBLE"}.get(kind)
        if name == "g":
            return "CAST(g AS DOUBLE)", "g::DOUBLE"
        return name, f"{name}::{wide}" if wide else name

    def literal(self, kind):
        text = {
            "whole": ["0", "1", "7", "9223372036854775807"], "real": ["1e300", "1e-7"],
            "exact": ["0.5", "1.25"], "text": ["'Añ😀'", "''"], "truth": ["TRUE", "NULL"],
            "moment": ["TIMESTAMP_NTZ '2013-01-07 05:00:00'"], "day": ["DATE '2013-01-07'"],
        }  # fmt: skip
        ours = self.chance.choice(text[kind])
        wide = {"whole": "::BIGINT", "real": "::DOUBLE"}.get(kind, "")
        ours_cast = f"CAST({ours} AS DOUBLE)" if kind == "real" else ours
        return ours_cast, ours.replace("_NTZ", "") + wide

    def choice(self, kind, depth):
        """A CASE or a COALESCE, with conditions that do not fail."""
        (a, x), (b, y) = self.of(kind, depth - 1), self.of(kind, depth - 1)
        if self.chance.random() < 0.4:
            return f"coalesce({a}, {b})", f"coalesce({x}, {y})"
        c, z = self.safe()
        if self.chance.random() < 0.3:
            return f"CASE WHEN {c} THEN {a} END", f"CASE WHEN {z} THEN {x} END"
        return f"CASE WHEN {c} THEN {a} ELSE {b} END", f"CASE WHEN {z} THEN {x} ELSE {y} END"

    def safe(self):
        kind = self.chance.choice(["whole", "real", "exact", "text", "moment", "day"])
        (a, x), (b, y) = self.column(kind), self.column(kind)
        op = self.chance.choice(["=", "<>", "<", "<=", ">", ">="])
        shapes = ["{0} {2} {1}", "NOT ({0} {2} {1})", "({0} {2} {1}) IS NOT TRUE", "{0} IS NULL"]
        shape = self.chance.choice([*shapes, "q AND {0} {2} {1}", "q OR {0} {2} {1}"])
        return shape.format(a, b, op), shape.format(x, y, op)

    def whole(self, depth):
        kind = self.chance.choice(["+", "-", "*", "%", "neg", "abs", "length", "year", "cast"])
        if kind == "length":
            a, x = self.of("text", depth)
            return f"length({a})", f"length({x})"
        if kind == "year":
            a, x = self.of("moment", depth)
            return f"year({a})", f"year({x})"
        if kind == "cast":
            return self.to_whole(depth)
        a, x = self.of("whole", depth)
        if kind in ("neg", "abs"):
            return (f"-({a})", f"(0 - ({x}))") if kind == "neg" else (f"abs({a})", f"abs({x})")
        b, y = self.of("whole", depth)
        if kind == "%":
            theirs = f"CASE WHEN ({y}) = -1 AND ({x}) IS NOT NULL THEN 0 ELSE ({x}) % ({y}) END"
            return f"({a}) % ({b})", theirs
        return f"({a}) {kind} ({b})", f"({x}) {kind} ({y})"

    def to_whole(self, depth):
        source = self.chance.choice(["real", "exact", "text", "whole"])
        to = self.chance.choice(["TINYINT", "INT", "BIGINT"])
        a, x = self.of(source, depth)
        if source == "text":
            x = fail_unless(f"regexp_full_match({x}, '[+-]?[0-9]+')", f"({x})")
        elif source != "whole":
            x = f"trunc({x})"
        return f"CAST(CAST({a} AS {to}) AS BIGINT)", f"({x})::{to}::BIGINT"

    def real(self, depth):
        kind = self.chance.choice(["+", "-", "*", "/", "neg", "abs", "cast", "/"])
        if kind == "cast":
            source = self.chance.choice(["whole", "text"])
            a, x = self.of(source, depth)
            if source == "text":
                known = r"(?i)([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|[+-]?inf(inity)?)"
                x = fail_unless(f"regexp_full_match({x}, '{known}')", f"({x})")
            return f"CAST({a} AS DOUBLE)", f"({x})::DOUBLE"
        a, x = self.of(self.chance.choice(["real", "whole"]) if kind == "/" else "real", depth)
        if kind in ("neg", "abs"):
            return (f"-({a})", f"(-({x}))") if kind == "neg" else (f"abs({a})", f"abs({x})")
        b, y = self.of("real", depth)
        if kind == "/":
            return f"({a}) / ({b})", fail_unless(
                f"({y}) <> 0 OR ({x}) IS NULL", f"(({x})::DOUBLE / ({y}))"
            )
        return f"({a}) {kind} ({b})", f"({x}) {kind} ({y})"

    def exact(self, depth):  # shallow: DuckDB has no decimals of more than 38 digits
        kind = self.chance.choice(["+", "-", "*", "neg", "abs", "cast", "cast"])
        a, x = self.column("exact")
        if kind == "cast":
            a, x = self.of(self.chance.choice(["exact", "whole"]), min(depth, 1))
            to = self.chance.choice(["DECIMAL(5,1)", "DECIMAL(20,2)", "DECIMAL(12,0)"])
            return f"CAST({a} AS {to})", f"({x})::{to}"
        if kind in ("neg", "abs"):
            return (f"-({a})", f"(-({x}))") if kind == "neg" else (f"abs({a})", f"abs({x})")
        b, y = self.chance.choice([("m", "m"), ("b", "b"), ("0.25", "0.25"), ("3", "3")])
        if kind == "*" and y == "m":  # DuckDB computes in 18 digits where the operands have fewer
            y = "m::DECIMAL(19,2)"
        return f"{a} {kind} {b}", f"{x} {kind} {y}"

    def text(self, depth):
        kind = self.chance.choice(["lower", "upper", "substr", "concat", "cast"])
        if kind == "concat":
            (a, x), (b, y) = self.of("text", depth), self.of("text", depth)
            return f"concat({a}, '-', {b})", f"(({x}) || '-' || ({y}))"
        if kind == "cast":
            a, x = self.of(self.chance.choice(["whole", "exact", "truth", "moment", "day"]), depth)
            return f"CAST({a} AS STRING)", f"({x})::VARCHAR"
        a, x = self.of("text", depth)
        if kind != "substr":
            return f"{kind}({a})", f"{kind}({x})"
        start = self.chance.choice([1, 2, 5, -1, -3, -9])
        rest = self.chance.choice(["", ", 0", ", 1", ", 3", ", 2147483647"])
        if start < 0 and rest == ", 2147483647":
            rest = ", 100"
        return f"substr({a}, {start}{rest})", f"substr({x}, {start}{rest})"

    def moment(self, depth):
        if self.chance.random() < 0.5:
            unit = self.chance.choice(["year", "quarter", "month", "week", "day", "hour", "minute",
                                       "second"])  # fmt: skip
            a, x = self.of("moment", depth)
            return f"date_trunc('{unit}', {a})", f"date_trunc('{unit}', {x})"
        source = self.chance.choice(["text", "day"])
        a, x = self.column("text") if source == "text" else self.of("day", depth)
        if source == "text":
            form = r"[1-9]\d{3}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?"
            x = fail_unless(f"regexp_full_match({x}, '{form}')", f"({x})")
        return f"CAST({a} AS TIMESTAMP_NTZ)", f"({x})::TIMESTAMP"

    def day(self, depth):
        if self.chance.random() < 0.5:
            unit = self.chance.choice(["year", "quarter", "month", "week", "day"])
            a, x = self.of("day", depth)
            return f"date_trunc('{unit}', {a})", f"date_trunc('{unit}', {x})::DATE"
        source = self.chance.choice(["text", "moment"])
        a, x = self.column("text") if source == "text" else self.of("moment", depth)
        if source == "text":
            x = fail_unless(rf"regexp_full_match({x}, '[1-9]\d{{3}}-\d\d-\d\d')", f"({x})")
        return f"CAST({a} AS DATE)", f"({x})::DATE"

    def truth(self, depth):
        if self.chance.random() < 0.2:
            a, x = self.column("text")
            theirs = fail_unless(f"lower({x}) IN ('true', 'false')", f"({x})")
            return f"CAST({a} AS BOOLEAN)", f"({theirs})::BOOLEAN"
        kind = self.chance.choice(["whole", "real", "exact", "text", "moment", "day"])
        (a, x), (b, y) = self.of(kind, depth), self.of(kind, depth)
        op = self.chance.choice(["=", "<>", "<", "<=", ">", ">="])
        return f"({a}) {op} ({b})", f"({x}) {op} ({y})"


KINDS = {
    "whole": "int64", "real": "float64", "exact": "decimal(38,11)", "text": "string",
    "moment": "timestamp_ntz", "day": "date", "truth": "bool",
}  # fmt: skip


def ours(text, kind, table):
    """Return the values, None where the row fails, and how many rows fail."""
    value = parse_value(text, STORED, kind)
    found = value_expressions._projected(table, value._value, value._fails)
    fails = found.column("fails").to_pylist()
    assert None not in fails
    values = found.column("value").to_pylist()
    return [None if bad else v for v, bad in zip(values, fails, strict=True)], sum(fails)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    return a == b


@pytest.mark.hazard("W5")
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_duckdb(kind, rows, duck):
    writer, failed, known, large = Writer(f"{kind} 1"), 0, 0, 0
    asked = repeatable.examples(25)
    for _ in range(asked):
        text, theirs = writer.of(kind, writer.chance.choice([1, 2, 3]))
        try:
            values, fails = ours(text, KINDS[kind], rows)
        except InvalidInput as error:
            # One of literals alone that fails is refused before it is computed.
            if not re.search("repeats an operand|for every row", str(error)):
                raise
            large += 1
            continue
        cast = "::DECIMAL(38,11)" if kind == "exact" else ""
        found = duck.execute(f"SELECT TRY(({theirs}){cast}) FROM rows").fetchall()
        for row, (value, (other,)) in enumerate(zip(values, found, strict=True)):
            assert same(value, other), (text, theirs, value, other, rows.slice(row, 1).to_pylist())
        failed, known = failed + fails, known + sum(value is not None for value in values)
    assert known > 500
    assert large < asked / 5
    assert failed > 0 or kind == "text"


@pytest.mark.hazard("W5")
def test_floats_become_decimals_by_their_shortest_digits():
    chance = random.Random(5)
    numbers = [0.5, 1.5, 2.5, 1.005, -1.005, 0.125, 5e-324, 1e22, 99999999.995, -0.0, 1e-7, 4.5e-5]
    numbers += [chance.uniform(-1, 1) * 10 ** chance.randint(-12, 12) for _ in range(500)]
    table = pa.table({"f": pa.array(numbers), "g": pa.array(numbers, pa.float32())})
    for name in "fg":
        # Python writes the digits of a float32 by way of its float64; Arrow writes its own.
        digits = pc.cast(table[name], pa.string()).to_pylist()
        for precision, scale in ((10, 2), (38, 20), (38, 38), (5, 0), (38, 0)):
            step = Decimal(1).scaleb(-scale)
            wanted = [Decimal(d).quantize(step, ROUND_HALF_UP, EXACT) for d in digits]
            wanted = [w if abs(w) < 10 ** (precision - scale) else None for w in wanted]
            kind = f"decimal({precision},{scale})"
            found, _ = ours(f"CAST({name} AS {kind})", kind, table)
            assert found == wanted


@pytest.mark.hazard("W5")
def test_decimals_become_the_nearest_floats_and_plain_text():
    chance = random.Random(7)
    units = [
        0,
        1,
        -1,
        10**20 - 1,
        5 * 10**8,
        *(chance.randrange(-(10**20), 10**20) for _ in range(200)),
    ]
    decimals = [Decimal(n).scaleb(-9, EXACT) for n in units]
    table = pa.table({"w": pa.array(decimals, pa.decimal128(20, 9))})
    assert ours("CAST(w AS DOUBLE)", "float64", table)[0] == [float(d) for d in decimals]
    assert ours("CAST(w AS STRING)", "string", table)[0] == [f"{d:.9f}" for d in decimals]
    whole, _ = ours("CAST(w AS BIGINT)", "int64", table)
    assert whole == [int(d.to_integral_value(ROUND_DOWN)) for d in decimals]


@pytest.mark.hazard("W5")
def test_texts_become_the_times_of_literals():
    chance = random.Random(9)

    def text():
        clock = f"{chance.randrange(24):02}:{chance.randrange(60):02}"
        fraction = str(chance.randrange(10**6)).zfill(6)[: chance.randrange(1, 7)]
        clock += chance.choice(["", ":07", f":59.{fraction}"])
        offset = chance.choice(["", "Z", "+02", "-0230", "+23:59"])
        day = f"{chance.choice(['0001-12-31', '1969-12-31', '2012-02-29', '9999-01-01'])}"
        return day if chance.random() < 0.1 else day + chance.choice("T ") + clock + offset

    texts = [text() for _ in range(300)]
    micros = [parse_moment(one).ns // 1000 for one in texts]
    table = pa.table({"s": texts})
    value = parse_value("CAST(s AS TIMESTAMP)", STORED, "timestamp").evaluate(table)
    assert value.cast(pa.int64()).to_pylist() == micros
    plain = [
        (one, us) for one, us in zip(texts, micros, strict=True) if parse_moment(one).zoned is False
    ]
    local = parse_value("CAST(s AS TIMESTAMP_NTZ)", STORED, "timestamp_ntz")
    found = local.evaluate(pa.table({"s": [one for one, _ in plain]}))
    assert found.cast(pa.int64()).to_pylist() == [us for _, us in plain]


@pytest.mark.long
@pytest.mark.hazard("W5")
def test_letters_have_the_capitals_that_duckdb_gives_them():
    """All characters; only those that Python's release of Unicode lacks may differ."""
    letters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    table = pa.table({"s": letters})
    with duckdb.connect() as connection:
        connection.register("letters", table)
        for name in ("lower", "upper"):
            theirs = connection.execute(f"SELECT {name}(s) FROM letters").fetchall()
            found, _ = ours(f"{name}(s)", "string", table)
            for letter, value, (other,) in zip(letters, found, theirs, strict=True):
                if value != other:
                    assert "Cn" in {unicodedata.category(c) for c in (letter, value, other)}
