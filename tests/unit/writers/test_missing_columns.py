"""What a caller leaves out erases nothing: columns and fields that rows lack, by every way in."""

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
from eventlog.writers import append, delete, merge, overwrite, upsert

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
    t.add_columns(t.session.head().schema.append(pa.field("late", pa.int64())))
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
    with pytest.raises(InvalidInput, match="'mail' is missing, so values in the rows"):
        overwrite(t, NARROW)
    with pytest.raises(InvalidInput, match="columns 'n', 'mail' are missing"):
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
    assert {n: v for n, v in t.session.head().properties.items() if n.startswith("user.")} == {
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
    assert t.session.head().schema.names == [*SCHEMA.names, "more"]


# --- fields of structs ----------------------------------------------------------------------------

CITY = pa.struct([("city", pa.string())])
ADDRESS = pa.struct([*CITY, ("street", pa.string())])
TEXT = pa.string()
# The type of rows that lack a field, the table's, a value of each, and the field as errors name it.
SHAPES = {
    "struct": (CITY, ADDRESS, {"city": "b"}, {"city": "a", "street": "x"}, "street"),
    "struct in a struct": (
        pa.struct([("in", CITY)]), pa.struct([("in", ADDRESS)]),
        {"in": {"city": "b"}}, {"in": {"city": "a", "street": "x"}}, "in.street",
    ),
    "struct in a list": (
        pa.list_(CITY), pa.list_(ADDRESS),
        [{"city": "b"}], [{"city": "a", "street": "x"}], "element.street",
    ),
    "struct in a map": (
        pa.map_(TEXT, CITY), pa.map_(TEXT, ADDRESS),
        [("k", {"city": "b"})], [("k", {"city": "a", "street": "x"})], "value.street",
    ),
}  # fmt: skip


class Homes:
    """A table of one row with structs in its column `s`, and a row of its id that lacks a field."""

    def __init__(self, path, shape, rule=None):
        narrow, whole, self.value, self.stored, self.field = SHAPES[shape]
        options = {"key": "id", "properties": {"merge": rule}} if rule else {}
        schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("at"), ("s", whole)])
        self.t = Table.create(path / "t", schema, time_column="at", **options)
        append(self.t, pa.table([[1], [AT], [self.stored]], schema=schema))
        self.rows = pa.table([[1], [AT], [self.value]], schema=schema.set(2, pa.field("s", narrow)))

    def refused(self, write, *more):
        version = self.t.session.head().version
        name = f"field '{self.field}' of column 's'"
        with pytest.raises(InvalidInput, match=name) as caught:
            write(self.t, self.rows, *more)
        assert self.t.refresh().version == version
        return caught.value.message

    def found(self):
        return scan(self.t, ["s"]).to_table()["s"].to_pylist()

    def nulled(self):
        """The value of the rows, as the table has it where the field is null."""
        return pa.array([self.value], self.rows["s"].type).cast(
            self.t.session.head().schema.field("s").type
        )


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("rule", ["last", "first", "partial", "aggregate"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_upsert_whose_structs_lack_a_field_is_refused_under_every_rule(shape, rule, tmp_path):
    homes = Homes(tmp_path, shape, rule)
    for write in (upsert, append):
        assert "missing='null'" in homes.refused(write)
    assert homes.found() == [homes.stored]
    upsert(homes.t, homes.rows, missing="null")
    kept = rule == "first"
    assert homes.found() == [homes.stored] if kept else homes.nulled().to_pylist()


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_that_replace_others_have_all_fields(shape, tmp_path):
    homes = Homes(tmp_path, shape)
    seen = homes.t.session.head().version
    for options in ({}, {"where": "id = 1"}, {"read_version": seen}):
        homes.refused(lambda t, rows, options=options: overwrite(t, rows, **options))
    assert homes.found() == [homes.stored]
    overwrite(homes.t, homes.rows, missing="null")
    assert homes.found() == homes.nulled().to_pylist()


@pytest.mark.hazard("W15")
def test_upserts_among_deletes_need_all_fields(tmp_path):
    homes = Homes(tmp_path, "struct", "partial")
    rows = homes.rows
    homes.rows = rows.append_column("_op", pa.array([None], TEXT))
    assert "1 upserts lack its field 'street'" in _message(upsert, homes.t, homes.rows)
    upsert(homes.t, rows.append_column("_op", pa.array(["d"])))
    assert homes.found() == []


def _message(write, *given):
    with pytest.raises(InvalidInput) as caught:
        write(*given)
    return caught.value.message


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("shape", ["struct", "struct in a struct"])
def test_a_merge_keeps_the_fields_that_its_structs_lack(shape, tmp_path):
    homes = Homes(tmp_path, shape)
    new = homes.rows.set_column(0, "id", pa.array([2]))
    nothing = homes.rows.set_column(2, "s", pa.nulls(1, homes.rows["s"].type))
    merge(homes.t, pa.concat_tables([homes.rows, new]), "id")
    kept = {"city": "b", "street": "x"}
    kept = {"in": kept} if shape != "struct" else kept
    assert scan(homes.t, ["s"], "id = 1").to_table()["s"].to_pylist() == [kept]
    assert scan(homes.t, ["s"], "id = 2").to_table()["s"].to_pylist() == homes.nulled().to_pylist()
    merge(homes.t, nothing, "id")  # a null that is given is one
    assert scan(homes.t, ["s"], "id = 1").to_table()["s"].to_pylist() == [None]
    merge(homes.t, homes.rows, "id")
    assert scan(homes.t, ["s"], "id = 1").to_table()["s"].to_pylist() == homes.nulled().to_pylist()


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("shape", ["struct in a list", "struct in a map"])
def test_a_merge_is_refused_whose_elements_lack_a_field(shape, tmp_path):
    homes = Homes(tmp_path, shape)
    homes.refused(merge, "id")
    homes.refused(lambda t, rows: merge(t, rows, "id", when_matched={"s": "source.s"}))
    merge(homes.t, homes.rows, "id", when_matched={"id": "source.id"})
    new = homes.rows.set_column(0, "id", pa.array([2]))
    merge(homes.t, new, "id", when_matched="ignore")
    assert scan(homes.t, ["s"], "id = 2").to_table()["s"].to_pylist() == homes.nulled().to_pylist()


@pytest.mark.hazard("W15")
def test_a_batch_lacks_no_field_that_its_stream_has(tmp_path):
    homes = Homes(tmp_path, "struct")
    rows = homes.rows.to_batches()
    stream = pa.RecordBatchReader.from_batches(homes.t.session.head().schema, rows)
    assert "every batch the same fields" in _message(append, homes.t, stream)


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["parquet", "json"])
@pytest.mark.parametrize("rule", ["last", "partial", None])
def test_a_file_whose_structs_lack_a_field_is_refused(rule, form, shape, tmp_path):
    homes = Homes(tmp_path, shape, rule)
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        pq.write_table(homes.rows, path)
    else:
        value = dict(homes.value) if shape == "struct in a map" else homes.value
        lines(path, {"id": 1, "at": ROW["at"], "s": value})
    verb = "upsert" if rule else "overwrite"
    answer = program(verb, homes.t, path)
    assert answer.exit_code == 2
    assert f"field '{homes.field}' of column 's'" in " ".join(answer.stderr.split())
    assert homes.found() == [homes.stored]
    assert program(verb, homes.t, path, "--missing", "null").exit_code == 0
    assert homes.found() == homes.nulled().to_pylist()


@pytest.mark.hazard("W15")
def test_files_that_are_merged_lack_the_same_fields(tmp_path):
    homes = Homes(tmp_path, "struct")
    other = homes.rows.set_column(0, "id", pa.array([2]))
    pq.write_table(homes.rows, tmp_path / "a.parquet")
    pq.write_table(other, tmp_path / "b.parquet")
    large = pa.struct([("city", pa.large_string())])
    whole = homes.t.session.head().schema
    for misfit in (other.set_column(2, "s", other["s"].cast(large)), other.cast(whole)):
        pq.write_table(misfit, tmp_path / "c.parquet")
        files = (tmp_path / "a.parquet", tmp_path / "c.parquet")
        answer = program("merge-rows", homes.t, *files, "--on", "id")
        assert answer.exit_code == 2
        assert "s (struct<city: string>): in rows" in " ".join(answer.stderr.split())
    files = (tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert program("merge-rows", homes.t, *files, "--on", "id").exit_code == 0
    found = scan(homes.t, ["s"], "id = 1").to_table()["s"].to_pylist()
    assert found == [{"city": "b", "street": "x"}]
    path = lines(tmp_path / "rows.json", {"id": 1, "at": ROW["at"], "s": {"city": "c"}})
    answer = program("merge-rows", homes.t, path, "--on", "id")
    assert answer.exit_code == 2
    assert "line 1 has no field 'street' of column 's'" in " ".join(answer.stderr.split())


@pytest.mark.hazard("W15")
@pytest.mark.parametrize("shape", ["struct", "struct in a struct", "struct in a list"])
def test_dicts_in_the_rows_of_a_list_have_the_same_keys(shape, tmp_path):
    homes = Homes(tmp_path, shape, "last")
    rows = [{"id": n, "at": AT, "s": s} for n, s in enumerate((homes.stored, None, homes.value))]
    told = f"row 2 of the list has no field '{homes.field}' of column 's'"
    assert told in _message(upsert, homes.t, rows)
    upsert(homes.t, rows[:2])
    assert homes.found().count(homes.stored) == 1
