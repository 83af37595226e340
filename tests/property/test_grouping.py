"""A predicate without parentheses means what it means in DuckDB, or is refused."""

import itertools
import random

import duckdb
import pyarrow as pa
import pytest
from support import repeatable

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.writers import append

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("id", pa.int64()),
        *[(name, pa.bool_()) for name in "abc"],
        ("x", pa.int64()),
        ("s", pa.string()),
    ]
)
ROWS = list(itertools.product(*[[True, False, None]] * 3, [1, 2, None], ["a", "b", None]))
COMPARISONS = ["=", "<>", "<", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
BOOLEANS = ["a", "b", "c", "TRUE", "FALSE", "NOT a", "(a = b)", "s LIKE 'a%'", "s NOT LIKE '%b'"]
NUMBERS = ["x", "1", "x + 1", "-x", "x % 2 * 3", "2 - x - 1", "x * 2 % 3", "x - 1 * 2"]


@pytest.fixture(scope="module")
def table():
    t = Table.create("memory://grouping", SCHEMA, time_column="ts")
    full = pa.Table.from_pylist(
        [
            dict(zip(SCHEMA.names, (0, number, *row), strict=True))
            for number, row in enumerate(ROWS)
        ],
        SCHEMA,
    )
    append(t, full)
    with duckdb.connect() as connection:
        connection.register("rows", full)
        yield t, connection


def text(chance, depth):
    """Return a random predicate of a depth, without more parentheses than it needs to parse."""
    if not depth:
        return chance.choice(BOOLEANS)

    def inner():
        return text(chance, depth - 1)

    no, (low, high) = chance.choice(["", "NOT "]), chance.choices(NUMBERS, k=2)
    return chance.choice(
        [
            lambda: f"{inner()} {chance.choice(COMPARISONS)} {inner()}",
            lambda: f"{inner()} IS {no}{chance.choice(['NULL', 'TRUE', 'FALSE'])}",
            lambda: f"{inner()} {no}IN ({inner()}, {inner()})",
            lambda: f"{chance.choice(NUMBERS)} {no}BETWEEN {low} AND {high}",
            lambda: f"{low} {chance.choice(COMPARISONS)} {high}",
            lambda: f"NOT {inner()}",
            lambda: f"{inner()} {chance.choice(['AND', 'OR'])} {inner()}",
        ]
    )()


def answer(connection, where):
    try:
        rows = connection.execute(f"select id from rows where {where} order by id").fetchall()
    except duckdb.Error:  # such as `a = NOT b`, which has one meaning all the same
        return None
    return [row[0] for row in rows]


def test_a_predicate_without_parentheses_means_what_it_means_in_duckdb(table):
    t, connection = table
    chance = random.Random(7)
    compared = refused = 0
    for _ in range(repeatable.examples(150)):
        where = text(chance, chance.choice([1, 2, 3]))
        try:
            found = sorted(scan(t, where=where).to_table()["id"].to_pylist())
        except InvalidInput:
            refused += 1
            continue
        wanted = answer(connection, where)
        assert wanted is None or found == wanted, where
        compared += wanted is not None
    assert compared > refused / 2 > 10


@pytest.mark.parametrize(
    "where",
    [
        "a = TRUE IS NOT TRUE",
        "a = b IS NULL",
        "NOT a <> b IS NOT NULL",
        "a < b IS FALSE",
        "a = b IS NOT DISTINCT FROM NULL",
        "c AND a = b = c",
        "a = x IN (1, 2)",
        "a <> x BETWEEN 1 AND 2",
        "a = s LIKE 'a%'",
        "a = b ISNULL",
        "(a OR (a = b IS NULL))",
    ],
)
def test_what_engines_group_in_different_ways_is_refused(table, where):
    with pytest.raises(InvalidInput, match=r"in different ways: write parentheses"):
        scan(table[0], where=where)


@pytest.mark.parametrize(
    "where",
    [
        "(a = b) IS NULL",
        "a = (b IS NULL)",
        "x IN (1, 2) IS NULL",
        "x BETWEEN 1 AND 2 IS NOT TRUE AND a IS NULL",
        "a IS NULL IS TRUE",
        "x BETWEEN 1 AND 2 AND x = 1",
        "(a = b) = (b = c)",
        "x IN (1, 2) AND NOT a = b OR a IS NULL",
        "s LIKE 'a%' IS NULL",
    ],
)
def test_what_has_one_meaning_is_answered(table, where):
    t, connection = table
    assert scan(t, where=where).to_table()["id"].to_pylist() == answer(connection, where)
