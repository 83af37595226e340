"""Python values of columns: exact, or refused."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from eventlog.errors import InvalidInput
from eventlog.model.columns.column_types import arrow_type
from eventlog.model.entries import Column
from eventlog.query.python_values import value_literal

POINT = {
    "struct": [{"id": 2, "name": "x", "type": "int8"}, {"id": 3, "name": "y", "type": "float64"}]
}
TEXT_TO_INT = {"map": [{"id": 2, "type": "string"}, {"id": 3, "type": "int8"}]}
NOON = datetime(2013, 1, 7, 12, tzinfo=UTC)
US = 1357560000000000


def column(kind, *, nullable=True):
    return Column(id=1, name="c", type=kind, nullable=nullable)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (None, "int8", None),
        (True, "bool", True),
        (np.bool_(False), "bool", False),
        (127, "int8", 127),
        (np.int64(-(2**63)), "int64", -(2**63)),
        (2**53, "float64", 2.0**53),
        (0.1, "float64", 0.1),
        (-0.0, "float64", -0.0),
        (0.5, "float32", 0.5),
        (np.float32(0.1), "float32", float(np.float32(0.1))),
        (np.float32(0.1), "float64", float(np.float32(0.1))),
        (math.inf, "float32", math.inf),
        (Decimal("1.50"), "decimal(5,2)", Decimal("1.50")),
        (Decimal("1.5E+1"), "decimal(5,2)", Decimal("15.00")),
        (7, "decimal(3,2)", Decimal("7.00")),
        ("a\U0001f600", "string", "a\U0001f600"),
        (bytearray(b"a"), "binary", b"a"),
        (date(2013, 1, 7), "date", date(2013, 1, 7)),
        (NOON, "timestamp", NOON),
        (NOON.astimezone(timezone(timedelta(hours=2))), "timestamp", NOON),
        (pd.Timestamp(NOON), "timestamp", NOON),
        (NOON.replace(tzinfo=None), "timestamp_ntz", NOON.replace(tzinfo=None)),
        (np.datetime64("2013-01-07T12"), "timestamp", NOON),
        ([1, None], {"list": {"id": 2, "type": "int8"}}, [1, None]),
        ({"x": 1, "y": 0.5}, POINT, {"x": 1, "y": 0.5}),
        ({"a": 1}, TEXT_TO_INT, [("a", 1)]),
        (pa.scalar(5), "int8", 5),
    ],
)
def test_a_value_is_exact(value, kind, expected):
    found = value_literal(value, column(kind))
    assert found.type == arrow_type(kind)
    assert found.as_py() == expected
    assert "-0.0" not in repr(expected) or repr(found.as_py()) == "-0.0"


def test_a_value_that_is_not_a_number():
    assert math.isnan(value_literal(math.nan, column("float32")).as_py())


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("value", "kind", "named"),
    [
        (128, "int8", "cannot hold 128"),
        (True, "int8", "cannot hold True"),
        (1.0, "int64", "cannot hold 1.0"),
        ("1", "int64", "cannot hold '1'"),
        (1, "bool", "cannot hold 1"),
        (2**53 + 1, "float64", "not exactly a float"),
        (10**400, "float64", "not exactly a float"),
        (0.1, "float32", "numpy.float32"),
        (1e300, "float32", "numpy.float32"),
        (Decimal("0.1"), "float64", "cannot hold"),
        (0.1, "decimal(5,2)", "write a Decimal"),
        (Decimal("1.005"), "decimal(5,2)", "at most 2 digits after the point"),
        (Decimal(1000), "decimal(5,2)", "at most 5 digits"),
        (Decimal("1E+999999"), "decimal(5,2)", "write a Decimal"),
        (Decimal("NaN"), "decimal(5,2)", "write a Decimal"),
        (1, "string", "cannot hold 1"),
        ("\ud800", "string", "cannot hold"),
        ("a", "binary", "cannot hold 'a'"),
        (NOON, "date", "write a date"),
        ("2013-01-07", "date", "write a date"),
        (NOON, "timestamp_ntz", "without a time zone"),
        (NOON.replace(tzinfo=None), "timestamp", "with a time zone"),
        (date(2013, 1, 7), "timestamp", "write a datetime"),
        (US, "timestamp", "write a datetime"),
        (pd.Timestamp(US * 1000 + 1, tz="UTC"), "timestamp", "microseconds"),
        (pd.NaT, "timestamp", "cannot hold"),
        (np.datetime64("2013-01-07T12:00:00.000000001"), "timestamp", "microseconds"),
        (np.datetime64("NaT"), "timestamp_ntz", "microseconds"),
        ([300], {"list": {"id": 2, "type": "int8"}}, "cannot hold"),
        ("ab", {"list": {"id": 2, "type": "string"}}, "cannot hold"),
        ({"x": 1}, POINT, "exactly the fields x, y"),
        ([("a",)], TEXT_TO_INT, "cannot hold"),
    ],
)
def test_what_would_change_is_refused(value, kind, named):
    with pytest.raises(InvalidInput, match="column 'c' of type") as caught:
        value_literal(value, column(kind))
    assert named in str(caught.value)


def test_a_required_column_takes_no_null():
    with pytest.raises(InvalidInput, match="'c' is required"):
        value_literal(None, column("int8", nullable=False))
