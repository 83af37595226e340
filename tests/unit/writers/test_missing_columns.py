"""What a caller leaves out erases nothing: columns that rows lack, by every way in."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.writers import append, delete, overwrite, upsert

AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("mail", pa.string()),
    ]
)
FULL = pa.table({"id": [1, 2], "at": [AT, AT], "n": [1, 2], "mail": ["a", "b"]}, schema=SCHEMA)
NARROW = FULL.select(["id", "at", "n"]).slice(0, 1)
ERASING = ("last", "first")


@pytest.fixture
def table(tmp_path):
    def make(rule="last", **options):
        options = {"key": "id", "properties": {"merge": rule}} | options
        if not options["key"]:
            options = {}
        t = Table.create(tmp_path / "t", SCHEMA, time_column="at", **options)
        append(t, FULL)
        return t

    return make


def mails(t):
    rows = sorted(scan(t).to_table().to_pylist(), key=lambda row: row["id"])
    return [row["mail"] for row in rows]


def program(verb, t, *arguments):
    return CliRunner().invoke(build(), [verb, t.uri, *map(str, arguments)])


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("rule", ERASING)
@pytest.mark.parametrize("write", [upsert, append])
def test_an_upsert_that_lacks_a_column_is_refused(rule, write, table):
    t = table(rule)
    with pytest.raises(
        InvalidInput, match=rf"'mail' is missing: under merge={rule}.*`partial`"
    ) as e:
        write(t, NARROW)
    assert "missing='null'" in e.value.message
    assert "--missing null" in e.value.message
    assert t.refresh().version == 1
    assert mails(t) == ["a", "b"]


@pytest.mark.hazard("W15")
def test_null_is_written_where_it_is_asked_for(table):
    t = table("last")
    upsert(t, NARROW, missing="null")
    assert mails(t) == [None, "b"]
    append(t, FULL)
    append(t, NARROW, missing="null")
    assert mails(t) == [None, "b"]
    upsert(t, FULL.set_column(3, "mail", pa.nulls(2)))  # a column that is given counts as given
    assert mails(t) == [None, None]
    with pytest.raises(InvalidInput, match="missing must be one of null"):
        upsert(t, NARROW, missing="keep")


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("rule", ["partial", "aggregate"])
def test_rules_under_which_null_erases_nothing_take_rows_that_lack_columns(rule, table):
    t = table(rule)
    upsert(t, NARROW)
    assert mails(t) == ["a", "b"]


@pytest.mark.hazard("W15")
def test_a_column_that_was_added_is_not_left_out_unnoticed(table):
    t = table("last")
    t.add_columns(t.head().schema.append(pa.field("late", pa.int64())))
    with pytest.raises(InvalidInput, match="'late' is missing"):
        upsert(t, FULL)
    upsert(t, FULL, missing="null")
    assert mails(t) == ["a", "b"]


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("rule", ERASING)
def test_deletes_need_a_key_only(rule, table):
    t = table(rule)
    upsert(t, NARROW.select(["id", "at"]).append_column("_op", pa.array(["d"])))
    assert mails(t) == ["b"]
    delete(t, keys=pa.table({"id": [2]}))
    assert mails(t) == []


@pytest.mark.hazard("W15")
def test_upserts_among_deletes_need_all_columns(table):
    t = table("last")
    mixed = NARROW.append_column("_op", pa.array([None], pa.string()))
    mixed = pa.concat_tables([mixed, mixed.set_column(3, "_op", pa.array(["d"]))])
    with pytest.raises(
        InvalidInput, match=r"'mail': 1 upserts lack it; under merge=last.*row id=1"
    ):
        upsert(t, mixed)
    assert t.refresh().version == 1
    upsert(t, mixed, missing="null")
    assert mails(t) == ["b"]


@pytest.mark.hazard("W15")
def test_appended_rows_of_a_table_without_a_key_are_null(table):
    t = table(key=())
    append(t, NARROW)
    assert mails(t).count(None) == 1
    append(t, NARROW, missing="null")
    assert mails(t).count(None) == 2


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("key", ["id", ()])
def test_rows_that_replace_others_have_all_columns(key, table):
    t = table(key=key)
    with pytest.raises(InvalidInput, match="'mail' is missing, so its values in the rows"):
        overwrite(t, NARROW)
    with pytest.raises(InvalidInput, match="'n', 'mail' is missing"):
        overwrite(t, NARROW.select(["id", "at"]))
    assert mails(t) == ["a", "b"]
    overwrite(t, NARROW, missing="null")
    assert mails(t) == [None]


@pytest.mark.hazard("W15")
def test_an_overwrite_that_replaces_nothing_is_an_append(table):
    t = table(key=())
    later = NARROW.set_column(1, "at", pa.array([AT + dt.timedelta(days=40)], SCHEMA.field(1).type))
    overwrite(t, later, start="2024-02-01T00:00Z")
    assert mails(t).count(None) == 1


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ROW = {"id": 1, "at": "2024-01-01T00:00:00Z", "n": 5, "mail": "c"}
BARE = {name: value for name, value in ROW.items() if name != "mail"}


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("verb", ["upsert", "append"])
@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_a_file_that_lacks_a_column_is_refused_by_name(form, verb, table, tmp_path):
    t = table("last")
    path = tmp_path / f"rows.{form}"
    if form == "csv":
        path.write_text("id,at,n\n1,2024-01-01T00:00:00Z,5\n")
    elif form == "parquet":
        pq.write_table(NARROW, path)
    else:
        with pa.ipc.new_file(path, NARROW.schema) as sink:
            sink.write_table(NARROW)
    answer = program(verb, t, path)
    assert answer.exit_code == 2
    assert "'mail' is missing" in answer.stderr
    assert path.name in answer.stderr
    assert mails(t) == ["a", "b"]
    assert program(verb, t, path, "--missing", "null").exit_code == 0
    assert mails(t) == [None, "b"]


@pytest.mark.hazard("W15")
def test_one_file_of_a_folder_that_lacks_a_column_is_refused(table, tmp_path):
    t = table("last")
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(FULL, folder / "a.parquet")
    pq.write_table(NARROW, folder / "b.parquet")
    answer = program("upsert", t, folder)
    assert answer.exit_code == 2
    assert "b.parquet: column 'mail' is missing" in answer.stderr
    assert program("upsert", t, folder, "--missing", "null").exit_code == 0
    assert mails(t) == [None, "b"]


@pytest.mark.hazard("W15")
def test_a_file_of_deletes_in_a_folder_needs_keys_only(table, tmp_path):
    t = table("last")
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(FULL, folder / "a.parquet")
    gone = NARROW.select(["id", "at"]).append_column("_op", pa.array(["d"]))
    pq.write_table(gone, folder / "b.parquet")
    assert program("upsert", t, folder).exit_code == 0
    assert mails(t) == ["b"]
    mixed = NARROW.append_column("_op", pa.array(["u"]))
    pq.write_table(mixed, folder / "c.parquet")
    answer = program("upsert", t, folder)
    assert answer.exit_code == 2
    assert "c.parquet: column 'mail' is missing" in answer.stderr


@pytest.mark.hazard("W15")
def test_a_column_in_the_path_is_not_left_out(table, tmp_path):
    t = table("last")
    for form, text in (("csv", "id,at,n\n1,2024-01-01T00:00:00Z,5\n"), ("json", None)):
        folder = tmp_path / form / f"mail={form}"
        folder.mkdir(parents=True)
        path = folder / f"rows.{form}"
        path.write_text(text) if text else lines(path, BARE)
        answer = program("upsert", t, tmp_path / form)
        assert answer.exit_code == 0, answer.output
        assert mails(t) == [form, "b"]


@pytest.mark.hazard("W15")
def test_an_object_that_lacks_a_field_is_refused_and_null_is_not(table, tmp_path):
    t = table("last")
    path = lines(tmp_path / "rows.json", ROW, BARE)
    answer = program("upsert", t, path)
    assert answer.exit_code == 2
    assert "line 2 has no 'mail'" in answer.stderr
    assert mails(t) == ["a", "b"]
    assert program("upsert", t, path, "--missing", "null").exit_code == 0
    assert mails(t) == [None, "b"]
    lines(path, ROW, {"id": 2, "at": ROW["at"], "_op": "d"})
    assert program("upsert", t, path).exit_code == 0
    assert mails(t) == ["c"]
    lines(path, ROW | {"mail": None})
    assert program("upsert", t, path).exit_code == 0
    assert mails(t) == [None]


@pytest.mark.hazard("W15")
def test_objects_that_lack_a_field_keep_its_value_under_partial(table, tmp_path):
    t = table("partial")
    assert program("upsert", t, lines(tmp_path / "rows.json", BARE)).exit_code == 0
    assert mails(t) == ["a", "b"]


@pytest.mark.hazard("W15")
def test_appends_without_a_key_take_objects_that_lack_fields(table, tmp_path):
    t = table(key=())
    assert program("append", t, lines(tmp_path / "rows.json", BARE)).exit_code == 0
    assert mails(t).count(None) == 1


@pytest.mark.hazard("W15")
def test_properties_that_are_left_out_stay(table):
    t = table("last")
    t.set_properties({"user.a": "1", "user.b": "2"})
    t.set_properties({"user.b": "3"})
    assert {n: v for n, v in t.head().properties.items() if n.startswith("user.")} == {
        "user.a": "1",
        "user.b": "3",
    }


@pytest.mark.hazard("W15")
def test_a_delete_of_nothing_in_particular_is_refused(table):
    t = table("last")
    for call in ({}, {"where": ""}, {"keys": pa.table({"n": [1]})}):
        with pytest.raises(InvalidInput):
            delete(t, **call)
    assert mails(t) == ["a", "b"]


@pytest.mark.hazard("W15")
def test_columns_that_are_left_out_of_add_columns_stay(table):
    t = table("last")
    t.add_columns(pa.schema([*list(SCHEMA)[:3], pa.field("more", pa.int64())]))
    assert t.head().schema.names == [*SCHEMA.names, "more"]
