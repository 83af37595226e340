"""Tables whose columns change, from Spark: every version, in both engines, and `mergeSchema`."""

import datetime as dt

import pyarrow as pa
import pytest
from support.evolution_chain import Chain, assert_same_rows

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.readers.spark import choose_engine, read
from eventlog.readers.spark.types import arrow_schema
from eventlog.store.local import LocalStore
from eventlog.writers.spark import append, merge, overwrite, upsert

SOME = 4  # versions of a chain that a default run reads


def plain(value):
    """A value of a row of Spark as Arrow has it."""
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return [(key, plain(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def instants(value, kind):
    """A value of Arrow as Spark gives it to Python: instants in UTC without a zone."""
    if pa.types.is_timestamp(kind) and kind.tz is not None and value is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def check_version(spark, uri, chain, version, engine):
    schema, expected, row = chain.at_version[version]
    frame = read(spark, uri, version=version, engine=engine)
    assert arrow_schema(frame.schema).names == schema.names
    found = [{name: plain(row[name]) for name in schema.names} for row in frame.collect()]
    wanted = [{f.name: instants(row[f.name], f.type) for f in schema} for row in expected]
    assert_same_rows(found, wanted, row, (version, engine))


def check_chain(spark, tmp_path, seed, keyed, versions=None):
    chain = Chain(seed, LocalStore(tmp_path / "chain"), keyed=keyed)
    for _ in range(50):
        chain.step()
    uri = (tmp_path / "chain").as_uri()
    listed = [*chain.at_version]
    counts = dict.fromkeys(("arrow", "jvm"), 0)
    for version in listed[:: max(1, len(listed) // versions)] if versions else listed:
        chosen = choose_engine(spark, uri, version=version).engine
        for engine in {"arrow", chosen}:
            check_version(spark, uri, chain, version, engine)
            counts[engine] += 1
    return counts


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize(("seed", "keyed"), [(11, False), (12, True)])
def test_chains_of_changes_read_back(spark, tmp_path, seed, keyed):
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert check_chain(spark, tmp_path, seed, keyed, SOME)["arrow"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_chains_of_changes_read_back_at_every_version(spark, tmp_path, seed):
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    counts = check_chain(spark, tmp_path, seed, keyed=seed % 3 == 0)
    print(seed, counts)  # noqa: T201 - how often each engine was used


# --- writers --------------------------------------------------------------------------------------


WRITES = {
    "append": append,
    "overwrite": overwrite,
    "where": lambda uri, df, **more: overwrite(uri, df, where="id < 100", **more),
    "merge": lambda uri, df, **more: merge(uri, df, "ID", **more),
}


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("verb", WRITES)
def test_the_table_evolves_where_asked(events, local_uri, verb):
    append(local_uri, events(3), time_column="ts")
    wide = events(2).selectExpr("*", "id * 2L as more")
    with pytest.raises(InvalidInput, match="'more'"):
        WRITES[verb](local_uri, wide)
    WRITES[verb](local_uri, wide, evolve=True)
    table = Table.open(local_uri)
    assert table.session.head().schema.names == ["id", "ts", "name", "more"]
    assert scan(table, where="more = 2").count() == 1


def late(df):
    """Rows with another column, whose times are outside of the years of tables."""
    return df.selectExpr("id", "timestamp_seconds(id + 300000000000) as ts", "name", "id as more")


@pytest.mark.sample(0, verify=2)
@pytest.mark.parametrize("verb", WRITES)
def test_refused_rows_of_frames_say_which_version_has_their_columns(events, local_uri, verb):
    version = append(local_uri, events(3), time_column="ts")
    told = f"no row was committed, but version {version + 1} has the new columns"
    with pytest.raises(Exception, match=told):
        WRITES[verb](local_uri, late(events(2)), evolve=True)
    assert Table.open(local_uri).session.head().version == version + 1
    assert Table.open(local_uri).session.head().schema.names == ["id", "ts", "name", "more"]


def test_an_overwrite_that_is_refused_after_its_tasks_says_which_version_has_the_columns(
    events, local_uri
):
    version = append(local_uri, events(3), time_column="ts")
    told = f"no row was committed, but version {version + 1} has the new columns"
    with pytest.raises(InvalidInput, match=told):
        overwrite(
            local_uri, events(2).selectExpr("*", "id as more"), start="2013-01-08", evolve=True
        )


@pytest.mark.long
def test_the_option_merge_schema_evolves_the_table(events, local_uri, save, way):
    if way != "source":
        pytest.skip("the functions have `evolve`")
    save(events(3), local_uri)
    wide = events(2).selectExpr("*", "array(struct(id as a)) as list")
    with pytest.raises(Exception, match="unknown columns: 'list'"):
        save(wide, local_uri)
    save(wide, local_uri, mergeSchema="true")
    assert Table.open(local_uri).session.head().schema.names == ["id", "ts", "name", "list"]
    with pytest.raises(Exception, match="'name'"):  # text does not become a number
        save(events(2).selectExpr("id", "ts", "1L as name"), local_uri, mergeSchema="true")
    assert Table.open(local_uri).session.head().schema.names == ["id", "ts", "name", "list"]
    with pytest.raises(Exception, match="mergeSchema must be true or false"):
        save(wide, local_uri, mergeSchema="yes")


def test_columns_of_frames_have_any_capitals(events, local_uri, save, ids):
    save(events(3), local_uri)
    upper = events(2, first=3).toDF("ID", "Ts", "NAME")
    save(upper, local_uri)
    merge(local_uri, upper, "Id", when_matched={"NAME": "upper(Source.name)"})
    overwrite(local_uri, events(1).toDF("ID", "Ts", "NAME"), where="Id = 0")
    assert ids(local_uri) == [0, 1, 2, 3, 4]
    names = scan(Table.open(local_uri), ["name"]).to_table()["name"].to_pylist()
    assert sorted(names) == ["NAME-3", "NAME-4", "name-0", "name-1", "name-2"]
    assert Table.open(local_uri).session.head().schema.names == ["id", "ts", "name"]


def test_upserts_evolve_the_table(events, local_uri, rows_of):
    upsert(local_uri, events(2), time_column="ts", key="id")
    wide = events(2, first=1).selectExpr("ID", "ts", "name", "'x' as more", "'u' as _op")
    upsert(local_uri, wide, evolve=True)
    assert rows_of(local_uri).column("more").to_pylist() == [None, "x", "x"]
