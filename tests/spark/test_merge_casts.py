"""A merge from Spark casts what a merge from Python casts, and refuses what that refuses.

The table of types calls the functions that Spark's tasks call, without Java.
"""

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from support.builders import create

from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.staging.encoding import Recipe
from eventlog.store.local import LocalStore
from eventlog.writers import append, merge
from eventlog.writers.changing.joining import check_source
from eventlog.writers.spark import merge as merge_frame
from eventlog.writers.spark.dataframe_merge import ConformTask, StageTask, conformed
from eventlog.writers.spark.jobs import adds_of

UTC = pa.timestamp("us", "UTC")
NOON = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
D = decimal.Decimal
NAN = float("nan")

VALUES = {
    "bool": (pa.bool_(), [True]),
    "int8": (pa.int8(), [7, -7]),
    "int16": (pa.int16(), [7, -300]),
    "int32": (pa.int32(), [7, -7, 2**24 + 1]),
    "int64": (pa.int64(), [7, -7, 2**53 + 1]),
    "float": (pa.float32(), [1.0, 1.5]),
    "double": (pa.float64(), [1.0, 1.5, 1e300, NAN]),
    "decimal(5,1)": (pa.decimal128(5, 1), [D("1.0"), D("1.5")]),
    "decimal(20,3)": (pa.decimal128(20, 3), [D("1.000"), D("12345678.125")]),
    "string": (pa.string(), ["1", "x", "2013-01-07"]),
    "binary": (pa.binary(), [b"1", b"\xff"]),
    "date": (pa.date32(), [dt.date(2013, 1, 7), dt.date(1, 1, 1)]),
    "timestamp": (UTC, [NOON]),
    "timestamp without zone": (pa.timestamp("us"), [NAIVE]),
    "list of long": (pa.list_(pa.int64()), [[1, 2**40, None]]),
    "struct of string": (pa.struct([("a", pa.string())]), [{"a": "1"}, {"a": None}]),
    "struct of int": (pa.struct([("a", pa.int32())]), [{"a": 1}]),
    "map of int": (pa.map_(pa.string(), pa.int32()), [[("k", 1)]]),
}
COLUMNS = {
    **{name: kind for name, (kind, _) in VALUES.items()},
    "struct of two": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "map of long": pa.map_(pa.string(), pa.int64()),
    "list of int": pa.list_(pa.int32()),
}


def target(*columns, store=None):
    """A table with these columns beside a row's time and id; one row has nulls in them."""
    table = create(store, schema=pa.schema([("at", UTC), ("id", pa.int64()), *columns]))
    append(table, pa.table({"at": pa.array([NOON], UTC), "id": [1]}))
    return table


def from_python(table, source):
    merge(table, source, "id")


def from_spark(table, source):
    """Insert the row of the source as the tasks of a merge from Spark do."""
    head = table.session.head()
    check_source(source.schema, head, ["id"], inserts=True)
    wanted = conformed(source.schema, head.schema)
    rows = ConformTask(wanted, head.layout.time_column).rows(iter(source.to_batches()))
    recipe = Recipe.of(head, fills=True)
    staged = StageTask(table, recipe, wanted, 2**26).rows(rows)
    parts = [part for batch in staged for part in batch.column("adds").to_pylist()]
    table.session.log.staged.vouch(adds := adds_of(table, recipe, parts, 2**26))
    table.commit(table.transaction("merge", adds))


def outcome(write, kind, source):
    """What the column has after a write of a row, or why it was refused."""
    table = target(("v", kind))
    try:
        write(table, source)
    except InvalidInput as error:
        return error.message
    return repr(scan(table, ["v"], "id = 2").to_table()["v"].to_pylist())


@pytest.mark.sample(2, verify=3)
@pytest.mark.hazard("W3")
@pytest.mark.parametrize("given", VALUES)
def test_values_are_cast_or_refused_as_from_python(given):
    kind, values = VALUES[given]
    differing = {}
    for name, wanted in COLUMNS.items():
        for value in values:
            schema = pa.schema([("at", UTC), ("id", pa.int64()), ("v", kind)])
            source = pa.table([[NOON], [2], pa.array([value], kind)], schema=schema)
            answers = [outcome(write, wanted, source) for write in (from_python, from_spark)]
            if answers[0] != answers[1]:
                differing[name, repr(value)] = answers
    assert differing == {}


@pytest.mark.everyday
@pytest.mark.hazard("W3")
@pytest.mark.parametrize("write", [from_python, from_spark])
def test_a_null_in_a_required_column_is_refused_as_from_python(write):
    required = pa.field("v", pa.int64(), nullable=False)
    table = create(schema=pa.schema([("at", UTC), ("id", pa.int64()), required]))
    source = pa.table({"at": pa.array([NOON], UTC), "id": [2], "v": pa.array([None], pa.int64())})
    with pytest.raises(InvalidInput, match="column 'v': 1 values are null, for example row at="):
        write(table, source)


# Values of Spark, and the same ones of Arrow.
GIVEN = {
    "string": ("'1'", pa.array(["1"])),
    "double": ("1.5d", pa.array([1.5])),
    "long": ("1099511627776L", pa.array([2**40])),
    "byte": ("7Y", pa.array([7], pa.int8())),
    "real": ("1.5f", pa.array([1.5], pa.float32())),
    "digits": ("1.5", pa.array([D("1.5")], pa.decimal128(2, 1))),
    "day": ("date'2013-01-07'", pa.array([NAIVE.date()])),
    "time": ("timestamp_seconds(0)", pa.array([0], UTC)),
    "list": ("array(1, null)", pa.array([[1, None]], pa.list_(pa.int32()))),
    "pair": ("named_struct('a', 1)", pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))),
}


@pytest.mark.everyday
@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("string", pa.int64(), "column 'v' has type string"),
        ("double", pa.int64(), "column 'v' has type double"),
        ("long", pa.int32(), "column 'v' has type int64"),
        ("time", pa.date32(), "column 'v' has type timestamp"),
    ],
)
def test_a_frame_is_refused_as_rows_are_from_python(given, kind, message, spark, tmp_path):
    text, values = GIVEN[given]
    table = target(("v", kind), store=LocalStore(tmp_path))
    with pytest.raises(InvalidInput, match=message):
        merge(table, pa.table({"at": pa.array([NOON], UTC), "id": [1], "v": values}), "id")
    frame = spark.sql(f"select timestamp_seconds(0) at, 1L id, {text} v")
    with pytest.raises(Exception, match=message):
        merge_frame(table.uri, frame, "id")
    assert table.refresh().version == 1


@pytest.mark.everyday
@pytest.mark.hazard("W3")
def test_a_frame_is_cast_as_rows_are_from_python(spark, tmp_path):
    kinds = {
        "byte": pa.int16(),
        "long": pa.int64(),
        "real": pa.float64(),
        "digits": pa.decimal128(20, 3),
        "day": pa.timestamp("us"),
        "list": pa.list_(pa.int64()),
        "pair": pa.struct([("a", pa.int64())]),
    }
    tables = [
        target(*kinds.items(), store=LocalStore(tmp_path / way)) for way in ("arrow", "spark")
    ]
    given = {name: pa.concat_arrays([GIVEN[name][1]] * 2) for name in kinds}
    merge(tables[0], pa.table({"at": pa.array([NOON] * 2, UTC), "id": [1, 2], **given}), "id")
    texts = ", ".join(f"{GIVEN[name][0]} {name}" for name in kinds)
    seconds = int(NOON.timestamp())
    frame = spark.sql(f"select timestamp_seconds({seconds}) at, id, {texts} from range(1, 3)")
    merge_frame(tables[1].uri, frame, "id")
    arrow, frame = (scan(table.uri).to_table().sort_by("id") for table in tables)
    assert frame.to_pylist() == arrow.to_pylist()
    assert frame.column("byte").to_pylist() == [7, 7]
