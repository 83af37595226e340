"""A version as an Arrow dataset and as a lazy frame: pinned, picklable, read only where needed."""

import math
import pickle
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from support.builders import create, events

from eventlog import Table, errors
from eventlog.format import keys
from eventlog.readers import DataFile, dataset, files, lazy, scan
from eventlog.readers.engines.polars_filters import pushed_filter
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite, upsert

duckdb = pytest.importorskip("duckdb")
DAYS = 12


def plain(store=None):
    made = create(store)
    for day in range(DAYS):
        append(made, events(10, day=day, first=10 * day))
    return made


def keyed():
    made = create(key=("name", "at"), buckets=2, granularity="day")
    for day in (0, 1, 2, 1):
        upsert(made, events(10, day=day, first=10 * day))
    return made


@pytest.fixture(scope="module")
def table():
    return plain()


def ids(rows):
    return sorted(rows.column("name").to_pylist())


def test_a_dataset_stays_at_its_version_here_and_elsewhere():
    made = create()
    append(made, events(3))
    pinned, frame = dataset(made), lazy(made)
    append(made, events(2, first=3))
    assert pinned.version == 1
    for rows in (pinned, pickle.loads(pickle.dumps(pinned))):
        assert rows.to_table() == scan(made, version=1).to_table()
        assert rows.schema == scan(made, version=1).schema
    assert frame.collect().height == 3
    assert dataset(made, version=2).count_rows() == lazy(made, version=2).collect().height == 5


def test_every_method_of_pyarrow_s_datasets_answers_or_is_refused(table):
    rows = dataset(table)
    answered = {
        "schema": lambda: rows.schema,
        "partition_expression": lambda: rows.partition_expression,
        "scanner": lambda: rows.scanner(columns=["name"], use_threads=True).to_table(),
        "to_table": rows.to_table,
        "to_batches": lambda: list(rows.to_batches(batch_size=7)),
        "head": lambda: rows.head(3),
        "count_rows": rows.count_rows,
        "filter": lambda: rows.filter(pc.field("name") == "row 1"),
        "get_fragments": lambda: list(rows.get_fragments()),
    }
    for name in dir(ds.Dataset):
        if name in answered:
            assert answered[name]() is not None
        elif not name.startswith("__"):
            with pytest.raises(errors.InvalidInput, match="read it first, with to_table"):
                getattr(rows, name)()


def test_wrong_columns_and_filters_are_refused(table):
    rows = dataset(table)
    for columns, why in (["nix"], "unknown columns: 'nix'"), ({"a": pc.field("name")}, "are names"):
        with pytest.raises(errors.InvalidInput, match=why):
            rows.scanner(columns=columns)
    with pytest.raises(errors.InvalidInput, match="does not fit the table"):
        rows.to_table(filter=pc.field("nix") > 1)
    with pytest.raises(errors.InvalidInput, match="name the column"):
        rows.to_table(filter=pc.field(1) > 1)


def test_filters_of_a_dataset_add_up_and_keep_those_of_its_scan(table):
    rows = scan(table, ["name", "value"], where="value >= 20").to_dataset()
    assert rows.schema.names == ["name", "value"]
    some = rows.filter(pc.field("value") < 21)
    assert ids(some.to_table()) == ["row 40", "row 41"]
    assert some.to_table(filter=pc.field("name") == "row 41").num_rows == 1
    assert some.count_rows(pc.field("name") == "row 42") == 0
    fragments = list(some.get_fragments(pc.field("name") == "row 41"))
    assert sum(part.count_rows() for part in fragments) == 1
    assert sum(part.to_table(["value"]).num_rows for part in fragments) == 1
    more = [part.count_rows(filter=pc.field("value") > 30) for part in fragments]
    assert sum(more) == 0


@pytest.mark.parametrize("make", [plain, keyed])
def test_parts_have_the_rows_of_a_scan_between_them_in_its_order(make):
    made = make()
    whole = scan(made, where="value <> 7")
    for count in (1, 2, 5, 100):
        parts = [pickle.loads(pickle.dumps(part)) for part in whole.parts(count)]
        assert 1 <= len(parts) <= count
        assert pa.concat_tables(part.to_table() for part in parts) == whole.to_table()
        assert sum(part.count() for part in parts) == whole.count()
    assert len(whole.parts(3)) > 1
    fragments = list(dataset(made).get_fragments())
    assert pa.concat_tables(part.to_table() for part in fragments) == scan(made).to_table()
    assert len(scan(made, where="name = 'none'").parts(4)) == 1
    with pytest.raises(errors.InvalidInput, match="count"):
        whole.parts(0)


def test_a_nan_with_a_sign_is_the_ordinary_one_in_fragments():
    made = create()
    signed = pa.array([-math.nan, 1.0, None])
    append(made, pa.table([[0, 1, 2], ["a", "b", "c"], signed], schema=made.session.head().schema))
    (part,) = dataset(made).get_fragments()
    found = part.to_table(["value"]).column("value")
    assert math.copysign(1, found[0].as_py()) == 1
    assert found.to_pylist()[1:] == [1.0, None]


def test_a_query_reads_what_a_scan_reads():
    store = CountingStore(MemoryStore())
    plain(store)
    where = "name > 'row 2' AND \"at\" < '1970-01-06'"
    low, high = datetime(1970, 1, 3, tzinfo=UTC), datetime(1970, 1, 6, tzinfo=UTC)

    def by_duckdb(t):
        rows = dataset(t)  # noqa: F841 - DuckDB finds it
        text = f"SELECT name FROM rows WHERE \"at\" >= '{low}' AND {where}"
        return duckdb.sql(text).to_arrow_table()

    def by_polars(t):
        wanted = (pl.col("at").is_between(low, high, closed="left")) & (pl.col("name") > "row 2")
        return lazy(t).filter(wanted).select("name").collect().to_arrow()

    def by_arrow(t):
        wanted = (pc.field("at") >= low) & (pc.field("at") < high) & (pc.field("name") > "row 2")
        return dataset(t).to_table(["name"], wanted)

    def by_a_scan(t):
        return scan(t, ["name"], f"at >= '1970-01-03' AND {where}").to_table()

    def asked(ask):
        opened = Table.open(store.uri, store=store)
        with store.measure() as counts:
            found = ask(opened)
        return ids(found), counts.total, counts.bytes_read

    expected = asked(by_a_scan)
    assert len(expected[0]) == 30
    for ask in (by_duckdb, by_polars, by_arrow):
        assert asked(ask) == expected


def test_a_relation_of_a_scan_pushes_into_it():
    store = CountingStore(MemoryStore())
    made = plain(store)
    relation = scan(made).to_duckdb().filter("name = 'row 7'").select("value")
    with store.measure() as counts:
        assert relation.fetchall() == [(3.5,)]
    assert counts.total < DAYS


def test_a_row_limit_reads_the_first_segments_alone():
    store = CountingStore(MemoryStore())
    made = plain(store)
    delete(made, where="name < 'row 15'")  # rows of the first two days
    everything = scan(made).to_table()
    for ask in (
        lambda t: lazy(t).head(3).collect().to_arrow(),
        lambda t: dataset(t).head(3),
    ):
        with store.measure() as counts:
            rows = ask(made)
        assert ids(rows) == ids(everything.slice(0, 3))
        assert counts.total < DAYS
    assert lazy(made).head(0).collect().height == dataset(made).head(0).num_rows == 0
    assert lazy(made).head(10**6).collect().height == everything.num_rows
    assert lazy(made).filter(pl.col("value") > 30).head(4).collect().height == 4


def test_counts_of_all_rows_read_no_segment():
    store = CountingStore(MemoryStore())
    opened = plain(store)
    rows = dataset(opened)
    before = store.counts.total
    assert sum(batch.num_rows for batch in rows.scanner(columns=[]).to_batches()) == 120
    assert rows.count_rows() == 120
    assert store.counts.total == before


def test_a_lost_segment_is_an_error_for_engines_and_remembered():
    made = plain()
    rows = dataset(made)
    made.store.delete([keys.key_of(scan(made).plan.segments()[3])])
    with pytest.raises(Exception, match="missing"):
        duckdb.sql("SELECT count(value) FROM rows").fetchall()
    assert isinstance(rows.failures[0], errors.DataLoss)
    with pytest.raises(Exception, match="missing"):
        lazy(made).collect()


def test_a_table_without_rows_has_a_schema():
    made = create()
    assert dataset(made).to_table() == scan(made).to_table()
    assert duckdb.from_arrow(dataset(made)).fetchall() == []
    (part,) = dataset(made).get_fragments(pc.field("value") > 1)
    assert part.to_table(["name"]).num_rows == part.count_rows() == 0
    assert lazy(made).filter(pl.col("value") > 1).collect().schema == lazy(made).collect_schema()


POLARS = {
    "a comparison": (pl.col("value") > 3.0, pc.field("value") > 3.0),
    "mirrored": (pl.lit("b") <= pl.col("name"), pc.field("name") >= "b"),
    "a range": (
        pl.col("value").is_between(1.0, 2.0, closed="left"),
        (pc.field("value") >= 1.0) & (pc.field("value") < 2.0),
    ),
    "a lookup": (pl.col("name").is_in(["a", None]), pc.field("name").isin(["a"])),
    "a prefix": (
        pl.col("name").str.starts_with("ab"),
        (pc.field("name") >= "ab") & (pc.field("name") < "ac"),
    ),
    "null": (pl.col("name").is_null(), pc.field("name").is_null()),
    "not null": (pl.col("name").is_not_null(), pc.field("name").is_valid()),
    "parts of a conjunction": (
        (pl.col("name").str.len_chars() > 3) & (pl.col("value") == 1.0),
        pc.field("value") == 1.0,
    ),
    "a disjunction": (
        (pl.col("name") == "a") | (pl.col("value") != 1.0),
        (pc.field("name") == "a") | (pc.field("value") != 1.0),
    ),
    "half of a disjunction": (
        (pl.col("name") == "a") | (pl.col("name").str.len_chars() > 3),
        None,
    ),
    "every digit": (pl.col("value") == 2.1806994876862626, pc.field("value") == 2.1806994876862626),
    "a negation": (~pl.col("name").is_in(["a"]), None),
    "a function": (pl.col("value").abs() > 3, None),
    "NaN": (pl.col("value").gt(math.nan), None),
    "a lookup of floats": (pl.col("value").is_in([1.0]), None),
    "another type": (pl.col("name") > 3, None),
    "the last character": (pl.col("name").str.starts_with("\U0010ffff"), None),
}


@pytest.mark.parametrize("case", POLARS)
def test_polars_expressions_have_the_form_that_is_pushed(case):
    expression, expected = POLARS[case]
    found = pushed_filter(expression, create().session.head().schema)
    if case == "the last character":
        assert found.equals(pc.field("name") >= "\U0010ffff")
    elif expected is None:
        assert found is None
    else:
        assert found.equals(expected)


def test_a_predicate_that_is_known_in_part_is_applied_as_a_whole(table):
    known = pl.col("name") > "row 5"
    found = lazy(table).filter(known & (pl.col("name").str.len_chars() == 5)).select("name")
    assert sorted(found.collect()["name"]) == [f"row {n}" for n in range(6, 10)]


def test_a_form_of_polars_that_is_not_known_pushes_nothing(table, monkeypatch):
    monkeypatch.setattr(
        "eventlog.readers.engines.polars_filters.json.loads", lambda _: {"New": ["form"]}
    )
    assert lazy(table).filter(pl.col("value") > 58.0).collect().height == 3


def test_files_of_a_version_have_its_rows(tmp_path):
    made = Table.create(tmp_path / "t x", events(1).schema, time_column="at")
    for day in range(3):
        append(made, events(4, day=day, first=4 * day))
    listed = files(made)
    assert [(file.rows, file.chunk) for file in listed] == [
        (4, f"1970-01-0{day}") for day in (1, 2, 3)
    ]
    assert isinstance(listed[0], DataFile)
    assert "%20" in listed[0].uri
    read = pl.scan_parquet([file.uri.replace("%20", " ") for file in listed]).collect()
    assert sorted(read["name"]) == ids(scan(made).to_table())
    assert len(files(made, where="value = 5.5")) == 1
    assert len(files(str(tmp_path / "t x"), version=1)) == 1


def test_files_that_would_mislead_are_refused():
    deleted, renamed, wider = plain(), plain(), plain()
    delete(deleted, where="name = 'row 7'")
    renamed.rename_column("name", "title")
    wider.add_columns([pa.field("more", pa.int8())])
    for made, why in (
        (deleted, "deletion vectors"),
        (keyed(), "merge the rows of a key"),
        (renamed, "finds columns by name"),
        (wider, "before those were added"),
    ):
        with pytest.raises(errors.InvalidInput, match=f"{why}.*read version"):
            files(made)
    assert len(files(deleted, version=3)) == 3


def test_files_are_listed_again_once_all_rows_were_written_again(tmp_path):
    made = Table.create(tmp_path, events(1).schema, time_column="at")
    for day in range(3):
        append(made, events(4, day=day, first=4 * day))
    made.rename_column("name", "title")
    seen = made.refresh().version
    overwrite(made, scan(made), read_version=seen)
    made.add_check("nonnegative", "value >= 0")  # a schema of its own, with the same columns
    read = pl.read_parquet([file.uri for file in files(made)])
    assert sorted(read["title"]) == sorted(scan(made).to_table()["title"].to_pylist())
    with pytest.raises(errors.InvalidInput, match="finds columns by name"):
        files(made, version=seen)
    made.add_columns([pa.field("more", pa.int8())])
    with pytest.raises(errors.InvalidInput, match="before those were added"):
        files(made)
    made.rename_column("title", "name")
    with pytest.raises(errors.InvalidInput, match="finds columns by name"):
        files(made)
