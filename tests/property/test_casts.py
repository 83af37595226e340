"""An expression finds the rows that it finds in the whole table, whatever it casts or looks up."""

import math
import operator
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import repeatable
from support.builders import create

from eventlog import limits, readers
from eventlog.writers import append

AT = pa.timestamp("us", "UTC")
NUMBERS = [0.1, 0.3, 0.7, 1.5, -2.25, 9.7, 3e10]
WHOLE = [0, 1, -7, 200, 2**24 + 1, -(2**24) - 3, 2**30 - 9, 2**31 - 20]
LONG = [*WHOLE, 2**31 + 5, 2**53 + 1, -(2**53) - 1, 2**62 + 3]
DAY_US = 86_400 * 10**6
COLUMNS = {
    "d": (pa.float64(), NUMBERS),
    "f": (pa.float32(), NUMBERS),
    "i": (pa.int32(), WHOLE),
    "l": (pa.int64(), LONG),
    "m": (pa.decimal128(12, 2), [Decimal("9.70"), Decimal("0.30"), Decimal(16777217), Decimal(-1)]),
    "t": (pa.timestamp("us"), [0, 1, 999_999, DAY_US + 1, -1, 3 * DAY_US]),
    "y": (pa.date32(), [0, 1, -1, 15_712]),
}
TARGETS = [
    pa.float32(), pa.float64(), pa.float16(), pa.int8(), pa.int32(), pa.int64(), pa.string(),
    pa.decimal128(38, 2), pa.decimal128(38, 4), pa.timestamp("s"), pa.timestamp("ms"),
    pa.timestamp("ns"), pa.date32(), pa.bool_(),
]  # fmt: skip
OPERATORS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.fixture(scope="module", params=["segments", "row groups"])
def table(request):
    """Rows that lie close together in each segment, or in each row group of one segment."""
    schema = pa.schema([("at", AT), *[(name, kind) for name, (kind, _) in COLUMNS.items()]])
    parts = []
    for n in range(max(len(values) for _, values in COLUMNS.values())):
        columns = [
            pa.array([values[n % len(values)]] * 2, kind) for kind, values in COLUMNS.values()
        ]
        parts.append(pa.table([pa.array([n, n], AT), *columns], schema=schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "ROW_GROUP_ROWS", 2)
        t = create(schema=schema)
        for part in parts if request.param == "segments" else [pa.concat_tables(parts)]:
            append(t, part)
    return t, pa.concat_tables(parts)


def question(chance):
    """Return an expression that compares a column, cast once or twice, with what lies near it."""
    name = chance.choice(list(COLUMNS))
    kind, values = COLUMNS[name]
    field, value = pc.field(name), pa.array([chance.choice(values)], kind)
    for target in chance.choices(TARGETS, k=chance.choice([0, 1, 1, 1, 2])):
        field, value = field.cast(target, safe=False), value.cast(target, safe=False)
    known = value[0]
    if pa.types.is_floating(value.type):
        if chance.random() < 0.5:
            known = pa.scalar(float(np.nextafter(known.as_py(), chance.choice([-np.inf, np.inf]))))
        elif chance.random() < 0.2:
            known = pa.scalar(math.nan, value.type)
    if chance.random() < 0.1:
        values = [chance.choice(values)] if name != "y" else [chance.choice(values) * DAY_US + 1]
        of_another = pa.array(values, pa.timestamp("us") if name == "y" else kind)
        where = pc.field(name).isin(of_another.cast(chance.choice(TARGETS), safe=False))
    elif chance.random() < 0.3:
        # As a person writes it, in Arrow's widest type.
        where = field.isin(pa.array([known.as_py()]) if chance.random() < 0.5 else value)
    else:
        where = chance.choice(OPERATORS)(field, known)
    return ~where if chance.random() < 0.3 else where


@pytest.mark.verify
def test_an_expression_finds_the_rows_of_the_whole_table(table):
    t, rows = table
    chance = random.Random(5)
    asked = casts = 0
    while asked < repeatable.examples(60):
        try:
            where = question(chance)
            wanted = rows.filter(where).num_rows
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue  # Arrow has no such cast or comparison, or Python no such time
        assert readers.count(t, where) == wanted, str(where)
        asked += 1
        casts += wanted > 0 and "to_type" in str(where)
    assert casts > asked / 8


@pytest.mark.sample(0, verify=2)
@pytest.mark.parametrize("name", ["d", "i", "l"])
def test_a_column_cast_to_a_narrower_float_finds_its_values(table, name):
    t, rows = table
    for value in COLUMNS[name][1]:
        near = pa.scalar(np.float32(value))
        for where in (
            pc.field(name).cast(pa.float32(), safe=False) == near,
            pc.field(name).cast(pa.float32(), safe=False).isin(pa.array([near.as_py()], near.type)),
        ):
            found = readers.scan(t, where=where)
            assert found.count() == found.to_table().num_rows == rows.filter(where).num_rows >= 2


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["d", "f"])
def test_values_of_a_float_column_are_found_as_python_writes_them(table, name):
    t, rows = table
    for value in COLUMNS[name][1]:
        where = pc.field(name).isin([value])
        assert readers.count(t, where) == rows.filter(where).num_rows >= 2
    for compare in OPERATORS:
        where = compare(pc.field(name), math.nan)
        for asked in (where, ~where):
            assert readers.count(t, asked) == rows.filter(asked).num_rows


def test_days_are_found_by_moments_of_them(table):
    t, rows = table
    for moment in (15_712 * DAY_US, 15_712 * DAY_US + 1):
        for kind in (pa.timestamp("us"), AT):
            where = pc.field("y").isin(pa.array([moment], kind))
            try:
                wanted = rows.filter(where).num_rows
            except pa.ArrowException:
                continue  # it is no day
            assert readers.count(t, where) == wanted >= 2


def test_bounds_of_floats_are_used_where_nothing_rounds(table):
    t, _ = table
    if len(t.session.head().segments()) > 1:
        plan = readers.scan(t, where=(pc.field("d") > 1e9) & pc.field("i").isin([0, 1])).plan
        assert plan.pruning.by_statistics > 0
