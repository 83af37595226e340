"""The full scope: `python tests/model/run.py`. One line per model; exit code 1 on a violation."""

# ruff: noqa: T201 - a program

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.checker import explore
from model.scopes import CONTROLS, SCOPES

WANTED = 500_000


def main() -> int:
    """Explore every scope, then check that every removed guard is detected."""
    results = []
    for scope in SCOPES:
        results.append(explore(scope.make(), max_states=scope.most))
        print(results[-1].line(), flush=True)
        if results[-1].problem:
            print(results[-1].story())
    states = sum(result.states for result in results)
    seconds = sum(result.seconds for result in results)
    violations = sum(result.problem is not None for result in results)
    print(f"in all: {states:,} states, {seconds:.1f} s, {violations} violations")
    missed = []
    for control in CONTROLS:
        result = explore(control.make())
        noticed = result.problem is not None and control.says in result.problem
        print(f"without {' and '.join(control.off)}: ", end="")
        print(f"{result.states:,} states, {result.problem}, {len(result.trace)} steps")
        if not noticed:
            missed.append(control.off)
    print(f"{len(CONTROLS) - len(missed)} of {len(CONTROLS)} guards missed when taken away")
    return 1 if violations or missed or states < WANTED else 0


if __name__ == "__main__":
    sys.exit(main())
