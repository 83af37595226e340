"""Writers whose rows have more columns, wider types or other capitals than the table."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.builders import SCHEMA, create, events

from eventlog import errors
from eventlog.cli.program import build
from eventlog.keyed.rule import OP
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete, merge, overwrite, update, upsert

KEYED = pa.schema([("at", SCHEMA.field("at").type), ("id", pa.int16()), ("name", pa.string())])


def wide(count=1, first=0):
    """Rows with one more column."""
    return events(count, first=first).append_column("more", pa.array([2**40] * count))


def keyed(**options):
    return create(schema=KEYED, key="id", granularity="all", buckets=2, **options)


WRITES = {
    "append": append,
    "overwrite": overwrite,
    "overwrite where": lambda t, rows, **more: overwrite(t, rows, where="name = 'row 0'", **more),
    "merge": lambda t, rows, **more: merge(t, rows, "name", **more),
}


@pytest.mark.parametrize("verb", WRITES)
def test_each_writing_verb_evolves_the_table_where_asked(verb):
    table = create()
    append(table, events(2))
    before = table.session.head().version
    with pytest.raises(errors.InvalidInput, match="'more'"):
        WRITES[verb](table, wide())
    assert table.refresh().version == before
    WRITES[verb](table, wide(), evolve=True)
    found = scan(table, where="name = 'row 0' and more = 1099511627776").to_table()
    assert found.num_rows == 1
    assert table.session.head().schema.names == [*SCHEMA.names, "more"]


@pytest.mark.parametrize("verb", ["append", "overwrite", "merge"])
def test_a_unit_of_work_that_is_done_changes_no_column(verb):
    table = create()
    append(table, events(1), app_id="a", app_seq=1)
    version = table.session.head().version
    WRITES[verb](table, wide(), evolve=True, app_id="a", app_seq=1)
    assert table.refresh().version == version


def test_upserts_evolve_the_table_and_their_operation_is_no_column():
    table = keyed()
    upsert(table, pa.table([[0], [1], ["a"]], schema=KEYED))
    rows = pa.table(
        {"at": [0, 0], "id": [1, 70_000], "name": ["b", "c"], "w": [1, 2], OP: ["d", "u"]}
    )
    types = [
        KEYED.field("at"),
        ("id", pa.int32()),
        KEYED.field("name"),
        ("w", pa.int8()),
        (OP, pa.string()),
    ]
    upsert(table, rows.cast(pa.schema(types)), evolve=True)
    assert table.session.head().schema.names == [*KEYED.names, "w"]
    assert scan(table, ["id", "w"]).to_table().to_pylist() == [{"id": 70_000, "w": 2}]


def test_a_dry_run_changes_no_column():
    table = create()
    append(table, events(1))
    for write in (
        lambda: overwrite(table, wide(), evolve=True, dry_run=True),
        lambda: merge(table, wide(), "name", evolve=True, dry_run=True),
    ):
        with pytest.raises(errors.InvalidInput, match="a dry run does not"):
            write()
    assert table.refresh().schema == SCHEMA


def test_a_merge_of_values_by_column_does_not_evolve():
    table = create()
    append(table, events(1))
    values = {"value": "source.more"}
    with pytest.raises(errors.InvalidInput, match="add the columns first"):
        merge(table, wide(), "name", when_matched=values, evolve=True)


# --- capitals -------------------------------------------------------------------------------------


def upper(rows):
    return rows.rename_columns([name.upper() for name in rows.column_names])


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize("verb", WRITES)
def test_columns_of_rows_are_those_of_the_table_in_any_capitals(verb, evolve):
    table = create()
    append(table, events(1))
    WRITES[verb](table, upper(events(1)), evolve=evolve)
    assert table.refresh().schema == SCHEMA
    assert {*scan(table, ["name"]).to_table()["name"].to_pylist()} == {"row 0"}


def test_the_columns_to_match_and_those_to_set_have_any_capitals():
    table = create()
    append(table, events(2))
    merge(table, upper(events(1)), ["NaMe"], when_matched={"VALUE": "Source.value + 7"})
    update(table, {"Value": "VALUE + 1"}, "NAME = 'row 0'")
    found = scan(table, ["name", "value"]).to_table().to_pylist()
    assert min(found, key=lambda row: row["name"]) == {"name": "row 0", "value": 8.0}


def test_keys_have_any_capitals():
    table = keyed()
    upsert(table, upper(pa.table([[0, 0], [1, 2], ["a", "b"]], schema=KEYED)))
    delete(table, keys=pa.table({"ID": pa.array([1], pa.int16())}))
    assert scan(table, ["id"]).to_table()["id"].to_pylist() == [2]


def test_one_column_in_two_spellings_is_refused():
    table = create()
    twice = events(1).append_column("NAME", pa.array(["x"]))
    with pytest.raises(errors.InvalidInput, match="two columns 'name'"):
        append(table, twice)
    with pytest.raises(errors.InvalidInput, match="two columns 'name'"):
        append(table, twice, evolve=True)


def test_columns_are_changed_by_names_in_any_capitals():
    table = create()
    table.reorder_columns(["VALUE"])
    table.rename_column("NAME", "Title")
    table.drop_columns(["Value"])
    assert table.session.head().schema.names == ["at", "Title"]


# --- the shell ------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(build(), [str(a) for a in arguments])


@pytest.fixture
def stored(tmp_path):
    table = create(LocalStore(tmp_path / "t"))
    append(table, events(2))
    pq.write_table(wide(), tmp_path / "wide.parquet")
    return table, tmp_path / "wide.parquet"


@pytest.mark.parametrize(
    "words",
    [
        ("append",),
        ("overwrite",),
        ("overwrite", "--where", "name = 'row 0'"),
        ("merge-rows", "--on", "NAME"),
    ],
)
def test_the_shell_evolves_the_table_where_asked(stored, words):
    table, path = stored
    verb, *options = words
    refused = run(verb, table.uri, path, *options)
    assert refused.exit_code == 2
    assert "unknown columns: 'more'" in refused.output
    done = run(verb, table.uri, path, *options, "--evolve")
    assert done.exit_code == 0, done.output
    assert table.refresh().schema.names == [*SCHEMA.names, "more"]
    assert scan(table, where="more is not null").count() == 1


def test_the_shell_says_what_cannot_evolve(stored, tmp_path):
    table, path = stored
    (tmp_path / "a.csv").write_text("at,name,value,more\n2013-01-07,x,1,2\n")
    for words, why in (
        (("append", table.uri, tmp_path / "a.csv"), "files whose columns have types"),
        (("append", table.uri, "-"), "standard input can be read only once"),
        (("overwrite", table.uri, path, "--dry-run"), "a dry run does not do"),
        (
            ("merge-rows", table.uri, path, "--on", "name", "--set", "value = 1"),
            "--set or --evolve",
        ),
    ):
        refused = run(*words, "--evolve")
        assert refused.exit_code == 2
        assert why in refused.output.replace("\n", " ")
    assert table.refresh().schema == SCHEMA


def test_files_have_columns_in_any_capitals(stored, tmp_path):
    table, _ = stored
    pq.write_table(upper(events(1)), tmp_path / "upper.parquet")
    done = run("append", table.uri, tmp_path / "upper.parquet")
    assert done.exit_code == 0, done.output
    assert scan(table).count() == 3
    (tmp_path / "upper.csv").write_text("at,Name,value\n2013-01-07,x,1\n")
    assert "the table spells it 'name'" in run("append", table.uri, tmp_path / "upper.csv").output


# --- structs that lack fields ---------------------------------------------------------------------

CITY = pa.struct([("city", pa.string())])
FULL = {"city": "Oslo", "street": None}
NESTED = {
    "struct": (CITY, ["s"], {"city": "Oslo"}, FULL),
    "struct in a struct": (
        pa.struct([("in", CITY)]), ["s", "in"], {"in": {"city": "Oslo"}}, {"in": FULL},
    ),
    "struct in a list": (
        pa.list_(CITY), ["s", "element"], [{"city": "Oslo"}, None], [FULL, None],
    ),
    "struct in a map": (
        pa.map_(pa.string(), CITY), ["s", "value"], [("a", {"city": "Oslo"})], [("a", FULL)],
    ),
}  # fmt: skip


def with_struct(kind, value):
    return events(1).append_column("s", pa.array([value], kind))


def addresses(**options):
    """A table whose structs got a field."""
    table = create(schema=SCHEMA.append(pa.field("s", CITY)), **options)
    table.add_columns([pa.field("street", pa.string())], within=["s"])
    return table


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize("verb", ["append", "overwrite"])
@pytest.mark.parametrize("case", NESTED)
def test_a_writer_of_new_rows_goes_on_whose_structs_lack_a_field(case, verb, evolve):
    kind, within, value, wanted = NESTED[case]
    table = create(schema=SCHEMA.append(pa.field("s", kind)))
    table.add_columns([pa.field("street", pa.string())], within=within)
    WRITES[verb](table, with_struct(kind, value), evolve=evolve)
    assert scan(table, ["s"]).to_table()["s"].to_pylist() == [wanted]


def test_a_struct_that_is_null_stays_null():
    table = addresses()
    append(table, with_struct(CITY, None))
    assert scan(table, ["s"]).to_table()["s"].to_pylist() == [None]


MISFITS = {
    "another field": ([("zip", pa.string())], "field 'zip' of column 's' is unknown"),
    "another type": ([("city", pa.int8())], "field 'city' of column 's' has type int8, and string"),
    "two of one name": ([("city", pa.string())] * 2, "column 's' has two fields of one name"),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("case", MISFITS)
def test_a_field_that_does_not_fit_is_refused_by_name(case, verb):
    fields, message = MISFITS[case]
    table = addresses()
    append(table, with_struct(CITY, {"city": "Oslo"}))
    version = table.session.head().version
    kind = pa.struct(fields)
    with pytest.raises(errors.InvalidInput, match=message):
        WRITES[verb](table, with_struct(kind, {fields[0][0]: None}))
    assert table.refresh().version == version


# --- columns that were added for rows that are refused --------------------------------------------


@pytest.mark.parametrize("verb", WRITES)
def test_no_column_is_added_for_rows_whose_types_are_refused(verb):
    table = create()
    version = table.session.head().version
    texts = wide().set_column(wide().column_names.index("value"), "value", pa.array(["x"]))
    for rows in (texts, wide().drop_columns(["at"])):
        with pytest.raises(errors.InvalidInput) as caught:
            WRITES[verb](table, rows, evolve=True)
        assert "new columns" not in str(caught.value)
    assert table.refresh().version == version


def test_a_merge_that_inserts_nothing_evolves_without_the_event_time():
    table = create()
    append(table, events(1))
    rows = wide().drop_columns(["at"])
    merge(table, rows, "name", when_not_matched="ignore", evolve=True)
    assert scan(table, ["more"]).to_table()["more"].to_pylist() == [2**40]


@pytest.mark.parametrize("verb", WRITES)
def test_rows_that_are_refused_say_which_version_has_their_columns(verb):
    table = create()
    version = table.session.head().version
    rows = wide()
    rows = rows.set_column(0, "at", pa.array([2**62], pa.timestamp("us", "UTC")))
    told = f"no row was committed, but version {version + 1} has the new columns"
    with pytest.raises(errors.InvalidInput, match=told) as caught:
        WRITES[verb](table, rows, evolve=True)
    assert "nothing was committed" not in str(caught.value)
    assert table.refresh().version == version + 1
    assert table.session.head().schema.names == [*SCHEMA.names, "more"]
    with pytest.raises(errors.InvalidInput) as again:
        WRITES[verb](table, rows, evolve=True)
    assert "new columns" not in str(again.value)


# --- files that are refused after their columns were added ----------------------------------------


@pytest.mark.parametrize("words", [("append",), ("overwrite",), ("merge-rows", "--on", "name")])
def test_the_shell_says_which_version_has_the_columns_of_refused_files(stored, tmp_path, words):
    table, _ = stored
    version, (verb, *options) = table.session.head().version, words
    rows = wide().set_column(0, "at", pa.array([2**62], pa.timestamp("us", "UTC")))
    pq.write_table(rows, tmp_path / "late.parquet")
    refused = run(verb, table.uri, tmp_path / "late.parquet", *options, "--evolve")
    assert refused.exit_code == 2
    told = f"no row was committed, but version {version + 1} has the new columns"
    assert told in " ".join(refused.output.split())


def test_the_shell_adds_the_columns_of_all_files_in_one_commit(stored, tmp_path):
    table, path = stored
    version = table.session.head().version
    more = events(1, first=1).append_column("other", pa.array([1], pa.int8()))
    pq.write_table(more, tmp_path / "b.parquet")
    wider = more.set_column(more.column_names.index("other"), "other", pa.array([2**40]))
    pq.write_table(wider, tmp_path / "c.parquet")
    files = [path, tmp_path / "b.parquet", tmp_path / "c.parquet"]
    done = run("append", table.uri, *files, "--evolve")
    assert done.exit_code == 0, done.output
    assert table.refresh().version == version + 2
    assert table.session.head().schema.names == [*SCHEMA.names, "more", "other"]
    found = scan(table, ["more", "other"], where="more is not null or other is not null")
    wanted = [{"more": 2**40, "other": None}, {"more": None, "other": 1}]
    assert found.to_table().to_pylist() == [*wanted, {"more": None, "other": 2**40}]


def test_no_column_of_any_file_is_added_if_one_is_refused(stored, tmp_path):
    table, path = stored
    version = table.session.head().version
    texts = wide().set_column(wide().column_names.index("value"), "value", pa.array(["x"]))
    pq.write_table(texts, tmp_path / "texts.parquet")
    refused = run("append", table.uri, path, tmp_path / "texts.parquet", "--evolve")
    assert refused.exit_code == 2
    assert "texts.parquet: column 'value' has type string" in " ".join(refused.output.split())
    assert table.refresh().version == version
