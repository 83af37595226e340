"""Spark's batch reader through Spark: exact rows of one version, pruned, from both engines."""

import functools
import shutil
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.functions import coalesce, lit, timestamp_micros, when
from support import predicates
from support.deleting import delete_rows

import eventlog.readers.spark
from eventlog import Table
from eventlog.errors import InvalidInput, TableNotFound
from eventlog.inline import inline_objects
from eventlog.readers import scan
from eventlog.readers.spark.workers import has_data_sources, keeps_rows_without_columns
from eventlog.writers import append, overwrite

if has_data_sources():
    from eventlog.readers.spark.source import load_schema, make_reader

IN_FILES = {"inline_bytes": "0"}
DAY = 10  # rows of `events` in one day
START_US = 1_357_516_800_000_000
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
)
TYPES = """
    cast(id as tinyint) i8, cast(id as smallint) i16, cast(id as int) i32, id,
    cast(id / 4 as float) f32, id / 8 f64, id % 2 = 0 b, concat('é-', id) s,
    cast(concat('b', id) as binary) bin, cast(id / 8 as decimal(20, 3)) dec,
    date_add(DATE '1969-12-30', cast(id as int)) d,
    timestamp_micros(id * 1000001) ts,
    cast(timestamp_micros(id * 1000001) as timestamp_ntz) ntz,
    array(id, null) arr, map(concat('k', id), id / 2) m,
    named_struct('x', id, 'y', array(named_struct('z', timestamp_micros(id)))) st
"""


@pytest.fixture
def table(local_uri):
    """A table with days of ten rows each, three to start with."""
    table = Table.create(local_uri, SCHEMA, time_column="ts")
    add(table, 30)
    return table


@pytest.fixture
def stored(local_uri):
    """The same with a file for each segment."""
    table = Table.create(local_uri, SCHEMA, time_column="ts", properties=IN_FILES)
    add(table, 30)
    return table


def add(table, count, first=0):
    append(table, rows(count, first))


def rows(count, first=0):
    numbers = range(first, first + count)
    times = [START_US + n * 8_640_000_000 for n in numbers]
    return pa.table([list(numbers), times, [f"name-{n}" for n in numbers]], schema=SCHEMA)


def ids(df):
    return sorted(row.id for row in df.select("id").collect())


@pytest.mark.sample(1, verify=1)
@pytest.mark.everyday
@pytest.mark.parametrize("engine", ["arrow", "jvm"])
def test_every_type_comes_back_as_it_went(spark, save, local_uri, engine):
    df = spark.sql(f"SELECT {TYPES} FROM range(0, 100, 1, 2)")
    nulls = [when(df.i8 != 50, df[name]).alias(name) for name in df.columns]
    df = df.select(*nulls).withColumn("ts", coalesce("ts", timestamp_micros(lit(7))))
    save(df, local_uri, **{"property.inline_bytes": "0"})
    found = eventlog.readers.spark.read(spark, local_uri, engine=engine)
    assert [f.dataType.simpleString() for f in found.schema] == [
        f.dataType.simpleString() for f in df.schema
    ]
    assert sorted(map(str, found.collect())) == sorted(map(str, df.collect()))


@pytest.mark.data_source
def test_where_and_columns_prune_tasks(stored, load):
    add(stored, 10, first=30)
    uri = stored.uri
    assert load(uri, targetBytes="1").rdd.getNumPartitions() == 4
    assert load(uri).rdd.getNumPartitions() == 1
    where = "ts >= '2013-01-08' AND id < 15"
    found = load(uri, where=where, targetBytes="1", columns="name,id")
    assert found.rdd.getNumPartitions() == 1
    assert found.columns == ["name", "id"]
    assert ids(found) == [10, 11, 12, 13, 14]
    assert load(uri, columns='["id"]').count() == 40


@pytest.mark.data_source
def test_rows_without_columns_are_counted_or_refused(table, load):
    if keeps_rows_without_columns():
        assert load(table.uri, columns="").count() == 30
        # Of two segments in one task the first has no row that passes.
        assert load(table.uri, columns="", where="id % 100 = 25").count() == 1
        assert load(table.uri, columns="", where="id % 100 = 99").count() == 0
    else:
        with pytest.raises(Exception, match="name a column, or use"):
            load(table.uri, columns="").count()


@pytest.mark.parametrize("engine", [pytest.param("arrow", marks=pytest.mark.long), "jvm"])
def test_a_frame_without_columns_has_as_many_rows(spark, table, engine):
    read = functools.partial(eventlog.readers.spark.read, spark, table.uri, [], engine=engine)
    assert (read().columns, read().count()) == ([], 30)
    assert read("id < 12").count() == 12
    assert read("id = 99").count() == 0


@pytest.mark.everyday
def test_versions_and_times(table, load):
    moment = table.session.head().timestamp.isoformat()
    add(table, 5, first=30)
    overwrite(table, rows(1, first=99))
    uri = table.uri
    assert ids(load(uri)) == [99]
    assert ids(load(uri, version="2")) == list(range(35))
    assert ids(load(uri, timestamp=moment)) == list(range(30))
    assert load(uri, version="0").count() == 0


def test_the_version_is_pinned_when_the_frame_is_made(spark, table, load):
    df = load(table.uri)
    overwrite(table, rows(1, first=99))
    table.add_columns(pa.schema([*SCHEMA, ("extra", pa.int32())]))
    assert ids(df) == list(range(30))
    assert df.columns == SCHEMA.names
    assert load(table.uri).columns == [*SCHEMA.names, "extra"]


def _replaced(uri, count, first):
    """Another table in the place of one that was removed."""
    shutil.rmtree(Table.open(uri).uri.removeprefix("file://"))
    add(Table.create(uri, SCHEMA, time_column="ts"), count, first)


@pytest.mark.data_source
def test_a_table_that_took_the_place_of_another_does_not_answer_for_it(spark, local_uri, load):
    table = Table.create(local_uri, SCHEMA, time_column="ts")
    add(table, 30, first=500)  # of no other table, whose rows Spark's workers may have read
    uri, known = table.uri, {"path": table.uri, "tableId": table.id}
    pinned, schema = load_schema({"path": uri})
    assert make_reader(known, schema, None).partitions()
    frames = [load(uri), eventlog.readers.spark.read(spark, uri, engine="arrow")]
    _replaced(uri, 30, first=1000)
    assert ids(load(uri)) == list(range(1000, 1030))
    for frame in frames:
        with pytest.raises(Exception, match=r"TableNotFound.*another one"):
            frame.collect()
    with pytest.raises(TableNotFound, match="another one"):
        make_reader(known, schema, None)
    reader = make_reader({"path": uri}, schema, pinned)
    inline_objects.forget_objects()  # this process has read the rows
    with pytest.raises(TableNotFound, match="another one"):
        list(reader.read(reader.partitions()[0]))
    with pytest.raises(TableNotFound, match="another one"):
        load_schema(known)


@pytest.mark.data_source
def test_nor_one_that_is_younger(table):
    add(table, 30, first=30)
    pinned, schema = load_schema({"path": table.uri})
    _replaced(table.uri, 30, first=1000)
    reader = make_reader({"path": table.uri}, schema, pinned)
    inline_objects.forget_objects()
    with pytest.raises(TableNotFound, match="another one"):
        list(reader.read(reader.partitions()[0]))


@pytest.mark.parametrize("engine", ["arrow", "jvm"])
def test_segments_from_before_a_column_read_as_null(spark, table, engine):
    table.add_columns(pa.schema([*SCHEMA, ("extra", pa.decimal128(10, 2))]))
    append(table, rows(1, first=99).append_column("extra", pa.array([7], pa.decimal128(10, 2))))
    found = eventlog.readers.spark.read(spark, table.uri, where="id >= 29", engine=engine).collect()
    assert sorted((row.id, row.extra) for row in found) == [(29, None), (99, 7)]


def test_columns_that_were_changed_are_found_by_id(spark, stored):
    stored.rename_column("name", "title")
    stored.add_columns([pa.field("name", pa.int64())], {"name": 7})
    append(stored, pa.table({"id": [99], "ts": [START_US], "title": ["new"]}).cast(
        pa.schema([*list(SCHEMA)[:2], ("title", pa.string())])
    ))  # fmt: skip
    read = functools.partial(eventlog.readers.spark.read, spark, stored.uri)
    for where in ("id = 3 or id = 99", "name = 7 and (title = 'new' or title = 'name-3')"):
        found = sorted((row.id, row.title, row.name) for row in read(where=where).collect())
        assert found == [(3, "name-3", 7), (99, "new", 7)]
    with pytest.raises(InvalidInput, match="finds columns by name, and some were renamed"):
        read(engine="jvm")
    stored.drop_columns(["name"])
    assert read().columns == ["id", "ts", "title"]
    assert read(version=1).columns == SCHEMA.names
    assert read(version=1, engine="jvm").count() == 30
    stored.tag("first", 1)
    assert read(version="first").columns == SCHEMA.names


@pytest.mark.data_source
def test_a_schema_given_by_the_user_is_a_projection(spark, table):
    reader = spark.read.format("eventlog").schema("name STRING, id BIGINT")
    found = reader.load(table.uri).where("id = 3").collect()
    assert [tuple(row) for row in found] == [("name-3", 3)]
    with pytest.raises(Exception, match="column 'id' as int32, but the table has it as int64"):
        spark.read.format("eventlog").schema("id INT").load(table.uri).collect()


@pytest.mark.parametrize("engine", ["arrow", "jvm"])
def test_a_table_without_rows(spark, local_uri, engine):
    Table.create(local_uri, SCHEMA, time_column="ts")
    found = eventlog.readers.spark.read(spark, local_uri, engine=engine, where="id > 3")
    assert found.columns == SCHEMA.names
    assert found.collect() == []


@pytest.mark.parametrize("engine", [pytest.param("arrow", marks=pytest.mark.long), "jvm"])
def test_self_join_union_and_two_filters_of_one_frame(spark, table, engine):
    df = eventlog.readers.spark.read(spark, table.uri, engine=engine)
    assert df.where("id = 5").count() == 1
    assert df.count() == 30
    assert df.alias("a").join(df.alias("b"), "id").where("a.id < 12").count() == 12
    assert df.where("id < 5").union(df.where("id >= 25")).count() == 10


def test_the_jvm_engine_reads_no_table_with_deletion_vectors(spark, stored):
    first = stored.session.head().segments()[0]
    delete_rows(stored, {first.id: [0, 4]})
    choice = eventlog.readers.spark.choose_engine(spark, stored.uri)
    assert (choice.engine, "deletion vectors" in choice.reason) == ("arrow", True)
    with pytest.raises(InvalidInput, match="deletion vectors delete"):
        eventlog.readers.spark.read(spark, stored.uri, engine="jvm")
    left = ids(eventlog.readers.spark.read(spark, stored.uri))
    assert left == sorted(scan(stored).to_table().column("id").to_pylist())
    assert len(left) == 28
    before = eventlog.readers.spark.read(spark, stored.uri, version=1, engine="jvm")
    assert before.count() == 30


def test_a_lost_segment_is_never_skipped(spark, stored, load):
    segment = stored.session.head().segments()[1]
    store = stored.store
    key = next(o.key for o in store.list("data/") if segment.id in o.key)
    df = load(stored.uri)
    jvm = eventlog.readers.spark.read(spark, stored.uri, engine="jvm")
    store.delete([key])
    with pytest.raises(Exception, match=r"DataLoss.*the object is missing"):
        df.collect()
    with pytest.raises(Exception, match=r"does not exist|FILE_NOT_EXIST"):
        jvm.collect()


@pytest.mark.sample(0, verify=2)
@pytest.mark.hazard("W1", "W5")
@pytest.mark.parametrize(
    "where",
    [
        "ts >= '2013-01-08 12:00:00' AND ts < '2013-01-09T00:00+01:00'",
        "name IN ('name-3', 'name-17') OR id BETWEEN 20 AND 22.5",
        "NOT (name LIKE 'name-1%') AND name IS NOT NULL",
        "(id > 25) IS TRUE AND id <> 27",
        "id IN (1, 2.5, 3, NULL)",
        "ts = TIMESTAMP '2013-01-07 00:00:00' OR name = 'x''y'",
    ],
)
def test_both_engines_keep_the_same_rows_in_any_zone(spark, table, where):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        jvm, arrow = (
            ids(eventlog.readers.spark.read(spark, table.uri, where=where, engine=engine))
            for engine in ("jvm", "arrow")
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = scan(table, columns=["id"], where=where).to_table()
    assert jvm == arrow == sorted(expected.column("id").to_pylist())
    assert 0 < len(jvm) < 30


def test_floats_compare_alike(spark, local_uri):
    schema = pa.schema([("id", pa.int64()), ("ts", SCHEMA.field("ts").type), ("x", pa.float32())])
    values = [0.0, -0.0, float("nan"), float("inf"), None, 1.1, -1.0, -1.0]
    times = [START_US] * 7 + [START_US + predicates.DAY_US]
    table = Table.create(local_uri, schema, time_column="ts")
    append(table, pa.table([range(8), times, values], schema=schema))
    for where, expected in {
        "x > 1": [2, 3, 5],
        "x IN (0, 7)": [0, 1],
        "NOT x < 1": [2, 3, 5],
        "x IS NULL OR x = -0.0": [0, 1, 4],
    }.items():
        for engine in ("jvm", "arrow"):
            found = eventlog.readers.spark.read(spark, local_uri, where=where, engine=engine)
            assert ids(found) == expected, (where, engine)


def test_an_arrow_expression_is_read_by_arrow(spark, table):
    where = pc.multiply(pc.field("id"), 2) == 14
    found = eventlog.readers.spark.read(spark, table.uri, where=where, columns=["id"])
    assert ids(found) == [7]
    with pytest.raises(InvalidInput, match="use engine='arrow'"):
        eventlog.readers.spark.read(spark, table.uri, where=where, engine="jvm")


def test_auto_takes_the_engine_that_reaches_the_store(spark, stored, s3, bucket):
    plan = _plan(eventlog.readers.spark.read(spark, stored.uri))
    assert "FileScan parquet" in plan
    uri = f"s3://{bucket}/t"
    add(Table.create(uri, SCHEMA, time_column="ts"), 3)
    found = eventlog.readers.spark.read(
        spark, uri, columns=["id"], storage_options=s3.storage_options()
    )
    assert "FileScan" not in _plan(found)
    assert ids(found) == [0, 1, 2]
    with pytest.raises(InvalidInput, match="hadoop-aws"):
        eventlog.readers.spark.read(spark, uri, engine="jvm")
    with pytest.raises(InvalidInput, match="auto, arrow or jvm"):
        eventlog.readers.spark.read(spark, uri, engine="fast")


def test_read_works_from_any_thread(spark, table):
    def job():
        return ids(eventlog.readers.spark.read(spark, table.uri, where="id < 3", engine="arrow"))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(job).result() == [0, 1, 2]


def _plan(df):
    return df._jdf.queryExecution().executedPlan().toString()
