"""Write golden tables once more, and then all vectors.

    PYTHONPATH=tests .venv/bin/python tests/golden/remake.py make_parted make_large

runs the named makers, and `vectors.py` and `make_negative.py` after them. Without a name it writes
the vectors alone; the name `all` stands for `MAKERS`. `README.md` says when that may be done.
"""

import importlib
import sys

# In the order in which they run: the first one removes the tables of all.
MAKERS = (
    "make",
    "make_whole",
    "make_rules",
    "make_keyed",
    "make_split",
    "make_branched",
    "make_large",
    "make_copied",
    "make_parted",
    "make_merged",
    "make_returned",
    "make_conditions",
    "make_keyed_conditions",
    "make_edges",
    "make_deletion_vectors",
    "make_evolved",
    "make_checked",
)


def main() -> int:
    """Run the makers that are named, and those of the vectors."""
    given = sys.argv[1:]
    named = MAKERS if given == ["all"] else given
    for name in [*named, "vectors", "make_negative"]:
        sys.stdout.write(f"{name}\n")
        importlib.import_module(f"golden.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
