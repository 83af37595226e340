"""The one test of engines: the same questions on the same versions, equal or refused.

    python tests/engines/run.py              # all: `make test-engines`; writes the matrix
    python tests/engines/run.py --only Daft  # one engine; writes nothing

Tables are made and published, and every engine is asked about every version, each way to read in a
process and, if need be, an environment of its own. The answers are compared with those of Arrow
over the rows of `scan`. Anything but an equal answer or a refusal fails the run, unless it is an
error of an engine that `readings.py` lists; so does an engine that refuses everything. The matrix
is written to docs/guides/engine-matrix.md, if every process answered all questions.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from apart import ENGINES, ROOT, answers_of
from asked_tables import TABLES
from outcomes import (
    EQUAL,
    MANY,
    OTHER,
    WRONG,
    Outcome,
    cell,
    outcome_of_error,
    outcome_of_rows,
    problems_of,
    put_between,
)
from questions import questions_of
from readings import WAYS, Place

from eventlog.errors import InvalidInput
from eventlog.publishing import publish, unpublish
from eventlog.readers import scan

PAGE = ROOT / "docs" / "guides" / "engine-matrix.md"
PROCESSES = 2  # at the same time
SHOWN = 20  # problems of a way
MOST_KB = 6_000_000  # of memory, of one way


@dataclass
class Asked:
    """A table in one place: what is asked, what should be answered, what is not published."""

    name: str
    places: list = field(default_factory=list)  # of (place, questions)
    wanted: dict = field(default_factory=dict)  # rows by version
    refused: dict = field(default_factory=dict)  # by format: version -> why it is not published
    compacted: int | None = None


@dataclass
class Run:
    """What a process told: lines, files in a folder, and how it ended before the last answer."""

    answers: Iterator
    folder: Path
    root: Path  # of the tables
    ended: str


@dataclass
class Row:
    """What a way answered: outcomes before and after a compaction, by table."""

    version: str
    cells: dict
    problems: list
    whole: bool  # whether it answered every question


def main():
    """Run; the exit code says whether every cell is equal or refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="an engine; may be repeated")
    parser.add_argument("--table", action="append", choices=TABLES, help="may be repeated")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="test-engines-") as name:
        tables = {f: _tables(Path(name), f, given.table or TABLES) for f in (2, 3)}
        asked = [
            (number, version)
            for number, way in enumerate(WAYS)
            if not given.only or way.engine in given.only
            for version in ((2, 3) if way.reads == "iceberg" else (2,))
        ]
        with ThreadPoolExecutor(PROCESSES) as pool:
            run = pool.map(lambda each: _row(*each, tables[each[1]], Path(name)), asked)
            rows = dict(zip(asked, run, strict=True))
    useless = _useless(rows)
    for engine in useless:
        _say(f"{engine} refuses everything: is it installed?")
    if useless or not all(row.whole for row in rows.values()):
        _say(f"{PAGE.name} stays as it is")
    elif not given.only and not given.table:
        PAGE.write_text(
            put_between(PAGE.read_text(encoding="utf-8"), _matrix(rows)), encoding="utf-8"
        )
    failed = bool(useless) or any(row.problems for row in rows.values())
    _say("failed" if failed else "every answer is equal, refused, or an error that is listed")
    return int(failed)


def _useless(rows):
    good = {
        (WAYS[number].engine, WAYS[number].reads)
        for (number, _), row in rows.items()
        if any(o.kind == EQUAL for sides in row.cells.values() for side in sides for o in side)
    }
    asked = {(WAYS[number].engine, WAYS[number].reads) for number, _ in rows}
    return sorted(f"{engine} of {reads}" for engine, reads in asked - good)


def _tables(folder, format_version, names):
    made = []
    for name in names:
        place = (
            folder
            / f"format {format_version}".replace(" ", "-")
            / name.replace(", ", "-").replace(" ", "-")
        )
        asked = TABLES[name](str(place))
        it = Asked(name, compacted=asked.compacted)
        for version in asked.versions:
            rows = scan(asked.table, version=version).to_table()
            it.wanted[version] = rows
            questions = questions_of(rows.schema, large=rows.num_rows >= MANY)
            it.places.append((Place(str(place), version, rows.schema), questions))
        it.refused["delta"] = _published(asked, "delta")
        it.refused["iceberg"] = _published(asked, "iceberg", format_version=format_version)
        made.append(it)
    return made


def _published(asked, form, **options):
    """Publish what can be; return for each version that cannot why."""
    try:
        publish(asked.table, form, **options)
    except InvalidInput as error:
        why = outcome_of_error("InvalidInput", f"publish: {error}", asked.table.uri)
    else:
        return {}
    unpublish(asked.table, form, dry_run=False)
    try:
        publish(asked.table, form, first=asked.compacted, **options)
    except InvalidInput:
        return dict.fromkeys(asked.versions, why)
    return {v: why for v in asked.versions if v < asked.compacted}


def _row(number, version, tables, folder):
    way = WAYS[number]
    places = [
        (place, questions)
        for asked in tables
        for place, questions in asked.places
        if place.version not in asked.refused.get(way.reads, ())
    ]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        told = answers_of(ENGINES / "ask.py", number, places, Path(name), home=way.home)
        lines = told.lines
        last = lines.pop() if lines and "version" in lines[-1] else {"version": "?"}
        answers = iter(lines)
        ended = " ".join(told.ended.split()) or "no answer"
        cells = {
            asked.name: _cells(way, asked, Run(answers, Path(name), folder, ended))
            for asked in tables
        }
    problems = problems_of(cells, ended)
    whole = ended not in {o.text for sides in cells.values() for side in sides for o in side}
    kinds = {o.kind for sides in cells.values() for side in sides for o in side}
    if way.wrong is not None and WRONG not in kinds:
        problems.append(f"{way.wrong[0]!r} is right now: leave it out of WAYS")
    if last.get("peak_kb", 0) > MOST_KB:
        problems.append(f"it took {last['peak_kb']} kB of memory")
    counts = Counter(o.kind for sides in cells.values() for side in sides for o in side)
    where = f"{way.reads} {version}" if way.reads == "iceberg" else way.reads
    lines = [
        (
            f"{way.engine} {last['version']}, {way.by}, {where}: {dict(counts)}, "
            f"{time.monotonic() - started:.0f} s, {last.get('peak_kb', 0) // 1000} MB"
        ),
        *(f"    {problem}" for problem in problems[:SHOWN]),
    ]
    _say("\n".join(lines))
    return Row(last["version"], cells, problems, whole)


def _cells(way, asked, run):
    """Return the outcomes of a table: those before its compaction, and those after."""
    sides = ([], [])
    for place, questions in asked.places:
        refused = asked.refused.get(way.reads, {}).get(place.version)
        later = asked.compacted is not None and place.version >= asked.compacted
        for question in questions:
            outcome = refused or _outcome(way, asked, place, question, run)
            sides[later].append(outcome)
    return sides


def _outcome(way, asked, place, question, run):
    line = next(run.answers, None)
    if line is None:
        return Outcome(OTHER, run.ended)
    if "error" in line:
        return outcome_of_error(line["error"], line["text"], run.root)
    with pa.memory_map(str(run.folder / line["file"])) as source:
        found = pa.ipc.open_file(source).read_all()
        wanted = question.answer(asked.wanted[place.version])
        outcome = outcome_of_rows(found, wanted, nan_is_null=way.nan_is_null)
    if outcome.kind == EQUAL:
        return outcome
    if way.wrong is not None and way.wrong[0] == question.name:
        return Outcome(WRONG, way.wrong[1])
    return Outcome(outcome.kind, f"version {place.version}, {question.name}: {outcome.text}")


def _matrix(rows):
    """Return the matrix, and below it what refusals say."""
    notes = {}

    def number_of(text):
        return notes.setdefault(text, len(notes) + 1)

    lines = [f"| engine | reads | {' | '.join(TABLES)} |", "|---" * (len(TABLES) + 2) + "|"]
    for (number, version), row in rows.items():
        way = WAYS[number]
        reads = {"eventlog": "the table", "delta": "Delta"}.get(way.reads, f"Iceberg {version}")
        cells = [cell(*row.cells[name], number_of) for name in TABLES]
        lines.append(f"| {way.engine} {row.version}, {way.by} | {reads} | {' | '.join(cells)} |")
    lines += ["", "| | refused with |", "|---|---|"]
    lines += [f"| {n} | {text.replace('|', ' ')} |" for text, n in notes.items()]
    return "\n".join(lines) + "\n"


def _say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
