"""Rows with the columns of their segments, `_file` and `_version`: of what is read, and by whom."""

import pickle

import pyarrow as pa
import pytest
from msgspec import UNSET
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from spark.hourly_rows import SCHEMA, rows

from eventlog import Table, readers
from eventlog.compaction import Policy, run
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.readers.spark import read
from eventlog.readers.spark.source import load_schema, make_reader
from eventlog.readers.spark.streaming.stream_source import make_stream_reader
from eventlog.writers import append, delete

pytestmark = pytest.mark.data_source
OWN = ["_file", "_version"]


@pytest.fixture
def table(tmp_path):
    """A table of two commits of rows on two days, and a third that deletes one.

    The rows of the second one stand in it.
    """
    made = Table.create(
        (tmp_path / "a table").as_uri(), SCHEMA, time_column="ts", properties={"inline_bytes": "0"}
    )
    append(made, rows(range(48)))
    made.set_properties({"inline_bytes": "16384"})
    append(made, rows(range(20, 30)))
    delete(made, where="id = 3")
    return made


def expected(table, where=None, version=None):
    """The id of each row with the file and the version of the segment that has it."""
    snapshot = table.snapshot(version)
    found = []
    for one in snapshot.segments():
        batches = readers.scan(table, ["id"], where, version=version).reading.batches([one])
        ids = [n for batch in batches for n in batch["id"].to_pylist()]
        found += [(n, file_of(table, one), one.version) for n in ids]
    return sorted(found)


def file_of(table, segment):
    """Where the file of a segment is, or would be."""
    stored = [found.key for found in table.store.list("data/") if segment.id in found.key]
    assert stored == ([keys.key_of(segment)] if segment.inline is UNSET else [])
    return f"{table.uri}/{keys.key_of(segment)}"


def tasks(table, schema=None, **options):
    """What the tasks of a load return, after what Spark does to its parts."""
    options = {"path": table.uri, "segmentColumns": "true", **options}
    pinned, loaded = load_schema(options)
    reader = make_reader(options, schema or loaded, pinned)
    remote = pickle.loads(pickle.dumps(reader))
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
    return [batch for part in parts for batch in remote.read(part)]


def found_in(batches):
    return sorted(
        (row["id"], row["_file"], row["_version"]) for b in batches for row in b.to_pylist()
    )


def test_each_row_has_the_file_and_the_version_of_its_segment(table):
    for options in (
        {},
        {"where": "n < 2"},
        {"version": "1"},
        {"columns": "id", "targetBytes": "1"},
    ):
        batches = tasks(table, **options)
        version = int(options["version"]) if "version" in options else None
        assert found_in(batches) == expected(table, options.get("where"), version)
        assert batches[0].schema.names[-2:] == OWN
    assert {version for _, _, version in expected(table)} == {1, 3}


def test_compacted_rows_have_the_version_of_the_compaction(table):
    (done,) = run(table, policy=Policy(target_bytes=2**20)).outcomes[:1]
    table.refresh()
    found = found_in(tasks(table))
    assert found == expected(table)
    assert done.version in {version for _, _, version in found}


def test_a_schema_of_the_user_may_have_some_of_them_in_any_order(table):
    schema = StructType([StructField("_file", StringType()), StructField("n", IntegerType())])
    batches = tasks(table, schema)
    assert {tuple(batch.schema.names) for batch in batches} == {("_file", "n")}
    only = StructType([StructField("_file", StringType())])
    files = sorted(file for batch in tasks(table, only) for file in batch["_file"].to_pylist())
    assert files == sorted(file for _, file, _ in expected(table))
    wrong = StructType([StructField("_version", StringType())])
    with pytest.raises(InvalidInput, match="'_version' as string, but its type is bigint"):
        tasks(table, wrong)


def test_a_keyed_table_has_none(tmp_path):
    keyed = Table.create((tmp_path / "keyed").as_uri(), SCHEMA, time_column="ts", key="id")
    append(keyed, rows([1]))
    with pytest.raises(InvalidInput, match="merged from several segments"):
        tasks(keyed)


def test_a_column_of_the_table_is_not_hidden(tmp_path):
    schema = SCHEMA.append(pa.field("_File", pa.string()))
    other = Table.create((tmp_path / "other").as_uri(), schema, time_column="ts")
    with pytest.raises(InvalidInput, match="a column '_File' of its own"):
        tasks(other)


def test_changes_and_streams_have_none(table):
    options = {"path": table.uri, "segmentColumns": "true"}
    with pytest.raises(InvalidInput, match="segmentColumns is not for changes"):
        tasks(table, readChanges="true")
    with pytest.raises(InvalidInput, match="segmentColumns is for batch reads"):
        make_stream_reader(options, load_schema({"path": table.uri})[1], None)


def test_spark_reads_them_both_ways(spark, table):
    loaded = spark.read.format("eventlog").option("segmentColumns", "true").load(table.uri)
    for frame in (loaded, read(spark, table.uri, segment_columns=True)):
        assert frame.columns == [*SCHEMA.names, *OWN]
        found = sorted(tuple(row) for row in frame.select("id", *OWN).collect())
        assert found == expected(table)
    few = read(spark, table.uri, ["n"], "id < 5", segment_columns=True).where("_version = 1")
    assert few.count() == 4
    assert read(spark, table.uri, [], segment_columns=True).columns == OWN


def test_the_reader_of_the_jvm_has_none(spark, table):
    with pytest.raises(InvalidInput, match="engine 'jvm' does not read segment_columns"):
        read(spark, table.uri, engine="jvm", segment_columns=True)
