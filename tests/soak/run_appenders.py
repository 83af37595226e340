"""Kill processes with an appender, in a directory and on an S3 server, and check what they left.

    python -m soak.run_appenders --kills N [--seed S]

with `tests` on the path.
"""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from soak.appenders import season


def main() -> int:
    """Run a season in each store, and print what was found."""
    parser = argparse.ArgumentParser(description="kill -9 of processes with an appender")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    chosen = parser.parse_args()
    wrong = False
    for kind in ("directory", "s3"):
        with tempfile.TemporaryDirectory() as folder:
            found = season(kind, chosen.kills, chosen.seed, Path(folder))
        sys.stdout.write(f"{kind}, seed {chosen.seed}\n{found.text()}\n")
        sys.stdout.flush()
        wrong = wrong or bool(found.violations)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
