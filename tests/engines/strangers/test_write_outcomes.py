"""The decisions behind the table of what others' writes do."""

import importlib
import importlib.util
import json
import pickle
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "write_outcomes", Path(__file__).with_name("write_outcomes.py")
)
write_outcomes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write_outcomes)


@pytest.mark.parametrize(
    ("error", "left", "kind"),
    [
        ("unknown feature eventlog.readOnly", False, "refused"),
        ("Invalid file format: eventlog-read-only", True, "refused, and left files"),
        ("Cannot expire snapshots: GC is disabled", False, "refused"),
        ("Failed to read file: t/metadata/v999999999.gz.metadata.json", False, "refused"),
        ("INSERT into a sorted iceberg table is not supported yet.", False, "refused"),
        ("DuckDB-Iceberg only supports merge-on-read for updates/deletes", False, "refused"),
        ("a mistake of the test", False, "not possible"),
        (None, False, "no change"),
        (None, True, "wrote, publisher stops"),
    ],
)
def test_only_the_error_of_a_guard_is_a_refusal(error, left, kind):
    assert write_outcomes.kind_of_write(error, left=left) == kind


def test_a_row_has_the_writes_of_a_program_by_what_became_of_them():
    rows = [
        ("one", {"append": ("refused", ""), "merge": ("refused", ""), "drop": ("no change", "")}),
        ("two", {"append": ("not possible", "a | b"), "drop": ("not possible", "a | b")}),
    ]
    assert write_outcomes.table_of_writes(rows).splitlines() == [
        "| program | refused | not possible | no change |",
        "|---|---|---|---|",
        "| one | append, merge | - | drop |",
        "| two | - | append [1], drop [1] | - |",
        "",
        "| | why it was not possible |",
        "|---|---|",
        "| 1 | a   b |",
    ]


def test_a_program_that_ends_before_its_last_write_was_not_tried():
    assert write_outcomes.why_stopped(("append", "drop"), 2, "") == ""
    assert write_outcomes.why_stopped(("append", "drop"), 1, "killed") == "drop: killed"
    assert write_outcomes.why_stopped(("append", "drop"), 0, "") == "append: no answer"


@pytest.fixture
def writing(tmp_path, monkeypatch):
    """A function: tries writes as a process of their own does, and returns its answers."""
    here = Path(__file__).parent
    for folder in (here.parent, here):
        monkeypatch.syspath_prepend(folder)
    writes = importlib.import_module("foreign_writes")
    program = importlib.import_module("write")

    def tried(**asked):
        one = writes.Program("it", "pyarrow", "", "delta", "", asked)
        monkeypatch.setattr(program, "PROGRAMS", (one,))
        plan = tmp_path / "asked"
        plan.write_bytes(pickle.dumps(dict.fromkeys(asked)))
        monkeypatch.setattr(sys, "argv", ["write.py", "0", str(plan), str(tmp_path)])
        try:
            program.main()
        finally:
            lines = (tmp_path / "answers.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines][1:]

    tried.writes = writes
    return tried


def fails(error):
    def write(target):
        raise error

    return write


def test_an_error_of_a_write_is_an_answer(writing):
    found = writing(append=fails(ValueError("eventlog.readOnly")), drop=lambda target: None)
    assert found == [{"error": "ValueError", "text": "eventlog.readOnly"}, {}]


def test_an_error_before_a_write_or_of_the_test_is_no_answer(writing):
    prepared = writing.writes.preparation()(fails(ValueError("eventlog.readOnly")))
    with pytest.raises(writing.writes.NotPrepared, match=r"ValueError: eventlog\.readOnly"):
        writing(append=prepared)
    with pytest.raises(NameError):
        writing(append=fails(NameError("of the test")))
