"""Spark on local files: eventlog's source beside Spark's own Parquet source, in CPU seconds."""

import statistics
from importlib.util import find_spec

from harness import Failed, child, short

# Question, goal as a multiple of Spark's Parquet source; None has no goal in the design.
GOALS = {
    "write": 1.6,
    "read all": 1.5,
    "sum of 2 columns": 1.5,
    "selective filter": 1.5,
    "count": None,
}


def run(bench):
    if find_spec("pyspark") is None or find_spec("psutil") is None:
        bench.emit(
            "Spark",
            {"eventlog": "-"},
            note="pip install 'eventlog-tables[spark,bench]', and Java 17+",
        )
        return
    rows = bench.size(5_000_000, 100_000)
    rounds = bench.size(3, 1)
    try:
        told = child(
            "spark_job.py", bench.folder, rows, rounds, bench.limit_s - 20,
            timeout_s=bench.limit_s,
        )  # fmt: skip
    except Failed as error:
        bench.emit("Spark", {"eventlog": "failed"}, note=short(error, 300))
        raise
    for engine, why in told["failed"].items():
        bench.emit(f"Spark: {engine}", {"eventlog": "failed"}, note=why)
    if told["stopped"]:
        bench.stopped("Spark", told["stopped"], f"{rounds} rounds")
    for question, most in GOALS.items():
        found = told["cpu_s"].get(question, {})
        reference = found.get("parquet")
        if reference:
            _rows(bench, f"Spark, {rows:,} rows x 8: {question}", found, reference, most)


def _rows(bench, work, found, reference, most):
    base = statistics.median(reference)
    for engine, times in found.items():
        if engine == "parquet" or not times:
            continue
        own = statistics.median(times)
        bench.emit(
            f"{work}, {engine}",
            {"eventlog": own, "reference": base},
            "CPU s",
            goal=f"≤ x{most} of Parquet" if most else "",
            met=None if most is None else own / base <= most,
            note=f"x{own / base:.2f} of Spark's Parquet source; median of {len(times)}",
        )
