"""Deletes and updates from Spark, beside Delta Lake and Iceberg: `make bench-changes`.

The work of the workload `changes` of `make bench`, where Spark does it: a thousandth of the rows is
deleted, another one updated, some in each file; then half of the files are deleted, which
statistics or partitions decide. Each system has a session and a table of its own on one S3 server.
Requests and bytes are the server's counts, CPU is that of the driver, its JVM and all Python
workers. Answers are compared with sums that are computed here. Jars come from Maven, as those of
`make bench-upserts`.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from changing import rows_of
from harness import Failed, Server, short
from spark_changes_job import SYSTEMS
from spark_cost import HERE as NEWEST
from spark_cost import interpreter
from upserts import COMMON, steps_of

LIMIT_S = 1200
STEPS = ("delete", "update", "delete of files")


def main():
    options = _arguments()
    failed = False
    print(
        "| system | " + " | ".join(f"{s}: requests; MB; CPU s" for s in STEPS) + " | scan: CPU s |"
    )
    print("|---" * (len(STEPS) + 2) + "|")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    told = []
    with tempfile.TemporaryDirectory(prefix="bench-changes-") as name:
        folder, half = Path(name), options.files // 2
        wanted = _write(folder / "rows", options.files, half)
        for system in options.only or SYSTEMS:
            for spark in (NEWEST, COMMON) if system == "eventlog" else (COMMON,):
                try:
                    plan = {"system": system, "half": half}
                    steps = _measured(folder, plan, spark, wanted, options.limit)
                except Failed as error:
                    failed = True
                    print(f"| {system}, Spark {spark} | NOT MEASURED: {short(error, 400)} |")
                    continue
                print(_line(system, steps), flush=True)
                told.append({"system": system, "steps": steps})
                options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if failed else 0


def _arguments():
    parser = argparse.ArgumentParser(prog="make bench-changes", description=__doc__)
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="may be repeated")
    parser.add_argument("--files", type=int, default=1000, help="of 5,000 rows each")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one session")
    parser.add_argument("--json", type=Path, default=Path("bench-results/changes.json"))
    return parser.parse_args()


def _write(folder, files, half):
    """Write the rows; return the sums of each state that a table must have."""
    folder.mkdir()
    rows = rows_of(files)
    part = -(-rows.num_rows // 4)
    for number in range(4):
        some = rows.slice(number * part, part)
        pq.write_table(some, folder / f"{number}.parquet", row_group_size=250_000)
    left = rows.filter(pc.not_equal(rows["mark"], 1))
    raised = pc.if_else(pc.equal(left["mark"], 2), pc.add(left["value"], 1.0), left["value"])
    late = pc.greater_equal(left["hour"], pa.scalar(half, pa.int32()))
    last = left.set_column(left.column_names.index("value"), "value", raised).filter(late)
    named = {"scan before": rows, "scan after": left, "scan at the end": last}
    return {
        step: [at.num_rows, pc.sum(at["value"]).as_py(), pc.sum(at["id"]).as_py()]
        for step, at in named.items()
    }


def _measured(folder, plan, spark, wanted, limit_s):
    """Run one session; return what each step cost.

    Raises:
        Failed: it cannot be run, or answered wrongly.
    """
    python = interpreter(spark)
    if not python.exists():
        raise Failed(f"make its environment with: .ci/spark-matrix --install {spark}")
    plan |= {"rows": str(folder / "rows"), "folder": tempfile.mkdtemp(dir=folder)}
    with Server() as server:
        steps = steps_of("spark_changes_job.py", python, plan, server, limit_s)
    for step in steps:
        if "sums" in step and step["sums"] != wanted[step["step"]]:
            raise Failed(f"{step['step']}: {step['sums']}, not {wanted[step['step']]}")
    return steps


def _line(system, steps):
    by_name = {step["step"]: step for step in steps}
    cells = [f"{system}, Spark {by_name['start']['version']}"]
    for name in STEPS:
        step = by_name[name]
        megabytes = step["bytes_written"] / 10**6
        cells.append(f"{step['total']:,}; {megabytes:.2f}; {step['cpu_s']:.1f}")
    before, after = (
        statistics.median(s["cpu_s"] for s in steps if s["step"] == name)
        for name in ("scan before", "scan after")
    )
    cells.append(f"{before:.1f} → {after:.1f} (\N{MULTIPLICATION SIGN}{after / before:.2f})")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
