"""Merge rules, each by an example; every rule at random is in `property/test_merging.py`."""

from decimal import Decimal

import pyarrow as pa
import pytest

from eventlog.errors import InvalidInput
from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.rule import MergeRule


def rule(kind="last", order=None, functions=None, orders=None):
    return MergeRule(("k",), 4, order, kind, functions or {}, orders or {})


def rows(*given, names="k o a b _op"):
    columns = list(zip(*given, strict=True)) if given else [[]] * len(names.split())
    kinds = {"k": pa.int64(), "b": pa.string(), "_op": pa.string()}
    arrays = [
        pa.array(values, kinds.get(name, pa.int64()))
        for name, values in zip(names.split(), columns, strict=True)
    ]
    return pa.table(arrays, names.split())


def shown(table, merge_rule):
    found = row_merging.visible(table, merge_rule)
    return sorted(tuple(row.values()) for row in found.to_pylist())


def kept(table, merge_rule, *, bottom=False):
    found = row_merging.condensed(table, merge_rule, bottom=bottom).to_pylist()
    return [tuple(row.values()) for row in found]


def test_the_greatest_order_wins_and_of_equals_the_last():
    table = rows((1, 5, 1, "a", "u"), (1, 4, 2, "b", "u"), (2, 1, 1, "a", "u"), (2, 1, 2, "b", "u"))
    assert shown(table, rule(order="o")) == [(1, 5, 1, "a"), (2, 1, 2, "b")]
    assert shown(table, rule()) == [(1, 4, 2, "b"), (2, 1, 2, "b")]
    assert shown(table, rule("first", "o")) == [(1, 4, 2, "b"), (2, 1, 1, "a")]


def test_an_ordered_delete_hides_what_is_older_and_a_barrier_what_was_before():
    delete, barrier = (1, 4, None, None, "d"), (1, None, None, None, "d")
    old, new = (1, 3, 1, "old", "u"), (1, 5, 1, "new", "u")
    by_order = rule(order="o")
    assert shown(rows(delete, old), by_order) == []
    assert shown(rows(old, new, delete), by_order) == [(1, 5, 1, "new")]
    assert shown(rows(new, barrier), by_order) == []
    assert shown(rows(new, barrier, old), by_order) == [(1, 3, 1, "old")]


def test_a_tombstone_is_kept_with_an_order_and_not_without_one_at_the_bottom():
    old, tombstone = (1, 3, 1, "a", "u"), (1, 4, None, None, "d")
    assert kept(rows(old, tombstone), rule(order="o"), bottom=True) == [tombstone]
    assert kept(rows(old, tombstone), rule(), bottom=True) == []
    assert kept(rows(old, tombstone), rule(), bottom=False) == [tombstone]


def test_a_log_keeps_a_tombstone_beside_the_upsert_that_is_later():
    tombstone, new = (1, 4, None, None, "d"), (1, 5, 1, "a", "u")
    table = rows((1, 3, None, None, "d"), tombstone, (1, 2, 1, "b", "u"), new)
    assert kept(table, rule(order="o")) == [tombstone, new]
    assert kept(table, rule(order="o"), bottom=True) == [new]
    assert kept(table, rule()) == [new]


def test_a_barrier_is_kept_above_others_and_not_at_the_bottom():
    barrier, new = (1, None, None, None, "d"), (1, 1, 1, "a", "u")
    table = rows((1, 9, 1, "b", "u"), barrier, new)
    assert kept(table, rule(order="o")) == [barrier, new]
    assert kept(table, rule(order="o"), bottom=True) == [new]


def test_null_keeps_what_there_is():
    table = rows((1, 1, 1, "a", "u"), (1, 2, None, "b", "u"), (1, 0, 7, None, "u"))
    assert shown(table, rule("partial", "o")) == [(1, 2, 1, "b")]
    assert shown(table, rule("partial")) == [(1, 0, 7, "b")]


def test_groups_have_orders_of_their_own():
    by_group = rule("partial", orders={"o": "o", "a": "o"})
    table = rows((1, 5, 1, "x", "u"), (1, 3, 2, "y", "u"), (1, None, 9, None, "u"))
    assert shown(table, by_group) == [(1, 5, 1, "y")]


def test_a_key_without_any_value_is_there():
    # Its one value has no order, and so it never counts.
    by_group = rule("partial", orders={"o": "o", "a": "o"})
    table = rows((1, None, 9, None, "u"), (2, None, None, None, "u"), (3, 1, 1, "a", "u"))
    whole = shown(table, by_group)
    assert (
        whole == [(1, None, None, None), (2, None, None, None), (3, 1, 1, "a")] or len(whole) == 3
    )
    for bottom in (False, True):
        again = row_merging.condensed(table, by_group, bottom=bottom)
        assert sorted(again.column("k").to_pylist()) == [1, 2, 3]
        assert sorted(r["k"] for r in row_merging.visible(again, by_group).to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("function", "wanted"), [("sum", 6), ("min", 1), ("max", 3), ("last", 2), ("first", 1)]
)
def test_functions(function, wanted):
    table = rows(
        (1, 0, 1, "a", "u"), (1, 0, None, "b", "u"), (1, 0, 3, "c", "u"), (1, 0, 2, "d", "u")
    )
    functions = {"o": "last", "a": function, "b": "last"}
    assert shown(table, rule("aggregate", None, functions)) == [(1, 0, wanted, "d")]


def test_a_sum_is_exact_whatever_its_parts():
    top = 2**63 - 1
    given = [(1, 0, n, "a", "u") for n in (top, top, 5, -top, -top)]
    functions = {"o": "last", "a": "sum", "b": "last"}
    assert shown(rows(*given), rule("aggregate", None, functions)) == [(1, 0, 5, "a")]
    with pytest.raises(InvalidInput, match="does not fit"):
        shown(rows(*given[:3]), rule("aggregate", None, functions))


def test_sums_of_decimals():
    most = Decimal("9999999.99")
    table = pa.table({"k": [1, 1, 1], "d": pa.array([most, most, -most], pa.decimal128(9, 2))})
    assert shown(table, rule("aggregate", None, {"d": "sum"})) == [(1, most)]


def test_the_least_of_zeros_has_no_sign_and_nan_is_the_greatest():
    table = pa.table({"k": [1, 1, 2, 2], "f": [0.0, -0.0, float("nan"), 1.0]})
    least = row_merging.visible(table, rule("aggregate", None, {"f": "min"})).sort_by("k")
    assert [str(v) for v in least.column("f").to_pylist()] == ["0.0", "1.0"]


def test_what_a_base_does_not_show_is_told_beside_it():
    table = rows(
        (1, 1, 1, "a", "u"), (2, 5, None, None, "d"), (3, 1, 1, None, "u"), (3, 2, None, "b", "u")
    )
    by_order = rule("partial", "o")
    bottom = row_merging.condensed(table, by_order, bottom=True)
    assert shown(bottom, by_order) == [(1, 1, 1, "a"), (3, 2, 1, "b")]
    told = row_merging.residue(bottom, by_order).to_pylist()
    assert sorted(row["k"] for row in told) == [2, 3, 3]


def test_among_and_distinct():
    table = pa.table({"k": [1, 2, 3, 2], "s": ["a", "b", "c", "x"]})
    some = pa.table({"k": [2, 2, 9], "s": ["b", "b", "c"]})
    assert key_lookup.among(table, some, ["k"]).to_pylist() == [False, True, False, True]
    assert key_lookup.among(table, some, ["k", "s"]).to_pylist() == [False, True, False, False]
    assert key_lookup.among(table, some.slice(0, 0), ["k"]).to_pylist() == [False] * 4
    assert key_lookup.among(table.slice(0, 0), some, ["k", "s"]).to_pylist() == []
    assert key_lookup.distinct(some, ["k", "s"]).to_pylist() == [
        {"k": 2, "s": "b"},
        {"k": 9, "s": "c"},
    ]
