"""The benchmark runs from end to end at small sizes, and counts what it says it counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def quick(tmp_path, *arguments, timeout):
    """Run the benchmark at small sizes; return what it wrote as JSON, and what it printed."""
    out = tmp_path / "bench.json"
    command = [sys.executable, str(RUN), "--quick", *arguments, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text()), done.stdout


@pytest.mark.bench
def test_a_quick_run_measures_and_reports(tmp_path):
    told, printed = quick(tmp_path, "--only", "append", "--only", "open", timeout=150)
    requests = {
        row["work"]: row["values"]["eventlog"]
        for row in told["rows"]
        if row["unit"] == "requests" and "eventlog" in row["values"]
    }
    assert requests["warm append of 100 rows, S3: median"] == 2
    assert requests["open head, 100 commits, S3"] <= 3
    assert requests["open an old version, 100 commits, S3"] <= 2
    assert not [row for row in told["rows"] if "failed" in row["work"]]
    for name in ("append", "open"):
        assert any(row["group"] == name for row in told["rows"])
    assert "goals" in printed


@pytest.mark.bench
def test_engines_ask_for_no_more_than_a_scan(tmp_path):
    told, _ = quick(tmp_path, "--only", "engines", timeout=120)
    asked = [row["values"] for row in told["rows"] if row["unit"] in ("requests", "MB")]
    assert len(asked) == 18
    assert all(values["eventlog"] <= values["reference"] * 1.1 for values in asked)


@pytest.mark.bench
def test_compaction_is_measured_and_loses_nothing(tmp_path):
    told, _ = quick(tmp_path, "--only", "small-files", "--only", "ongoing", timeout=250)
    rows = told["rows"]
    found = {row["work"]: row["values"].get("eventlog") for row in rows}
    assert found["… appends that raised"] == 0
    assert found["… compactions that failed"] == 0
    assert found["… compactions committed"] >= 1
    assert found["… rows lost, or there too often"] == 0
    assert found["compaction, 50 files of 1,000 rows in 10 days, directory"] > 0
    assert "failed" not in found.values()
    assert "files left: eventlog 10" in " ".join(row["note"] for row in rows)


@pytest.mark.bench
def test_changes_beside_compaction_are_measured_and_nothing_is_wrong(tmp_path):
    told, _ = quick(tmp_path, "--only", "changed-beside", timeout=150)
    found = {row["work"]: row["values"].get("eventlog") for row in told["rows"]}
    assert found["… changes that raised"] == 0
    assert found["… compactions that failed"] == 0
    assert found["… rows that are not what was acknowledged"] == 0


@pytest.mark.bench
def test_a_granularity_that_follows_the_data_has_as_few_segments_as_the_best(tmp_path):
    command = [sys.executable, str(RUN.with_name("granularities.py")), "--quick", "--only", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split(" | ") for line in done.stdout.splitlines() if "**" not in line]
    counts = {line[0].strip("| "): int(line[1].replace(",", "")) for line in lines[2:]}
    assert counts["auto: year"] == counts["year"] < counts["day"] / 100


@pytest.mark.verify
def test_a_spark_that_is_not_there_is_not_passed_over(tmp_path):
    told, _ = quick(tmp_path, "--only", "spark", "--spark", "0.9", timeout=60)
    rows = [row for row in told["rows"] if row["group"] == "spark"]
    assert rows
    for row in rows:
        assert row["values"] == {"eventlog": "NOT MEASURED"}
        assert row["goal"].endswith("not measured")
        assert ".ci/spark-matrix --install 0.9" in row["note"]


@pytest.mark.bench
def test_a_system_that_cannot_be_run_is_said_to_be_not_measured(tmp_path):
    out = tmp_path / "upserts.json"
    command = [sys.executable, str(RUN.with_name("upserts.py")), "--only", "Hudi"]
    command += ["--spark", "0.9", "--case", "recent days", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "| Hudi, Spark 0.9 | recent days | NOT MEASURED: make its environment" in done.stdout
    assert ".ci/spark-matrix --install 0.9" in json.loads(out.read_text())[0]["failed"]
