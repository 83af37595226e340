"""What Spark writes to files by default and otherwise: appended with every value, or refused."""

from datetime import UTC, date, datetime

import pytest

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.model.schema_text import parse_schema
from eventlog.readers import scan
from eventlog.writers import append
from eventlog.writers.files import open_rows

COLUMNS = "at:timestamp, id:int64, s:string, f:float64, d:date, st:struct<x:int32>, l:list<string>"
FLAT = "at, id, s, f, d"
TEXTS = [None, "", "a/b=c%25 é", 'a "b", c', "NA"]


@pytest.fixture(scope="module")
def frame(spark):
    return spark.sql(
        """SELECT timestamp_millis(1357534800000 + id) AS at, id,
        element_at(array(NULL, '', 'a/b=c%25 é', 'a "b", c', 'NA'), int(id) + 1) AS s,
        element_at(array(double('NaN'), double('-Infinity'), -0.0d, NULL, 1e300), int(id) + 1) AS f,
        date_add(date'1960-01-01', int(id)) AS d,
        IF(id = 1, NULL, named_struct('x', int(id))) AS st, array('a', NULL, s) AS l
        FROM range(5)"""
    ).repartition(3)


def appended(folder, path):
    table = Table.create(folder / "t", parse_schema(COLUMNS), time_column="at")
    append(table, open_rows([str(path)], table.session.head().schema, "at").reader)
    return {row["id"]: row for row in scan(table).to_table().to_pylist()}


def check(found, *, texts=TEXTS, nested=True):
    assert sorted(found) == [0, 1, 2, 3, 4]
    for i, row in found.items():
        assert row["at"] == datetime(2013, 1, 7, 5, 0, 0, 1000 * i, tzinfo=UTC)
        assert row["s"] == texts[i]
        assert row["d"] == date(1960, 1, 1 + i)
        if nested:
            assert row["st"] == (None if i == 1 else {"x": i})
            assert row["l"] == ["a", None, texts[i]]
    floats = [str(found[i]["f"]) for i in range(5)]
    assert floats == ["nan", "-inf", "-0.0", "None", "1e+300"]


@pytest.mark.sample(0, verify=1)
@pytest.mark.hazard("W3")
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_parquet_with_columns_in_paths(spark, frame, tmp_path, kind):
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        frame.write.partitionBy("s", "d").parquet(str(tmp_path / "in"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    # Spark writes an empty text in a path as it writes null.
    found = appended(tmp_path, tmp_path / "in")
    assert {i: row["l"][2] for i, row in found.items()} == dict(enumerate(TEXTS))
    texts = [None, None, *TEXTS[2:]]
    check(found, texts=texts, nested=False)


def test_json_lines(frame, tmp_path):
    frame.write.option("ignoreNullFields", "false").option("compression", "gzip").json(
        str(tmp_path / "in")
    )
    check(appended(tmp_path, tmp_path / "in"))


def test_csv_with_doubled_quotes_is_read_and_with_backslashes_refused(frame, tmp_path):
    flat = frame.select(*FLAT.split(", ")).coalesce(2)
    flat.write.option("header", True).csv(str(tmp_path / "backslash"))
    with pytest.raises(InvalidInput, match="option"):
        appended(tmp_path / "1", tmp_path / "backslash")
    flat.write.option("header", True).option("escape", '"').csv(str(tmp_path / "doubled"))
    check(appended(tmp_path / "2", tmp_path / "doubled"), nested=False)


def test_days_of_another_calendar_are_refused(spark, tmp_path):
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        days = spark.sql("SELECT timestamp'2013-01-07' AS at, 1L AS id, date'1500-01-01' AS d")
        days.write.parquet(str(tmp_path / "in"))
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    with pytest.raises(InvalidInput, match="calendar"):
        appended(tmp_path, tmp_path / "in")
