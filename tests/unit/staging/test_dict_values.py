"""Values of Python in the rows of a list: which of them each type of a table takes.

The expected values are computed here, with Python's own means: `struct` rounds floats, `decimal`
scales, `int` has no bounds.
"""

import datetime as dt
import decimal
import enum
import math
import struct
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.builders import create, reopen

from eventlog import errors
from eventlog.readers import scan
from eventlog.staging.incoming.casting import check_columns
from eventlog.staging.incoming.row_sources import TableTypes, as_stream
from eventlog.writers import append, delete, merge, overwrite, upsert

TIME = dt.datetime(1970, 1, 1, 5, tzinfo=dt.UTC)
EAST = dt.timezone(dt.timedelta(hours=2))


class Refused(Exception):
    pass


def refuse_unless(condition):
    if not condition:
        raise Refused


def whole(low, high):
    def stored(value):
        refuse_unless(type(value) is int and low <= value <= high)
        return value

    return stored


def single(value):
    refuse_unless(type(value) is float or (type(value) is int and abs(value) <= 2**24))
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise Refused from None


def double(value):
    refuse_unless(type(value) is float or (type(value) is int and abs(value) <= 2**53))
    return float(value)


def fixed(value):
    refuse_unless(type(value) in (int, Decimal) and Decimal(value).is_finite())
    with decimal.localcontext(prec=60):
        scaled = Decimal(value).quantize(Decimal("0.01"))
        refuse_unless(scaled == value and abs(scaled) < 1000)
        return scaled


def exactly(*classes):
    def stored(value):
        refuse_unless(type(value) in classes)
        if isinstance(value, str):
            refuse_unless(not any("\ud800" <= letter <= "\udfff" for letter in value))
        return bytes(value) if isinstance(value, bytearray) else value

    return stored


def instant(value):
    refuse_unless(type(value) in (dt.datetime, dt.date))
    if type(value) is dt.date:
        value = dt.datetime(value.year, value.month, value.day)
    try:
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    except OverflowError:
        raise Refused from None


def wall_time(value):
    refuse_unless(type(value) is dt.date or getattr(value, "tzinfo", EAST) is None)
    return instant(value).replace(tzinfo=None)


def items_of(stored):
    def items(value):
        refuse_unless(type(value) in (list, tuple))
        return [None if item is None else stored(item) for item in value]

    return items


def fields_of(**stored):
    def fields(value):
        refuse_unless(type(value) is dict and value.keys() <= stored.keys())
        return {n: None if value.get(n) is None else stored[n](value[n]) for n in stored}

    return fields


def pairs_of(key, item):
    def pairs(value):
        refuse_unless(type(value) in (dict, list, tuple))
        found = list(value.items()) if type(value) is dict else value
        refuse_unless(all(type(pair) in (tuple, list) and len(pair) == 2 for pair in found))
        return [(key(a), None if b is None else item(b)) for a, b in found]

    return pairs


BYTE, SHORT = whole(-128, 127), whole(-(2**15), 2**15 - 1)
TYPES = {
    pa.int8(): BYTE,
    pa.int16(): SHORT,
    pa.int32(): whole(-(2**31), 2**31 - 1),
    pa.int64(): whole(-(2**63), 2**63 - 1),
    pa.float32(): single,
    pa.float64(): double,
    pa.decimal128(5, 2): fixed,
    pa.bool_(): exactly(bool),
    pa.string(): exactly(str),
    pa.binary(): exactly(bytes, bytearray),
    pa.date32(): exactly(dt.date),
    pa.timestamp("us", "UTC"): instant,
    pa.timestamp("us"): wall_time,
    pa.list_(pa.int8()): items_of(BYTE),
    pa.list_(pa.list_(pa.float32())): items_of(items_of(single)),
    pa.struct([("a", pa.int8()), ("b", pa.string())]): fields_of(a=BYTE, b=exactly(str)),
    pa.list_(pa.struct([("a", pa.int8())])): items_of(fields_of(a=BYTE)),
    pa.map_(pa.string(), pa.int8()): pairs_of(exactly(str), BYTE),
    pa.map_(pa.int8(), pa.struct([("a", pa.int16())])): pairs_of(BYTE, fields_of(a=SHORT)),
}
EDGES = [
    2**bits + more for bits in (0, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64) for more in (-1, 0, 1)
]
FLOATS = [0.0, -0.0, 0.1, 1.0, 1.5, 2.0**24 + 1, 3.4e38, 3.5e38, -1e300, 1e-300, math.inf, math.nan]
OTHERS = [
    *(True, False, "a", "", "1", "\ud800", b"a", b"\xff", bytearray(b"b"), object(), {1}),
    *map(Decimal, ("1.25", "1.250", "1.255", "-999.99", "1000", "1E+2", "NaN", "Infinity")),
    *(dt.date(2013, 1, 7), dt.date.max, dt.datetime(2013, 1, 7, 5, 1, 2, 3)),
    *(dt.datetime(2013, 1, 7, 5, tzinfo=EAST), dt.time(5), dt.timedelta(1)),
    *([], (), [1], (1, None), [True], [128], [1.0], ["a"], [[1, 0.1], None], [[1e300]], [[], None]),
    *({}, {"a": 1}, {"a": None}, {"a": True}, {"a": 1, "b": "x"}, {"a": 200, "b": "x"}),
    *(
        {"a": 1, "b": "x", "c": 1},
        {"b": None, "a": 1},
        {1: {"a": 200}},
        {1: {"a": 2**15}},
        {1: None},
    ),
    *([("a", 1)], [["a", None], ("b", 2)], [("a", 300)], [("a",)], [(1, {"a": 1})], [("a", 1, 2)]),
    *([{"a": 1}, None], [{"a": 1}, {"a": 128}], [{"b": 1}], {None: 1}, [(None, 1)], {1: None}),
]
ZOO = [*EDGES, *(-edge for edge in EDGES), *FLOATS, *OTHERS]


# Keys that no field has are refused as those of any other rows.
ROW_OR_FIELD = r"row 1 of the list has .* in (column 'v'|field .* of column 'v')|is unknown; the ta"


def table_of(kind, **options):
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("v", kind)])
    return create(schema=schema, **options)


def rows_of(*values):
    return [{"at": TIME, "v": value} for value in values]


def stored_in(table):
    return scan(table).to_table()["v"].to_pylist()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_takes_the_values_that_fit_it_exactly_and_no_others(kind):
    table, taken = table_of(kind), []
    types = TableTypes(table.session.head().schema, "at")
    for value in ZOO:
        try:
            expected = TYPES[kind](value)
        except Refused:
            with pytest.raises(errors.InvalidInput, match=ROW_OR_FIELD):
                check_columns(as_stream(rows_of(None, value), types).schema, types.schema, "at")
        else:
            found = as_stream(rows_of(None, value), types).read_all()["v"].cast(kind)
            assert shown(found.to_pylist()) == shown([None, expected])
            taken.append((value, expected))
    assert len(taken) > 1
    if "struct" not in str(kind):  # of which all dicts in a list have the same keys
        append(table, rows_of(*(value for value, _ in taken)))
        assert shown(stored_in(table)) == shown([expected for _, expected in taken])


def shown(values):
    """Return values as text, which tells 0.0 from -0.0 and is equal for NaN."""
    return repr(in_utc(values))


def in_utc(value):
    """Return a value whose times have Python's own UTC, not the one that Arrow has chosen."""
    if isinstance(value, list | tuple):
        return type(value)(map(in_utc, value))
    if isinstance(value, dict):
        return {name: in_utc(item) for name, item in value.items()}
    aware = isinstance(value, dt.datetime) and value.tzinfo is not None
    return value.astimezone(dt.UTC) if aware else value


class Level(enum.IntEnum):
    HIGH = 7


FOREIGN = {
    "an enumeration of ints": (pa.int8(), Level.HIGH, 7),
    "an int of NumPy": (pa.int8(), np.int64(7), 7),
    "a float of NumPy": (pa.float32(), np.float64(0.5), 0.5),
    "a bool of NumPy": (pa.bool_(), np.bool_(True), True),
    "ints of NumPy in a dict": (pa.map_(pa.string(), pa.int8()), {"a": np.int16(7)}, [("a", 7)]),
    "an array of NumPy": (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
    "a time of pandas": (pa.timestamp("us"), pd.Timestamp("2013-01-07"), dt.datetime(2013, 1, 7)),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_values_of_libraries_are_converted_as_arrow_has_them(case):
    kind, value, expected = FOREIGN[case]
    table = table_of(kind)
    append(table, rows_of(value, None))
    assert stored_in(table) == [expected, None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), np.int64(300)),
        (pa.int8(), np.bool_(True)),
        (pa.int8(), np.timedelta64(7, "s")),
        (pa.timestamp("us"), pd.Timestamp("2013-01-07T00:00:00.000000001")),
    ],
    ids=repr,
)
def test_values_of_libraries_that_do_not_fit_are_refused(kind, value):
    with pytest.raises(errors.InvalidInput):
        append(table_of(kind), rows_of(value))


def test_event_times_of_dicts_may_be_text():
    table = table_of(pa.int8())
    append(table, [{"at": "2013-01-07T05:00:00Z", "V": 1}])  # capitals do not matter
    assert scan(table).to_table().to_pylist() == [
        {"at": dt.datetime(2013, 1, 7, 5, tzinfo=dt.UTC), "v": 1}
    ]


def test_a_type_is_widened_only_for_dicts_that_do_not_fit_it():
    table = table_of(pa.struct([("a", pa.int8())]))
    append(table, rows_of({"a": 1, "b": 2}), evolve=True)
    assert table.session.head().schema.field("v").type == pa.struct(
        [("a", pa.int8()), ("b", pa.int64())]
    )
    append(table, rows_of({"a": 300, "b": 2}), evolve=True)
    assert table.session.head().schema.field("v").type.field("a").type == pa.int64()
    assert stored_in(table) == [{"a": 1, "b": 2}, {"a": 300, "b": 2}]


def test_dicts_for_a_column_that_the_table_lacks_have_the_same_keys():
    table = table_of(pa.int8())
    rows = [{"at": TIME, "v": 1, "w": {"a": 1}}, {"at": TIME, "v": 1, "w": {"b": 1}}]
    with pytest.raises(errors.InvalidInput, match="row 0 of the list has no field 'b' of column"):
        append(table, rows, evolve=True)


def test_dicts_fit_the_types_that_the_table_has_now():
    """Others widened a column, and added one, since the handle looked."""
    table = table_of(pa.int8())
    behind = reopen(table.store)
    table.widen_column("v", pa.int16())
    table.add_columns([pa.field("w", pa.int8())])
    append(behind, rows_of(300))
    append(reopen(table.store, 2000), [{"at": TIME, "v": 1, "w": 2}])
    other = reopen(table.store, 3000)
    table.add_columns([pa.field("x", pa.int8())])
    append(other, [{"at": TIME, "v": 1, "w": 2, "x": 3}])
    assert stored_in(table) == [300, 1, 1]


def test_every_writer_of_rows_takes_dicts_in_the_types_of_the_table():
    fields = [("at", pa.timestamp("us", "UTC")), ("id", pa.int32()), ("v", pa.float32())]
    plain = create(schema=pa.schema(fields))
    keyed = create(schema=pa.schema(fields), granularity="all", key=["id"])
    row = {"at": TIME, "id": 1, "v": 1}
    append(plain, [row])
    merge(plain, [row | {"v": 2}, row | {"id": 2}], "id")
    assert sorted(scan(plain, ["id", "v"]).to_table()["v"].to_pylist()) == [1.0, 2.0]
    overwrite(plain, [row | {"id": 2, "v": 4}], where="id = 2")
    assert sorted(scan(plain, ["id", "v"]).to_table()["v"].to_pylist()) == [2.0, 4.0]
    overwrite(plain, [row], start="1970-01-01", end="1970-01-02")
    assert scan(plain).count() == 1
    upsert(keyed, [row, row | {"id": 2}])
    delete(keyed, keys=[{"id": 1}])
    assert scan(keyed).to_table()["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("kind", "value", "advice"),
    [
        (pa.date32(), "1970-01-02", "pass a datetime.date"),
        (pa.date32(), dt.datetime(1970, 1, 2), "pass a datetime.date"),
        (pa.decimal128(5, 2), "1.50", "pass a decimal.Decimal or an int"),
        (pa.decimal128(5, 2), 1.5, "pass a decimal.Decimal or an int"),
        (pa.timestamp("us"), "1970-01-02", "pass a datetime.datetime or a datetime.date"),
        (pa.int8(), "1", "pass an int"),
    ],
    ids=str,
)
def test_a_value_of_another_class_is_refused_with_the_one_to_pass(kind, value, advice):
    table = create(schema=pa.schema([("at", pa.timestamp("us", "UTC")), ("x", kind)]))
    with pytest.raises(errors.InvalidInput, match=f"does not fit .*: {advice}"):
        append(table, [{"at": TIME, "x": value}])
