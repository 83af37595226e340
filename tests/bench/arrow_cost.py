"""One large append from Arrow: CPU, and memory bounded by settings, not by the input."""

import statistics
import time

import peers
from harness import Failed, child, short


def run(bench):
    rows = bench.size(5_000_000, 200_000)
    systems = [n for n in ("eventlog", "deltalake", "pylance") if n in peers.present()]
    told = _alternating(bench, [*systems, "reference"], rows)
    note = "reference: pyarrow's ParquetWriter, one zstd file; eventlog alone cuts by day (30 days)"
    for key, unit in (("cpu_s", "CPU s"), ("rss_mb", "peak MB")):
        values = {n: statistics.median(one[key] for one in found) for n, found in told.items()}
        bench.emit(f"append of {rows:,} rows x 8, Arrow, directory", values, unit, note=note)
        note = ""
    _bounded(bench, rows)


def _alternating(bench, names, rows):
    told = {}
    ends = time.monotonic() + bench.limit_s * 0.5
    for number in range(bench.size(3, 1)):
        if number and time.monotonic() > ends:
            bench.stopped("append from Arrow", f"{number} rounds", 3)
            break
        for name in names:
            root = bench.folder / f"{name}-{number}"
            try:
                one = child("stream.py", name, root, rows, 512, timeout_s=60)
            except Failed as error:
                bench.emit(f"append from Arrow: {name}", {name: "failed"}, note=short(error))
                continue
            told.setdefault(name, []).append(one)
    return told


def _bounded(bench, rows):
    more = rows * 4
    for memory_mb in (512, 256, 64):
        try:
            few, many = (
                child(
                    "stream.py", "eventlog", bench.folder / f"mem-{memory_mb}-{count}", count,
                    memory_mb, timeout_s=max(5, bench.left_s),
                )
                for count in (rows, more)
            )  # fmt: skip
        except Failed as error:
            bench.emit(f"memory_bytes={memory_mb} MB", {"eventlog": "failed"}, note=short(error))
            continue
        bench.emit(
            f"stream of {more:,} rows, memory_bytes={memory_mb} MB",
            {"eventlog": many["grown_mb"]},
            "MB grown",
            goal=f"≤ {memory_mb} MB, the setting",
            met=many["grown_mb"] <= memory_mb * 2**20 / 10**6,
            note=f"{rows:,} rows: {few['grown_mb']:.0f} MB; peak with the libraries "
            f"{many['rss_mb']:.0f} MB; {many['cpu_s']:.1f} s of CPU",
        )
        bench.emit(
            f"… {more:,} rows against {rows:,}",
            {"eventlog": f"x{many['grown_mb'] / few['grown_mb']:.2f}"},
            goal="bounded: ≤ x1.25",
            met=many["grown_mb"] / few["grown_mb"] <= 1.25,
        )
