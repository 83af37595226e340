"""What a person sees on a terminal: tables that fit, whole words, nulls, the pager, the help."""

import io
import os
import pty
import re
import select
import socket
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from eventlog import Table
from eventlog.cli import terminal
from eventlog.cli.export import cell_text
from eventlog.cli.program import build
from eventlog.cli.screen.grid import lay_out
from eventlog.cli.verbs import GROUPS
from eventlog.errors import Corrupt
from eventlog.writers import append

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("s", pa.string()), ("n", pa.int64())])
WORDS = "the quick brown fox jumps over the lazy dog"


def run(*arguments, **options):
    return CliRunner().invoke(build(), [str(a) for a in arguments], **options)


@pytest.fixture
def root(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, time_column="at")
    rows = [{"at": at, "s": s, "n": at} for at, s in enumerate(("", None, WORDS, 'a "b"'))]
    append(table, pa.Table.from_pylist(rows, SCHEMA))
    return tmp_path / "t"


# ------------------------------------------------------------------------------ tables


def test_without_a_width_cells_are_whole():
    grid = lay_out(["a", "n"], [["x" * 200, "1"], ["y", "1,000"]], right=["n"])
    assert grid.header == "a" + " " * 205 + "n"
    assert grid.lines == ("x" * 200 + "      1", "y" + " " * 201 + "1,000")


def test_the_widest_cell_ends_in_an_ellipsis_and_numbers_stay_whole():
    rows = [[WORDS, "123,456,789", "short text"]]
    grid = lay_out(["text", "number", "more"], rows, right=["number"], width=40)
    assert grid.lines == ("the quick brow…  123,456,789  short text",)
    assert grid.hidden == ()


def test_columns_that_do_not_fit_are_left_out_and_named():
    names = [f"column {n}" for n in range(9)]
    grid = lay_out(names, [["1,234,567"] * 9], right=names, width=40)
    assert grid.hidden == tuple(names[3:])
    assert grid.lines == ("1,234,567  1,234,567  1,234,567",)


def test_sentences_go_on_below_and_are_broken_between_words():
    grid = lay_out(["n", "why"], [["1", WORDS]], right=["n"], prose=["why"], width=20)
    assert grid.lines == ("1  the quick brown", "   fox jumps over", "   the lazy dog")


@pytest.mark.parametrize("width", range(12, 90))
def test_lines_are_never_wider_than_the_terminal(width):
    rows = [[WORDS, "1,000", "京都市の駅", "2013-01-07 05:00:00Z"], ["", "", "", ""]]
    named = {"right": ["b"], "whole": ["d"], "prose": ["c"]}
    grid = lay_out(["a", "b", "c", "d"], rows, **named, width=width)
    assert max(map(cell_len, grid.lines)) <= width
    shown = 4 - len(grid.hidden)
    assert shown >= 1
    assert all(cell in "".join(grid.lines) for cell in ("1,000", rows[0][3])[: shown // 2])


def test_an_ideograph_takes_two_columns():
    grid = lay_out(["a", "b"], [["京都", "x"], ["Oslo", "y"]])
    assert grid.lines == ("京都  x", "Oslo  y")


def test_records_have_a_column_a_line(root):
    lines = run("scan", root, "--records", "--where", "n > 1").stdout.splitlines()
    assert lines[0] == "row 1"
    assert lines[2:5] == [f"s   {WORDS}", "n   2", "row 2"]


# ------------------------------------------------------------------------------ null


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", '""'),
        (" ", '" "'),
        ("a ", '"a "'),
        ('""', '"\\"\\""'),
        ("null", "null"),
        ('a "b" c', 'a "b" c'),
        ([None, "", b"\x01"], '[null, "", "01"]'),
        ({"a": None}, '{"a": null}'),
    ],
)
def test_null_is_blank_and_no_text_looks_like_it(value, text):
    assert cell_text(value) == text


def test_csv_tells_null_from_the_empty_text_as_append_does(root, tmp_path):
    file = tmp_path / "rows.csv"
    assert run("scan", root, "--columns", "at,s,n", "--output", file).exit_code == 0
    first, second = file.read_text().splitlines()[1:3]
    assert (first.split(",")[1], second.split(",")[1]) == ('""', "")
    Table.create(tmp_path / "back", SCHEMA, time_column="at")
    assert run("append", tmp_path / "back", file).exit_code == 0
    found = [run("scan", uri, "--format", "json").stdout for uri in (root, tmp_path / "back")]
    assert found[0] == found[1]


# ------------------------------------------------------------------------------ files


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.JSONL", "x.parquet", "x.arrow", "x.arrows"])
def test_the_name_of_the_output_tells_its_format(root, tmp_path, name):
    file = tmp_path / name
    assert "4 rows in" in run("scan", root, "--output", file).stderr
    readers = {
        "x.parquet": pq.read_table,
        "x.arrow": lambda path: pa.ipc.open_file(path).read_all(),
        "x.arrows": lambda path: pa.ipc.open_stream(path.read_bytes()).read_all(),
    }
    read = readers.get(
        name,
        lambda path: [
            x for x in path.read_text().splitlines() if "at" not in x[1:4] or x[0] == "{"
        ],
    )
    assert len(read(file)) == 4


def test_a_name_without_a_format_is_refused_before_anything_is_read(root, tmp_path):
    refused = run("scan", root, "--output", tmp_path / "x.txt")
    assert (refused.exit_code, "give --format" in refused.stderr) == (2, True)
    assert list(tmp_path.glob("x.txt*")) == []


# ------------------------------------------------------------------------------ errors


def test_internals_of_errors_are_shown_by_debug_alone(root):
    plain, debug = (run("show", root, 99, *more).stderr for more in ((), ("--debug",)))
    assert "99" in plain
    assert "table=" not in plain
    assert f"table={root.as_uri()}" in debug


def test_the_object_that_is_damaged_is_named(root, monkeypatch):
    def fail(*_args, **_options):
        raise Corrupt("the bytes are torn", table="file:///t", key="_log/7")

    monkeypatch.setattr(Table, "history", fail)
    assert run("log", root).stderr == "eventlog: the bytes are torn (in _log/7)\n"


def test_a_closed_port_is_named_at_once():
    with socket.socket() as free:  # bound, and nobody listens
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        given = {"endpoint_url": f"http://{place}", "access_key_id": "a", "secret_access_key": "b"}
        options = [w for n, v in given.items() for w in ("--storage-option", f"{n}={v}")]
        result = run("log", "s3://bucket/t", *options)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"eventlog: no server at {place}: start it")


# ------------------------------------------------------------------------------ help


def test_the_help_has_a_whole_line_for_each_verb():
    lines = run("--help", env={"COLUMNS": "80"}).stdout.splitlines()
    for group, verbs in GROUPS.items():
        at = lines.index(f"{group}:")
        assert [line.split()[0] for line in lines[at + 1 : at + 1 + len(verbs)]] == [
            verb.name for verb in verbs
        ]
    assert [line for line in lines[1:] if line.endswith("...")] == []
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_verbs_options_and_values(shell):
    def completed(*words):
        # bash and zsh count the words; fish names the one that is being written.
        last = words[-1] if shell == "fish" else str(len(words) - 1)
        asked = {"_EVENTLOG_COMPLETE": f"{shell}_complete", "COMP_CWORD": last}
        return run(prog_name="eventlog", env={**asked, "COMP_WORDS": " ".join(words)}).stdout

    assert "scan" in completed("eventlog", "sc")
    assert "Read rows" in completed("eventlog", "sc") or shell == "bash"
    assert "--format" in completed("eventlog", "scan", "--fo")
    assert "month" in completed("eventlog", "granularity", "x", "mo")
    source = run(prog_name="eventlog", env={"_EVENTLOG_COMPLETE": f"{shell}_source"})
    assert f"_EVENTLOG_COMPLETE={shell}_complete" in source.stdout


# ------------------------------------------------------------------------------ the pager


def on_terminal(columns, rows, *arguments, **environment):
    """Return what a terminal of this size shows of the program, as bytes."""
    child, terminal = pty.fork()
    if child == 0:  # the program itself
        os.environ.update(environment, COLUMNS=str(columns), LINES=str(rows), TERM="dumb")
        os.execv(sys.executable, [sys.executable, "-m", "eventlog", *map(str, arguments)])
    shown = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # Linux's end of a terminal
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown


@pytest.mark.verify
def test_narrow_terminals_show_the_verdict_on_each_chunk(root):
    code, shown = on_terminal(80, 40, "chunks", root)
    header = next(line.split() for line in shown.decode().splitlines() if "chunk" in line)
    assert (code, header[1:3]) == (0, ["act", "rule"])


@pytest.mark.verify
def test_what_is_longer_than_the_terminal_goes_through_the_pager(root):
    pager = {"PAGER": "sed s/^/paged:/"}
    code, shown = on_terminal(80, 4, "scan", root, **pager)
    assert (code, shown.count(b"paged:")) == (0, 5)
    code, shown = on_terminal(80, 4, "scan", root, "--no-pager", **pager)
    assert (code, shown.count(b"paged:"), shown.count(b"\n")) == (0, 0, 5)
    code, shown = on_terminal(80, 40, "scan", root, **pager)
    assert (code, shown.count(b"paged:")) == (0, 0)
    code, shown = on_terminal(52, 40, "scan", root, **pager)
    assert "the quick brown fox…".encode() in shown


# ------------------------------------------------------------------------------ bars


def test_the_bar_of_an_append_has_the_time_that_is_left_once_there_is_a_rate(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    with terminal.row_progress(None, 1000):
        pass
    assert "rows" in screen.getvalue()
    assert "left" not in screen.getvalue()
    assert "--:--" not in screen.getvalue()
    with terminal.row_progress(None, 1000) as advance:
        advance(10, 500)
    assert "500 B of 1 kB" in screen.getvalue()
    assert re.search(r"\d:\d\d:\d\d left", screen.getvalue())


def test_the_time_that_is_left_goes_by_the_work_so_far():
    assert terminal.left_text(0, 100, 5.0) == ""
    assert terminal.left_text(10, None, 5.0) == ""
    assert terminal.left_text(25, 100, 30.0) == "0:01:30 left"
    assert terminal.left_text(101, 100, 30.0) == "0:00:00 left"
