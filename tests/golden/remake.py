"""Write golden tables once more, and then all vectors.

    PYTHONPATH=.:tests .venv/bin/python -P tests/golden/remake.py make_parted make_large

runs the named makers, and `vectors.py` and `make_negative.py` after them. With `--all` it runs all
makers, and writes the example of FORMAT.md, too. Without a name it writes the vectors alone.
`README.md` says when that may be done.
"""

import importlib
import sys

# In an order in which each finds what it reads.
MAKERS = (
    *("make", "make_whole", "make_rules", "make_keyed", "make_split", "make_branched"),
    *("make_large", "make_copied", "make_parted", "make_merged", "make_returned", "make_cut"),
    *("make_conditions", "make_keyed_conditions", "make_edges", "make_deletion_vectors"),
    *("make_evolved", "make_checked", "make_timeless", "make_advanced", "make_stems"),
    "make_inline",
)
VECTORS = ("vectors", "make_negative")


def main() -> int:
    """Run the makers that are named, and those of the vectors."""
    named = sys.argv[1:]
    makers = [*MAKERS, *VECTORS, "make_example"] if named == ["--all"] else [*named, *VECTORS]
    for name in makers:
        sys.stdout.write(f"{name}\n")
        importlib.import_module(f"golden.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
