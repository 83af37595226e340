"""The verbs that change rows: delete, update, overwrite and merge-rows, with --dry-run."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.readers import scan
from eventlog.writers import append, delete, overwrite

SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("id", pa.int64()),
        ("price", pa.int64()),
    ]
)
FACTS = {
    "table",
    "version",
    "committed",
    "rows_deleted",
    "rows_added",
    "rows_updated",
    "segments_dropped",
    "segments_changed",
    "bytes",
}


def run(*arguments):
    return CliRunner().invoke(build(), [str(a) for a in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def document(*arguments):
    found = json.loads(done(*arguments, "--json").stdout)
    assert set(found) == FACTS
    return found


def counts(found):
    rows, segments = ("deleted", "added", "updated"), ("dropped", "changed")
    names = *(f"rows_{name}" for name in rows), *(f"segments_{name}" for name in segments)
    return tuple(found[name] for name in ("committed", *names))


def row(number, price=10, day=None):
    return {"at": datetime(2013, 1, day or number, tzinfo=UTC), "id": number, "price": price}


def rows(*some):
    return pa.Table.from_pylist(list(some), schema=SCHEMA)


def prices(table):
    return {r["id"]: r["price"] for r in scan(table).to_table().to_pylist()}


@pytest.fixture
def table(tmp_path):
    """Four rows: two of 2013-01-01, one of each of the two days after it."""
    t = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    append(t, rows(row(1), row(4, 40, day=1), row(2, 20), row(3, 30)))
    return t


@pytest.fixture
def file_of(tmp_path):
    """Write a Parquet file, and return its path."""

    def write(given, name="rows.parquet"):
        pq.write_table(given, tmp_path / name)
        return tmp_path / name

    return write


# ------------------------------------------------------------------------------ delete


def test_delete_tells_rows_segments_and_bytes(table):
    where = ("--where", "price IN (10, 20)")
    tried = document("delete", table.uri, *where, "--dry-run")
    assert counts(tried) == (False, 2, 0, 0, 1, 1)
    assert tried["version"] == 1
    assert tried["bytes"] == 0  # the vector is small enough to stand in the commit
    assert table.refresh().version == 1
    text = done("delete", table.uri, *where, "--dry-run").stdout
    assert text.startswith("nothing was committed (--dry-run): 2 rows deleted (1 segment dropped,")
    found = document("delete", table.uri, *where)
    assert counts(found) == (True, 2, 0, 0, 1, 1)
    assert found["version"] == 2
    assert prices(table.refresh() and table) == {4: 40, 3: 30}
    assert "nothing was changed: no row is selected" in done("delete", table.uri, *where).stdout
    people = done("delete", table.uri, "--where", "id = 3").stdout
    assert people == "version 3: 1 row deleted (1 segment dropped, 0 B stored)\n"


def test_a_delete_of_a_unit_of_work_takes_effect_once(table):
    unit = ("--app-id", "clean", "--app-seq", 1)
    assert document("delete", table.uri, "--where", "id = 9", *unit)["committed"] is True
    assert document("delete", table.uri, "--where", "id = 1", *unit)["committed"] is False
    again = done("delete", table.uri, "--where", "id = 1", *unit).stdout
    assert "app 'clean' has been at sequence 1 since version 2" in again
    assert len(prices(table)) == 4
    only_the_unit = done("delete", table.uri, "--where", "id = 9", "--app-id", "x", "--app-seq", 1)
    assert only_the_unit.stdout == "version 3: no row is selected\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "select the rows to delete with --where"),
        (["keys.parquet"], "select the rows to delete with --where"),
        (["keys.parquet", "--where", "id = 1"], "give either FILES or --where"),
        (["--where", "nonsense ="], "not one SQL expression"),
        (["--where", "id = 1", "--isolation", "none"], "isolation"),
    ],
)
def test_wrong_deletes_are_usage(table, arguments, message):
    result = run("delete", table.uri, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_keyed_table_has_no_dry_run(tmp_path):
    keyed = Table.create(tmp_path / "k", SCHEMA, time_column="at", key="id")
    for arguments in (["--where", "id = 1"], ["keys.csv"]):
        result = run("delete", keyed.uri, *arguments, "--dry-run")
        assert result.exit_code == 2
        assert "for tables without a key" in result.stderr


# ------------------------------------------------------------------------------ update


def test_update(table):
    values = ("--set", "price = price * 2", "--set", "id=id")
    where = ("--where", "id >= 2 AND id <= 3")
    tried = document("update", table.uri, *values, *where, "--dry-run")
    assert counts(tried) == (False, 2, 2, 2, 2, 0)
    assert tried["bytes"] > 0
    found = document("update", table.uri, *values, *where)
    assert counts(found) == (True, 2, 2, 2, 2, 0)
    assert prices(table) == {1: 10, 4: 40, 2: 40, 3: 60}
    text = done("update", table.uri, "--set", "price = 0").stdout
    assert text.startswith("version 3: 4 rows updated (3 segments dropped, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the new values: --set"),
        (["--set", "price"], "in the form COLUMN=EXPRESSION"),
        (["--set", "price ="], "in the form COLUMN=EXPRESSION"),
        (["--set", "price=1", "--set", " price = 2"], "--set has two values for column 'price'"),
        (["--set", "prize=1"], "unknown column 'prize'"),
        (["--set", "price = closed"], "write text in single quotes: 'closed'"),
        (["--set", "price = 1 / (id - 1)"], "write CAST"),
        (["--set", "price = price / (id - 1)"], "write CAST"),
        (["--set", "price = CAST(1 / (id - 1) AS BIGINT)"], "fails for 1 of 4 rows"),
    ],
)
def test_wrong_updates_are_usage(table, arguments, message):
    result = run("update", table.uri, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert table.refresh().version == 1


# ------------------------------------------------------------------------------ overwrite


def test_overwrite_where(table, file_of):
    new = file_of(rows(row(5, 11, day=1), row(6, 12, day=1)))
    call = ("overwrite", table.uri, new, "--where", "price < 15")
    tried = document(*call, "--dry-run")
    assert counts(tried) == (False, 1, 2, 0, 0, 1)
    assert table.refresh().version == 1
    found = document(*call)
    assert counts(found) == (True, 1, 2, 0, 0, 1)
    assert found["bytes"] >= tried["bytes"] > 0
    assert prices(table) == {5: 11, 6: 12, 4: 40, 2: 20, 3: 30}
    refused = run("overwrite", table.uri, file_of(rows(row(7, 99))), "--where", "price < 15")
    assert refused.exit_code == 2
    assert "do not pass the predicate" in refused.stderr


def test_overwrite_of_a_range(table, file_of):
    new = file_of(rows(row(5, 50, day=1)))
    call = ("overwrite", table.uri, new, "--start", "2013-01-01", "--end", "2013-01-02")
    stored = list(table.store.list("data/"))
    tried = document(*call, "--dry-run")
    assert counts(tried) == (False, 2, 1, 0, 1, 0)
    assert list(table.store.list("data/")) == stored
    found = document(*call)
    assert counts(found) == (True, 2, 1, 0, 1, 0)
    assert found["bytes"] == tried["bytes"]
    assert prices(table) == {5: 50, 2: 20, 3: 30}


def test_an_overwrite_refuses_rows_that_lack_columns(table, file_of, tmp_path):
    lacking = rows(row(5, 50, day=1)).drop_columns("price")
    objects = tmp_path / "rows.json"
    objects.write_text('{"at": "2013-01-01T00:00:00Z", "id": 5}\n')
    whole = file_of(rows(row(6, day=1)), "a.parquet")
    for files in ([file_of(lacking)], [objects], [whole, file_of(lacking, "b.parquet")]):
        refused = run("overwrite", table.uri, *files, "--where", "id > 3 OR price IS NULL")
        assert refused.exit_code == 2
        assert "price" in refused.stderr
        assert "--missing null" in refused.stderr
    call = ("overwrite", table.uri, objects, "--where", "id > 3", "--missing", "null")
    assert document(*call)["rows_deleted"] == 1
    assert prices(table) == {1: 10, 2: 20, 3: 30, 5: None}


def test_a_unit_of_work_is_not_read_again(table, file_of):
    unit = ("--app-id", "load", "--app-seq", 1)
    new = file_of(rows(row(5, 50)))
    assert document("overwrite", table.uri, new, *unit)["committed"] is True
    new.unlink()
    assert document("overwrite", table.uri, new, *unit)["committed"] is False
    assert document("merge-rows", table.uri, new, "--on", "id", *unit)["committed"] is False


# ------------------------------------------------------------------------------ merge-rows


def test_merge_rows_updates_and_inserts(table, file_of):
    new = file_of(rows(row(2, 21), row(3, 31), row(9, 90)))
    call = ("merge-rows", table.uri, new, "--on", "id")
    tried = document(*call, "--dry-run")
    assert counts(tried) == (False, 2, 3, 2, 2, 0)
    assert tried["bytes"] > 0
    found = document(*call)
    assert counts(found) == (True, 2, 3, 2, 2, 0)
    assert prices(table) == {1: 10, 4: 40, 2: 21, 3: 31, 9: 90}
    text = done("merge-rows", table.uri, new, "--on", "id", "--set", "price = price + source.price")
    assert text.stdout.startswith("version 3: 3 rows updated (3 segments dropped, ")
    assert prices(table) == {1: 10, 4: 40, 2: 42, 3: 62, 9: 180}


def test_merge_rows_keeps_the_values_of_columns_that_the_files_lack(table, tmp_path):
    lines = tmp_path / "rows.csv"
    lines.write_text("id,price\n1,11\n7,70\n")
    call = ("merge-rows", table.uri, lines, "--on", "id")
    refused = run(*call)
    assert refused.exit_code == 2
    assert "lacks column 'at', which new rows need" in refused.stderr
    assert "or give --when-not-matched ignore" in refused.stderr
    assert document(*call, "--when-not-matched", "ignore")["rows_updated"] == 1
    found = scan(table, where="id = 1").to_table().to_pylist()
    assert found == [row(1, 11)]


def test_merge_rows_deletes(table, file_of, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text('{"id": 1}\n{"id": 8}\n')
    only = ("--on", "id", "--when-not-matched", "ignore")
    gone = document("merge-rows", table.uri, keys, *only, "--when-matched", "delete")
    assert counts(gone) == (True, 1, 0, 0, 0, 1)
    kept = file_of(rows(row(2), row(3)).select(["id"]))
    others = ("--when-matched", "ignore", "--when-not-matched-by-source", "delete")
    text = done("merge-rows", table.uri, kept, *only, *others).stdout
    assert text.startswith("version 3: 1 row deleted (1 segment dropped, ")
    assert prices(table) == {2: 20, 3: 30}


@pytest.mark.parametrize("name", ["wrong.csv", "wrong.json"])
def test_files_that_name_the_rows_to_delete_have_the_columns_to_match_alone(table, tmp_path, name):
    file = tmp_path / name
    text = {"csv": "id,_change,_version\n1,insert,4\n", "json": '{"id": 1, "_change": "insert"}\n'}
    file.write_text(text[name.partition(".")[2]])
    only = ("--on", "id", "--when-not-matched", "ignore", "--when-matched", "delete")
    result = run("merge-rows", table.uri, file, *only)
    assert result.exit_code == 2
    assert "give the columns of --on alone" in result.stderr
    assert "add them to the table" not in result.stderr
    assert "the table has" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--on"),
        (["--on", ""], "give on"),
        (["--on", "id", "--set", "price=1", "--when-matched", "delete"], "either --set or"),
        (["--on", "id", "--when-matched", "nothing"], "--when-matched"),
        (["--on", "id", "--rows", "3"], "only 2 rows where 3 were expected"),
    ],
)
def test_wrong_merges_of_rows_are_usage(table, file_of, arguments, message):
    result = run("merge-rows", table.uri, file_of(rows(row(1), row(2))), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert table.refresh().version == 1


def test_files_of_a_merge_of_rows_have_the_same_columns(table, file_of, tmp_path):
    some = file_of(rows(row(1)).select(["id", "price"]), "a.parquet")
    whole = file_of(rows(row(2)), "b.parquet")
    objects = tmp_path / "c.json"
    objects.write_text('{"id": 1}\n')
    for files, message in (([some, whole], "Give them separately"), ([objects], "keeps its value")):
        call = ("merge-rows", table.uri, *files, "--on", "id", "--when-not-matched", "ignore")
        result = run(*call)
        assert result.exit_code == 2
        assert message in result.stderr


# ------------------------------------------------------------------------------ from Python


def test_a_dry_run_of_an_overwrite_checks_the_rows(table):
    wrong = rows(row(5, 50)).drop_columns("price")
    with pytest.raises(ValueError, match="would be lost"):
        overwrite(table, wrong, dry_run=True)
    tried = overwrite(table, rows(row(5, 50)), dry_run=True)
    assert (int(tried), tried.committed, tried.deleted, tried.dropped) == (1, False, 4, 3)
    assert table.refresh().version == 1


def test_an_overwrite_counts_only_rows_that_are_there(table):
    delete(table, where="id = 4")
    done_ = overwrite(table, rows(row(5, 50, day=1)), start="2013-01-01", end="2013-01-02")
    assert (done_.committed, done_.deleted, done_.added, done_.dropped) == (True, 1, 1, 1)
