"""Write golden tables once more, and then all vectors.

    PYTHONPATH=tests .venv/bin/python tests/golden/remake.py make_parted make_large

runs the named makers, and `vectors.py` and `make_negative.py` after them. Without a name it writes
the vectors alone. `README.md` says when that may be done.
"""

import importlib
import sys


def main() -> int:
    """Run the makers that are named, and those of the vectors."""
    for name in [*sys.argv[1:], "vectors", "make_negative"]:
        sys.stdout.write(f"{name}\n")
        importlib.import_module(f"golden.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
