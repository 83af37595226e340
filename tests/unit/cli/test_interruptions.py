"""Ctrl-C in a write: the program says what was committed, and nothing is lost."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.commit.committer import Committer
from eventlog.readers import count
from eventlog.writers.files import open_rows

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64())])
ROWS = pa.table([[0, 1, 2], [0, 1, 2]], schema=SCHEMA)


@pytest.fixture
def given(tmp_path):
    """A table, and a file of rows for it."""
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    return Table.create(tmp_path / "t", SCHEMA, time_column="at"), str(tmp_path / "rows.parquet")


def interrupted(monkeypatch, *, after):
    """Have Ctrl-C arrive before the transaction is committed, or after it."""
    commit = Committer.commit

    def stopped(*arguments):
        if after:
            commit(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Committer, "commit", stopped)


def run(verb, table, file):
    return CliRunner().invoke(build(), [verb, table.uri, file])


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_after_the_commit_the_version_is_named(given, monkeypatch, verb):
    interrupted(monkeypatch, after=True)
    done = run(verb, *given)
    assert (done.exit_code, done.stdout) == (130, "")
    assert "version 1 has all rows, do not repeat it" in done.stderr
    assert count(given[0].uri) == 3


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_in_the_commit_it_is_open_and_the_table_is_as_it_was(given, monkeypatch, verb):
    interrupted(monkeypatch, after=False)
    done = run(verb, *given)
    assert done.exit_code == 130
    assert f"`eventlog log {given[0].uri}` before you repeat it" in done.stderr
    assert given[0].refresh().version == 0


def test_before_the_commit_nothing_was_committed(given, monkeypatch):
    def stopped(reader, _count):
        raise KeyboardInterrupt

    monkeypatch.setattr("eventlog.cli.verbs.rows.file_options.with_progress", stopped)
    done = run("append", *given)
    assert done.exit_code == 130
    assert "nothing was committed, and the input is as it was" in done.stderr
    monkeypatch.undo()
    assert "version 1: appended 3 rows" in run("append", *given).stdout


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv"])
def test_the_bytes_that_were_read_are_known(tmp_path, name):
    file = tmp_path / name
    if name == "rows.parquet":
        pq.write_table(ROWS, file)
    else:
        lines = [f"1970-01-01T00:00:00Z,{n}" for n in range(100)]
        file.write_text("\n".join(["at,id", *lines, ""]))
    rows = open_rows([str(file)], SCHEMA, "at")
    assert rows.size == file.stat().st_size
    assert (rows.total == 3) == (name == "rows.parquet")
    rows.reader.read_all()
    if name == "rows.csv":
        assert rows.position() == rows.size


@pytest.mark.verify
def test_an_interrupted_program_does_not_wait_for_threads_that_still_read():
    program = """
import threading
from eventlog.cli import entry, program

def interrupted(*_):
    threading.Thread(target=threading.Event().wait).start()
    print("said")
    return program.INTERRUPTED

program.Program._run = interrupted
entry.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=240)
    assert (done.returncode, done.stdout) == (130, b"said\n")
