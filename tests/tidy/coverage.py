"""The hazards and scenarios that tests must cover, and the tables of which test covers what.

A test that covers a hazard or a scenario carries `@pytest.mark.hazard("C1")` or
`@pytest.mark.scenario("S1.2")`. `make tables` generates the tables in tests/README.md from these
marks; a test in this folder checks that they are up to date.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # instead of this folder

from tidy.definitions import TESTS, Function

HAZARDS = {
    "C1": "response lost, PUT landed: accepted exactly once",
    "C2": "a delayed PUT lands later: one body per slot, no other while unsure",
    "C3": '409 is not "exists"',
    "C4": "slots are never freed",
    "C5": "no gap, version = key, prev checked",
    "C6": "a foreign overwrite is seen",
    "C7": "a failing writer deletes nothing",
    "C8": "same id, same bytes on retry",
    "C9": "a retry costs the same however many commits were missed",
    "P1": "a bad key frame is skipped",
    "P2": "two writers of one key frame write the same bytes",
    "P3": "no key frame is built from part of the state",
    "P4": "what the fold needs survives a key frame",
    "V1": "no upload in flight is deleted",
    "V2": "nothing live or held is deleted",
    "V3": "the live set is read after the fence",
    "V4": "foreign keys are left alone",
    "V5": "an old program deletes nothing of a new table",
    "V6": "a stale listing only under-deletes",
    "R1": "404: vacuumed below the horizon, data loss above, never skipped",
    "R2": "a scan shows one version",
    "R3": "a session never goes backwards",
    "G1": "a copy has what a version needs before its commit, in the order of the versions",
    "G2": "a copy is moved forward only where the hashes agree",
    "G5": "the source's vacuum waits for a replica",
    "G4": "copies of a keyed table that were merged show the same rows, whichever merged first",
    "I1": "every attempt of a task has its own keys",
    "I2": "a driver that crashes before the commit leaves only garbage",
    "I3": "a driver that crashes after the commit finds it done",
    "I4": "concurrent deliveries have one effect",
    "I5": "a replay with other content: the first one stands; another number of rows is reported",
    "I6": "an abort after the commit undoes nothing",
    "K1": "what a replace drops is live just before",
    "K2": "a claim that was lost voids the commit",
    "K3": "a claim ends by a commit, not by a clock",
    "K4": "a merge of slices lies where its inputs lay: what it was not planned on stays above it",
    "K5": "a merge of slices takes a run without a gap; a base has nothing below it",
    "K6": "a rewrite loses and doubles no row, and changes no value",
    "K7": "a rewrite drops the segments of its plan; later ones are kept",
    "G3": "what another log of the table did is carried over once, whoever carries it",
    "K8": "planning reaches a fixed point, and lets a chunk rest after its task failed",
    "W1": "ambient state (decimal context, locale, time zone, umask, environment) affects no value:"
    " the same bytes and results under any of it",
    "W2": "an input is read completely or refused: a cut stream, late columns, values in the paths"
    " of a folder, mixed files",
    "W3": "a conversion is exact or refused, in every writer: units of time, large and view types,"
    " categories, NaN and null, numbers in JSON",
    "W4": "what a writer or a compaction may write, a reader can read: one table of limits",
    "W5": "all engines give the same result, or the engine is not used: minus zero, NaN, decimals,"
    " time zones, LIKE, no columns",
    "W6": "changed bytes of a segment give the right rows or `DataLoss`: no hang, no abort, no"
    " other rows",
    "W7": "no argument is guessed: an ambiguous time or a size without a unit is refused with"
    " the accepted forms",
    "W8": "an accepted name works everywhere: it is never read as an expression, a path or a field"
    " of a library",
    "W9": "a handle whose table was replaced by another notices before it commits or deletes",
    "W10": "a store that breaks its contract is detected before the second writer's first row",
    "W11": "a hold that travels with the log to another place lets no kept version lose an object",
    "W12": "no path leaves the root: get, put and delete refuse a key behind a symbolic link",
    "W13": "a time in the log decides no answer: one wrong clock changes no row",
    "W14": "the same question by two ways of reading has one answer",
    "W15": "what a caller leaves out is not taken for a decision: refused, unless asked for",
    "W16": "memory is bounded by settings, whatever few bytes rows are stored in",
    "W20": "a log that is cut frees no slot: who slept through it acknowledges nothing that nobody"
    " reads, and who reads what is gone is told so",
    "W18": "from any state that commands reach, those that the message names lead out",
}

SCENARIOS = {
    "S1.1": "two ingestions of one chunk, in both orders",
    "S1.2": "ingestion while compaction runs, either first; from Spark",
    "S1.3": "a second compaction of a claimed chunk is refused at once",
    "S1.4": "a replacement with no rows",
    "S1.5": "a query keeps its version, also under a vacuum",
    "S1.6": "any version from the nearest key frame, requests counted",
    "S2.1": "the proposal's own example of overshadowing",
    "S2.2": "bulk construction equals incremental",
    "S2.3": "atomic groups",
    "S2.4": "fallback",
    "S2.5": "appends at another granularity beside a change of granularity",
    "S2.6": "revocation by a higher priority",
    "S3.1": "every scoring rule, boundaries included",
    "S3.2": "the fixed point",
    "S3.3": "`kill -9` of the runner",
    "S3.4": "overload: bounded, shed, deferred, recovered",
    "S3.5": "a late segment makes exactly its chunk unstable",
    "S3.6": "explain at any past version",
    "S3.7": "Spark compacts 1,000 chunks; Lambda from S3 events, twice and at once",
    "S4.1": "file slices of the document: what completes after a merge was planned lies above it",
    "S4.2": "writers of the same keys never fail; the table is what they wrote, as they ended",
    "S4.3": "a late event loses to a newer one that was merged before",
    "S4.4": "deletes, rows that come again, two streams that fill the columns of one row",
    "S4.5": "every version stays as it was, whatever is merged later",
    "S5.3": "both take writes while cut off from each other; merged both ways both hold the same"
    " rows, and merging again changes nothing",
    "S5.4": "both compacted the same segments differently: no row is lost or doubled",
    "S4.6": "Spark upserts, in batches and in streams, exactly once over restarts; two streams join"
    " in one row",
    "S5.1": "a copy is the same table, byte for byte, whatever dies",
    "S5.2": "a new copy, or one far behind, starts at a key frame, and is filled later",
    "S5.5": "a replica that was emptied and attached again never counts as full",
    "S5.6": "buckets are split under writers and merges of the old number and the new one",
    "S5.7": "a target that declines is asked again, more slowly",
}

# Mark -> the names that it may have.
KINDS = {"hazard": HAZARDS, "scenario": SCENARIOS}
# Fixtures that run a test on an S3 server and on a directory.
BOTH_PLACES = {"place", "long_place", "root_uri"}
README = TESTS / "README.md"
_TABLE = re.compile(r"(<!-- (\w+): made by `make tables` -->\n).*?(<!-- end -->)", re.DOTALL)

# Source by path below `tests/`.
Sources = Mapping[str, str]
# A test: its file below `tests/`, and its definition.
Test = tuple[str, Function]


def sources() -> dict[str, str]:
    """Return the text of every file of tests."""
    paths = sorted(TESTS.rglob("test_*.py"))
    return {str(p.relative_to(TESTS)): p.read_text(encoding="utf-8") for p in paths}


def marks(function: Function) -> Iterator[tuple[str, str]]:
    """Return the kinds and names of a function's marks: ("hazard", "C1")."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call):
            owner, _, kind = ast.unparse(decorator.func).rpartition(".")
            if owner == "pytest.mark" and kind in KINDS:
                for argument in decorator.args:
                    yield kind, ast.literal_eval(argument)


def marked(files: Sources) -> dict[tuple[str, str], list[Test]]:
    """Return the tests by kind and name, those of one file in its order."""
    by_mark: dict[tuple[str, str], list[Test]] = {}
    for file, text in files.items():
        for mark, function in marked_in(text):
            by_mark.setdefault(mark, []).append((file, function))
    return by_mark


@cache
def marked_in(text: str) -> list[tuple[tuple[str, str], Function]]:
    """Return the marks of a file of tests, each with its test, in the order of the file."""
    if not any(f"pytest.mark.{kind}" in text for kind in KINDS):
        return []
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, Function)]
    return [
        (mark, function)
        for function in sorted(functions, key=lambda f: f.lineno)
        for mark in marks(function)
    ]


def asserts_something(function: Function) -> bool:
    """Return whether a test asserts or expects an error."""
    return any(isinstance(node, ast.Assert | ast.With) for node in ast.walk(function))


def problems(files: Sources) -> list[str]:
    """Return the problems of the marks: unknown names, and names that no test covers."""
    by_mark = marked(files)
    wrong = [
        f"{file}::{function.name} is marked with the unknown {kind} {name}"
        for (kind, name), tests in by_mark.items()
        if name not in KINDS[kind]
        for file, function in tests
    ]
    for kind, statements in KINDS.items():
        wrong += [
            f"no test covers {kind} {name}" for name in statements if (kind, name) not in by_mark
        ]
    for tests in by_mark.values():
        wrong += [
            f"{file}::{function.name} asserts nothing"
            for file, function in tests
            if not asserts_something(function)
        ]
    for name in SCENARIOS:
        tests = by_mark.get(("scenario", name), [])
        if not any({a.arg for a in f.args.args} & BOTH_PLACES for _, f in tests):
            wrong.append(f"scenario {name} runs in one place: use one of {sorted(BOTH_PLACES)}")
    return wrong


def table(kind: str, files: Sources) -> str:
    """Return the table of a kind as Markdown: name, what must hold, tests by file."""
    by_mark = marked(files)
    lines = [f"| {kind} | what must hold | tests |", "|---|---|---|"]
    for name, statement in KINDS[kind].items():
        by_file: dict[str, list[str]] = {}
        for file, function in by_mark.get((kind, name), []):
            by_file.setdefault(file, []).append(f"`{function.name}`")
        tests = "; ".join(f"{file}: {', '.join(names)}" for file, names in by_file.items())
        lines.append(f"| {name} | {statement} | {tests} |")
    return "\n".join(lines) + "\n"


def with_tables(text: str, files: Sources) -> str:
    """Return a text with regenerated tables, each between its two comments."""
    return _TABLE.sub(lambda m: f"{m[1]}{table(m[2], files)}{m[3]}", text)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8"), sources()), encoding="utf-8")
