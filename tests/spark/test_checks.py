"""What the driver checks before a task runs, and each step of writer and reader on its own."""

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import types
from pyspark.sql.types import LongType, StructField, StructType
from support.builders import reopen, replace_object
from support.forked_histories import copied
from support.parted_logs import take_over

from eventlog import Table, readers
from eventlog.errors import CommitConflict, Corrupt, InvalidInput, NotFound, TableNotFound
from eventlog.log.snapshot import plan_scan
from eventlog.model.entries import Segment
from eventlog.readers.spark.expressions import pack_expression
from eventlog.readers.spark.shares import OPEN_BYTES, pack_shares, share_out_scan
from eventlog.readers.spark.spark_options import parse_spark_options
from eventlog.readers.spark.workers import has_data_sources
from eventlog.writers import append, upsert

if has_data_sources():  # every test that needs them carries the mark `data_source`
    from pyspark.sql.datasource import InputPartition

    from eventlog.readers.spark.source import load_schema, make_reader
    from eventlog.writers.spark.source import make_writer

pytestmark = pytest.mark.data_source
DAY_US = 86_400_000_000
START_US = 1_357_516_800_000_000  # 2013-01-07T00:00Z
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
)
SPARK_SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("ts", "timestamp"), ("name", "string"))
        ],
    }
)
OVERWRITE_DAY = {"replaceWhere": "ts >= '2013-01-08' AND ts < '2013-01-09'"}

NULLS = types.ArrayType(types.NullType(), containsNull=False)  # of `array()`


def events(count, first=0, per_day=10):
    """Rows like those of the fixture of the same name."""
    numbers = list(range(first, first + count))
    times = [START_US + n * (DAY_US // per_day) for n in numbers]
    return pa.table([numbers, times, [f"name-{n}" for n in numbers]], schema=SCHEMA)


@pytest.fixture
def table(local_uri):
    """A table with 30 rows in three days."""
    table = Table.create(local_uri, SCHEMA, time_column="ts", granularity="day")
    append(table, events(30))
    return table


def writer_of(table, overwrite=False, schema=SPARK_SCHEMA, **options):
    return make_writer({"path": table.uri, **options}, schema, overwrite=overwrite)


def ids(table, version=None):
    found = readers.scan(table, columns=["id"], version=version).to_table()
    return sorted(found.column("id").to_pylist())


def field(name, kind):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def with_field(name, kind):
    """The schema of `events` with one field added, or replaced."""
    fields = [f for f in SPARK_SCHEMA.jsonValue()["fields"] if f["name"] != name]
    return StructType.fromJson({"type": "struct", "fields": [*fields, field(name, kind)]})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"timecolum": "ts"},
            "unknown option 'timecolum': did you mean timeColumn? reads take version",
        ),
        ({"version": "3"}, "option version is for reads"),
        ({"columns": "id", "where": "id=1"}, "option columns, where is for reads"),
        ({"memoryBytes": "lots"}, "option memoryBytes must be a whole number from 1048576"),
        ({"memoryBytes": "5"}, "option memoryBytes must be a whole number from 1048576"),
        ({"appId": "a"}, "give app_id and app_seq together"),
        ({"appId": "a", "appSeq": "-1"}, "option appSeq must be a whole number from 0"),
        ({"replaceWhere": "ts >= '2013-01-07'"}, "option replaceWhere needs mode('overwrite')"),
        ({"storage.color": "red"}, "storage option 'color' is unknown"),
        ({"isolation": "snapshot"}, "option isolation needs mode('overwrite')"),
        ({"granularity": "hour"}, "option granularity is 'hour', but the existing table"),
        ({"timeColumn": "name"}, "option timeColumn is 'name', but the existing table"),
        ({"orderBy": '["id"]'}, "option orderBy is ['id'], but the existing table has []"),
    ],
)
def test_wrong_options_of_a_write_are_named(table, options, said):
    with pytest.raises(InvalidInput) as caught:
        writer_of(table, **options)
    assert said in str(caught.value)
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (with_field("extra", "integer"), "unknown columns: 'extra'"),
        (StructType(SPARK_SCHEMA.fields[:1]), "column 'ts' is missing"),
        (with_field("name", "long"), "column 'name' has type int64, and string in the table"),
        (with_field("name", "interval month"), "column 'name' has type interval month"),
        (with_field("name", "interval day to second"), "column 'name' has type duration"),
        (
            StructType([*SPARK_SCHEMA.fields[:2], types.StructField("name", NULLS)]),
            "column 'name' has type array<void>, which has no Arrow equivalent",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_named(table, schema, said):
    with pytest.raises(InvalidInput) as caught:
        writer_of(table, schema=schema)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arguments"), [("VariantType", ()), ("GeometryType", (4326,))], ids=["4.0", "4.1"]
)
def test_a_type_that_came_later_is_named(table, name, arguments):
    if not hasattr(types, name):
        pytest.skip(f"this Spark has no {name}")
    kind = getattr(types, name)(*arguments)
    with pytest.raises(InvalidInput) as caught:
        writer_of(table, schema=StructType([*SPARK_SCHEMA.fields[:2], StructField("name", kind)]))
    assert f"column 'name' has type {kind.simpleString()}" in str(caught.value)


@pytest.mark.parametrize(
    ("replace_where", "said"),
    [
        ("ts >= '2013-01-08' OR id = 3", "replaceWhere must be a range of the time column"),
        ("NOT (ts >= '2013-01-08')", "a range of the time column"),
        ("name = 'x'", "replaceWhere must be a range of the time column"),
        ("ts <> '2013-01-08'", "replaceWhere must be a range of the time column"),
        ("ts IS NOT NULL", "replaceWhere must be a range of the time column"),
        ("ts >= '2013-01-08 05:00:00'", "a bound is inside chunk 2013-01-08"),
        ("ts > '2013-01-08'", "ends inside a chunk"),
        ("ts >= '2013-01-08' AND ts <= '2013-01-09'", "ends inside a chunk"),
        ("ts >= '2013-01-09' AND ts < '2013-01-08'", "empty range"),
    ],
)
def test_replace_where_takes_only_whole_chunks_of_a_keyed_table(local_uri, replace_where, said):
    table = Table.create(local_uri, SCHEMA, time_column="ts", granularity="day", key=("id",))
    with pytest.raises(InvalidInput) as caught:
        writer_of(table, overwrite=True, replaceWhere=replace_where)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("replace_where", "said"),
    [
        ("ts >=", "not one SQL expression"),
        ("tz >= '2013-01-08'", "tz"),
        ("id + 1", "not a boolean condition"),
    ],
)
def test_a_wrong_predicate_of_replace_where_is_refused_before_a_task_runs(
    table, replace_where, said
):
    with pytest.raises(InvalidInput) as caught:
        writer_of(table, overwrite=True, replaceWhere=replace_where)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, []),
        (OVERWRITE_DAY, [*range(10), *range(20, 30)]),
        ({"replaceWhere": "ts < '2013-01-08'"}, range(10, 30)),
        (
            {"replaceWhere": "(ts >= DATE '2013-01-08') AND '2013-01-09T01:00+01:00' > ts"},
            [*range(10), *range(20, 30)],
        ),
        ({"start": "2013-01-09"}, range(20)),
        ({"start": "2013-01-08", "end": "2013-01-09T00:00:00Z"}, [*range(10), *range(20, 30)]),
    ],
)
def test_an_overwrite_replaces_its_range(table, options, left):
    writer = writer_of(table, overwrite=True, **options)
    writer.commit([writer.write(iter([]))])
    assert ids(Table.open(table.uri)) == list(left)


@pytest.mark.parametrize(
    ("where", "chunks"),
    [
        ("d >= '2013-01-01' AND d <= '2013-01-31'", ["2013-02"]),
        ("d BETWEEN '2013-02-01' AND '2013-02-28'", ["2013-01"]),
        ("d > '2013-01-31'", ["2013-01"]),
    ],
)
def test_replace_where_of_dates_means_whole_days(local_uri, where, chunks):
    schema = pa.schema([("d", pa.date32())])
    table = Table.create(local_uri, schema, time_column="d", granularity="month")
    append(table, pa.table([[15_710, 15_740]], schema=schema))  # 2013-01-05 and 2013-02-04
    spark_schema = StructType.fromJson({"type": "struct", "fields": [field("d", "date")]})
    writer_of(table, overwrite=True, schema=spark_schema, replaceWhere=where).commit([])
    assert [c.chunk.name for c in table.refresh().chunks()] == chunks


def test_rows_outside_the_range_are_refused(table):
    writer = writer_of(table, overwrite=True, **OVERWRITE_DAY)
    message = writer.write(iter(events(11, first=10).to_batches()))
    with pytest.raises(InvalidInput, match="new rows of 2013-01-09, outside the range"):
        writer.commit([message])
    assert table.refresh().version == 1


def test_what_arrived_meanwhile_is_carried_or_a_conflict(table):
    carry = writer_of(table, overwrite=True, **OVERWRITE_DAY)
    strict = writer_of(table, overwrite=True, isolation="serializable", **OVERWRITE_DAY)
    append(table, events(1, first=12))
    with pytest.raises(CommitConflict):
        strict.commit([strict.write(iter(events(1, first=14).to_batches()))])
    carry.commit([carry.write(iter(events(1, first=13).to_batches()))])
    assert ids(Table.open(table.uri)) == [*range(10), 12, 13, *range(20, 30)]


@pytest.mark.hazard("I6")
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_that_is_run_again_takes_effect_once(table, overwrite):
    """The same object, and a copy that another process was given."""
    writer = writer_of(table, overwrite=overwrite)
    message = writer.write(iter(events(3, first=100).to_batches()))
    copy = pickle.loads(pickle.dumps(writer))
    for each in (writer, writer, copy):
        each.commit([message])
        each.abort([message])  # Spark calls it even after a commit that landed
    append(table, events(1, first=200))
    pickle.loads(pickle.dumps(writer_copy(copy))).commit([message])
    assert table.refresh().version == 3
    assert ids(table) == [*([] if overwrite else range(30)), 100, 101, 102, 200]


def writer_copy(writer):
    """The writer as it was before its commit."""
    return type(writer)(writer._job)


def test_a_unit_of_work_that_is_done_stages_nothing(table):
    options = {"appId": "nightly", "appSeq": "7"}
    early = writer_of(table, **options)
    late = writer_of(table, **options)
    early.commit([early.write(iter(events(1, first=50).to_batches()))])
    late.commit([late.write(iter(events(1, first=50).to_batches()))])
    staged = sum(1 for _ in table.store.list("data/"))
    again = writer_of(table, **options)
    again.commit([again.write(iter(events(1, first=50).to_batches()))])
    assert sum(1 for _ in table.store.list("data/")) == staged
    assert ids(Table.open(table.uri)) == [*range(30), 50]
    assert table.refresh().version == 2


def test_a_task_stays_within_its_memory(table):
    """A budget below the rows writes them as several segments of one chunk."""
    rows = events(60_000, per_day=86_400).set_column(2, "name", pa.repeat("x" * 100, 60_000))
    writer = writer_of(table, memoryBytes=str(2**20))
    before = table.session.head().totals
    writer.commit([writer.write(iter(rows.to_batches(max_chunksize=5000)))])
    after = table.refresh().totals
    assert after.rows == before.rows + 60_000
    assert after.segments > before.segments + 5


def test_a_task_asks_the_store_for_nothing_but_its_segments(s3, bucket):
    properties = {"inline_bytes": "0"}
    table = Table.create(f"s3://{bucket}/t", SCHEMA, time_column="ts", properties=properties)
    writer = pickle.loads(pickle.dumps(writer_of(table)))
    with s3.measure() as counts:
        writer.write(iter(events(30).to_batches()))
    assert (counts.put, counts.total) == (3, 3)


def test_a_job_replaces_nothing_as_of_a_commit_of_another_log(table):
    """The other's version lacks a row that the job's rows take the place of."""
    other = reopen(copied(table.store))
    append(table, events(1, first=12))
    other.set_properties({"user.note": "there"})
    table.set_properties({"user.note": "here"})
    table.set_properties({"user.note": "newer"})
    options = {"overwrite": True, "readVersion": "2", **OVERWRITE_DAY}
    begun = writer_of(table, **options)
    own = take_over(table.store, other.store, [2])
    staged = [begun.write(iter(events(5, first=12).to_batches()))]
    for job in (lambda: begun.commit(staged), lambda: writer_of(table, **options)):
        with pytest.raises(Corrupt, match=r"version 2 .* version 3 "):
            job()
    assert table.refresh().version == 4
    for key, body in own.items():
        replace_object(table.store, key, body)
    begun.commit(staged)
    assert ids(table) == [*range(10), *range(12, 17), *range(20, 30)]


def test_storage_options_travel_with_the_job(s3, bucket, monkeypatch):
    uri = f"s3://{bucket}/t"
    storage = s3.storage_options()
    Table.create(uri, SCHEMA, time_column="ts", storage_options=storage)
    for name in s3.environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"path": uri, **{f"storage.{name}": value for name, value in storage.items()}}
    writer = pickle.loads(pickle.dumps(make_writer(options, SPARK_SCHEMA, overwrite=False)))
    writer.commit([writer.write(iter(events(3).to_batches()))])
    reader = pickle.loads(pickle.dumps(make_reader(options, SPARK_SCHEMA, None)))
    (share,) = make_reader(options, SPARK_SCHEMA, None).partitions()
    assert sum(batch.num_rows for batch in reader.read(share)) == 3


def test_an_absent_table_says_how_to_create_it(local_uri):
    with pytest.raises(TableNotFound, match="give option timeColumn"):
        make_writer({"path": local_uri}, SPARK_SCHEMA, overwrite=False)
    with pytest.raises(InvalidInput, match="give the table's location"):
        make_writer({}, SPARK_SCHEMA, overwrite=False)
    with pytest.raises(InvalidInput, match="no column 'tz' for the event time"):
        make_writer({"path": local_uri, "timeColumn": "tz"}, SPARK_SCHEMA, overwrite=False)


@pytest.mark.parametrize(
    ("text", "names"),
    [("id,name", ["id", "name"]), (' ["a,b", "c"]', ["a,b", "c"]), (" id ", ["id"]), ("", [])],
)
def test_columns_are_a_list_or_json(text, names):
    assert parse_spark_options({"PATH": "x", "Columns": text}).columns() == names


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"columns": "[1]"}, InvalidInput, "option columns must be a,b or a JSON list"),
        ({"columns": "nobody"}, InvalidInput, "unknown columns: 'nobody'"),
        ({"version": "99"}, NotFound, ""),
        ({"version": "-1"}, InvalidInput, "a version must be a whole number from 0"),
        ({"version": "0", "timestamp": "2013-01-01"}, InvalidInput, "not both"),
        ({"timestamp": "1999-01-01"}, NotFound, "after the requested time"),
        ({"version": "1", "readVersion": "1"}, InvalidInput, "version or readVersion, not both"),
        ({"where": "nobody = 1"}, InvalidInput, "nobody"),
        ({"where": "id ="}, InvalidInput, "the text is not one SQL expression"),
        ({"owner": "me"}, InvalidInput, "CREATE TABLE cannot create an eventlog table"),
    ],
)
def test_wrong_options_of_a_load_are_named(table, options, error, said):
    with pytest.raises(error) as caught:
        load_schema({"path": table.uri, **options})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "nobody = 1"}, "nobody"),
        ({"where": "id = 1", "whereArrow": "AAAA"}, "where or whereArrow, not both"),
        ({"whereArrow": "AAAA"}, "not a packed pyarrow expression"),
        ({"targetBytes": "0"}, "option targetBytes must be a whole number from 1"),
        ({"columns": "id"}, "the schema has columns id, ts, name, but option columns has id"),
        ({"start": "2013-01-08", "end": "2013-01-09"}, "option start, end is for overwrites"),
        (OVERWRITE_DAY, "option replaceWhere is for overwrites"),
    ],
)
def test_wrong_options_of_a_read_are_named(table, options, said):
    with pytest.raises(InvalidInput) as caught:
        make_reader({"path": table.uri, **options}, SPARK_SCHEMA, None)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            with_field("extra", "integer"),
            "column 'extra', but the table at version 1 has id, ts, name",
        ),
        (with_field("id", "integer"), "column 'id' as int32, but the table has it as int64"),
        (StructType().add("id", LongType(), nullable=False), "column 'id' as int64 NOT NULL"),
    ],
)
def test_a_schema_of_another_table_is_refused(table, schema, said):
    with pytest.raises(InvalidInput) as caught:
        make_reader({"path": table.uri}, schema, None)
    assert said in str(caught.value)


def test_a_read_without_partitions_yields_nothing(table):
    reader = make_reader({"path": table.uri, "where": "id > 99"}, SPARK_SCHEMA, None)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []  # what Spark then asks for


def segment(number, size):
    return Segment(f"{number:032x}", "all", 0, 1, number, 1, size, "ab" * 32, 1)


@pytest.mark.parametrize(
    ("sizes", "target", "expected"),
    [
        ([], 100, 0),
        ([10] * 4, 100 * OPEN_BYTES, 1),
        ([10 * OPEN_BYTES] * 10, 11 * OPEN_BYTES, 10),
        ([9 * OPEN_BYTES] * 10, 20 * OPEN_BYTES, 5),
        ([900 * OPEN_BYTES], OPEN_BYTES, 1),
        ([0] * 7, 2 * OPEN_BYTES, 4),
    ],
)
def test_shares_are_as_few_as_the_target_needs(sizes, target, expected):
    segments = [segment(number, size) for number, size in enumerate(sizes)]
    shares = pack_shares(segments, target)
    assert len(shares) == expected
    assert sorted(s.partition for share in shares for s in share) == list(range(len(sizes)))
    assert all(shares)
    assert pack_shares(segments, target) == shares


def test_shares_weigh_about_the_same():
    segments = [segment(number, (number % 7 + 1) * OPEN_BYTES) for number in range(100)]
    loads = [
        sum(s.bytes + OPEN_BYTES for s in share) for share in pack_shares(segments, 50 * OPEN_BYTES)
    ]
    assert max(loads) - min(loads) <= 8 * OPEN_BYTES


def test_tasks_read_far_ahead_only_where_a_request_takes_time(table):
    snapshot = table.snapshot()
    plan = plan_scan(snapshot)

    def ahead(uri):
        return share_out_scan(uri, {}, snapshot, plan, plan.schema).reading.ahead_bytes

    assert ahead(table.uri) < ahead("s3://bucket/table")


def test_an_expression_that_names_columns_by_their_places_is_refused():
    with pytest.raises(InvalidInput, match="name its columns"):
        pack_expression(pc.field(1) > 5)


def sums(local_uri):
    """A table whose key 1 has a sum that does not fit, and one that does."""
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int8())])
    table = Table.create(
        local_uri, columns, time_column="at", key="id", buckets=1,
        properties={"merge": "aggregate", "merge.n": "sum"},
    )  # fmt: skip
    for number in (100, 100):
        rows = [[1, 2], pa.array([0, 0], columns.field("at").type), [number, 1]]
        upsert(table, pa.table(rows, schema=columns))
    return table


def read_rows(options, **more):
    schema = load_schema(options | more)[1]
    reader = make_reader(options | more, schema, None)
    batches = [batch for share in reader.partitions() for batch in reader.read(share)]
    return pa.Table.from_batches(batches).to_pylist()


def test_a_sum_that_does_not_fit_is_an_error_or_a_null(local_uri):
    options = {"path": sums(local_uri).uri, "columns": "id,n"}
    with pytest.raises(InvalidInput, match=r"does not fit.*int8|int8.*does not fit"):
        read_rows(options)
    found = read_rows(options, overflow="null")
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "n": None}, {"id": 2, "n": 2}]
    with pytest.raises(InvalidInput, match="overflow must be error or null, not 'zero'"):
        read_rows(options, overflow="zero")
    told = read_rows({"path": local_uri, "readChanges": "true", "overflow": "null"})
    assert any(row["id"] == 1 and row["n"] is None for row in told)


@pytest.mark.parametrize("more", [{}, {"readChanges": "true"}], ids=["rows", "changes"])
def test_the_memory_of_a_task_is_bounded_by_an_option(table, more):
    options = {"path": table.uri, **more}
    assert read_rows(options, memoryBytes=str(2**20)) == read_rows(options)
    with pytest.raises(InvalidInput, match="option memoryBytes must be a whole number from"):
        read_rows(options, memoryBytes="5")


def test_tasks_read_ahead_what_their_memory_allows(table):
    snapshot = table.snapshot()
    plan = plan_scan(snapshot)
    for uri in (table.uri, "s3://bucket/table"):
        few, many = (
            share_out_scan(
                uri, {}, snapshot, plan, plan.schema, memory_bytes=size
            ).reading.ahead_bytes
            for size in (2**22, 2**32)
        )
        assert few < 2**22 < many < 2**32
