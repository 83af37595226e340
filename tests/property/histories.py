"""Long runs: `python tests/property/histories.py HISTORIES [--first N] [--of forks]`.

Without `--first` the seeds are fresh. Prints what the histories contained; a seed that fails is
printed with its error. The exit code is 1 if one failed, or if something happened too rarely to
prove anything.
"""

# ruff: noqa: T201 - a program for people
import argparse
import gc
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

# The folder of the tests comes first, and this one, `property`, is left out.
HERE = Path(__file__).parent
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry) != HERE)]

from support import forked_histories as forked  # noqa: E402 - found by the line before
from support import row_forks as rows  # noqa: E402 - likewise
from support import united_histories as united  # noqa: E402 - likewise
from support.changed_rows import play_changes, rare_changes  # noqa: E402 - likewise
from support.deep_histories import play_deep, rare_deep  # noqa: E402 - likewise
from support.doubled_histories import play_doubled, rare_doubled  # noqa: E402 - likewise
from support.evolution_chain import (  # noqa: E402 - likewise
    play_columns,
    play_keyed_columns,
    rare_columns,
)
from support.held_histories import play_held, rare_held  # noqa: E402 - likewise
from support.keyed_publications import (  # noqa: E402 - likewise
    play_anywhere,
    rare_publications,
)
from support.merged_schemas import play_schemas, rare_schemas  # noqa: E402 - likewise
from support.random_histories import play, rare  # noqa: E402 - likewise
from support.row_rings import (  # noqa: E402 - likewise
    play_rings,
    play_unit_rings,
    rare_rings,
    rare_unit_rings,
)

MAX_TOLD = 5
KINDS = {
    "keyed": (play, rare),
    "published": (play_anywhere, rare_publications),
    "rows": (play_changes, rare_changes),
    "columns": (play_columns, rare_columns),
    "keyed-columns": (play_keyed_columns, rare_columns),
    "schemas": (play_schemas, rare_schemas),
    "rings": (play_rings, rare_rings),
    "unit-rings": (play_unit_rings, rare_unit_rings),
    "row-forks": (rows.play_row_forks, rows.rare_row_forks),
    "row-branches": (rows.play_row_branches, rows.rare_row_branches),
    "row-deep": (rows.play_row_deep, rows.rare_row_deep),
    "row-united": (rows.play_row_united, rows.rare_row_united),
    "forks": (forked.play_forks, forked.rare),
    "branches": (forked.play_branches, forked.rare_branched),
    "deep": (play_deep, rare_deep),
    "doubled": (play_doubled, rare_doubled),
    "held": (play_held, rare_held),
    "keyed-forks": (forked.play_keyed_forks, forked.rare_keyed),
    "united": (united.play_united, united.rare_united),
    "united-keyed": (united.play_united_keyed, united.rare_united_keyed),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("histories", type=int, help="how many")
    parser.add_argument("--first", type=int, help="seed; else fresh ones")
    parser.add_argument("--of", choices=KINDS, default="keyed", help="keyed tables, or copies")
    options = parser.parse_args()
    first, (one, too_rare) = options.first, KINDS[options.of]
    if first is None:
        first = random.SystemRandom().randrange(10**9, 10**12)
    print(f"seeds {first} to {first + options.histories - 1}", flush=True)
    gc.disable()  # it costs a twentieth of the time
    counts, failed, began = Counter(), [], time.monotonic()
    for number in range(options.histories):
        try:
            counts.update(one(first + number).counts)
        except KeyboardInterrupt:
            options.histories = number
            break
        except Exception:  # noqa: BLE001 - every error is a finding, and others may follow
            failed.append(first + number)
            if len(failed) <= MAX_TOLD:
                print(f"seed {first + number}:\n{traceback.format_exc()}", flush=True)
        if number % 50 == 49:
            gc.collect()
        if number % 500 == 499:
            seconds = time.monotonic() - began
            print(f"{number + 1} histories, {seconds:.0f} s, {len(failed)} failed", flush=True)
    for name, count in sorted(counts.items()):
        print(f"  {count:>9,}  {name}")
    seconds = time.monotonic() - began
    print(f"{options.histories / seconds:.1f} histories/s, {seconds:.0f} s, {len(failed)} failed")
    if failed:
        print(f"again: {sys.argv[0]} 1 --first {failed[0]} --of {options.of}")
    few = too_rare(counts)
    if few:
        print(f"more rarely than expected: {few}")
    return 1 if failed or few else 0


if __name__ == "__main__":
    raise SystemExit(main())
