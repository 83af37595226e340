"""The program: every verb, its answers for people and for programs, its exit codes."""

import io
import json
import math
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.builders import create, events
from tidy.definitions import TESTS

from eventlog import DISTRIBUTION, Table
from eventlog.cli import program
from eventlog.cli.program import build
from eventlog.errors import CommitConflict, Corrupt, EventLogError, InvalidInput, Unavailable
from eventlog.format import keys
from eventlog.model.records import FORMAT_VERSION
from eventlog.model.schema import from_arrow
from eventlog.model.schema_text import parse_schema, type_text
from eventlog.quantities import size_text
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.writers import append

SCHEMA = pa.schema(
    [("time", pa.timestamp("us", tz="UTC")), ("id", pa.int64()), ("name", pa.string())]
)
START = datetime(2013, 1, 1, tzinfo=UTC)


def rows(days, per_day=2):
    times = [START + timedelta(days=d, hours=h) for d in days for h in range(per_day)]
    ids = list(range(len(times)))
    return pa.table([times, ids, [f"n{i}" for i in ids]], schema=SCHEMA)


def run(*arguments, **options):
    return CliRunner().invoke(build(), [str(a) for a in arguments], **options)


def done(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def listed(result):
    return json.loads(result.stdout)


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def started(*arguments, **options):
    """Run the program as a process of its own."""
    command = [sys.executable, "-m", "eventlog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=240, **options)


@pytest.fixture
def uri(tmp_path):
    """A table of three days in two appends."""
    table = Table.create(tmp_path / "t", SCHEMA, time_column="time")
    append(table, rows([0, 1]))
    append(table, rows([1, 2]), app_id="job", app_seq=7)
    return str(tmp_path / "t")


# ------------------------------------------------------------------------------ every verb


def test_every_verb_on_every_store(root_uri, tmp_path):
    pq.write_table(rows([0, 1]), tmp_path / "a.parquet")
    done("create", root_uri, "--like", tmp_path / "a.parquet", "--time-column", "time")
    assert "version 1: appended 4 rows" in done("append", root_uri, tmp_path / "a.parquet").output
    assert [e["version"] for e in listed(done("log", root_uri, "--json"))] == [1, 0]
    assert json.loads(done("show", root_uri, "1", "--json").stdout)["version"] == 1
    assert len(listed(done("ls", root_uri, "--json"))) == 2
    assert len(json.loads(done("diff", root_uri, 0, 1, "--json").stdout)["added"]) == 2
    assert done("scan", root_uri, "--count").stdout == "4\n"
    assert json.loads(done("fsck", root_uri, "--checksums", "--json").stdout)["ok"] is True


def test_create_from_text(tmp_path):
    answer = done(
        *("create", tmp_path / "t", "--schema", "time:timestamp, id:int64 not null, v:list<int32>"),
        *("--time-column", "time", "--granularity", "hour", "--order-by", "id,time"),
        *("--property", "user.team=a=b", "--property", "inline_bytes=0"),
    )
    assert "3 columns, chunks by hour" in answer.output
    head = Table.open(tmp_path / "t").session.head()
    assert head.layout.order_by == ("id", "time")
    assert head.properties == {"inline_bytes": "0", "user.team": "a=b"}
    assert not head.schema.field("id").nullable
    assert head.schema.field("v").type == pa.list_(pa.int32())


def test_create_tells_that_a_table_has_one_time_chunk(tmp_path):
    words = ("create", tmp_path / "t", "--schema", "at:timestamp, id:int64", "--time-column", "at")
    assert "2 columns, one time chunk" in done(*words, "--key", "id").output


def test_a_table_without_a_time_column_is_made_filled_and_read(tmp_path):
    uri, rows = tmp_path / "t", tmp_path / "rows.csv"
    assert "one time chunk" in done("create", uri, "--schema", "id:int64, name:string").output
    rows.write_text("id,name\n1,a\n2,\n")
    done("append", uri, rows)
    assert done("scan", uri, "--where", "id = 2", "--json").stdout == '{"id":2,"name":null}\n'
    assert done("sql", uri, "SELECT count(*) AS n FROM t", "--json").stdout == '{"n":2}\n'
    assert "time column" not in done("show", uri).output
    for words, reason in (
        (("overwrite", uri, rows, "--start", "2013-01-01"), "no time column"),
        (("compact", uri, "--granularity", "day"), "cannot have chunks by day"),
    ):
        answer = run(*words)
        assert (answer.exit_code, reason in answer.output) == (2, True)


def test_a_table_that_is_there_will_do(tmp_path):
    words = ["create", tmp_path / "t", "--schema", "at timestamp, id bigint", "--time-column", "at"]
    assert done(*words, "--exist-ok").output.startswith("created")
    assert done(*words, "--exist-ok").output.startswith("there already:")
    assert json.loads(done(*words, "--exist-ok", "--json").stdout)["version"] == 0
    assert run(*words).exit_code == 3
    assert run(*words, "--exist-ok", "--granularity", "hour").exit_code == 0  # it follows the data
    shown = done("granularity", tmp_path / "t").output
    assert shown == "time chunks by day, until another granularity fits better\n"
    done("granularity", tmp_path / "t", "day")
    shown = json.loads(done("granularity", tmp_path / "t", "--json").output)
    assert (shown["granularity"], shown["automatic"], shown["committed"]) == ("day", False, False)
    answer = run(*words, "--exist-ok", "--granularity", "hour")
    assert (answer.exit_code, "the granularity is day there" in answer.output) == (3, True)


def test_create_warns_of_a_table_that_returns_a_key_twice(tmp_path):
    words = ["create", tmp_path / "t", "--schema", "at timestamp, id bigint", "--time-column", "at"]
    answer = done(*words, "--key", "id", "--order-by", "at", "--granularity", "day")
    assert answer.stderr.startswith("warning: a key is unique in its day")
    assert answer.stdout.startswith("created")


def test_create_answers_json(tmp_path):
    answer = done(*("create", tmp_path / "t", "--schema", "t:date", "--time-column", "t", "--json"))
    document = json.loads(answer.stdout)
    assert document.keys() == {"table", "table_id", "version", "committed"}
    assert document["table_id"] == Table.open(tmp_path / "t").id


@pytest.mark.parametrize(
    "columns",
    [
        "t:timestamp, a:decimal(10,2), b:bool not null",
        "t:timestamp, a:list<map<string, decimal(4,1)>>, b:struct<x:int8, y:list<date>>",
    ],
)
def test_schema_text_round_trip(columns):
    stored = from_arrow(parse_schema(columns))
    names = [
        f"{c.name}:{type_text(c.type)}" + ("" if c.nullable else " not null")
        for c in stored.columns
    ]
    assert ", ".join(names) == columns


@pytest.mark.parametrize(
    "columns", ["", "t", "t:", ":int64", "t:int65", "t:list<int64", "t:map<int8>"]
)
def test_wrong_schema_text_is_usage(tmp_path, columns):
    result = run("create", tmp_path / "t", "--schema", columns, "--time-column", "t")
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_log_for_people_is_plain_and_whole(uri):
    answer = done("log", uri).stdout.splitlines()
    assert answer[0].split() == [
        "version", "time", "operation", "added", "dropped", "rows", "bytes", "writer",
    ]  # fmt: skip
    assert answer[1].split()[0] == "2"
    assert "\x1b" not in "".join(answer)
    assert len(answer) == 4


def test_log_pages(uri):
    assert [e["version"] for e in listed(done("log", uri, "-n", 1, "--json"))] == [2]
    assert [e["version"] for e in listed(done("log", uri, "--start", 1, "--json"))] == [1, 0]
    (entry,) = listed(done("log", uri, "-n", 1, "--json"))
    assert entry.keys() == {
        "version", "time", "operation", "writer", "transactions", "adds", "drops", "deletes",
        "rows", "bytes",
    }  # fmt: skip
    assert (entry["rows"], entry["adds"], entry["operation"]) == (4, 2, "append")


def test_log_from_a_version_that_no_log_has_is_usage(uri):
    result = run("log", uri, "--start", 2**63 - 1, "--all")
    assert (result.exit_code, "start" in result.stderr) == (2, True)


def test_show(uri):
    text = done("show", uri).stdout
    for part in ("version", "key frame", "2 add", "job, sequence 7", "time column", "timestamp"):
        assert part in text
    document = json.loads(done("show", uri, "1", "--json").stdout)
    assert document["totals"]["rows"] == 4
    (transaction,) = document["transaction_list"]
    assert transaction["actions"] == {"add": 2}
    assert transaction["void_reason"] is None
    assert [c["name"] for c in document["columns"]] == ["time", "id", "name"]


def test_show_by_time(uri):
    at = listed(done("log", uri, "--start", 1, "-n", 1, "--json"))[0]["time"]
    assert json.loads(done("show", uri, "--timestamp", at, "--json").stdout)["version"] == 1
    assert run("show", uri, "--timestamp", "yesterday").exit_code == 2


def test_ls(uri):
    found = listed(done("ls", uri, "--json"))
    assert [s["chunk"] for s in found] == ["2013-01-01", "2013-01-02", "2013-01-02", "2013-01-03"]
    assert all(keys.parse_segment_key(s["key"]) for s in found)
    assert len(listed(done("ls", uri, "--version", 1, "--json"))) == 2
    assert len(listed(done("ls", uri, "--chunk", "2013-01-02", "--json"))) == 2
    where = "time >= '2013-01-03'"
    assert len(listed(done("ls", uri, "--where", where, "--json"))) == 1
    assert "4 segments, 8 rows" in done("ls", uri).stderr


def test_ls_says_which_segments_have_no_file(tmp_path):
    small = Table.create(str(tmp_path / "t"), SCHEMA, time_column="time", granularity="day")
    small.append(rows([1, 2]))
    small.set_properties({"inline_bytes": "0"})
    assert "2 of them stand in their commits" in done("ls", small.uri).stderr
    small.append(rows([3]))
    text = done("ls", small.uri).stderr
    assert "3 segments, 6 rows" in text
    assert "2 of them stand in their commits" in text
    assert "commits" not in done("ls", small.uri, "--chunk", "2013-01-04").stderr


def test_ls_by_chunk(uri):
    found = listed(done("ls", uri, "--chunks", "--json"))
    assert [(c["chunk"], c["segments"], c["rows"]) for c in found] == [
        ("2013-01-01", 1, 2),
        ("2013-01-02", 2, 4),
        ("2013-01-03", 1, 2),
    ]
    assert "2013-01-02" in done("ls", uri, "--chunks").stdout


def test_diff(uri):
    document = json.loads(done("diff", uri, 2, 1, "--json").stdout)
    assert (len(document["added"]), len(document["dropped"])) == (0, 2)
    text = done("diff", uri, 1, 2).stdout.splitlines()
    assert [line[0] for line in text[1:]] == ["+", "+"]


# ------------------------------------------------------------------------------ append


def _write(kind, path):
    table = rows([5, 6])
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pa_csv.write_csv(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        path.write_text(
            "".join(
                json.dumps({**row, "time": row["time"].isoformat()}) + "\n"
                for row in table.to_pylist()
            )
        )


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.arrow"])
def test_append_reads_every_format(uri, tmp_path, name):
    _write({"a.jsonl": "json"}.get(name, name[2:]), tmp_path / name)
    document = json.loads(done("append", uri, tmp_path / name, "--json").stdout)
    assert document == {"table": Path(uri).as_uri(), "version": 3, "rows": 4, "committed": True}
    stored = lines(done("scan", uri, "--where", "time >= '2013-01-06'", "--json"))
    assert sorted(row["name"] for row in stored) == ["n0", "n1", "n2", "n3"]
    assert {row["time"][:10] for row in stored} == {"2013-01-06", "2013-01-07"}


def test_csv_is_read_with_the_types_of_the_table(uri, tmp_path):
    (tmp_path / "a.csv").write_text("time,id,name\n2013-01-09 05:00:00,1,007\n")
    done("append", uri, tmp_path / "a.csv")
    (row,) = lines(done("scan", uri, "--where", "time >= '2013-01-09'", "--json"))
    assert row == {"time": "2013-01-09T05:00:00Z", "id": 1, "name": "007"}


def test_append_of_several_files_is_one_commit_of_all_their_columns(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, time_column="time")
    pq.write_table(rows([0]).drop_columns(["name"]), tmp_path / "a.parquet")
    pq.write_table(rows([1]), tmp_path / "b.parquet")
    done("append", tmp_path / "t", tmp_path / "a.parquet", tmp_path / "b.parquet")
    names = [row["name"] for row in lines(done("scan", tmp_path / "t", "--json"))]
    assert sorted(names, key=str) == sorted([None, None, "n0", "n1"], key=str)
    assert table.refresh().version == 1


@pytest.mark.verify
def test_append_from_standard_input(uri):
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, SCHEMA) as writer:
        writer.write_table(rows([9]))
    answer = started("append", uri, "-", input=stream.getvalue())
    assert answer.returncode == 0, answer.stderr
    assert b"version 3: appended 2 rows" in answer.stdout


def test_append_of_a_unit_of_work_takes_effect_once(uri, tmp_path):
    _write("parquet", tmp_path / "a.parquet")
    again = ("append", uri, tmp_path / "a.parquet", "--app-id", "job", "--app-seq", 8, "--json")
    first, second = (json.loads(done(*again).stdout) for _ in range(2))
    assert (first["version"], first["committed"]) == (3, True)
    assert (second["version"], second["committed"]) == (3, False)
    assert Table.open(uri).session.head().version == 3


@pytest.mark.hazard("W2")
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.parquet", b"no parquet", "cannot read"),
        ("a.csv", b"time,id,name\nnever,1,x\n", "time"),
        ("a.csv", b"time,id,name\n2013-01-01,one,x\n", "cannot read"),
        ("a.csv", b"time,id,other\n2013-01-01,1,x\n", "other"),
        ("a.txt", b"", "--format"),
    ],
)
def test_bad_files_are_refused_and_nothing_is_committed(uri, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    result = run("append", uri, tmp_path / name)
    assert result.exit_code == 2
    assert said in result.stderr
    assert Table.open(uri).session.head().version == 2


def test_missing_file_and_mixed_formats_are_usage(uri, tmp_path):
    assert run("append", uri, tmp_path / "nothing.csv").exit_code == 2
    _write("csv", tmp_path / "a.csv")
    _write("parquet", tmp_path / "a.parquet")
    assert run("append", uri, tmp_path / "a.csv", tmp_path / "a.parquet").exit_code == 2
    assert run("append", uri, "-", tmp_path / "a.csv").exit_code == 2
    assert run("append", uri, tmp_path / "a.csv", "--app-id", "x").exit_code == 2


# ------------------------------------------------------------------------------ scan


def test_scan_table(uri):
    answer = done("scan", uri, "--columns", "name,id", "--where", "id = 3")
    assert [line.split() for line in answer.stdout.splitlines()] == [
        ["name", "id"], ["n3", "3"], ["n3", "3"],
    ]  # fmt: skip


def test_scan_table_says_that_there_is_more(tmp_path):
    append(Table.create(tmp_path / "t", SCHEMA, time_column="time"), rows([0], per_day=24))
    for day in range(1, 6):
        append(Table.open(tmp_path / "t"), rows([day], per_day=24))
    answer = done("scan", tmp_path / "t")
    assert len(answer.stdout.splitlines()) == 101
    assert "first 100 rows" in answer.stderr
    assert len(done("scan", tmp_path / "t", "--limit", 3).stdout.splitlines()) == 4


@pytest.mark.parametrize("kind", ["table", "csv", "json"])
@pytest.mark.parametrize(("limit", "reads"), [(0, 0), (3, 1), (5, 2), (None, 5)])
def test_scan_reads_no_more_segments_than_it_shows(tmp_path, monkeypatch, kind, limit, reads):
    table = create(LocalStore(tmp_path / "t"))
    for day in range(5):
        append(table, events(4, day=day))
    read, get = set(), LocalStore.get

    def counted(store, key, *arguments, **options):
        read.add(key)
        return get(store, key, *arguments, **options)

    monkeypatch.setattr(LocalStore, "get", counted)
    limited = () if limit is None else ("--limit", limit)
    done("scan", tmp_path / "t", "--format", kind, *limited)
    assert len([key for key in read if key.startswith("data/")]) == reads


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
def test_scan_to_a_file(uri, tmp_path, kind):
    path = tmp_path / f"out.{kind}"
    answer = done("scan", uri, "--format", kind, "--output", path)
    assert "8 rows" in answer.stderr
    assert answer.stdout == ""
    if kind == "parquet":
        found = pq.read_table(path)
    elif kind == "arrow":
        found = pa.ipc.open_file(path.read_bytes()).read_all()
    elif kind == "csv":
        found = pa_csv.read_csv(path)
    else:
        found = pa.Table.from_pylist([json.loads(x) for x in path.read_text().splitlines()])
    assert len(found) == 8
    assert sorted(found.column("id").to_pylist()) == sorted([0, 1, 2, 3] * 2)
    assert [file.name for file in tmp_path.glob("*.partial")] == []


@pytest.mark.verify
def test_scan_streams_arrow_to_standard_output(uri):
    answer = started("scan", uri, "--format", "arrow", "--limit", 5)
    assert len(pa.ipc.open_stream(answer.stdout).read_all()) == 5


def test_scan_count_and_version(uri):
    assert done("scan", uri, "--count").stdout == "8\n"
    assert done("scan", uri, "--count", "--version", 1, "--where", "id = 0").stdout == "1\n"
    document = json.loads(done("scan", uri, "--count", "--json").stdout)
    assert document == {"table": Path(uri).as_uri(), "version": 2, "rows": 8}


def test_scan_plan_shows_pruning(uri):
    where = "time >= '2013-01-03' AND time < '2013-01-04' AND id > 100"
    document = json.loads(done("scan", uri, "--where", where, "--plan", "--json").stdout)
    assert document["pruning"] == {
        "considered": 4, "by_chunk": 3, "by_leaf": 0, "by_statistics": 1, "read": 0,
    }  # fmt: skip
    text = done("scan", uri, "--where", "id = 1", "--explain").stdout
    assert "left out by time chunk" in text
    assert "to read" in text


def test_scan_usage(uri, tmp_path):
    assert run("scan", uri, "--columns", "nothing").exit_code == 2
    assert run("scan", uri, "--where", "id = = 1").exit_code == 2
    assert run("scan", uri, "--format", "parquet").exit_code == 2
    assert run("scan", uri, "--output", tmp_path / "x").exit_code == 2
    answer = run("scan", uri, "--format", "csv", "--output", tmp_path / "no" / "x")
    assert (answer.exit_code, "cannot write" in answer.stderr) == (2, True)


# ------------------------------------------------------------------------------ exit codes


def test_missing_table_is_a_failure(tmp_path):
    result = run("log", tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.stderr.startswith("eventlog: no table at")
    assert len(result.stderr.splitlines()) == 1


def test_missing_version_is_a_failure(uri):
    assert run("show", uri, 99).exit_code == 1
    assert run("diff", uri, 0, 99).exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("log",), ("log", "x", "--limit", "-1"), ("log", "x", "--storage-option", "y")],
)
def test_wrong_calls_are_usage(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_wrong_location_is_usage():
    assert run("log", "gs://bucket/t").exit_code == 2
    assert run("log", "s3://bucket/t", "--storage-option", "speed=9").exit_code == 2


def test_existing_table_is_a_conflict(uri):
    result = run("create", uri, "--schema", "time:timestamp", "--time-column", "time")
    assert result.exit_code == 3


def test_corrupt_log_is_4(uri):
    with (Path(uri) / keys.commit_key(2)).open("rb+") as file:
        file.seek(30)
        file.write(b"!")
    assert run("log", uri).exit_code == 4
    answer = run("fsck", uri, "--json")
    assert answer.exit_code == 4
    document = json.loads(answer.stdout)
    assert document["ok"] is False
    assert document["findings"][0]["key"] == keys.commit_key(2)
    assert "corrupt" in run("fsck", uri).stdout


def test_fsck_json_keys_are_stable(uri):
    document = json.loads(done("fsck", uri, "--json").stdout)
    assert document.keys() == {
        "ok", "table", "start", "version", "versions", "transactions", "void", "keyframes",
        "bad_keyframes", "missing_keyframes", "leaves", "segments_version", "segments",
        "checksummed", "keys_checked", "leftovers", "repairs", "errors", "warnings", "findings",
    }  # fmt: skip
    assert (document["versions"], document["segments"]) == (3, 4)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommitConflict("someone was faster"), 3),
        (Unavailable("no answer"), 1),
        (Corrupt("torn"), 4),
        (EventLogError("anything"), 1),
        (ZeroDivisionError("a bug"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_of_every_kind_of_error(uri, monkeypatch, error, code):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(Table, "history", fail)
    for extra in ((), ("--json",)):
        result = run("log", uri, *extra)
        assert result.exit_code == code
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert str(error) in result.stderr


def test_errors_in_json(uri, tmp_path):
    result = run("show", uri, 99, "--json")
    error = json.loads(result.stderr)["error"]
    assert error.keys() == {
        "type",
        "message",
        "exit_code",
        "table",
        "key",
        "version",
        "transaction",
    }
    assert (error["type"], error["version"], error["exit_code"]) == ("VersionNotFound", 99, 1)
    usage = json.loads(run("log", uri, "--json", "--limit", "x").stderr)["error"]
    assert (usage["type"], usage["exit_code"]) == ("InvalidInput", 2)


def test_debug_shows_where(tmp_path):
    assert "Traceback" in run("log", tmp_path / "nothing", "--debug").stderr


@pytest.mark.hazard("W3")
def test_json_lines_keep_every_value_or_say_so(tmp_path):
    schema = pa.schema(
        [
            ("time", pa.timestamp("us", tz="UTC")),
            ("f", pa.float64()),
            ("s", pa.struct([("l", pa.list_(pa.float32()))])),
            ("m", pa.map_(pa.int64(), pa.string())),
            ("d", pa.date32()),
        ]
    )
    floats = [math.nan, math.inf, -math.inf, -0.0, 1.5, None]
    times = [START + timedelta(hours=h) for h in range(len(floats))]
    given = [
        {"time": t, "f": f, "s": {"l": [f, 1.0]}, "m": [(1, "a")], "d": None}
        for t, f in zip(times, floats, strict=True)
    ]
    table = Table.create(tmp_path / "t", schema, time_column="time")
    append(table, pa.Table.from_pylist(given, schema=schema))
    file = tmp_path / "rows.jsonl"
    done("scan", tmp_path / "t", "--format", "json", "--output", file)
    Table.create(tmp_path / "back", schema, time_column="time")
    done("append", tmp_path / "back", file)
    back = scan(Table.open(tmp_path / "back")).to_table()
    assert repr(back.to_pylist()) == repr(scan(table).to_table().to_pylist())
    assert repr(back.column("f").to_pylist()) == repr(floats)

    # Two entries of one key, and a date before the year 1.
    odd = pa.table(
        {
            "time": pa.array([START + timedelta(days=1)], schema.field(0).type),
            "m": pa.array([[(1, "a"), (1, "b")]], schema.field("m").type),
            "d": pa.array([-800_000], pa.int32()).cast(pa.date32()),
        }
    )
    append(table, odd)
    for column in ("m", "d"):
        refused = run("scan", tmp_path / "t", "--format", "json", "--columns", column)
        assert refused.exit_code == 2
        assert "cannot be written as JSON" in refused.stderr
    assert "-0221-09-04" in done("scan", tmp_path / "t", "--columns", "d").stdout
    far = odd.set_column(2, "d", pa.array([2**31 - 1], pa.int32()).cast(pa.date32()))
    append(table, far)
    refused = run("scan", tmp_path / "t", "--format", "csv", "--columns", "d")
    assert refused.exit_code == 2
    assert "cannot be written as CSV (a year in column 'd'" in refused.stderr
    keys = pa.schema([*schema, ("k", pa.map_(pa.struct([("a", pa.int8())]), pa.int8()))])
    Table.create(tmp_path / "k", keys, time_column="time")
    entries = [{"time": times[0], "k": [({"a": 1}, 2)]}]
    append(Table.open(tmp_path / "k"), pa.Table.from_pylist(entries, schema=keys))
    refused = run("scan", tmp_path / "k", "--format", "json")
    assert refused.exit_code == 2
    assert "cannot be written as JSON" in refused.stderr
    with pytest.raises(InvalidInput, match="pandas cannot represent"):
        scan(table, ["d"]).to_pandas()


@pytest.mark.verify
def test_closed_pipe_is_no_failure(uri):
    command = f"'{sys.executable}' -m eventlog.cli scan '{uri}' --format csv | true"
    answer = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=240
    )
    assert (answer.returncode, answer.stderr) == (0, b"")


@pytest.mark.verify
@pytest.mark.parametrize("answer_goes_to", [">/dev/full", ">&-"])
@pytest.mark.parametrize("form", [pytest.param("", marks=pytest.mark.long), "--json"])
def test_an_append_that_cannot_answer_has_not_failed(uri, tmp_path, answer_goes_to, form):
    file = tmp_path / "rows.parquet"
    pq.write_table(rows([3]), file)
    before = Table.open(uri).session.head().version
    command = f"'{sys.executable}' -m eventlog.cli append {form} '{uri}' '{file}' {answer_goes_to}"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, timeout=240, text=True)
    # With a failure whoever runs it would run it again, and append the rows twice.
    assert answer.returncode == 0, answer.stderr
    assert Table.open(uri).session.head().version == before + 1
    if "full" in answer_goes_to:
        assert f"version {before + 1} is committed" in answer.stderr


# ------------------------------------------------------------------------------ the program


@pytest.mark.verify
def test_process_exits_with_the_code(tmp_path):
    answer = started("log", tmp_path / "nothing")
    assert (answer.returncode, answer.stdout) == (1, b"")


VERBS = sorted(build().commands)


def test_help_lists_every_verb():
    text = done("--help").stdout
    assert {"append", "compact", "create", "demo", "fsck", "scan", "vacuum"} <= set(VERBS)
    for verb in VERBS:
        assert f"  {verb} " in text
        assert "--json" in done(verb, "--help").stdout


def test_the_program_prints_its_version_and_the_formats_that_it_reads():
    assert done("--version").stdout == (
        f"eventlog {version(DISTRIBUTION)}, format {FORMAT_VERSION} "
        "with cut, inline, keyed, merged, split, vectors\n"
    )
    assert "--version" in done("--help").stdout


def test_a_program_without_an_installation_prints_its_format_alone(monkeypatch):
    monkeypatch.setattr(program, "DISTRIBUTION", "a-distribution-that-is-not-installed")
    assert done("--version").stdout.startswith("eventlog (not installed), format 1 ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_in_a_guide(verb):
    root = TESTS.parent
    pages = [*(root / "docs" / "guides").glob("*.md")]
    named = re.compile(rf"\beventlog {verb}\b")
    assert any(named.search(page.read_text(encoding="utf-8")) for page in pages)


def test_missing_packages_are_named():
    hide = "import sys; sys.modules['click'] = None; from eventlog.cli import main; main()"
    answer = subprocess.run([sys.executable, "-c", hide], capture_output=True, timeout=240)
    assert answer.returncode == 1
    assert b"pip install 'eventlog-tables[cli]'" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_storage_options_reach_the_store(s3, bucket):
    options = [
        part
        for name, value in s3.storage_options().items()
        for part in ("--storage-option", f"{name}={value}")
    ]
    uri = f"s3://{bucket}/t"
    done("create", uri, "--schema", "t:timestamp", "--time-column", "t", *options)
    bad = [o.replace(s3.endpoint_url, "http://127.0.0.1:9") for o in options]
    assert bad != options
    assert listed(done("log", uri, "--json", *options))[0]["operation"] == "create"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (-2_500_000, "-2.5 MB")],
)
def test_sizes_for_people(number, text):
    assert size_text(number) == text
