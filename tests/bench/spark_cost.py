"""Spark on local files: eventlog beside Spark's own Parquet source, in CPU seconds.

On the oldest PySpark that is promised and on the one that runs this, or on those that `--spark`
names. An environment of another version is made by `.ci/spark-matrix --install VERSION`.
"""

import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from harness import Failed, child, short

ROOT = Path(__file__).parents[2]
OLDEST, HERE = "3.5", "here"
# Question, goal as a multiple of Spark's Parquet source; None has no goal.
GOALS = {
    "write": 1.6,
    "read all": 1.5,
    "sum of 2 columns": 1.5,
    "selective filter": 1.5,
    "count": None,  # no goal: `count()` on a frame by engine `arrow` reads every column
}


def run(bench):
    if find_spec("pyspark") is None or find_spec("psutil") is None:
        bench.emit(
            "Spark",
            {"eventlog": "-"},
            note="pip install 'eventlog-tables[spark,bench]', and Java 17+",
        )
        return
    failed = []
    names = bench.sparks or (OLDEST, HERE)
    for place, name in enumerate(names):
        python = interpreter(name)
        if not python.exists():
            _absent(bench, name)
            continue
        error = _measure(bench, python, bench.left_s / (len(names) - place))
        failed += [error] if error else []
    if failed:
        raise failed[0]


def interpreter(name):
    """Return the Python that runs a version of PySpark: `here`, a version, or a path."""
    if name == HERE:
        return Path(sys.executable)
    return Path(name) if "/" in name else ROOT / ".spark" / name / "bin" / "python"


def _absent(bench, name):
    for question, most in GOALS.items():
        bench.emit(
            f"Spark {name}: {question}",
            {"eventlog": "NOT MEASURED"},
            goal=f"≤ x{most} of Parquet: not measured" if most else "not measured",
            note=f"make its environment with: .ci/spark-matrix --install {name}",
        )


def _measure(bench, python, limit_s):
    """Measure one version. Return the error that ended it, if one did."""
    rows = bench.size(5_000_000, 100_000)
    rounds = bench.size(3, 1)
    version = _version(python)
    try:
        told = child(
            "spark_job.py", bench.folder / version, rows, rounds, limit_s - 20,
            timeout_s=limit_s, python=python,
        )  # fmt: skip
    except Failed as error:
        bench.emit(f"Spark {version}", {"eventlog": "failed"}, note=short(error, 300))
        return error
    for engine, why in told["failed"].items():
        bench.emit(f"Spark {version}: {engine}", {"eventlog": "failed"}, note=why)
    if told["stopped"]:
        bench.stopped(f"Spark {version}", told["stopped"], f"{rounds} rounds")
    for question, most in GOALS.items():
        found = told["cpu_s"].get(question, {})
        if found.get("parquet"):
            work = f"Spark {version}, {rows:,} rows x 8: {question}"
            _rows(bench, work, found, most, told["notes"].get(question, ""))
    return None


def _version(python):
    command = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or "?"


def _rows(bench, work, found, most, note):
    base = _median(map(sum, found["parquet"]))
    like = _median(map(sum, found.get("parquet, zstd", ())))
    for engine, spent in found.items():
        if engine.startswith("parquet"):
            continue
        own = _median(map(sum, spent))
        java, others = map(_median, zip(*spent, strict=True))
        told = [
            f"x{own / base:.2f} of Spark's Parquet source",
            f"x{own / like:.2f} of the same with zstd" if like else "",
            f"JVM {java:.2g} s, Python {others:.2g} s",
            note,
            f"median of {len(spent)}",
        ]
        bench.emit(
            f"{work}, {engine}",
            {"eventlog": own, "reference": base},
            "CPU s",
            goal=f"≤ x{most} of Parquet" if most else "",
            met=None if most is None else own / base <= most,
            note="; ".join(filter(None, told)),
        )


def _median(seconds):
    known = list(seconds)
    return statistics.median(known) if known else None
