"""The contest runs for real, in programs of its own, where there is neither Spark nor Java."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import Table
from eventlog.fsck.check import fsck

# The program, and all that it starts, without pyspark.
HIDDEN = 'raise ImportError("hidden")\n'
SHORT = """
import json, sys
from eventlog.demo.contest.contest import run_contest
from eventlog.demo.contest.outcome import ContestPlan
plan = ContestPlan(folder="left", writers=2, every=90, beside=())
json.dump(run_contest(plan).facts(), sys.stdout, default=str)
"""


def ran(folder, *arguments):
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "pyspark.py").write_text(HIDDEN)
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "JAVA_"))}
    paths = [str(hidden), *(str(Path(p).absolute()) for p in sys.path if p)]
    environment |= {"PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        capture_output=True,
        text=True,
        timeout=800,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, environment


@pytest.mark.verify
def test_two_programs_append_beside_compaction_without_java(tmp_path):
    out, _ = ran(tmp_path, "-c", SHORT)
    facts = json.loads(out)
    assert facts["ok"]
    assert facts["exact"]
    (own,) = facts["teams"]
    assert own["appends"] == sum(lane["batches"] for lane in own["lanes"]) >= 6
    assert (own["raised"], own["lost"], own["doubled"]) == (0, 0, 0)
    assert own["rows"] == facts["given"] > 3000
    assert own["files"] == facts["considered"]
    assert all(lane["requests"]["put"] >= 2 for lane in own["lanes"])
    assert own["compaction"]["requests"]["list"] >= 1
    left = Table.open(tmp_path / "left")
    assert left.refresh().version == facts["head"]
    assert left.refresh().totals.rows == facts["given"]
    assert fsck(left, checksums=True).ok


@pytest.mark.demo
@pytest.mark.timeout(900)
def test_the_whole_contest_leaves_a_table_that_its_commands_explore(tmp_path):
    out, environment = ran(tmp_path, "-m", "eventlog.cli", "demo")
    assert "\x1b" not in out
    assert re.search(r"appends acknowledged +78 of 78 +\d+ of 78\n", out)
    assert re.search(r"deltalake \d+\.\d+", out)
    assert "THE " not in out
    _, _, explore = out.partition("Look around:")
    commands = re.findall(r"^  (eventlog .*)$", explore, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        if command.startswith("eventlog demo"):
            continue
        words = shlex.split(command, comments=True)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "eventlog.cli", *words[1:]],
            capture_output=True,
            text=True,
            timeout=800,
            env=environment,
            cwd=tmp_path,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout
