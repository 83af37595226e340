"""The functions of `where`: exactly those of docs/expressions.md, with DuckDB's answers."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlglot.parser import Parser

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.query import predicate
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

GUIDE = Path(__file__).parents[3] / "docs" / "expressions.md"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("seen", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
    ]
)
# In Greek, where the last letter of a word has a form of its own that no simple mapping gives.
SMALL, FINAL = "\u03c3\u03b1\u03c3", "\u03c3\u03b1\u03c2"
DAY = datetime(2013, 1, 7, 5, tzinfo=UTC)
FLOATS = [1.5, -1.5, float("nan"), float("inf"), float("-inf"), None, 0.0, -0.0]
TEXTS = ["Straße", "ÄÖ", "ß", "ﬁ", None, "e\u0301", "", SMALL.upper()]
NUMBERS = [1, -1, 2**40, -(2**40), None, 7, 0, 10]


@pytest.fixture(scope="module")
def rows():
    times = [DAY.replace(year=2000 + n, month=1 + n, day=3 * n + 1, hour=2 * n) for n in range(8)]
    columns = [NUMBERS, times, FLOATS, TEXTS, [time.date() for time in times]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


@pytest.fixture(scope="module")
def table(rows):
    store = MemoryStore()
    table = Table.create(store.uri, SCHEMA, store=store, time_column="seen")
    append(table, rows)
    return table


def promised():
    """The names in the guide's table of functions."""
    _, _, after = GUIDE.read_text().partition("| function |")
    lines = after.partition("\n\n")[0].splitlines()[2:]
    return {name.upper() for line in lines for name in re.findall(r"`(\w+)\(", line.split("|")[1])}


@pytest.mark.verify
def test_the_guide_names_every_function_that_is_taken(table):
    """Of all that the parser knows, with every kind of arguments."""
    schema, taken = table.session.head().stored_schema, set()
    known = {name for name in (*Parser.FUNCTIONS, *Parser.FUNCTION_PARSERS) if name.isidentifier()}
    for name in sorted(known):
        for arguments in (
            "s",
            "id",
            "seen",
            "x",
            "id, 2",
            "s, 'a'",
            "YEAR FROM seen",
            "YEAR, seen",
            "'month', seen",
            "s, 1, 2",
        ):
            try:
                predicate.parse_predicate(f"{name}({arguments}) IS NULL", schema)
                taken.add(name)
            except InvalidInput:  # and no other error, whatever the function
                pass
    assert taken == promised()


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("round(x) = 2", "ROUND"),
        ("trim(s) = 'a'", "TRIM"),
        ("s || 'a' = 'b'", "||"),
        ("IF(id = 1, TRUE, FALSE)", "If"),
        ("isnan(x)", "NAN"),
        ("minute(seen) = 5", "MINUTE"),
        ("x % 2 = 1", "of two integers, and here of float64 and int64"),
    ],
)
def test_others_are_refused_by_name(table, where, named):
    with pytest.raises(InvalidInput, match=re.escape(named)):
        scan(table, where=where)


@pytest.mark.verify
@pytest.mark.hazard("W5")
def test_functions_mean_what_they_mean_in_duckdb(table, rows):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("SET error_on_division_by_zero = false")  # ours is null, too
    connection.register(
        "r", rows.set_column(1, "seen", rows.column("seen").cast(pa.timestamp("us")))
    )
    questions = [
        *(f"{f}(s) = '{t}'" for f in ("lower", "lcase", "upper", "ucase")
          for t in ("straße", "STRASSE", "STRAßE", "äö", "ÄÖ", "ß", FINAL, SMALL)),
        *(f"{f}(s) {op} 2" for f in ("length", "len", "char_length", "character_length")
          for op in ("<", "=", ">")),
        "abs(x) = 1.5", "abs(x) > 5", "abs(id) = 1", "abs(id) > 1000", "coalesce(x, 7) = 7",
        "ifnull(s, 'z') = 'z'", "coalesce(id, x, 3) = 3", "coalesce(s, 'z') > 'e'",
        "mod(id, 3) = 1", "mod(id, -3) = -1", "mod(-id, 7) = -3",
        *(f"{part}({column}) {op} 4" for part in ("year", "month", "day")
          for column in ("seen", "d") for op in ("<", "=", ">")),
        "hour(seen) = 4", "extract(hour FROM seen) > 4", "extract(year FROM d) = 2004",
        # NaN is greater than all numbers, and equal to itself.
        "x = x", "x <> x", "x > 1e300", "NOT x <= 1e300", "x > 1e308 AND 1 / x <> 0", "x < 0",
        "x IN (1.5)", "x NOT IN (1.5)", "x BETWEEN 0 AND 2", "x IS DISTINCT FROM x",
    ]  # fmt: skip
    for where in questions:
        ours = scan(table, ["d"], where).to_table().column("d").to_pylist()
        theirs = connection.execute(f"SELECT d FROM r WHERE {where}").fetchall()
        assert sorted(ours) == sorted(day for (day,) in theirs), where


def test_how_to_ask_for_nan(table):
    found = scan(table, ["s"], "x > 1e308 AND 1 / x <> 0").to_table().column("s").to_pylist()
    assert found == ["ß"]
    assert scan(table, ["s"], pc.is_nan(pc.field("x"))).to_table().column("s").to_pylist() == found
