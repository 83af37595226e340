"""Processes with an appender that are killed by `kill -9`: what they acknowledged is there, once.

Processes append the numbers of several sources to one table, one process
after the other, and sometimes two at a time: the one before is killed late, or suspended and goes
on beside its successor. Each asks how far a source has come and goes on from there, and writes down
which of its rows were acknowledged. Then the table is read: each source has its numbers from 0 to
the last one once, and all that were acknowledged. Rows without a source are there once if they were
acknowledged, and never twice.
"""

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from soak import run

from eventlog import Table
from eventlog.errors import CommitConflict, EventLogError
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.writers import Appender

SOURCES = ("clicks-0", "clicks-1", "clicks-2")
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", tz="UTC")), ("source", pa.string()), ("n", pa.int64())]
)
PROPERTIES = {"keyframe_commits": "16", "combine_after": "1"}
DAY_US = 86_400_000_000
_MOST_UNKNOWN = 200  # appends of a thread that are not acknowledged yet
_READY_S = 60
_LATE_S = 0.3  # for which a process goes on beside its successor


class Ledger:
    """What a process was told, a line each. `kill -9` loses no line that was written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def note(self, **fields) -> None:
        os.write(self._file, json.dumps(fields).encode() + b"\n")


def rows_of(source: str, first: int, count: int) -> pa.Table:
    """Return rows of a source: the same for the same numbers."""
    numbers = range(first, first + count)
    at = [(n % 3) * DAY_US + n for n in numbers]
    return pa.table([at, [source] * count, [*numbers]], schema=SCHEMA)


def live(uri: str, options: dict[str, str] | None, name: str, path: Path) -> None:
    """Append until killed: a thread for each source, and one for rows without a source."""
    chance, ledger = random.Random(name), Ledger(path)
    table = Table.open(uri, options)
    out = Appender(
        table,
        max_delay_s=chance.choice([0, 0.01, 0.05]),
        max_rows=chance.choice([1, 20, 1000]),
    )
    work = [(source, source) for source in SOURCES] + [(name, None)]
    threads = [
        threading.Thread(target=_feed, args=(out, ledger, of, app, chance.random()))
        for of, app in work
    ]
    for thread in threads:
        thread.start()
    ledger.note(ready=name)
    for thread in threads:
        thread.join()


def _feed(out, ledger: Ledger, source: str, app: str | None, seed: float) -> None:
    chance, room = random.Random(seed), threading.Semaphore(_MOST_UNKNOWN)
    first = 0
    while True:
        try:
            if app is not None:
                last = out.committed(app)
                first = 0 if last is None else last + 1
            first = _appended(out, ledger, (source, app), first, chance, room)
        except CommitConflict:
            ledger.note(conflict=source)
        except EventLogError as error:
            ledger.note(error=f"{type(error).__name__}: {error}"[:500])
            time.sleep(0.1)


def _appended(out, ledger, of, first, chance, room) -> int:  # noqa: PLR0917
    """Append until an append of the source is refused."""
    source, app = of
    while True:
        count = chance.choice([1, 1, 2, 7, 30])

        def told(future, first=first, count=count) -> None:
            room.release()
            if future.exception() is None:
                ledger.note(acked=source, first=first, count=count, version=future.result())

        room.acquire()
        unit = {} if app is None else {"app_id": app, "app_seq": first + count - 1}
        try:
            future = out.append(rows_of(source, first, count), **unit)
        except EventLogError:
            room.release()
            raise
        future.add_done_callback(told)
        first += count
        time.sleep(chance.choice([0, 0, 0.001, 0.01]))


@dataclass
class Findings:
    """What a run did, and what is wrong in the table that it left."""

    kills: int = 0
    beside: int = 0
    notes: Counter = field(default_factory=Counter)
    rows: int = 0
    versions: int = 0
    unacknowledged: int = 0
    violations: list[str] = field(default_factory=list)

    def text(self) -> str:
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(self.notes.items()))
        rows = f"{self.rows:,} rows, {self.unacknowledged:,} of them not acknowledged"
        lines = [
            f"{self.kills} kills, {self.beside} processes beside their successor",
            f"{told}; {rows}, in {self.versions:,} versions",
            *(f"VIOLATION {text}" for text in self.violations[:20]),
            f"{len(self.violations) or 'no'} violations",
        ]
        return "\n".join(lines)


def judge(
    rows: list[tuple[str, int]], marks: dict[str, int], ledgers: list[list[dict]]
) -> Findings:
    """Return what is wrong with rows, as (source, number), by what processes were told.

    Args:
        rows: all rows of the table.
        marks: the last sequence of each source that the table has.
        ledgers: the lines of each process.
    """
    found, there = Findings(rows=len(rows)), Counter(rows)
    found.violations += [f"{row} is there {n} times" for row, n in there.items() if n > 1]
    for source in SOURCES:
        numbers = {n for name, n in there if name == source}
        wanted = {*range(marks.get(source, -1) + 1)}
        if numbers != wanted:
            odd = sorted(numbers ^ wanted)[:5]
            found.violations.append(f"{source} has not each number up to its mark: {odd}")
    acked = set()
    for line in (line for ledger in ledgers for line in ledger):
        found.notes[next(iter(line))] += 1
        if "error" in line:
            found.violations.append(line["error"])
        if "acked" in line:
            acked |= {
                (line["acked"], n) for n in range(line["first"], line["first"] + line["count"])
            }
    lost = sorted(acked - there.keys())
    found.violations += [f"{row} was acknowledged, and is not there" for row in lost]
    found.unacknowledged = len(there.keys() - acked)
    return found


def read_ledger(path: Path) -> list[dict]:
    """Return the lines of a process."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class Season:
    """Processes of one table, one after the other."""

    def __init__(self, uri: str, options: dict[str, str] | None, folder: Path, seed: str) -> None:
        self._place, self._folder = (uri, options), folder
        self._chance, self._count = random.Random(seed), 0
        self._seed = seed
        # Processes are forked from one that has imported everything and has no threads.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["soak.appenders"])

    def run(self, kills: int) -> Findings:
        """Kill so many processes; return what they left."""
        beside = 0
        before = None
        for _ in range(kills):
            now, way = self._start(), self._chance.random()
            if before is not None:
                beside += 1
                time.sleep(self._chance.uniform(0, _LATE_S))
                self._kill(before)
                before = None
            time.sleep(self._chance.uniform(0, 0.4))
            if way < 0.3:
                before = now
            elif way < 0.5:
                os.kill(now.pid, signal.SIGSTOP)  # it goes on once its successor runs
                before = now
            else:
                self._kill(now)
        if before is not None:
            self._kill(before)
        return self._judged(kills, beside)

    def _start(self):
        self._count += 1
        name = f"{self._seed}-{self._count}"
        path = self._folder / f"{name}.jsonl"
        process = self._processes.Process(target=live, args=(*self._place, name, path))
        process.start()
        deadline = time.monotonic() + _READY_S
        # Most are killed once they have committed something, some before.
        sign = "ready" if self._chance.random() < 0.15 else "acked"
        while not any(sign in line for line in read_ledger(path)):
            if time.monotonic() > deadline or process.exitcode is not None:
                raise RuntimeError(f"{name} did not start: {process.exitcode}")
            time.sleep(0.01)
        return process

    @staticmethod
    def _kill(process) -> None:
        os.kill(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        process.close()

    def _judged(self, kills: int, beside: int) -> Findings:
        table = Table.open(*self._place)
        # A request of a dead process may still be under way: it lands before this commit, or never.
        table.set_properties({"user.end": "yes"})
        rows = scan(table, ["source", "n"]).to_table()
        pairs = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        marks = {app: mark.seq for app, mark in table.session.head().meta.apps.items()}
        ledgers = [read_ledger(path) for path in sorted(self._folder.glob("*.jsonl"))]
        found = judge(pairs, marks, ledgers)
        found.kills, found.beside = kills, beside
        found.versions = table.session.head().version
        report = fsck(table, checksums=True)
        found.violations += [str(one) for one in report.findings if one.severity == "error"]
        return found


def season(kind: str, kills: int, seed: str, folder: Path) -> Findings:
    """Run a season in a directory, or on an S3 server of its own.

    Args:
        kind: `directory` or `s3`.
        kills: how many processes are killed.
        seed: of what is drawn; not of what the machine does.
        folder: for ledgers, and for the table in a directory.
    """
    layout = {"time_column": "at", "granularity": "day", "properties": PROPERTIES}
    with ExitStack() as stack:
        if kind == "directory":
            uri, options = (folder / "table").as_uri(), None
        else:
            server = stack.enter_context(
                run.child("eventlog.store.testing.local_server", "--port", "0")
            )
            options = {"endpoint_url": server.stdout.readline().strip(), **run.CREDENTIALS}
            uri = f"s3://{run.BUCKET}/appended"
            run.create_bucket(options)
        Table.create(uri, SCHEMA, storage_options=options, **layout)
        ledgers = folder / "ledgers"
        ledgers.mkdir()
        return Season(uri, options, ledgers, seed).run(kills)
