"""Pruned plan + row filter = filter over all rows, and SQL text means what it means in DuckDB."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import repeatable
from support.planned_states import Planned, leaves_of

from eventlog.errors import InvalidInput
from eventlog.model import stats
from eventlog.model.chunks import chunk_of
from eventlog.model.entries import Segment
from eventlog.model.schema import from_arrow
from eventlog.query import predicate

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        ("d", pa.date32()),
        ("n", pa.timestamp("us")),
        ("i", pa.int64()),
        ("b", pa.int8()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("flag", pa.bool_()),
        ("dec", pa.decimal128(12, 2)),
        ("row", pa.int64()),
    ]
)
STORED = from_arrow(SCHEMA)
STATS = tuple(c for c in STORED.columns if c.name != "row")

P = "p" * 40
TIMES = [
    datetime(1969, 12, 30, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(1970, 1, 1, 12, 0, 0, 1),
    datetime(1970, 1, 2),
    datetime(2013, 1, 6, 23, 59, 59, 999999),
    datetime(2013, 1, 7),
    datetime(2013, 1, 7, 5, 0, 0, 500),
    datetime(2013, 1, 8),
]
DATES = [date(1969, 12, 31), date(1970, 1, 1), date(2013, 1, 7), date(2013, 1, 8)]
INTS = [-(2**63), -(2**63) + 1, -1, 0, 1, 5, 6, 2**53, 2**53 + 1, 2**63 - 1]
BYTES = [-128, -1, 0, 5, 6, 127]
FLOATS = [float("-inf"), -1.5, -0.0, 0.0, 5e-324, 0.5, 5.0, 1e300, float("inf"), float("nan")]
SINGLES = [float("-inf"), -1.5, -0.0, 0.0, 0.5, 5.0, 16777216.0, float("inf"), float("nan")]
TEXTS = [
    "", "a", "A", "ab", "a%b", "a_b", "b", "\n", P, P + "a", P + "b", P[:31] + "\ud7ff" + "x",
    P[:31] + "\ue000" + "x", "\ud7ff", "\ue000", "\U0010ffff" * 40, "\U0010ffff" * 33, "ä",
]  # fmt: skip
DECIMALS = [Decimal("-9999999999.99"), Decimal("-0.01"), Decimal(0), Decimal("5.00"),
            Decimal("5.55"), Decimal("9999999999.99")]  # fmt: skip
VALUES = {
    "ts": TIMES, "d": DATES, "n": TIMES, "i": INTS, "b": BYTES, "f": FLOATS, "g": SINGLES,
    "s": TEXTS, "flag": [True, False], "dec": DECIMALS,
}  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            name: st.sampled_from(values) if name == "ts" else st.sampled_from([None, *values])
            for name, values in VALUES.items()
        }
    ),
    min_size=1,
    max_size=14,
)
OPS = ["=", "<>", "!=", "<", "<=", ">", ">="]

# ------------------------------------------------------------------------------- SQL predicates


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def moment(value):
    return value.isoformat(sep=" ")


LITERALS = {
    "ts": st.one_of(
        st.sampled_from(TIMES).map(lambda t: f"TIMESTAMP '{moment(t)}'"),
        st.sampled_from(TIMES).map(lambda t: quoted(moment(t))),
        st.sampled_from(DATES).map(lambda d: f"DATE '{d}'"),
    ),
    "n": st.sampled_from(TIMES).map(lambda t: f"CAST('{moment(t)}' AS TIMESTAMP)"),
    "d": st.one_of(
        st.sampled_from(DATES).map(lambda d: f"DATE '{d}'"),
        st.sampled_from(DATES).map(lambda d: quoted(str(d))),
        st.sampled_from(TIMES).map(lambda t: f"TIMESTAMP '{moment(t)}'"),
    ),
    "i": st.sampled_from([*map(str, INTS[1:]), "5.5", "-0.5", "1e3"]),
    "b": st.sampled_from([*map(str, BYTES), "5.5", "200", "-200"]),
    "f": st.sampled_from(["-1.5", "0", "-0.0", "0.5", "5", "1e300", "0.3"]),
    "g": st.sampled_from(["-1.5", "0", "-0.0", "0.5", "5", "16777216"]),
    "s": st.sampled_from(TEXTS).map(quoted),
    "flag": st.sampled_from(["TRUE", "false"]),
    "dec": st.sampled_from(["-0.01", "0", "5", "5.55", "5.555", "99"]),
}
PATTERNS = [
    "%",
    "",
    "a%",
    "%b",
    "a_b",
    "_",
    P + "%",
    P[:31] + "\ud7ff%",
    "\U0010ffff%",
    "a%b",
    "%%",
]


@st.composite
def comparison(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    literal = draw(LITERALS[name])
    if draw(st.booleans()):
        return f"{name} {draw(st.sampled_from(OPS))} {literal}"
    return f"{literal} {draw(st.sampled_from(OPS))} {name}"


@st.composite
def special(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    not_ = draw(st.sampled_from(["", "NOT "]))
    few = draw(st.lists(LITERALS[name], min_size=1, max_size=12))
    some = [*few, "NULL"] if draw(st.integers(0, 4)) == 0 else few
    shape = draw(st.integers(0, 4))
    if shape == 0:
        return f"{name} IS {not_}NULL"
    if shape == 1:
        return f"{name} {not_}IN ({', '.join(some)})"
    if shape == 2:
        return f"{name} {not_}BETWEEN {few[0]} AND {few[-1]}"
    if shape == 3:
        return f"{name} IS {not_}DISTINCT FROM {few[0]}"
    return f"s {not_}LIKE {quoted(draw(st.sampled_from(PATTERNS)))}"


OTHERS = st.sampled_from(
    [
        "flag", "NOT flag", "flag IS TRUE", "flag IS NOT FALSE", "(b = 5) IS TRUE", "TRUE", "NULL",
        "b < i", "f = g", "f > g", "g >= f", "f <> g", "ts = n", "d < ts", "ts <= d", "b + 1 > 5",
        "b * 2 - 1 = 9", "b / 2 > 2.25", "b % 4 = 1", "-f < 0", "lower(s) = 'a'", "upper(s) = 'A'",
        "length(s) > 33", "abs(f) >= 1.5", "coalesce(b, i, 7) = 7", "coalesce(s, 'x') > 'b'",
        "year(ts) = 2013", "extract(month FROM d) = 12", "day(ts) <> 7", "hour(n) = 5",
        "s ILIKE 'A%'", "s LIKE 'a!%b' ESCAPE '!'", "s LIKE 'a!_%' ESCAPE '!'",
        '`b` = 5 OR "i" = 0',
        "CASE WHEN b > 0 THEN b ELSE 0 END > 5", "CASE b WHEN 5 THEN flag END",
        "substr(s, 1, 1) = 'a'", "concat(s, 'x') = 'ax'", "CAST(b AS BIGINT) + 1 = 6",
        "CAST(b AS VARCHAR) = '5'", "CAST(d AS TIMESTAMP) >= ts", "i = 0 OR 6 / i > 1",
        "6 / i <= 1 AND i <> 0", "CASE WHEN i <> 0 THEN 6 / i END > 1 OR b = 5",
        "date_trunc('month', ts) = TIMESTAMP '2013-01-01'", "dec + b > 5.55",
        "coalesce(dec, b) > 5",
        "(b = 5) = flag", "(flag AND b > 0) IS NULL",
    ]
)  # fmt: skip
SQL = st.recursive(
    st.one_of(comparison(), special(), OTHERS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) AND ({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) OR ({p[1]})"),
        inner.map(lambda p: f"NOT ({p})"),
    ),
    max_leaves=5,
)

# --------------------------------------------------------------------------- Arrow predicates


@st.composite
def arrow_leaf(draw):
    field = SCHEMA.field(draw(st.sampled_from(sorted(VALUES))))
    known = [v for v in VALUES[field.name] if v == v]  # noqa: PLR0124 - not NaN
    name = pc.field(field.name)
    scalars = [scalar(v, field.type) for v in known]
    shape = draw(st.integers(0, 3))
    if shape == 0:
        return draw(st.sampled_from([name.is_null(), name.is_valid(), ~name.is_null()]))
    if shape == 1:
        few = draw(st.lists(st.sampled_from(scalars), min_size=1, max_size=3))
        return name.isin(pa.array([s.as_py() for s in few], field.type))
    left, right = name, pc.scalar(draw(st.sampled_from(scalars)))
    if shape == 2:
        left, right = right, left
    return draw(
        st.sampled_from(
            [left == right, left != right, left < right, left <= right, left > right, left >= right]
        )
    )


ARROW = st.recursive(
    arrow_leaf(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
        inner.map(lambda p: ~p),
    ),
    max_leaves=5,
)

# ------------------------------------------------------------------------------------ the world


def scalar(value, kind):
    if isinstance(value, datetime) and kind.tz is not None:
        value = value.replace(tzinfo=UTC)
    return pa.scalar(value, kind)


def table_of(rows):
    columns = []
    for field in SCHEMA:
        if field.name == "row":
            columns.append(pa.array(range(len(rows)), field.type))
        else:
            found = [scalar(row[field.name], field.type) for row in rows]
            columns.append(pa.concat_arrays([pa.repeat(value, 1) for value in found]))
    return pa.table(columns, schema=SCHEMA)


def segment_of(number, rows, chunk, columns):
    return Segment(
        f"{number:032x}", chunk.name, 0, 1, number, rows.num_rows, 100, "0" * 64, 1,
        stats.compute(rows, columns),
    )  # fmt: skip


class World(Planned):
    """Rows cut into segments of at most `size` rows, one key frame leaf for each chunk."""

    def __init__(self, rows, size, without_stats):
        self.rows = table_of(rows)
        columns = [c for c in STATS if c.name not in without_stats]
        ms = [value // 1000 for value in self.rows["ts"].cast(pa.int64()).to_pylist()]
        by_chunk = {}
        for at, row in sorted(zip(ms, range(len(rows)), strict=True)):
            by_chunk.setdefault(chunk_of(at, "day"), []).append(row)
        self.parts, listed = {}, []
        for chunk, members in sorted(by_chunk.items()):
            for start in range(0, len(members), size):
                part = self.rows.take(members[start : start + size])
                listed.append(segment_of(len(listed), part, chunk, columns))
                self.parts[listed[-1].id] = part
        super().__init__(leaves_of(listed), STORED)

    def read(self, plan):
        """The rows that a reader of the plan passes on, by number."""
        parts = [self.parts[segment.id] for segment in plan.segments()]
        rows = pa.concat_tables(parts) if parts else SCHEMA.empty_table()
        return numbers(rows if plan.filter is None else rows.filter(plan.filter))


def numbers(rows):
    return sorted(rows.column("row").to_pylist())


WORLDS = st.builds(
    World, ROWS, st.integers(1, 5), st.sets(st.sampled_from(sorted(VALUES)), max_size=3)
)
GENEROUS = settings(
    max_examples=repeatable.examples(30),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def check(world, where):
    whole = world.rows.filter(predicate.parse_predicate(where, STORED).to_arrow())
    plan = world.plan(where=where)
    assert world.read(plan) == numbers(whole)
    assert plan.count() in (None, whole.num_rows)
    pruned = plan.pruning
    left_out = pruned.by_chunk + pruned.by_leaf + pruned.by_statistics
    assert left_out + pruned.read == pruned.considered == len(world.parts)
    return whole


@pytest.mark.verify
@GENEROUS
@given(WORLDS, st.lists(SQL, min_size=1, max_size=8))
def test_pruned_sql_equals_brute_force(world, questions):
    for where in questions:
        check(world, where)


@pytest.mark.verify
@GENEROUS
@given(WORLDS, st.lists(ARROW, min_size=1, max_size=8))
def test_pruned_arrow_expression_equals_brute_force(world, questions):
    for where in questions:
        check(world, where)


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


@pytest.mark.verify
@pytest.mark.hazard("W5")
@GENEROUS
@given(rows=ROWS, questions=st.lists(SQL, min_size=1, max_size=8))
def test_sql_means_what_it_means_in_duckdb(duck, rows, questions):
    table = table_of(rows)
    duck.register("events", table)
    for where in questions:
        ours = table.filter(predicate.parse_predicate(where, STORED).to_arrow())
        text = where.replace("`", '"')
        theirs = duck.execute(f"SELECT row FROM events WHERE {text}").fetchall()
        assert numbers(ours) == sorted(row for (row,) in theirs), where


@GENEROUS
@given(ROWS, st.lists(SQL, min_size=1, max_size=8))
def test_interval_holds_every_row_that_passes(rows, questions):
    table = table_of(rows)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for where in questions:
        asked = predicate.parse_predicate(where, STORED)
        low, high = asked.interval("ts")
        for at in table.filter(asked.to_arrow()).column("ts").to_pylist():
            assert low <= (at - epoch) / timedelta(milliseconds=1) < high, where


@pytest.mark.verify
@GENEROUS
@given(ROWS, st.lists(ARROW, min_size=1, max_size=4), st.sampled_from(["ts", "n", "d"]))
def test_interval_of_an_arrow_expression_holds_every_row_that_passes(rows, questions, name):
    table = table_of(rows)
    unit = timedelta(milliseconds=1)
    for where in questions:
        asked = predicate.parse_predicate(where, STORED)
        low, high = asked.interval(name)
        passing = table.filter(asked.to_arrow()).column(name).drop_null()
        for at in passing.cast(pa.timestamp("us")).to_pylist():
            assert low <= (at - datetime(1970, 1, 1)) / unit < high


WORDS = (
    "( ) , . ; = <> < >= + - * / % :: -- /* ? : [ ] { } $ @ || ~ ! 5 5.5 1e3 i b f s ts d flag dec "
    "AND OR NOT IS NULL TRUE IN BETWEEN LIKE ILIKE ESCAPE DISTINCT FROM CASE WHEN END CAST AS DATE "
    "TIMESTAMP '2013-01-07' 'x%' '' \"i\" `s` nothing lower length abs coalesce year extract hour "
    "SELECT EXISTS INTERVAL"
)


@GENEROUS
@example("? OR length { : } CASE WHEN")
@given(st.lists(st.sampled_from(WORDS.split()), max_size=14).map(" ".join) | st.text(max_size=30))
def test_any_text_is_a_predicate_or_refused(text):
    try:
        asked = predicate.parse_predicate(text, STORED)
    except InvalidInput:
        return
    assert asked.columns() <= set(SCHEMA.names)
    SCHEMA.empty_table().filter(asked.to_arrow())
