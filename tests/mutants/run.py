"""All mutants against their tests: `python tests/mutants/run.py [NAME ...] [--workers 2]`.

Prints which test kills which mutant and in how many seconds. The exit code is 1 if a mutant
survives, no longer fits the code, or its tests fail without it.
"""

# ruff: noqa: T201 - what it prints is what it is for
import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[0] = str(TESTS)  # instead of this folder, where `mutants` would be the file

from mutants.killers import node_ids  # noqa: E402 - found by the line before
from mutants.mutants import BY_NAME, MUTANTS  # noqa: E402

ROOT = TESTS.parent
SECONDS = 180  # for one mutant's tests
# A killer may be one that `make test` leaves to `make verify`.
_CHOSEN = "not demo and not localstack and not bench and not soak and not long and not maven"
_SLIP = re.compile("NameError|UnboundLocalError|ImportError|SyntaxError")  # of the mutant itself
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?=$| - ))?)", re.MULTILINE)


def pytest(*arguments):
    """Run pytest in a separate process; return its exit code and its output."""
    path = os.pathsep.join(p for p in (str(TESTS), os.environ.get("PYTHONPATH")) if p)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "--show-capture=no"]
    command += ["-p", "no:cacheprovider", "-p", "mutants.plugin", "-m", _CHOSEN, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return -1, "no end"
    return done.returncode, done.stdout + done.stderr


def result_of(mutant, tests=()):
    """Return (mutant, whether it was killed, by what, seconds)."""
    began = time.monotonic()
    code, output = pytest("--mutant", mutant.name, *(tests or node_ids(mutant.killers)))
    match, slip = _FAILED.search(output), _SLIP.search(output)
    killed = code == 1 and match is not None and slip is None
    by = match[1] if killed else f"SURVIVED (exit code {code}) {output.strip()[-200:]}"
    return mutant, killed, by, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=(), help="instead of the mutants' own")
    options = parser.parse_args()
    mutants = [BY_NAME[name] for name in options.names] or MUTANTS
    began, survivors = time.monotonic(), []
    width = max(len(mutant.name) for mutant in mutants)
    with ThreadPoolExecutor(options.workers) as pool:
        control = pool.submit(pytest, *sorted({k for m in mutants for k in node_ids(m.killers)}))
        for mutant, killed, by, seconds in pool.map(lambda m: result_of(m, options.tests), mutants):
            by_name = by.removeprefix("tests/")
            print(
                f"{mutant.name:{width}}  {mutant.hazards:13}  {seconds:5.1f} s  {by_name}",
                flush=True,
            )
            if not killed:
                survivors.append(mutant.name)
        code, output = control.result()
    print(f"without a mutant: {output.strip().splitlines()[-1]}")
    print(f"{len(mutants)} mutants, {len(survivors)} survive, {time.monotonic() - began:.0f} s")
    return 1 if survivors or code else 0


if __name__ == "__main__":
    raise SystemExit(main())
