"""Merging rows in any steps gives what all rows at once give, under every rule."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.keyed_tables import FUNCTIONS, KINDS, model_of, ordered
from support.repeatable import EXAMPLES

from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.rule import MergeRule

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("k2", pa.string()),
        ("o", pa.int32()),
        ("g", pa.int32()),
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.int32()),
        ("_op", pa.string()),
    ]
)
SEEDS = 32
LONG = EXAMPLES or 4000


def rule_for(chance):
    kind = chance.choice(KINDS)
    key = chance.choice([("k",), ("k", "k2"), ("k2", "k")])
    order = chance.choice([None, "o"])
    functions = {}
    if kind == "aggregate":
        functions = {**FUNCTIONS, "k2": "last", "a": chance.choice(["sum", "count", "max"])}
        functions = {n: f for n, f in functions.items() if n in SCHEMA.names and n not in key}
    orders = {"g": "g", "a": "g"} if kind == "groups" else {}
    kind = "partial" if kind == "groups" else kind
    return MergeRule(key, 4, order, kind, functions, orders)


def some_rows(chance, rule, most=7):
    """Up to `most` rows of few keys, among them deletes."""
    made = []
    for _ in range(chance.randrange(most)):
        row = {
            "k": chance.randrange(3), "k2": chance.choice("xy"), "o": chance.randrange(5),
            "g": chance.choice([None, 0, 1, 2, 3]), "a": chance.choice([None, 1, 2, 3, 7]),
            "b": chance.choice([None, "", "p", "q"]), "c": chance.choice([None, 5, 6]), "_op": "u",
        }  # fmt: skip
        if rule.order is None and chance.random() < 0.3:
            row["o"] = None  # a key may have nothing else
            row |= {"g": None, "a": None, "b": None, "c": None} if chance.random() < 0.5 else {}
        if rule.functions.get("a") == "count":
            row["a"] = 1
        if rule.kind != "aggregate" and chance.random() < 0.25:
            row |= {"_op": "d", "g": None, "a": None, "b": None, "c": None}
            if not rule.ordered_deletes or chance.random() < 0.4:
                row["o"] = None
        made.append(row)
    return made


def table_of(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def seen(table, rule):
    shown = row_merging.visible(table, rule)
    assert shown.column_names == [n for n in table.column_names if n != "_op"]
    return ordered(shown.to_pylist())


def wanted(rows, rule):
    return ordered(model_of(rows, rule).values())


def check(seed):
    chance = random.Random(seed)
    rule = rule_for(chance)
    parts = [some_rows(chance, rule) for _ in range(5)]
    every = [row for part in parts for row in part]
    answer = wanted(every, rule)
    assert seen(table_of(every), rule) == answer
    check_runs(chance, rule, [table_of(part) for part in parts], answer)
    check_base(chance, rule, parts, answer)
    check_projection(chance, rule, every, answer)


def check_runs(chance, rule, parts, answer):
    """Neighbours become one, in any order, again and again."""
    for _ in range(4):
        first = chance.randrange(len(parts))
        last = chance.randrange(first, len(parts))
        run = pa.concat_tables(parts[first : last + 1])
        kept = row_merging.condensed(run, rule, bottom=first == 0)
        assert kept.schema == SCHEMA
        assert kept.num_rows <= run.num_rows or rule.kind == "aggregate"
        again = row_merging.condensed(kept, rule, bottom=first == 0)
        assert ordered(again.to_pylist()) == ordered(kept.to_pylist())
        parts[first : last + 1] = [kept]
        assert seen(pa.concat_tables(parts), rule) == answer


def check_base(chance, rule, parts, answer):
    """A base, what it does not show, and logs: as readers merge them."""
    cut = chance.randrange(1, 5)
    low = table_of([row for part in parts[:cut] for row in part])
    high = table_of([row for part in parts[cut:] for row in part])
    kept = row_merging.condensed(low, rule, bottom=True)
    base, late = row_merging.visible(kept, rule), row_merging.residue(kept, rule)
    keys = [tuple(row[n] for n in rule.key) for row in base.to_pylist()]
    assert len(set(keys)) == len(keys)
    touched = key_lookup.distinct(high, rule.key)
    mask = key_lookup.among(base, touched, rule.key)
    free, hit = base.filter(pc.invert(mask)), base.filter(mask)
    late = late.filter(key_lookup.among(late, touched, rule.key))
    hit = hit.filter(
        pc.invert(key_lookup.among(hit, key_lookup.distinct(late, rule.key), rule.key))
    )
    hit = hit.append_column("_op", pa.nulls(hit.num_rows, pa.string())).select(SCHEMA.names)
    merged = row_merging.visible(pa.concat_tables([hit.cast(SCHEMA), late, high]), rule)
    assert ordered(free.to_pylist() + merged.to_pylist()) == answer


def check_projection(chance, rule, rows, answer):
    """Columns that a merge does not need may be left out."""
    names = chance.sample(["g", "a", "b", "c"], chance.randrange(4))
    needed = [n for n in SCHEMA.names if n in {*rule.needed(names), "_op"}]
    found = row_merging.visible(table_of(rows).select(needed), rule).select([*rule.key, *names])
    expected = [{n: row[n] for n in (*rule.key, *names)} for row in answer]
    assert ordered(found.to_pylist()) == ordered(expected)


@pytest.mark.parametrize("first", range(0, SEEDS, 16))
def test_rows_merged_in_any_steps_are_rows_merged_at_once(first):
    for seed in range(first, first + 16):
        check(seed)


@pytest.mark.long
def test_rows_merged_in_any_steps_thousands_of_times():
    for seed in range(10_000, 10_000 + LONG):
        check(seed)
