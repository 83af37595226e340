"""What others' writes do to a published table: refused, or nothing of ours is touched.

    python tests/engines/strangers/tried.py                # all: part of `make test-engines`
    python tests/engines/strangers/tried.py --only Polars  # one program; writes no page

Each write is tried on a table of its own. Whatever it does: each object of the table is there
afterwards with its bytes, new ones are named by fsck or lie where nothing looks, each version has
its rows, and the publisher goes on, or stops with an error whose command leads on. The table in
docs/guides/engine-matrix.md is written, unless a write could not be tried: its preparation failed.
"""

import argparse
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from apart import ENGINES, ROOT, answers_of
from asked_tables import SCHEMA, created, row_of
from click.testing import CliRunner
from foreign_writes import PROGRAMS, Target
from outcomes import outcome_of_error, put_between
from support.published import compact_all, known_rows, objects_of
from write_outcomes import (
    GOES_ON,
    OVER_HINT,
    WROTE,
    is_refusal,
    kind_of_write,
    table_of_writes,
    why_stopped,
)

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import EventLogError
from eventlog.fsck.check import fsck
from eventlog.publishing import publish
from eventlog.writers import append, delete

PAGE = ROOT / "docs" / "guides" / "engine-matrix.md"
BEGIN = "<!-- Writes of others: made by `make test-engines` -->\n"
PROCESSES = 2
LONG_AGO = 1_700_000_000
# It names the newest version, and is replaced by each publisher and by each program that writes a
# table to a path. The command that the publisher then names puts ours again.
HINT = "metadata/version-hint.text"
SMALL = pa.schema([SCHEMA.field(name) for name in ("at", "id", "name", "real")])


@dataclass
class Tried:
    """A published table before a write: its objects, and the rows of each version."""

    table: Table
    form: str
    objects: Mapping[str, bytes]
    rows: Mapping[int, list]


@dataclass
class Outcome:
    """What became of a write. Problems are what must not be."""

    kind: str
    text: str = ""
    problems: list = field(default_factory=list)


@dataclass
class Row:
    """What became of the writes of a program, by name, and why not all were tried."""

    version: str
    outcomes: Mapping[str, Outcome]
    stopped: str


def main():
    """Run; the exit code says whether nothing of ours was touched."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="a program; may be repeated")
    parser.add_argument("--write", action="append", help="a write; may be repeated")
    given = parser.parse_args()
    chosen = [n for n, p in enumerate(PROGRAMS) if not given.only or p.engine in given.only]
    with (
        tempfile.TemporaryDirectory(prefix="test-writes-") as name,
        ThreadPoolExecutor(PROCESSES) as pool,
    ):
        rows = dict(
            zip(chosen, pool.map(lambda n: _tried(n, Path(name), given.write), chosen), strict=True)
        )
    if any(row.stopped for row in rows.values()):
        _say("not all writes were tried, which shows nothing: the page stays as it is")
        return 2
    if not given.only and not given.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(put_between(page, _table(rows), BEGIN), encoding="utf-8")
    failed = any(outcome.problems for row in rows.values() for outcome in row.outcomes.values())
    _say("failed" if failed else "nothing of ours was touched, and every publisher went on")
    return int(failed)


def _published(path, form, format_version):
    """Return a table with deletes, a compaction and a pin, and all versions published."""
    t = created(str(path), SMALL)
    for first in (0, 12):
        append(t, _rows(first, 12))
    delete(t, where="id = 3 or id = 20")
    compact_all(t)
    t.pin("report")
    append(t, _rows(24, 6))
    delete(t, where="id = 25")
    publish(t, form, **({"format_version": format_version} if form == "iceberg" else {}))
    head = t.refresh().version
    for file in Path(path).rglob("*"):  # old enough for those that look for garbage
        os.utime(file, (LONG_AGO, LONG_AGO))
    return Tried(t, form, objects_of(t, ""), {v: known_rows(t, v) for v in range(head + 1)})


def _rows(first, count):
    rows = [row_of(n) for n in range(first, first + count)]
    return pa.Table.from_pylist(rows, schema=SMALL)


def _tried(number, folder, writes):
    program, started = PROGRAMS[number], time.monotonic()
    home = folder / f"db{number}"
    tried = {
        name: _published(home / f"t{number}_{place}", program.form, program.format_version)
        for place, name in enumerate(program.writes)
        if not writes or name in writes
    }
    targets = {
        name: Target(str(home / f"t{number}_{place}"), max(tried[name].rows))
        for place, name in enumerate(program.writes)
        if name in tried
    }
    answers = answers_of(
        ENGINES / "strangers" / "write.py",
        *(number, targets, home),
        home=program.home,
        TABLES_FOLDER=str(folder),
    )
    version = answers.lines.pop(0)["version"] if answers.lines else "?"
    outcomes = {
        name: _outcome(each, line)
        for (name, each), line in zip(tried.items(), answers.lines, strict=False)
    }
    stopped = why_stopped(tuple(tried), len(outcomes), answers.ended)
    told = [f"{program.engine} {version}, {program.by}: {time.monotonic() - started:.0f} s"]
    for name, outcome in outcomes.items():
        told.append(f"    {name}: {outcome.kind} {outcome.text}")
        told += [f"        {problem}" for problem in outcome.problems]
    if stopped:
        told.append(f"    STOPPED: {stopped}")
    _say("\n".join(told))
    return Row(version, outcomes, stopped)


def _outcome(tried, line):
    """Return what became of a write, and what is wrong with the table after it."""
    after, error = objects_of(tried.table, ""), line.get("text", "")
    new = after.keys() - tried.objects.keys()
    problems = [
        f"{'changed' if key in after else 'DELETED'}: {key}"
        for key, body in tried.objects.items()
        if after.get(key) != body and (key != HINT or key not in after)
    ]
    kind, text = kind_of_write(error if "error" in line else None, left=bool(new)), ""
    if "error" in line and not is_refusal(error):
        text = outcome_of_error(line["error"], error, Path(tried.table.uri).parent).text
    if not problems:
        problems = _after(tried, new)
        if kind == WROTE and not any(_is_stop(problem) for problem in problems):
            kind = GOES_ON
    if kind == WROTE and after.get(HINT) != tried.objects.get(HINT):
        kind = OVER_HINT
    return Outcome(kind, text, [p for p in problems if not _is_stop(p)])


def _is_stop(problem):
    return problem.startswith("stops: ")


def _after(tried, new):
    """Return what is wrong after a write that touched no object; and whether publishing stops."""
    table = Table.open(tried.table.uri, clock=tried.table.clock)
    problems = [
        f"version {version} has other rows"
        for version, rows in tried.rows.items()
        if known_rows(table, version) != rows
    ]
    problems += [f"fsck: {f.key}: {f.message}" for f in fsck(table).findings if f.key not in new]
    append(table, _rows(30, 2))
    try:
        publish(table, tried.form)
    except EventLogError as error:
        problems.append(f"stops: {error}")
        if error.key not in new:
            problems.append(f"the publisher names {error.key}, which is not theirs: {error}")
        problems += _led_on(table, tried.form, str(error))
    problems += [
        f"fsck, later: {f.key}: {f.message}" for f in fsck(table).findings if f.key not in new
    ]
    wanted = tried.rows | {table.refresh().version: known_rows(table, table.session.head().version)}
    if any(known_rows(table, version) != rows for version, rows in wanted.items()):
        problems.append("versions have other rows, later")
    return problems


def _led_on(table, form, message):
    """Run the commands that a message names, and publish again; return what is wrong then."""
    commands = re.findall(r"`eventlog ([^`]*)`", message)
    if not commands:
        return [f"no command: {message}"]
    for command in commands:
        answer = CliRunner().invoke(build(), shlex.split(command))
        if answer.exit_code:
            return [f"eventlog {command}: {answer.output[-300:]}"]
    try:
        publish(table, form)
    except EventLogError as error:
        return [f"after {commands}: {error}"]
    return []


def _table(rows):
    """Return the table: each program with its writes, by what became of them."""
    named = []
    for number, row in rows.items():
        program = PROGRAMS[number]
        place = "Delta" if program.form == "delta" else f"Iceberg {program.format_version}"
        name = ", ".join(filter(None, (f"{program.engine} {row.version}", program.by, place)))
        found = {write: (o.kind, o.text) for write, o in row.outcomes.items()}
        named.append((name, found))
    return table_of_writes(named)


def _say(text):
    """Write to this process's output, which click's runner in another thread may have replaced."""
    sys.__stdout__.write(f"{text}\n")
    sys.__stdout__.flush()


if __name__ == "__main__":
    sys.exit(main())
