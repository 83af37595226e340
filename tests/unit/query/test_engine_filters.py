"""Filters of engines, in which NaN and null mean what they mean in SQL, as filters of Arrow."""

import math
import operator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eventlog import errors
from eventlog.query.engine_filters import EngineFilter, in_arrow_terms, simplified

NAN = math.nan
VALUES = [1.0, NAN, None, 3.0, math.inf, -0.0]
ROWS = pa.table(
    {
        "id": range(36),
        "f": [left for left in VALUES for _ in VALUES],
        "g": VALUES * 6,
        "s": ["a", "b", None] * 12,
    }
)
F, G, S = (pc.field(name) for name in "fgs")
OPERATORS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def place(number):
    return (1, 0.0) if math.isnan(number) else (0, number)


def passing(expression):
    return ROWS.filter(in_arrow_terms(expression, ROWS.schema)).column("id").to_pylist()


def expected(compare, left, right):
    """The ids by Python's own order of pairs, in which NaN is above all numbers."""
    found = []
    for row in ROWS.to_pylist():
        pair = [value(row) for value in (left, right)]
        if None not in pair and compare(*map(place, pair)):
            found.append(row["id"])
    return found


@pytest.mark.parametrize("sign", OPERATORS)
def test_nan_is_above_all_numbers_and_equal_to_itself(sign):
    compare = OPERATORS[sign]
    f, g = (lambda row: row["f"]), (lambda row: row["g"])
    assert passing(compare(F, G)) == expected(compare, f, g)
    for number in (1.0, NAN, math.inf, 0, 2):
        assert passing(compare(F, number)) == expected(compare, f, lambda _, n=number: n)
        literal = pc.scalar(number)
        assert passing(compare(literal, F)) == expected(compare, lambda _, n=number: n, f)
        narrow = compare(F.cast(pa.float32()), number)
        assert passing(narrow) == expected(compare, f, lambda _, n=number: n)


@pytest.mark.parametrize("sign", OPERATORS)
def test_null_stays_null_where_a_comparison_is_negated(sign):
    compare = OPERATORS[sign]
    known = [row["id"] for row in ROWS.to_pylist() if None not in (row["f"], row["g"])]
    assert sorted(passing(compare(F, G)) + passing(~compare(F, G))) == known
    valid = [row["id"] for row in ROWS.to_pylist() if row["f"] is not None]
    assert sorted(passing(compare(F, 1.0)) + passing(~compare(F, 1.0))) == valid
    assert passing(~(pc.scalar(pa.scalar(None, pa.float64())) < F)) == []


def test_a_lookup_of_null_is_null():
    in_a = [row["id"] for row in ROWS.to_pylist() if row["s"] == "a"]
    in_b = [row["id"] for row in ROWS.to_pylist() if row["s"] == "b"]
    assert passing(S.isin(["a"])) == in_a
    assert passing(~S.isin(["a"])) == in_b
    assert passing(~~S.isin(["a"])) == in_a
    assert passing(~(S.isin(["a"]) | (F > 5))) == [i for i in in_b if VALUES[i // 6] in (1, 3, 0)]


def test_other_parts_of_a_filter_stay_as_they_are():
    pairs = [{"x": 1.0, "y": 2}, {"x": NAN, "y": 3}, None]
    struct = pa.table({"id": range(3), "p": pairs})
    inner = (pc.field("p", "x") > 5) & (pc.field("p", "y") == 3)
    found = struct.filter(in_arrow_terms(inner, struct.schema))
    assert found.column("id").to_pylist() == [1]
    texts = pc.match_like(S, "a%") & (pc.field("id") > 30)
    assert in_arrow_terms(texts, ROWS.schema).equals(texts)
    many = F > 100
    for number in range(3000):
        many |= number + 0.5 == F
    assert passing(many) == passing(F > 100)


def test_a_lookup_in_duckdb_s_form_becomes_one_by_which_segments_are_pruned():
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    form = pc.Expression._call("if_else", [S.is_valid(), S.isin(["a"]), null])
    assert simplified(form & (F > 1)).equals((S.is_valid() & S.isin(["a"])) & (F > 1))
    assert simplified(~form).equals(~form), "null is not false there"


def test_filters_that_cannot_be_read_are_refused():
    with pytest.raises(errors.InvalidInput, match="name the column"):
        in_arrow_terms(pc.field(1) > 1, ROWS.schema)
    with pytest.raises(errors.InvalidInput, match="does not fit the table"):
        in_arrow_terms(pc.field("f") + pc.field("s") > 1, ROWS.schema)


def test_a_filter_of_the_scan_itself_keeps_arrow_s_order():
    both = EngineFilter(F > 2, own=G > 2)
    rows = ROWS.filter(both.rows(ROWS.schema)).to_pylist()
    assert {str(row["f"]) for row in rows} == {"nan", "3.0", "inf"}
    assert {str(row["g"]) for row in rows} == {"3.0", "inf"}
    assert both.pruning().equals((G > 2) & (F > 2))
