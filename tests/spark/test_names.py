"""Any name that a table accepts works through Spark too: its writer and both of its engines."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.column_names import NAMES, SCHEMA, quoted, rows

import eventlog.readers.spark
from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.writers import append
from eventlog.writers.spark import append as append_frame


@pytest.fixture(scope="module")
def uri(spark, tmp_path_factory):
    """A table that Spark wrote, from one that Python wrote: three rows a day, two segments each."""
    folder = tmp_path_factory.mktemp("names")
    source = Table.create((folder / "python").as_uri(), SCHEMA, time_column="at")
    for day in (1, 2):
        append(source, rows(day))
    frame = eventlog.readers.spark.read(spark, source.uri, engine="arrow")
    target = (folder / "spark").as_uri()
    append_frame(target, frame, time_column="at", order_by=["a,b", ".x"])
    wanted = [*rows(1).to_pylist(), *rows(2).to_pylist()]
    assert scan(Table.open(target)).to_table().sort_by("x").to_pylist() == wanted
    return target


@pytest.mark.hazard("W8")
@pytest.mark.parametrize("engine", [pytest.param("arrow", marks=pytest.mark.long), "jvm"])
def test_w8_all_names_are_read_and_filtered_by_both_engines(spark, uri, engine):
    frame = eventlog.readers.spark.read(spark, uri, engine=engine)
    assert frame.columns == SCHEMA.names
    found = sorted(row.asDict(recursive=True)["x"] for row in frame.collect())
    assert found == [10, 11, 12, 20, 21, 22]
    for name in (".x", "b`b", "_metadata", "__filename"):
        wanted = rows(1).column(name)[1].as_py()
        where = f"{quoted(name)} = {wanted}"
        rows_found = eventlog.readers.spark.read(
            spark, uri, columns=[name], where=where, engine=engine
        )
        assert [tuple(row) for row in rows_found.collect()] == [(wanted,)]


@pytest.mark.long
@pytest.mark.hazard("W8")
def test_w8_every_name_alone(spark, uri):
    for engine in ("arrow", "jvm"):
        condition = " AND ".join(f"{quoted(n)} = {rows(2).column(n)[2].as_py()}" for n in NAMES)
        frame = eventlog.readers.spark.read(spark, uri, where=condition, engine=engine)
        (row,) = frame.collect()
        assert list(row)[3:] == [column[2].as_py() for column in rows(2).columns[3:]]
    expression = pc.field("a.b") == rows(1).column("a.b")[0]
    assert eventlog.readers.spark.read(spark, uri, where=expression, engine="arrow").count() == 1


def struct_table(path, fields):
    """A table of one row whose struct has these fields, in this order."""
    at = SCHEMA.field("at")
    schema = pa.schema([at, ("st", pa.struct([(name, pa.float64()) for name in fields]))])
    table = Table.create(path.as_uri(), schema, time_column="at")
    row = {"at": 0, "st": {name: n + 0.5 for n, name in enumerate(fields)}}
    append(table, pa.Table.from_pylist([row], schema=schema))
    return table.uri


def test_a_struct_may_have_many_fields(spark, tmp_path):
    uri = struct_table(tmp_path / "many", [f"f{n}" for n in range(40)])
    for engine in ("arrow", "jvm"):
        frame = eventlog.readers.spark.read(spark, uri, engine=engine)
        (row,) = frame.where("st.f39 = 39.5").collect()
        assert list(row.st) == [n + 0.5 for n in range(40)]


@pytest.mark.hazard("W8")
@pytest.mark.parametrize("two", ["\u00b5\u03bc", "\u03c2\u03c3", "S\u017f", "I\u0131"], ids=ascii)
def test_w8_fields_that_spark_takes_for_one(spark, tmp_path, two):
    uri = struct_table(tmp_path / "two", [*two])
    (row,) = eventlog.readers.spark.read(spark, uri).collect()
    assert list(row.st) == [0.5, 1.5]
    with pytest.raises(InvalidInput, match="which Spark treats as one"):
        eventlog.readers.spark.read(spark, uri, engine="jvm")
    try:
        spark.conf.set("spark.sql.caseSensitive", "true")
        (row,) = eventlog.readers.spark.read(spark, uri, engine="jvm").collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert list(row.st) == [0.5, 1.5]
