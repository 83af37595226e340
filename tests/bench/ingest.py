"""One of several that append while another compacts: `ingest.py SYSTEM ROOT SECONDS NUMBER`.

Appends 100 rows of one day again and again, the days in turn, each row with an id of its own, and
prints how many appends it tried, which of them raised, and the seconds it took.
"""

import json
import sys
import time

import together
from compactors import COMPACTORS
from ids import BLOCK, block


def main():
    name, root, seconds, number = sys.argv[1:5]
    system = COMPACTORS[name](root, together.options())
    system.attach()
    together.wait_for_go()
    started = time.monotonic()
    tried, failed, why = 0, [], ""
    while time.monotonic() - started < float(seconds):
        rows = block(int(number), tried)
        tried += 1
        try:
            system.append(rows)
        except Exception as error:
            failed.append(tried - 1)
            why = why or f"{type(error).__name__}: {error}"[:200]
            system.attach()
    told = {
        "tried": tried,
        "failed": failed,
        "seconds": time.monotonic() - started,
        "rows": BLOCK * (tried - len(failed)),
        "why": why,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
