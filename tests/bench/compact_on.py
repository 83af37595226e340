"""One that compacts a table again and again: `compact_on.py SYSTEM ROOT SECONDS`.

Prints after every pass what all passes came to, so that one that never ends is seen for what it is.
"""

import json
import sys
import time

import together
from compactors import COMPACTORS


def main():
    name, root, seconds = sys.argv[1:4]
    system = COMPACTORS[name](root, together.options())
    system.attach()
    together.wait_for_go()
    started = time.monotonic()
    told = {"committed": 0, "failed": 0, "idle": 0, "tries": [], "longest_s": 0.0, "why": ""}
    while (begun := time.monotonic()) - started < float(seconds):
        try:
            done = system.compact()
        except Exception as error:
            told["failed"] += 1
            told["why"] = told["why"] or f"{type(error).__name__}: {error}"[:200]
            system.attach()
        else:
            told["committed"] += done.committed
            told["failed"] += done.failed
            told["idle"] += not (done.committed or done.failed)
            told["tries"] += done.tries
            told["why"] = told["why"] or done.why
        told["longest_s"] = max(told["longest_s"], time.monotonic() - begun)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
