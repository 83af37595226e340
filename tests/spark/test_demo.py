"""The demo with Spark runs for real, in a process of its own: server, jobs, three engines."""

import json
import os
import subprocess
import sys

import pytest
from spark.programs import PRELOADED, SHORT_SUBMIT

from eventlog import Table
from eventlog.fsck.check import fsck

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STEPS = {
    "create",
    "append, all jobs",
    "query at several versions",
    "one day of the year",
    "Spark",
    "DuckDB",
    "Polars",
    "late flights and compaction",
    "status upserts and compaction",
    "read everything",
}


def demo(*arguments):
    # Without whatever server this test session leads its own environment to.
    environment = {n: v for n, v in os.environ.items() if not n.startswith("AWS_")}
    environment["PYSPARK_SUBMIT_ARGS"] = SHORT_SUBMIT["PYSPARK_SUBMIT_ARGS"]
    environment["PYTHONPATH"] = PRELOADED
    return subprocess.run(
        [sys.executable, "-m", "eventlog.cli", "demo", "--spark", "--quick", *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment,
    )


@pytest.mark.demo
def test_demo_on_s3_is_exact_and_its_engines_agree():
    done = demo("--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts["ok"]
    assert facts["exact"]
    assert facts["equal"]
    assert facts["rows"] == facts["expected"] > 30_000
    assert facts["appends"] == 4
    assert facts["head"] >= 2  # appends at once may share a commit; a replacement does not
    beside = facts["compaction"]
    assert (beside["conflicts"], beside["failed_appends"], beside["appends"]) == (0, 0, 8)
    assert beside["before"] == facts["segments"]
    assert beside["after"] == 36  # one a day: planning once more finds nothing
    assert beside["stable"]
    # Both orders: late appends during a compaction, and a compaction during the late appends.
    assert beside["arrived"] >= 1
    assert beside["between"] >= 1
    assert beside["compactions"] >= beside["between"]
    assert "rewriting 4 of" in beside["reasons"][0]
    # Four jobs wrote the same days; one day is read from the four segments that they made of it.
    assert facts["segments"] == 4 * 36
    assert facts["segments_read"] == 4
    status = facts["status"]
    assert status["exact"]
    assert status["replayed"]
    assert status["flights"] > 800
    assert (status["upserts"], status["failed_upserts"], status["conflicts"]) == (8, 0, 0)
    assert status["compactions"] >= 1
    assert {"insert", "update_before", "update_after"} == status["kinds"].keys()
    assert status["story"][0][2] == "insert"
    assert facts["requests"].keys() == facts["seconds"].keys() == STEPS
    assert facts["requests"]["one day of the year"]["get"] <= 16
    assert facts["requests"]["append, all jobs"]["put"] <= facts["segments"] + 4 * 20


@pytest.mark.soak  # a minute of Spark that differs from the run above only in its store
def test_demo_in_a_folder_leaves_a_sound_table(tmp_path):
    folder = tmp_path / "flights"
    done = demo("--local", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("4 Spark jobs", "the answers are equal", "rows read back equal", "eventlog log"):
        assert part in done.stdout
    table = Table.open(folder)
    appends = [e.transactions for e in table.history() if e.operation == "append"]
    assert sum(appends) == 4 + 8
    assert fsck(table, checksums=True).ok
    assert fsck(Table.open(f"{folder}-status"), checksums=True, keys=True).ok

    again = demo("--local", str(folder))
    assert again.returncode == 3
    assert "there is already a table here" in again.stderr


def test_missing_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = demo("--local", str(tmp_path / "flights"))
    assert done.returncode == 1
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "flights").exists()
