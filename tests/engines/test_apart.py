"""A program in a process of its own: its answers, and how it ended if it ended badly."""

import importlib.util
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("apart", Path(__file__).with_name("apart.py"))
apart = sys.modules["apart"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(apart)

PROGRAM = """
import json, os, pathlib, pickle, sys, time
number, asked, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
with (folder / "answers.jsonl").open("w") as told:
    for question in pickle.loads(asked.read_bytes()):
        told.write(json.dumps([number, question, os.environ["TZ"], os.environ.get("TOWN")]) + "\\n")
        told.flush()
"""


def answers(tmp_path, ending="", **environment):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + ending)
    folder = tmp_path / "own"
    folder.mkdir()
    return apart.answers_of(script, 7, ["a", "b"], folder, home=sys.prefix, **environment)


def test_a_program_is_asked_by_number_and_its_answers_are_read(tmp_path):
    found = answers(tmp_path, TOWN="Rome")
    assert found.lines == [[7, "a", "UTC", "Rome"], [7, "b", "UTC", "Rome"]]
    assert found.ended == ""


def test_a_program_that_ends_badly_leaves_its_answers_and_what_it_said(tmp_path):
    found = answers(tmp_path, "raise SystemExit('no more')")
    assert len(found.lines) == 2
    assert found.ended == "its process ended with 1: no more\n"


def test_a_program_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("WAY_SECONDS", "0.2")
    found = answers(tmp_path, "time.sleep(60)")
    assert found.ended.startswith("it was not done after 0.2 s")


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_PYTHON"])
def test_a_program_has_the_spark_of_its_own_environment(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "another")
    ending = f"raise SystemExit(os.environ.get('{name}', 'none'))"
    assert answers(tmp_path, ending).ended.endswith("none\n")
