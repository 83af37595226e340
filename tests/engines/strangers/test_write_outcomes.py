"""The decisions behind the table of what others' writes do."""

import importlib.util
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
