"""Compaction of many small files: CPU, time and memory, each system in a fresh process."""

import shutil
import statistics
import time
from dataclasses import dataclass

import compactors
import wide
from harness import Failed, child, short

from eventlog.compaction import Policy

MIB = 2**20
CPU_S = 1.2  # of a million rows


@dataclass(frozen=True)
class Shape:
    """A table to compact; one append makes a file in each of its days."""

    files: int
    rows_each: int
    days: int

    @property
    def rows(self):
        return self.files * self.rows_each

    def __str__(self):
        days = "one day" if self.days == 1 else f"{self.days} days"
        return f"{self.files:,} files of {self.rows_each:,} rows in {days}, directory"

    def appends(self):
        return wide.tables(self.rows, self.days, self.rows_each * self.days)


def run(bench):
    _many(bench, Shape(bench.size(1000, 50), 1000, days=10))
    _large(bench, Shape(bench.size(64, 8), bench.size(250_000, 10_000), days=1))


def _many(bench, shape):
    """Turn by turn, on fresh copies of the same tables."""
    built = {}
    for name in compactors.present():
        root = bench.folder / "many" / name
        try:
            _build(name, root, shape)
        except Exception as error:
            bench.emit(f"compaction, {shape}: {name}", {name: "failed"}, note=short(error))
        else:
            built[name] = root
    told = {}
    ends = time.monotonic() + bench.limit_s * 0.4
    for number in range(bench.size(5, 1)):
        if number >= 3 and time.monotonic() > ends:
            break
        for name, root in list(built.items()):
            copy = shutil.copytree(root, bench.folder / f"{name}-{number}")
            try:
                one = _compacted(bench, name, copy, shape, rows_per_file=shape.rows // shape.days)
            except Failed as error:
                del built[name]
                work = f"compaction, {shape}: {name}"
                bench.emit(work, {name: "failed"}, note=short(error, 300))
            else:
                told.setdefault(name, []).append(one)
            shutil.rmtree(copy)
    _many_rows(bench, shape, told)


def _many_rows(bench, shape, told):
    per_million = {n: _middle(found, "cpu_s") * 1e6 / shape.rows for n, found in told.items()}
    bench.emit(
        f"compaction, {shape}",
        per_million,
        "CPU s/M rows",
        goal=f"≤ {CPU_S:g}",
        met=per_million.get("eventlog", CPU_S + 1) <= CPU_S,
        note="the compaction alone: libraries loaded and used once, the table open; median of "
        f"{min(map(len, told.values()), default=0)} turns; files left: "
        + ", ".join(f"{name} {found[0]['files']}" for name, found in told.items()),
    )
    bench.emit("… time", {n: _middle(found, "wall_s") for n, found in told.items()}, "s")
    grown = {name: _middle(found, "grown_mb") for name, found in told.items()}
    bench.emit("… memory", grown, "MB grown", **_within(grown, Policy().memory_bytes))


def _large(bench, shape):
    memory_bytes = bench.size(256, 64) * MIB
    told = {}
    for name in compactors.present():
        work = f"compaction, {shape}: {name}"
        # What a peer takes to build and to compact the table.
        if name != "eventlog" and bench.left_s < bench.size(45, 5):
            bench.emit(work, {name: "-"}, note="no time left")
            continue
        root = bench.folder / "large" / name
        try:
            _build(name, root, shape)
            told[name] = _compacted(bench, name, root, shape, memory_bytes=memory_bytes)
        except Exception as error:
            bench.emit(work, {name: "failed"}, note=short(error, 300))
        shutil.rmtree(root, ignore_errors=True)
    grown = {name: one["grown_mb"] for name, one in told.items()}
    arrow = next(shape.appends()).nbytes * shape.files
    bench.emit(
        f"compaction, {shape}, memory_bytes={memory_bytes // MIB} MiB",
        grown,
        "MB grown",
        **_within(grown, memory_bytes),
        note=f"{shape.rows:,} rows, {arrow / 1e9:.2f} GB of Arrow; Delta spills above the setting, "
        "Lance has none; files left: "
        + ", ".join(f"{name} {one['files']}" for name, one in told.items()),
    )
    per_million = {name: one["cpu_s"] * 1e6 / shape.rows for name, one in told.items()}
    bench.emit("… CPU", per_million, "CPU s/M rows", note="one turn")
    bench.emit("… time", {name: one["wall_s"] for name, one in told.items()}, "s")


def _build(name, root, shape):
    table = compactors.COMPACTORS[name](str(root))
    table.create_by_day(wide.SCHEMA)
    for rows in shape.appends():
        table.append_files(rows, shape.rows_each)


def _compacted(bench, name, root, shape, *, memory_bytes=0, rows_per_file=0):
    """Compact a table in a fresh process; refuse an answer with other rows or no fewer files."""
    scratch = bench.folder / "scratch" / root.parent.name / root.name
    one = child(
        "compact_once.py", name, root, scratch, memory_bytes, rows_per_file,
        timeout_s=max(10, bench.left_s),
    )  # fmt: skip
    if one["failed"] or not one["committed"]:
        raise Failed(f"nothing was compacted: {one['why'] or 'it found nothing to do'}")
    before, after = (one["files_before"], shape.rows), (one["files"], one["rows"])
    if before[0] != shape.files or after[0] >= before[0] or after[1] != before[1]:
        raise Failed(f"from (files, rows) {before} to {after}")
    return one


def _within(grown_mb, memory_bytes):
    """The goal of a row about memory: what eventlog grew by is within its setting."""
    most_mb = memory_bytes / 1e6
    met = "eventlog" in grown_mb and grown_mb["eventlog"] <= most_mb
    return {"goal": f"≤ {most_mb:.0f} MB, the setting", "met": met}


def _middle(found, key):
    return statistics.median(one[key] for one in found)
