"""Long runs: `python tests/simulation/run.py SEEDS [--first N] [--workers 2] [--changes N] …`.

Without `--first` the seeds are fresh. Prints the seeds per second and the events; a failing seed is
printed with the command to reproduce it and a shrunk trace. Then seeds of changes of rows
(`simulation.row_changes`), as many if not said, of all verbs on Parquet (`simulation.row_verbs`),
of keyed tables (`simulation.keyed`) and of logs that are cut (`simulation.cuts`), a fiftieth each
if not said: `run.py 0 --cuts 1000` has the last ones alone. The exit code is 1 if a seed failed, or
if an event was too rare in a run that is long enough to judge that.
"""

# ruff: noqa: T201 - a program for people
import argparse
import gc
import logging
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation import cuts, events, keyed, plans, row_changes, row_verbs
from simulation.scheduler import one_thread
from simulation.shrink import failure, told
from simulation.simulate import Sums, run, sums_of

BLOCK = 250
WORLDS = {"keyed": keyed, "verbs": row_verbs, "cuts": cuts}
WORLDS_BLOCK = 20
MAX_TOLD = 5
ENOUGH_TO_TELL = 5_000  # seeds: an event expected 15 times does not happen only 5 times by chance


def block(seeds, draw=plans.draw, again="1"):
    """Run seeds; return their counts, and the reports of those that fail."""
    sums, reports = Sums(), []

    def play(plan):
        sums.add(sums_of(run(plan)))

    with one_thread():
        for number, seed in enumerate(seeds):
            if number % 50 == 49:
                gc.collect()
            plan = draw(seed)
            if failure(plan, play) is not None:
                tries = 400 if len(reports) < 2 else 0
                reports.append(told(seed, plan, tries=tries, again=again))
    return sums, reports


def changes_block(seeds):
    """Run seeds of changes of rows, as `block` does others."""
    return block(seeds, row_changes.draw, "0 --changes 1")


def worlds_block(kind, seeds):
    """Run seeds of worlds; return what was done, how many ran, and what went wrong."""
    done, ran, reports = Counter(), 0, []
    logging.disable(logging.CRITICAL)
    with one_thread():
        for seed in seeds:
            try:
                world = WORLDS[kind].play(seed)
            except Exception:  # noqa: BLE001 - every error is a finding, and others may follow
                reports.append(f"again: run.py 0 --first {seed} --{kind} 1")
                reports[-1] += f"\n{traceback.format_exc()}"
            else:
                ran += 1
                done.update({n: c for n, c in world.done.items() if isinstance(c, int)})
    return done, ran, reports


def run_worlds(pool, kind, first, count):
    """Run and report seeds of worlds; return whether all is well."""
    last, began = first + count, time.monotonic()
    done, ran, failed = Counter(), 0, 0
    blocks = [range(n, min(n + WORLDS_BLOCK, last)) for n in range(first, last, WORLDS_BLOCK)]
    for block_done, block_ran, reports in pool.imap_unordered(partial(worlds_block, kind), blocks):
        done.update(block_done)
        ran += block_ran
        for report in reports:
            failed += 1
            if failed <= MAX_TOLD:
                print(report, "\n", flush=True)
    rare = WORLDS[kind].rare(done, ran)
    seconds = time.monotonic() - began
    print(f"{kind}: {ran} seeds, {seconds:.0f} s, {failed} failed; {dict(done.most_common())}")
    if rare:
        print(f"more rarely than expected: {rare}")
    return not failed and not rare


def run_plans(pool, work, first, count):
    """Run and report seeds of plans; return their sums, and how many failed."""
    last = first + count
    blocks = [range(n, min(n + BLOCK, last)) for n in range(first, last, BLOCK)]
    total, failed, began = Sums(), 0, time.monotonic()
    for sums, reports in pool.imap_unordered(work, blocks):
        total.add(sums)
        for report in reports:
            failed += 1
            if failed <= MAX_TOLD:
                print(report, "\n", flush=True)
    seconds = time.monotonic() - began
    print(total)
    print(f"{total.seeds / seconds:.0f} seeds/s, {seconds:.0f} s, {failed} failed", flush=True)
    return total, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, help="else fresh ones")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--changes", type=int, help="seeds of changes of rows; else as many")
    for kind in WORLDS:
        parser.add_argument(f"--{kind}", type=int, help="seeds of this kind; else a fiftieth")
    options = parser.parse_args()
    first = options.first
    if first is None:
        first = random.SystemRandom().randrange(10**9, 10**12)
    print(f"seeds {first} to {first + options.seeds - 1}", flush=True)
    changes = options.seeds if options.changes is None else options.changes
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        total, failed = run_plans(pool, block, first, options.seeds)
        rare = events.rare(total) if total.seeds >= ENOUGH_TO_TELL else []
        print(f"changes of rows: {changes} seeds from {first} on")
        total, wrong = run_plans(pool, changes_block, first, changes)
        rare += row_changes.rare(total.done, total.seeds)
        well = True
        for kind in WORLDS:
            count = getattr(options, kind)
            well &= run_worlds(pool, kind, first, options.seeds // 50 if count is None else count)
    if rare:
        print(f"more rarely than expected: {', '.join(rare)}")
    return 1 if failed or wrong or rare or not well else 0


if __name__ == "__main__":
    raise SystemExit(main())
