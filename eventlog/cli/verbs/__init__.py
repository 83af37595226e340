"""The verbs of the program, by subject. They only ask the libraries, and show.

Needs the extra `cli`. `tables` is a good one to begin with.
"""

from eventlog.cli.verbs import (
    branches,
    compaction,
    copies,
    engines,
    fsck,
    reading,
    rows,
    tables,
    upkeep,
    vacuum,
)

VERBS = (
    *tables.VERBS,
    *reading.VERBS,
    *engines.VERBS,
    *rows.VERBS,
    *compaction.VERBS,
    *vacuum.VERBS,
    *upkeep.VERBS,
    *fsck.VERBS,
    *branches.VERBS,
    *copies.VERBS,
)

__all__ = ["VERBS"]
