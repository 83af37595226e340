"""Statistics: bounds enclose the values in the encoded order, or are unknown."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from eventlog import errors
from eventlog.model import schema, stats
from eventlog.model.chunks import DAY_US
from eventlog.model.entries import ColumnStats

DAY = dt.date(2013, 1, 7)
NOON = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)
MICROS = int(NOON.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        (pa.int64(), [5, None, -3], -3, 5),
        (pa.int64(), [-(2**63), 1], None, 1),  # the format's integers begin one later
        (pa.bool_(), [True, False, True], 0, 1),
        (pa.string(), ["b", None, "a"], "a", "b"),
        (pa.string(), ["", "z" * 40], "", "z" * 31 + "{"),
        (pa.string(), ["\U0010ffff" * 40], "\U0010ffff" * 32, None),
        (pa.string(), ["\ud7ff" * 40], "\ud7ff" * 32, "\ud7ff" * 31 + "\ue000"),
        (pa.date32(), [DAY], 15_712 * DAY_US, 15_712 * DAY_US),
        (pa.timestamp("us", "UTC"), [NOON], MICROS, MICROS),
        (pa.timestamp("us"), [NOON.replace(tzinfo=None)], MICROS, MICROS),
        (pa.decimal128(38, 2), [Decimal("-1.50"), Decimal("7.25")], -150, 725),
        (pa.decimal128(38, 0), [Decimal(10) ** 30, Decimal(1)], 1, None),
        (pa.float64(), [1.0, float("nan")], None, None),
        (pa.float64(), [-0.0], 0, 0),
        (pa.binary(), [b"a"], None, None),
    ],
    ids=str,
)
def test_bounds(kind, values, low, high):
    stored = schema.from_arrow(pa.schema([("x", kind)]))
    table = pa.table({"x": pa.array(values, kind)})
    assert stats.compute(table, stored.columns) == (
        ColumnStats(1, low, high, sum(v is None for v in values)),
    )


def test_bounds_of_no_values_are_unknown():
    stored = schema.from_arrow(pa.schema([("x", pa.int8())]))
    table = pa.table({"x": pa.nulls(3, pa.int8())})
    assert stats.compute(table, stored.columns) == (ColumnStats(1, None, None, 3),)


def test_infinities_are_bounds():
    inf = float("inf")
    codes = [stats.encode(pa.scalar(v), "float64") for v in (-inf, -1.0, 0.0, 5e-324, 1.0, inf)]
    assert codes == sorted(codes)
    assert len(set(codes)) == 6


COLUMNS = schema.from_arrow(
    pa.schema([("at", pa.date32()), *((f"c{n}", pa.int8()) for n in range(30)),
               ("nest", pa.list_(pa.int8()))])
)  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        (None, ["at", *(f"c{n}" for n in range(15))]),
        ("0", ["at"]),
        ("2", ["at", "c0"]),
        (" c5 , c3,", ["at", "c3", "c5"]),
        ("", ["at"]),
        ("nest", ["at"]),
        ("9" * 19, ["at", *(f"c{n}" for n in range(30))]),
        ("9" * 1000, ["at", *(f"c{n}" for n in range(15))]),  # no number: the default
    ],
)
def test_which_columns_get_statistics(setting, chosen):
    stored = None if setting is None else stats.stored_setting(COLUMNS, setting)
    assert [c.name for c in stats.stats_columns(COLUMNS, stored, 1)] == chosen
    if stored not in {None, setting}:
        names = stats.shown_setting(COLUMNS, stored)
        assert stats.stored_setting(COLUMNS, names) == stored


@pytest.mark.parametrize("setting", ["c99", "²", "-1", "at c1"])
def test_unknown_columns_are_refused(setting):
    with pytest.raises(errors.InvalidInput):
        stats.stored_setting(COLUMNS, setting)


@pytest.mark.parametrize("stored", ["c5", "[", '["c5"]', "[1.5]", "[true]", "-1", "² "])
def test_a_stored_setting_that_is_none_stands_for_the_default(stored):
    default = stats.stats_columns(COLUMNS, None, 1)
    assert stats.stats_columns(COLUMNS, stored, 1) == default


def test_columns_that_are_gone_do_not_count():
    by_name = stats.stored_setting(COLUMNS, '["c2","c4"]')
    assert stats.shown_setting(COLUMNS, by_name) == "c2,c4"
    listed = by_name.replace("]", ",999]")
    assert [c.name for c in stats.stats_columns(COLUMNS, listed, 1)] == ["at", "c2", "c4"]
    assert stats.shown_setting(COLUMNS, listed) == "c2,c4"
