"""Python objects of a pandas frame, two of every kind in one column: whole in Arrow, or refused."""

import datetime as dt
import enum
import itertools
import math
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from eventlog import errors
from eventlog.staging.incoming.streams import to_reader

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NS |= {"D": 86400 * _NS["s"], "h": 3600 * _NS["s"], "m": 60 * _NS["s"]}


class Level(enum.IntEnum):
    LOW = 3


OSLO = ZoneInfo("Europe/Oslo")
TOKYO = dt.timezone(dt.timedelta(hours=9))
NULLS = [None, pd.NA, pd.NaT, math.nan]
NUMBERS = [
    *(True, np.bool_(True), 1, 2**53 + 1, 2**63 - 1, 2**64 - 1, Level.LOW),
    *(1.5, 2.0, 1e300, math.inf, np.int8(-3), np.int64(2**62), np.uint64(2**63), np.uint64(5)),
    *(np.uint64(2**64 - 1), np.float16(0.1), np.float32(0.1), np.longdouble("0.1")),
    *(np.ma.masked, Decimal("1.10"), Decimal("1E+3"), Decimal("NaN"), Fraction(1, 3)),
]
TEXTS = [
    "x",
    "12",
    np.str_("np"),
    b"x",
    b"\xff",
    bytearray(b"w"),
    memoryview(b"m"),
    np.bytes_(b"n"),
]
TIMES = [
    *(dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 12, 30, 0, 5)),
    *(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 7, 1, 12, tzinfo=OSLO)),
    *(dt.datetime(2020, 1, 1, 9, tzinfo=TOKYO), pd.Timestamp("2020-01-01")),
    *(dt.datetime(2020, 1, 1, tzinfo=OSLO), pd.Timestamp("2020-01-01", tz=OSLO)),
    *(dt.datetime(2020, 10, 25, 2, 30, tzinfo=OSLO, fold=fold) for fold in (0, 1)),
    *(pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp("2020-01-01", tz="UTC")),
    *(np.datetime64(18262, unit) for unit in ("D", "h", "s", "ms", "us", "ns", "10s")),
    *(np.timedelta64(5, unit) for unit in ("D", "s", "us", "ns", "10s")),
    *(dt.timedelta(microseconds=7), pd.Timedelta(7, "ns"), dt.time(1, 2, 3)),
    dt.time(1, 2, 3, tzinfo=dt.UTC),
]
ARROW = [
    *(pa.scalar(3), pa.scalar(2**64 - 1, pa.uint64()), pa.scalar(1.5), pa.scalar("x")),
    *(pa.scalar(dt.date(2020, 1, 1)), pa.scalar(18262, pa.timestamp("ns")), pa.scalar(True)),
]
NESTED = [
    *([], [1], [1.5], ["x"], [b"x"], (1,), {1}, {}, {"a": 1}, {"a": 1.5}, {"a": "x"}, {"b": 1}),
    *({b"a": 1}, {1: 2}, [[1]], [True], [dt.date(2020, 1, 1)], [dt.datetime(2020, 1, 1, 12)]),
    *(np.array([1, 2]), np.array([2**64 - 1], "u8"), np.array([0.1], "f2"), np.array([0.1])),
    *(np.array([0.1], "g"), np.array(["é"]), np.array([b"x"]), np.array([True])),
    *(np.array([18262], f"M8[{unit}]") for unit in ("D", "us", "ns", "10s")),
    *(np.array([5], "m8[ns]"), np.array([1, "x", None], object), np.array([[1, 2], [3, 4]])),
    *(np.ma.array([1, 2], mask=[0, 1]), pd.Series([1, 2]), pd.Series([1.5], index=[3])),
    *(pa.array([1, 2]), range(3), np.arange(4)[::-1], np.array([1, 2], ">i4")),
]


def meaning(value):
    """What a value is, whatever class it has: instants as nanoseconds, numbers as fractions."""
    if isinstance(value, pa.Scalar):
        return arrow_meaning(value)
    if value is None or value is pd.NA or value is pd.NaT or value is np.ma.masked:
        return None
    if isinstance(value, bool | np.bool_):
        return ("truth", bool(value))
    if (moment := moment_of(value)) is not None:
        return moment
    if isinstance(value, str | bytes | bytearray | memoryview):
        return str(value) if isinstance(value, str) else bytes(value)
    if isinstance(value, dict):
        fields = {key: meaning(held) for key, held in value.items()}
        return {key: held for key, held in fields.items() if held is not None}
    if hasattr(value, "__iter__"):
        masked = np.ma.getmaskarray(value) if hasattr(value, "mask") else itertools.repeat(False)
        return [None if gone else meaning(held) for held, gone in zip(value, masked, strict=False)]
    if value != value:  # noqa: PLR0124 - of every class of numbers
        return None
    if value in {math.inf, -math.inf}:
        return ("number", float(value))
    whole = isinstance(value, int | np.integer)
    return ("number", Fraction(int(value)) if whole else Fraction(*value.as_integer_ratio()))


def moment_of(value):
    """What a date, a time or a duration is; None of anything else."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit, multiple = np.datetime_data(value.dtype)
        kind = "time" if isinstance(value, np.datetime64) else "span"
        return (kind, int(value.astype(np.int64)) * multiple * _NS[unit])
    if isinstance(value, pd.Timestamp):
        return ("time" if value.tzinfo is None else "instant", value.as_unit("ns").value)
    if isinstance(value, pd.Timedelta):
        return ("span", value.as_unit("ns").value)
    if isinstance(value, dt.datetime):
        since = value.replace(tzinfo=None) - (value.utcoffset() or dt.timedelta())
        nanos = (since - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000
        return ("time" if value.tzinfo is None else "instant", nanos)
    if isinstance(value, dt.date):
        return ("time", (value - dt.date(1970, 1, 1)).days * _NS["D"])
    if isinstance(value, dt.timedelta):
        return ("span", value // dt.timedelta(microseconds=1) * 1000)
    if isinstance(value, dt.time):
        return ("time of day", value.replace(tzinfo=None), value.tzinfo is not None)
    return None


def arrow_meaning(scalar):
    """What a value of Arrow is: times from their integers, since Python's have no nanoseconds."""
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_timestamp(kind):
        return ("instant" if kind.tz else "time", scalar.value * _NS[kind.unit])
    if pa.types.is_duration(kind):
        return ("span", scalar.value * _NS[kind.unit])
    if pa.types.is_list(kind):
        return [arrow_meaning(item) for item in scalar]
    if pa.types.is_struct(kind):
        fields = {name: arrow_meaning(scalar[name]) for name in scalar}
        return {name: held for name, held in fields.items() if held is not None}
    return meaning(scalar.as_py())


def changed(values):
    """What a column of these values becomes where it is not what it was; None where it is."""
    held = np.empty(len(values), object)
    for at, value in enumerate(values):
        held[at] = value
    try:
        rows = to_reader(pd.DataFrame({"x": pd.Series(held, dtype=object)})).read_all()
    except errors.InvalidInput:
        return None
    column = rows.column("x")
    after = [arrow_meaning(value) for value in column]
    return None if after == [meaning(value) for value in values] else (values, column)


def beside_each_other(*groups):
    values = [value for group in groups for value in group]
    return itertools.product(values, repeat=2)


@pytest.mark.long
@pytest.mark.hazard("W3")
@pytest.mark.filterwarnings("ignore")
def test_w3_two_objects_of_a_frame_are_whole_or_refused():
    pairs = beside_each_other(NULLS, NUMBERS, TEXTS, TIMES, ARROW)
    assert [bad for pair in pairs if (bad := changed(pair))] == []


@pytest.mark.verify
@pytest.mark.hazard("W3")
@pytest.mark.filterwarnings("ignore")
def test_w3_two_lists_or_structs_of_a_frame_are_whole_or_refused():
    pairs = beside_each_other(NULLS[:2], NESTED)
    assert [bad for pair in pairs if (bad := changed(pair))] == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_objects_inside_of_lists_and_structs_are_whole_or_refused():
    for form in (
        lambda one, other: [[one, other]],
        lambda one, other: [[one], [other]],
        lambda one, other: [{"k": one}, {"k": other}],
        lambda one, other: [[{"k": [one]}], [{"k": [other, one]}]],
    ):
        pairs = beside_each_other(NULLS, NUMBERS, TEXTS, TIMES, ARROW, NESTED)
        assert [bad for pair in pairs if (bad := changed(form(*pair)))] == []


def held_in_array(*values):
    held = np.empty(len(values), object)
    held[:] = values
    return held


def test_numpy_times_beside_other_values_of_numpy_are_refused_in_time():
    """Arrow would end the process."""
    moment = np.datetime64(1, "s")
    for other in (np.int64(1), np.float32(0.5), np.bool_(True)):
        for values in (
            [moment, other],
            [[moment, other]],
            [{"a": moment}, {"a": other}],
            [held_in_array(moment, other)],
        ):
            held = np.empty(len(values), object)
            for at, value in enumerate(values):
                held[at] = value
            with pytest.raises(errors.InvalidInput, match=r"column 'x' .*NumPy times"):
                to_reader(pd.DataFrame({"x": pd.Series(held, dtype=object)}))
