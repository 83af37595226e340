"""Predicates on keyed tables: what is pruned by buckets and statistics hides no row."""

import random
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from support import predicates
from support.builders import create
from support.crashes import quick
from support.keyed_tables import merged, runs_of
from support.predicates import Question
from support.repeatable import EXAMPLES

from eventlog import errors
from eventlog.keyed import placement
from eventlog.readers import count, scan
from eventlog.writers import delete, upsert

BLOCKS = 6  # of the long run, each within the time that a test may take
KEYS = ("id", "i8", "i16", "i32", "i64", "text", "dec9", "dec18", "dec38", "d", "ntz", "raw")
FLAT = [f.name for f in predicates.SCHEMA if f.name not in ("in.struct", "in`list", "in map")]
TABLES = 2


def some_rows(chance, rows, key):
    """Rows of the keys of others, with other values; no key column is null."""
    fresh = predicates.rows(chance, len(rows))
    for number, row in enumerate(fresh):
        for name in key:
            row[name] = chance.choice(rows)[name]
            if row[name] is None:
                row[name] = chance.choice(predicates.VALUES[name])
        row["id"] = row["id"] if "id" in key else number
    return fresh


def table_of(chance):
    """A table with rows above bases, deletes, and keys of one to three columns of any types."""
    key = chance.sample(KEYS, chance.choice([1, 1, 2, 3]))
    kind = chance.choice(["last", "first", "partial", "partial", "aggregate"])
    table = create(
        schema=predicates.SCHEMA,
        key=key,
        granularity="all",
        time_column="ts",
        order_by=None,
        buckets=chance.choice([1, 4, 64]),
        properties={
            "merge": kind,
            "bucket_bytes": chance.choice(["1024", "8388608"]),
            "stats_columns": "99",
            "keyframe_commits": "2",
        },
    )
    rows = predicates.rows(chance, 12)
    for step in range(3):
        upsert(table, predicates.to_arrow(some_rows(chance, rows, key)))
        if step == 1 and kind != "aggregate":
            gone = scan(table, key).to_table().slice(0, 2)
            delete(table, keys=gone)
        head = table.refresh()
        run = chance.choice(runs_of(head))
        spans = [placement.span(s) for s in run.segments]
        low, high = (spans[0][0], spans[-1][1]) if chance.random() < 0.6 else spans[-1]
        made = merged(table, head, "all", run.first, run.last, low, high)
        if made is not None and chance.random() < 0.8:
            table.commit(made)
    return table, key


def check(seed, questions):
    chance = random.Random(seed)
    with quick():
        table, key = table_of(chance)
        whole = scan(table, FLAT).to_table()
        rows = [
            dict(zip(FLAT, values, strict=True))
            for values in zip(*map(plain_values, whole.columns), strict=True)
        ]
        assert len({tuple(row[n] for n in key) for row in rows}) == len(rows)
        for _ in range(questions):
            asked = question(chance, key, rows)
            wanted = sorted(str(row) for row in rows if asked.holds(row) is True)
            names = [*key, "flag"]
            expected = sorted(str([r[n] for n in names]) for r in rows if asked.holds(r) is True)
            try:
                found = scan(table, names, asked.sql).to_table()
            except errors.InvalidInput:
                continue
            got = zip(*map(plain_values, found.columns), strict=True)
            assert sorted(str([*values]) for values in got) == expected, asked.sql
            assert count(table, asked.sql) == len(wanted), asked.sql


def plain_values(column):
    """The values of a column as `predicates` has them: times are whole numbers."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return column.to_pylist()


def question(chance, key, rows):
    """A predicate: half of the time one that names the key, as a look-up does."""
    other = predicates.ask(chance, plain=True)
    if "raw" in key or not rows or chance.random() < 0.4:
        return other
    row = chance.choice(rows)
    parts = [equal(chance, name, row[name]) for name in key]
    parts += [other] if chance.random() < 0.3 else []
    chance.shuffle(parts)
    return Question(
        " AND ".join(f"({part.sql})" for part in parts),
        lambda r: all(part.holds(r) is True for part in parts),
    )


def equal(chance, name, value):
    """A column equals one of a few values, said in one of several ways."""
    column = predicates.quoted(name)
    options = [literal_of(name, value)] if chance.random() < 0.9 else []
    options += [any_literal(chance, name) for _ in range(chance.choice([0, 0, 1, 3]))]
    options = options or [any_literal(chance, name)]
    chance.shuffle(options)
    listed = [sql for sql, _ in options]
    if chance.random() < 0.2:
        listed.append("NULL")

    def holds(row):
        at = predicates.key(name, row)
        return any(predicates.compare("=", at, wanted) is True for _, wanted in options)

    if chance.random() < 0.5:
        return Question(f"{column} IN ({', '.join(listed)})", holds)
    sides = [
        f"{column} = {sql}" if chance.random() < 0.7 else f"{sql} = {column}" for sql in listed
    ]
    return Question(" OR ".join(sides), holds)


def any_literal(chance, name):
    if name == "id":
        return literal_of(name, chance.randrange(12))
    return predicates.literal(chance, name)


def literal_of(name, value):
    """A value of a column as SQL, and in the form for `predicates.compare`."""
    at = predicates.key(name, {name: value})
    if name == "text":
        return "'" + value.replace("'", "''") + "'", at
    if name in ("d", "ntz"):
        day = predicates.EPOCH + timedelta(microseconds=at)
        text = day.replace(tzinfo=None).isoformat(sep=" ")
        return (f"DATE '{text[:10]}'" if name == "d" else f"TIMESTAMP '{text}'"), at
    return (format(value, "f") if isinstance(value, Decimal) else str(value)), at


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(TABLES))
def test_a_look_up_finds_what_a_whole_scan_shows(seed):
    check(seed, 25)


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_many_look_ups(block):
    for seed in range(100 + block, 100 + (EXAMPLES or 300) // 3, BLOCKS):
        check(seed, 60)
