"""Text from a table that somebody else wrote: a terminal obeys none of it, and no shell either."""

import io
import json
import logging
import re
import shlex
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.export import write_rows
from eventlog.cli.program import build
from eventlog.display import command, plain, plain_json
from eventlog.model.actions import Attach
from eventlog.readers import scan
from eventlog.writers import append, overwrite

ESC = "\x1b]0;owned\x07\x1b[2J"
LINE = "a\nfake line\r\x9b31m\u202e\u2028"
SHELL = "r$(touch X)'\"`touch X`;touch X"
HOSTILE = (ESC, LINE, SHELL)
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A table with such text wherever a name or a value may have it."""
    root = tmp_path_factory.mktemp("hostile") / "t"
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("c", pa.string()), ("d", pa.string())])
    properties = {f"user.{n}": text for n, text in enumerate(HOSTILE)}
    table = Table.create(str(root), schema, time_column="at", properties=properties)
    values = pa.table([pa.array([0], pa.timestamp("us", "UTC")), [ESC], [LINE]], schema=schema)
    append(table, values, app_id=ESC, app_seq=1)
    for number, text in enumerate(HOSTILE):
        table.pin(text, 1, owner=LINE)
        attach = Attach(f"{text}{number}", 1, table.uri if number else LINE)
        table.commit(table.transaction(f"op{ESC}", [attach], info={ESC: LINE, LINE: SHELL}))
    table.branch("x")
    overwrite(table, values, start="1970-01-01", end="1970-01-02")
    table.claim("1970-01-01", "1970-01-02", owner=LINE, group=ESC)
    return table


def verbs(table):
    """The arguments of every verb, by the verb."""
    uri, copy = table.uri, f"{table.uri}-copy"
    where = [[uri]]
    return {
        "append": [[uri, ESC], [uri, "/dev/null"]],
        "bisect": [[uri, "--sql", ESC], [uri, "--sql", f'SELECT "{LINE}" FROM t']],
        "blame": [[uri, ESC], [uri, "--where", ESC], [uri, "--key", ESC], [uri, "1970"]],
        "branch": [[uri, ESC], [uri, "x"], [uri, "y", "--delete"]],
        "branches": where,
        "changes": [[uri, "1"]],
        "chunks": where,
        "claims": [[uri], [uri, "--break", ESC]],
        "clock": where,
        "columns": [
            [uri],
            [uri, "drop", ESC],
            [uri, "rename", LINE, ESC],
            [uri, "add", f"{ESC}:int8"],
            [uri, "add", "z:int8", "--default", ESC, "--within", LINE],
        ],
        "compact": [[uri], [uri, "--explain", ESC], [uri, "--plan"]],
        "create": [[copy + "2", "--column", ESC], [uri, "--time-column", LINE]],
        "delete": [[uri, "--where", ESC], [uri, "--key", LINE]],
        "demo": [["--help"]],
        "diff": [[uri, "0", "1"]],
        "erase": [[uri, "--where", ESC], [uri, "--where", f"c = '{ESC}'"]],
        "drop": [[uri, ESC], [uri, LINE, "--run", "--reason", ESC]],
        "fsck": [[uri], [uri, "--checksums"]],
        "log": where,
        "ls": [[uri], [uri, "--chunk", ESC]],
        "merge": [[uri, copy + LINE], [uri, copy]],
        "merge-rows": [[uri, ESC, "--on", ESC], [uri, "/dev/null", "--on", "c", "--set", LINE]],
        "overwrite": [[uri, ESC], [uri, ESC, "--where", LINE]],
        "pin": [[uri, ESC + "2"], [uri, ESC], [uri, ESC, "--owner", LINE]],
        "pins": where,
        "properties": [[uri], [uri, f"{ESC}={LINE}"], [uri, "--remove", LINE]],
        "granularity": [[uri, ESC], [uri, "month"]],
        "publish": [["delta", uri], [ESC, uri]],
        "replicas": [[uri], [uri, "--break", "none" + ESC], [uri, "--detach", LINE]],
        "replicate": [[uri, copy], [uri, copy, "--name", f"{SHELL}2"], [uri, copy, "--name", ESC]],
        "restore": [[uri, "1", "--dry-run"]],
        "scan": [[uri, "--explain"], [uri, "--where", ESC], [uri, "--columns", LINE]],
        "show": [[uri], [uri, "2"], [uri, "0"]],
        "split": [[uri, "2"]],
        "stats": [[uri, "--vacuum"], [uri, "--prometheus"]],
        "sql": [[uri, ESC], [uri, f'SELECT "{LINE}" FROM t'], [uri, "", "--table", ESC]],
        "tag": [[uri, ESC], [uri, LINE, "--version", ESC]],
        "tags": where,
        "untag": [[uri, ESC], [uri, LINE]],
        "update": [[uri, "--set", ESC], [uri, "--set", f"{LINE}={ESC}", "--where", LINE]],
        "unpublish": [["delta", uri], ["delta", LINE]],
        "unpin": [[uri, name] for name in HOSTILE] + [[uri, "none" + ESC]],
        "upsert": [[uri, ESC]],
        "view": [[uri, "-o", f"{copy}/{ESC}"], [uri, "-o", f"{copy}.html"]],
        "vacuum": [[uri], [uri, "--full", "--retention-hours", "0"]],
    }


def run(*arguments):
    answer = CliRunner().invoke(build(), list(arguments))
    return answer.stdout, answer.stderr


def test_every_verb_is_tried_with_hostile_text(hostile):
    assert set(verbs(hostile)) >= set(build().commands), "enter the verb in `verbs` above"


@pytest.mark.verify
@pytest.mark.hazard("W8")
def test_no_verb_prints_what_a_terminal_obeys(hostile):
    given = verbs(hostile)
    for verb, calls in given.items():
        if verb not in build().commands:
            continue
        for arguments in calls:
            for mode in ([], ["--json"], ["--debug"]):
                for text in run(verb, *arguments, *mode):
                    assert not OBEYED.search(text), (verb, arguments, mode)
                    lines = "" if "--debug" in mode else text  # a traceback has the source's
                    assert not re.search("^fake line", lines, re.MULTILINE), (verb, arguments)


@pytest.mark.hazard("W8")
def test_json_keeps_the_texts(hostile):
    out, _ = run("pins", hostile.uri, "--json")
    assert {pin["name"] for pin in json.loads(out)} >= set(HOSTILE)
    assert all(ord(character) < 0x7F or ord(character) > 0x9F for character in out)


@pytest.mark.hazard("W8")
def test_a_shell_runs_a_suggested_command_with_the_words_that_are_meant(hostile):
    for arguments, words in (
        (["vacuum", hostile.uri], ["replicas", hostile.uri, "--break", f"{SHELL}2"]),
        (["replicas", hostile.uri], ["replicas", hostile.uri, "--break", f"{SHELL}2"]),
        (["unpin", hostile.uri, SHELL], ["unpin", hostile.uri, SHELL, "--break"]),
    ):
        out, err = run(*arguments)
        assert command(*words)[1:-1] in out + err, arguments
        assert shlex.split(command(*words)[1:-1]) == ["eventlog", *words]


def test_the_library_s_warnings_are_printed_likewise(hostile, monkeypatch):
    def warned(*_):
        logging.getLogger("eventlog.log").warning("ignored: %s", ESC)
        return []

    monkeypatch.setattr(Table, "branches", warned)
    _, err = run("branches", hostile.uri)
    assert err.splitlines()[0] == "ignored: \\x1b]0;owned\\x07\\x1b[2J"


class Screen(io.TextIOWrapper):
    """Standard output that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("row_format", ["csv", "json"])
def test_rows_on_a_terminal_are_plain_and_elsewhere_as_they_are(hostile, monkeypatch, row_format):
    for screen in (Screen, io.TextIOWrapper):
        out = screen(io.BytesIO(), encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            write_rows(scan(hostile).to_table().to_reader(), row_format, None)
        text = out.buffer.getvalue().decode()
        assert bool(OBEYED.search(text)) == (screen is not Screen)
        if row_format == "json":
            assert list(json.loads(text).values())[1:] == [ESC, LINE]


def test_plain_text():
    assert plain(f"a{ESC}b") == "a\\x1b]0;owned\\x07\\x1b[2Jb"
    assert plain("a\tb\n", kept="\n") == "a\\tb\n"
    assert plain("übermütig 日本 👩‍🚀") == "übermütig 日本 👩‍🚀"
    assert json.loads(plain_json(json.dumps(HOSTILE, ensure_ascii=False))) == list(HOSTILE)
