"""The benchmark: `python tests/bench/run.py [--only NAME] [--quick] [--spark 3.5] [--json PATH]`.

Every workload runs in a process of its own, bounded in time and memory. One table is printed and
written as JSON; its last column is the goal and whether it was met. Requests are counted exactly;
times are medians of runs that alternate between the systems, to be read as ratios within a row. The
exit code is 0 whether goals were met or missed, and 1 where a workload failed.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import peers
from harness import Bench, Row, short, watched

HERE = Path(__file__).parent
# Workload, seconds it may take, seconds with --quick. The sum is below what a full run may take.
WORKLOADS = {
    "append": (130, 40),
    "cold-start": (90, 40),
    "groups": (120, 40),
    "open": (120, 30),
    "after-appends": (120, 40),
    "plan": (280, 40),
    "made-frames": (120, 30),
    "contention": (120, 40),
    "crowd": (600, 40),
    "small-files": (240, 40),
    "ongoing": (300, 70),
    "vacuum": (330, 30),
    "follow": (300, 30),
    "branches": (200, 60),
    "changes": (300, 60),
    "changed-beside": (330, 70),
    "keyed": (400, 60),
    "arrow": (110, 30),
    "engines": (120, 30),
    "spark": (420, 200),
}
MEMORY_MB = 10_000
COLUMNS = ("eventlog", "deltalake", "pylance", "pyiceberg", "reference")


def main():
    options = _arguments()
    if options.worker:
        return _work(options)
    started = time.monotonic()
    rows, failed = [], []
    for name, hint in peers.missing().items():
        rows.append(Row(f"{name} is not installed", {name: "-"}, note=hint, group="set-up"))
    for name in options.only or WORKLOADS:
        limit_s = WORKLOADS[name][1 if options.quick else 0] * options.patience
        print(f"{name}: at most {limit_s:.0f} s …", file=sys.stderr, flush=True)
        found, error = _run(name, limit_s, quick=options.quick, sparks=options.spark)
        rows += found
        if error:
            failed.append(name)
            rows.append(Row(f"{name} did not finish", {}, note=error, group=name, met=False))
    seconds = time.monotonic() - started
    _print_table(rows, seconds)
    _write_json(options.json, rows, seconds, quick=options.quick)
    return 1 if failed else 0


def _arguments():
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    parser.add_argument(
        "--spark", action="append", default=[], metavar="WHICH",
        help="PySpark of workload spark: a version in .spark, `here`, or the path of a Python; "
        "may be repeated; the oldest and `here` by default",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float, default=1, help="multiplies every time limit, for a busy machine"
    )
    parser.add_argument("--json", type=Path, default=Path("bench-results/bench.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(name, limit_s, *, quick, sparks):
    """Run one workload in a fresh process; return its rows, and what went wrong if anything."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    out = folder / "rows.jsonl"
    command = [sys.executable, "-W", "ignore", __file__, "--worker", name]
    command += ["--limit", str(limit_s), "--folder", str(folder), *(["--quick"] if quick else [])]
    command += [f"--spark={which}" for which in sparks]
    environment = {**os.environ, "BENCH_CATALOGS": str(folder)}
    try:
        with (
            (folder / "stderr").open("w+") as errors,
            subprocess.Popen(
                command, stdout=errors, stderr=errors, env=environment, start_new_session=True
            ) as process,
        ):
            # The workload watches its own time; this is for one that hangs.
            with watched(process, limit_s * 1.5 + 20, MEMORY_MB) as why:
                process.wait()
            errors.seek(0)
            last = "".join(errors.readlines()[-25:])
        lines = out.read_text().splitlines() if out.exists() else []
        rows = [Row(**json.loads(line)) for line in lines]
        if process.returncode == 0:
            return rows, None
        print(last, file=sys.stderr)
        return rows, why[0] if why else " ".join(last.splitlines()[-1:])[:200] or "failed"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(options):
    """Run one workload here, its rows going to a file as they come."""
    import after_appends
    import appends
    import arrow_cost
    import branching
    import changed_beside
    import changing
    import cold_starts
    import contention
    import crowd
    import following
    import groups
    import keyed
    import made_frames
    import ongoing
    import opens
    import plans
    import pushed_queries
    import small_files
    import spark_cost
    import vacuums

    runs = {
        "append": appends.run,
        "cold-start": cold_starts.run,
        "groups": groups.run,
        "open": opens.run,
        "after-appends": after_appends.run,
        "plan": plans.run,
        "made-frames": made_frames.run,
        "contention": contention.run,
        "crowd": crowd.run,
        "small-files": small_files.run,
        "ongoing": ongoing.run,
        "vacuum": vacuums.run,
        "follow": following.run,
        "branches": branching.run,
        "changes": changing.run,
        "changed-beside": changed_beside.run,
        "keyed": keyed.run,
        "arrow": arrow_cost.run,
        "engines": pushed_queries.run,
        "spark": spark_cost.run,
    }
    with (options.folder / "rows.jsonl").open("a", buffering=1) as out:

        def emit_line(line):
            out.write(line + "\n")

        bench = Bench(
            options.worker,
            options.folder,
            options.limit,
            options.quick,
            tuple(options.spark),
            emit_line=emit_line,
        )
        try:
            runs[options.worker](bench)
        except Exception as error:
            bench.emit(f"{options.worker} failed", {"eventlog": "failed"}, note=short(error))
            raise
    return 0


def _print_table(rows, seconds):
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for row in rows:
            print(row.group, row.work, _cells(row), _goal(row), row.note, sep=" | ")
        return
    table = Table(title=f"eventlog and its peers, {seconds:.0f} s", show_lines=False)
    table.add_column("work", min_width=48, overflow="fold")
    table.add_column("unit")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    table.add_column("goal", min_width=16, overflow="fold")
    group = None
    for row in rows:
        if group not in (None, row.group):
            table.add_section()
        group = row.group
        style = "red" if row.met is False else ""
        work = row.work + (f"\n  [dim]{_plain(row.note)}[/dim]" if row.note else "")
        table.add_row(work, row.unit, *_cells(row), _goal(row), style=style)
    width = max(165, shutil.get_terminal_size().columns)
    Console(width=width).print(table)
    goals = [row for row in rows if row.met is not None]
    met = sum(1 for row in goals if row.met)
    unknown = sum(1 for row in rows if row.goal.endswith("not measured"))
    print(f"{met} of {len(goals)} goals met, {unknown} not measured.")
    print("(xN): N times eventlog's figure in the same row.")


def _plain(text):
    return text.replace("[", "\\[")


def _cells(row):
    own = row.values.get("eventlog")
    return [_cell(row.values.get(name), own, other=name != "eventlog") for name in COLUMNS]


def _cell(value, own, *, other):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    if other and isinstance(own, int | float) and own:
        text += f" (x{value / own:.2g})"
    return text


def _goal(row):
    if row.met is None:
        return row.goal
    return f"{row.goal}: {'met' if row.met else 'MISSED'}"


def _write_json(path, rows, seconds, *, quick):
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {
        "quick": quick,
        "seconds": round(seconds, 1),
        "machine": {
            "cpus": os.cpu_count(),
            "platform": platform.platform(),
            "python": platform.python_version(),
        },
        "versions": {name: _version(name) for name in (*peers.SYSTEMS, "pyarrow", "pyspark")},
        "rows": [vars(row) for row in rows],
    }
    path.write_text(json.dumps(told, indent=1) + "\n")


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
