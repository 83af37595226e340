"""Both engines against plain Python: the same rows for the same question, value by value.

Every table here has several commits, segments, row groups and pages: what a reader skips, and what
it puts together, shows only there.
"""

import functools
import itertools
import random
from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import count_if, expr, lit
from support import predicates

import eventlog.readers.spark
from eventlog import Table, compaction, limits
from eventlog.errors import InvalidInput
from eventlog.query import predicate
from eventlog.readers.spark.jvm.filters import to_column
from eventlog.staging import encoding
from eventlog.writers import append

ENGINES = ("arrow", "jvm")
IN_FILES, IN_COMMITS = {"inline_bytes": "0"}, {"inline_bytes": "131072"}
TWO_DAYS = predicates.TIMES[:1] + predicates.TIMES[4:6]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A table of three commits, compacted by a fourth, and its rows: (table, commits, rows)."""
    with pytest.MonkeyPatch.context() as patch:
        small = {"data_page_size": 32, "write_batch_size": 3}
        options = encoding.parquet_options
        patch.setattr(encoding, "parquet_options", lambda *given: options(*given) | small)
        patch.setattr(limits, "ROW_GROUP_ROWS", 7)
        root = tmp_path_factory.mktemp("engines") / "table"
        table = Table.create(root, predicates.SCHEMA, time_column="ts", properties=IN_FILES)
        rows = predicates.rows(random.Random(7), 75, TWO_DAYS)
        for first in range(0, 75, 25):
            append(table, predicates.to_arrow(rows[first : first + 25]))
        appended = table.session.head().version
        compaction.run(table)
        assert len(table.snapshot(version=appended).segments()) == 6
        assert len(table.refresh().segments()) == 2
        yield table, (appended, table.session.head().version), rows


@pytest.mark.long
def test_random_questions_have_one_answer(spark, world):
    table, versions, rows = world
    chance, count = predicates.examples(6)
    asked = [predicates.ask(chance, plain=number % 5 > 0, depth=2) for number in range(count)]
    for start in range(0, count, 10):
        few = asked[start : start + 10]
        _check(rows, few, _filtered(spark, table, versions[0], few[::2]))
        _check(rows, few, _filtered(spark, table, versions[1], few[1::2]))
        _check(rows, few, _read(spark, table, versions[1], few[::3], "auto"))
        _check(rows, few, _read(spark, table, versions[0], few[::5], "arrow"))


def _filtered(spark, table, version, asked):
    """Filters on one DataFrame, where Spark's own columns can say them."""
    whole = eventlog.readers.spark.read(spark, table.uri, version=version, engine="jvm")
    schema = table.session.head().stored_schema
    said = {q.sql: to_column(predicate.parse_predicate(q.sql, schema).condition) for q in asked}
    return {sql: whole.where(column) for sql, column in said.items() if column is not None}


def _read(spark, table, version, asked, engine):
    """A DataFrame for each question."""
    read = functools.partial(
        eventlog.readers.spark.read, spark, table.uri, version=version, engine=engine
    )
    return {question.sql: read(["id"], question.sql) for question in asked}


def _check(rows, asked, frames):
    """Run all frames at once; each has the rows that its question means."""
    expected = {question.sql: question.ids(rows) for question in asked}
    for sql, got in _ids(frames).items():
        assert got == expected[sql], sql


def _ids(frames):
    """The ids in each frame, sorted, by one job."""
    found = {name: [] for name in frames}
    names = list(frames)
    parts = [frames[name].select(lit(at), "id") for at, name in enumerate(names)]
    for at, number in reduce(DataFrame.unionAll, parts).collect():
        found[names[at]].append(number)
    return {name: sorted(numbers) for name, numbers in found.items()}


@pytest.mark.everyday
@pytest.mark.hazard("W5")
def test_every_value_comes_back_bit_by_bit(spark, world):
    table, versions, rows = world
    expected = predicates.bits(predicates.to_arrow(rows))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for version, engine in itertools.product(versions, ENGINES):
            found = eventlog.readers.spark.read(spark, table.uri, version=version, engine=engine)
            assert predicates.bits(_to_arrow(found).sort_by("id")) == expected, (version, engine)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def _to_arrow(frame):
    """What `toArrow` of Spark 4.0 and later returns."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow())


# A filter in Spark's own SQL on the DataFrame, and whether a row passes.
FILTERS = {
    "f64 >= 0": lambda row: predicates.compare(">=", row["f64"], 0.0),
    "f64 = 0": lambda row: predicates.compare("=", row["f64"], 0.0),
    "f64 <=> 0D": lambda row: predicates.compare("=", row["f64"], 0.0) is True,
    "f64 IN (0, 7)": lambda row: row["f64"] in (0.0, 7.0),
    "f32 <= 0": lambda row: predicates.compare("<=", row["f32"], 0.0),
    "f32 = 0": lambda row: predicates.compare("=", row["f32"], 0.0),
    "NOT f32 < 0": lambda row: predicates.compare(">=", row["f32"], 0.0),
    "f64 = double('NaN')": lambda row: row["f64"] is not None and row["f64"] != row["f64"],
    "f64 > double('Infinity')": lambda row: row["f64"] is not None and row["f64"] != row["f64"],
    "f64 IS NULL": lambda row: row["f64"] is None,
    "`odd.``name```= 0": lambda row: predicates.compare("=", row["odd.`name`"], 0.0),
    "`in.struct`.`x y` = 0": lambda row: (row["in.struct"] or {}).get("x y") == 0.0,
    "`in.struct`.`x y` = 0 AND `in.struct`.k = 1": lambda row: (
        (row["in.struct"] or {}).get("x y") == 0.0 and row["in.struct"]["k"] == 1
    ),
    "`in.struct` IS NULL": lambda row: row["in.struct"] is None,
    "array_contains(`in``list`, 0D)": lambda row: 0.0 in (row["in`list"] or []),
    "`in map`['key'] = 0": lambda row: 0.0 in [v for _, v in row["in map"] or []],
    "raw = X'61'": lambda row: row["raw"] == b"a",
    "raw >= X'ff'": lambda row: row["raw"] is not None and row["raw"] >= b"\xff",
    "text LIKE '%b' OR text >= 'ä'": lambda row: (
        row["text"] is not None and (row["text"].endswith("b") or row["text"] >= "ä")
    ),
    "dec38 > 99": lambda row: row["dec38"] is not None and row["dec38"] > 99,
    "year(ntz) = 1582": lambda row: (
        row["ntz"] in map(predicates.micros, ["1582-10-04T23:59:59.999999", "1582-10-15"])
    ),
}  # fmt: skip


@pytest.mark.hazard("W5")
def test_filters_on_the_frame_see_every_row(spark, world):
    table, versions, rows = world
    expected = {
        text: [row["id"] for row in rows if holds(row) is True] for text, holds in FILTERS.items()
    }
    for engine, version in zip(ENGINES, versions, strict=True):
        whole = eventlog.readers.spark.read(spark, table.uri, version=version, engine=engine)
        counts = [count_if(expr(text)) for text in FILTERS]
        counted = dict(zip(FILTERS, whole.select(*counts).first(), strict=True))
        assert counted == {text: len(ids) for text, ids in expected.items()}
        if engine == "jvm":  # the other has no filters pushed into it
            assert _ids({text: whole.where(text) for text in FILTERS}) == expected


def test_no_row_is_dropped_by_a_session_that_filters_records(spark, world):
    """Parquet's own record filter compares floats by their bits as well."""
    table, versions, rows = world
    settings = {
        "spark.sql.parquet.recordLevelFilter.enabled": "true",
        "spark.sql.parquet.enableVectorizedReader": "false",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        frame = eventlog.readers.spark.read(spark, table.uri, version=versions[0], engine="jvm")
        asked = {
            name: frame.where(f"{name} = 0").count() for name in ("f32", "f64", "i64", "dec38")
        }
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert asked == {name: sum(row[name] == 0 for row in rows) for name in asked}


def test_the_jvm_still_prunes_and_reads_few_columns(spark, world):
    """Guarding floats costs no pruning elsewhere: the plan reads and pushes down what it did."""
    table, _, _ = world
    frame = eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    plan = _plan(frame.where("i32 > 3 AND f64 > 0").select("text"))
    assert "ReadSchema: struct<i32:int,f64:double,text:string>" in plan
    assert "PushedFilters: [IsNotNull(i32), GreaterThan(i32,3)]" in plan
    assert "Batched: true" in plan
    plan = _plan(frame.where("`in.struct`.k = 1").select("`in.struct`.`x y`"))
    assert "ReadSchema: struct<in.struct:struct<x y:double,k:int>>" in plan
    plan = _plan(frame.where("`in.struct`.k = 1").select("id"))
    assert "ReadSchema: struct<id:bigint,in.struct:struct<k:int>>" in plan


def _plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def _old_and_new(root, day, places=(IN_FILES, IN_FILES)):
    """A table of one row a day from `day` on, each in a row group of its own: (table, days)."""
    utc = pa.timestamp("us", tz="UTC")
    both = [("d", pa.date32()), ("ts", utc)]
    schema = pa.schema([("id", pa.int64()), ("at", utc), *both, ("st", pa.struct(both))])
    first = predicates.days(day)
    days = [first + number for number in range(12)]
    instants = [number * predicates.DAY_US + 5 for number in days]
    d, ts = pa.array(days, pa.int32()).cast(pa.date32()), pa.array(instants, utc)
    inside = pa.StructArray.from_arrays([d, ts], fields=list(schema.field("st").type))
    rows = pa.table([pa.array(range(12)), ts, d, ts, inside], schema=schema)
    table = Table.create(root, schema, time_column="at", granularity="year")
    for part, place in zip((rows.slice(0, 7), rows.slice(7)), places, strict=True):
        table.set_properties(place)
        append(table, part)
    return table, days


# Of each: the SQL, and which days pass, given the day that is asked for.
DAYS = {
    "{d} = {date}": lambda day, asked: day == asked,
    "{d} <=> {date}": lambda day, asked: day == asked,
    "{d} IN ({date}, DATE '0001-01-01')": lambda day, asked: day == asked,
    "{d} > {date}": lambda day, asked: day > asked,
    "{d} <= {date}": lambda day, asked: day <= asked,
    "NOT {d} = {date}": lambda day, asked: day != asked,
    "{ts} = {time}": lambda day, asked: day == asked,
    "{ts} < {time}": lambda day, asked: day < asked,
    "{ts} >= {time}": lambda day, asked: day >= asked,
    "{ts} IN ({time}, {time})": lambda day, asked: day == asked,
}
GAP = ("1582-10-05", "1582-10-10", "1582-10-14")


@pytest.mark.parametrize(
    "first", ["1582-10-04", pytest.param("2013-01-07", marks=pytest.mark.long)]
)
def test_days_that_the_hybrid_calendar_lacks_are_found(spark, tmp_path, monkeypatch, first):
    """Spark pushes dates and instants into Parquet in a calendar without 1582-10-05 to 14."""
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 1)
    table, days = _old_and_new(tmp_path / "table", first)
    whole = eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    frames, expected = {}, {}
    places = itertools.cycle([("d", "ts"), ("st.d", "at"), ("d", "st.ts")])
    for (said, passes), text in zip(DAYS.items(), itertools.cycle(GAP), strict=False):
        d, ts = next(places)
        time = f"TIMESTAMP '{text} 00:00:00.000005Z'"
        sql = said.format(d=d, ts=ts, date=f"DATE '{text}'", time=time)
        frames[sql] = whole.where(sql)
        asked = predicates.days(text)
        expected[sql] = [at for at, day in enumerate(days) if passes(day, asked)]
    for column in ("d", "at"):
        ours = f"{column} >= '1582-10-10'"
        frames[ours] = eventlog.readers.spark.read(spark, table.uri, where=ours, engine="jvm")
        expected[ours] = [at for at, day in enumerate(days) if day >= predicates.days("1582-10-10")]
    assert _ids(frames) == expected


def test_only_old_dates_and_instants_are_kept_from_parquet(spark, tmp_path):
    frames = {}
    for day in ("2013-01-07", "1582-10-04"):
        table, _ = _old_and_new(tmp_path / day, day)
        frames[day] = eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    for name, kind in (("at", "TIMESTAMP"), ("d", "DATE"), ("ts", "TIMESTAMP")):
        asked = f"{name} > {kind} '2013-01-08'"
        assert f"GreaterThan({name},2013-01-08" in _plan(frames["2013-01-07"].where(asked))
        assert "GreaterThan(" not in _plan(frames["1582-10-04"].where(asked))


# Characters that mean something to Hadoop, to Spark or in a URI.
ROOTS = [
    "a*b", "a?{b/b,c}d", "a[bc]d", "{", "]", "back\\slash", "a\\*[!b]", "co:lon", ".hidden/_",
    "comma, sp ace%20plus+ha#sh&a=1;ün'ï\n\"`",
]  # fmt: skip
NOT_FOR_HADOOP = ["co:lon*", "*/co:lon"]


@pytest.mark.long
@pytest.mark.hazard("W8")
def test_any_root_is_read_once(spark, tmp_path):
    """Each with several segments: of a root that passed for a pattern each brought all others."""
    schema = pa.schema([("id", pa.int64()), ("ts", predicates.SCHEMA.field("ts").type)])
    times = pa.array([n * predicates.DAY_US for n in range(3)], pa.int64())
    rows = pa.table([pa.array(range(3)), times.cast(schema.field("ts").type)], schema=schema)
    frames = {}
    # As with more than 32 segments: listed by a job, to which the paths travel as text.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "2")
    try:
        for name in (*ROOTS, *NOT_FOR_HADOOP):
            table = Table.create(
                tmp_path / "roots" / name, schema, time_column="ts", properties=IN_FILES
            )
            append(table, rows)
            assert len(table.session.head().segments()) == 3
            frames[name] = eventlog.readers.spark.read(spark, table.uri)
            assert ("FileScan parquet" in _plan(frames[name])) == (name in ROOTS)
            if name in NOT_FOR_HADOOP:
                with pytest.raises(InvalidInput, match=r"colon .* use engine='arrow'"):
                    eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    finally:
        spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.threshold")
    assert _ids(frames) == {name: [0, 1, 2] for name in frames}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A table of three commits whose second one has its rows, and the rows: (table, rows)."""
    table = Table.create(
        tmp_path_factory.mktemp("mixed") / "table", predicates.SCHEMA, time_column="ts",
        properties=IN_FILES,
    )  # fmt: skip
    rows = predicates.rows(random.Random(11), 75, TWO_DAYS)
    for first, kept in ((0, IN_FILES), (25, IN_COMMITS), (50, IN_FILES)):
        table.set_properties(kept)
        append(table, predicates.to_arrow(rows[first : first + 25]))
    totals = table.refresh().totals
    assert (totals.segments, totals.inline) == (6, 2)
    return table, rows


@pytest.mark.everyday
@pytest.mark.hazard("W5", "W14")
def test_rows_in_commits_come_beside_those_of_files(spark, mixed):
    table, rows = mixed
    expected = predicates.bits(predicates.to_arrow(rows))
    for engine in ENGINES:
        found = eventlog.readers.spark.read(spark, table.uri, engine=engine)
        assert predicates.bits(_to_arrow(found).sort_by("id")) == expected, engine
    assert "FileScan parquet" in _plan(eventlog.readers.spark.read(spark, table.uri, engine="jvm"))


def test_filters_reach_rows_in_files_and_in_commits(spark, mixed):
    table, rows = mixed
    whole = eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    frames = {text: whole.where(text) for text in FILTERS}
    expected = {
        text: [row["id"] for row in rows if holds(row) is True] for text, holds in FILTERS.items()
    }
    assert _ids(frames) == expected
    assert any(25 <= number < 50 for ids in expected.values() for number in ids)
    plan = _plan(whole.where("i32 > 3").select("text"))
    assert "ReadSchema: struct<i32:int,text:string>" in plan
    assert "PushedFilters: [IsNotNull(i32), GreaterThan(i32,3)]" in plan


def test_questions_of_files_and_commits_have_one_answer(spark, mixed):
    table, rows = mixed
    chance, _ = predicates.examples(3)
    asked = [predicates.ask(chance, plain=number % 3 > 0, depth=2) for number in range(8)]
    head = table.session.head()
    _check(rows, asked, _read(spark, table, head.version, asked, "jvm"))
    read = functools.partial(eventlog.readers.spark.read, spark, table.uri, engine="jvm")
    assert read(["text", "id"]).columns == ["text", "id"]
    assert read([]).count() == 75
    assert read(where="id < 0").collect() == []
    for where, engines in (("id >= 25 AND id < 50", "arrow"), ("id < 25", "jvm")):
        assert read(["id"], where).count() == 25
        part = "MapInArrow" in _plan(read(["id"], where))
        assert part == (engines == "arrow"), where


@pytest.mark.data_source
def test_the_data_source_reads_rows_in_commits_alone(spark, mixed, tmp_path):
    """As for a client of Spark Connect, whose files the JVM reads."""
    table, _ = mixed
    few = spark.read.format("eventlog").option("inlineOnly", "true")
    assert sorted(row.id for row in few.load(table.uri).collect()) == list(range(25, 50))
    keyed = Table.create(tmp_path / "keyed", pa.schema([("id", pa.int64())]), key="id")
    keyed.upsert(pa.table({"id": [1]}))
    with pytest.raises(Exception, match="inlineOnly is not for keyed tables"):
        few.load(keyed.uri).collect()


def test_days_of_old_calendars_are_found_in_files_and_in_commits(spark, tmp_path):
    table, days = _old_and_new(tmp_path / "table", "1582-10-04", (IN_FILES, IN_COMMITS))
    assert table.refresh().totals.inline == 1
    whole = eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    for text in GAP:
        asked = predicates.days(text)
        frames = {name: whole.where(f"{name} = DATE '{text}'") for name in ("d", "st.d")}
        assert _ids(frames) == {name: [days.index(asked)] for name in frames}


def test_what_the_jvm_cannot_read_may_stand_in_commits(spark, tmp_path):
    """Columns under older names, and deleted rows: `arrow` reads what has them."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = Table.create(tmp_path / "table", schema, properties=IN_COMMITS)
    table.append(pa.table({"id": range(4), "name": list("abcd")}))
    table.rename_column("name", "title")
    table.delete(where="id = 2")
    table.set_properties(IN_FILES)
    table.append(pa.table({"id": range(4, 6), "title": ["e", "f"]}))
    frame = eventlog.readers.spark.read(spark, table.uri, engine="jvm")
    assert sorted(map(tuple, frame.collect())) == list(zip([0, 1, 3, 4, 5], "abdef", strict=True))
    assert "FileScan parquet" in _plan(frame)
