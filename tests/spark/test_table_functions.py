"""The functions of SQL: a table's history, segments and changes are those of Python."""

import datetime as dt
from dataclasses import asdict, fields

import pyarrow as pa
import pytest
from msgspec import UNSET
from pyspark.errors import AnalysisException

from eventlog import Segment, Table, readers
from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.log.history import HistoryEntry
from eventlog.readers.spark import activate, read_changes, table_functions
from eventlog.writers import append, delete, upsert

START = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("small", pa.int8()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.map_(pa.string(), pa.list_(pa.timestamp("us", tz="UTC")))),
        ("place", pa.struct([("x", pa.float32()), ("on", pa.date32())])),
        ("raw", pa.binary()),
    ]
)
ANALYSED = pytest.mark.data_source  # Spark analyses calls since it has data sources


def rows(ids):
    found = [
        {
            "id": n,
            "ts": START + dt.timedelta(hours=n),
            "small": n % 5,
            "price": n,
            "tags": [("a", [START, None])] if n % 2 else None,
            "place": {"x": 0.5, "on": START.date()},
            "raw": bytes([n, 0]),
        }
        for n in ids
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """A table of four versions, with deleted rows, and columns of every kind."""
    made = Table.create((tmp_path / "table").as_uri(), SCHEMA, time_column="ts")
    append(made, rows(range(40)))
    delete(made, where="id = 3")
    append(made, rows(range(40, 45)))
    return made


@pytest.fixture
def ask(spark):
    """A function: the rows of a query, as dicts with instants in UTC, in its order."""
    activate(spark)

    def run(query, **named):
        return [row.asDict(recursive=True) for row in spark.sql(query, args=named).collect()]

    return run


def in_utc(row):
    """The row as PySpark collects it in a process whose zone is UTC."""
    return {name: bare(value) for name, value in row.items()}


def bare(value):
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, bytearray):  # of Spark before 4.1
        return bytes(value)
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items()}
    return [bare(one) for one in value] if isinstance(value, list) else value


def test_a_history_has_the_entries_of_the_log(ask, table):
    wanted = [in_utc(asdict(entry)) for entry in table.history()]
    assert ask("SELECT * FROM eventlog_history(:uri)", uri=table.uri) == wanted
    assert len(wanted) == 4
    part = ask("SELECT version FROM eventlog_history(:uri, 2, 2)", uri=table.uri)
    assert part == [{"version": 2}, {"version": 1}]
    assert table_functions.HISTORY.names == [field.name for field in fields(HistoryEntry)]


def test_segments_are_those_of_a_version(ask, table):
    table.tag("first", 1)
    for version in (None, 1, "first"):
        wanted = table.snapshot(version).segments()
        found = ask(
            "SELECT * FROM eventlog_segments(:uri, :version)", uri=table.uri, version=version
        )
        assert [row["id"] for row in found] == [one.id for one in wanted]
        for row, one in zip(found, wanted, strict=True):
            known = set(Segment.__struct_fields__) - {"slice", "inline"} & row.keys()
            assert {name: row[name] for name in known & row.keys()} == {
                name: getattr(one, name) for name in known & row.keys()
            }
            assert (row["live_rows"], row["slice"]) == (one.live_rows, None)
            assert row["inline"] == (None if one.inline is UNSET else one.inline)
        assert any(row["inline"] for row in found)
    assert {row["uri"] for row in found} == {file.uri for file in readers.files(table, version=1)}


def test_segments_of_a_keyed_table_have_their_slices(ask, tmp_path):
    table = Table.create(
        (tmp_path / "keyed").as_uri(), SCHEMA, time_column="ts", key="id", buckets=4
    )
    upsert(table, rows(range(9)), missing="null")
    found = ask("SELECT * FROM eventlog_segments(:uri)", uri=table.uri)
    (one,) = table.refresh().segments()
    wanted = {name: getattr(one.slice, name) for name in found[0]["slice"]} | {"splits": None}
    assert [row["slice"] for row in found] == [wanted]
    assert wanted["kind"] == "log"


def test_changes_in_parts_are_those_of_python(spark, table):
    for start, end, columns, where in (
        (0, None, None, None),
        (1, 2, None, None),
        (3, None, ["id", "tags"], None),
        (0, None, ["id"], "id < 4"),
    ):
        wanted = readers.changes(table, start, end, columns, where).to_table()
        frame = read_changes(spark, table.uri, start, end, columns, where)
        assert frame.columns == wanted.column_names
        found = [in_utc(row.asDict(recursive=True)) for row in frame.collect()]
        wanted = [in_utc(row) for row in wanted.to_pylist(maps_as_pydicts="strict")]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert len(found) == 5  # four inserted, one of them deleted


def test_changes_that_there_cannot_be_are_refused_without_a_task(spark, table):
    with pytest.raises(InvalidInput, match="the end is before the start"):
        read_changes(spark, table.uri, 3, 2)
    with pytest.raises(VersionNotFound):
        read_changes(spark, table.uri, 0, 9)
    with pytest.raises(InvalidInput, match="od"):
        read_changes(spark, table.uri, 0, columns=["od"])


@ANALYSED
def test_changes_are_those_of_python(ask, table):
    for call, start, end, columns, where in (
        ("(:uri, 0)", 0, None, None, None),
        ("(:uri, 1, 2)", 1, 2, None, None),
        ("(:uri, 3)", 3, None, None, None),
        ("(uri => :uri, start => 0, end => 2, columns => 'id, tags')", 0, 2, ["id", "tags"], None),
        ("(:uri, 0, where => 'id < 4')", 0, None, None, "id < 4"),
    ):
        wanted = readers.changes(table, start, end, columns, where).to_table()
        found = ask(f"SELECT * FROM eventlog_changes{call}", uri=table.uri)
        assert found == [in_utc(row) for row in wanted.to_pylist(maps_as_pydicts="strict")], call
    assert len(found) == 5  # four inserted, one of them deleted


@ANALYSED
def test_a_query_keeps_the_version_that_it_was_analysed_at(spark, table):
    activate(spark)
    frames = [
        spark.sql(f"SELECT * FROM {call}", args={"uri": table.uri})
        for call in (
            "eventlog_history(:uri)",
            "eventlog_segments(:uri)",
            "eventlog_changes(:uri, 0)",
        )
    ]
    counts = [frame.count() for frame in frames]
    append(table, rows([90]))
    assert [frame.count() for frame in frames] == counts
    assert counts[0] == 4


@ANALYSED
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("eventlog_history('{uri}/absent')", "TableNotFound"),
        ("eventlog_history('{uri}', 9)", "VersionNotFound"),
        ("eventlog_history('{uri}', limit => -1)", "InvalidInput: limit"),
        ("eventlog_history(7)", "must be the root of a table"),
        ("eventlog_history('{uri}', storage => map('regoin', 'x'))", "'regoin' is unknown"),
        ("eventlog_segments('{uri}', 9)", "VersionNotFound"),
        ("eventlog_segments('{uri}', 'x')", "no tag is called 'x'"),
        ("eventlog_changes('{uri}', 3, 2)", "the end is before the start"),
        ("eventlog_changes('{uri}', 0, 9)", "VersionNotFound"),
        ("eventlog_changes('{uri}', 0, columns => 'od')", "'od'"),
        ("eventlog_changes('{uri}', 0, columns => 7)", "columns must be a,b"),
        ("eventlog_changes('{uri}', 0, where => 'od > 1')", "od"),
        ("eventlog_changes('{uri}', 0, where => 7)", "InvalidInput"),
    ],
)
def test_a_wrong_argument_is_an_error_of_the_analysis(spark, table, call, message):
    activate(spark)
    with pytest.raises(AnalysisException, match=message):
        spark.sql("SELECT * FROM " + call.format(uri=table.uri))


def test_a_history_may_be_asked_for_each_row(ask, spark, table, tmp_path):
    other = Table.create((tmp_path / "other").as_uri(), SCHEMA, time_column="ts")
    spark.createDataFrame([(table.uri,), (other.uri,)], "place string").createOrReplaceTempView(
        "places"
    )
    found = ask(
        "SELECT place, count(*) AS n FROM places, LATERAL eventlog_history(place) GROUP BY place"
    )
    assert {row["place"]: row["n"] for row in found} == {table.uri: 4, other.uri: 1}


@ANALYSED
def test_changes_take_no_columns_of_rows(spark, table):
    activate(spark)
    spark.createDataFrame([(table.uri,)], "place string").createOrReplaceTempView("places")
    with pytest.raises(AnalysisException, match="must be constants"):
        spark.sql("SELECT * FROM places, LATERAL eventlog_changes(place, 0)")


def test_storage_options_lead_to_the_store(ask, s3, bucket):
    storage = s3.storage_options()
    table = Table.create(f"s3://{bucket}/table", SCHEMA, storage_options=storage, time_column="ts")
    given = ", ".join(f"'{name}', '{value}'" for name, value in storage.items())
    query = f"SELECT version FROM eventlog_history('{table.uri}', NULL, NULL, map({given}))"
    assert ask(query) == [{"version": 0}]
