"""`delete`, `update`, `merge` and `overwrite` of rows from Spark, in tables without a key."""

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.readers import changes, scan
from eventlog.readers.spark import choose_engine, read
from eventlog.writers import append as add_rows
from eventlog.writers.spark import append, delete, merge, overwrite, update


def names_of(rows):
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def wanted(n):
    return {i: f"name-{i}" for i in range(n)}


@pytest.fixture
def table(events, local_uri):
    """The root of a table of 40 rows in several days, in two segments each."""
    append(local_uri, events(20), time_column="ts", properties={"inline_bytes": "0"})
    append(local_uri, events(20, first=20))
    return local_uri


@pytest.mark.everyday
def test_rows_are_deleted_by_a_predicate(table, rows_of, spark):
    tried = delete(table, spark, where="id % 7 = 3", dry_run=True)
    assert (tried, tried.deleted) == (2, 6)
    change = delete(table, spark, where="id % 7 = 3")
    assert (change, change.deleted, change.dropped) == (3, 6, 0)
    left = {i: name for i, name in wanted(40).items() if i % 7 != 3}
    assert names_of(rows_of(table)) == left
    # The JVM's reader does not know deletion vectors.
    assert choose_engine(spark, table).engine == "arrow"
    with pytest.raises(InvalidInput, match="deletion vectors"):
        read(spark, table, engine="jvm")
    assert read(spark, table).count() == len(left)
    assert read(spark, table, version=2).count() == 40


def test_a_delete_of_whole_segments_reads_none(table, spark):
    change = delete(table, spark, where="ts < '2013-01-08'")
    assert (change.dropped, change.changed, change.bytes) == (1, 0, 0)


@pytest.mark.everyday
def test_rows_get_new_values(table, rows_of, spark):
    change = update(table, spark, {"name": "concat(name, '!')"}, "id >= 15 and id < 25")
    assert (change.deleted, change.added) == (10, 10)
    new = {i: f"{name}!" if 15 <= i < 25 else name for i, name in wanted(40).items()}
    assert names_of(rows_of(table)) == new
    kinds = changes(Table.open(table), 2).to_table().column("_change").to_pylist()
    assert sorted(set(kinds)) == ["update_after", "update_before"]
    assert len(kinds) == 20


def test_a_unit_of_work_changes_rows_once(table, rows_of, spark):
    unit = {"app_id": "cleanup", "app_seq": 1}
    first = update(table, spark, {"name": "concat(name, '!')"}, "id < 3", **unit)
    assert update(table, spark, {"name": "concat(name, '!')"}, "id < 3", **unit) == first
    assert names_of(rows_of(table))[0] == "name-0!"


@pytest.mark.everyday
def test_a_frame_is_merged_by_a_column(events, table, rows_of, spark):
    source = events(5, first=38).selectExpr("id", "ts", "concat('new-', id) as name")
    change = merge(table, source, "id")
    assert (change.deleted, change.added) == (2, 5)
    merged = wanted(38) | {i: f"new-{i}" for i in range(38, 43)}
    assert names_of(rows_of(table)) == merged
    change = merge(
        table, source, "id",
        when_matched={"name": "concat(name, '/', source.name)"}, when_not_matched="ignore",
    )  # fmt: skip
    assert change.added == 5
    merged |= {i: f"new-{i}/new-{i}" for i in range(38, 43)}
    assert names_of(rows_of(table)) == merged
    merge(table, source, ["id"], when_matched="delete", when_not_matched="ignore")
    assert names_of(rows_of(table)) == wanted(38)


def test_a_merge_can_delete_what_the_source_lacks(events, table, rows_of):
    merge(table, events(3, first=39), "id", when_not_matched_by_source="delete")
    assert names_of(rows_of(table)) == {i: f"name-{i}" for i in (39, 40, 41)}


def test_two_rows_of_a_source_for_one_row_are_refused(events, table, rows_of):
    twice = events(2, first=10).union(events(1, first=11))
    with pytest.raises(InvalidInput, match=r"several rows of .* with id = 11"):
        merge(table, twice, "id")
    assert names_of(rows_of(table)) == wanted(40)


@pytest.mark.everyday
def test_rows_that_a_predicate_selects_are_overwritten(events, table, rows_of, save):
    save(events(2, first=12), table, "overwrite", replaceWhere="id >= 10 and id < 30")
    left = {i: name for i, name in wanted(40).items() if not 10 <= i < 30 or i in {12, 13}}
    assert names_of(rows_of(table)) == left


@pytest.mark.data_source
def test_sql_deletes_rows_by_an_overwrite_without_rows(table, rows_of, spark):
    options = f"path '{table}', replaceWhere \"id >= 10 AND name != 'name-12'\""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW doomed USING eventlog OPTIONS ({options})")
    spark.sql("INSERT OVERWRITE doomed SELECT * FROM doomed WHERE false")
    left = {i: name for i, name in wanted(40).items() if i < 10 or i == 12}
    assert names_of(rows_of(table)) == left


def test_rows_that_do_not_pass_the_predicate_are_refused(events, table, rows_of):
    with pytest.raises(PythonException, match="do not pass the predicate"):
        overwrite(table, events(2, first=30), where="id < 31")
    assert names_of(rows_of(table)) == wanted(40)


def test_a_frame_in_the_place_of_a_session_is_refused(events, table):
    with pytest.raises(InvalidInput, match="a SparkSession was expected, not DataFrame"):
        delete(table, events(1), where="id = 1")


@pytest.mark.everyday
@pytest.mark.hazard("W15")
def test_structs_of_a_frame_that_lack_a_field_erase_no_value(spark, tmp_path):
    kinds = [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", ADDRESS)]
    rows = pa.table([[1], [0], [FULL]], schema=pa.schema(kinds))
    plain = Table.create(tmp_path / "plain", rows.schema, time_column="at")
    keyed = Table.create(
        tmp_path / "keyed", rows.schema, time_column="at", key="id", properties={"merge": "partial"}
    )
    for table in (plain, keyed):
        add_rows(table, rows)
    narrow = spark.sql("select 1L id, timestamp_seconds(0) at, named_struct('city', 'b') s")
    lacking = "field 'street' of column 's' is missing"
    for write in (
        lambda **more: overwrite(plain.uri, narrow, **more),
        lambda **more: overwrite(plain.uri, narrow, where="id = 1", **more),
        lambda **more: append(keyed.uri, narrow, **more),
    ):
        with pytest.raises(InvalidInput, match=lacking):
            write()
    assert structs_of(plain) == structs_of(keyed) == [FULL]
    merge(plain.uri, narrow, "id")
    assert structs_of(plain) == [{"city": "b", "street": "x"}]
    overwrite(plain.uri, narrow, missing="null")
    append(keyed.uri, narrow, missing="null")
    assert structs_of(plain) == structs_of(keyed) == [{"city": "b", "street": None}]


ADDRESS = pa.struct([("city", pa.string()), ("street", pa.string())])
FULL = {"city": "a", "street": "x"}


def structs_of(table):
    return scan(table.uri, ["s"]).to_table()["s"].to_pylist()
