"""Runs the tests of this folder on several versions of Spark, and says what each of them has.

    python tests/spark/matrix.py 3.5 newest     # the environments are made by .ci/spark-matrix
    python tests/spark/matrix.py --quick 3.5    # a selection

Every cell of the table comes from tests that ran. If all promised versions are asked for, the table
is written to docs/guides/pyspark.md.
"""

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "pyspark.md"
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "newest")
RUN_SECONDS = 1500  # a version, unless the environment says otherwise
BEGIN, END = "<!-- Spark versions: made by `make test-spark-matrix` -->\n", "<!-- end -->"

# The columns, and the files whose tests show them. A test that shows another one says so by the
# mark `shows`.
COLUMNS = {
    "batch write": ("test_write", "test_functions", "test_late_jobs"),
    "batch read, both engines": ("test_read", "test_engines", "test_names"),
    "idempotent re-run": ("test_driver_killed",),
    "streaming sink": ("test_stream_sink",),
    "streaming source": ("test_stream_source", "test_changes"),
    "Spark Connect": ("test_connect",),
    "a cluster": ("test_cluster",),
}
PROPERTY = "shows"  # of a test in the report of a run


@dataclass
class Cell:
    """The tests of one column on one version."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return what the table says: yes only if tests ran, and every one of them passed."""
        if self.failed:
            return f"**no** ({len(self.failed)} of {self.passed + len(self.failed)} fail)"
        if self.passed:
            return f"yes ({self.passed})"
        return "-"


@dataclass
class Row:
    """One version of Spark."""

    version: str
    cells: dict[str, Cell]
    seconds: float
    problem: str | None = None


def column_of(file: str, marked: str | None) -> str | None:
    """Return the column that a test belongs to: the marked one, or that of its file."""
    if marked is not None:
        return marked
    stem = Path(file).stem
    return next((name for name, files in COLUMNS.items() if stem in files), None)


def cells_of(report: ET.Element) -> dict[str, Cell]:
    """Return the cells of a run from its report in JUnit's XML."""
    cells = {name: Cell() for name in COLUMNS}
    for case in report.iter("testcase"):
        column = next(
            (p.get("value") for p in case.iter("property") if p.get("name") == PROPERTY),
            column_of(str(case.get("name")).rpartition(".")[2], None),  # a file that was skipped
        )
        if column is None:
            continue
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            cells[column].failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skipped is not None:
            cells[column].skipped.append(_why(skipped))
        else:
            cells[column].passed += 1
    return cells


def _why(skipped: ET.Element) -> str:
    """Return the reason; that of a whole file is in the text: ('path', line, 'Skipped: why')."""
    _, of_file, why = (skipped.text or "").rpartition("'Skipped: ")
    return why.rstrip("')") if of_file else str(skipped.get("message"))


def table(rows: Iterable[Row]) -> str:
    """Return the table, and below it why a version lacks what it lacks."""
    rows = list(rows)
    lines = [
        f"| PySpark | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
        *(
            f"| {row.version} | {' | '.join(row.cells[name].text() for name in COLUMNS)} |"
            for row in rows
        ),
    ]
    notes = []
    for row in rows:
        for name, cell in row.cells.items():
            if not cell.passed and not cell.failed:
                why = "; ".join(sorted(set(cell.skipped))) or "no test ran"
                notes.append(f"- {row.version}, {name}: {why}.")
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def write_page(text: str, page: Path = PAGE) -> None:
    """Put the table between its markers in the page."""
    old = page.read_text(encoding="utf-8")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN}{END}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def run(version: str, *, quick: bool, environ: Mapping[str, str]) -> Row:
    """Run the tests with the environment of a version."""
    home = ROOT / ".spark" / version
    report = home / "report.xml"
    report.unlink(missing_ok=True)
    known = subprocess.run(
        [home / "bin" / "python", "-c", "import pyspark; print(pyspark.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    command = [
        home / "bin" / "python", "-m", "pytest", "tests/spark", "-q", "-p", "no:xdist",
        "-p", "no:cacheprovider", f"--junitxml={report}",
        "-m", "everyday" if quick else "not soak and not localstack and not bench and not maven",
        # These run on the Spark that `make setup` installs.
        "--ignore=tests/spark/test_demo.py", "--ignore=tests/spark/test_platforms.py",
    ]  # fmt: skip
    # Spark is that of the environment, whatever another one is set to.
    clean = {k: v for k, v in environ.items() if k not in ("SPARK_HOME", "PYSPARK_PYTHON")}
    clean["PATH"] = f"{home / 'bin'}{os.pathsep}{clean.get('PATH', '')}"
    started = time.monotonic()
    limit = float(environ.get("RUN_SECONDS", RUN_SECONDS))
    _say(f"\n== Spark {known}")
    try:
        code = subprocess.run(command, cwd=ROOT, env=clean, timeout=limit).returncode
        problem = None if code == 0 else f"pytest ended with {code}"
    except subprocess.TimeoutExpired:
        problem = f"not done after {limit:.0f} s"
    cells = {name: Cell() for name in COLUMNS}
    if report.exists():
        cells = cells_of(ET.parse(report).getroot())
    return Row(known, cells, time.monotonic() - started, problem)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--versions", action="store_true", dest="show", help="print them, and end")
    asked = parser.parse_args()
    if asked.show:
        _say(" ".join(VERSIONS))
        return 0
    rows = [run(version, quick=asked.quick, environ=os.environ) for version in asked.versions]
    if not asked.quick:
        text = table(rows)
        _say(f"\n{text}")
        for row in rows:
            _say(f"Spark {row.version}: {row.seconds:.0f} s, {row.problem or 'all passed'}")
        if set(asked.versions) == set(VERSIONS):
            write_page(text)
    return int(any(row.problem for row in rows))


if __name__ == "__main__":
    sys.exit(main())
