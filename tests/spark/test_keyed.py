"""Keyed tables with Spark: upserts, deletes and merging in the tasks, beside a dictionary."""

import datetime as dt
import json
import os
import random

import pyarrow as pa
import pytest
from support.keyed_model import answer

from eventlog import Table, readers
from eventlog.compaction import run as compact
from eventlog.errors import InvalidInput, TableNotFound
from eventlog.format.frames.entry_columns import to_segments
from eventlog.readers.spark import choose_engine, read
from eventlog.writers.spark import append, delete, overwrite, upsert

START = dt.datetime(2013, 1, 7)  # as Spark returns it: in the session's zone, which is UTC
COLUMNS = "id bigint, updated timestamp, name string, Total bigint"
KEYED = {"time_column": "updated", "key": "id", "buckets": 4}
ORDERED = {**KEYED, "order_by": "updated"}


def drawn(chance, count, *, deletes=True):
    """Rows of few keys, so that they meet within a frame and between frames."""
    return [
        {
            "id": chance.randrange(12),
            "updated": START + dt.timedelta(hours=chance.randrange(40)),
            "name": chance.choice([None, "a", "b", "c"]),
            "Total": chance.choice([None, 1, 2, 40]),
            "_op": chance.choice(["u", "u", "d"]) if deletes else "u",
        }
        for _ in range(count)
    ]


def frame_of(spark, rows, columns=COLUMNS):
    """The rows in two partitions, in their order."""
    names = [column.split()[0] for column in columns.split(", ")]
    frame = spark.createDataFrame([tuple(row[n] for n in names) for row in rows], columns)
    assert frame.rdd.getNumPartitions() == 2
    return frame


def merged(frame):
    """The rows of a frame by id, each key once."""
    rows = [row.asDict() for row in frame.collect()]
    found = {(row["id"],): row for row in rows}
    assert len(found) == len(rows)
    return found


def scanned(uri, version=None):
    """The same, read without Spark."""
    rows = readers.scan(Table.open(uri), version=version).to_table().to_pylist()
    return {(row["id"],): row | {"updated": row["updated"].replace(tzinfo=None)} for row in rows}


@pytest.mark.sample(1, verify=1)
@pytest.mark.everyday
@pytest.mark.scenario("S4.6")
@pytest.mark.parametrize(
    ("way", "rule", "order"),
    [
        ("source", "last", "updated"),
        pytest.param("functions", "last", None, marks=pytest.mark.long),
        ("functions", "partial", "updated"),
        ("source", "aggregate", None),
    ],
    indirect=["way"],
)
def test_upserts_and_deletes_are_those_of_the_dictionary(  # noqa: PLR0917 - fixtures
    spark, save, load, local_uri, rule, order
):
    chance = random.Random(f"{rule} {order}")
    options = {"timeColumn": "updated", "key": "id", "buckets": 4, "merge": rule}
    if order:
        options["orderBy"] = order
    functions = {"Total": "sum", "name": "first", "updated": "last"} if rule == "aggregate" else {}
    options |= {f"property.merge.{column}": name for column, name in functions.items()}
    given = []
    for count in (15, 1, 9):
        rows = drawn(chance, count, deletes=rule != "aggregate")
        columns = COLUMNS if rule == "aggregate" else f"{COLUMNS}, _op string"
        save(frame_of(spark, rows, columns), local_uri, **options)
        given += rows
        wanted = answer(given, key=["id"], order=order, kind=rule, functions=functions)
        assert scanned(local_uri) == wanted
    assert merged(load(local_uri)) == wanted
    assert load(local_uri).columns == ["id", "updated", "name", "Total"]
    some = {key: row for key, row in wanted.items() if row["name"] == "b"}
    assert merged(load(local_uri, where="name = 'b'")) == some
    assert load(local_uri, columns="name").count() == len(wanted)


@pytest.mark.everyday
def test_keys_are_deleted_and_come_back(spark, local_uri):
    rows = drawn(random.Random(1), 20, deletes=False)
    upsert(local_uri, frame_of(spark, rows), **ORDERED)
    delete(local_uri, spark.range(3, 6))
    gone = [{"id": i, "updated": None, "name": None, "Total": None, "_op": "d"} for i in (3, 4, 5)]
    wanted = answer([*rows, *gone], key=["id"], order="updated")
    assert scanned(local_uri) == wanted
    old = {"id": 4, "updated": START - dt.timedelta(days=9), "name": "back", "Total": 1}
    upsert(local_uri, frame_of(spark, [old]))
    assert merged(read(spark, local_uri)) == wanted | {(4,): old}
    # With a value of the order a delete hides what is older, whenever that comes.
    ordered = frame_of(spark, [{"id": 4, "updated": START}], "id bigint, updated timestamp")
    delete(local_uri, ordered)
    upsert(local_uri, frame_of(spark, [old]))
    assert merged(read(spark, local_uri)) == wanted


def test_what_is_no_key_or_no_keyed_table_is_refused(spark, events, local_uri, tmp_path):
    rows = frame_of(spark, drawn(random.Random(2), 3))
    with pytest.raises(TableNotFound):
        delete(local_uri, spark.range(3))
    with pytest.raises(InvalidInput, match="give key, to create a keyed one"):
        upsert(local_uri, rows, time_column="updated")
    upsert(local_uri, rows, **ORDERED, merge="partial")
    plain = (tmp_path / "plain").as_uri()
    append(plain, events(3), time_column="ts")
    for call, message in (
        (lambda: delete(local_uri, rows), "keys to delete have the columns id, and may have"),
        (lambda: delete(local_uri, rows.select("updated")), "these have updated"),
        (lambda: upsert(local_uri, rows.drop("updated")), "'updated' is missing"),
        (lambda: upsert(local_uri, rows, merge="last"), "'last', but the existing table has 'par"),
        (lambda: append(local_uri, rows, key=["name"]), "option key is .* has \\['id'\\]"),
        (lambda: append(local_uri, rows, buckets=8), "option buckets is 8"),
        (lambda: upsert(plain, events(3)), "the table has no key"),
        (lambda: delete(plain, events(3)), "deleted by delete\\(uri, spark, where="),
        (lambda: append(plain, events(3), key="id"), "the existing table has none"),
        (lambda: append(plain, events(3).selectExpr("*", "'d' _op")), "unknown columns: '_op'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            call()
    assert Table.open(local_uri).session.head().version == 1
    with pytest.raises(Exception, match="1 values are neither 'u' nor 'd', for example 'x'"):
        append(local_uri, rows.limit(1).selectExpr("*", "'x' _op"))


@pytest.mark.parametrize(
    "way", ["source", pytest.param("functions", marks=pytest.mark.long)], indirect=True
)
def test_columns_that_a_frame_lacks_keep_their_values(spark, save, local_uri):
    rows = [
        {"id": i, "updated": START + dt.timedelta(hours=i), "name": "a", "Total": i}
        for i in range(4)
    ]
    options = {"timeColumn": "updated", "key": "id", "merge": "partial"}
    save(frame_of(spark, rows), local_uri, **options)
    names = [{**row, "name": "new", "Total": None} for row in rows[:2]]
    columns = "id bigint, updated timestamp, name string"
    save(frame_of(spark, names, columns), local_uri, **options)
    assert scanned(local_uri) == answer([*rows, *names], key=["id"], kind="partial")
    last = local_uri + "-last"
    save(frame_of(spark, rows), last, timeColumn="updated", key="id")
    with pytest.raises(Exception, match="has 'last': leave it out and give all columns"):
        save(frame_of(spark, names, columns), last, timeColumn="updated", merge="partial")


@pytest.mark.shows("idempotent re-run")
@pytest.mark.scenario("S4.6")
def test_a_repeated_unit_of_work_adds_nothing_up_twice(spark, local_uri):
    sums = {"properties": {"merge.Total": "sum"}, "merge": "aggregate"}
    rows = [{"id": i % 3, "updated": START, "name": "a", "Total": 1} for i in range(10)]
    frame = frame_of(spark, rows)
    first = upsert(local_uri, frame, **KEYED, **sums, app_id="load", app_seq=1)
    assert append(local_uri, frame, app_id="load", app_seq=1) == first
    assert {key: row["Total"] for key, row in scanned(local_uri).items()} == {
        (0,): 4,
        (1,): 3,
        (2,): 3,
    }
    # A delete is a unit of work too, and an overwrite takes the place of all keys.
    assert delete(local_uri, spark.range(2), app_id="load", app_seq=1) == first
    overwrite(local_uri, frame, app_id="load", app_seq=2)
    assert sum(row["Total"] for row in scanned(local_uri).values()) == 10


def test_both_engines_read_what_is_merged(spark, local_uri):
    chance = random.Random(3)
    given = []
    for _ in range(9):
        rows = drawn(chance, 6)
        upsert(local_uri, frame_of(spark, rows, f"{COLUMNS}, _op string"), **ORDERED)
        given += rows
    wanted = answer(given, key=["id"], order="updated")
    choice = choose_engine(spark, local_uri)
    assert (choice.engine, "cannot merge" in choice.reason) == ("arrow", True)
    with pytest.raises(InvalidInput, match="cannot merge the rows of a key"):
        read(spark, local_uri, engine="jvm")
    before = Table.open(local_uri).session.head().version
    compact(Table.open(local_uri))
    kinds = {
        segment.slice.kind
        for segment in to_segments(Table.open(local_uri).session.head().entries())
    }
    assert kinds == {"base", "late"}
    assert choose_engine(spark, local_uri).engine == "jvm"
    for engine in ("jvm", "arrow"):
        assert merged(read(spark, local_uri, engine=engine)) == wanted
        some = {key: row for key, row in wanted.items() if row["Total"] == 40}
        assert merged(read(spark, local_uri, where="Total = 40", engine=engine)) == some
        assert read(spark, local_uri, columns=[], engine=engine).count() == len(wanted)
    assert merged(read(spark, local_uri, version=before)) == wanted
    # Of a few new keys the bucket of one is read by the JVM alone, that of another is merged.
    rows = drawn(chance, 1, deletes=False)
    upsert(local_uri, frame_of(spark, rows))
    wanted = answer([*given, *rows], key=["id"], order="updated")
    assert merged(read(spark, local_uri)) == wanted
    assert choose_engine(spark, local_uri).engine == "arrow"


@pytest.mark.data_source
def test_buckets_are_shared_out_among_tasks(spark, local_uri):
    chance = random.Random(4)
    given = []
    for part in range(3):
        rows = drawn(chance, 8)
        upsert(local_uri, frame_of(spark, rows, f"{COLUMNS}, _op string"), **ORDERED)
        given += rows
        if part == 1:
            compact(Table.open(local_uri))
    frame = spark.read.format("eventlog").option("targetBytes", 1).load(local_uri)
    assert frame.rdd.getNumPartitions() > 2
    assert merged(frame) == answer(given, key=["id"], order="updated")


@pytest.mark.long
@pytest.mark.data_source
@pytest.mark.scenario("S5.6")
def test_s5_6_a_job_goes_on_when_buckets_are_split(spark, local_uri):
    """It names the number that it created the table with, and reads by both engines."""
    chance = random.Random(8)
    given = drawn(chance, 8)
    upsert(local_uri, frame_of(spark, given, f"{COLUMNS}, _op string"), **ORDERED)
    table = Table.open(local_uri)
    compact(table)
    table.set_buckets(16)
    assert choose_engine(spark, local_uri).engine == "jvm"
    wanted = answer(given, key=["id"], order="updated")
    assert merged(read(spark, local_uri, engine="jvm")) == wanted
    given += drawn(chance, 8)
    upsert(local_uri, frame_of(spark, given[8:], f"{COLUMNS}, _op string"), **ORDERED)
    wanted = answer(given, key=["id"], order="updated")
    frame = spark.read.format("eventlog").option("targetBytes", 1).load(local_uri)
    assert merged(frame) == wanted
    assert frame.rdd.getNumPartitions() > 2
    compact(table)
    assert merged(read(spark, local_uri, engine="jvm")) == wanted


@pytest.mark.data_source
def test_a_stream_of_a_keyed_table_is_refused(spark, local_uri, tmp_path):
    upsert(local_uri, frame_of(spark, drawn(random.Random(5), 3)), **ORDERED)
    stream = spark.readStream.format("eventlog").load(local_uri)
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    with pytest.raises(Exception, match="Set option readChanges=true"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()


@pytest.mark.data_source
@pytest.mark.scenario("S4.6")
def test_a_stream_upserts_each_batch_once_over_restarts(spark, local_uri, tmp_path):
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    files.mkdir()
    given = []

    def add(number, ids):
        rows = [
            {"id": i, "updated": START + dt.timedelta(hours=number), "name": None, "Total": 1}
            for i in ids
        ]
        lines = [json.dumps(row | {"updated": row["updated"].isoformat()}) for row in rows]
        file = files / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))  # Spark reads the oldest file first
        given.extend(rows)

    def run():
        stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        query = (
            stream.json(str(files))
            .writeStream.format("eventlog")
            .options(timeColumn="updated", key="id", buckets=4, merge="aggregate")
            .option("property.merge.Total", "sum")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(local_uri)
        )
        query.awaitTermination()

    add(0, range(5))
    add(1, [1, 1, 7])
    run()
    # As after a crash between the table's commit and Spark's note of it: the batch comes again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    add(2, [7, 8])
    run()
    functions = {"Total": "sum", "updated": "last", "name": "last"}
    assert scanned(local_uri) == answer(given, key=["id"], kind="aggregate", functions=functions)
    assert Table.open(local_uri).session.head().version == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "way", ["source", pytest.param("functions", marks=pytest.mark.long)], indirect=True
)
def test_few_rows_of_many_tasks_are_one_segment_in_their_order(spark, save, s3, bucket):
    uri = f"s3://{bucket}/people"
    options = {"timeColumn": "updated", "key": "id"}
    save(frame_of(spark, drawn(random.Random(7), 9, deletes=False)), uri, **options)
    # Of each key a row in many tasks: that of the last one counts.
    parts = spark.range(0, 64, 1, 16).selectExpr(
        "id % 5 as id", "timestamp'2013-01-07' as updated", "'n' as name", "id as Total"
    )
    with s3.measure() as counts:
        save(parts, uri, **options)
    assert counts.put == 2
    found = {row["id"]: row["Total"] for row in scanned(uri).values() if row["name"] == "n"}
    assert found == {n % 5: n for n in range(59, 64)}
    # A task with many rows stages them itself, and keeps its place among the others.
    many = "if(part = 1, 40000, 1)"
    mixed = (
        spark.range(0, 3, 1, 3)
        .selectExpr("id as part")
        .selectExpr("part", f"explode(sequence(1, {many})) as n")
        .selectExpr(
            "n as id", "timestamp'2013-01-07' as updated", "uuid() as name", "part as Total"
        )
    )
    with s3.measure() as counts:
        save(mixed, uri, **options)
    assert counts.put == 4
    assert scanned(uri)[1,]["Total"] == 2
    assert len(scanned(uri)) >= 40000


def test_requests_of_an_upsert_and_a_load(spark, s3, bucket):
    uri = f"s3://{bucket}/people"
    first = frame_of(spark, drawn(random.Random(6), 9)).coalesce(1)
    upsert(uri, first, **KEYED)  # proves once that the store is atomic
    with s3.measure() as counts:
        upsert(uri, first)
    # Two to open, one commit, which has the rows; one more if it took over a second.
    assert (counts.put, counts.list) == (1, 1)
    assert counts.get in (1, 2)
    with s3.measure() as counts:
        assert len(merged(read(spark, uri, engine="arrow"))) == len({r.id for r in first.collect()})
    assert (counts.list, counts.put) == (1, 0)
    assert counts.get == 1 + 2  # the commit and two segments


@pytest.mark.hazard("W15")
@pytest.mark.parametrize(
    "way", ["source", pytest.param("functions", marks=pytest.mark.long)], indirect=True
)
def test_a_frame_that_lacks_columns_erases_nothing_unasked(spark, save, local_uri):
    rows = [{"id": i, "updated": START, "name": "a", "Total": i} for i in range(4)]
    save(frame_of(spark, rows), local_uri, timeColumn="updated", key="id")
    columns = "id bigint, updated timestamp, name string"
    narrow = frame_of(spark, [{**row, "name": "b"} for row in rows[:2]], columns)
    with pytest.raises(Exception, match="'Total' is missing: under merge=last"):
        save(narrow, local_uri, timeColumn="updated")
    with pytest.raises(Exception, match="'Total' is missing, so values in the rows"):
        save(narrow, local_uri, mode="overwrite", timeColumn="updated")
    assert scanned(local_uri) == answer(rows, key=["id"], kind="last")
    save(narrow, local_uri, timeColumn="updated", missing="null")
    wanted = [{**row, "name": "b", "Total": None} for row in rows[:2]] + rows[2:]
    assert scanned(local_uri) == answer(wanted, key=["id"], kind="last")
    # Deletes have their key only; beside an upsert the task that has it refuses.
    marked = "id bigint, updated timestamp, _op string"
    gone = [{"id": 0, "updated": START, "_op": "d"}, {"id": 1, "updated": START, "_op": "d"}]
    save(frame_of(spark, gone, marked), local_uri, timeColumn="updated")
    assert scanned(local_uri) == answer(rows[2:], key=["id"], kind="last")
    gone[1]["_op"] = "u"
    with pytest.raises(Exception, match="1 upserts lack it"):
        save(frame_of(spark, gone, marked), local_uri, timeColumn="updated")


@pytest.mark.data_source
@pytest.mark.hazard("W15")
def test_a_stream_that_lacks_columns_is_refused(spark, local_uri, tmp_path):
    rows = [{"id": i, "updated": START, "name": "a", "Total": i} for i in range(2)]
    upsert(local_uri, frame_of(spark, rows), **KEYED)
    (tmp_path / "in").mkdir()
    source = spark.readStream.schema("id bigint, updated timestamp").json(str(tmp_path / "in"))
    (tmp_path / "in" / "a.json").write_text('{"id": 0, "updated": "2013-01-08T00:00:00Z"}\n')

    def run(**options):
        options |= {"checkpointLocation": str(tmp_path / "seen")}
        query = source.writeStream.format("eventlog").options(**options)
        query.trigger(availableNow=True).start(local_uri).awaitTermination()

    with pytest.raises(Exception, match="'name', 'Total' are missing: under merge=last"):
        run()
    assert scanned(local_uri) == answer(rows, key=["id"], kind="last")
    run(missing="null")
    assert scanned(local_uri)[0,]["name"] is None


def test_a_sum_that_does_not_fit_is_an_error_or_a_null(spark, local_uri):
    columns = "id bigint, at timestamp, n tinyint"
    rows = spark.createDataFrame([(1, START, 100), (2, START, 1)], columns)
    kinds = [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int8())]
    properties = {"merge": "aggregate", "merge.n": "sum"}
    table = Table.create(
        local_uri, pa.schema(kinds), time_column="at", key="id", properties=properties
    )
    for _ in range(2):
        upsert(table.uri, rows)
    found = read(spark, table.uri, ["id", "n"], overflow="null", memory_bytes=2**22)
    assert sorted(map(tuple, found.collect())) == [(1, None), (2, 2)]
    with pytest.raises(Exception, match="does not fit"):
        read(spark, table.uri, ["id", "n"]).collect()
    with pytest.raises(InvalidInput, match="overflow must be error or null"):
        read(spark, table.uri, overflow="zero")
    with pytest.raises(InvalidInput, match="memory_bytes"):
        read(spark, table.uri, memory_bytes=5)
