"""One of several writers of one table: `contender.py SYSTEM ROOT SECONDS FIRST`.

Says `ready`, waits for a line, appends 100 rows again and again until the time is over, and prints
how many appends were acknowledged, how many failed, and the seconds it took.
"""

import json
import sys
import time

import peers
import together


def main():
    name, root, seconds, first = sys.argv[1:5]
    system = peers.SYSTEMS[name](root, together.options())
    system.attach()
    rows = peers.small_rows(first=int(first))
    together.wait_for_go()
    started = time.monotonic()
    acknowledged, failed, why = 0, 0, ""
    while time.monotonic() - started < float(seconds):
        try:
            system.append(rows)
            acknowledged += 1
        except Exception as error:
            failed += 1
            why = f"{type(error).__name__}: {error}"[:200]
            system.attach()
    elapsed = time.monotonic() - started
    told = {"acknowledged": acknowledged, "failed": failed, "seconds": elapsed, "why": why}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
